//! Tests of the frames around TCP, against a peer made of frames: cases that a packet script
//! (`packet_scripts.rs`) cannot express.

use std::sync::Arc;

use crate::common::raw::{OUR_MAC, PEER_ISS, PEER_MAC, RawPeer};
use crate::common::{PD, PORT, QP, address};
use warpline_dataplane::limits;
use warpline_dataplane::net::notice::Notice;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::ring::{Command, ConnectError, Event, FullOperation};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{self, Flags, Header, Options, SeqNumber};
use warpline_dataplane::wire::{arp, checksum, icmp};

const ACK: Flags = Flags::ACK;

fn synack() -> Flags {
    Flags::SYN | Flags::ACK
}

/// A core with a connection the peer opened, and its next sequence number.
fn accepted() -> (RawPeer, SeqNumber) {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    (peer, next)
}

/// RFC 2883 §4: of duplicates in one burst, which one acknowledgement answers, those that touch are one
/// block.
#[test]
fn duplicates_of_a_burst_that_touch_are_one_block() {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options { sack_permitted: true, ..Options::default() });
    let [start, end] = [PEER_ISS + 1, PEER_ISS + 2001];
    let answer_to_burst = |peer: &mut RawPeer| {
        for seq in [start, start + 1000] {
            peer.inject(&RawPeer::segment(&peer.header(ACK, seq, next), &[7; 1000]));
        }
        peer.settle();
        peer.expect_one().header
    };
    let answer = answer_to_burst(&mut peer);
    assert_eq!((answer.ack, &answer.options.sack[..]), (end, &[][..]));
    let answer = answer_to_burst(&mut peer);
    assert_eq!((answer.ack, &answer.options.sack[..]), (end, &[(start, end)][..]));
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

/// If control reads no events, further connections of peers do not accumulate events.
#[test]
fn no_connection_is_taken_while_control_is_behind() {
    let mut peer = RawPeer::new();
    peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
    peer.settle();
    for _ in 0..limits::EVENTS / 2 {
        assert!(peer.rings.events.push(Event::QpDestroyed(QP)).is_ok());
    }
    let syn = RawPeer::segment(&peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)), &[]);
    peer.inject(&syn);
    peer.now += 10_000;
    peer.core.poll_once(peer.now);
    assert_eq!(peer.core.statistics().dropped(DropCause::NoRoomForConnection), 1);
    // Control catches up, and the peer tries again.
    peer.settle();
    peer.expect_nothing();
    peer.inject(&syn);
    peer.settle();
    assert_eq!(peer.expect_one().header.flags, synack());
}

