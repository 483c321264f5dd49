//! Tests of a peer that requests octets it may not access, and that sends responses without a matching
//! request.

use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::memory::STag;
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::work::{Operation, SendRequest, Slice, Status};
use warpline_dataplane::rdmap::RdmapError;
use warpline_dataplane::ring::FullOperation;

use super::target::{BASE_TO, COUNTERS, FOREIGN, INBOX, READABLE, Target, WRITABLE, fpdu, tagged, untagged};
use crate::common::holds;

const STALE: STag = STag::new(3, 0x3332);

/// A core that accepts two requests at a time and may have two outstanding.
fn target() -> Target {
    let depths = ReadDepths { ird: 2, ord: 2 };
    let mut target = Target::with(FullOperation { depths, ..FullOperation::new(false) });
    target.open();
    target
}

/// The header of a Read Request by figure 8 of RFC 5040.
fn read_header(stag: STag, to: u64, octets: u32) -> Vec<u8> {
    [
        &0xabcd_ef01_u32.to_be_bytes()[..],
        &7_u64.to_be_bytes(),
        &octets.to_be_bytes(),
        &stag.0.to_be_bytes(),
        &to.to_be_bytes(),
    ]
    .concat()
}

fn read_request(msn: u32, stag: STag, to: u64, octets: u32) -> Vec<u8> {
    untagged([0x41, 0x41], 1, msn, 0, &read_header(stag, to, octets))
}

/// An Atomic Request by figure 4 of RFC 7306: add 1.
fn atomic_request(msn: u32, code: u8, stag: STag, to: u64) -> Vec<u8> {
    let header = [
        &[0, 0, 0, code][..],
        &9_u32.to_be_bytes(),
        &stag.0.to_be_bytes(),
        &to.to_be_bytes(),
        &1_u64.to_be_bytes(),
        &[0; 16],
        &[0xff; 8],
    ]
    .concat();
    untagged([0x41, 0x4a], 1, msn, 0, &header)
}

/// Requests are answered in order, to the sink that they name. A request for zero octets receives an empty
/// response.
// Requirements: RDMAP-4.4-02, RDMAP-5.2.1-03, RDMAP-5.2.1-10, RDMAP-5.2.2-01, RDMAP-5.2.2-02, RDMAP-5.5-04
#[test]
fn requests_are_answered() {
    let mut target = target();
    target.send(&fpdu(&read_request(1, READABLE, BASE_TO + 250, 6)));
    target.send(&fpdu(&read_request(2, STALE, u64::MAX, 0)));
    let response = |to: u64, payload: &[u8]| tagged(STag(0xabcd_ef01), to, [0xc1, 0x42], payload);
    let answers = [fpdu(&response(7, &[0xa5; 6])), fpdu(&response(7, &[]))].concat();
    assert_eq!(target.sent().0, answers);
    // The next request acknowledges the octets of the answers.
    target.ack += answers.len() as u32;
    target.send(&fpdu(&atomic_request(3, 0, COUNTERS, BASE_TO + 8)));
    let original = u64::from_ne_bytes([0xa5; 8]);
    let payload = [&9_u32.to_be_bytes()[..], &original.to_be_bytes()].concat();
    assert_eq!(target.sent().0, fpdu(&untagged([0x41, 0x4b], 3, 1, 0, &payload)));
    assert!(holds(&target.regions[4].0, 8, &(original + 1).to_ne_bytes()));
    assert_eq!(target.qp.error(), None);
}

/// Two were agreed on. The third while neither answer is acknowledged is one too many, and so is any where
/// none was agreed on.
// Requirements: RDMAP-5.2.2-02, RDMAP-6.1-02, RDMAP-6.1-03, RDMAP-8.1.1-06, RDMAP-8.1.2-04
#[test]
fn more_requests_than_agreed_on() {
    let mut target = target();
    for msn in 1..3 {
        target.send(&fpdu(&read_request(msn, READABLE, BASE_TO, 1)));
    }
    target.sent();
    let third = read_request(3, READABLE, BASE_TO, 1);
    target.expect(&fpdu(&third), StreamError::Ddp(DdpError::NoBuffer), [0x12, 2, 0xc0, 0], Some(&third));
    let mut target = Target::new();
    target.open();
    let first = atomic_request(1, 0, COUNTERS, BASE_TO);
    target.expect(&fpdu(&first), StreamError::Ddp(DdpError::NoBuffer), [0x12, 2, 0xc0, 0], Some(&first));
}

