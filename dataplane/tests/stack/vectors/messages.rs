//! Vectors of DDP Segments and RDMA Messages, alone and as FPDUs.

use warpline_dataplane::memory::STag;
use warpline_dataplane::wire::ddp::{Header, Tagged, Untagged};
use warpline_dataplane::wire::rdmap::{Control, Opcode, ReadRequest, Terminate};

use super::{Record, both_ways, counting, load, segment};

pub fn untagged(opcode: Opcode, invalidate: STag, queue: u32, msn: u32) -> (Header, Control) {
    let control = Control { version: 1, opcode };
    let rsvd_ulp = control.to_rsvd_ulp(invalidate);
    (Header::Untagged(Untagged { last: true, version: 1, rsvd_ulp, queue, msn, mo: 0 }), control)
}

fn tagged(opcode: Opcode, stag: u32, to: u64) -> (Header, Control) {
    let control = Control { version: 1, opcode };
    let rsvd_ulp = control.to_octet();
    (Header::Tagged(Tagged { last: true, version: 1, rsvd_ulp, stag: STag(stag), to }), control)
}

/// Files of the pattern ULPDU, the same as FPDU, next ULPDU, ...: the ULPDUs, after each has been framed and
/// found again.
fn pairs<const COUNT: usize>(file: &str) -> Vec<Vec<u8>> {
    let frame = |pair: &[Record]| {
        let [ulpdu, fpdu] = pair else { panic!("{file}: an odd record") };
        assert!(ulpdu.label.ends_with("(ULPDU)"), "{}", ulpdu.label);
        assert!(fpdu.label.ends_with("(FPDU, Markers off, CRC on)"), "{}", fpdu.label);
        assert_eq!(both_ways(&fpdu.octets, 0, false), ulpdu.octets);
        ulpdu.octets.clone()
    };
    load::<COUNT>(file).chunks(2).map(frame).collect()
}

// Requirements: MPAv2-9.2-07, MPAv2-9.2-10, DDP-5.2-08
#[test]
fn mpa_rtr() {
    let ulpdus = pairs::<6>("mpa-rtr");
    let expected = [
        untagged(Opcode::Send, STag(0), 0, 1),
        tagged(Opcode::Write, 0, 0),
        untagged(Opcode::ReadRequest, STag(0), 1, 1),
    ];
    for (ulpdu, expected) in ulpdus.iter().zip(expected) {
        let (header, control, payload) = segment(ulpdu);
        assert_eq!((header, control), expected);
        assert_eq!(payload.is_empty(), control.opcode != Opcode::ReadRequest);
    }
}

// Requirements: DDP-4.2-09, DDP-4.3-01, DDP-4.3-11, DDP-5.2-01, DDP-5.2-05, DDP-5.2-07
#[test]
fn the_segmentation_examples_of_rfc_5041() {
    let mut message: Vec<u8> = Vec::new();
    for (record, mo) in load::<2>("ddp-untagged-2048").iter().zip([0, 1482]) {
        let (header, control, payload) = segment(&record.octets);
        let rsvd_ulp = control.to_rsvd_ulp(STag(0));
        let expected = Untagged { last: mo > 0, version: 1, rsvd_ulp, queue: 0, msn: 1, mo };
        assert_eq!((header, control.opcode), (Header::Untagged(expected), Opcode::Send));
        assert_eq!(message.len(), mo as usize);
        message.extend(payload);
    }
    assert_eq!(message, counting(0, 2048));
    message.clear();
    for (record, to) in load::<2>("ddp-tagged-2048").iter().zip([16384, 17870]) {
        let (header, control, payload) = segment(&record.octets);
        let expected = Tagged {
            last: to > 16384,
            version: 1,
            rsvd_ulp: control.to_octet(),
            stag: STag(0x0102_0304),
            to,
        };
        assert_eq!((header, control.opcode), (Header::Tagged(expected), Opcode::Write));
        assert_eq!(message.len() as u64, to - 16384);
        message.extend(payload);
    }
    assert_eq!(message, counting(0, 2048));
}

// Requirements: DDP-4.3-09
#[test]
fn ddp_msn_wrap() {
    let mut msn = u32::MAX;
    for (record, letter) in load::<3>("ddp-msn-wrap").iter().zip(*b"ABC") {
        let (header, control, payload) = segment(&record.octets);
        assert_eq!((header, control), untagged(Opcode::Send, STag(0), 0, msn));
        assert_eq!(payload, [letter]);
        msn = msn.wrapping_add(1);
    }
}

// Requirements: RDMAP-3.1-01, RDMAP-4.1-01 to RDMAP-4.1-03, RDMAP-4.1-09, RDMAP-5.3-07
#[test]
fn rdmap_send() {
    let invalidate = STag(0xa1a2_a3a4);
    let expected = [
        (untagged(Opcode::Send, STag(0), 0, 1), None),
        (untagged(Opcode::SendWithInvalidate, invalidate, 0, 2), Some(invalidate)),
        (untagged(Opcode::SendWithSolicitedEvent, STag(0), 0, 3), None),
        (untagged(Opcode::SendWithSolicitedEventAndInvalidate, invalidate, 0, 4), Some(invalidate)),
    ];
    for (ulpdu, (expected, invalidate)) in pairs::<8>("rdmap-send").iter().zip(expected) {
        let (header, control, payload) = segment(ulpdu);
        assert_eq!(((header, control), payload), (expected, &b"hello"[..]));
        let Header::Untagged(header) = header else { panic!() };
        assert_eq!(Control::from_rsvd_ulp(header.rsvd_ulp), (control, invalidate));
    }
}

