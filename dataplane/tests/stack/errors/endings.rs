//! Tests of the end of a failed stream (RFC 5041 §6.2 and §7.1, RFC 5044 §8, RFC 5040 §7.1): MPA and DDP
//! report the error and stop, the outbound half can still carry one Terminate, and only then RDMAP closes the
//! connection.

use warpline_dataplane::crc32c;
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::limits;
use warpline_dataplane::memory::STag;
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::QpState;
use warpline_dataplane::qp::work::{Completion, Operation, ReceiveRequest, SendRequest, Slice, Status};
use warpline_dataplane::ring::{AfterStream, Command, Event, FullOperation};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::tcp::{Flags, Header};

use super::target::{BASE_TO, INBOX, Target, WRITABLE, fpdu, send, tagged, terminate, untagged, write};
use crate::common::holds;
use crate::common::raw::{PEER_ISS, RawPeer};
use crate::reference::mpa::{Sender, Stream};

const NOWHERE: STag = STag::new(9, 0x9999);
/// The DDP header of a Terminate: last segment, Untagged, queue 2, MSN 1, MO 0.
const TERMINATE: [u8; 18] = [0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];

/// Returns the content of the Terminate in `octets`, which must hold nothing else.
#[track_caller]
fn terminate_in(octets: &[u8]) -> Vec<u8> {
    let octets_in_ulpdu = usize::from(u16::from_be_bytes([octets[0], octets[1]]));
    let ulpdu = &octets[2..2 + octets_in_ulpdu];
    assert_eq!(octets, fpdu(ulpdu), "one FPDU and nothing after it");
    assert_eq!(ulpdu[..18], TERMINATE);
    ulpdu[18..].to_vec()
}

impl Target {
    /// Sends `octets` in a segment that closes the peer's window.
    fn send_with_closed_window(&mut self, octets: &[u8]) {
        let header = Header { window: 0, ..self.peer.header(Flags::ACK, self.seq, self.ack) };
        self.peer.inject(&RawPeer::segment(&header, octets));
        self.peer.settle();
        self.seq += octets.len() as u32;
    }

    fn sent_any(&self, flag: Flags) -> bool {
        self.peer.sent.iter().any(|sent| sent.header.flags.contains(flag))
    }

    fn polled(&self) -> Vec<Completion> {
        std::iter::from_fn(|| self.completions.poll()).collect()
    }
}

/// Sends the faulty FPDU `bad` while the window of the peer is closed: the connection must stay open until
/// the window opens and the Terminate is out.
#[track_caller]
fn expect_no_teardown_before_the_terminate(mut target: Target, bad: &[u8]) {
    target.send_with_closed_window(bad);
    let error = target.qp.error().expect("reported at once");
    assert!(
        target
            .peer
            .events
            .iter()
            .any(|event| matches!(event, Event::StreamFailed { error: told, .. } if *told == error))
    );
    assert_eq!(target.polled()[0].status, Status::Flushed);
    target.peer.pass_ms(2000);
    assert!(!target.sent_any(Flags::FIN) && !target.sent_any(Flags::RST), "not torn down");
    // Window probes carry one octet at most.
    assert!(target.peer.sent.iter().all(|sent| sent.payload.len() <= 1));
    let probed = target.peer.sent.iter().any(|sent| sent.payload.len() == 1);
    let ended = |event: &Event| matches!(event, Event::Closed { .. });
    assert!(!target.peer.events.iter().any(ended));
    // Both halves of TCP still work: it acknowledges segments of the peer.
    target.peer.sent.clear();
    target.send_with_closed_window(&fpdu(&write(WRITABLE, BASE_TO, b"too late")));
    assert_eq!(target.peer.sent.back().unwrap().header.ack, target.seq);
    target.expect_untouched();
    target.peer.sent.clear();
    // The window opens: the Terminate is sent, then the FIN.
    target.peer.send_with_window(0xffff, target.seq, target.ack);
    target.peer.pass_ms(if probed { 300 } else { 10 });
    let (octets, fin) = target.sent();
    terminate_in(&octets);
    assert!(fin, "RDMAP closes behind its Terminate");
}

// Requirements: DDP-6.2-01, DDP-6.2.2-03, DDP-6.2.2-04, DDP-7.1-18
#[test]
fn an_error_of_ddp_tears_nothing_down() {
    for bad in [write(NOWHERE, 0, b"x"), write(WRITABLE, BASE_TO + 256, b"x"), send(7, 0, b"")] {
        let mut target = Target::new();
        target.open();
        expect_no_teardown_before_the_terminate(target, &fpdu(&bad));
    }
}

