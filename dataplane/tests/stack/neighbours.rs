//! Tests of ARP, routes and VLANs, frame by frame: which host is asked, which answers are accepted, and which
//! frames are received.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::common::address;
use crate::common::link::{Link, Octets, arp_frame, arp_in, conflicts, frame, ip_packet, ipv6_in, segment};
use warpline_dataplane::core::Config;
use warpline_dataplane::limits;
use warpline_dataplane::net::addresses::{Cidr, Route};
use warpline_dataplane::net::neighbours::StaticNeighbour;
use warpline_dataplane::ring::Command;
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::{MILLISECOND, SECOND};
use warpline_dataplane::wire::arp::Operation;
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress, Tag};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber};

const OUR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const FORGER: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x66]);
const NOBODY: MacAddress = MacAddress([0; 6]);
const EVERYBODY: MacAddress = MacAddress::BROADCAST;
const PORT: u16 = 7471;

fn config() -> Config {
    Config::new(address(1).into(), 24, [1, 2])
}

fn ours() -> Ipv4Addr {
    address(1)
}

fn peer() -> Ipv4Addr {
    address(2)
}

/// A core that has announced itself.
fn link_of(config: Config) -> Link {
    let mut link = Link::new(config, OUR_MAC);
    link.settle();
    link.frames.clear();
    link
}

fn connect(link: &mut Link, remote: Ipv4Addr) {
    let remote = SocketAddr::new(remote.into(), PORT);
    link.command(Command::Connect {
        token: 1,
        local: None,
        remote,
        timeout_ns: 600 * SECOND,
        tcp: None,
        octets: Box::default(),
    });
    link.settle();
}

fn reply(mac: MacAddress, of: Ipv4Addr) -> Octets {
    arp_frame(OUR_MAC, Operation::Reply, (mac, of), (OUR_MAC, ours()))
}

/// An announcement: a request for its own address (RFC 5227 §2.3).
fn announcement(mac: MacAddress, of: Ipv4Addr) -> Octets {
    arp_frame(EVERYBODY, Operation::Request, (mac, of), (NOBODY, of))
}

/// Whom the frame is for, and the TCP flags in it.
#[track_caller]
fn tcp_to(octets: &[u8]) -> (MacAddress, Header) {
    let (header, network) = ethernet::Header::parse(octets).unwrap();
    assert_eq!(header.ethertype, EtherType::IPV4, "{octets:02x?}");
    let (_, transport) = ipv4::Header::parse(&octets[network..]).unwrap();
    (header.destination, Header::parse(&octets[network + transport..]).unwrap().0)
}

/// A link with a connection to the peer.
fn connected() -> (Link, Header) {
    let mut link = link_of(config());
    connect(&mut link, peer());
    link.frames.clear();
    link.inject(&reply(PEER_MAC, peer()));
    let (to, syn) = tcp_to(&link.one());
    assert_eq!((to, syn.flags), (PEER_MAC, Flags::SYN));
    let answer = Header {
        source_port: PORT,
        destination_port: syn.source_port,
        seq: SeqNumber(500),
        ack: syn.seq + 1,
        flags: Flags::SYN | Flags::ACK,
        window: 0xffff,
        options: Options::default(),
        urgent: 0,
    };
    link.inject(&from_peer(&answer, &[]));
    link.frames.clear();
    (link, answer)
}

fn from_peer(header: &Header, payload: &[u8]) -> Octets {
    let (source, destination) = (IpAddr::V4(peer()), IpAddr::V4(ours()));
    let segment = segment(source, destination, header, payload);
    frame(OUR_MAC, PEER_MAC, EtherType::IPV4, &ip_packet(source, destination, Protocol::TCP, 64, &segment))
}

/// Where the acknowledgement of one more octet of the peer's goes.
#[track_caller]
fn acknowledged_to(link: &mut Link, header: &mut Header) -> MacAddress {
    header.flags = Flags::ACK | Flags::PSH;
    header.seq += u32::from(header.seq == SeqNumber(500));
    link.frames.clear();
    link.inject(&from_peer(header, b"x"));
    header.seq += 1;
    link.pass_ms(500);
    let sent = link.frames.iter().find(|frame| frame[12..14] == [8, 0]).expect("an acknowledgement");
    tcp_to(sent).0
}

