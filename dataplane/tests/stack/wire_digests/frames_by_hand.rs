//! One core against frames written by hand: address detection, ICMP, SYN cookies, resets, and a smaller path
//! MTU.

use warpline_dataplane::net::addresses::Cidr;
use warpline_dataplane::ring::{AfterStream, Command, Event};
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ipv4::Protocol;
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber, Timestamps};

use super::Case;
use super::capture::Capture;
use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PORT, address_v6, pattern};

const ACK: Flags = Flags::ACK;

/// Every simulation with frames written by hand.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("addresses-and-echo", addresses_and_echo),
        Case::new("syn-cookies", syn_cookies),
        Case::new("segments-out-of-place", segments_out_of_place),
        Case::new("smaller-path-mtu", smaller_path_mtu),
        Case::new("silent-peer", silent_peer),
    ]
}

fn peer(capture: &Capture) -> RawPeer {
    let peer = RawPeer::new();
    capture.watch(&peer.network());
    peer
}

/// Duplicate address detection, announcements and echo replies.
fn addresses_and_echo(capture: &Capture) {
    let mut config = RawPeer::config();
    config.duplicate_address_detection = true;
    config.addresses.push(Cidr::new(address_v6(1).into(), 64));
    let mut peer = RawPeer::with(config, 1500);
    capture.watch(&peer.network());
    peer.pass_s(5);
    for octets in [0, 1, 56, 1400] {
        let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1];
        echo.extend(pattern(octets, octets as usize));
        let sum = checksum::sum(&echo).finish();
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        peer.inject(&RawPeer::packet(Protocol::ICMP, &echo));
        peer.settle();
    }
    // Nothing listens to this protocol.
    peer.inject(&RawPeer::packet(Protocol(200), b"unknown"));
    peer.settle();
    peer.pass_s(5);
}

/// A full backlog: the answers are cookies, and one of them becomes a connection.
fn syn_cookies(capture: &Capture) {
    let mut peer = peer(capture);
    peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
    let timestamps = Some(Timestamps { value: 1000, echo: 0 });
    let all = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps,
        ..Options::default()
    };
    for (port, options) in (100..).zip([Options::default(), all.clone()].into_iter().cycle().take(12)) {
        let syn = Header { source_port: port, options, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
        peer.inject(&RawPeer::segment(&syn, &[]));
        peer.settle();
    }
    assert!(peer.core.statistics().syn_cookies_sent > 4);
    peer.sent.clear();
    let options = Options { mss: Some(1000), ..Options::default() };
    let syn = Header { options, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
    peer.inject(&RawPeer::segment(&syn, &[]));
    peer.settle();
    let next = peer.expect_one().header.seq + 1;
    // The core has not issued this cookie.
    peer.send(ACK, PEER_ISS + 1, next + 1000, &[]);
    peer.send(ACK | Flags::PSH, PEER_ISS + 1, next, b"first words");
    let connection = peer.events.iter().find_map(|event| match event {
        Event::Accepted { connection, .. } => Some(*connection),
        _ => None,
    });
    let connection = connection.expect("a connection from a cookie");
    let octets = pattern(1, 5000).into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    peer.pass_s(30);
}

/// Segments that no state accepts unchanged: before, beyond and across the window, and with flags that cause
/// a challenge.
fn segments_out_of_place(capture: &Capture) {
    let mut peer = peer(capture);
    peer.send(ACK, PEER_ISS, SeqNumber(77), b"no connection");
    peer.send(Flags::SYN, PEER_ISS, SeqNumber(0), &[]);
    let sack_permitted = true;
    let next = peer.accept(Options { mss: Some(1460), sack_permitted, ..Options::default() });
    let first = PEER_ISS + 1;
    peer.send(ACK, first + 3000, next, &pattern(1, 1000));
    peer.send(ACK, first + 1000, next, &pattern(2, 1000));
    peer.send(ACK, first + 1_000_000, next, &pattern(3, 1000));
    peer.send(Flags::SYN, first, next, &[]);
    peer.send(Flags::RST, first + 100, SeqNumber(0), &[]);
    peer.send(ACK, first, next + 5000, &[]);
    peer.send(ACK, first, next, &pattern(4, 1000));
    peer.pass_ms(500);
    peer.send(ACK, first + 2000, next, &pattern(5, 1000));
    peer.send(ACK | Flags::FIN, first + 4000, next, &[]);
    peer.pass_s(2);
    peer.command(Command::Close { connection: peer.accepted.unwrap() });
    peer.settle();
    peer.pass_s(1);
    peer.send(ACK, first + 4001, next + 1, &[]);
    // A second connection, which the peer resets.
    peer.sent.clear();
    let sent = peer.connect();
    peer.core_port = sent.header.source_port;
    peer.send(Flags::SYN | ACK, PEER_ISS, sent.header.seq + 1, &[]);
    peer.send(Flags::RST, PEER_ISS + 1, SeqNumber(0), &[]);
    peer.pass_s(5);
}

/// A router reports a smaller MTU while a stream is sent.
fn smaller_path_mtu(capture: &Capture) {
    let mut peer = peer(capture);
    let next = peer.accept(Options { mss: Some(1460), ..Options::default() });
    let connection = peer.accepted.unwrap();
    let octets = pattern(1, 20_000).into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    peer.settle();
    let quoted = peer.sent[2].clone();
    peer.say_too_big(&quoted, 1280);
    let mut acknowledged = next;
    for _ in 0..60 {
        for sent in core::mem::take(&mut peer.sent) {
            if sent.payload.len() <= 1240 && sent.header.seq == acknowledged {
                acknowledged += sent.payload.len() as u32;
            }
        }
        peer.send(ACK, PEER_ISS + 1, acknowledged, &[]);
        peer.pass_ms(50);
    }
    assert_eq!(acknowledged, next + 20_000);
    peer.pass_s(10);
}

/// A peer that opens a connection, closes its window and falls silent.
fn silent_peer(capture: &Capture) {
    let mut peer = peer(capture);
    let next = peer.accept(Options { mss: Some(1460), ..Options::default() });
    peer.send_with_window(0, PEER_ISS + 1, next);
    let connection = peer.accepted.unwrap();
    let octets = pattern(1, 3000).into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    peer.pass_s(15);
    peer.send_with_window(1000, PEER_ISS + 1, next);
    peer.pass_s(40);
}
