//! Tests of Sends without a receive, where the application lets them wait: nothing after them is Delivered,
//! TCP's window closes, and the wait ends with a receive or, at its deadline, with the error that occurs
//! without waiting.

use std::sync::Arc;

use super::target::{BASE_TO, Target, WRITABLE, fpdu, send, terminate, untagged, write};
use crate::common::{PD, holds};
use warpline_dataplane::core::testing;
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::limits;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::QpState;
use warpline_dataplane::qp::shared_receive_queue::{SharedReceiveQueue, SrqNumber};
use warpline_dataplane::qp::work::Status;
use warpline_dataplane::ring::{Command, Event, FullOperation};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{MILLISECOND, SECOND};
use warpline_dataplane::wire::tcp::Flags;

const NO_BUFFER: StreamError = StreamError::Ddp(DdpError::NoBuffer);
const CONTROL: [u8; 4] = [0x12, 2, 0xc0, 0];

const fn waiting() -> FullOperation {
    FullOperation { receive_wait_ns: Some(5 * SECOND), ..FullOperation::new(false) }
}

/// A target whose only receive is used: the next message waits.
fn target() -> Target {
    let mut target = Target::with(waiting());
    target.open();
    target.send(&fpdu(&send(1, 0, b"first")));
    assert_eq!(target.completions.poll().map(|done| (done.id, done.byte_len)), Some((1, 5)));
    target.peer.sent.clear();
    target
}

/// The window of the last segment the core has sent, and whether that acknowledges all.
fn window(target: &mut Target) -> (u16, bool) {
    // The acknowledgement may be delayed.
    target.peer.pass_ms(50);
    let last = target.peer.sent.pop_back().expect("a segment");
    target.peer.sent.clear();
    (last.header.window, last.header.ack == target.seq)
}

fn is_waiting(target: &Target) -> bool {
    target.completions.poll().is_none() && target.qp.error().is_none()
}

#[test]
fn a_send_waits_for_its_receive_and_all_behind_it_waits_too() {
    let mut target = target();
    target.send(&fpdu(&send(2, 0, b"second")));
    target.send(&fpdu(&write(WRITABLE, BASE_TO, b"behind")));
    // With Immediate Data it is the same.
    target.send(&fpdu(&untagged([0x41, 0x49], 0, 3, 0, b"8 octets")));
    target.peer.pass_ms(100);
    assert!(is_waiting(&target));
    target.expect_untouched_but_inbox();
    assert_eq!(target.peer.core.statistics().receives_awaited, 1);
    target.qp.post_receive(Target::receive(2)).unwrap();
    target.peer.settle();
    let done = target.completions.poll().unwrap();
    assert_eq!((done.id, done.status, done.byte_len), (2, Status::Success, 6));
    assert!(holds(&target.regions[0].0, 0, b"behind"));
    assert!(holds(&target.regions[3].0, 0, b"second"));
    assert!(is_waiting(&target));
    target.qp.post_receive(Target::receive(3)).unwrap();
    target.peer.settle();
    assert_eq!(target.completions.poll().unwrap().immediate, Some(u64::from_be_bytes(*b"8 octets")));
    assert_eq!(target.peer.core.statistics().receives_awaited, 2);
}

/// RFC 5041 §7.1: at the deadline the error is the same as without waiting, and the Terminate names the
/// message.
#[test]
fn the_wait_has_a_deadline() {
    let mut target = target();
    let second = send(2, 0, b"second");
    target.send(&fpdu(&second));
    target.peer.pass_ms(3000);
    // Segments that arrive meanwhile do not extend the deadline.
    target.send(&fpdu(&write(WRITABLE, BASE_TO, b"behind")));
    target.peer.pass_ms(1990);
    assert!(is_waiting(&target));
    assert_eq!(target.sent().0, []);
    target.peer.pass_ms(20);
    assert_eq!((target.qp.error(), target.qp.state()), (Some(NO_BUFFER), QpState::Terminate));
    let (data, fin) = target.sent();
    assert_eq!(data, terminate(CONTROL, Some(&second)));
    assert!(fin);
    assert!(holds(&target.regions[0].0, 0, &[0xa5; 6]), "nothing behind it was placed");
}