#[test]
fn a_core_announces_its_addresses_once() {
    let mut link = Link::new(config(), OUR_MAC);
    link.pass_ms(5000);
    let (to, packet) = arp_in(&link.one());
    assert_eq!((to, packet.operation), (EVERYBODY, Operation::Request));
    assert_eq!((packet.sender_mac, packet.sender_ip, packet.target_ip), (OUR_MAC, ours(), ours()));
}

#[test]
fn a_probe_for_our_address_is_answered_and_a_claim_to_it_contradicted() {
    let mut link = link_of(config());
    // RFC 5227 §2.1.1: the sender of a probe has no address.
    link.inject(&arp_frame(EVERYBODY, Operation::Request, (FORGER, Ipv4Addr::UNSPECIFIED), (NOBODY, ours())));
    let (to, packet) = arp_in(&link.one());
    assert_eq!((to, packet.operation, packet.sender_ip), (FORGER, Operation::Reply, ours()));
    // RFC 5227 §2.4: once in ten seconds.
    for _ in 0..20 {
        link.inject(&announcement(FORGER, ours()));
    }
    let (to, packet) = arp_in(&link.one());
    assert_eq!((to, packet.sender_mac, packet.sender_ip), (EVERYBODY, OUR_MAC, ours()));
    assert_eq!(link.dropped(DropCause::AddressConflict), 20);
    assert_eq!(conflicts(&mut link), [(ours().into(), FORGER, false)], "reported with the defence");
    link.pass_ms(10_001);
    link.inject(&announcement(FORGER, ours()));
    arp_in(&link.one());
    assert_eq!(conflicts(&mut link).len(), 1);
    // Our own announcement, looped back.
    link.inject(&announcement(OUR_MAC, ours()));
    link.nothing();
    assert_eq!(link.dropped(DropCause::AddressConflict), 21);
    assert!(conflicts(&mut link).is_empty());
}

/// A forger on the link claims the peer's address: by announcements, unsolicited replies, and requests. While
/// the peer is there, no frame is sent to the forger.
#[test]
fn forged_packets_do_not_divert_a_connection() {
    let (mut link, mut header) = connected();
    link.pass_ms(2000);
    for forged in [
        announcement(FORGER, peer()),
        reply(FORGER, peer()),
        arp_frame(EVERYBODY, Operation::Request, (FORGER, peer()), (NOBODY, ours())),
        arp_frame(EVERYBODY, Operation::Reply, (FORGER, peer()), (FORGER, peer())),
    ] {
        link.frames.clear();
        link.inject(&forged);
        let asked: Vec<_> = link.frames.iter().map(|frame| arp_in(frame)).collect();
        let question = asked.iter().find(|(_, packet)| packet.operation == Operation::Request);
        assert_eq!(
            question.map(|(to, packet)| (*to, packet.target_ip)),
            Some((PEER_MAC, peer())),
            "{asked:?}"
        );
        assert_eq!(acknowledged_to(&mut link, &mut header), PEER_MAC);
        link.inject(&reply(PEER_MAC, peer()));
        link.pass_ms(3000);
        assert_eq!(acknowledged_to(&mut link, &mut header), PEER_MAC);
    }
}

/// The peer has a new hardware address, and the old one is gone: a second later the connection continues with
/// the new one.
#[test]
fn a_peer_that_moves_is_followed() {
    let (mut link, mut header) = connected();
    link.pass_ms(2000);
    link.frames.clear();
    let moved = MacAddress([2, 0, 0, 0, 0, 7]);
    link.inject(&announcement(moved, peer()));
    assert_eq!(arp_in(&link.one()).0, PEER_MAC, "the one that had it is asked first");
    link.pass_ms(1100);
    assert_eq!(acknowledged_to(&mut link, &mut header), moved);
}