/// Errors 2 and 3.
// Requirements: MPA-8-10, C00-9-06, DDP-6.2-01
#[test]
fn an_error_of_mpa_tears_nothing_down() {
    let operation = FullOperation { crc_retries: 0, ..FullOperation::new(false) };
    let mut target = Target::with(operation);
    target.open();
    let mut wrong = fpdu(&write(WRITABLE, BASE_TO, b"damaged"));
    wrong[16] ^= 1;
    expect_no_teardown_before_the_terminate(target, &wrong);

    let mut target = Target::with(FullOperation { markers_received: true, ..operation });
    let mut sender = Sender::new(Stream { start: (PEER_ISS + 1).0, markers: true, crc: true });
    let mut first = Vec::new();
    sender.frame(&write(NOWHERE, 0, b""), &mut first);
    target.send(&first);
    assert_eq!(target.qp.state(), QpState::ReadyToSend);
    target.peer.sent.clear();
    let mut contradicted = Vec::new();
    sender.frame(&write(NOWHERE, 0, &[0; 600]), &mut contradicted);
    // The Marker at 512 points four octets too far, and the CRC covers it: error 3, not error 2.
    let pointer_at = 512 - first.len() + 2;
    let pointer = u16::from_be_bytes([contradicted[pointer_at], contradicted[pointer_at + 1]]) + 4;
    contradicted[pointer_at..pointer_at + 2].copy_from_slice(&pointer.to_be_bytes());
    let covered = contradicted.len() - 4;
    let crc = crc32c::checksum(&contradicted[..covered]);
    contradicted[covered..].copy_from_slice(&crc.to_le_bytes());
    expect_no_teardown_before_the_terminate(target, &contradicted);
}

/// Nothing after the error is placed or delivered, only the Terminate is sent, and the connection ends when
/// the peer has closed its half too.
// Requirements: DDP-3-08, DDP-3-11, DDP-7-01, DDP-7.1-17, RDMAP-5.4-04, RDMAP-7-01
#[test]
fn a_failed_stream_carries_nothing_more() {
    let mut target = Target::new();
    target.open();
    let local = Slice { stag: INBOX, to: 0, len: 8 };
    target.send(&fpdu(&write(NOWHERE, 0, b"x")));
    let error = target.qp.error();
    assert!(matches!(error, Some(StreamError::Ddp(_))), "{error:?}");
    let after = target.qp.post_send(SendRequest::new(7, Operation::SEND, local));
    let dropped = |target: &Target| target.peer.core.statistics().dropped(DropCause::AfterError);
    assert_eq!(dropped(&target), 0);
    target.send(&[fpdu(&write(WRITABLE, BASE_TO, b"too late")), fpdu(&send(1, 0, b"too late"))].concat());
    target.expect_untouched();
    assert_eq!(dropped(&target), 1);
    assert!(target.polled().iter().all(|completion| completion.status != Status::Success), "{after:?}");
    let (octets, fin) = target.sent();
    terminate_in(&octets);
    assert!(fin);
    target.ack += octets.len() as u32 + 1;
    target.peer.send(Flags::ACK | Flags::FIN, target.seq, target.ack, &[]);
    let connection = target.connection;
    let closed =
        |event: &Event| matches!(event, Event::Closed { connection: other, .. } if *other == connection);
    assert!(target.peer.events.iter().any(closed), "{:?}", target.peer.events);
    assert_eq!(target.qp.error(), error, "the first error stays");
}

/// A failed stream and a disconnect each have a deadline. The earlier one ends the connection, in whichever
/// order they come, and octets that arrive in between delay neither.
#[test]
fn a_disconnect_keeps_its_deadline_when_the_stream_fails() {
    let faster = (2 * SECOND, 2000, CloseReason::TimedOut);
    let slower = (9 * SECOND, limits::TERMINATE_LINGER_NS / (SECOND / 1000), CloseReason::Aborted);
    for (within_ns, ends_ms, reason) in [faster, slower] {
        for disconnects_first in [true, false] {
            let mut target = Target::new();
            target.open();
            let disconnect =
                Command::Disconnect { connection: target.connection, within_ns: Some(within_ns) };
            let bad = fpdu(&write(NOWHERE, 0, b"x"));
            if disconnects_first {
                target.peer.command(disconnect);
                target.send_with_closed_window(&bad);
            } else {
                target.send_with_closed_window(&bad);
                target.peer.command(disconnect);
                target.peer.settle();
            }
            let closed = |target: &Target| {
                target.peer.events.iter().find_map(|event| match event {
                    Event::Closed { reason, .. } => Some(*reason),
                    _ => None,
                })
            };
            target.peer.pass_ms(ends_ms / 2);
            target.send_with_closed_window(&fpdu(&write(WRITABLE, BASE_TO, b"too late")));
            target.peer.pass_ms(ends_ms / 2 - 100);
            assert_eq!(closed(&target), None, "{within_ns} ns, first: {disconnects_first}");
            target.peer.pass_ms(200);
            assert_eq!(closed(&target), Some(reason), "{within_ns} ns, first: {disconnects_first}");
            assert!(target.sent_any(Flags::RST));
        }
    }
}

