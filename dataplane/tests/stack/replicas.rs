//! Tests of a device of several cores: one speaks to the link for all, each owns its flows, and what reaches
//! the wrong core is handed over.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::cores::{Cores, flow_of};
use crate::common::link::{
    Octets, arp_frame, arp_in, frame, icmpv6_frame, ip_packet, ipv6_in, segment, tcp_in,
};
use crate::common::{PORT, address, address_v6};
use warpline_dataplane::core::Config;
use warpline_dataplane::limits;
use warpline_dataplane::net::addresses::Cidr;
use warpline_dataplane::notify::Notify;
use warpline_dataplane::qp::shared::Doorbells;
use warpline_dataplane::ring::{AfterStream, Command, ConnectError, ConnectionId, Event, Rings};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::{Instant, SECOND};
use warpline_dataplane::waker::Waker;
use warpline_dataplane::wire::arp::Operation;
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::icmpv6::NeighborAdvertisement;
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::ipv6;
use warpline_dataplane::wire::tcp::{Flags, Header, SeqNumber};

const CORES: u8 = 4;
const OUR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const OTHER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x22]);
const NOBODY: MacAddress = MacAddress([0; 6]);
const PEER_ISS: SeqNumber = SeqNumber(500);

fn config() -> Config {
    Config::new(address(1).into(), 24, [1, 2])
}

/// A device that has announced itself.
fn device(config: &Config) -> Cores {
    let mut cores = Cores::new(CORES, config, OUR_MAC, 7);
    cores.settle();
    cores.frames.clear();
    cores
}

fn peer() -> SocketAddr {
    SocketAddr::new(address(2).into(), PORT)
}

/// The peer's reply to an ARP request.
fn reply(mac: MacAddress, of: Ipv4Addr) -> Octets {
    arp_frame(OUR_MAC, Operation::Reply, (mac, of), (OUR_MAC, address(1)))
}

/// The peer's claim to its own address.
fn announcement(mac: MacAddress, of: Ipv4Addr) -> Octets {
    arp_frame(MacAddress::BROADCAST, Operation::Request, (mac, of), (NOBODY, of))
}

/// A device whose host core knows the peer.
fn device_with_peer() -> Cores {
    let mut cores = device(&config());
    cores.connect(1, 0, None, peer());
    cores.settle();
    cores.inject(&reply(PEER_MAC, address(2)));
    cores.frames.clear();
    cores
}

/// The TCP segments over IPv4 among the frames sent since the last look: where each goes, and its header.
fn segments(cores: &mut Cores) -> Vec<(MacAddress, Header)> {
    let sent = core::mem::take(&mut cores.frames);
    sent.iter().filter_map(|octets| segment_in(octets)).collect()
}

fn segment_in(octets: &[u8]) -> Option<(MacAddress, Header)> {
    let (link, network) = ethernet::Header::parse(octets).ok()?;
    let (ip, transport) = ipv4::Header::parse(&octets[network..]).ok()?;
    let is_segment = link.ethertype == EtherType::IPV4 && ip.protocol == Protocol::TCP;
    is_segment.then(|| (link.destination, Header::parse(&octets[network + transport..]).unwrap().0))
}

/// A segment from the wire to our address.
fn from_station(host: u8, header: &Header, payload: &[u8]) -> Octets {
    let (source, destination) = (IpAddr::V4(address(host)), IpAddr::V4(address(1)));
    let segment = segment(source, destination, header, payload);
    frame(OUR_MAC, PEER_MAC, EtherType::IPV4, &ip_packet(source, destination, Protocol::TCP, 64, &segment))
}

/// A SYN from a port of a station.
fn syn(source_port: u16, destination_port: u16) -> Header {
    let flags = Flags::SYN;
    Header { source_port, destination_port, seq: PEER_ISS, flags, window: 0xffff, ..Header::default() }
}

/// A segment of the peer to a port of ours.
fn from_peer(flags: Flags, port: u16, seq: SeqNumber, ack: SeqNumber, payload: &[u8]) -> Octets {
    from_station(2, &Header { seq, ack, flags, ..syn(PORT, port) }, payload)
}

