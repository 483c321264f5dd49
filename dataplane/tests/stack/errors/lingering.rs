//! Tests of queue pairs that an application destroys right after an error, while the peer's window is closed:
//! if the window opens in time, the Terminate is sent after all octets in flight, and no octet is read from
//! memory that has returned to the application.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::target::{
    BASE_TO, INBOX, READABLE, REGION_OCTETS, Target, WRITABLE, fpdu, send, tagged, terminate, untagged, write,
};
use crate::common::{PD, QP};
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::limits;
use warpline_dataplane::memory::STag;
use warpline_dataplane::mpa::Framing;
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::mpa::fpdu::{encode, wire_len};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRings, QpState, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, SendRequest, Slice, Status};
use warpline_dataplane::ring::{Command, Event, FullOperation};
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::tcp::Flags;

const ERROR: StreamError = StreamError::Ddp(DdpError::InvalidStag);
const CONTROL: [u8; 4] = [0x11, 0, 0xc0, 0];

/// A message that ends the stream.
fn bad() -> Vec<u8> {
    write(STag(0xdead_beef), BASE_TO, b"x")
}

/// Has the peer end the stream and close its window with it, and the application destroy its queue pair at
/// once.
fn destroyed_after_an_error(target: &mut Target) {
    target.send_with_window(0, &fpdu(&bad()));
    assert_eq!((target.qp.state(), target.qp.error()), (QpState::Terminate, Some(ERROR)));
    target.peer.command(Command::DestroyQp(target.qp.clone()));
    target.peer.settle();
    let mut events = target.peer.events.iter();
    assert!(events.any(|event| matches!(event, Event::QpDestroyed(QP))), "{:?}", target.peer.events);
    assert_eq!(target.qp.state(), QpState::Error);
}

/// Returns the octets that the core has sent, by their place after `target.ack`, and whether there was a FIN.
/// Asserts that retransmissions repeat the same octets.
fn stream(target: &mut Target, known: &mut BTreeMap<u32, u8>) -> bool {
    let mut fin = false;
    for sent in target.peer.sent.drain(..) {
        assert!(!sent.header.flags.contains(Flags::RST), "closed, not reset");
        fin |= sent.header.flags.contains(Flags::FIN);
        for (place, octet) in sent.payload.iter().enumerate() {
            let at = (sent.header.seq - target.ack) as u32 + place as u32;
            assert_eq!(*known.entry(at).or_insert(*octet), *octet, "other octets at {at}");
        }
    }
    fin
}

/// The registered memory is free at once, and the number of the queue pair another's; neither matters to the
/// Terminate.
#[test]
fn a_terminate_outlives_its_queue_pair() {
    let mut target = Target::new();
    target.open();
    destroyed_after_an_error(&mut target);
    assert_eq!(target.completions.poll().map(|done| done.status), Some(Status::Flushed));
    target.peer.command(Command::Deregister { stag: WRITABLE });
    let rings = CompletionRings::shared(target.completions.clone());
    let next = Arc::new(SharedQp::new(
        QP,
        PD,
        QueueDepths { send: 8, receive: 8 },
        rings,
        target.peer.rings.doorbells.clone(),
    ));
    next.post_receive(Target::receive(9)).unwrap();
    target.peer.pass_ms(1500);
    let mut events = target.peer.events.iter();
    assert!(events.any(|event| matches!(event, Event::Deregistered { stag: WRITABLE, result: Ok(()) })));
    assert_eq!(target.sent(), (Vec::new(), false), "the window is closed");

    target.send_with_window(0xffff, &[]);
    let (data, fin) = target.sent();
    assert_eq!(data, terminate(CONTROL, Some(&bad())), "RDMAP-5.4-01");
    assert!(fin, "RDMAP-6.2.1-03");
    // Further octets are discarded, and the peer's own FIN ends the connection.
    target.send(&fpdu(&send(1, 0, b"late")));
    let end = target.ack + data.len() as u32 + 1;
    target.peer.send(Flags::ACK | Flags::FIN, target.seq, end, &[]);
    target.peer.pass_s(10);
    assert!(target.peer.sent.iter().all(|sent| !sent.header.flags.contains(Flags::RST)));
    assert_eq!((next.state(), target.completions.poll()), (QpState::Idle, None));
    target.expect_untouched();
}