// Requirements: RDMAP-4.1-04, RDMAP-4.1-06, RDMAP-5.1-01, DDP-5.2-08, DDP-5.2-09
#[test]
fn rdmap_write() {
    let expected: [_; 2] =
        [(tagged(Opcode::Write, 0x0102_0304, 4096), &b"hello"[..]), (tagged(Opcode::Write, 0, 0), b"")];
    for (ulpdu, expected) in pairs::<4>("rdmap-write").iter().zip(expected) {
        let (header, control, payload) = segment(ulpdu);
        assert_eq!(((header, control), payload), expected);
    }
}

// Requirements: RDMAP-4.2-01, RDMAP-4.4-01, RDMAP-5.2.1-01, RDMAP-5.2.1-07, RDMAP-5.2.1-10, RDMAP-5.2.2-01
#[test]
fn rdmap_read() {
    let ulpdus = pairs::<8>("rdmap-read");
    let request = ReadRequest {
        sink_stag: STag(0x1122_3344),
        sink_to: 0x1_0000_0000,
        size: 65536,
        source_stag: STag(0x5566_7788),
        source_to: 0x1000,
    };
    let nothing = ReadRequest { sink_stag: STag(0), sink_to: 0, size: 0, source_stag: STag(0), source_to: 0 };
    for (ulpdu, expected) in [(&ulpdus[0], request), (&ulpdus[2], nothing)] {
        let (header, control, payload) = segment(ulpdu);
        assert_eq!((header, control), untagged(Opcode::ReadRequest, STag(0), 1, 1));
        assert_eq!(ReadRequest::parse(payload), Ok(expected));
        let mut out = [0xee; ReadRequest::LEN];
        assert_eq!(expected.emit(&mut out), payload.len());
        assert_eq!(out, payload);
    }
    let (header, control, payload) = segment(&ulpdus[1]);
    assert_eq!((header, control), tagged(Opcode::ReadResponse, 0x1122_3344, 0x1_0000_0000));
    assert_eq!(payload, counting(0, 8));
    let (header, control, payload) = segment(&ulpdus[3]);
    assert_eq!(((header, control), payload), (tagged(Opcode::ReadResponse, 0, 0), &[][..]));
}

// Requirements: RDMAP-4.8-01, RDMAP-4.8-02, RDMAP-4.8-03, RDMAP-4.8-04, RDMAP-5.4-01, MPAv2-8-01
#[test]
fn rdmap_terminate() {
    let expected = [
        (2, 0, 2, None, 0, 0),
        (1, 1, 1, Some(1500), 14, 0),
        (1, 2, 2, Some(42), 18, 0),
        (0, 1, 2, Some(46), 18, 28),
        (0, 2, 6, Some(18), 18, 0),
        (0, 0, 0, None, 0, 0),
        (2, 0, 6, None, 0, 0),
        (2, 0, 7, None, 0, 0),
    ];
    for (ulpdu, (layer, error_type, code, segment_len, ddp_len, rdma_len)) in
        pairs::<16>("rdmap-terminate").iter().zip(expected)
    {
        let (header, control, payload) = segment(ulpdu);
        assert_eq!((header, control), untagged(Opcode::Terminate, STag(0), 2, 1));
        let terminate = Terminate::parse(payload).expect("a Terminate header");
        assert_eq!((terminate.layer, terminate.error_type, terminate.code), (layer, error_type, code));
        assert_eq!(terminate.segment_len, segment_len);
        assert_eq!((terminate.ddp_header.len(), terminate.rdma_header.len()), (ddp_len, rdma_len));
        if ddp_len > 0 {
            segment(terminate.ddp_header);
        }
        assert_eq!(ReadRequest::parse(terminate.rdma_header).is_ok(), rdma_len > 0);
        let mut out = [0xee; Terminate::MAX_LEN];
        let len = terminate.emit(&mut out);
        assert_eq!(out[..len], *payload);
    }
}

/// The opcodes, queues and framing. The headers of these messages are for the stack (`stack.rs`).
// Requirements: RDMAPX-4-01
#[test]
fn rdmap_7306() {
    let expected = [
        (Opcode::ImmediateData, 0, 1, 8),
        (Opcode::ImmediateDataWithSolicitedEvent, 0, 2, 8),
        (Opcode::AtomicRequest, 1, 1, 52),
        (Opcode::AtomicRequest, 1, 2, 52),
        (Opcode::AtomicResponse, 3, 1, 12),
    ];
    for (ulpdu, (opcode, queue, msn, len)) in pairs::<10>("rdmap-7306").iter().zip(expected) {
        let (header, control, payload) = segment(ulpdu);
        assert_eq!((header, control), untagged(opcode, STag(0), queue, msn));
        assert_eq!(payload.len(), len);
    }
}