/// RFC 9293 §3.1: a SYN with an option of an impossible length is answered. The options before the damage
/// count: without SACK permitted and a window scale the answer offers neither.
#[test]
fn a_syn_with_damaged_options_is_answered() {
    let damages = [&[8, 0, 0, 0][..], &[8, 1, 0, 0], &[3, 40, 7, 0], &[4, 2, 3, 4], &[1, 1, 1, 253]];
    for damage in damages {
        let mut peer = RawPeer::new();
        peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
        peer.settle();
        let options = Options { mss: Some(700), sack_permitted: true, ..Options::default() };
        let whole = Options { window_scale: Some(7), ..options.clone() };
        let header = |options| Header { options, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
        let (syn, whole) = (header(options), header(whole));
        let mut segment = vec![0; whole.header_len()];
        whole.emit(&mut segment);
        segment[syn.header_len()..].copy_from_slice(damage);
        let mut sum = checksum::ipv4_pseudo_header(address(2), address(1), 6, segment.len() as u16);
        sum.add(&segment);
        tcp::set_checksum(&mut segment, sum.finish());
        peer.inject(&RawPeer::packet(Protocol::TCP, &segment));
        peer.settle();
        let answer = peer.expect_one().header;
        assert_eq!((answer.flags, answer.ack), (synack(), PEER_ISS + 1), "{damage:?}");
        assert_eq!((answer.options.sack_permitted, answer.options.window_scale), (true, None));
        assert_eq!(peer.core.statistics().dropped(DropCause::Malformed), 0);
    }
}

/// RFC 2018 §2: a peer that did not offer selective acknowledgements gets no blocks, not even for octets that
/// stay held beyond a gap when an FPDU with a wrong CRC is dropped.
#[test]
fn a_dropped_fpdu_sends_no_blocks_to_a_peer_without_sack() {
    let (mut peer, next) = accepted();
    let rings = CompletionRings::shared(Arc::new(CompletionRing::new(1)));
    let depths = QueueDepths { send: 1, receive: 1 };
    let qp = Arc::new(SharedQp::new(QP, PD, depths, rings, peer.rings.doorbells.clone()));
    let operation = FullOperation::new(true);
    peer.command(Command::Start { connection: peer.accepted.unwrap(), qp: qp.clone(), operation });
    peer.settle();
    // A ULPDU of 54 octets, and zeros for its CRC.
    let mut fpdu = [0; 60];
    fpdu[1] = 54;
    for (seq, payload) in [(PEER_ISS + 101, &[7; 50][..]), (PEER_ISS + 1, &fpdu)] {
        peer.send(ACK, seq, next, payload);
        let answer = peer.expect_one().header;
        assert_eq!((answer.ack, &answer.options), (PEER_ISS + 1, &Options::default()), "{seq:?}");
    }
    assert_eq!(peer.core.statistics().dropped(DropCause::FpduCrc), 1);
}

/// RFC 9293 §3.10.5: the RST that a connection owes leaves, however often the connection is aborted before.
#[test]
fn a_connection_aborted_twice_sends_its_reset() {
    let (mut peer, next) = accepted();
    let connection = peer.accepted.unwrap();
    for _ in 0..2 {
        peer.command(Command::Abort { connection });
    }
    peer.settle();
    let reset = peer.expect_one().header;
    assert_eq!((reset.flags, reset.seq), (Flags::RST | ACK, next));
}

/// Damaged frames are dropped, each under its own cause, and nothing else happens.
#[test]
fn damage_is_counted_by_cause() {
    let (mut peer, next) = accepted();
    let good = RawPeer::segment(&peer.header(ACK, PEER_ISS + 1, next), b"payload");
    let damage = |at: usize, octets: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    };
    let ip = ethernet::Header::LEN;
    let cases = [
        (damage(0, &[2, 9, 9, 9, 9, 9]), DropCause::OtherMac),
        (damage(12, &[0x88, 0xcc]), DropCause::OtherProtocol),
        (damage(ip, &[0x65]), DropCause::Malformed),
        (damage(ip + 2, &[0xff, 0xff]), DropCause::Malformed),
        (damage(ip + 10, &[0, 0]), DropCause::IpChecksum),
        (damage(ip + 20 + 16, &[0, 0]), DropCause::TcpChecksum),
        (damage(good.len() - 1, b"!"), DropCause::TcpChecksum),
        (good[..ip + 10].to_vec(), DropCause::Malformed),
        (good[..good.len() - 1].to_vec(), DropCause::Malformed),
        // The wire pads to 60 octets: an address that is not ours.
        (good[..5].to_vec(), DropCause::OtherMac),
    ];
    for (frame, cause) in cases {
        let before = peer.core.statistics().dropped(cause);
        peer.inject(&frame);
        peer.settle();
        assert_eq!(peer.core.statistics().dropped(cause), before + 1, "{cause:?}: {frame:02x?}");
    }
    peer.expect_nothing();
    assert!(peer.events.is_empty());
    peer.inject(&good);
    peer.pass_ms(50);
    assert_eq!(streamed(&mut peer), b"payload");
}