/// Octets that were sent and lost, and octets that waited for the window, precede the Terminate unchanged,
/// although the memory they were in has other contents by then.
#[test]
fn what_was_on_its_way_comes_before_the_terminate() {
    let mut target = Target::new();
    target.open();
    let local = Slice { stag: INBOX, to: 0, len: 200 };
    let post = |target: &Target, id| {
        target.qp.post_send(SendRequest::new(id, Operation::SEND, local)).unwrap();
    };
    post(&target, 10);
    target.peer.settle();
    post(&target, 11);
    target.peer.settle();
    let mut known = BTreeMap::new();
    stream(&mut target, &mut known);
    assert!(!known.is_empty());
    // None of it is acknowledged. Now the window closes.
    target.send_with_window(0, &[]);
    post(&target, 12);
    post(&target, 13);
    target.peer.settle();
    destroyed_after_an_error(&mut target);
    assert!(target.regions[3].0.write(0, &[0x5a; 256]));
    // The retransmission timer expires, with and without the window.
    target.peer.pass_ms(1500);
    stream(&mut target, &mut known);
    target.send_with_window(0xffff, &[]);
    let fin = acknowledged(&mut target, &mut known);
    let mut expected: Vec<u8> = (1..=4).flat_map(|msn| fpdu(&send(msn, 0, &[0xa5; 200]))).collect();
    expected.extend(terminate(CONTROL, Some(&bad())));
    assert_eq!(known.keys().copied().collect::<Vec<_>>(), (0..known.len() as u32).collect::<Vec<_>>());
    assert_eq!(known.into_values().collect::<Vec<u8>>(), expected);
    assert!(fin);
}

/// Adds what is sent meanwhile to `known`, and acknowledges it. Returns true if a FIN was sent.
fn acknowledged(target: &mut Target, known: &mut BTreeMap<u32, u8>) -> bool {
    let mut fin = false;
    for _ in 0..20 {
        fin |= stream(target, known);
        let end = target.ack + known.len() as u32;
        target.peer.send_with_window(0xffff, target.seq, end);
        target.peer.pass_ms(100);
    }
    fin | stream(target, known)
}

/// In a stream with Markers, too, a Response whose payload ends in PAD, and with it its region, comes before
/// the Terminate as it was sent.
#[test]
fn a_response_with_pad_comes_before_the_terminate() {
    let depths = ReadDepths { ird: 1, ord: 0 };
    let mut target = Target::with(FullOperation { markers_sent: true, depths, ..FullOperation::new(false) });
    target.open();
    let source = BASE_TO + REGION_OCTETS as u64 - 5;
    let mut request = Vec::new();
    request.extend([0, 0, 0, 9]);
    request.extend([0; 8]);
    request.extend(5_u32.to_be_bytes());
    request.extend(READABLE.0.to_be_bytes());
    request.extend(source.to_be_bytes());
    target.send(&fpdu(&untagged([0x41, 0x41], 1, 1, 0, &request)));
    let mut known = BTreeMap::new();
    stream(&mut target, &mut known);
    assert!(!known.is_empty());
    destroyed_after_an_error(&mut target);
    target.send_with_window(0xffff, &[]);
    let fin = acknowledged(&mut target, &mut known);
    assert!(fin);
    // The first Marker is before the first FPDU, and the next one after the last.
    let response = tagged(STag(9), 0, [0xc1, 0x42], &[0xa5; 5]);
    let mut expected = vec![0; wire_len(0, response.len(), true)];
    assert!(encode(&mut expected, 0, Framing { markers: true, crc: true }, &response, 0, |_, _| true));
    expected.extend(terminate(CONTROL, Some(&bad())));
    assert_eq!(known.into_values().collect::<Vec<u8>>(), expected);
}

