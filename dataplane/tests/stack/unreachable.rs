//! Tests of peers whose hardware address is never resolved: their connection attempts end nevertheless.

use crate::common::PORT;
use crate::common::raw::{PEER_ISS, RawPeer};
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

/// SYNs from an address that answers no ARP request must not hold places in the backlog forever.
#[test]
fn a_half_open_connection_ends_though_no_syn_can_be_sent() {
    let mut peer = RawPeer::new();
    peer.answers_arp = false;
    peer.command(Command::Listen { address: None, port: PORT, backlog: 1, tcp: None });
    peer.send(Flags::SYN, PEER_ISS, SeqNumber(0), &[]);
    peer.expect_nothing();
    assert_eq!(peer.core.usage().half_open, 1);
    peer.pass_s(80);
    peer.expect_nothing();
    assert_eq!((peer.core.usage().half_open, peer.core.usage().connections), (0, 0));
}

/// Returns a peer that is gone: the host has asked for it in vain, and has a connection to it with nothing
/// outstanding. No acknowledgement of the peer says that the host can be reached. Returns the number of the
/// core's next octet, too.
fn forgotten_peer(user_timeout_ms: Option<u32>) -> (RawPeer, ConnectionId, SeqNumber) {
    let mut config = RawPeer::config();
    config.tcp.user_timeout_ms = user_timeout_ms;
    let mut peer = RawPeer::with(config, 1500);
    let next = peer.accept(Options::default());
    let connection = peer.accepted.unwrap();
    // The neighbour has to be asked for again, and the acknowledgement that is owed asks.
    peer.pass_s(60);
    peer.answers_arp = false;
    peer.send(Flags::ACK, PEER_ISS + 1, next, &[7; 100]);
    peer.pass_s(30);
    peer.sent.clear();
    peer.events.clear();
    (peer, connection, next)
}

fn closed(peer: &mut RawPeer) -> Vec<CloseReason> {
    let reason = |event| if let Event::Closed { reason, .. } = event { Some(reason) } else { None };
    peer.events.drain(..).filter_map(reason).collect()
}

/// RFC 9293 §3.8.3: a connection that has data for a peer which is gone is given up, though the peer's
/// neighbour was forgotten before and not one segment can leave. So is one that only has to close.
#[test]
fn a_connection_to_a_forgotten_peer_times_out() {
    for closes in [false, true] {
        let (mut peer, connection, _) = forgotten_peer(None);
        let octets = vec![1; 10].into();
        let command = if closes {
            Command::Close { connection }
        } else {
            Command::Stream { connection, octets, then: AfterStream::Stay }
        };
        peer.command(command);
        peer.pass_s(60);
        assert_eq!(closed(&mut peer), [], "patience lasts for minutes");
        peer.pass_s(300);
        peer.expect_nothing();
        assert_eq!(closed(&mut peer), [CloseReason::TimedOut], "closes: {closes}");
        assert_eq!(peer.core.usage().connections, 0);
    }
}

/// The user timeout counts from when there was something to send (RFC 9293 §3.9.1).
#[test]
fn a_user_timeout_ends_the_wait_for_a_path() {
    let (mut peer, connection, _) = forgotten_peer(Some(5000));
    peer.pass_s(100);
    assert_eq!(closed(&mut peer), [], "it has nothing to send");
    let octets = vec![1; 10].into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    peer.pass_s(4);
    assert_eq!(closed(&mut peer), []);
    peer.pass_s(2);
    assert_eq!(closed(&mut peer), [CloseReason::TimedOut]);
}

/// What arrives meanwhile, by a path of its own, ends nothing: what waits is timed all the same.
#[test]
fn data_of_a_peer_without_a_path_stops_no_timer() {
    let (mut peer, connection, next) = forgotten_peer(Some(5000));
    let octets = vec![1; 10].into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    for second in 0..4 {
        peer.pass_s(1);
        peer.send(Flags::ACK, PEER_ISS + 101 + 10 * second, next, &[7; 10]);
    }
    assert_eq!(closed(&mut peer), []);
    peer.pass_s(2);
    assert_eq!(closed(&mut peer), [CloseReason::TimedOut]);

    // Nor without a limit of the user's.
    let (mut peer, connection, next) = forgotten_peer(None);
    let octets = vec![1; 10].into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    for piece in 0..3600 {
        peer.pass_ms(100);
        peer.send(Flags::ACK, PEER_ISS + 101 + 10 * piece, next, &[7; 10]);
    }
    assert_eq!(closed(&mut peer), [CloseReason::TimedOut]);
}

/// A peer that comes back has what waited at once, and what timed out meanwhile was nothing that was lost:
/// the timeout is as short as before.
#[test]
fn a_peer_that_comes_back_has_what_waited() {
    let (mut peer, connection, _) = forgotten_peer(None);
    let octets = vec![1; 10].into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    peer.pass_s(60);
    peer.answers_arp = true;
    peer.pass_s(2);
    let first = peer.sent.pop_front().unwrap();
    assert_eq!(first.payload, [1; 10]);
    // It is not acknowledged, and sent again within a second or two, not after the minute of a timeout that
    // was doubled while nothing could leave.
    assert!(!peer.sent.is_empty(), "it was sent again");
    peer.send(Flags::ACK, PEER_ISS + 101, first.header.seq + 10, &[]);
    peer.sent.clear();
    peer.pass_s(100);
    peer.expect_nothing();
    assert_eq!((closed(&mut peer), peer.core.usage().connections), (vec![], 1));
}