/// A sender that leaves the checksum to its device puts the sum of the pseudo-header into the field. Where
/// the device does not vouch for such a segment it is dropped under a cause of its own, and the first is
/// reported.
#[test]
fn a_partial_checksum_has_a_cause_of_its_own() {
    let (mut peer, next) = accepted();
    let good = RawPeer::segment(&peer.header(ACK, PEER_ISS + 1, next), b"payload");
    let ip = ethernet::Header::LEN;
    let pseudo_header = {
        // RFC 9293 §3.1: addresses, zero, protocol and length, of which this is the ones' complement sum.
        let length = (good.len() - ip - 20) as u16;
        let mut octets = good[ip + 12..ip + 20].to_vec();
        octets.extend([0, 6]);
        octets.extend(length.to_be_bytes());
        let words = octets.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        ((sum & 0xffff) + (sum >> 16)) as u16
    };
    let mut partial = good.clone();
    partial[ip + 36..ip + 38].copy_from_slice(&pseudo_header.to_be_bytes());
    for _ in 0..3 {
        peer.inject(&partial);
        peer.settle();
    }
    let dropped = |peer: &RawPeer, cause| peer.core.statistics().dropped(cause);
    assert_eq!(dropped(&peer, DropCause::PartialChecksum), 3);
    assert_eq!(dropped(&peer, DropCause::TcpChecksum), 0);
    let [Event::Notice(notice)] = peer.events[..] else { panic!("{:?}", peer.events) };
    assert_eq!(notice, Notice::PartialChecksum { peer: address(2).into() });
    peer.expect_nothing();
    peer.inject(&good);
    peer.pass_ms(50);
    peer.events.clear();
    partial[ip + 37] ^= 1;
    peer.inject(&partial);
    peer.settle();
    assert_eq!(dropped(&peer, DropCause::TcpChecksum), 1);
}

/// Where a sender leaves segmentation to its device, and there is none, its packets are longer than the
/// link's, and a port cuts them to its buffers. The first is reported.
#[test]
fn a_packet_that_was_cut_to_a_buffer_has_a_cause_of_its_own() {
    let (mut peer, next) = accepted();
    let whole = RawPeer::segment(&peer.header(ACK, PEER_ISS + 1, next), &[7; 16_000]);
    let dropped = |peer: &RawPeer, cause| peer.core.statistics().dropped(cause);
    // A header, 1500 octets of packet and a few that a buffer has beyond that; and less than a packet has.
    for _ in 0..2 {
        peer.inject(&whole[..14 + 1500]);
        peer.settle();
    }
    assert_eq!((dropped(&peer, DropCause::OversizedPacket), dropped(&peer, DropCause::Malformed)), (2, 0));
    let [Event::Notice(notice)] = peer.events[..] else { panic!("{:?}", peer.events) };
    assert_eq!(notice, Notice::OversizedPacket { peer: address(2).into() });
    peer.inject(&whole[..14 + 1499]);
    peer.settle();
    assert_eq!((dropped(&peer, DropCause::OversizedPacket), dropped(&peer, DropCause::Malformed)), (2, 1));
    peer.expect_nothing();
}

/// Segments from random octets: no panic, no event, the connection lives.
#[test]
fn garbage_does_no_harm() {
    let (mut peer, next) = accepted();
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..20_000 {
        let mut header = peer.header(
            Flags::from_bits_retain(rng.u8(..)) - Flags::RST,
            PEER_ISS + 1 + rng.u32(..400_000),
            next - rng.u32(..100_000),
        );
        header.window = rng.u16(..);
        let mut frame = RawPeer::segment(&header, &vec![rng.u8(..); rng.usize(..600)]);
        if rng.bool() {
            for _ in 0..rng.usize(..8) {
                let at = rng.usize(..frame.len());
                frame[at] = rng.u8(..);
            }
        }
        frame.truncate(rng.usize(..=frame.len() * 2).min(frame.len()));
        peer.inject(&frame);
        peer.settle();
        peer.sent.clear();
    }
    assert!(!peer.events.iter().any(|event| matches!(event, Event::Closed { .. })));
}

