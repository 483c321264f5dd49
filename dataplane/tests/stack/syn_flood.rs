//! Tests of opening under attack: SYNs from forged addresses, while real peers connect as well (RFC 4987).

use std::net::Ipv4Addr;

use crate::common::raw::{OUR_MAC, PEER_ISS, PEER_MAC, RawPeer, Sent};
use crate::common::{PORT, address};
use warpline_dataplane::device::sim::End;
use warpline_dataplane::limits;
use warpline_dataplane::ring::{AfterStream, Command, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ethernet::{self, EtherType};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{self, Flags, Header, Options, SeqNumber, Timestamps};

const ACK: Flags = Flags::ACK;
const BACKLOG: u32 = 64;

/// A segment from `source`, as an attacker forges it.
fn forged(source: Ipv4Addr, header: &Header) -> Vec<u8> {
    let mut segment = vec![0; header.header_len()];
    header.emit(&mut segment);
    let mut sum = checksum::ipv4_pseudo_header(source, address(1), Protocol::TCP.0, segment.len() as u16);
    sum.add(&segment);
    tcp::set_checksum(&mut segment, sum.finish());
    let mut frame = vec![0; ethernet::Header::LEN + ipv4::Header::LEN];
    ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::IPV4 }.emit(&mut frame);
    ipv4::Header {
        source,
        destination: address(1),
        protocol: Protocol::TCP,
        ttl: 64,
        total_len: (ipv4::Header::LEN + segment.len()) as u16,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        identification: 0,
        ecn: 0,
        dscp: 0,
    }
    .emit(&mut frame[ethernet::Header::LEN..]);
    frame.extend_from_slice(&segment);
    frame
}

/// A core that listens, with its backlog full of SYNs from as many addresses of the local network.
fn flooded(backlog: u32) -> RawPeer {
    let mut peer = RawPeer::new();
    peer.answers_arp = false;
    peer.command(Command::Listen { address: None, port: PORT, backlog, tcp: None });
    for host in 1..=backlog as u8 {
        flood(&mut peer, Ipv4Addr::new(198, 18, 0, 100 + host), 1);
        peer.settle();
    }
    peer.answers_arp = true;
    peer.sent.clear();
    peer
}

