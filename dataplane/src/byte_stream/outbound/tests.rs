//! Tests of how pieces become runs: each octet is in one run, with what was said about it.

use proptest::prelude::*;

use super::super::writer::PIECE_OCTETS_MAX;
use super::super::{Annotation, ByteStreamConfig, ByteWriter};
use super::*;
use crate::ring::Rings;
use crate::wire::tcp_rdma::Rid;

const START: SeqNumber = SeqNumber(0xffff_fe00);
const RING_OCTETS: usize = 40_000;

#[derive(Clone, Debug)]
struct Written {
    octets: u32,
    starts_message: bool,
    /// Its number, and whether its total is known; the offset in the buffer.
    section: Option<(u64, bool, u32)>,
    /// The number of a transfer of nothing that goes with octets of no section.
    then_nothing: Option<u64>,
    lent: bool,
}

fn written() -> impl Strategy<Value = Written> {
    let octets = prop_oneof![1_u32..4, 1_u32..200, 1_u32..1500];
    let section = proptest::option::of((0_u64..3, any::<bool>(), 0_u32..3000));
    let nothing = proptest::option::of(10_u64..13);
    (octets, any::<bool>(), section, nothing, any::<bool>()).prop_map(
        |(octets, starts_message, section, nothing, lent)| {
            let then_nothing = nothing.filter(|_| section.is_none());
            Written { octets, starts_message, section, then_nothing, lent }
        },
    )
}

/// A transfer of nothing.
fn nothing(number: u64) -> Section {
    Section { rid: Rid::new(number).unwrap(), unsolicited: true, total_octets: Some(0) }
}

fn section((number, total_known, _): (u64, bool, u32)) -> Section {
    let total_octets = total_known.then_some(10_000);
    Section { rid: Rid::new(number).unwrap(), unsolicited: number == 2, total_octets }
}

