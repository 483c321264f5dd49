//! Tests of IPv6 with other stacks: Linux's frames are answered as Linux answered them, and the requirements
//! of RFC 4861, RFC 4862 and RFC 8200 are checked frame by frame.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::common::address_v6;
use crate::common::link::{
    Link, Octets, conflicts, frame, icmpv6_frame, icmpv6_in, ip_packet, ipv6_in, segment, tcp_in,
};
use warpline_dataplane::core::Config;
use warpline_dataplane::net::addresses::{Cidr, Presence};
use warpline_dataplane::ring::{Command, ConnectError, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::ethernet::{EtherType, MacAddress};
use warpline_dataplane::wire::icmpv6::{Message, NeighborAdvertisement, NeighborSolicitation};
use warpline_dataplane::wire::ipv4::Protocol;
use warpline_dataplane::wire::ipv6::{ALL_NODES, multicast_mac, solicited_node};
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber};

macro_rules! taken {
    ($name:literal) => {
        include_bytes!(concat!("../vectors/frames/", $name, ".bin"))
    };
}

/// The two of Linux's frames: 1 asks, 2 answers, and 2 is us.
const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OUR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const PORT: u16 = 7471;

fn peer() -> Ipv6Addr {
    address_v6(1)
}

fn ours() -> Ipv6Addr {
    address_v6(2)
}

fn config() -> Config {
    Config { duplicate_address_detection: false, ..Config::new(ours().into(), 64, [1, 2]) }
}

/// A core whose address is in use, with its frames until then removed.
fn link() -> Link {
    let mut link = Link::new(config(), OUR_MAC);
    link.settle();
    link.frames.clear();
    link
}

fn from_peer(protocol: Protocol, payload: &[u8]) -> Octets {
    frame(OUR_MAC, PEER_MAC, EtherType::IPV6, &ip_packet(peer().into(), ours().into(), protocol, 64, payload))
}

fn syn() -> Octets {
    let options = Options { mss: Some(1440), ..Options::default() };
    let header = Header {
        source_port: 40_000,
        destination_port: PORT,
        seq: SeqNumber(100),
        flags: Flags::SYN,
        window: 0xffff,
        options,
        ..Header::default()
    };
    segment(peer().into(), ours().into(), &header, &[])
}

/// A Neighbor Advertisement of `of` at `mac`, in a frame to this core.
fn advertisement(mac: MacAddress, of: Ipv6Addr, to: Ipv6Addr, solicited: bool, hop_limit: u8) -> Octets {
    let advertised = NeighborAdvertisement {
        router: false,
        solicited,
        overriding: true,
        target: of,
        target_mac: Some(mac),
    };
    advertisement_frame(&advertised, to, hop_limit)
}

fn advertisement_frame(advertised: &NeighborAdvertisement, to: Ipv6Addr, hop_limit: u8) -> Octets {
    let mut message = [0; NeighborAdvertisement::MAX_LEN];
    let octets = advertised.emit(&mut message);
    let from = advertised.target_mac.unwrap_or(PEER_MAC);
    icmpv6_frame((OUR_MAC, from), (advertised.target, to), hop_limit, &message[..octets])
}

#[test]
fn solicitations_of_linux_are_answered_as_linux_does() {
    let mut link = link();
    link.inject(taken!("solicitation"));
    let answer = link.one();
    let (ip, message) = icmpv6_in(&answer).unwrap();
    let (linux_ip, linux) = icmpv6_in(taken!("advertisement")).unwrap();
    let Message::NeighborAdvertisement(linux) = linux else { panic!("{linux:?}") };
    // That Linux was a router.
    assert_eq!(message, Message::NeighborAdvertisement(NeighborAdvertisement { router: false, ..linux }));
    assert_eq!((ip.source, ip.destination, ip.hop_limit), (linux_ip.source, linux_ip.destination, 255));
    assert_eq!(answer[..14], taken!("advertisement")[..14]);
}

