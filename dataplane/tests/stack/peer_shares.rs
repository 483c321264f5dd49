//! Tests of one peer's share of a listener's backlog: silent connections, and handshakes that are never
//! completed, leave room for others.

use std::net::IpAddr;

use crate::common::link::{Link, frame, ip_packet, segment};
use crate::common::{PORT, address, address_v6};
use warpline_dataplane::core::Config;
use warpline_dataplane::net::addresses::{Cidr, Route};
use warpline_dataplane::net::neighbours::StaticNeighbour;
use warpline_dataplane::ring::{Command, ConnectionId, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::ipv6;
use warpline_dataplane::wire::tcp::{Flags, Header, SeqNumber};

const OUR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const GATEWAY_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const ISS: SeqNumber = SeqNumber(100);
const BACKLOG: u32 = 16;

/// The result of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A SYN with ACK, with this sequence number.
    Answered(SeqNumber),
    Silence,
}

/// A core that listens, and a gateway to everybody else.
struct World {
    link: Link,
}

impl World {
    fn new(backlog: u32) -> Self {
        let mut config =
            Config { duplicate_address_detection: false, ..Config::new(address(1).into(), 24, [1, 2]) };
        config.addresses.push(Cidr::new(address_v6(1).into(), 64));
        for gateway in [IpAddr::from(address(254)), address_v6(254).into()] {
            config.routes.push(Route::default_by(gateway));
            config.neighbours.push(StaticNeighbour { address: gateway, mac: GATEWAY_MAC });
        }
        let mut link = Link::new(config, OUR_MAC);
        link.settle();
        link.command(Command::Listen { address: None, port: PORT, backlog, tcp: None });
        link.settle();
        Self { link }
    }

    fn send(&mut self, source: IpAddr, header: Header) {
        let ours: IpAddr = if source.is_ipv4() { address(1).into() } else { IpAddr::from(address_v6(1)) };
        let header = Header { destination_port: PORT, window: 0xffff, ..header };
        let segment = segment(source, ours, &header, &[]);
        let ethertype = if source.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let packet = ip_packet(source, ours, Protocol::TCP, 64, &segment);
        self.link.frames.clear();
        self.link.inject(&frame(OUR_MAC, GATEWAY_MAC, ethertype, &packet));
    }