/// RFC 1122 §2.3.2.1, by unicast poll: an old entry is used and asked; while the peer's acknowledgements
/// come, it is not.
#[test]
fn an_old_entry_is_asked_by_unicast() {
    let (mut link, mut header) = connected();
    link.pass_ms(limits::NEIGHBOUR_REACHABLE_NS / MILLISECOND / 2 * 3 + 1000);
    link.nothing();
    assert_eq!(acknowledged_to(&mut link, &mut header), PEER_MAC);
    link.frames.clear();
    link.pass_ms(limits::NEIGHBOUR_DELAY_NS / MILLISECOND + 500);
    let (to, packet) = arp_in(&link.one());
    assert_eq!((to, packet.operation, packet.target_ip), (PEER_MAC, Operation::Request, peer()));
    link.inject(&reply(PEER_MAC, peer()));
    link.pass_ms(10_000);
    link.nothing();
}

/// A hundred thousand stations ask for us, each under another address: those that connections use stay.
#[test]
fn a_flood_of_requests_drives_nobody_out() {
    let (mut link, mut header) = connected();
    for n in 0..100_000u32 {
        let [_, b, c, d] = n.to_be_bytes();
        let stranger = Ipv4Addr::new(198, 18, 0, 3 + d % 250);
        let mac = MacAddress([2, 1, 0, b, c, d]);
        link.inject(&arp_frame(EVERYBODY, Operation::Request, (mac, stranger), (NOBODY, ours())));
        link.frames.clear();
    }
    link.pass_ms(500);
    assert_eq!(acknowledged_to(&mut link, &mut header), PEER_MAC);
    assert!(!link.frames.iter().any(|frame| frame[12..14] == [8, 6]), "nobody had to be asked again");
}

#[test]
fn who_is_on_no_network_of_ours_is_not_heard() {
    let mut link = link_of(config());
    let afar = Ipv4Addr::new(203, 0, 113, 9);
    for sender in [afar, Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1), Ipv4Addr::LOCALHOST] {
        let before = link.dropped(DropCause::BadSource);
        link.inject(&arp_frame(EVERYBODY, Operation::Request, (FORGER, sender), (NOBODY, ours())));
        link.nothing();
        assert_eq!(link.dropped(DropCause::BadSource), before + 1);
    }
    // TCP segments from addresses that no host can have are dropped as well.
    let header = Header { destination_port: PORT, flags: Flags::SYN, ..Header::default() };
    let (source, destination) = (IpAddr::V4(Ipv4Addr::BROADCAST), IpAddr::V4(ours()));
    let packet =
        ip_packet(source, destination, Protocol::TCP, 64, &segment(source, destination, &header, &[]));
    link.inject(&frame(OUR_MAC, FORGER, EtherType::IPV4, &packet));
    link.nothing();
    assert_eq!(link.dropped(DropCause::BadSource), 5);
}

#[test]
fn a_configured_neighbour_is_not_asked_for_and_not_changed() {
    let mut config = config();
    config.neighbours.push(StaticNeighbour { address: peer().into(), mac: PEER_MAC });
    let mut link = link_of(config);
    link.inject(&announcement(FORGER, peer()));
    connect(&mut link, peer());
    let (to, syn) = tcp_to(&link.one());
    assert_eq!((to, syn.flags), (PEER_MAC, Flags::SYN));
    link.pass_ms(60_000);
    assert!(link.frames.iter().all(|frame| tcp_to(frame).0 == PEER_MAC));
}

#[test]
fn routes_lead_to_their_gateways() {
    let mut config = config();
    config.routes.push(Route::default_by(address(254).into()));
    config.routes.push(Route {
        destination: Cidr::new(Ipv4Addr::new(203, 0, 113, 0).into(), 24),
        gateway: address(253).into(),
    });
    for (remote, asked) in [
        (Ipv4Addr::new(203, 0, 113, 7), address(253)),
        (Ipv4Addr::new(192, 0, 2, 7), address(254)),
        (address(7), address(7)),
    ] {
        let mut link = link_of(config.clone());
        connect(&mut link, remote);
        let (_, packet) = arp_in(&link.one());
        assert_eq!(packet.target_ip, asked, "{remote}");
        link.inject(&reply(PEER_MAC, asked));
        let (to, _) = tcp_to(&link.one());
        assert_eq!(to, PEER_MAC);
    }
}