#[test]
fn pings_of_linux_are_answered_as_linux_does() {
    let mut link = link();
    link.inject(taken!("echo_request"));
    let answer = link.one();
    assert_eq!(answer[..14], taken!("echo_reply")[..14]);
    assert_eq!(ipv6_in(&answer).1, ipv6_in(taken!("echo_reply")).1);
    assert_eq!(ipv6_in(&answer).0.hop_limit, 64);
    // Not to a group, and not damaged.
    let echo = ipv6_in(taken!("echo_request")).1;
    let ping = icmpv6_frame((multicast_mac(ALL_NODES), PEER_MAC), (peer(), ALL_NODES), 64, echo);
    link.inject(&ping);
    let mut damaged = taken!("echo_request").to_vec();
    damaged[70] ^= 1;
    link.inject(&damaged);
    link.nothing();
    assert_eq!(link.dropped(DropCause::IcmpChecksum), 1);
}

#[test]
fn a_closed_port_refuses_as_linux_does() {
    let mut link = link();
    link.inject(taken!("solicitation"));
    link.frames.clear();
    link.inject(taken!("tcp_syn"));
    let answer = link.one();
    assert_eq!(ipv6_in(&answer).1, ipv6_in(taken!("tcp_rst")).1);
    assert_eq!(answer[..14], taken!("tcp_rst")[..14]);
}

#[test]
fn a_peer_connects_and_its_hardware_address_is_asked_for() {
    let mut link = link();
    link.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
    link.inject(&from_peer(Protocol::TCP, &syn()));
    let question = link.one();
    let (ip, message) = icmpv6_in(&question).unwrap();
    let expected = NeighborSolicitation { target: peer(), source_mac: Some(OUR_MAC), nonce: None };
    assert_eq!(message, Message::NeighborSolicitation(expected));
    assert_eq!((ip.source, ip.destination, ip.hop_limit), (ours(), solicited_node(peer()), 255));
    assert_eq!(question[..6], multicast_mac(solicited_node(peer())).0);
    link.inject(&advertisement(PEER_MAC, peer(), ours(), true, 255));
    let (ip, answer, _) = tcp_in(&link.one());
    assert_eq!((ip.source, ip.destination, ip.hop_limit), (ours(), peer(), 64));
    assert_eq!((answer.flags, answer.ack), (Flags::SYN | Flags::ACK, SeqNumber(101)));
    // RFC 8200 §8.3: 1500 less 60.
    assert_eq!(answer.options.mss, Some(1440));
    assert_ne!(ip.flow_label, 0);
    let ack = Header {
        source_port: 40_000,
        destination_port: PORT,
        seq: SeqNumber(101),
        ack: answer.seq + 1,
        flags: Flags::ACK | Flags::PSH,
        window: 0xffff,
        ..Header::default()
    };
    let label = ip.flow_label;
    link.inject(&from_peer(Protocol::TCP, &segment(peer().into(), ours().into(), &ack, b"over IPv6")));
    let remote = SocketAddr::new(peer().into(), 40_000);
    assert!(
        link.events
            .iter()
            .any(|event| matches!(event, Event::Accepted { flow, .. } if flow.remote_end() == remote))
    );
    assert!(
        link.events
            .iter()
            .any(|event| matches!(event, Event::Stream { octets, .. } if octets[..] == *b"over IPv6"))
    );
    link.pass_ms(100);
    let (ip, ack, _) = tcp_in(&link.one());
    assert_eq!(ack.ack, SeqNumber(110));
    assert_eq!(ip.flow_label, label, "RFC 6437 §3: one label for the flow");
}

#[test]
fn what_stands_before_tcp_is_walked_over() {
    // Destination options of padding, then the SYN.
    let mut packet = vec![Protocol::TCP.0, 0, 1, 4, 0, 0, 0, 0];
    packet.extend(syn());
    let answers = |protocol, packet: &[u8]| {
        let mut link = link();
        link.inject(taken!("solicitation"));
        link.frames.clear();
        link.inject(&from_peer(protocol, packet));
        (link.frames.len(), link)
    };
    assert_eq!(answers(Protocol::DESTINATION_OPTIONS, &packet).0, 1, "a RST");
    assert_eq!(answers(Protocol::HOP_BY_HOP, &packet).0, 1);
    // An option that requires a receiver that does not support it to discard the packet; a route with
    // segments left.
    packet[2] = 0x42;
    let (sent, link) = answers(Protocol::HOP_BY_HOP, &packet);
    assert_eq!((sent, link.dropped(DropCause::OtherProtocol)), (0, 1));
    packet[2..4].copy_from_slice(&[0, 1]);
    let (sent, link) = answers(Protocol::ROUTING, &packet);
    assert_eq!((sent, link.dropped(DropCause::OtherProtocol)), (0, 1));
}

