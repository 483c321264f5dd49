//! Tests of a device that accepts no frames: the queue of waiting segments is bounded, whatever arrives.

use std::collections::BTreeMap;

use crate::common::raw::{OUR_MAC, PEER_ISS, PEER_MAC, PEER_PORT, RawPeer};
use crate::common::{PORT, address};
use warpline_dataplane::device::sim::End;
use warpline_dataplane::limits;
use warpline_dataplane::ring::{AfterStream, Command, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::wire::arp;
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber};

fn arp_request() -> Vec<u8> {
    let mut frame = vec![0; ethernet::Header::LEN + arp::Packet::LEN];
    ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::ARP }.emit(&mut frame);
    arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: PEER_MAC,
        sender_ip: address(2),
        target_mac: MacAddress::default(),
        target_ip: address(1),
    }
    .emit(&mut frame[ethernet::Header::LEN..]);
    frame
}

const CONNECTIONS: u16 = 24;
/// Segments of 64 octets that each connection has ready when its peer has acknowledged three times.
const READY: usize = 34;

/// A core with [`CONNECTIONS`] whose windows have grown, so that each has [`READY`] segments to send to a
/// device that accepts none yet. They became ready in the order of their ports.
fn many_ready() -> RawPeer {
    let mut peer = RawPeer::new();
    // One address may hold half of a backlog.
    let backlog = 2 * u32::from(CONNECTIONS);
    peer.command(Command::Listen { address: None, port: PORT, backlog, tcp: None });
    let options = Options { mss: Some(64), ..Options::default() };
    let mut next = Vec::new();
    for number in 0..CONNECTIONS {
        let from = |header: Header| Header { source_port: PEER_PORT + number, ..header };
        let syn = Header { options: options.clone(), ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
        peer.inject(&RawPeer::segment(&from(syn), &[]));
        peer.settle();
        let answer = peer.sent.pop_back().unwrap();
        next.push(answer.header.seq + 1);
        let ack = peer.header(Flags::ACK, PEER_ISS + 1, answer.header.seq + 1);
        peer.inject(&RawPeer::segment(&from(ack), &[]));
        peer.settle();
        let Some(Event::Accepted { connection, .. }) = peer.events.pop() else { panic!("not accepted") };
        let octets = vec![number as u8; limits::STREAM_SEND_BYTES].into_boxed_slice();
        peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
        peer.settle();
    }
    // Three times, so that the windows grow; the third time no frame leaves.
    for round in 0..3 {
        if round == 2 {
            peer.network().set_transmit_credit(End::A, Some(0));
        }
        for (number, next) in next.iter().enumerate() {
            let port = PEER_PORT + number as u16;
            let ends = peer.sent.iter().filter(|sent| sent.header.destination_port == port);
            let end =
                ends.map(|sent| sent.header.seq + sent.payload.len() as u32).next_back().unwrap_or(*next);
            let ack = Header { source_port: port, ..peer.header(Flags::ACK, PEER_ISS + 1, end) };
            peer.inject(&RawPeer::segment(&ack, &[]));
            peer.settle();
        }
    }
    peer.sent.clear();
    peer
}

/// Polls once while the device accepts up to `credit` frames; returns the ports of the accepted segments.
fn poll_once(peer: &mut RawPeer, credit: Option<usize>) -> Vec<u16> {
    peer.network().set_transmit_credit(End::A, credit);
    peer.core.poll_once(peer.now);
    peer.network().set_transmit_credit(End::A, Some(0));
    // The sent segments arrive; nothing more is sent.
    peer.pass_ms(2);
    peer.sent
        .drain(..)
        .filter(|sent| !sent.payload.is_empty())
        .map(|sent| sent.header.destination_port)
        .collect()
}

/// On a device that accepts fewer frames than are ready, connections have their turns in the order in which
/// they became busy: each sends what it has, which is less than its quantum, in as many polls as that takes,
/// and no frame of another is between.
#[test]
fn connections_take_turns_at_a_slow_device() {
    const EARLY: u16 = 4;
    let mut peer = many_ready();
    let mut sent: BTreeMap<u16, usize> = BTreeMap::new();
    let mut last = 0;
    for _ in 0..CONNECTIONS {
        for port in poll_once(&mut peer, Some(40)) {
            // The segments that waited for the device before are of the first connections, which became ready
            // before the others.
            if port < PEER_PORT + EARLY {
                continue;
            }
            if port != last {
                let before = sent.insert(port, 0);
                assert!(before.is_none(), "{port} again: {sent:?}");
                assert!(last == 0 || port == last + 1, "{port} after {last}");
                assert!(last == 0 || sent[&last] == READY, "{last} was not at its end: {sent:?}");
                last = port;
            }
            *sent.entry(port).or_default() += 1;
        }
    }
    assert_eq!(sent.len(), usize::from(CONNECTIONS - EARLY), "{sent:?}");
}

/// A device that accepts everything: one poll sends a bounded number of frames.
#[test]
fn a_poll_sends_only_so_much() {
    let mut peer = many_ready();
    let mut total = 0;
    let most = limits::SEGMENTS_SENT_PER_POLL as usize
        + limits::TRANSMIT_QUEUE_FRAMES
        + limits::TRANSMIT_BURST_SEGMENTS;
    assert!(usize::from(CONNECTIONS) * READY > most);
    for _ in 0..10 {
        let ports = poll_once(&mut peer, None);
        assert!(ports.len() <= most, "{} frames", ports.len());
        total += ports.len();
    }
    assert_eq!(total, usize::from(CONNECTIONS) * READY, "all goes out");
}

#[test]
fn answers_wait_up_to_a_bound() {
    const REQUESTS: usize = 1000;
    let most = limits::TRANSMIT_QUEUE_FRAMES + limits::RECEIVE_BURST_FRAMES;
    let mut peer = RawPeer::new();
    peer.settle();
    peer.network().set_transmit_credit(End::A, Some(0));
    for _ in 0..REQUESTS {
        peer.inject(&arp_request());
        peer.settle();
    }
    assert_eq!(peer.core.usage().frames_to_send, most);
    let dropped = peer.core.statistics().dropped(DropCause::NoTransmitBuffer);
    assert_eq!(dropped, (REQUESTS - most) as u64, "every answer waits or is counted");
    peer.network().set_transmit_credit(End::A, None);
    peer.settle();
    assert_eq!(peer.core.usage().frames_to_send, 0);
}
