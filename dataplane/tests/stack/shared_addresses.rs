//! Tests of addresses that a core shares with the kernel of its machine, frame by frame: what the kernel
//! answers, the core does not, and its own ports it answers for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::common::address;
use crate::common::link::{Link, Octets, arp_frame, arp_in, conflicts, frame, ip_packet, segment};
use warpline_dataplane::core::Config;
use warpline_dataplane::limits;
use warpline_dataplane::net::addresses::Presence;
use warpline_dataplane::ring::{Command, ConnectError, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};
use warpline_dataplane::wire::arp::Operation;
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ethernet::{EtherType, MacAddress};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{Flags, Header, SeqNumber};

const OUR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const NOBODY: MacAddress = MacAddress([0; 6]);
const PORTS: (u16, u16) = (61_000, 61_063);
const LISTENED: u16 = 7471;
const OF_THE_KERNEL: u16 = 22;
const LEFT_PORT_MS: u64 = limits::LEFT_PORT_NS / MILLISECOND;
const HELD_SYN_MS: u64 = limits::HELD_SYN_NS / MILLISECOND;

fn ours() -> Ipv4Addr {
    address(1)
}

fn peer() -> Ipv4Addr {
    address(2)
}

fn link() -> Link {
    let config = Config::new(ours().into(), 24, [1, 2]);
    let config = Config { presence: Presence::Shared, ports: PORTS, ..config };
    let mut link = Link::new(config, OUR_MAC);
    link.pass_ms(3000);
    link.nothing();
    link
}

fn from_peer(protocol: Protocol, payload: &[u8]) -> Octets {
    let packet = ip_packet(peer().into(), ours().into(), protocol, 64, payload);
    frame(OUR_MAC, PEER_MAC, EtherType::IPV4, &packet)
}

fn tcp_to(port: u16, flags: Flags) -> Octets {
    tcp_from(40_000, port, flags)
}

fn tcp_from(source_port: u16, port: u16, flags: Flags) -> Octets {
    let header = Header {
        source_port,
        destination_port: port,
        seq: SeqNumber(1000),
        ack: if flags.contains(Flags::ACK) { SeqNumber(2000) } else { SeqNumber(0) },
        window: 1000,
        flags,
        ..Header::default()
    };
    from_peer(Protocol::TCP, &segment(IpAddr::V4(peer()), IpAddr::V4(ours()), &header, &[]))
}

/// The TCP header that the core has sent to the peer.
#[track_caller]
fn answered(link: &mut Link) -> Header {
    let octets = link.one();
    let (_, transport) = ipv4::Header::parse(&octets[14..]).unwrap();
    Header::parse(&octets[14 + transport..]).unwrap().0
}

/// The core learns from what it hears of its neighbours all the same.
#[test]
fn what_is_asked_of_the_station_is_left_to_its_kernel() {
    let mut link = link();
    let who_has = |sender: Ipv4Addr, mac| {
        arp_frame(MacAddress::BROADCAST, Operation::Request, (mac, sender), (NOBODY, ours()))
    };
    link.inject(&who_has(peer(), PEER_MAC));
    link.inject(&who_has(Ipv4Addr::UNSPECIFIED, PEER_MAC));
    let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1, 1, 2, 3, 4];
    let sum = checksum::sum(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    link.inject(&from_peer(Protocol::ICMP, &echo));
    link.nothing();
    assert_eq!(link.dropped(DropCause::OtherProtocol), 1);
    // Another station with the address is reported, and not contradicted.
    link.inject(&who_has(ours(), PEER_MAC));
    link.nothing();
    assert_eq!(conflicts(&mut link), [(ours().into(), PEER_MAC, false)]);
}

/// A RST for a port of the kernel's would end a connection that the kernel has.
#[test]
fn segments_without_a_connection_are_refused_at_own_ports_alone() {
    let mut link = link();
    link.command(Command::Listen { address: None, port: LISTENED, backlog: 4, tcp: None });
    link.settle();
    // So that there is somebody to answer.
    link.inject(&arp_frame(OUR_MAC, Operation::Request, (PEER_MAC, peer()), (NOBODY, ours())));
    for flags in [Flags::SYN, Flags::SYN | Flags::ACK, Flags::ACK, Flags::FIN | Flags::ACK] {
        for port in [OF_THE_KERNEL, PORTS.0 - 1, PORTS.1 + 1] {
            link.inject(&tcp_to(port, flags));
        }
    }
    link.nothing();
    assert_eq!(link.dropped(DropCause::NoConnection), 12);
    for port in [PORTS.0, PORTS.1] {
        link.inject(&tcp_to(port, Flags::SYN));
        assert_eq!(answered(&mut link).flags, Flags::RST | Flags::ACK);
    }
    link.inject(&tcp_to(LISTENED, Flags::ACK));
    assert_eq!(answered(&mut link).flags, Flags::RST);
    // The kernel has been told to leave the port alone: nobody else would answer.
    link.command(Command::Unlisten { address: None, port: LISTENED });
    link.settle();
    link.pass_ms(LEFT_PORT_MS);
    link.inject(&tcp_to(LISTENED, Flags::SYN));
    assert_eq!(answered(&mut link).flags, Flags::RST | Flags::ACK);
    link.command(Command::Listen { address: None, port: LISTENED, backlog: 4, tcp: None });
    link.settle();
    link.inject(&tcp_to(LISTENED, Flags::SYN));
    assert_eq!(answered(&mut link).flags, Flags::SYN | Flags::ACK);
}