#[test]
fn fragments_are_put_together() {
    let part = |offset: u8, more: u8, octets: &[u8]| {
        let mut packet = vec![Protocol::TCP.0, 0, 0, offset | more, 0, 0, 0, 9];
        packet.extend_from_slice(octets);
        from_peer(Protocol::FRAGMENT, &packet)
    };
    let header =
        Header { source_port: 40_000, destination_port: PORT, flags: Flags::SYN, ..Header::default() };
    let whole = segment(peer().into(), ours().into(), &header, &[7; 100]);
    let mut link = link();
    link.inject(taken!("solicitation"));
    link.frames.clear();
    link.inject(&part(48, 0, &whole[48..]));
    link.nothing();
    link.inject(&part(0, 1, &whole[..48]));
    assert_eq!(link.core.statistics().datagrams_reassembled, 1);
    assert_eq!(tcp_in(&link.one()).1.flags, Flags::RST | Flags::ACK, "it went through to TCP");
    // An atomic fragment is a packet (RFC 6946).
    link.inject(&part(0, 0, &whole));
    assert_eq!(tcp_in(&link.one()).1.flags, Flags::RST | Flags::ACK);
    assert_eq!(link.core.statistics().datagrams_reassembled, 1);
    // A fragment in a fragment is none of ours.
    let nested = |offset: u8, more: u8, octets: &[u8]| {
        let mut packet = vec![Protocol::FRAGMENT.0, 0, 0, offset | more, 0, 0, 0, 11];
        packet.extend_from_slice(octets);
        from_peer(Protocol::FRAGMENT, &packet)
    };
    let mut inner = vec![Protocol::TCP.0, 0, 0, 1, 0, 0, 0, 10];
    inner.extend_from_slice(&whole[..48]);
    link.inject(&nested(0, 1, &inner[..48]));
    link.inject(&nested(48, 0, &inner[48..]));
    link.nothing();
    assert_eq!(link.dropped(DropCause::Fragment), 1);
}

/// RFC 8200 §4.5, RFC 7112 §5: the first fragment has all extension headers, and the ports and flags behind
/// them, so that a filter on the way sees what the packet is.
#[test]
fn a_first_fragment_has_all_headers() {
    let mut link = link();
    link.inject(taken!("solicitation"));
    link.frames.clear();
    let part = |number: u8, offset: u8, more: u8, octets: &[u8]| {
        let mut packet = vec![Protocol::DESTINATION_OPTIONS.0, 0, 0, offset | more, 0, 0, 0, number];
        packet.extend_from_slice(octets);
        from_peer(Protocol::FRAGMENT, &packet)
    };
    let header =
        Header { source_port: 40_000, destination_port: PORT, flags: Flags::SYN, ..Header::default() };
    let mut whole = vec![Protocol::TCP.0, 0, 1, 4, 0, 0, 0, 0];
    whole.extend(segment(peer().into(), ours().into(), &header, &[7; 40]));
    for (number, first) in [(1, 8), (2, 24)] {
        link.inject(&part(number, 0, 1, &whole[..usize::from(first)]));
        link.inject(&part(number, first, 0, &whole[usize::from(first)..]));
        link.nothing();
        assert_eq!(link.dropped(DropCause::Fragment), u64::from(number));
    }
    assert_eq!(link.core.statistics().datagrams_reassembled, 0);
    link.inject(&part(3, 0, 1, &whole[..32]));
    link.inject(&part(3, 32, 0, &whole[32..]));
    assert_eq!(link.core.statistics().datagrams_reassembled, 1);
    assert_eq!(tcp_in(&link.one()).1.flags, Flags::RST | Flags::ACK, "it went through to TCP");
}

