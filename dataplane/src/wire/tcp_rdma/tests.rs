//! The codec of the option, bit by bit, and the formats of RIDs.

use proptest::prelude::*;

use super::*;

/// The RID of the golden vectors, which shows the order of the bits.
const BITS: u64 = 0x2abb_ccdd_eeff;

const TRANSFER: Transfer = Transfer {
    rid: match Rid::new(BITS) {
        Some(rid) => rid,
        None => panic!("46 bits"),
    },
    message_aligned: false,
    unsolicited: true,
    buffer_offset: 1000,
    data_offset: 20,
    data_octets: 512,
    total_octets: Some(4000),
};

fn emitted(option: &RdmaOption) -> Vec<u8> {
    let mut out = vec![0xee; 24];
    let len = option.emit(DEFAULT_KIND, &mut out);
    assert_eq!(len, option.len());
    assert!(out[len..].iter().all(|octet| *octet == 0xee), "octets after the option stay");
    out.truncate(len);
    out
}

// Requirements: TRO-3.1-02, TRO-3.1.1-02
#[test]
fn each_field_has_its_place() {
    let octets = emitted(&RdmaOption::Transfer(TRANSFER));
    assert_eq!(
        octets,
        [25, 20, 0x6a, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0, 0, 3, 0xe8, 0, 20, 2, 0, 0, 0, 0x0f, 0xa0]
    );
    let unknown_total = Transfer { total_octets: None, message_aligned: true, ..TRANSFER };
    let octets = emitted(&RdmaOption::Transfer(unknown_total));
    assert_eq!(octets, [25, 16, 0xea, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0, 0, 3, 0xe8, 0, 20, 2, 0]);
}

/// The form of two octets is filled up by NOPs, so that what follows is aligned too.
// Requirements: TRO-3.1.8-02
#[test]
fn every_form_takes_a_multiple_of_four_octets() {
    assert_eq!(emitted(&RdmaOption::Permitted), [25, 2, 1, 1]);
    for (message_aligned, unsolicited, octet) in
        [(false, false, 0), (true, false, 0x80), (false, true, 0x40), (true, true, 0xc0)]
    {
        let option = RdmaOption::Aligned { message_aligned, unsolicited };
        assert_eq!(emitted(&option), [25, 4, octet, 0]);
    }
}

/// the RID bits of the form of four octets are ignored.
// Requirements: TRO-3.1.6-02
#[test]
fn the_form_of_four_octets_has_no_rid() {
    assert_eq!(
        RdmaOption::parse(&[0xbf, 0xff]),
        Some(RdmaOption::Aligned { message_aligned: true, unsolicited: false })
    );
}

// Requirements: TRO-3.1.2-01, TRO-3.1.3-01, TRO-3.1.3-02
#[test]
fn the_data_lies_inside_the_payload() {
    let at = |data_offset, data_octets| Transfer { data_offset, data_octets, ..TRANSFER };
    assert!(at(100, 100).fits(200));
    assert!(at(200, 0).fits(200), "equality is allowed");
    assert!(at(0, 0).fits(0));
    assert!(!at(100, 101).fits(200));
    assert!(!at(201, 0).fits(200));
    assert!(!at(0xffff, 0xffff).fits(0xfffe), "the sum does not wrap");
}

// Requirements: TRO-3.1.1-01
#[test]
fn a_rid_has_46_bits() {
    assert_eq!(Rid::new((1 << 46) - 1).map(Rid::get), Some((1 << 46) - 1));
    assert_eq!(Rid::new(1 << 46), None);
    assert_eq!(Rid::new(u64::MAX), None);
}

// Requirements: TRO-5.1.1-02, TRO-5.1.1-03
#[test]
fn one_operation_has_the_index_0() {
    assert_eq!(Rid::from(NfsRid::of_one_operation(0x1234_5678)).get(), 0x1234_5678);
    assert_eq!(Rid::from(NfsRid { xid: 0x1234_5678, operation: 2 }).get(), 0x0002_1234_5678);
}

/// Each bit that a format has as zero is sent as zero, and received as zero whatever it is.
// Requirements: TRO-5.1.1-04, TRO-5.2.1-01, TRO-5.3.1-02, TRO-5.4-01
#[test]
fn reserved_bits_are_zeros() {
    let all = Rid::new((1 << Rid::BITS) - 1).expect("46 bits");
    for bit in 0..Rid::BITS {
        let rid = Rid::new(1 << bit).expect("46 bits");
        let (nfs, http, cifs) =
            (NfsRid::from(rid).into(), HttpRid::from(rid).into(), CifsRid::from(rid).into());
        for (format, fields, bits) in [
            (RidFormat::Nfs, nfs, 40),
            (RidFormat::Http, http, 32),
            (RidFormat::Cifs, cifs, 40),
            // Another document defines it.
            (RidFormat::Opaque, Rid::from(ScsiRid::from(rid)), 46),
        ] {
            assert_eq!(fields, if bit < bits { rid } else { Rid::new(0).unwrap() }, "{format:?} {bit}");
            assert_eq!(format.received(rid), fields, "{format:?} {bit}");
            assert_eq!(format.received(all).get(), (1 << bits) - 1, "{format:?}");
        }
    }
}

prop_compose! {
    fn transfers()(
        bits in 0..1u64 << Rid::BITS, flags: (bool, bool), buffer_offset: u32, data: (u16, u16),
        total_octets: Option<u32>,
    ) -> Transfer {
        Transfer {
            rid: Rid::new(bits).expect("46 bits"),
            message_aligned: flags.0,
            unsolicited: flags.1,
            buffer_offset,
            data_offset: data.0,
            data_octets: data.1,
            total_octets,
        }
    }
}

proptest! {
    // Requirements: TRO-3.1-02, TRO-3.1.1-02
    #[test]
    fn transfers_survive(transfer in transfers(), kind: u8) {
        let mut octets = [0; RdmaOption::MAX_LEN];
        let option = RdmaOption::Transfer(transfer);
        let len = option.emit(kind, &mut octets);
        prop_assert_eq!(octets[..2].to_vec(), vec![kind, len as u8]);
        prop_assert_eq!(RdmaOption::parse(&octets[2..len]), Some(option));
    }

    /// Lengths of 2, 4, 16 and 20 hold whatever the octets are, and no other does.
    // Requirements: TRO-3.1-01
    #[test]
    fn only_four_lengths_are_valid(body in proptest::collection::vec(any::<u8>(), 0..=38)) {
        let option = RdmaOption::parse(&body);
        prop_assert_eq!(option.is_some(), matches!(body.len() + 2, 2 | 4 | 16 | 20));
        if let Some(option @ RdmaOption::Transfer(_)) = option {
            prop_assert_eq!(&emitted(&option)[2..], &body[..], "every bit counts");
        }
    }

    /// The fields of each format are found again.
    // Requirements: TRO-5.1.1-01, TRO-5.2.1-01, TRO-5.3.1-01
    #[test]
    fn rids_survive(operation: u8, word: u32, pid: u16, mid: u16) {
        let nfs = NfsRid { xid: word, operation };
        prop_assert_eq!(NfsRid::from(Rid::from(nfs)), nfs);
        let http = HttpRid { request_index: word };
        prop_assert_eq!(HttpRid::from(Rid::from(http)), http);
        let cifs = CifsRid { operation, pid, mid };
        prop_assert_eq!(CifsRid::from(Rid::from(cifs)), cifs);
    }
}