/// RFC 7306 §5.2.2 item 4, RDMAPX-5-04: the buffers of Atomic Requests are beside those of Read Requests, as
/// many again. Whichever kind has used up its own, the other has not.
#[test]
fn atomics_are_counted_beside_reads() {
    let read = |msn| read_request(msn, READABLE, BASE_TO, 1);
    let add = |msn| atomic_request(msn, 0, COUNTERS, BASE_TO);
    for fifth in [read(5), add(5)] {
        let mut target = target();
        for request in [read(1), read(2), add(3), add(4)] {
            target.send(&fpdu(&request));
            assert_eq!(target.qp.error(), None);
        }
        target.sent();
        target.send(&fpdu(&fifth));
        assert_eq!(target.qp.error(), Some(StreamError::Ddp(DdpError::NoBuffer)));
    }
    let mut target = target();
    for request in [add(1), add(2), read(3), add(4)] {
        assert_eq!(target.qp.error(), None);
        target.send(&fpdu(&request));
    }
    assert_eq!(target.qp.error(), Some(StreamError::Ddp(DdpError::NoBuffer)));
    // The resources of the answers are free again once the peer acknowledges them.
    let mut target = self::target();
    for msn in [1, 3, 5] {
        target.send(&fpdu(&add(msn)));
        target.send(&fpdu(&add(msn + 1)));
        let answers = target.sent().0.len() as u32;
        target.ack += answers;
    }
    assert_eq!(target.qp.error(), None);
}

/// DDP-7.1-02 to DDP-7.1-05 on the queue of requests, and RDMAP-7.2-02, RDMAP-7.2-03. RFC 5040 §7.1 item 3:
/// the Terminate quotes the header of a Read Request that RDMAP refuses, and not that of one that DDP refuses
/// (figure 10).
#[test]
fn malformed_requests() {
    let header = read_header(READABLE, BASE_TO, 8);
    let ddp = StreamError::Ddp;
    let rdmap = StreamError::Rdmap;
    let longer = [&header[..], &[0; 25]].concat();
    let cases = [
        (read_request(2, READABLE, BASE_TO, 8), ddp(DdpError::MsnRange), [0x12, 3, 0xc0, 0]),
        (untagged([0x41, 0x41], 1, 1, 1, &header), ddp(DdpError::InvalidOffset), [0x12, 4, 0xc0, 0]),
        (untagged([0x41, 0x41], 1, 1, 0, &longer), ddp(DdpError::TooLong), [0x12, 5, 0xc0, 0]),
        (untagged([0x40, 0x41], 1, 1, 0, &header), ddp(DdpError::UntaggedVersion), [0x12, 6, 0xc0, 0]),
        (untagged([0x41, 0x01], 1, 1, 0, &header), rdmap(RdmapError::InvalidVersion), [0x02, 5, 0xe0, 0]),
        (untagged([0x41, 0x43], 1, 1, 0, &header), rdmap(RdmapError::UnexpectedOpcode), [0x02, 6, 0xc0, 0]),
        (untagged([0x41, 0x4c], 1, 1, 0, &header), rdmap(RdmapError::UnexpectedOpcode), [0x02, 6, 0xc0, 0]),
        // An incomplete header cannot be quoted.
        (
            untagged([0x41, 0x41], 1, 1, 0, &header[1..]),
            rdmap(RdmapError::UnspecifiedOperation),
            [0x02, 0xff, 0xc0, 0],
        ),
        (
            untagged([0x41, 0x41], 1, 1, 0, &longer[..29]),
            rdmap(RdmapError::UnspecifiedOperation),
            [0x02, 0xff, 0xe0, 0],
        ),
        (
            untagged([0x01, 0x41], 1, 1, 0, &header),
            rdmap(RdmapError::UnspecifiedOperation),
            [0x02, 0xff, 0xe0, 0],
        ),
    ];
    for (ulpdu, error, control) in cases {
        target().expect(&fpdu(&ulpdu), error, control, Some(&ulpdu));
    }
}

/// Reads of memory that is not granted. The Terminate quotes the headers of DDP and of the request.
// Requirements: RDMAP-4.8-04, RDMAP-5.2.1-08, RDMAP-7.2-05 to RDMAP-7.2-08
#[test]
fn reads_outside_what_is_granted() {
    let cases = [
        (STALE, BASE_TO, 8, RdmapError::InvalidStag, 0),
        (STag(0), BASE_TO, 8, RdmapError::InvalidStag, 0),
        (READABLE, BASE_TO - 1, 8, RdmapError::BaseOrBounds, 1),
        (READABLE, BASE_TO + 249, 8, RdmapError::BaseOrBounds, 1),
        (READABLE, BASE_TO, 257, RdmapError::BaseOrBounds, 1),
        (READABLE, BASE_TO, u32::MAX, RdmapError::BaseOrBounds, 1),
        (WRITABLE, BASE_TO, 8, RdmapError::AccessRights, 2),
        (INBOX, 0, 8, RdmapError::AccessRights, 2),
        (FOREIGN, BASE_TO, 8, RdmapError::NotAssociated, 3),
        (READABLE, u64::MAX - 6, 8, RdmapError::ToWrap, 4),
        (READABLE, u64::MAX - 7, 8, RdmapError::ToWrap, 4),
    ];
    for (stag, to, octets, error, code) in cases {
        let request = read_request(1, stag, to, octets);
        target().expect(&fpdu(&request), StreamError::Rdmap(error), [0x01, code, 0xe0, 0], Some(&request));
    }
}