/// RFC 4861 §7.1: nothing that passed a router, or contradicts itself.
#[test]
fn discovery_from_afar_is_not_heard() {
    let mut link = link();
    let solicit = |hop_limit, source: Ipv6Addr, destination, source_mac| {
        let mut message = [0; NeighborSolicitation::MAX_LEN];
        let octets = NeighborSolicitation { target: ours(), source_mac, nonce: None }.emit(&mut message);
        icmpv6_frame((OUR_MAC, PEER_MAC), (source, destination), hop_limit, &message[..octets])
    };
    let none = Ipv6Addr::UNSPECIFIED;
    for wrong in [
        solicit(254, peer(), ours(), Some(PEER_MAC)),
        solicit(255, none, solicited_node(ours()), Some(PEER_MAC)),
        solicit(255, none, ours(), None),
    ] {
        let before = link.dropped(DropCause::Malformed);
        link.inject(&wrong);
        link.nothing();
        assert_eq!(link.dropped(DropCause::Malformed), before + 1);
    }
    for (wrong, cause) in [
        (solicit(255, ours(), ours(), None), DropCause::BadSource),
        (solicit(255, ALL_NODES, ours(), None), DropCause::BadSource),
    ] {
        link.inject(&wrong);
        link.nothing();
        assert_eq!(link.dropped(cause), 1 + u64::from(wrong[22] == 0xff));
    }
    // RFC 6980 §5: not behind a Fragment header, of a whole packet or of a part.
    let whole = solicit(255, peer(), ours(), Some(PEER_MAC));
    for (place, octets) in [(0, 14 + 40..whole.len()), (1, 14 + 40..14 + 48), (8, 14 + 48..whole.len())] {
        let mut packet = vec![Protocol::ICMPV6.0, 0, 0, place, 0, 0, 0, 9];
        packet.extend_from_slice(&whole[octets]);
        let packet = ip_packet(peer().into(), ours().into(), Protocol::FRAGMENT, 255, &packet);
        link.inject(&frame(OUR_MAC, PEER_MAC, EtherType::IPV6, &packet));
        link.nothing();
    }
    assert_eq!(link.dropped(DropCause::Fragment), 2);
    link.inject(&solicit(255, peer(), ours(), None));
    assert_eq!(link.one()[..6], PEER_MAC.0, "without the option, to who sent the frame");
    link.inject(&advertisement(PEER_MAC, peer(), ALL_NODES, true, 255));
    link.inject(&advertisement(PEER_MAC, peer(), ours(), true, 64));
    assert_eq!(link.dropped(DropCause::Malformed), 5);
}

/// RFC 4861 §7.2.5: what nobody has asked for, and does not override, is news only of a neighbour whose
/// hardware address is not known. What overrides has the known address asked first.
#[test]
fn without_the_override_flag_no_hardware_address_is_replaced() {
    let unasked = |mac, overriding| {
        let advertised = NeighborAdvertisement {
            router: false,
            solicited: false,
            overriding,
            target: peer(),
            target_mac: Some(mac),
        };
        advertisement_frame(&advertised, ALL_NODES, 255)
    };
    let mut link = link();
    link.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
    link.inject(&from_peer(Protocol::TCP, &syn()));
    assert!(matches!(icmpv6_in(&link.one()).unwrap().1, Message::NeighborSolicitation(_)));
    link.inject(&unasked(PEER_MAC, false));
    assert_eq!(tcp_in(&link.one()).1.flags, Flags::SYN | Flags::ACK, "it has waited for the address");
    link.pass_ms(2000);
    link.frames.clear();
    let other = MacAddress([2, 0, 0, 0, 0, 9]);
    link.inject(&unasked(other, false));
    link.nothing();
    link.inject(&unasked(other, true));
    let question = link.one();
    let Message::NeighborSolicitation(asked) = icmpv6_in(&question).unwrap().1 else { panic!("no question") };
    assert_eq!((asked.target, &question[..6]), (peer(), &PEER_MAC.0[..]));
}

fn probe_in(octets: &[u8]) -> NeighborSolicitation {
    let (ip, message) = icmpv6_in(octets).unwrap();
    let Message::NeighborSolicitation(probe) = message else { panic!("{message:?}") };
    assert_eq!(
        (ip.source, ip.destination, ip.hop_limit),
        (Ipv6Addr::UNSPECIFIED, solicited_node(ours()), 255)
    );
    assert_eq!((probe.target, probe.source_mac), (ours(), None));
    probe
}

fn connect(link: &Link) {
    let remote = SocketAddr::new(peer().into(), PORT);
    link.command(Command::Connect {
        token: 1,
        local: None,
        remote,
        timeout_ns: 60 * SECOND,
        tcp: None,
        octets: Box::default(),
    });
}

