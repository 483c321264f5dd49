//! Tests of runs: however one is cut, the options of its pieces say together what it says.

use proptest::prelude::*;

use super::*;

/// What an option says about the octets of the run that it covers: the place of each in the buffer.
fn said(option: Option<RdmaOption>, octets: u32) -> (Vec<Option<u32>>, bool, Option<u32>) {
    let mut places = vec![None; octets as usize];
    match option {
        None => (places, false, None),
        Some(RdmaOption::Transfer(transfer)) => {
            assert!(transfer.fits(octets as usize), "{transfer:?} of {octets}");
            for octet in 0..transfer.data_octets {
                places[usize::from(transfer.data_offset + octet)] =
                    Some(transfer.buffer_offset + u32::from(octet));
            }
            let nothing = (transfer.data_octets == 0).then_some(u32::from(transfer.data_offset));
            (places, transfer.message_aligned, nothing)
        }
        Some(RdmaOption::Aligned { message_aligned, unsolicited }) => {
            assert!(message_aligned && !unsolicited, "it would say nothing");
            (places, true, None)
        }
        Some(RdmaOption::Permitted) => panic!("that is for SYNs"),
    }
}

proptest! {
    // Requirements: TRO-3.1.5-01, TRO-3.1.6-01, TRO-3.1.8-01, TRO-3.3-02
    #[test]
    fn pieces_say_what_the_run_says(
        octets in 1_u32..400,
        at in 0_u32..400,
        part_octets in 0_u32..400,
        buffer_offset in 0_u32..10_000,
        (has_part, starts_message, unsolicited, total_known) in any::<(bool, bool, bool, bool)>(),
        cuts in proptest::collection::vec(1_u32..400, 0..6),
    ) {
        let at = at.min(octets);
        let part_octets = part_octets.min(octets - at);
        let section = Section {
            rid: Rid::new(0x2abb_ccdd_eeff).unwrap(),
            unsolicited,
            total_octets: total_known.then_some(20_000),
        };
        let part = has_part.then_some(SectionPart { section, at, octets: part_octets, buffer_offset });
        let run = ByteRun { octets, starts_message, part };

        let mut cuts: Vec<u32> = cuts.into_iter().filter(|cut| *cut < octets).chain([0, octets]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let (mut places, mut nothings) = (Vec::new(), 0);
        for ends in cuts.windows(2) {
            let (skip, len) = (ends[0], ends[1] - ends[0]);
            let option = run.rdma_option(skip, len);
            if let Some(option) = option {
                prop_assert!(option.len() as u32 <= run.option_octets());
            }
            if let Some(RdmaOption::Transfer(transfer)) = option {
                prop_assert_eq!(
                    (transfer.rid, transfer.unsolicited, transfer.total_octets),
                    (section.rid, unsolicited, section.total_octets)
                );
            }
            let (more, aligned, nothing) = said(option, len);
            prop_assert_eq!(aligned, starts_message && skip == 0);
            if let Some(place) = nothing {
                nothings += 1;
                prop_assert_eq!(skip + place, at);
            }
            places.extend(more);
        }
        let expected = |octet| {
            let inside = has_part && (at..at + part_octets).contains(&octet);
            inside.then(|| buffer_offset + octet - at)
        };
        prop_assert_eq!(places, (0..octets).map(expected).collect::<Vec<_>>());
        prop_assert_eq!(nothings, usize::from(has_part && part_octets == 0), "a transfer of nothing, once");
    }
}