/// Invalid Atomic Operations; the Terminate does not quote the header of the request (RFC 7306 §8.1).
// Requirements: RDMAPX-5-02, RDMAPX-8-01
#[test]
fn atomics_outside_what_is_granted() {
    let cases = [
        (1, COUNTERS, BASE_TO, RdmapError::UnexpectedOpcode, [0x02, 6, 0xc0, 0]),
        (15, COUNTERS, BASE_TO, RdmapError::UnexpectedOpcode, [0x02, 6, 0xc0, 0]),
        (0, COUNTERS, BASE_TO + 4, RdmapError::CatastrophicStream, [0x02, 7, 0xc0, 0]),
        (2, COUNTERS, BASE_TO + 1, RdmapError::CatastrophicStream, [0x02, 7, 0xc0, 0]),
        (0, STALE, BASE_TO, RdmapError::InvalidStag, [0x01, 0, 0xc0, 0]),
        (0, COUNTERS, BASE_TO + 256, RdmapError::BaseOrBounds, [0x01, 1, 0xc0, 0]),
        (0, COUNTERS, BASE_TO + 252, RdmapError::BaseOrBounds, [0x01, 1, 0xc0, 0]),
        (0, WRITABLE, BASE_TO, RdmapError::AccessRights, [0x01, 2, 0xc0, 0]),
        (0, FOREIGN, BASE_TO, RdmapError::NotAssociated, [0x01, 3, 0xc0, 0]),
        (0, COUNTERS, u64::MAX - 7, RdmapError::ToWrap, [0x01, 4, 0xc0, 0]),
    ];
    for (code, stag, to, error, control) in cases {
        let request = atomic_request(1, code, stag, to);
        target().expect(&fpdu(&request), StreamError::Rdmap(error), control, Some(&request));
    }
}

/// Posts a Read of eight octets into the middle of the inbox; the peer has the request.
fn reading() -> Target {
    let mut target = target();
    let local = Slice { stag: INBOX, to: 4, len: 8 };
    let request = SendRequest::new(5, Operation::Read { stag: STag(0x77), to: 70 }, local);
    target.qp.post_send(request).unwrap();
    target.peer.settle();
    let expected = [
        &INBOX.0.to_be_bytes()[..],
        &4_u64.to_be_bytes(),
        &8_u32.to_be_bytes(),
        &0x77_u32.to_be_bytes(),
        &70_u64.to_be_bytes(),
    ]
    .concat();
    let sent = target.sent().0;
    assert_eq!(sent, fpdu(&untagged([0x41, 0x41], 1, 1, 0, &expected)));
    target.ack += sent.len() as u32;
    target
}

/// A response may arrive in several segments, and the Read completes with the last of them, not before.
// Requirements: RDMAP-5.2.2-06, RDMAP-5.5-10, DDP-4.2-03, DDP-4.2-07, DDP-5.4-03
#[test]
fn an_answer_in_pieces() {
    let mut target = reading();
    target.send(&fpdu(&tagged(INBOX, 4, [0x81, 0x42], b"abc")));
    target.send(&fpdu(&tagged(INBOX, 7, [0x81, 0x42], b"def")));
    assert_eq!(target.completions.poll(), None);
    target.send(&fpdu(&tagged(INBOX, 10, [0xc1, 0x42], b"gh")));
    let done = target.completions.poll().unwrap();
    assert_eq!((done.id, done.status, done.byte_len), (5, Status::Success, 8));
    assert!(holds(&target.regions[3].0, 4, b"abcdefgh"));
}