/// A SYN that nobody has taken is answered when its time is over, also between idle polls.
#[test]
fn a_syn_that_waits_is_answered_in_time() {
    let mut link = link();
    link.command(Command::Listen { address: None, port: LISTENED, backlog: 4, tcp: None });
    link.command(Command::Unlisten { address: None, port: LISTENED });
    link.settle();
    link.inject(&arp_frame(OUR_MAC, Operation::Request, (PEER_MAC, peer()), (NOBODY, ours())));
    let injected_at = link.now;
    link.inject(&tcp_to(LISTENED, Flags::SYN));
    let over = link.core.next_deadline();
    assert!((limits::HELD_SYN_NS..limits::HELD_SYN_NS + MILLISECOND).contains(&(over - injected_at)));
    for before_ns in [300, 200, 100] {
        let now = Instant::from_nanos(over.as_nanos() - before_ns);
        assert!(!link.core.poll_once(now), "it waits {before_ns} ns before");
    }
    link.now = over;
    assert!(link.core.poll_once(over));
    link.settle();
    assert_eq!(answered(&mut link).flags, Flags::RST | Flags::ACK);
}

/// A server that leaves its port for a moment, to serve the next peer, refuses nobody: a SYN waits for it.
#[test]
fn a_syn_waits_for_a_listener_that_has_just_left() {
    let mut link = link();
    let listen = || Command::Listen { address: None, port: LISTENED, backlog: 4, tcp: None };
    let unlisten = || Command::Unlisten { address: None, port: LISTENED };
    link.command(listen());
    link.command(unlisten());
    link.settle();
    link.pass_ms(LEFT_PORT_MS / 2);
    link.inject(&arp_frame(OUR_MAC, Operation::Request, (PEER_MAC, peer()), (NOBODY, ours())));
    link.inject(&tcp_to(LISTENED, Flags::SYN));
    // Nothing else does.
    link.inject(&tcp_to(LISTENED, Flags::ACK));
    assert_eq!(answered(&mut link).flags, Flags::RST);
    link.pass_ms(HELD_SYN_MS - 1);
    link.nothing();
    link.command(listen());
    link.settle();
    let accepted = answered(&mut link);
    assert_eq!((accepted.flags, accepted.ack), (Flags::SYN | Flags::ACK, SeqNumber(1001)));
    // One that nobody comes back for is refused, once.
    link.command(unlisten());
    link.settle();
    let refused = link.dropped(DropCause::NoConnection);
    link.inject(&tcp_from(40_001, LISTENED, Flags::SYN));
    link.nothing();
    link.pass_ms(HELD_SYN_MS);
    assert_eq!(answered(&mut link).flags, Flags::RST | Flags::ACK);
    assert_eq!(link.dropped(DropCause::NoConnection), refused + 1);
}

/// The host's own SYN, whose checksum nobody has computed, waits as that of a peer does.
#[test]
fn a_syn_of_the_host_itself_waits_for_a_listener() {
    let mut link = link();
    let listen = || Command::Listen { address: None, port: LISTENED, backlog: 4, tcp: None };
    let unlisten = || Command::Unlisten { address: None, port: LISTENED };
    let connect = |token| Command::Connect {
        token,
        local: None,
        remote: SocketAddr::new(ours().into(), LISTENED),
        timeout_ns: 600 * SECOND,
        tcp: None,
        octets: Box::default(),
    };
    link.command(listen());
    link.command(unlisten());
    link.command(connect(1));
    link.settle();
    link.pass_ms(HELD_SYN_MS / 2);
    assert!(link.events.is_empty(), "{:?}", link.events);
    link.command(listen());
    link.settle();
    let opened = |event: &Event| matches!(event, Event::Accepted { .. } | Event::Connected { token: 1, .. });
    assert_eq!(link.events.iter().filter(|event| opened(event)).count(), 2, "{:?}", link.events);
    // One that nobody comes back for is refused when its time is over.
    link.events.clear();
    link.command(unlisten());
    link.command(connect(2));
    link.settle();
    link.pass_ms(HELD_SYN_MS - 1);
    assert!(link.events.is_empty(), "{:?}", link.events);
    link.pass_ms(2);
    let refused = ConnectError::Closed(CloseReason::Refused);
    let failed =
        |event: &Event| matches!(event, Event::ConnectFailed { token: 2, error } if *error == refused);
    assert!(link.events.iter().any(failed), "{:?}", link.events);
    for cause in [DropCause::PartialChecksum, DropCause::TcpChecksum, DropCause::BadSource] {
        assert_eq!(link.dropped(cause), 0, "{cause:?}");
    }
    link.nothing();
}

/// The core asks for its neighbours itself, and opens connections from its own ports.
#[test]
fn connections_are_opened_from_own_ports() {
    let mut link = link();
    for token in 1..=3 {
        link.command(Command::Connect {
            token,
            local: None,
            remote: SocketAddr::new(peer().into(), LISTENED),
            timeout_ns: 600 * SECOND,
            tcp: None,
            octets: Box::default(),
        });
    }
    link.settle();
    let (to, question) = arp_in(&link.one());
    assert_eq!((to, question.target_ip, question.sender_mac), (MacAddress::BROADCAST, peer(), OUR_MAC));
    link.inject(&arp_frame(OUR_MAC, Operation::Reply, (PEER_MAC, peer()), (OUR_MAC, ours())));
    let ports: Vec<u16> = (0..3)
        .map(|_| {
            let octets = link.frames.pop_front().expect("a SYN");
            let (_, transport) = ipv4::Header::parse(&octets[14..]).unwrap();
            Header::parse(&octets[14 + transport..]).unwrap().0.source_port
        })
        .collect();
    assert!(ports.iter().all(|port| (PORTS.0..=PORTS.1).contains(port)), "{ports:?}");
}