/// RFC 826, and RFC 1122 §3.2.2.6.
#[test]
fn answers_arp_and_ping() {
    let mut peer = RawPeer::new();
    let mut frame = vec![0; ethernet::Header::LEN + arp::Packet::LEN];
    ethernet::Header { destination: MacAddress::BROADCAST, source: PEER_MAC, ethertype: EtherType::ARP }
        .emit(&mut frame);
    arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: PEER_MAC,
        sender_ip: address(2),
        target_mac: MacAddress::default(),
        target_ip: address(1),
    }
    .emit(&mut frame[ethernet::Header::LEN..]);
    peer.inject(&frame);
    peer.settle();
    let answer = peer.other.pop_front().unwrap();
    let reply = arp::Packet::parse(&answer[ethernet::Header::LEN..]).unwrap();
    assert_eq!((reply.operation, reply.sender_mac), (arp::Operation::Reply, OUR_MAC));
    assert_eq!((reply.sender_ip, reply.target_ip, reply.target_mac), (address(1), address(2), PEER_MAC));

    let mut echo = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    echo.extend_from_slice(b"are you there");
    let sum = checksum::sum(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let frame = RawPeer::packet(Protocol::ICMP, &echo);
    peer.inject(&frame);
    peer.settle();
    let answer = peer.other.pop_front().unwrap();
    let packet = &answer[ethernet::Header::LEN..];
    let (header, transport) = ipv4::Header::parse(packet).unwrap();
    assert_eq!((header.source, header.destination), (address(1), address(2)));
    let reply = icmp::Message::parse(&packet[transport..usize::from(header.total_len)]).unwrap();
    let icmp::Message::EchoReply { id: 0x1234, seq: 1, payload } = reply else { panic!("{reply:?}") };
    assert_eq!(payload, b"are you there");
    echo[10] ^= 1;
    let frame = RawPeer::packet(Protocol::ICMP, &echo);
    peer.inject(&frame);
    peer.settle();
    assert_eq!(peer.core.statistics().dropped(DropCause::IcmpChecksum), 1);
}

/// No host has the address: the request is repeated once a second and the open fails in the end.
#[test]
fn an_unreachable_peer_fails_the_open() {
    let mut peer = RawPeer::new();
    peer.answers_arp = false;
    peer.command(Command::Connect {
        token: 4,
        local: None,
        remote: std::net::SocketAddr::new(address(77).into(), 1),
        timeout_ns: 10 * SECOND,
        tcp: None,
        octets: Box::default(),
    });
    peer.pass_s(15);
    assert!((9..=11).contains(&peer.other.len()), "{} requests", peer.other.len());
    peer.expect_nothing();
    let error = ConnectError::Closed(CloseReason::TimedOut);
    assert!(matches!(peer.events.pop(), Some(Event::ConnectFailed { token: 4, error: e }) if e == error));
    peer.command(Command::Connect {
        token: 5,
        local: None,
        remote: std::net::SocketAddr::new([203, 0, 113, 1].into(), 1),
        timeout_ns: SECOND,
        tcp: None,
        octets: Box::default(),
    });
    peer.settle();
    let error = ConnectError::NoRoute;
    assert!(matches!(peer.events.pop(), Some(Event::ConnectFailed { token: 5, error: e }) if e == error));
}

/// A thousand connections that time out at the same instant are processed in several polls, so that arriving
/// frames do not wait for all of them; every timeout is processed.
#[test]
fn timers_that_expire_together_do_not_keep_frames_waiting() {
    const CONNECTIONS: usize = 3 * limits::TIMERS_PER_POLL + 1;
    let mut peer = RawPeer::new();
    for token in 0..CONNECTIONS {
        let remote = (address(2), 1 + token as u16).into();
        let timeout_ns = 200 * SECOND;
        peer.command(Command::Connect {
            token: token as u64,
            local: None,
            remote,
            timeout_ns,
            tcp: None,
            octets: Box::default(),
        });
        peer.settle();
    }
    assert_eq!(peer.sent.len(), CONNECTIONS);
    peer.sent.clear();
    // Every SYN is overdue by now.
    peer.now += 2 * SECOND;
    let mut polls = 0;
    while peer.core.statistics().tcp.timeouts < CONNECTIONS as u32 {
        let before = peer.core.statistics().tcp.timeouts;
        peer.core.poll_once(peer.now);
        let expired = peer.core.statistics().tcp.timeouts - before;
        assert!(expired as usize <= limits::TIMERS_PER_POLL, "{expired} in one poll");
        polls += 1;
        assert!(polls < 100, "{} of {CONNECTIONS}", peer.core.statistics().tcp.timeouts);
    }
    assert!(polls >= 4, "{polls}");
}