/// Of two faults the Terminate names the one that comes first in the stream: in one segment, and when the
/// later fault arrives first.
// Requirements: RDMAP-7.1-03
#[test]
fn the_first_message_in_error_is_the_one_reported() {
    let faults =
        [write(NOWHERE, 0, b"first"), send(7, 0, b"second"), write(WRITABLE, BASE_TO + 9999, b"third")];
    for (first, second) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
        let expect = |mut target: Target| {
            let content = terminate_in(&target.sent().0);
            let header_octets = if faults[first][0] & 0x80 == 0 { 18 } else { 14 };
            assert_eq!(content[4..6], (faults[first].len() as u16).to_be_bytes());
            assert_eq!(content[6..], faults[first][..header_octets], "{first} before {second}");
            assert_eq!(target.peer.core.statistics().streams_failed, 1);
        };
        let mut target = Target::new();
        target.open();
        target.send(&[fpdu(&faults[first]), fpdu(&faults[second])].concat());
        expect(target);

        // The second fault arrives beyond a gap, among FPDUs that can be placed there.
        let mut target = Target::with(FullOperation { markers_received: true, ..FullOperation::new(false) });
        let mut sender = Sender::new(Stream { start: (PEER_ISS + 1).0, markers: true, crc: true });
        let mut gap = Vec::new();
        sender.frame(&write(NOWHERE, 0, b""), &mut gap);
        sender.frame(&faults[first], &mut gap);
        let mut later = Vec::new();
        sender.frame(&write(NOWHERE, 0, b""), &mut later);
        for _ in 0..25 {
            sender.frame(&write(WRITABLE, BASE_TO, &[0xa5; 8]), &mut later);
        }
        sender.frame(&faults[second], &mut later);
        target.peer.send(Flags::ACK, target.seq + gap.len() as u32, target.ack, &later);
        assert_eq!(target.qp.error(), None);
        target.peer.sent.clear();
        target.peer.send(Flags::ACK, target.seq, target.ack, &gap);
        expect(target);
    }
}

/// The flags of a Terminate match its contents: segment length, DDP header and Read Request header, each
/// equal to that of the faulty segment.
// Requirements: RDMAP-4.8-04, RDMAP-4.8-06, RDMAP-4.8-07, RDMAP-4.8-08, DDP-7.1-16
#[test]
fn terminates_hold_what_their_flags_say() {
    let read_request = [
        &0xabcd_ef01_u32.to_be_bytes()[..],
        &7_u64.to_be_bytes(),
        &8_u32.to_be_bytes(),
        &NOWHERE.0.to_be_bytes(),
        &BASE_TO.to_be_bytes(),
    ]
    .concat();
    let cases = [
        (write(NOWHERE, 0x1_0000_0007, b"tagged"), 0xc0, 14),
        (tagged(WRITABLE, BASE_TO, [0xc1, 0x4f], b"no such opcode"), 0xc0, 14),
        (send(7, 0, b"untagged"), 0xc0, 18),
        (untagged([0x41, 0x41], 1, 1, 0, &read_request), 0xe0, 18 + 28),
        (b"\xc1\x40 short".to_vec(), 0, 0),
    ];
    for (ulpdu, flags, header_octets) in cases {
        let depths = ReadDepths { ird: 1, ord: 1 };
        let mut target = Target::with(FullOperation { depths, ..FullOperation::new(false) });
        target.open();
        target.send(&fpdu(&ulpdu));
        let content = terminate_in(&target.sent().0);
        assert_eq!(content[2..4], [flags, 0], "{ulpdu:02x?}");
        let length = if flags == 0 { vec![] } else { (ulpdu.len() as u16).to_be_bytes().to_vec() };
        assert_eq!(content[4..], [&length[..], &ulpdu[..header_octets]].concat());
    }
}

/// A missing buffer is a system fault: it is reported to the application and to the peer, and it is counted.
// Requirements: DDP-7.1-02, DDP-7.1-06, DDP-7.1-09
#[test]
fn a_missing_buffer_is_reported_at_both_ends() {
    let mut target = Target::new();
    target.open();
    target.send(&[fpdu(&send(1, 0, b"has a buffer")), fpdu(&send(2, 0, b"has none"))].concat());
    let error = target.qp.error().unwrap();
    assert_eq!(error, StreamError::Ddp(DdpError::NoBuffer));
    assert!(
        target
            .peer
            .events
            .iter()
            .any(|event| matches!(event, Event::StreamFailed { error: told, .. } if *told == error))
    );
    assert_eq!(target.peer.core.statistics().streams_failed, 1, "counted");
    let content = terminate_in(&target.sent().0);
    assert_eq!(content[..4], [0x12, 2, 0xc0, 0]);
    let delivered = target.polled();
    assert_eq!((delivered.len(), delivered[0].status), (1, Status::Success));
}

