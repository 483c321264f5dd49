//! Tests of a poll loop that has stalled: what has arrived meanwhile is taken before the timers that became
//! due.

use crate::common::raw::{PEER_ISS, RawPeer};
use warpline_dataplane::limits;
use warpline_dataplane::ring::{AfterStream, Command};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::ipv4::Protocol;
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

const STALL_NS: u64 = 3 * SECOND;

/// A connection on which the core has sent ten octets, and the number after them.
fn with_octets_in_flight() -> (RawPeer, SeqNumber) {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options { mss: Some(1460), sack_permitted: true, ..Options::default() });
    let connection = peer.accepted.expect("a connection");
    let octets = vec![7; 10].into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    peer.settle();
    assert_eq!(peer.expect_one().payload.len(), 10);
    (peer, next + 10)
}

/// Puts `frames` frames on the wire that are of no use, an acknowledgement up to `acknowledged` after them,
/// and polls the core once, long after they have arrived.
fn stall(peer: &mut RawPeer, frames: usize, acknowledged: SeqNumber) {
    let useless = RawPeer::packet(Protocol(253), &[0; 20]);
    for _ in 0..frames {
        peer.inject(&useless);
    }
    let acknowledgement = peer.header(Flags::ACK, PEER_ISS + 1, acknowledged);
    peer.inject(&RawPeer::segment(&acknowledgement, &[]));
    peer.now += STALL_NS;
    peer.settle();
}

/// However many frames are ahead of the acknowledgement, within a bound: no probe and no retransmission
/// follows, and the round-trip time is that of a stall.
#[test]
fn an_acknowledgement_that_has_arrived_counts_before_the_timer() {
    for frames in [0, 31, 32, 33, 500] {
        let (mut peer, end) = with_octets_in_flight();
        stall(&mut peer, frames, end);
        peer.expect_nothing();
        let tcp = peer.core.statistics().tcp;
        assert_eq!((tcp.timeouts, tcp.retransmitted_segments), (0, 0), "{frames} frames before it");
        assert_eq!(peer.core.statistics().dropped(DropCause::OtherProtocol), frames as u64);
    }
}

/// The bound: a flood of frames does not keep timers waiting.
#[test]
fn a_flood_does_not_keep_timers_waiting() {
    let (mut peer, end) = with_octets_in_flight();
    let most = limits::BURSTS_BEFORE_TIMERS * limits::RECEIVE_BURST_FRAMES;
    stall(&mut peer, most, end);
    assert!(peer.core.statistics().tcp.retransmitted_segments > 0, "the acknowledgement comes too late");
}
