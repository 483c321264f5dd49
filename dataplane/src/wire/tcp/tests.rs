//! Tests of TCP headers: their options, and headers read back from their octets.

use arrayvec::ArrayVec;
use proptest::prelude::*;

use super::options::MSS;
use super::*;

fn emitted(header: &Header) -> Vec<u8> {
    let mut out = vec![0xff; header.header_len()];
    header.emit(&mut out);
    out
}

#[test]
fn a_syn_looks_like_that_of_linux() {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 0x0102_0304, echo: 0 }),
        sack: ArrayVec::new(),
        rdma: None,
    };
    let header = Header { flags: Flags::SYN, options, ..Header::default() };
    let octets = emitted(&header);
    assert_eq!(octets[12], 0xa0);
    let expected = [2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];
    assert_eq!(octets[20..], expected);
    assert_eq!(Header::parse(&octets), Ok((header, 40)));
}

#[test]
fn established_segments_align_their_timestamps() {
    let options = Options { timestamps: Some(Timestamps { value: 1, echo: 2 }), ..Options::default() };
    let header = Header { flags: Flags::ACK | Flags::PSH, options, ..Header::default() };
    let octets = emitted(&header);
    assert_eq!(octets[20..], [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(Header::parse(&octets), Ok((header, 32)));
}

#[test]
fn beside_timestamps_three_blocks_fit() {
    let block = |n: u32| (SeqNumber(n * 100), SeqNumber(n * 100 + 50));
    let mut options = Options { sack: (1..=4).map(block).collect(), ..Options::default() };
    let alone = Header { options: options.clone(), ..Header::default() };
    assert_eq!(alone.header_len(), 56);
    assert_eq!(Header::parse(&emitted(&alone)), Ok((alone, 56)));
    options.timestamps = Some(Timestamps::default());
    let crowded = Header { options, ..Header::default() };
    assert_eq!(crowded.header_len(), 60);
    let (parsed, _) = Header::parse(&emitted(&crowded)).unwrap();
    assert_eq!(parsed.options.sack[..], crowded.options.sack[..3]);
}

#[test]
fn an_impossible_length_ends_the_options_and_unknown_ones_are_skipped() {
    let parse = |options: &[u8]| {
        let mut octets = emitted(&Header::default());
        octets.extend(options);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets[12] = (octets.len() / 4) as u8 * 16;
        Header::parse(&octets).map(|(header, _)| header.options)
    };
    let shift = Options { window_scale: Some(7), ..Options::default() };
    for bad in [
        &[2, 3, 5][..],
        &[2, 5, 5, 0xb4, 0],
        &[3, 4, 7, 0],
        &[4, 3, 0],
        &[8, 9, 0, 0, 0, 0, 0, 0, 0],
        &[5, 9, 0, 0, 0, 0, 0, 0, 0],
        &[253, 0, 0, 0],
        &[253, 1, 0, 0],
        &[253, 9, 0, 0],
        &[1, 1, 1, 253],
    ] {
        assert_eq!(parse(bad), Ok(Options::default()), "{bad:?}");
        let before = [&[3, 3, 7], bad].concat();
        assert_eq!(parse(&before), Ok(shift.clone()), "{before:?}");
        // The MSS after the damage may be part of it.
        let after = [&[3, 3, 7], bad, &[2, 4, 5, 0xb4]].concat();
        assert_eq!(parse(&after).unwrap().mss, None, "{after:?}");
    }
    let skipped = parse(&[253, 4, 9, 9, 25, 2, 2, 4, 5, 0xb4, 0, 2]).unwrap();
    assert_eq!(
        skipped,
        Options { mss: Some(1460), rdma: Some(RdmaOption::Permitted), ..Options::default() },
        "nothing counts after the end"
    );
    assert_eq!(parse(&[3, 3, 255]).unwrap().window_scale, Some(14));
}

#[test]
fn impossible_data_offsets_are_refused() {
    let mut octets = emitted(&Header::default());
    octets[12] = 0x40;
    assert_eq!(Header::parse(&octets), Err(Malformed::Length));
    octets[12] = 0x60;
    assert_eq!(Header::parse(&octets), Err(Malformed::Truncated));
    assert_eq!(Header::parse(&octets[..19]), Err(Malformed::Truncated));
}

#[test]
fn the_checksum_goes_to_its_field() {
    let mut octets = emitted(&Header::default());
    set_checksum(&mut octets, 0x1234);
    assert_eq!(octets[16..18], [0x12, 0x34]);
    set_checksum(&mut octets[..17], 0xffff);
    assert_eq!(octets[16], 0x12, "a header cut short is left alone");
}

/// No option, or one of any form.
fn rdma_options() -> impl Strategy<Value = Option<RdmaOption>> {
    let body = prop_oneof![Just(0), Just(2usize), Just(14), Just(18), Just(3)]
        .prop_flat_map(|len| proptest::collection::vec(any::<u8>(), len));
    body.prop_map(|body| RdmaOption::parse(&body))
}

/// Only the first option counts, and one that is malformed does not make the others so.
// Requirements: TRO-3.1-01, TRO-3.3-01
#[test]
fn of_several_rdma_options_the_first_counts() {
    let parse = |options: &[u8], kind: u8| {
        let mut octets = emitted(&Header::default());
        octets.extend(options);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets[12] = (octets.len() / 4) as u8 * 16;
        Header::parse_with(&octets, kind).map(|(header, _)| header.options).unwrap()
    };
    let aligned = |message_aligned, unsolicited| Options {
        rdma: Some(RdmaOption::Aligned { message_aligned, unsolicited }),
        ..Options::default()
    };
    let two = [25, 4, 0x80, 0, 25, 4, 0x40, 0];
    assert_eq!(parse(&two, 25), aligned(true, false));
    assert_eq!(parse(&two, 26), Options::default(), "another kind");
    assert_eq!(parse(&[25, 4, 0x80, 0, 253, 4, 0x40, 0], 253), aligned(false, true));
    let shift = Options { window_scale: Some(7), ..Options::default() };
    for len in (3..38).filter(|len| !matches!(len, 4 | 16 | 20)) {
        let mut malformed = vec![25, len];
        malformed.resize(usize::from(len), 0x19);
        // It is skipped by its length; an option of its kind after it does not replace it.
        let followed = [&malformed[..], &[3, 3, 7]].concat();
        if followed.len() <= Options::ROOM {
            assert_eq!(parse(&followed, 25), shift, "{len}");
        }
        let followed = [&malformed[..], &[25, 2]].concat();
        if followed.len() <= Options::ROOM {
            assert_eq!(parse(&followed, 25), Options::default(), "{len}");
        }
    }
    // Without room for its length the list ends.
    assert_eq!(parse(&[3, 3, 7, 25, 20, 0x80, 0, 0], 25), shift);
    assert_eq!(parse(&[3, 3, 7, 25, 1, 25, 2, 0], 25), shift);
}

/// A kind that another option has is that option's.
#[test]
fn other_options_keep_their_kinds() {
    let header = Header { options: Options { mss: Some(1460), ..Options::default() }, ..Header::default() };
    let octets = emitted(&header);
    assert_eq!(Header::parse_with(&octets, MSS), Ok((header, octets.len())));
}

proptest! {
    #[test]
    fn any_octets_parse_or_fail(octets in proptest::collection::vec(any::<u8>(), 20..80)) {
        if let Ok((header, data_offset)) = Header::parse(&octets) {
            prop_assert!((20..=60).contains(&data_offset) && data_offset <= octets.len());
            let (again, _) = Header::parse(&emitted(&header)).unwrap();
            prop_assert_eq!(again.seq, header.seq);
            prop_assert_eq!(again.options.timestamps, header.options.timestamps);
        }
    }

    #[test]
    fn headers_survive(
        ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, urgent: u16, mss: Option<u16>,
        window_scale in proptest::option::of(0u8..=14), sack_permitted: bool,
        timestamps: Option<(u32, u32)>, sack in proptest::collection::vec(any::<(u32, u32)>(), 0..=1),
        rdma in rdma_options(), rdma_kind in 9u8..,
    ) {
        let options = Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
            sack: sack.into_iter().map(|(left, right)| (SeqNumber(left), SeqNumber(right))).collect(),
            rdma,
        };
        let header = Header {
            source_port: ports.0,
            destination_port: ports.1,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags: Flags::from_bits_retain(flags),
            window,
            urgent,
            options,
        };
        let mut octets = vec![0xff; header.header_len()];
        header.emit_with(&mut octets, rdma_kind);
        let (parsed, len) = Header::parse_with(&octets, rdma_kind).expect("our own header");
        // The blocks have the room that everything else leaves.
        let crowded = header.options.fixed_len() + 12 > Options::ROOM && !header.options.sack.is_empty();
        let mut expected = header;
        if crowded {
            expected.options.sack.clear();
        }
        prop_assert_eq!((parsed, len), (expected, octets.len()));
        prop_assert!(octets.len() <= Header::MAX_LEN);
    }

    /// Whatever options there are, the RDMA option begins at a multiple of four octets, and each of its
    /// octets is where the codec has it.
    // Requirements: TRO-3.1.8-02, TRO-3.1.8-03
    #[test]
    fn rdma_options_are_aligned(
        mss: Option<u16>, window_scale in proptest::option::of(0u8..=14), sack_permitted: bool,
        clock: bool, blocks in 0u32..=4, rdma in rdma_options(),
    ) {
        let timestamps = clock.then_some(Timestamps { value: 0x1919_1919, echo: 0x1902_1902 });
        let sack = (0..blocks).map(|n| (SeqNumber(n * 100), SeqNumber(n * 100 + 50))).collect();
        let options = Options { mss, window_scale, sack_permitted, timestamps, sack, rdma };
        let octets = emitted(&Header { options, ..Header::default() });
        prop_assert!(octets.len() <= Header::MAX_LEN && octets.len().is_multiple_of(4));
        if let Some(option) = rdma {
            let mut expected = [0; RdmaOption::MAX_LEN];
            let len = option.emit(tcp_rdma::DEFAULT_KIND, &mut expected);
            let places = (Header::MIN_LEN..octets.len()).step_by(4);
            let mut at = places.filter(|at| octets[*at..].starts_with(&expected[..len]));
            prop_assert!(at.next().is_some(), "{octets:02x?}");
        }
    }
}
