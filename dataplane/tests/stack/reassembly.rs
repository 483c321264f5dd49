//! Tests of IPv4 fragments on the wire (RFC 5044 §A.5.1): a core processes a reassembled packet like any
//! other packet.

use crate::common::raw::{PEER_ISS, RawPeer};
use warpline_dataplane::limits;
use warpline_dataplane::ring::Event;
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::MILLISECOND;
use warpline_dataplane::wire::ethernet;
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{Flags, Options};

const ACK: Flags = Flags::ACK;
const HEADERS: usize = ethernet::Header::LEN + ipv4::Header::LEN;

/// A fragment of the packet in `frame`: the octets of its payload in `range`.
fn fragment(frame: &[u8], range: std::ops::Range<usize>, identification: u16) -> Vec<u8> {
    let (link, packet) = frame.split_at(ethernet::Header::LEN);
    let (header, transport) = ipv4::Header::parse(packet).unwrap();
    let payload = &packet[transport..usize::from(header.total_len)];
    let mut fragment = link.to_vec();
    fragment.resize(HEADERS, 0);
    ipv4::Header {
        total_len: (ipv4::Header::LEN + range.len()) as u16,
        dont_fragment: false,
        more_fragments: range.end < payload.len(),
        fragment_offset: range.start as u16,
        identification,
        ..header
    }
    .emit(&mut fragment[ethernet::Header::LEN..]);
    fragment.extend_from_slice(&payload[range]);
    fragment
}

fn streamed(peer: &mut RawPeer) -> Vec<u8> {
    let mut octets = Vec::new();
    for event in peer.events.drain(..) {
        if let Event::Stream { octets: more, .. } = event {
            octets.extend_from_slice(&more);
        }
    }
    octets
}

fn inject(peer: &mut RawPeer, frame: &[u8]) {
    peer.inject(frame);
    peer.settle();
}

/// A full segment in three fragments, in every order, and once with one twice.
#[test]
fn a_segment_in_fragments_is_taken() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    let mut at = PEER_ISS + 1;
    for (name, order) in orders.into_iter().enumerate() {
        let payload: Vec<u8> = (0..1460).map(|n| (n * 3 + name) as u8).collect();
        let whole = RawPeer::segment(&peer.header(ACK | Flags::PSH, at, next), &payload);
        let pieces = [0..552, 552..1104, 1104..1480].map(|range| fragment(&whole, range, name as u16));
        inject(&mut peer, &pieces[order[0]]);
        inject(&mut peer, &pieces[order[1]]);
        inject(&mut peer, &pieces[order[1]]);
        assert!(peer.events.is_empty());
        peer.expect_nothing();
        inject(&mut peer, &pieces[order[2]]);
        at += 1460;
        assert_eq!(peer.expect_one().header.ack, at);
        assert_eq!(streamed(&mut peer), payload);
    }
    let statistics = peer.core.statistics();
    assert_eq!(statistics.datagrams_reassembled, 6);
    assert_eq!(statistics.dropped(DropCause::Duplicate), 6);
}

/// TCP's checksum is verified over the reassembled packet: no other check covers it.
#[test]
fn fragments_of_different_segments_do_not_pass() {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    let one = RawPeer::segment(&peer.header(ACK, PEER_ISS + 1, next), &[1; 1000]);
    let other = RawPeer::segment(&peer.header(ACK, PEER_ISS + 1, next), &[2; 1000]);
    inject(&mut peer, &fragment(&one, 0..520, 9));
    inject(&mut peer, &fragment(&other, 520..1020, 9));
    peer.expect_nothing();
    assert_eq!(peer.core.statistics().dropped(DropCause::TcpChecksum), 1);
}

/// RFC 5722: an attacker who rewrites the header of a segment with an overlapping fragment achieves nothing,
/// and the segment is retransmitted whole.
#[test]
fn overlapping_fragments_deliver_nothing() {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    let whole = RawPeer::segment(&peer.header(ACK | Flags::PSH, PEER_ISS + 1, next), &[1; 1000]);
    inject(&mut peer, &fragment(&whole, 0..520, 9));
    inject(&mut peer, &fragment(&whole, 512..720, 9));
    inject(&mut peer, &fragment(&whole, 520..1020, 9));
    peer.expect_nothing();
    assert_eq!(peer.core.statistics().dropped(DropCause::FragmentOverlap), 2);
    inject(&mut peer, &fragment(&whole, 0..520, 10));
    inject(&mut peer, &fragment(&whole, 520..1020, 10));
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 1001);
}

/// Halves of datagrams, as many as can be named, and fragments that end past the longest datagram: nothing is
/// kept of them beyond the bound, no frame either, and whole segments go on being taken.
#[test]
fn a_flood_of_fragments_holds_nothing() {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    let whole = RawPeer::segment(&peer.header(ACK | Flags::PSH, PEER_ISS + 1, next), &[1; 1000]);
    let network = peer.network();
    let before = network.held_frames(warpline_dataplane::device::sim::End::A);
    for name in 0..10_000 {
        inject(&mut peer, &fragment(&whole, 0..520, name));
    }
    assert_eq!(network.held_frames(warpline_dataplane::device::sim::End::A), before);
    let evicted = 10_000 - limits::DATAGRAMS_IN_REASSEMBLY as u64;
    assert_eq!(peer.core.statistics().dropped(DropCause::ReassemblyEvicted), evicted);

    let mut death = RawPeer::packet(Protocol::ICMP, &[8; 1000]);
    let packet = &mut death[ethernet::Header::LEN..];
    let (header, _) = ipv4::Header::parse(packet).unwrap();
    ipv4::Header { dont_fragment: false, fragment_offset: 65_528, ..header }.emit(packet);
    inject(&mut peer, &death);
    assert_eq!(peer.core.statistics().dropped(DropCause::Malformed), 1, "it would end past 65535");

    inject(&mut peer, &whole);
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 1001);
}

/// The last fragment comes too late.
#[test]
fn fragments_do_not_wait_for_ever() {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    let whole = RawPeer::segment(&peer.header(ACK | Flags::PSH, PEER_ISS + 1, next), &[1; 1000]);
    inject(&mut peer, &fragment(&whole, 0..520, 9));
    peer.pass_ms(limits::REASSEMBLY_NS / MILLISECOND);
    inject(&mut peer, &fragment(&whole, 520..1020, 9));
    peer.expect_nothing();
    assert_eq!(peer.core.statistics().dropped(DropCause::ReassemblyTimeout), 1);
}

/// A ping in fragments is answered, in one piece.
#[test]
fn a_ping_in_fragments_is_answered() {
    let mut peer = RawPeer::new();
    let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1];
    echo.extend((0..1000).map(|n| n as u8));
    let sum = warpline_dataplane::wire::checksum::sum(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let whole = RawPeer::packet(Protocol::ICMP, &echo);
    inject(&mut peer, &fragment(&whole, 800..1008, 1));
    inject(&mut peer, &fragment(&whole, 0..800, 1));
    let answer = peer.other.pop_front().unwrap();
    assert_eq!(answer[HEADERS + 8..], echo[8..]);
    assert_eq!(answer[HEADERS], 0, "an echo reply");
}