/// A shared address is used at once, and what Linux asks of it is for its other owner.
#[test]
fn a_shared_address_is_neither_probed_nor_answered_for() {
    let shared = Config::new(ours().into(), 64, [1, 2]);
    let mut link = Link::new(Config { presence: Presence::Shared, ..shared }, OUR_MAC);
    link.pass_ms(3000);
    for asked in [&taken!("solicitation")[..], taken!("dad_solicitation"), taken!("echo_request")] {
        link.inject(asked);
    }
    link.inject(&advertisement(MacAddress([2, 0, 0, 0, 0, 9]), ours(), ALL_NODES, false, 255));
    link.nothing();
    assert_eq!(link.dropped(DropCause::OtherProtocol), 1, "the echo request");
    assert_eq!(conflicts(&mut link).len(), 1);
    // From whom it has heard, it has the hardware address.
    connect(&link);
    link.settle();
    assert_eq!(ipv6_in(&link.one()).0.next_header, Protocol::TCP);
}

/// RFC 4862 §5.4: the address is probed, and assigned a second later if no other host claims it.
#[test]
fn an_address_is_probed_before_it_is_used() {
    let mut link = Link::new(Config { duplicate_address_detection: true, ..config() }, OUR_MAC);
    connect(&link);
    link.pass_ms(1000);
    let probe = link.one();
    assert!(probe_in(&probe).nonce.is_some(), "RFC 7527 §4.1");
    // Until then the core does not answer for it; our own probe, looped back, is no conflict.
    link.inject(taken!("solicitation"));
    link.inject(taken!("echo_request"));
    link.inject(taken!("tcp_syn"));
    link.inject(&probe);
    link.nothing();
    link.pass_ms(1100);
    let announcement = link.frames.pop_front().unwrap();
    let (ip, message) = icmpv6_in(&announcement).unwrap();
    let expected = NeighborAdvertisement {
        router: false,
        solicited: false,
        overriding: true,
        target: ours(),
        target_mac: Some(OUR_MAC),
    };
    assert_eq!(
        (ip.source, ip.destination, message),
        (ours(), ALL_NODES, Message::NeighborAdvertisement(expected))
    );
    // The connection that waited asks for its peer.
    let question = link.one();
    assert!(
        matches!(icmpv6_in(&question).unwrap().1, Message::NeighborSolicitation(s) if s.target == peer())
    );
    link.inject(taken!("solicitation"));
    assert!(
        link.frames.iter().any(|frame| ipv6_in(frame).0.next_header == Protocol::TCP),
        "it asks us: it is known"
    );
    assert_eq!(link.dropped(DropCause::AddressConflict), 0);
}

/// RFC 4862 §5.4.3, §5.4.4: a probe of another's, or an advertisement, and the address is not ours.
#[test]
fn an_address_that_another_has_is_not_used() {
    let other = MacAddress([2, 0, 0, 0, 0, 9]);
    for (rival, mac) in [
        // Linux has the hardware address in this frame that the core has here.
        (taken!("dad_solicitation").to_vec(), OUR_MAC),
        (advertisement(other, ours(), ALL_NODES, false, 255), other),
    ] {
        let mut link = Link::new(Config { duplicate_address_detection: true, ..config() }, OUR_MAC);
        link.pass_ms(1000);
        probe_in(&link.one());
        link.inject(&rival);
        assert_eq!(link.dropped(DropCause::AddressConflict), 1);
        assert_eq!(conflicts(&mut link), [(ours().into(), mac, true)]);
        link.pass_ms(3000);
        link.inject(taken!("solicitation"));
        link.nothing();
        connect(&link);
        link.settle();
        let refused = link.events.pop();
        assert!(
            matches!(refused, Some(Event::ConnectFailed { error: ConnectError::NoRoute, .. })),
            "{refused:?}"
        );
    }
}