fn tagged(vlan: u16, octets: &[u8]) -> Octets {
    let (header, network) = ethernet::Header::parse(octets).unwrap();
    let mut tagged = vec![0; ethernet::Header::LEN + Tag::LEN];
    ethernet::Header { ethertype: EtherType::VLAN, ..header }.emit(&mut tagged);
    Tag { vlan, ethertype: header.ethertype }.emit(&mut tagged[ethernet::Header::LEN..]);
    tagged.extend_from_slice(&octets[network..]);
    tagged
}

/// The frame without the tag of `vlan`, which it must have.
#[track_caller]
fn untagged(vlan: u16, octets: &[u8]) -> Octets {
    assert_eq!(octets[12..16], [0x81, 0x00, (vlan >> 8) as u8, vlan as u8], "{octets:02x?}");
    [&octets[..12], &octets[16..]].concat()
}

#[test]
fn a_vlan_is_a_link_of_its_own() {
    let mut link = Link::new(Config { vlan: Some(100), ..config() }, OUR_MAC);
    link.settle();
    let (_, packet) = arp_in(&untagged(100, &link.one()));
    assert_eq!(packet.sender_ip, ours());
    let question = arp_frame(EVERYBODY, Operation::Request, (PEER_MAC, peer()), (NOBODY, ours()));
    for other in [question.clone(), tagged(101, &question), tagged(0, &question)] {
        link.inject(&other);
    }
    link.nothing();
    assert_eq!(link.dropped(DropCause::OtherVlan), 3);
    let mut with_priority = tagged(100, &question);
    with_priority[14] |= 0xe0;
    link.inject(&with_priority);
    let (_, packet) = arp_in(&untagged(100, &link.one()));
    assert_eq!((packet.operation, packet.target_ip), (Operation::Reply, peer()));
    connect(&mut link, peer());
    let (to, syn) = tcp_to(&untagged(100, &link.one()));
    assert_eq!((to, syn.flags, syn.options.mss), (PEER_MAC, Flags::SYN, Some(1460)));
    // A ping is answered with the tag that it carried.
    let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 2, 3, 4];
    let sum = warpline_dataplane::wire::checksum::sum(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let ping = ip_packet(peer().into(), ours().into(), Protocol::ICMP, 64, &echo);
    link.inject(&tagged(100, &frame(OUR_MAC, PEER_MAC, EtherType::IPV4, &ping)));
    let answer = untagged(100, &link.one());
    assert_eq!((answer[..6].to_vec(), answer[6..12].to_vec()), (PEER_MAC.0.to_vec(), OUR_MAC.0.to_vec()));
    assert_eq!(answer[34], 0, "an echo reply");
    // On a link without VLANs, tagged frames are dropped.
    let mut link = link_of(config());
    link.inject(&tagged(100, &question));
    link.nothing();
    assert_eq!(link.dropped(DropCause::OtherVlan), 1);
}

#[test]
fn ipv6_speaks_on_a_vlan_too() {
    let mut config = Config { vlan: Some(4094), duplicate_address_detection: false, ..config() };
    config.addresses.push(Cidr::new(crate::common::address_v6(1).into(), 64));
    let mut link = link_of(config);
    let remote = SocketAddr::new(crate::common::address_v6(2).into(), PORT);
    link.command(Command::Connect {
        token: 1,
        local: None,
        remote,
        timeout_ns: SECOND,
        tcp: None,
        octets: Box::default(),
    });
    link.settle();
    let question = untagged(4094, &link.one());
    assert_eq!(ipv6_in(&question).0.hop_limit, 255);
}