/// What one call writes is no longer than a piece may be: the rest is for the next call.
#[test]
fn a_piece_is_as_long_as_it_says() {
    let config = ByteStreamConfig::new(Region::heap(3 * PIECE_OCTETS_MAX).unwrap(), Region::heap(1).unwrap());
    let shared = Arc::new(SharedByteStream::new(0, Rings::new().doorbells, config));
    let mut writer = ByteWriter::new(shared.clone());
    let mut outbound = Outbound::new(shared, START, false);
    let octets = vec![7; PIECE_OCTETS_MAX + 10];
    let written = [writer.write(&octets), writer.write(&octets[..10])];
    assert_eq!(written, [PIECE_OCTETS_MAX, 10]);
    writer.commit();
    outbound.accept_pieces();
    assert_eq!(outbound.unqueued_octets(), (PIECE_OCTETS_MAX + 10) as u64);
    let pieces: Vec<u32> = outbound.pieces.iter().map(|placed| placed.piece.octets).collect();
    assert_eq!(pieces, [PIECE_OCTETS_MAX as u32, 10]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    // Requirements: TRO-3.1.3-03, TRO-3.1.6-01, TRO-3.1.8-01, TRO-3.1.8-03, TRO-4-03, TRO-5.1.2-02
    #[test]
    fn each_octet_is_in_one_run(
        all in proptest::collection::vec(written(), 1..24),
        rooms in proptest::collection::vec(41_u32..1600, 1..8),
        annotates in any::<bool>(),
    ) {
        let config = ByteStreamConfig::new(Region::heap(RING_OCTETS).unwrap(), Region::heap(1).unwrap());
        let shared = Arc::new(SharedByteStream::new(0, Rings::new().doorbells, config));
        let mut writer = ByteWriter::new(shared.clone());
        let mut outbound = Outbound::new(shared, START, annotates);
        let (mut stream, mut targets, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        // Where each transfer of nothing is, and where it was found.
        let (mut nothings, mut found) = (Vec::new(), Vec::new());
        for one in &all {
            let octets: Vec<u8> = (0..one.octets).map(|at| (stream.len() as u32 + at * 7) as u8).collect();
            let annotation = Annotation {
                starts_message: one.starts_message,
                section: one.section.map(|named| (section(named), named.2)),
            };
            if one.lent {
                let memory = Region::heap(octets.len()).unwrap();
                prop_assert!(memory.write(0, &octets));
                prop_assert!(writer.write_memory(annotation, &memory, 0, octets.len()).is_some());
            } else {
                prop_assert_eq!(writer.write_annotated(annotation, &octets), octets.len());
            }
            for at in 0..one.octets {
                targets.push(one.section.map(|named| (section(named), named.2 + at)));
                starts.push(one.starts_message && at == 0);
            }
            stream.extend(octets);
            prop_assert!(one.section.is_none() || !writer.write_nothing(nothing(9), 0), "of a section");
            if let Some(number) = one.then_nothing {
                prop_assert!(writer.write_nothing(nothing(number), 0));
                prop_assert!(!writer.write_nothing(nothing(9), 0), "these octets have one");
                nothings.push((stream.len(), nothing(number)));
            }
        }
        writer.commit();
        prop_assert!(!writer.write_nothing(nothing(9), 0), "nothing that waits");
        outbound.accept_pieces();
        let mut at = 0;
        let mut rooms = rooms.iter().copied().cycle();
        let mut room = 0;
        // The runs that are to be like the last one: how many, and where the last of them ends.
        let (mut alike, mut alike_to, mut last) = (0, Cursor::default(), ByteRun::default());
        loop {
            if alike == 0 {
                room = rooms.next().unwrap();
            }
            let Some(next) = outbound.next_run(room) else { break };
            let run = next.run;
            prop_assert!(run.octets > 0 && run.octets + run.option_octets() <= room, "{run:?} in {room}");
            if alike > 0 {
                last.move_on(1);
                prop_assert_eq!(run, last);
                alike -= 1;
                prop_assert!(alike > 0 || next.after == alike_to);
            }
            let end = at + run.octets as usize;
            let mut octets = vec![0; run.octets as usize];
            prop_assert!(outbound.copy(START + at as u32, &mut octets));
            prop_assert_eq!(&octets, &stream[at..end]);
            if annotates {
                prop_assert!(!starts[at + 1..end].contains(&true), "a message begins inside");
                prop_assert!(run.starts_message || !starts[at]);
                let part = run.part.map_or(0..0, |part| part.at..part.at + part.octets);
                if let Some(part) = run.part.filter(|part| part.octets == 0) {
                    found.push((at + part.at as usize, part.section));
                    prop_assert!(part.at > 0, "an octet before it is in the segment");
                }
                for (octet, target) in (0..).zip(&targets[at..end]) {
                    let said = run.part.filter(|_| part.contains(&octet));
                    let said = said.map(|part| (part.section, part.buffer_offset + octet - part.at));
                    prop_assert_eq!(said, *target, "octet {} of {:?}", octet, run);
                }
            } else {
                prop_assert_eq!((run.starts_message, run.part), (false, None));
            }
            outbound.on_queued(&next);
            if alike == 0 {
                alike = outbound.runs_alike(&run, room);
                outbound.on_queued_alike(&run, alike);
                alike_to = mem::replace(&mut outbound.cursor, next.after);
            }
            last = run;
            at = end;
        }
        prop_assert_eq!(at, stream.len(), "all octets are sent");
        prop_assert_eq!(outbound.unqueued_octets(), 0);
        prop_assert_eq!(found, if annotates { nothings } else { Vec::new() }, "of nothing, once");
        // All is released that is acknowledged.
        outbound.on_acknowledged(START + at as u32);
        outbound.release(START + at as u32);
        prop_assert_eq!(writer.released_pieces(), all.len() as u64);
        prop_assert!(writer.is_acknowledged());
    }
}
