//! Tests of the end of a connection as its application sees it: late requests are flushed in order, and a
//! disconnect has a deadline.

use warpline_dataplane::memory::{Access, STag};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::QpState;
use warpline_dataplane::qp::work::{Operation, ReceiveRequest, SendRequest, Slice, Status};
use warpline_dataplane::ring::{Command, Event};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::SECOND;

use crate::common::{Pair, Setup, pattern, region_of};
use warpline_dataplane::device::sim::EndConfig;

const OWN: STag = STag::new(1, 7);

fn slice(octets: u32) -> Slice {
    Slice { stag: OWN, to: 0, len: octets }
}

/// Both ends in Full Operation, each with 4096 octets of memory called [`OWN`].
fn established() -> Pair {
    let mut pair = Pair::new(5, EndConfig::a(), EndConfig::b());
    for host in [&pair.a, &pair.b] {
        host.register(OWN, &region_of(&pattern(3, 4096)), Access::LOCAL_WRITE);
    }
    pair.establish(Setup { markers: false, crc: true });
    pair
}

fn disconnect(pair: &Pair, within_ns: Option<u64>) {
    pair.a.command(Command::Disconnect { connection: pair.a.connection.unwrap(), within_ns });
}

/// Requests posted after this end has closed are not sent. Their flushes follow the completions of earlier
/// requests, so that one marker request shows that the queue is drained.
// Requirements: DDP-6.2.1-02
#[test]
fn what_is_posted_after_a_disconnect_is_flushed_in_its_turn() {
    let mut pair = established();
    for id in 0..8 {
        pair.b.receive(id, slice(4096));
    }
    for id in 0..4 {
        pair.a.send(id, slice(3000));
    }
    disconnect(&pair, None);
    assert!(pair.run_until(1, |pair| pair.a.qp.state() == QpState::Closing));
    for id in 4..7 {
        let request = SendRequest::new(id, Operation::SEND, slice(10));
        pair.a.qp.post_send(SendRequest { signaled: id != 5, ..request }).unwrap();
    }
    // Our half is closed, the peer's is not: nothing else ends the stream.
    let finished =
        |pair: &mut Pair| pair.b.events.iter().any(|event| matches!(event, Event::PeerFinished { .. }));
    assert!(pair.run_until(5, finished));
    pair.run_for(1);
    assert_eq!(pair.a.qp.state(), QpState::Closing);
    let ended: Vec<_> = pair.a.poll_completions().iter().map(|done| (done.id, done.status)).collect();
    let (done, flushed) = (Status::Success, Status::Flushed);
    let expected = [(0, done), (1, done), (2, done), (3, done), (4, flushed), (5, flushed), (6, flushed)];
    assert_eq!(ended, expected);
    assert_eq!(pair.b.poll_completions().len(), 4, "nothing posted later was sent");
    // The same again, when nothing is outstanding.
    pair.a.send(9, slice(10));
    pair.run_for(1);
    assert_eq!(pair.a.poll_completions()[0].status, Status::Flushed);
}

/// Verbs' drain: marker requests posted to both queues of a queue pair in error are flushed, both while a
/// Terminate is in flight and after the connection has ended.
#[test]
fn markers_are_flushed_in_error() {
    let mut pair = established();
    // The peer has no receive for it.
    pair.a.send(1, slice(10));
    assert!(pair.run_until(5, |pair| pair.b.qp.state() == QpState::Terminate));
    for (state, id) in [(QpState::Terminate, 10), (QpState::Error, 20)] {
        assert!(pair.run_until(20, |pair| pair.b.qp.state() == state));
        pair.b.qp.post_send(SendRequest::new(id, Operation::SEND, slice(1))).unwrap();
        pair.b.qp.post_receive(ReceiveRequest::new(id + 1, slice(1))).unwrap();
        let mut ended = Vec::new();
        let flushed = pair.run_until(20, |pair| {
            ended.extend(pair.b.poll_completions());
            ended.len() == 2
        });
        assert!(flushed, "{state:?}: {ended:?}");
        ended.sort_by_key(|done| done.id);
        assert_eq!(ended.iter().map(|done| done.id).collect::<Vec<_>>(), [id, id + 1]);
        assert!(ended.iter().all(|done| done.status == Status::Flushed), "{ended:?}");
    }
}

/// How long after the disconnect the connection of `a` ended, in whole seconds, and why.
fn end_of(pair: &mut Pair, seconds: u64) -> Option<(u64, CloseReason)> {
    let from = pair.now;
    let closed = |pair: &Pair| {
        pair.a.events.iter().find_map(|event| match event {
            Event::Closed { reason, .. } => Some(*reason),
            _ => None,
        })
    };
    pair.run_until(seconds, |pair| closed(pair).is_some());
    closed(pair).map(|reason| ((pair.now - from) / SECOND, reason))
}

/// A peer that never closes its half is given up, and the application receives the reason.
#[test]
fn a_peer_that_never_closes_is_given_up() {
    let mut pair = established();
    pair.a.receive(1, slice(100));
    disconnect(&pair, Some(7 * SECOND));
    assert_eq!(end_of(&mut pair, 60), Some((7, CloseReason::TimedOut)));
    let error = StreamError::Tcp(CloseReason::TimedOut);
    assert_eq!((pair.a.qp.state(), pair.a.qp.error()), (QpState::Error, Some(error)));
    assert_eq!(pair.a.poll_completions()[0].status, Status::Flushed);
    pair.run_for(1);
    assert_eq!(pair.b.qp.error(), Some(StreamError::Tcp(CloseReason::Reset)), "the peer is told, too");
}

/// A peer that still sends is never given up: the time counts from its last octet. Without a limit it may
/// also be silent forever.
// Requirements: DDP-6.2.1-06
#[test]
fn a_peer_that_still_sends_is_waited_for() {
    let mut pair = established();
    for id in 0..10 {
        pair.a.receive(id, slice(100));
    }
    // The Responder may send once it has an FPDU.
    pair.a.write(99, slice(0), OWN, 0);
    disconnect(&pair, Some(7 * SECOND));
    for id in 0..10 {
        pair.run_for(5);
        pair.b.send(id, slice(50));
    }
    assert_eq!(end_of(&mut pair, 60), Some((7, CloseReason::TimedOut)));
    let received = pair.a.poll_completions().iter().filter(|done| done.byte_len == 50).count();
    assert_eq!(received, 10);

    let mut pair = established();
    disconnect(&pair, None);
    assert_eq!(end_of(&mut pair, 1000), None);
    pair.b.command(Command::Close { connection: pair.b.connection.unwrap() });
    assert_eq!(end_of(&mut pair, 5), Some((0, CloseReason::Finished)));
}
