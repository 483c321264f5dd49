//! Tests of the source addresses that a core accepts, and of the information that its packets reveal to
//! strangers.

use std::net::Ipv4Addr;

use crate::common::link::{Link, arp_frame, frame, ip_packet, ipv6_in, segment};
use crate::common::{PORT, address, address_v6};
use warpline_dataplane::core::Config;
use warpline_dataplane::net::addresses::{Cidr, Route};
use warpline_dataplane::net::neighbours::StaticNeighbour;
use warpline_dataplane::ring::{Command, ConnectError, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::arp::Operation;
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{Flags, Header, SeqNumber};

const OUR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

/// A core with addresses on two IPv4 networks and one of IPv6, that listens.
fn listening(secret: [u64; 2]) -> Link {
    let mut config =
        Config { duplicate_address_detection: false, ..Config::new(address(1).into(), 24, secret) };
    config.addresses.push(Cidr::new(Ipv4Addr::new(198, 18, 4, 1).into(), 30));
    config.addresses.push(Cidr::new(address_v6(1).into(), 64));
    config.routes.push(Route::default_by(address(2).into()));
    for peer in [address(2).into(), address_v6(2).into()] {
        config.neighbours.push(StaticNeighbour { address: peer, mac: PEER_MAC });
    }
    let mut link = Link::new(config, OUR_MAC);
    link.command(Command::Listen { address: None, port: PORT, backlog: 64, tcp: None });
    link.settle();
    link.frames.clear();
    link
}

fn syn(port: u16) -> Header {
    Header {
        source_port: port,
        destination_port: PORT,
        seq: SeqNumber(100),
        flags: Flags::SYN,
        window: 0xffff,
        ..Header::default()
    }
}

fn ipv4_frame(source: Ipv4Addr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let packet = ip_packet(source.into(), address(1).into(), protocol, 64, payload);
    frame(OUR_MAC, PEER_MAC, EtherType::IPV4, &packet)
}

fn echo_request() -> Vec<u8> {
    let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1];
    let sum = checksum::sum(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    echo
}

/// RFC 1122 §3.2.1.3, RFC 9293 §3.9.2.3 (MUST-63): an answer to a packet from a broadcast address would go to
/// a whole network.
#[test]
fn nobody_sends_from_a_broadcast_address() {
    let mut link = listening([1, 2]);
    let mut refused = 0;
    for source in [
        [198, 18, 0, 255],
        [198, 18, 4, 3],
        [255, 255, 255, 255],
        [224, 0, 0, 1],
        [127, 0, 0, 1],
        [0, 0, 0, 0],
        [198, 18, 0, 1],
        [198, 18, 4, 1],
    ] {
        let source = Ipv4Addr::from(source);
        let segment = segment(source.into(), address(1).into(), &syn(1000), &[]);
        for octets in
            [ipv4_frame(source, Protocol::TCP, &segment), ipv4_frame(source, Protocol::ICMP, &echo_request())]
        {
            link.inject(&octets);
            refused += 1;
            assert_eq!(link.dropped(DropCause::BadSource), refused, "{source}");
            link.nothing();
        }
    }
    assert_eq!(link.core.usage().connections, 0);
    // Neither do neighbours have one.
    for broadcast in [Ipv4Addr::new(198, 18, 0, 255), Ipv4Addr::new(198, 18, 4, 3)] {
        let claim = arp_frame(OUR_MAC, Operation::Request, (PEER_MAC, broadcast), (OUR_MAC, address(1)));
        link.inject(&claim);
        refused += 1;
        assert_eq!(link.dropped(DropCause::BadSource), refused, "{broadcast}");
        link.nothing();
        let remote = (broadcast, PORT).into();
        link.command(Command::Connect {
            token: 1,
            local: None,
            remote,
            timeout_ns: SECOND,
            tcp: None,
            octets: Box::default(),
        });
        link.settle();
        let failed = link.events.pop();
        assert!(
            matches!(failed, Some(Event::ConnectFailed { error: ConnectError::NoRoute, .. })),
            "{failed:?}"
        );
    }
    // The addresses next to them are hosts'.
    for (source, answers) in [([198, 18, 0, 254], 1), ([198, 18, 1, 255], 1), ([198, 18, 4, 2], 1)] {
        link.frames.clear();
        link.inject(&ipv4_frame(source.into(), Protocol::ICMP, &echo_request()));
        assert_eq!(link.frames.len(), answers, "{source:?}");
    }
}

/// RFC 6864 §4.1: the identification of a packet that is never fragmented has no meaning, so it does not
/// count other packets. A reply to a ping has the ping's identification.
#[test]
fn identifications_say_nothing_of_others() {
    let mut link = listening([1, 2]);
    let segment_of = |header: &Header| {
        ipv4_frame(address(2), Protocol::TCP, &segment(address(2).into(), address(1).into(), header, &[]))
    };
    let mut sent = 0;
    for port in 1..=60 {
        // Some segments open connections, some are reset because their port does not exist.
        let header = Header { destination_port: if port % 4 == 0 { 9 } else { PORT }, ..syn(port) };
        link.inject(&segment_of(&header));
        for octets in link.frames.drain(..) {
            let (ip, _) = ipv4::Header::parse(&octets[ethernet::Header::LEN..]).unwrap();
            assert_eq!((ip.identification, ip.dont_fragment), (0, true));
            sent += 1;
        }
    }
    assert_eq!(sent, 60);
    assert!(link.core.statistics().syn_cookies_sent > 0, "some were cookies");
    link.inject(&ipv4_frame(address(2), Protocol::ICMP, &echo_request()));
    let reply = link.one();
    let (ip, _) = ipv4::Header::parse(&reply[ethernet::Header::LEN..]).unwrap();
    assert_eq!((ip.identification, ip.dont_fragment), (7, true));
}

/// RFC 6437 §3: flow labels follow from the flow and the core's secret, and from nothing else: not from where
/// the flow's connection is kept, which differs from core to core.
#[test]
fn flow_labels_follow_from_the_flow_and_a_secret() {
    let label = |secret, port, others: u16| {
        let mut link = listening(secret);
        let from_peer = |header: &Header| {
            let segment = segment(address_v6(2).into(), address_v6(1).into(), header, &[]);
            let packet = ip_packet(address_v6(2).into(), address_v6(1).into(), Protocol::TCP, 64, &segment);
            frame(OUR_MAC, PEER_MAC, EtherType::IPV6, &packet)
        };
        for other in 0..others {
            link.inject(&from_peer(&syn(20_000 + other)));
        }
        link.frames.clear();
        link.inject(&from_peer(&syn(port)));
        let label = ipv6_in(&link.one()).0.flow_label;
        // The same for a segment of no connection.
        link.inject(&from_peer(&Header { flags: Flags::RST, seq: SeqNumber(101), ..syn(port) }));
        link.inject(&from_peer(&Header { flags: Flags::ACK, ..syn(port) }));
        assert_eq!(ipv6_in(&link.one()).0.flow_label, label);
        label
    };
    let labels: Vec<u32> = (1..=32).map(|port| label([1, 2], port, 0)).collect();
    assert!(labels.iter().all(|label| (1..1 << 20).contains(label)));
    for (port, expected) in (1..=4).zip(&labels) {
        assert_eq!(label([1, 2], port, 5), *expected, "whatever else there is");
        assert_ne!(label([1, 3], port, 0), *expected, "another secret");
    }
    let mut different = labels;
    different.sort_unstable();
    different.dedup();
    assert!(different.len() >= 31, "{different:?}");
}