/// The peer's answer to our SYN.
fn syn_ack(syn: &Header) -> Octets {
    from_peer(Flags::SYN | Flags::ACK, syn.source_port, PEER_ISS, syn.seq + 1, &[])
}

/// Opens a connection from `core`. Returns it, and our SYN.
fn open(cores: &mut Cores, core: u8) -> (ConnectionId, Header) {
    cores.frames.clear();
    cores.take_events(core);
    cores.connect(core, 9, None, peer());
    cores.settle();
    let sent = segments(cores);
    let [(_, syn)] = sent.as_slice() else { panic!("one SYN: {sent:?}") };
    cores.inject(&syn_ack(syn));
    let events = cores.take_events(core);
    let [Event::Connected { connection, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(connection.core(), core);
    (*connection, syn.clone())
}

/// The octets that a core has received before Full Operation.
fn received(cores: &mut Cores, core: u8) -> Vec<u8> {
    let octets = cores.take_events(core).into_iter().filter_map(|event| match event {
        Event::Stream { octets, .. } => Some(octets),
        _ => None,
    });
    octets.flatten().collect()
}

#[test]
fn a_replica_asks_the_host_core_for_a_neighbour() {
    let mut cores = device(&config());
    for core in [2, 3] {
        cores.connect(core, u64::from(core), None, peer());
    }
    cores.pass_ms(1500);
    let asked: Vec<_> = cores.frames.drain(..).map(|octets| arp_in(&octets)).collect();
    assert_eq!(asked.len(), 2, "one request a second, whoever needs it: {asked:?}");
    assert!(asked.iter().all(|(to, arp)| *to == MacAddress::BROADCAST && arp.target_ip == address(2)));
    cores.inject(&reply(PEER_MAC, address(2)));
    let sent = segments(&mut cores);
    assert_eq!(sent.len(), 2, "both SYNs leave");
    for (to, syn) in sent {
        assert_eq!((to, syn.flags), (PEER_MAC, Flags::SYN));
        cores.inject(&syn_ack(&syn));
    }
    for core in [2, 3] {
        let events = cores.take_events(core);
        assert!(matches!(events.as_slice(), [Event::Connected { .. }]), "core {core}: {events:?}");
    }
}

/// One more octet of the peer's is acknowledged to where the core believes the peer to be.
fn acknowledged_to(cores: &mut Cores, syn: &Header, octet: &mut u32) -> MacAddress {
    cores.frames.clear();
    let seq = PEER_ISS + 1 + *octet;
    *octet += 1;
    cores.inject(&from_peer(Flags::ACK | Flags::PSH, syn.source_port, seq, syn.seq + 1, b"x"));
    cores.pass_ms(100);
    segments(cores).last().expect("an acknowledgement").0
}

#[test]
fn replicas_follow_a_neighbour_that_moves() {
    let mut cores = device_with_peer();
    let mut open: Vec<_> = (0..CORES).map(|core| (open(&mut cores, core).1, 0)).collect();
    cores.pass_ms(1500);
    for (syn, octet) in &mut open {
        assert_eq!(acknowledged_to(&mut cores, syn, octet), PEER_MAC);
    }
    cores.inject(&announcement(OTHER_MAC, address(2)));
    cores.pass_ms(1200);
    for (syn, octet) in &mut open {
        assert_eq!(acknowledged_to(&mut cores, syn, octet), OTHER_MAC);
    }
}

/// Replicas use a neighbour that nobody hears from: the host core solicits it, and all learn that it is gone.
#[test]
fn what_a_replica_uses_is_solicited_and_may_be_lost() {
    let mut cores = device_with_peer();
    let (connection, _) = open(&mut cores, 2);
    cores.frames.clear();
    let octets = b"anybody there?".to_vec().into_boxed_slice();
    cores.command(2, Command::Stream { connection, octets, then: AfterStream::Stay });
    cores.pass_ms(120_000);
    let is_arp = |octets: &&Octets| octets[12..14] == [8, 6];
    let mut asked: Vec<_> = cores.frames.iter().filter(is_arp).map(|octets| arp_in(octets).0).collect();
    asked.dedup();
    assert_eq!(asked, [PEER_MAC, MacAddress::BROADCAST], "first the station, then all");
    cores.frames.clear();
    cores.pass_ms(60_000);
    assert!(segments(&mut cores).is_empty(), "nothing is sent to a station that is gone");
    cores.inject(&reply(OTHER_MAC, address(2)));
    let sent = segments(&mut cores);
    assert!(!sent.is_empty() && sent.iter().all(|(to, _)| *to == OTHER_MAC), "{sent:?}");
}

/// While acknowledgements confirm the neighbour at a replica, nothing solicits it.
#[test]
fn progress_at_a_replica_confirms_a_neighbour() {
    let mut cores = device_with_peer();
    let (connection, syn) = open(&mut cores, 3);
    cores.frames.clear();
    let mut next = syn.seq + 1;
    for _ in 0..120 {
        let octets = Box::new(*b"x");
        cores.command(3, Command::Stream { connection, octets, then: AfterStream::Stay });
        cores.settle();
        next += 1;
        cores.inject(&from_peer(Flags::ACK, syn.source_port, PEER_ISS + 1, next, &[]));
        cores.pass_ms(1000);
    }
    assert!(cores.frames.iter().all(|octets| octets[12..14] == [8, 0]), "segments only");
}

/// More neighbours than a ring holds notes: those that find no room are sent later, either way.
#[test]
fn notes_without_room_are_sent_later() {
    let mut cores = device(&Config::new(address(1).into(), 16, [1, 2]));
    let host = |n: u8| Ipv4Addr::new(198, 18, 1, n);
    let count = 2 * limits::NOTES_BETWEEN_CORES as u8;
    for n in 0..count {
        cores.connect(1, n.into(), None, SocketAddr::new(host(n).into(), PORT));
        cores.poll(1);
        cores.poll(1);
    }
    assert!(cores.frames.is_empty(), "the host core has not polled");
    cores.pass_ms(100);
    let asked: BTreeSet<_> = cores.frames.drain(..).map(|octets| arp_in(&octets).1.target_ip).collect();
    assert_eq!(asked.len(), usize::from(count));
    for n in 0..count {
        cores.send(&reply(PEER_MAC, host(n)));
        cores.poll(0);
    }
    assert!(cores.frames.is_empty(), "the replica has not polled");
    cores.pass_ms(100);
    let to: BTreeSet<_> = segments(&mut cores).into_iter().map(|(_, syn)| syn.source_port).collect();
    assert_eq!(to.len(), usize::from(count), "a SYN to each");
}

#[test]
fn a_note_wakes_a_core_that_sleeps() {
    #[derive(Default)]
    struct Count(AtomicU32);
    impl Notify for Count {
        fn notify(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counts: Vec<_> = (0..CORES).map(|_| Arc::new(Count::default())).collect();
    let wakers: Vec<_> = counts.iter().map(|count| Arc::new(Waker::new(count.clone()))).collect();
    let mut cores = Cores::with_rings(CORES, &config(), OUR_MAC, 7, |core| {
        let waker = wakers[usize::from(core)].clone();
        Rings::with(Doorbells::new(16).with_byte_streams(16).with_waker(waker))
    });
    cores.settle();
    for waker in &wakers {
        waker.arm();
    }
    cores.connect(2, 1, None, peer());
    cores.poll(2);
    let woken = |counts: &[Arc<Count>]| {
        counts.iter().map(|count| count.0.swap(0, Ordering::Relaxed)).collect::<Vec<_>>()
    };
    assert_eq!(woken(&counts), [1, 0, 0, 0], "the host core");
    assert_eq!(cores.all[0].next_deadline(), Instant::ZERO, "it has mail");
    assert!(cores.poll(0) && cores.all[0].next_deadline() > cores.now);
    for waker in &wakers {
        waker.arm();
    }
    cores.send(&reply(PEER_MAC, address(2)));
    cores.now += 1000;
    cores.poll(0);
    assert_eq!(woken(&counts), [0, 0, 1, 0], "the replica that has asked");
    assert_eq!(cores.all[2].next_deadline(), Instant::ZERO);
    assert_eq!(cores.all[3].next_deadline(), Instant::NEVER, "a replica has no timers of its own");
}

fn config_v6() -> Config {
    let mut config = config();
    config.addresses.push(Cidr::new(address_v6(1).into(), 64));
    config
}

/// The solicited-node advertisement of the peer, or of a rival for our address.
fn advertisement(target: u8, mac: MacAddress, solicited: bool) -> Octets {
    let target = address_v6(target);
    let to = if solicited { address_v6(1) } else { ipv6::ALL_NODES };
    let to_mac = if solicited { OUR_MAC } else { ipv6::multicast_mac(ipv6::ALL_NODES) };
    let mut message = [0; NeighborAdvertisement::MAX_LEN];
    let target_mac = Some(mac);
    let octets = NeighborAdvertisement { router: false, solicited, overriding: true, target, target_mac }
        .emit(&mut message);
    icmpv6_frame((to_mac, mac), (target, to), 255, &message[..octets])
}

#[test]
fn a_replica_uses_an_ipv6_address_when_the_host_core_has_assigned_it() {
    let mut cores = device(&config_v6());
    let remote = SocketAddr::new(address_v6(2).into(), PORT);
    cores.connect(1, 1, None, remote);
    cores.settle();
    assert!(cores.frames.is_empty(), "nothing is sent from a tentative address");
    cores.pass_ms(2100);
    let probes = cores.frames.iter().filter(|octets| ipv6_in(octets).0.source.is_unspecified()).count();
    assert_eq!(probes, 1, "the host core alone probes");
    cores.frames.clear();
    cores.inject(&advertisement(2, PEER_MAC, true));
    let syn = cores.frames.pop_front().expect("a SYN");
    let (ip, header, _) = tcp_in(&syn);
    assert_eq!((ip.source, header.flags.contains(Flags::SYN)), (address_v6(1), true));
    let local = SocketAddr::new(address_v6(1).into(), header.source_port);
    assert_eq!(cores.owner(remote, local), 1);
}

#[test]
fn an_address_that_another_station_has_is_given_up_by_all_cores() {
    let mut cores = device(&config_v6());
    let remote = SocketAddr::new(address_v6(2).into(), PORT);
    cores.inject(&advertisement(1, OTHER_MAC, false));
    assert_eq!(cores.dropped(DropCause::AddressConflict), 1);
    for core in 0..CORES {
        cores.connect(core, 1, None, remote);
        cores.settle();
        let mut events = cores.take_events(core);
        events.retain(|event| !matches!(event, Event::Notice(_)));
        let no_route =
            |event: &Event| matches!(event, Event::ConnectFailed { error: ConnectError::NoRoute, .. });
        assert!(events.len() == 1 && no_route(&events[0]), "core {core}: {events:?}");
    }
    cores.frames.clear();
    cores.pass_ms(3000);
    assert!(cores.frames.is_empty(), "{:02x?}", cores.frames);
}

/// Every core opens connections whose answers come to it.
#[test]
fn each_core_chooses_ports_that_it_owns() {
    let mut cores = device_with_peer();
    let mut ports = BTreeSet::new();
    for core in (0..CORES).cycle().take(40) {
        let (_, syn) = open(&mut cores, core);
        let local = SocketAddr::new(address(1).into(), syn.source_port);
        assert_eq!(cores.owner(peer(), local), core);
        assert!(ports.insert(syn.source_port), "no two cores have one port");
    }
    assert_eq!(cores.dropped(DropCause::NoConnection), 0);
}

#[test]
fn a_core_without_ports_leaves_those_of_others() {
    let ports = (50_000, 50_063);
    let config = Config { ports, ..config() };
    let mut cores = device(&config);
    let mut counts = [0; CORES as usize];
    for port in ports.0..=ports.1 {
        counts[usize::from(cores.owner(peer(), SocketAddr::new(address(1).into(), port)))] += 1;
    }
    for core in 0..CORES {
        for token in 0..=counts[usize::from(core)] {
            cores.connect(core, token, None, peer());
            cores.settle();
        }
        let events = cores.take_events(core);
        let [Event::ConnectFailed { token, error: ConnectError::NoPort }] = events.as_slice() else {
            panic!("core {core}: {events:?}");
        };
        assert_eq!(*token, counts[usize::from(core)], "after all of its ports");
    }
    assert_eq!(counts.iter().sum::<u64>(), 64);
}

#[test]
fn a_given_port_is_its_owners() {
    let mut cores = device_with_peer();
    let port = cores.port_of(2, peer(), address(1).into());
    let local = Some(SocketAddr::new(address(1).into(), port));
    for core in 0..CORES {
        cores.take_events(core);
        cores.connect(core, 5, local, peer());
        cores.settle();
        let events = cores.take_events(core);
        let is_refused = matches!(
            events.as_slice(),
            [Event::ConnectFailed { token: 5, error: ConnectError::OtherCore { .. } }]
        );
        assert_eq!(is_refused, core != 2, "core {core}: {events:?}");
    }
    assert_eq!(segments(&mut cores).len(), 1, "the SYN of core 2");
    // A port that is restricted to a core is that core's, whatever the hash.
    cores.steering.restrict(8000, Some(3));
    cores.connect(3, 6, Some(SocketAddr::new(address(1).into(), 8000)), peer());
    cores.settle();
    assert_eq!(segments(&mut cores).len(), 1);
}

/// The payload of an IPv4 frame in two fragments.
fn fragments(octets: &[u8]) -> [Octets; 2] {
    let (link, packet) = octets.split_at(ethernet::Header::LEN);
    let (header, transport) = ipv4::Header::parse(packet).unwrap();
    let payload = &packet[transport..usize::from(header.total_len)];
    let half = payload.len() / 16 * 8;
    [0..half, half..payload.len()].map(|range| {
        let mut fragment = link.to_vec();
        fragment.resize(ethernet::Header::LEN + ipv4::Header::LEN, 0);
        ipv4::Header {
            total_len: (ipv4::Header::LEN + range.len()) as u16,
            dont_fragment: false,
            more_fragments: range.end < payload.len(),
            fragment_offset: range.start as u16,
            ..header
        }
        .emit(&mut fragment[ethernet::Header::LEN..]);
        fragment.extend_from_slice(&payload[range]);
        fragment
    })
}

#[test]
fn a_datagram_in_fragments_goes_to_the_owner_of_its_flow() {
    let mut cores = device_with_peer();
    for core in 0..CORES {
        let (_, syn) = open(&mut cores, core);
        let seq = PEER_ISS + 1;
        let whole = from_peer(Flags::ACK | Flags::PSH, syn.source_port, seq, syn.seq + 1, &[core; 64]);
        for fragment in fragments(&whole) {
            assert!(flow_of(&fragment).is_none(), "the device does not know its flow");
            cores.inject(&fragment);
        }
        assert_eq!(received(&mut cores, core), [core; 64]);
    }
    assert_eq!(cores.all[0].statistics().datagrams_reassembled, u64::from(CORES));
    // A device that has no room on the way drops it, and the peer sends it again.
    let (_, syn) = open(&mut cores, 2);
    cores.limit_queues(0);
    let whole = from_peer(Flags::ACK | Flags::PSH, syn.source_port, PEER_ISS + 1, syn.seq + 1, &[2; 64]);
    for fragment in fragments(&whole) {
        cores.inject(&fragment);
    }
    assert_eq!(cores.dropped(DropCause::NotHandedOver), 1);
    cores.inject(&whole);
    assert_eq!(received(&mut cores, 2), [2; 64]);
}

/// Segments behind an extension header, which the device does not see, open a connection at their owner.
#[test]
fn a_segment_behind_extension_headers_goes_to_its_owner() {
    let config = Config { duplicate_address_detection: false, ..config_v6() };
    let mut cores = device(&config);
    cores.listen(PORT, 64);
    cores.settle();
    let (source, destination) = (IpAddr::V6(address_v6(2)), IpAddr::V6(address_v6(1)));
    for core in 0..CORES {
        let remote_port = (1024..=u16::MAX)
            .find(|port| {
                let remote = SocketAddr::new(source, *port);
                cores.owner(remote, SocketAddr::new(destination, PORT)) == core
            })
            .unwrap();
        // Destination Options with PadN (RFC 8200 §4.6), then TCP.
        let mut payload = vec![6, 0, 1, 4, 0, 0, 0, 0];
        payload.extend(segment(source, destination, &syn(remote_port, PORT), &[]));
        let packet = ip_packet(source, destination, Protocol(60), 64, &payload);
        cores.frames.clear();
        cores.inject(&frame(OUR_MAC, PEER_MAC, EtherType::IPV6, &packet));
        cores.inject(&advertisement(2, PEER_MAC, true));
        let sent: Vec<_> = cores.frames.iter().filter(|octets| flow_of(octets).is_some()).collect();
        let syn_ack = tcp_in(sent.first().expect("a SYN-ACK")).1;
        assert_eq!(syn_ack.flags & (Flags::SYN | Flags::ACK), Flags::SYN | Flags::ACK);
        assert_eq!(cores.all[usize::from(core)].usage().connections, 1);
    }
}

/// The device brings ICMP errors to the host core: the flow is that of the segment in them.
#[test]
fn an_icmp_error_goes_to_the_owner_of_the_segment_it_quotes() {
    let mut cores = device_with_peer();
    for core in 0..CORES {
        cores.take_events(core);
        cores.frames.clear();
        cores.connect(core, 3, None, peer());
        cores.settle();
        let syn = cores.frames.pop_front().expect("a SYN");
        let quoted = &syn[ethernet::Header::LEN..][..ipv4::Header::LEN + 8];
        // Port unreachable, as a firewall that rejects says it.
        let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(quoted);
        let sum = checksum::sum(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let packet = ip_packet(address(2).into(), address(1).into(), Protocol::ICMP, 64, &message);
        cores.inject(&frame(OUR_MAC, PEER_MAC, EtherType::IPV4, &packet));
        let events = cores.take_events(core);
        assert!(matches!(events.as_slice(), [Event::ConnectFailed { token: 3, .. }]), "{events:?}");
    }
    assert_eq!(cores.dropped(DropCause::IcmpRefused), 0);
}

/// A replica answers segments of no connection although nobody has asked it for the station.
#[test]
fn a_replica_refuses_a_stranger() {
    let mut cores = device(&config());
    let local = SocketAddr::new(address(1).into(), 9000);
    for core in 0..CORES {
        let owns = |port: &u16| cores.owner(SocketAddr::new(address(2).into(), *port), local) == core;
        let port = (1024..=u16::MAX).find(owns).unwrap();
        // The host core has the station in its cache once it was asked by it.
        let request = arp_frame(
            MacAddress::BROADCAST,
            Operation::Request,
            (PEER_MAC, address(2)),
            (NOBODY, address(1)),
        );
        cores.inject(&request);
        cores.frames.clear();
        cores.inject(&from_station(2, &syn(port, 9000), &[]));
        let sent = segments(&mut cores);
        let [(to, reset)] = sent.as_slice() else { panic!("core {core}: {sent:?}") };
        assert_eq!((*to, reset.destination_port), (PEER_MAC, port));
        assert!(reset.flags.contains(Flags::RST));
    }
}

/// Connections to the device's own address: both ends lie at the cores that own their flows.
#[test]
fn cores_connect_to_each_other_by_the_devices_own_address() {
    let mut cores = device(&config());
    cores.listen(PORT, 64);
    cores.settle();
    let own = SocketAddr::new(address(1).into(), PORT);
    let (mut acceptors, mut between) = (BTreeSet::new(), 0);
    for core in (0..CORES).cycle().take(24) {
        cores.connect(core, 1, None, own);
        cores.settle();
        let events = cores.take_events(core);
        let opened = events.iter().find_map(|event| match event {
            Event::Connected { connection, local, .. } => Some((*connection, *local)),
            _ => None,
        });
        let (connection, local) = opened.unwrap_or_else(|| panic!("core {core}: {events:?}"));
        assert_eq!(cores.owner(own, local), core, "what the listener sends");
        let acceptor = cores.owner(local, own);
        let octets = vec![core; 3000].into_boxed_slice();
        cores.command(core, Command::Stream { connection, octets, then: AfterStream::Stay });
        cores.settle();
        assert_eq!(received(&mut cores, acceptor), vec![core; 3000]);
        acceptors.insert(acceptor);
        between += u32::from(acceptor != core);
    }
    assert!(acceptors.len() == usize::from(CORES) && between > 8, "{acceptors:?}, {between} of 24");
    assert!(cores.frames.is_empty(), "nothing reaches the wire");
    assert_eq!(cores.dropped(DropCause::NoTransmitBuffer), 0);
    // None from the wire passes for a frame of the device's own.
    let before = cores.dropped(DropCause::BadSource);
    cores.inject(&from_station(1, &syn(50_000, PORT), &[]));
    assert_eq!(cores.dropped(DropCause::BadSource), before + 1);
}

/// A whole window between two cores, in as many segments as it takes.
#[test]
fn cores_send_each_other_much() {
    let mut cores = device(&config());
    cores.listen(PORT, 64);
    cores.settle();
    let own = SocketAddr::new(address(1).into(), PORT);
    let connection = loop {
        cores.connect(0, 1, None, own);
        cores.settle();
        let opened = cores.take_events(0).into_iter().find_map(|event| match event {
            Event::Connected { connection, local, .. } => Some((connection, local)),
            _ => None,
        });
        let (connection, local) = opened.expect("it opens");
        if cores.owner(local, own) == 1 {
            break connection;
        }
    };
    cores.take_events(1);
    for n in 0..limits::STREAM_SEND_PIECES as u8 {
        let octets = vec![n; 1000].into_boxed_slice();
        cores.command(0, Command::Stream { connection, octets, then: AfterStream::Stay });
    }
    // The other core acknowledges nothing: the sender has its initial window on the way.
    for _ in 0..20 {
        cores.poll(0);
    }
    assert!(cores.take_events(1).is_empty());
    cores.pass_ms(20);
    let expected: Vec<u8> = (0..limits::STREAM_SEND_PIECES as u8).flat_map(|n| [n; 1000]).collect();
    assert_eq!(received(&mut cores, 1), expected);
    assert_eq!(cores.dropped(DropCause::NoTransmitBuffer), 0);
}

/// Of what a device does for strangers each core does its part.
#[test]
fn limits_on_replies_to_strangers_are_those_of_the_device() {
    let mut cores = device_with_peer();
    let per_core = limits::RESETS_PER_SECOND / u32::from(CORES);
    let mut resets = 0;
    for n in 0..2 * per_core {
        cores.inject(&from_peer(Flags::ACK, 9000, PEER_ISS, SeqNumber(n), &[]));
        resets += segments(&mut cores).len() as u32;
        assert!(cores.now < Instant::from_nanos(SECOND), "within a second");
    }
    assert!((per_core / 2..=per_core).contains(&resets), "{resets} of {per_core}");
}

/// Half-open connections of a listener of `backlog` are at most `ceil(2b/N)` at a core; SYNs beyond get
/// cookies.
#[test]
fn a_listeners_backlog_is_divided() {
    let mut cores = device_with_peer();
    let backlog = 10;
    cores.listen(PORT, backlog);
    cores.settle();
    for host in 10..250 {
        cores.inject(&from_station(host, &syn(4000, PORT), &[]));
    }
    let half_open: Vec<_> = cores.all.iter().map(|core| core.usage().half_open).collect();
    assert_eq!(half_open, [(2 * backlog as usize).div_ceil(CORES.into()); CORES as usize]);
}