/// Each message has its own time, and the usual is none at all.
#[test]
fn each_message_has_its_own_time() {
    let mut target = target();
    for msn in 2..6 {
        target.send(&fpdu(&send(msn, 0, b"x")));
        target.peer.pass_ms(4000);
        assert!(is_waiting(&target));
        target.qp.post_receive(Target::receive(msn.into())).unwrap();
        target.peer.settle();
        assert_eq!(target.completions.poll().map(|done| done.id), Some(msn.into()));
    }
    let mut target = Target::new();
    target.open();
    target.send(&fpdu(&send(1, 0, b"x")));
    target.send(&fpdu(&send(2, 0, b"x")));
    assert_eq!(target.qp.error(), Some(NO_BUFFER));
}

/// Other errors do not wait.
#[test]
fn only_a_missing_receive_is_waited_for() {
    for (wrong, error) in [
        (send(3, 0, b"x"), DdpError::MsnRange),
        (send(2, 1, b"x"), DdpError::NoBuffer),
        (untagged([0x41, 0x41], 0, 2, 0, b"x"), DdpError::NoBuffer),
        (untagged([0x41, 0x03], 0, 2, 0, b"x"), DdpError::NoBuffer),
        (untagged([0x40, 0x43], 0, 2, 0, b"x"), DdpError::UntaggedVersion),
    ] {
        let mut target = target();
        target.send(&fpdu(&wrong));
        assert_eq!(target.qp.error(), Some(StreamError::Ddp(error)), "{wrong:02x?}");
    }
}

/// Waiting octets close the window. It stays closed while it is probed, and opens by itself, and not by a
/// sliver, when the wait is over.
#[test]
fn the_window_closes_and_opens() {
    let mut target = target();
    target.send(&fpdu(&send(2, 0, b"second")));
    let behind = fpdu(&write(WRITABLE, BASE_TO, &[7; 200])).repeat(6);
    let (mut last, mut sent) = (window(&mut target).0, 0);
    while usize::from(last) >= behind.len() {
        target.send(&behind);
        let (now, acknowledged) = window(&mut target);
        assert!(acknowledged && now < last, "{now} after {last}");
        last = now;
        sent += 1;
    }
    assert!(sent > 40, "{sent}");
    // The peer fills the rest with a part of an FPDU, and probes.
    target.send(&behind[..usize::from(last)]);
    assert_eq!(window(&mut target), (0, true));
    for _ in 0..3 {
        target.peer.pass_ms(300);
        target.peer.send(Flags::ACK, target.seq - 1, target.ack, &[]);
        assert_eq!(window(&mut target), (0, true));
    }
    assert!(is_waiting(&target));
    let received = target.peer.core.statistics().fpdus_received;
    target.qp.post_receive(Target::receive(2)).unwrap();
    target.peer.settle();
    let (opened, acknowledged) = window(&mut target);
    assert!(acknowledged && opened > 60_000, "{opened}");
    assert_eq!(target.completions.poll().map(|done| done.id), Some(2));
    target.send(&behind[usize::from(last)..]);
    let now = target.peer.core.statistics().fpdus_received;
    assert_eq!(now - received, 1 + 6 * (sent + 1), "nothing that was acknowledged is lost");
    assert_eq!(target.qp.error(), None);
}

/// The peer's FIN follows the waiting messages: control and the queue pair are notified when they are
/// Delivered. Once this end has closed, they do not wait for long.
#[test]
fn the_end_comes_behind_what_waits() {
    let finished =
        |target: &Target| target.peer.events.iter().any(|event| matches!(event, Event::PeerFinished { .. }));
    let closed = |target: &Target| {
        target.peer.events.iter().find_map(|event| match event {
            Event::Closed { reason, .. } => Some(*reason),
            _ => None,
        })
    };
    for (we_close, served) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut target = target();
        if we_close {
            target.peer.command(Command::Close { connection: target.connection });
            target.peer.settle();
            target.ack += 1;
        }
        target.send(&fpdu(&send(2, 0, b"last words")));
        target.peer.send(Flags::ACK | Flags::FIN, target.seq, target.ack, &[]);
        target.seq += 1;
        let allowed_ms = if we_close { limits::CLOSING_RECEIVE_WAIT_NS / MILLISECOND } else { 5000 };
        target.peer.pass_ms(allowed_ms - 100);
        assert!(is_waiting(&target) && !finished(&target) && closed(&target).is_none());
        if !served {
            target.peer.pass_ms(200);
            assert_eq!(target.qp.error(), Some(NO_BUFFER));
            target.peer.pass_s(10);
            assert!(closed(&target).is_some());
            continue;
        }
        target.qp.post_receive(Target::receive(2)).unwrap();
        target.peer.settle();
        let done = target.completions.poll().unwrap();
        assert_eq!((done.id, done.status, done.byte_len), (2, Status::Success, 10));
        assert!(finished(&target));
        assert_eq!(closed(&target), we_close.then_some(CloseReason::Finished));
    }
}