/// A window that stays closed delays the end only until the Terminate's deadline.
#[test]
fn a_window_that_stays_closed_is_not_waited_for() {
    let mut target = Target::new();
    target.open();
    destroyed_after_an_error(&mut target);
    target.peer.pass_ms(limits::TERMINATE_LINGER_NS / (SECOND / 1000) - 100);
    assert_eq!(target.sent(), (Vec::new(), false));
    target.peer.pass_ms(200);
    assert!(target.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::RST)));
    target.peer.sent.clear();
    // Nothing of the connection remains.
    target.peer.send(Flags::ACK, target.seq, target.ack, &[]);
    assert!(target.peer.expect_one().header.flags.contains(Flags::RST));
}

/// While the Terminate waits for the window, new requests are flushed.
#[test]
fn what_is_posted_behind_a_terminate_is_flushed() {
    let mut target = Target::new();
    target.open();
    target.send_with_window(0, &fpdu(&bad()));
    target.qp.post_send(SendRequest::new(20, Operation::SEND, Slice::default())).unwrap();
    target.qp.post_receive(Target::receive(21)).unwrap();
    target.peer.settle();
    assert_eq!(target.qp.state(), QpState::Terminate);
    let mut ended: Vec<_> = target.completions.drain().map(|done| (done.id, done.status)).collect();
    ended.sort_by_key(|done| done.0);
    assert_eq!(ended, [1, 20, 21].map(|id| (id, Status::Flushed)));
}

/// Without an error there is no Terminate: the peer receives a reset.
#[test]
fn a_queue_pair_destroyed_in_good_order_resets() {
    let mut target = Target::new();
    target.open();
    target.peer.command(Command::DestroyQp(target.qp.clone()));
    target.peer.settle();
    assert!(target.peer.expect_one().header.flags.contains(Flags::RST));
}

/// A queue pair is destroyed while its connection ends in the orderly way, and there is nothing to send but
/// the FIN, or not even that: the connection goes on without it. What the peer still sends is dropped, and
/// reaches no memory.
#[test]
fn an_orderly_end_outlives_its_queue_pair() {
    for (acknowledges, finishes) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut target = Target::new();
        target.open();
        target.peer.command(Command::Disconnect { connection: target.connection, within_ns: None });
        if acknowledges {
            target.peer.settle();
            assert_eq!(target.sent(), (Vec::new(), true));
            target.peer.send(Flags::ACK, target.seq, target.ack + 1, &[]);
        }
        target.peer.command(Command::DestroyQp(target.qp.clone()));
        target.peer.settle();
        assert!(target.peer.events.iter().any(|event| matches!(event, Event::QpDestroyed(QP))));
        if !acknowledges {
            assert_eq!(target.sent(), (Vec::new(), true));
            // It is lost, and sent again.
            target.peer.pass_s(1);
            assert!(target.sent().1);
        }
        target.ack += 1;
        target.send(&fpdu(&send(1, 0, b"late")));
        target.send(&fpdu(&write(WRITABLE, BASE_TO, b"late")));
        target.expect_untouched();
        let completed: Vec<_> = std::iter::from_fn(|| target.completions.poll()).collect();
        assert_eq!(completed.iter().map(|done| done.status).collect::<Vec<_>>(), [Status::Flushed]);
        target.sent();
        if finishes {
            target.peer.send(Flags::FIN | Flags::ACK, target.seq, target.ack, &[]);
            let usage = target.peer.core.usage();
            assert_eq!((usage.connections, usage.time_waits), (0, 1));
        } else {
            target.peer.pass_s(limits::TERMINATE_LINGER_NS / SECOND + 1);
            assert_eq!(target.peer.core.usage().connections, 0);
            assert!(target.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::RST)));
        }
    }
}

/// One that has more to send is reset: its payload is in memory that is another's now.
#[test]
fn an_orderly_end_with_something_to_send_is_a_reset() {
    let mut target = Target::new();
    target.open();
    let local = Slice { stag: INBOX, to: 0, len: 8 };
    target.qp.post_send(SendRequest::new(5, Operation::SEND, local)).unwrap();
    target.peer.settle();
    target.peer.command(Command::Disconnect { connection: target.connection, within_ns: None });
    target.peer.command(Command::DestroyQp(target.qp.clone()));
    target.peer.settle();
    assert!(target.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::RST)));
    assert_eq!(target.peer.core.usage().connections, 0);
}
