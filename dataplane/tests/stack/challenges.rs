//! Tests that challenge acknowledgements are bounded, per connection and per core (RFC 5961 §7).

use crate::common::PORT;
use crate::common::raw::{PEER_ISS, RawPeer};
use warpline_dataplane::limits;
use warpline_dataplane::ring::{Command, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::{Instant, SECOND};
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber};

const ACK: Flags = Flags::ACK;

/// Sends a segment ten thousand times within a fraction of a second; returns the number of answers.
fn answers(peer: &mut RawPeer, header: &Header, payload: &[u8]) -> usize {
    let frame = RawPeer::segment(header, payload);
    peer.sent.clear();
    for _ in 0..10_000 {
        peer.inject(&frame);
        peer.settle();
    }
    peer.sent.len()
}

/// Two ends that disagree about sequence numbers would acknowledge each other's acknowledgements forever.
#[test]
fn acknowledgements_do_not_ping_pong() {
    let limit = usize::from(limits::CHALLENGES_PER_SPAN);
    for (seq, ack, why) in [
        (5000, 0, "before the window"),
        (0x4000_0000, 0, "beyond the window"),
        (1, 1000, "acknowledges what was not sent"),
    ] {
        let mut peer = RawPeer::new();
        let next = peer.accept(Options::default());
        let seq = if why.starts_with("before") { PEER_ISS - seq } else { PEER_ISS + seq };
        let header = peer.header(ACK, seq, next + ack);
        assert_eq!(answers(&mut peer, &header, &[]), limit, "{why}");
        assert_eq!(peer.core.statistics().dropped(DropCause::RateLimited), 10_000 - limit as u64);
        peer.now += limits::CHALLENGE_SPAN_NS;
        assert_eq!(answers(&mut peer, &header, &[]), limit, "{why}: the span has passed");
        // The connection is well.
        peer.sent.clear();
        peer.send(ACK | Flags::PSH, PEER_ISS + 1, next, b"well");
        assert_eq!(peer.expect_one().header.ack, PEER_ISS + 5);
    }
}

/// RFC 5961 §3, §4: forged RSTs and SYNs are challenged, a few times.
#[test]
fn challenges_are_bounded() {
    for flags in [Flags::RST, Flags::RST | ACK, Flags::SYN, Flags::SYN | ACK] {
        let mut peer = RawPeer::new();
        let next = peer.accept(Options::default());
        let header = peer.header(flags, PEER_ISS + 100, next);
        assert_eq!(answers(&mut peer, &header, &[]), usize::from(limits::CHALLENGES_PER_SPAN), "{flags:?}");
        assert!(peer.events.is_empty());
    }
}

/// A peer that sends its data again waits for the answer: it gets one each time.
#[test]
fn data_sent_again_is_always_acknowledged() {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    peer.send(ACK | Flags::PSH, PEER_ISS + 1, next, b"again");
    let header = peer.header(ACK, PEER_ISS + 1, next);
    assert_eq!(answers(&mut peer, &header, b"again"), 10_000);
}

/// Opens a connection from each of the peer's ports up to `count`. Returns their first sequence numbers here.
fn open_many(peer: &mut RawPeer, count: u16) -> Vec<SeqNumber> {
    peer.command(Command::Listen { address: None, port: PORT, backlog: 10_000, tcp: None });
    let mut firsts = Vec::new();
    for port in 1..=count {
        let syn = Header { source_port: port, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
        peer.inject(&RawPeer::segment(&syn, &[]));
        peer.settle();
        let next = peer.sent.pop_back().unwrap().header.seq + 1;
        let ack = Header { source_port: port, ..peer.header(ACK, PEER_ISS + 1, next) };
        peer.inject(&RawPeer::segment(&ack, &[]));
        peer.settle();
        firsts.push(next);
    }
    let opened = peer.events.iter().filter(|event| matches!(event, Event::Accepted { .. })).count();
    assert_eq!(opened, usize::from(count));
    firsts
}

/// The keepalives of more connections than the core's limit come in the same second, after forged segments
/// have used that up: each is answered, or live connections would end. Those of one connection are limited
/// all the same.
#[test]
fn probes_of_many_connections_are_answered() {
    const CONNECTIONS: u16 = 2000;
    const { assert!(CONNECTIONS as u32 > limits::CHALLENGES_PER_SECOND) };
    let mut peer = RawPeer::new();
    let firsts = open_many(&mut peer, CONNECTIONS);
    peer.now = Instant::from_nanos(10 * SECOND);
    for port in 1..=CONNECTIONS {
        let forged = Header { source_port: port, ..peer.header(Flags::RST, PEER_ISS + 100, SeqNumber(0)) };
        peer.inject(&RawPeer::segment(&forged, &[]));
        peer.settle();
    }
    assert!(peer.sent.len() <= limits::CHALLENGES_PER_SECOND as usize);
    peer.sent.clear();
    for (port, next) in (1..).zip(&firsts) {
        // A peer whose echo of a mark was not answered repeats it in each acknowledgement.
        let flags = if port % 2 == 0 { ACK } else { ACK | Flags::ECE };
        let probe = Header { source_port: port, ..peer.header(flags, PEER_ISS, *next) };
        peer.inject(&RawPeer::segment(&probe, &[]));
        peer.settle();
    }
    assert!(peer.now < Instant::from_nanos(11 * SECOND));
    assert_eq!(peer.sent.len(), usize::from(CONNECTIONS));
    let probe = Header { source_port: 1, ..peer.header(ACK, PEER_ISS, firsts[0]) };
    peer.now += limits::CHALLENGE_SPAN_NS;
    assert_eq!(answers(&mut peer, &probe, &[]), usize::from(limits::CHALLENGES_PER_SPAN));
}

/// The limit of all connections together: more than one connection alone may send, less than all could, and
/// another number each second. An observer who counts those of their own connection learns nothing about
/// other connections.
#[test]
fn the_core_has_a_limit_that_nobody_knows() {
    const CONNECTIONS: u16 = 300;
    let mut peer = RawPeer::new();
    open_many(&mut peer, CONNECTIONS);
    let mut counts = Vec::new();
    for round in 1..=5 {
        // At the beginning of a second, when the limit of every connection is renewed.
        peer.now = Instant::from_nanos(round * 10 * SECOND);
        peer.sent.clear();
        for port in 1..=CONNECTIONS {
            let header =
                Header { source_port: port, ..peer.header(Flags::RST, PEER_ISS + 100, SeqNumber(0)) };
            for _ in 0..10 {
                peer.inject(&RawPeer::segment(&header, &[]));
                peer.settle();
            }
        }
        assert!(peer.now < Instant::from_nanos((round * 10 + 1) * SECOND));
        counts.push(peer.sent.len());
    }
    let limit = limits::CHALLENGES_PER_SECOND as usize;
    assert!(counts.iter().all(|count| (limit / 2..=limit).contains(count)), "{counts:?}");
    counts.dedup();
    assert!(counts.len() > 3, "{counts:?}");
}