/// A reset ends the wait at once: the waiting messages have no user any more.
#[test]
fn a_reset_ends_the_wait() {
    let mut target = target();
    target.send(&fpdu(&send(2, 0, b"second")));
    target.peer.send(Flags::RST, target.seq, target.ack, &[]);
    assert_eq!(target.qp.error(), Some(StreamError::Tcp(CloseReason::Reset)));
    assert_eq!(target.peer.core.statistics().held_frames, 0);
}

/// A receive posted to a shared receive queue wakes a waiting queue pair; destroyed queue pairs do not
/// interfere.
#[test]
fn a_shared_receive_queue_wakes_who_waits() {
    let receives = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 8, None));
    let mut target = Target::sharing(waiting(), Some(receives.clone()));
    target.open();
    for (msn, words) in [(1, b"one"), (2, b"two")] {
        target.send(&fpdu(&send(msn, 0, words)));
    }
    target.peer.pass_ms(1000);
    assert!(is_waiting(&target));
    for id in [7, 8] {
        receives.post(&[Target::receive(id)]).unwrap();
        target.peer.settle();
        assert_eq!(target.completions.poll().map(|done| done.id), Some(id));
        assert_eq!(receives.len(), 0, "no more than it needs");
    }
    target.send(&fpdu(&send(3, 0, b"three")));
    target.peer.command(Command::DestroyQp(target.qp.clone()));
    target.peer.settle();
    receives.post(&[Target::receive(9)]).unwrap();
    target.peer.pass_ms(100);
    assert_eq!(receives.len(), 1);
}

/// Receives that a thread has posted wait for those of another that is interrupted while it posts: a message
/// that needs them waits too, where messages may not wait otherwise, and fails if that thread does not go on.
#[test]
fn a_message_waits_for_a_post_that_is_interrupted() {
    let receives = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 8, None));
    let operation = FullOperation::new(false);
    for is_late in [false, true] {
        let mut target = Target::sharing(operation, Some(receives.clone()));
        target.open();
        let interrupted = testing::post_interrupted(&receives, &[Target::receive(7)], || {
            receives.post(&[Target::receive(8)]).unwrap();
            target.send(&fpdu(&send(1, 0, b"one")));
            target.peer.pass_ms(500);
            assert!(is_waiting(&target), "one is posted");
            assert_eq!(target.peer.core.usage().awaiting_shared, 1);
            if is_late {
                target.peer.pass_ms(1000);
                assert_eq!(target.qp.error(), Some(NO_BUFFER));
            }
        });
        assert_eq!(interrupted, Ok(()));
        target.peer.settle();
        if !is_late {
            assert_eq!(target.completions.poll().map(|done| (done.id, done.byte_len)), Some((7, 3)));
            target.send(&fpdu(&send(2, 0, b"two")));
            assert_eq!(target.completions.poll().map(|done| done.id), Some(8));
            target.send(&fpdu(&send(3, 0, b"three")));
            assert_eq!(target.qp.error(), Some(NO_BUFFER), "none is posted, nor being posted");
        }
    }
}

/// A wait ends with an error while the peer's window is closed, and the queue pair is destroyed: its
/// connection lingers for the Terminate, and waits for no receive any more.
#[test]
fn a_lingering_connection_waits_for_no_receive() {
    let receives = Arc::new(SharedReceiveQueue::new(SrqNumber(1), PD, 8, None));
    let mut target = Target::sharing(waiting(), Some(receives));
    target.open();
    target.send_with_window(0, &fpdu(&send(1, 0, b"one")));
    assert_eq!((is_waiting(&target), target.peer.core.usage().awaiting_shared), (true, 1));
    while is_waiting(&target) {
        target.peer.pass_ms(500);
    }
    assert_eq!(target.qp.state(), QpState::Terminate);
    target.peer.command(Command::DestroyQp(target.qp.clone()));
    target.peer.settle();
    let usage = target.peer.core.usage();
    assert_eq!((usage.connections, usage.awaiting_shared), (1, 0), "it lingers, and is in no list");
}