/// Responses that do not match the request: nothing of them is placed. That is an operation error of RDMAP:
/// DDP-7.2-01 keeps DDP's numbers for its own checks, which come first, and a Response causes no protection
/// error (RFC 5040 figure 10).
#[test]
fn answers_to_something_else() {
    let ddp = StreamError::Ddp;
    let rdmap = StreamError::Rdmap;
    let mismatch = rdmap(RdmapError::UnspecifiedOperation);
    let response = |stag, to, control, payload: &[u8]| tagged(stag, to, [control, 0x42], payload);
    let cases = [
        // The last octets of it are not there, or more than was asked for.
        (response(INBOX, 4, 0xc1, b"seven o"), mismatch, [0x02, 0xff, 0xc0, 0]),
        (response(INBOX, 4, 0xc1, b"nine octs"), mismatch, [0x02, 0xff, 0xc0, 0]),
        (response(INBOX, 4, 0xc1, b""), mismatch, [0x02, 0xff, 0xc0, 0]),
        // Not where it belongs.
        (response(INBOX, 3, 0xc1, b"eight oc"), mismatch, [0x02, 0xff, 0xc0, 0]),
        (response(INBOX, 0, 0x81, b"four"), mismatch, [0x02, 0xff, 0xc0, 0]),
        (response(WRITABLE, BASE_TO, 0xc1, b"eight oc"), mismatch, [0x02, 0xff, 0xc0, 0]),
        // Nowhere: DDP's checks, and its numbers.
        (response(STALE, BASE_TO, 0xc1, b"eight oc"), ddp(DdpError::InvalidStag), [0x11, 0, 0xc0, 0]),
        (response(INBOX, 250, 0xc1, b"eight oc"), ddp(DdpError::BaseOrBounds), [0x11, 1, 0xc0, 0]),
        // A Write is no answer, and has no right to the sink.
        (tagged(INBOX, 4, [0xc1, 0x40], b"eight oc"), ddp(DdpError::AccessRights), [0x11, 0, 0xc0, 0]),
        // An answer to an Atomic Operation, where a Read waits.
        (untagged([0x41, 0x4b], 3, 1, 0, &[0; 12]), ddp(DdpError::NoBuffer), [0x12, 2, 0xc0, 0]),
        (untagged([0x41, 0x4b], 3, 2, 0, &[0; 12]), ddp(DdpError::MsnRange), [0x12, 3, 0xc0, 0]),
    ];
    for (ulpdu, error, control) in cases {
        let mut target = reading();
        target.send(&fpdu(&ulpdu));
        assert_eq!(target.qp.error(), Some(error));
        let mut terminate = vec![0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        terminate.extend(control);
        terminate.extend((ulpdu.len() as u16).to_be_bytes());
        terminate.extend(&ulpdu[..if ulpdu[0] & 0x80 == 0 { 18 } else { 14 }]);
        assert_eq!(target.sent().0, fpdu(&terminate));
        target.expect_untouched();
    }
    // An answer to nothing.
    let unasked = response(WRITABLE, BASE_TO, 0xc1, b"eight oc");
    target().expect(&fpdu(&unasked), rdmap(RdmapError::UnexpectedOpcode), [0x02, 6, 0xc0, 0], Some(&unasked));
}

/// The answer to an Atomic Operation must carry its number and its length.
// Requirements: RDMAPX-5-03, RDMAPX-5-04
#[test]
fn answers_to_another_atomic() {
    for (payload, error) in [
        ([[0, 0, 0, 1], [0; 4], [0; 4]].concat(), RdmapError::UnspecifiedOperation),
        (vec![0; 11], RdmapError::UnspecifiedOperation),
    ] {
        let mut target = target();
        let local = Slice { stag: INBOX, to: 0, len: 8 };
        let operation = Operation::FetchAdd { stag: STag(0x77), to: 0, add: 1, mask: 0 };
        target.qp.post_send(SendRequest::new(5, operation, local)).unwrap();
        target.peer.settle();
        let sent = target.sent().0.len() as u32;
        target.ack += sent;
        target.send(&fpdu(&untagged([0x41, 0x4b], 3, 1, 0, &payload)));
        assert_eq!(target.qp.error(), Some(StreamError::Rdmap(error)));
        target.expect_untouched();
    }
}

/// A peer that closes its half still owes responses, which can no longer arrive.
#[test]
fn a_close_instead_of_an_answer() {
    use warpline_dataplane::mpa::MpaError;
    use warpline_dataplane::wire::tcp::Flags;

    let mut target = reading();
    let (seq, ack) = (target.seq, target.ack);
    target.peer.send(Flags::ACK | Flags::FIN, seq, ack, &[]);
    assert_eq!(target.qp.error(), Some(StreamError::Mpa(MpaError::TcpClosed)));
}

/// An STag that is not there cannot be invalidated; the message is not delivered.
// Requirements: RDMAP-5.3-08, RDMAP-7.2-04, A-17
#[test]
fn invalidating_what_is_not_there() {
    let mut target = target();
    let mut ulpdu = untagged([0x41, 0x44], 0, 1, 0, b"gone");
    ulpdu[2..6].copy_from_slice(&STALE.0.to_be_bytes());
    target.send(&fpdu(&ulpdu));
    let error = StreamError::Rdmap(RdmapError::CannotInvalidate);
    assert_eq!(target.qp.error(), Some(error));
    assert_eq!(target.completions.poll().unwrap().status, Status::Failed(error));
    let sent = target.sent().0;
    assert_eq!(sent[20..24], [0x01, 0x09, 0xc0, 0]);
    assert_eq!(sent[26..44], ulpdu[..18]);
}