/// A buffer counts when it is posted before the core looks at the message, however late: this keeps missing
/// buffers rare.
// Requirements: DDP-7.1-08
#[test]
fn a_buffer_posted_as_the_message_arrives_is_found() {
    let mut target = Target::new();
    target.open();
    for msn in 1..200 {
        if msn > 1 {
            let local = Slice { stag: INBOX, to: 0, len: 16 };
            target.qp.post_receive(ReceiveRequest::new(u64::from(msn), local)).unwrap();
        }
        target.send(&fpdu(&send(msn, 0, &msn.to_be_bytes())));
        assert_eq!(target.qp.error(), None, "message {msn}");
        let done = target.polled();
        assert_eq!((done.len(), done[0].id, done[0].byte_len), (1, u64::from(msn), 4));
        assert!(holds(&target.regions[3].0, 0, &msn.to_be_bytes()));
    }
    assert_eq!(target.peer.core.statistics().streams_failed, 0);
}

/// A Terminate is received without a buffer of the application.
// Requirements: RDMAP-5.4-02, RDMAP-5.4-03
#[test]
fn a_terminate_needs_no_buffer() {
    for used_up in [false, true] {
        let mut target = Target::new();
        target.open();
        if used_up {
            target.send(&fpdu(&send(1, 0, b"uses the buffer")));
            assert_eq!(target.polled().len(), 1);
        }
        target.send(&fpdu(&[&TERMINATE[..], &[0x02, 0x06, 0, 0]].concat()));
        let told = StreamError::Terminated { layer: 0, error_type: 2, code: 6 };
        assert_eq!(target.qp.error(), Some(told));
        assert!(
            target
                .peer
                .events
                .iter()
                .any(|event| matches!(event, Event::StreamFailed { error, .. } if *error == told))
        );
    }
}

/// Every segment has a header, also an empty one. A segment shorter than its header is refused.
// Requirements: DDP-4.4-01, DDP-5.2-08
#[test]
fn every_segment_has_a_header() {
    let mut target = Target::new();
    target.open();
    let nothing = Slice { stag: INBOX, to: 0, len: 0 };
    target.qp.post_send(SendRequest::new(1, Operation::SEND, nothing)).unwrap();
    target.qp.post_send(SendRequest::new(2, Operation::Write { stag: STag(0x77), to: 5 }, nothing)).unwrap();
    target.peer.settle();
    let empty_send = untagged([0x41, 0x43], 0, 1, 0, b"");
    let empty_write = [&[0xc1, 0x40][..], &0x77_u32.to_be_bytes(), &5_u64.to_be_bytes()].concat();
    assert_eq!(target.sent().0, [fpdu(&empty_send), fpdu(&empty_write)].concat());
    for octets in [0, 1, 13] {
        let mut target = Target::new();
        target.open();
        target.send(&fpdu(&empty_write[..octets]));
        assert!(target.qp.error().is_some(), "{octets} octets");
    }
}

/// The core refuses streaming octets of the control thread after the switch and resets the connection.
// Requirements: RDMAP-6.1-01
#[test]
fn nothing_but_messages_goes_out_in_full_operation() {
    let mut target = Target::new();
    target.open();
    let message = Slice { stag: INBOX, to: 0, len: 8 };
    target.qp.post_send(SendRequest::new(1, Operation::SEND, message)).unwrap();
    target.peer.settle();
    let octets = Box::new(*b"in plain text");
    let connection = target.connection;
    target.peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    target.peer.settle();
    let sent: Vec<u8> = target.peer.sent.iter().flat_map(|sent| sent.payload.clone()).collect();
    assert_eq!(sent, fpdu(&send(1, 0, &[0xa5; 8])));
    assert!(target.sent_any(Flags::RST));
}

/// Octets after the peer's Terminate are nobody's: they keep no frame, and the connection, which both ends
/// close then, is in TIME-WAIT as soon as the peer's FIN comes.
#[test]
fn octets_after_a_terminate_keep_nothing() {
    let mut target = Target::new();
    target.open();
    let mut octets = terminate([0x00, 0x00, 0x00, 0x00], None);
    octets.extend([0x5a; 100]);
    target.send(&octets);
    assert!(matches!(target.qp.error(), Some(StreamError::Terminated { .. })), "{:?}", target.qp.error());
    let (data, fin) = target.sent();
    assert!(data.is_empty() && fin, "it closes, and says no more");
    assert_eq!(target.peer.core.usage().held_frames, 0);
    target.peer.send(Flags::FIN | Flags::ACK, target.seq, target.ack + 1, &[]);
    let usage = target.peer.core.usage();
    assert_eq!((usage.connections, usage.time_waits), (0, 1));
}