/// RFC 4862 §5.4.5: a connection from an address that was given up sends nothing, although another one of the
/// core reaches the same peer.
#[test]
fn an_address_given_up_sends_nothing() {
    let other = address_v6(3);
    let mut config = Config { duplicate_address_detection: true, ..config() };
    config.addresses.push(Cidr::new(other.into(), 64));
    let mut link = Link::new(config, OUR_MAC);
    for (token, local) in [(1, ours()), (2, other)] {
        let (local, remote) = (Some(SocketAddr::new(local.into(), 0)), SocketAddr::new(peer().into(), PORT));
        link.command(Command::Connect {
            token,
            local,
            remote,
            timeout_ns: 60 * SECOND,
            tcp: None,
            octets: Box::default(),
        });
    }
    link.pass_ms(1000);
    link.inject(taken!("dad_solicitation"));
    assert_eq!(link.dropped(DropCause::AddressConflict), 1);
    link.pass_ms(2000);
    link.frames.clear();
    link.inject(&advertisement(PEER_MAC, peer(), other, true, 255));
    link.pass_ms(10_000);
    let segments = link.frames.iter().map(|frame| ipv6_in(frame).0);
    let sources: Vec<_> = segments.filter(|ip| ip.next_header == Protocol::TCP).map(|ip| ip.source).collect();
    assert!(!sources.is_empty() && sources.iter().all(|source| *source == other), "{sources:?}");
}

/// RFC 4861 §7.2.4: a host that probes for an address in use is answered, at the all-nodes address. A host
/// that advertises it is contradicted, at a limited rate.
#[test]
fn an_address_in_use_is_defended() {
    let mut link = link();
    link.inject(taken!("dad_solicitation"));
    let answer = link.one();
    let (ip, message) = icmpv6_in(&answer).unwrap();
    assert_eq!((ip.source, ip.destination), (ours(), ALL_NODES));
    let Message::NeighborAdvertisement(advertised) = message else { panic!("{message:?}") };
    assert!(!advertised.solicited && advertised.overriding && advertised.target == ours());
    let claim = advertisement(MacAddress([2, 0, 0, 0, 0, 9]), ours(), ALL_NODES, false, 255);
    for _ in 0..5 {
        link.inject(&claim);
    }
    let defence = link.one();
    let (_, message) = icmpv6_in(&defence).unwrap();
    let Message::NeighborAdvertisement(defended) = message else { panic!("{message:?}") };
    assert_eq!(defended.target_mac, Some(OUR_MAC));
    link.pass_ms(10_001);
    link.inject(&claim);
    link.one();
    assert_eq!(link.dropped(DropCause::AddressConflict), 6);
}

/// A neighbour that has fallen silent is probed by unicast, then by multicast (RFC 4861 §7.3).
#[test]
fn an_unreachable_neighbour_is_noticed() {
    let mut link = link();
    connect(&link);
    link.settle();
    link.one();
    link.inject(&advertisement(PEER_MAC, peer(), ours(), true, 255));
    assert_eq!(tcp_in(&link.one()).1.flags, Flags::SYN);
    // The SYN is not answered. Sent again, beyond the time the peer counts as reachable, it makes us ask.
    link.pass_ms(58_000);
    let questions: Vec<_> = link
        .frames
        .iter()
        .filter(|frame| ipv6_in(frame).0.next_header == Protocol::ICMPV6)
        .map(|frame| (MacAddress(frame[..6].try_into().unwrap()), ipv6_in(frame).0.destination))
        .collect();
    let itself = (PEER_MAC, peer());
    let all = (multicast_mac(solicited_node(peer())), solicited_node(peer()));
    assert!(questions.len() >= 6, "{questions:?}");
    assert_eq!(questions[..6], [itself, itself, itself, all, all, all]);
}

#[test]
fn groups_and_others_are_told_apart() {
    let mut link = link();
    let other = MacAddress([0x33, 0x33, 0xff, 0, 0, 7]);
    let packet = |destination: Ipv6Addr| {
        ip_packet(IpAddr::V6(peer()), destination.into(), Protocol::ICMPV6, 255, &[0; 24])
    };
    for (mac, destination, cause) in [
        (other, solicited_node(address_v6(7)), DropCause::OtherAddress),
        (OUR_MAC, address_v6(7), DropCause::OtherAddress),
        (MacAddress::BROADCAST, ours(), DropCause::OtherMac),
        (MacAddress([2, 0, 0, 0, 0, 7]), ours(), DropCause::OtherMac),
        (multicast_mac(ALL_NODES), ALL_NODES, DropCause::IcmpChecksum),
    ] {
        let before = link.dropped(cause);
        link.inject(&frame(mac, PEER_MAC, EtherType::IPV6, &packet(destination)));
        assert_eq!(link.dropped(cause), before + 1, "{mac} {destination}");
    }
    link.nothing();
}