    fn syn(&mut self, source: IpAddr, port: u16) -> Outcome {
        self.send(source, Header { source_port: port, seq: ISS, flags: Flags::SYN, ..Header::default() });
        let Some(answer) = self.link.frames.pop_front() else { return Outcome::Silence };
        let network = ethernet::Header::LEN;
        let offset = network + if source.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN };
        let (header, _) = Header::parse(&answer[offset..]).unwrap();
        assert_eq!((header.flags, header.destination_port), (Flags::SYN | Flags::ACK, port));
        Outcome::Answered(header.seq)
    }

    /// Connects from `source`; `None` if the core does not accept the connection.
    fn connect(&mut self, source: IpAddr, port: u16) -> Option<ConnectionId> {
        let Outcome::Answered(iss) = self.syn(source, port) else { return None };
        let ack = Header { source_port: port, seq: ISS + 1, ack: iss + 1, ..Header::default() };
        self.send(source, Header { flags: Flags::ACK, ..ack });
        self.link.events.drain(..).find_map(|event| match event {
            Event::Accepted { connection, .. } => Some(connection),
            _ => None,
        })
    }

    /// Connects from `source` until that fails; returns the connections.
    fn connect_all(&mut self, source: IpAddr) -> Vec<ConnectionId> {
        (1..=4 * BACKLOG as u16).map_while(|port| self.connect(source, port)).collect()
    }

    fn refused(&self) -> u64 {
        self.link.dropped(DropCause::PeerShare)
    }

    fn cookies(&self) -> u64 {
        self.link.core.statistics().syn_cookies_sent
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host opens as many silent connections as it can: it uses at most half of the backlog, and the next hosts
/// half of the rest. A place that it frees is free for all.
#[test]
fn silent_connections_of_one_host_leave_room() {
    let mut world = World::new(BACKLOG);
    let held = world.connect_all(ip("203.0.113.1"));
    assert_eq!((held.len(), world.refused()), (8, 1));
    assert_eq!(world.connect_all(ip("203.0.113.2")).len(), 4);
    assert_eq!(world.connect_all(ip("203.0.113.3")).len(), 2);
    assert!(world.connect(ip("203.0.113.4"), 1).is_some());
    assert_eq!((world.refused(), world.link.dropped(DropCause::NoRoomForConnection)), (3, 0));

    for connection in &held[..4] {
        world.link.command(Command::Abort { connection: *connection });
    }
    world.link.settle();
    assert!(world.connect(ip("203.0.113.4"), 2).is_some());
    // A connection that the application has taken does not count any more.
    for connection in &held[4..] {
        world.link.command(Command::Admit { connection: *connection });
    }
    world.link.settle();
    assert!(world.connect(ip("203.0.113.1"), 1000).is_some(), "it holds none of the backlog any more");
}

/// Handshakes that are not completed prove no address: beyond the share each is answered with a cookie. A
/// forger of a peer's address thus does not lock the peer out, and other peers still get the options that a
/// cookie cannot store.
#[test]
fn beyond_its_share_of_handshakes_a_host_gets_cookies() {
    let mut world = World::new(BACKLOG);
    let victim = ip("203.0.113.1");
    for port in 1..=100 {
        assert!(matches!(world.syn(victim, port), Outcome::Answered(_)));
    }
    assert_eq!((world.link.core.usage().connections, world.cookies()), (8, 92));
    assert!(matches!(world.syn(ip("203.0.113.2"), 1), Outcome::Answered(_)));
    assert_eq!((world.link.core.usage().connections, world.cookies()), (9, 92), "no cookie for others");
    assert!(world.connect(victim, 2000).is_some(), "by a cookie");
    assert_eq!(world.link.core.statistics().syn_cookies_good, 1);
}

/// A returned cookie proves the address: the share of open connections applies to it.
#[test]
fn cookies_do_not_exceed_a_share() {
    let mut world = World::new(4);
    let host = ip("203.0.113.1");
    // Two handshakes that stay incomplete, so that all others get cookies.
    for port in 1..=2 {
        world.syn(host, port);
    }
    let answers: Vec<_> = (10..14).map(|port| (port, world.syn(host, port))).collect();
    assert_eq!(world.cookies(), 4);
    let mut taken = 0;
    for (port, answer) in answers {
        let Outcome::Answered(iss) = answer else { panic!("no cookie") };
        let ack = Header { source_port: port, seq: ISS + 1, ack: iss + 1, ..Header::default() };
        world.send(host, Header { flags: Flags::ACK, ..ack });
        taken += world.link.events.drain(..).filter(|event| matches!(event, Event::Accepted { .. })).count();
    }
    assert_eq!((taken, world.refused()), (2, 2));
}

/// In IPv6 a host can use arbitrarily many addresses: those of a 64-bit network leave a fifth, and one of
/// them leaves as much as one address of IPv4.
#[test]
fn addresses_of_one_network_leave_room_for_others() {
    let mut world = World::new(BACKLOG);
    assert_eq!(world.connect_all(ip("2001:db8::1")).len(), 8);
    let mut held = 8;
    for host in 2..200 {
        held += usize::from(world.connect(ip(&format!("2001:db8::{host:x}")), 1).is_some());
    }
    assert_eq!(held, 13);
    assert!(world.connect(ip("2001:db8:0:1::1"), 1).is_some(), "another network");
    assert!(world.connect(ip("203.0.113.1"), 1).is_some());
}

/// A port that is closed and opened again counts the connections in its backlog from before, and counts each
/// once when it leaves.
#[test]
fn a_listener_that_returns_counts_its_connections() {
    let mut world = World::new(BACKLOG);
    let source = ip("203.0.113.1");
    let open = [1, 2].map(|port| world.connect(source, port).expect("there is room"));
    assert!(matches!(world.syn(source, 3), Outcome::Answered(_)));
    assert_eq!(world.link.core.usage().half_open, 3);
    world.link.command(Command::Unlisten { address: None, port: PORT });
    world.link.command(Command::Listen { address: None, port: PORT, backlog: BACKLOG, tcp: None });
    world.link.settle();
    assert_eq!(world.link.core.usage().half_open, 3);
    assert!(world.connect(source, 4).is_some());
    for (left, connection) in [(3, open[0]), (2, open[1])] {
        world.link.command(Command::Abort { connection });
        world.link.settle();
        assert_eq!(world.link.core.usage().half_open, left);
    }
}