fn flood(peer: &mut RawPeer, source: Ipv4Addr, port: u16) {
    let syn = Header { source_port: port, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
    peer.inject(&forged(source, &syn));
}

/// The answer to the peer's SYN with these options: a cookie, when the backlog is full.
fn syn(peer: &mut RawPeer, options: Options) -> Sent {
    let syn = Header { options, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
    peer.inject(&RawPeer::segment(&syn, &[]));
    peer.settle();
    let answer = peer.expect_one();
    assert_eq!((answer.header.flags, answer.header.ack), (Flags::SYN | ACK, PEER_ISS + 1));
    answer
}

/// Whether the connection of the peer was announced since the last look.
fn accepted(peer: &mut RawPeer) -> Option<warpline_dataplane::ring::ConnectionId> {
    peer.events.drain(..).find_map(|event| match event {
        Event::Accepted { connection, .. } => Some(connection),
        _ => None,
    })
}

/// A hundred thousand SYNs from as many addresses, on the network and off it: the core holds no more than the
/// backlog, requests no additional frame from the device, allocates nothing, and accepts the real peer.
#[test]
fn a_flood_of_syns_keeps_nobody_out() {
    let mut peer = flooded(BACKLOG);
    let mut rng = fastrand::Rng::with_seed(1);
    let usage = peer.core.usage();
    assert_eq!((usage.connections, usage.half_open), (BACKLOG as usize, BACKLOG as usize));
    let network = peer.network();
    let held = network.held_frames(End::A);
    let mut kept_octets = 0;
    for batch in 0..100_000 / 32 {
        for _ in 0..32 {
            let source = if rng.bool() { 198 << 24 | 18 << 16 | rng.u32(3..255) } else { rng.u32(..) };
            flood(&mut peer, source.into(), rng.u16(1..));
        }
        let polled = allocation_counter::measure(|| {
            peer.core.poll_once(peer.now);
        });
        // The simulated network makes its buffers when they are first needed.
        if batch > 10 {
            kept_octets += polled.bytes_current;
        }
        peer.now += 100;
        peer.settle();
        peer.sent.clear();
        peer.other.clear();
    }
    assert_eq!(kept_octets, 0);
    assert_eq!(peer.core.usage().connections, BACKLOG as usize);
    assert_eq!(network.held_frames(End::A), held);
    let sent = peer.core.statistics().syn_cookies_sent;
    let statistics = peer.core.statistics();
    let nowhere = statistics.dropped(DropCause::OtherAddress) + statistics.dropped(DropCause::BadSource);
    assert!(sent > 45_000 && sent + nowhere >= 99_900, "{sent} cookies, {nowhere} from nowhere");

    let answer = syn(&mut peer, Options::default());
    let next = answer.header.seq + 1;
    peer.send(ACK | Flags::PSH, PEER_ISS + 1, next, b"first words");
    assert_eq!(peer.core.statistics().syn_cookies_good, 1);
    assert!(
        peer.events
            .iter()
            .any(|event| matches!(event, Event::Stream { octets, .. } if octets[..] == *b"first words"))
    );
    let connection = accepted(&mut peer).expect("the peer that is there");
    let rtt = peer.core.tcp(connection).unwrap().rtt().smoothed_ns();
    assert_eq!(rtt, None, "nobody knows when the cookie was sent");
    peer.sent.clear();
    let octets = b"ours".as_slice().into();
    peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
    peer.settle();
    assert_eq!((peer.expect_one().payload, peer.core.usage().connections), (b"ours".to_vec(), 65));
    peer.send(ACK, PEER_ISS + 12, next + 4, &[]);

    // Forged connections are given up, and SYNs get connections again.
    peer.pass_s(70);
    assert_eq!(peer.core.usage().connections, 1);
}

/// A core with a thousand listeners polls bursts of 31 forged SYNs to any of them and one segment of a
/// connection that is open: each poll delivers the segment, and no listener has more connections than its
/// backlog. Prints what a SYN costs.
#[test]
fn an_open_connection_goes_on_beside_a_flood_to_a_thousand_listeners() {
    const LISTENERS: u16 = 1000;
    const BURSTS: u32 = 2000;
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    for port in 0..LISTENERS {
        let port = 20_000 + port;
        peer.command(Command::Listen { address: None, port, backlog: 1, tcp: None });
        peer.settle();
    }
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut seq, mut delivered) = (PEER_ISS + 1, Vec::new());
    let mut flood_ns = 0;
    // The backlog of each listener is full after the first of its SYNs from the network.
    for burst in 0..BURSTS {
        for _ in 0..31 {
            let source = 198 << 24 | 18 << 16 | rng.u32(3..255);
            peer.core_port = 20_000 + rng.u16(..LISTENERS);
            flood(&mut peer, source.into(), rng.u16(1..));
        }
        peer.core_port = PORT;
        let header = peer.header(ACK | Flags::PSH, seq, next);
        peer.inject(&RawPeer::segment(&header, &burst.to_be_bytes()));
        seq += 4;
        peer.now += SECOND / 1000;
        let begin = std::time::Instant::now();
        peer.core.poll_once(peer.now);
        flood_ns += begin.elapsed().as_nanos();
        peer.settle();
        let answers = peer.sent.drain(..).filter(|sent| sent.header.ack == seq).count();
        assert!(answers > 0, "burst {burst}: the segment is acknowledged");
        peer.other.clear();
        let before = delivered.len();
        for event in peer.events.drain(..) {
            if let Event::Stream { octets, .. } = event {
                delivered.extend_from_slice(&octets);
            }
        }
        assert_eq!(delivered[before..], burst.to_be_bytes());
    }
    let usage = peer.core.usage();
    assert!(usage.half_open <= LISTENERS.into() && usage.connections <= usize::from(LISTENERS) + 1);
    println!("{} ns a SYN, beside {LISTENERS} listeners", flood_ns / u128::from(31 * BURSTS));
}

/// The options of a SYN apply although the core has stored none of them: its MSS, its window shift, and
/// whether it offered a shift at all.
#[test]
fn a_cookie_remembers_what_the_syn_offered() {
    for (mss, window_scale, largest, answered) in [
        (Some(1460), Some(7), 1460, Some(3)),
        (Some(1400), Some(4), 1400, Some(3)),
        (Some(1000), None, 536, None),
        (None, None, 536, None),
    ] {
        let mut peer = flooded(4);
        let answer = syn(&mut peer, Options { mss, window_scale, ..Options::default() });
        assert_eq!((answer.header.options.mss, answer.header.options.window_scale), (Some(1460), answered));
        assert_eq!(peer.core.usage().connections, 4, "it is a cookie");
        let next = answer.header.seq + 1;
        peer.send(ACK, PEER_ISS + 1, next, &[]);
        let connection = accepted(&mut peer).unwrap();
        peer.sent.clear();
        // A window of three segments, as the shift has it.
        let shift = window_scale.unwrap_or(0);
        peer.send_with_window(((3 * largest) >> shift) as u16 + 1, PEER_ISS + 1, next);
        let octets = vec![7; 4 * 1460].into();
        peer.command(Command::Stream { connection, octets, then: AfterStream::Stay });
        peer.settle();
        let payloads: Vec<usize> = peer.sent.iter().map(|sent| sent.payload.len()).collect();
        assert_eq!(payloads.iter().max(), Some(&largest), "{mss:?}");
        assert!(payloads.iter().sum::<usize>() <= 3 * largest + (1 << shift), "{payloads:?}");
    }
}

/// A cookie that is late, altered, or of another peer opens nothing: its segment belongs to no connection.
#[test]
fn a_wrong_cookie_is_reset() {
    let mut peer = flooded(4);
    // The core asks for the peer's hardware address for the sake of a connection at another port.
    peer.core_port = 80;
    peer.command(Command::Listen { address: None, port: 80, backlog: 1, tcp: None });
    peer.send(Flags::SYN, PEER_ISS, SeqNumber(0), &[]);
    peer.expect_one();
    peer.core_port = PORT;
    let cookie = syn(&mut peer, Options::default()).header.seq;
    for wrong in [cookie + 2, cookie + 0x1_0001, cookie] {
        peer.send(ACK, PEER_ISS + 1, wrong, &[]);
        let reset = peer.expect_one();
        assert_eq!((reset.header.flags, reset.header.seq), (Flags::RST, wrong));
    }
    assert_eq!(peer.core.statistics().syn_cookies_bad, 3);
    peer.send(ACK, PEER_ISS + 2, cookie + 1, &[]);
    assert!(peer.expect_one().header.flags.contains(Flags::RST), "another place in the peer's stream");
    peer.now += 2 * limits::SYN_COOKIE_SPAN_NS;
    peer.send(ACK, PEER_ISS + 1, cookie + 1, &[]);
    let late = |sent: &Sent| sent.header.flags == Flags::RST && sent.header.seq == cookie + 1;
    assert!(peer.sent.iter().any(late), "too late");
    assert_eq!(peer.core.usage().connections, 5);
    assert!(accepted(&mut peer).is_none());
}

/// No cookie is accepted while none is outstanding: guessing is impossible in quiet times.
#[test]
fn in_quiet_times_there_are_no_cookies() {
    let mut peer = RawPeer::new();
    peer.accept(Options::default());
    for n in 0..1000 {
        peer.inject(&RawPeer::segment(
            &Header { source_port: 7, ..peer.header(ACK, PEER_ISS + 1, SeqNumber(n)) },
            &[],
        ));
        peer.settle();
    }
    let statistics = peer.core.statistics();
    assert_eq!((statistics.syn_cookies_bad, statistics.dropped(DropCause::NoConnection)), (0, 1000));
}

/// A burst of SYNs within one poll gets connections up to a bound, and cookies beyond it.
#[test]
fn one_poll_makes_few_connections() {
    let mut peer = RawPeer::new();
    peer.command(Command::Listen { address: None, port: PORT, backlog: 1000, tcp: None });
    peer.settle();
    for port in 1..=32 {
        flood(&mut peer, address(2), port);
    }
    peer.now += 10_000;
    peer.core.poll_once(peer.now);
    assert_eq!(peer.core.usage().connections, limits::SYNS_PER_POLL);
    peer.settle();
    assert_eq!(peer.sent.len(), 32, "all are answered");
}

/// The half-open connections of all ports together are bounded, whatever their backlogs.
#[test]
fn backlogs_do_not_add_up() {
    let mut peer = RawPeer::new();
    for port in 1..=4 {
        peer.command(Command::Listen { address: None, port, backlog: 1000, tcp: None });
    }
    peer.settle();
    for n in 0..1000 {
        peer.core_port = 1 + n % 4;
        flood(&mut peer, address(2), 1000 + n);
        if n % 10 == 0 {
            peer.settle();
        }
    }
    peer.settle();
    assert_eq!(peer.core.usage().connections, limits::HALF_OPEN_PER_CORE);
}

/// RSTs to segments without a connection, and answers to pings, have a limit per second, so that forged
/// requests cannot make this core flood a third host.
#[test]
fn answers_to_strangers_are_limited() {
    let mut peer = RawPeer::new();
    peer.accept(Options::default());
    peer.core_port = 9;
    let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1];
    let sum = checksum::sum(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let echo = RawPeer::packet(Protocol::ICMP, &echo);
    peer.other.clear();
    for second in 1..=3 {
        peer.now = warpline_dataplane::time::Instant::from_nanos(second * SECOND);
        peer.sent.clear();
        peer.other.clear();
        for port in 1..=2000 {
            flood(&mut peer, address(2), port);
            peer.inject(&echo);
            if port % 16 == 0 {
                peer.settle();
            }
        }
        for (answers, limit) in [
            (peer.sent.len(), limits::RESETS_PER_SECOND as usize),
            (peer.other.len(), limits::ECHO_REPLIES_PER_SECOND as usize),
        ] {
            assert!((limit / 2..=limit).contains(&answers), "{answers} answers");
        }
    }
    assert!(peer.core.statistics().dropped(DropCause::RateLimited) >= 3000);
}

/// A peer with timestamps has them in the segment that brings the cookie back.
#[test]
fn timestamps_need_no_memory() {
    let mut peer = flooded(4);
    let offered = Options { timestamps: Some(Timestamps { value: 100, echo: 0 }), ..Options::default() };
    let answer = syn(&mut peer, offered);
    let echo = answer.header.options.timestamps.map_or(0, |timestamps| timestamps.value);
    let options = Options { timestamps: Some(Timestamps { value: 101, echo }), ..Options::default() };
    let ack = Header { options, ..peer.header(ACK, PEER_ISS + 1, answer.header.seq + 1) };
    peer.inject(&RawPeer::segment(&ack, &[]));
    peer.settle();
    let connection = accepted(&mut peer).unwrap();
    peer.command(Command::Stream { connection, octets: Box::new([1]), then: AfterStream::Stay });
    peer.settle();
    let sent = peer.sent.pop_back().unwrap();
    assert_eq!(sent.payload, [1]);
    // Both or neither: RFC 7323 §3.2.
    let echoed = sent.header.options.timestamps.map(|timestamps| timestamps.echo);
    assert_eq!(echoed, answer.header.options.timestamps.map(|_| 101));
}
