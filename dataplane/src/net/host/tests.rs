//! Tests of the IP host: its addresses, neighbours, and frames to itself.

use std::net::Ipv6Addr;

use super::*;
use crate::device::sim::{self, EndConfig, SimDevice};
use crate::net::addresses::Cidr;
use crate::net::link::Egress;
use crate::net::output::network_octets;
use crate::wire::arp;
use crate::wire::ethernet::{self, EtherType, MacAddress};
use crate::wire::ipv4::{self, Protocol};
use crate::wire::tcp::{self, Flags, Header, Options, SeqNumber, Timestamps};
use crate::wire::tcp_rdma::{DEFAULT_KIND, RdmaOption};
use crate::wire::{checksum, icmp, icmpv6, ipv6};

const V4: [u8; 4] = [198, 18, 0, 1];
const PEER: [u8; 4] = [198, 18, 0, 2];
const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const NOW: Instant = Instant::from_nanos(1000);

/// The configuration of a host with one address.
fn with_address(address: [u8; 4]) -> Config {
    Config {
        addresses: [Cidr::new(address.into(), 24)].into_iter().collect(),
        routes: Routes::new(),
        neighbours: ArrayVec::new(),
        presence: Presence::Own,
        duplicate_address_detection: true,
        vlan: None,
        rdma_option_kind: DEFAULT_KIND,
    }
}

fn config() -> Config {
    let mut config = with_address(V4);
    config.addresses.push(Cidr::new(V6.into(), 64));
    config.duplicate_address_detection = false;
    config
}

/// Returns a host whose addresses are announced, and the other end of its link.
fn host(config: Config) -> (Host<SimDevice>, SimDevice) {
    let (device, mut wire) = sim::link(1, EndConfig::a(), EndConfig::b());
    let mut host = Host::new(device, config, Secret::new([1, 2]), None);
    assert!(host.detect_duplicates(Instant::from_nanos(1)).is_some());
    sent(&mut host, &mut wire);
    (host, wire)
}

/// Returns the frames that the host has sent.
fn sent(host: &mut Host<SimDevice>, wire: &mut SimDevice) -> Vec<Vec<u8>> {
    host.interface.flush(NOW);
    let mut frames = Vec::new();
    wire.receive(NOW + 1_000_000, &mut frames, 64);
    frames.iter().map(|frame| frame.piece(0).unwrap_or_default().to_vec()).collect()
}

/// Where a machine's programs share the host's address, the port tells which of them a segment to it is for,
/// connection by connection.
#[test]
fn segments_to_an_own_address_go_where_their_port_is() {
    let ours = FlowKey { local: V4.into(), remote: V4.into(), remote_port: 7471, local_port: 4791 };
    let of_a_program = FlowKey { remote_port: 5000, ..ours };
    for ours_first in [true, false] {
        let (mut host, _wire) = host(Config { presence: Presence::Shared, ..config() });
        host.neighbourhood.reaches_programs = true;
        host.neighbourhood.answer_for(ours.remote_port);
        let mut flows = [(ours, true), (of_a_program, false)];
        if !ours_first {
            flows.reverse();
        }
        for (flow, is_ours) in flows {
            let path = host.path(&flow, 0, NOW).unwrap();
            assert_eq!(host.template(path).is_loopback(), is_ours, "{}", flow.remote_port);
        }
    }
}

fn flow() -> FlowKey {
    FlowKey { local: V4.into(), remote: PEER.into(), remote_port: 4791, local_port: 7471 }
}

/// A frame with `octets` after an Ethernet header for `destination`.
fn frame(
    wire: &mut SimDevice,
    destination: MacAddress,
    ethertype: EtherType,
    octets: &[u8],
) -> <SimDevice as Device>::Frame {
    let source = wire.mac();
    let mut frame = wire.allocate().unwrap();
    let room = frame.append(ethernet::Header::LEN + octets.len()).unwrap();
    ethernet::Header { destination, source, ethertype }.emit(room);
    room[ethernet::Header::LEN..].copy_from_slice(octets);
    frame
}

fn arp_packet(wire: &SimDevice, operation: arp::Operation, target_ip: [u8; 4]) -> Vec<u8> {
    let mut octets = vec![0; arp::Packet::LEN];
    let packet = arp::Packet {
        operation,
        sender_mac: wire.mac(),
        sender_ip: PEER.into(),
        target_mac: MacAddress::default(),
        target_ip: target_ip.into(),
    };
    packet.emit(&mut octets);
    octets
}

/// An echo request of the host to itself, without its Ethernet header.
fn echo_request(v6: bool) -> Vec<u8> {
    echo_request_of(v6, V4, b"hi")
}

/// An echo request with `data` to the host, without its Ethernet header. It is from `source`, or from the
/// address of IPv6 that ends as that does.
fn echo_request_of(v6: bool, source: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut message = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend(data);
    if v6 {
        let last = u16::from(source[3]);
        let source_v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
        icmpv6::set_checksum(&mut message, source_v6, V6);
        let mut packet = vec![0; ipv6::Header::LEN];
        ipv6::Header {
            source: source_v6,
            destination: V6,
            next_header: Protocol::ICMPV6,
            hop_limit: 64,
            payload_len: message.len() as u16,
            flow_label: 0,
            ecn: 0,
            dscp: 0,
        }
        .emit(&mut packet);
        return [packet, message].concat();
    }
    let sum = checksum::sum(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0; ipv4::Header::LEN];
    ipv4::Header {
        source: source.into(),
        destination: V4.into(),
        protocol: Protocol::ICMP,
        ttl: 64,
        total_len: (ipv4::Header::LEN + message.len()) as u16,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        identification: 0,
        ecn: 0,
        dscp: 0,
    }
    .emit(&mut packet);
    [packet, message].concat()
}

/// RFC 1122 §3.2.2.6, RFC 4443 §4.2: all data of a request is returned, also where a device receives it in
/// several pieces.
#[test]
fn an_echo_request_in_several_pieces_is_answered() {
    for v6 in [false, true] {
        let near = EndConfig { receive_piece_octets: 64, ..EndConfig::a() };
        let (device, mut wire) = sim::link(1, near, EndConfig::b());
        let mut host = Host::new(device, config(), Secret::new([1, 2]), None);
        assert!(host.detect_duplicates(Instant::from_nanos(1)).is_some());
        sent(&mut host, &mut wire);
        let data: Vec<u8> = (0..300_u16).map(|n| n as u8).collect();
        let (ethertype, header) = if v6 { (EtherType::IPV6, 40) } else { (EtherType::IPV4, 20) };
        let request = echo_request_of(v6, PEER, &data);
        let frame = frame(&mut wire, host.interface.link.mac, ethertype, &request);
        wire.transmit(NOW, &mut [frame].into());
        let mut frames = Vec::new();
        host.interface.device.receive(NOW + 1_000_000, &mut frames, 1);
        let frame = frames.pop().expect("a request");
        assert!(frame.piece(1).is_some());
        assert!(matches!(host.receive(NOW, frame, Ingress::Wire), Ok(Inbound::Done)));
        let replies = sent(&mut host, &mut wire);
        let message = &replies[0][ethernet::Header::LEN + header..];
        assert_eq!((replies.len(), message[0]), (1, if v6 { 129 } else { 0 }));
        assert_eq!(message[8..][..data.len()], data);
    }
}

/// RFC 1122 §3.2.2.6, RFC 4443 §4.2: a ping of the host by itself is answered inside the host.
#[test]
fn an_echo_request_to_ourselves_is_answered_inside() {
    for v6 in [false, true] {
        let (mut host, mut wire) = host(config());
        let packet = echo_request(v6);
        let mut frame = host.interface.device.allocate().unwrap();
        let room = frame.append(host.interface.link.octets() + packet.len()).unwrap();
        let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        host.interface.link.write(room, host.interface.link.mac, ethertype);
        room[ethernet::Header::LEN..].copy_from_slice(&packet);
        host.interface.loop_back(frame);
        assert!(matches!(receive_looped(&mut host), Some(Ok(Inbound::Done))));
        assert_eq!(host.next_deadline(), Instant::ZERO, "the reply waits to be delivered");
        assert_eq!(host.interface.looped_frames(), 1);
        let reply = host.interface.loopback.pop().expect("a reply");
        let header_octets = packet.len() - 10;
        let message = &reply.piece(0).unwrap()[ethernet::Header::LEN + header_octets..];
        if v6 {
            let parsed = icmpv6::Message::parse(message, V6, V6);
            assert!(!matches!(parsed, Ok(icmpv6::Message::EchoRequest { .. }) | Err(_)));
            assert_eq!(message[0], 129);
        } else {
            let expected = icmp::Message::EchoReply { id: 0x1234, seq: 1, payload: b"hi" };
            assert_eq!(icmp::Message::parse(message), Ok(expected));
        }
        host.interface.loop_back(reply);
        assert!(receive_looped(&mut host).is_some() && receive_looped(&mut host).is_none());
        assert_eq!(host.interface.counters().frames_looped, 2);
        assert!(sent(&mut host, &mut wire).is_empty(), "nothing has left");
    }
}

/// On a net_tap the port and the kernel's interface share a hardware address. Frames for the kernel are sent
/// to it.
#[test]
fn a_neighbour_with_our_hardware_address_is_reached_over_the_wire() {
    let mut config = config();
    config.neighbours.push(StaticNeighbour { address: PEER.into(), mac: EndConfig::a().mac });
    let (mut host, mut wire) = host(config);
    let key = flow();
    let egress = host.neighbourhood.resolve(&key, NOW).expect("a static neighbour");
    assert_eq!(egress, Egress::Wire(EndConfig::a().mac));
    host.send_bare_by(egress, key, &Header { flags: Flags::SYN, ..Header::default() });
    let frames = sent(&mut host, &mut wire);
    let is_syn = |octets: &&Vec<u8>| {
        octets.get(12..14) == Some(&[8, 0]) && octets.get(23) == Some(&6) && octets.get(47) == Some(&2)
    };
    assert_eq!(frames.iter().filter(is_syn).count(), 1, "of {} frames", frames.len());
    assert_eq!((host.interface.looped_frames(), host.interface.counters().frames_looped), (0, 0));
}

/// Receives the one frame from the host to itself, if there is one.
fn receive_looped<D: Device>(host: &mut Host<D>) -> Option<Result<Inbound<D::Frame>, DropCause>> {
    let mut burst = host.interface.dequeue_looped_burst();
    let frame = burst.pop();
    host.interface.end_burst(burst);
    Some(host.receive(NOW, frame?, Ingress::Loopback))
}

#[test]
fn an_own_address_is_reached_by_loopback() {
    let (mut host, mut wire) = host(config());
    let key = FlowKey { remote: V4.into(), ..flow() };
    assert_eq!(host.neighbourhood.resolve(&key, NOW), Some(Egress::Loopback));
    host.send_bare(key, &Header { flags: Flags::RST, ..Header::default() });
    let Some(Ok(Inbound::Segment(segment, ..))) = receive_looped(&mut host) else { panic!("no segment") };
    assert_eq!(FlowKey::of_received(&segment.flow).local_port, key.remote_port);
    assert!(sent(&mut host, &mut wire).is_empty());
}

/// An ARP reply is handed up only if packets wait for it.
#[test]
fn the_neighbour_that_packets_wait_for_is_reported() {
    let (mut host, mut wire) = host(config());
    assert_eq!(host.neighbourhood.resolve(&flow(), NOW), None);
    assert!(host.neighbourhood.is_unresolved(PEER.into()));
    host.solicit_neighbours(NOW);
    assert_eq!(sent(&mut host, &mut wire).len(), 1, "a request");
    let reply = arp_packet(&wire, arp::Operation::Reply, V4);
    let mac = host.interface.link.mac;
    let inbound = host.receive(NOW, frame(&mut wire, mac, EtherType::ARP, &reply), Ingress::Wire);
    assert!(matches!(inbound, Ok(Inbound::NeighbourResolved(address)) if address == IpAddr::from(PEER)));
    assert_eq!(host.neighbourhood.resolve(&flow(), NOW), Some(Egress::Wire(wire.mac())));
    let inbound = host.receive(NOW, frame(&mut wire, mac, EtherType::ARP, &reply), Ingress::Wire);
    assert!(matches!(inbound, Ok(Inbound::Done)));
}

/// A packet between other stations may resolve a neighbour, and counts as one for another address all the
/// same.
#[test]
fn a_request_for_another_station_resolves_its_sender() {
    let (mut host, mut wire) = host(config());
    host.neighbourhood.resolve(&flow(), NOW);
    let request = arp_packet(&wire, arp::Operation::Request, [198, 18, 0, 3]);
    let inbound =
        host.receive(NOW, frame(&mut wire, MacAddress::BROADCAST, EtherType::ARP, &request), Ingress::Wire);
    assert!(matches!(inbound, Ok(Inbound::NeighbourResolved(_))));
    assert_eq!(host.interface.counters().drops.get(DropCause::OtherAddress), 1);
    let inbound =
        host.receive(NOW, frame(&mut wire, MacAddress::BROADCAST, EtherType::ARP, &request), Ingress::Wire);
    assert!(matches!(inbound, Ok(Inbound::Done)));
    assert_eq!(host.interface.counters().drops.get(DropCause::OtherAddress), 2);
}

/// The headers that one host writes are those that another reads, and the payload follows them.
#[test]
fn a_segment_arrives_as_it_was_sent() {
    for (transmit_checksums, transmit_ip_checksums) in [(false, false), (true, false), (true, true)] {
        let a = EndConfig { transmit_checksums, transmit_ip_checksums, ..EndConfig::a() };
        let (device, wire) = sim::link(1, a, EndConfig::b());
        let mut sender = Host::new(device, config(), Secret::new([1, 2]), None);
        let mut receiver = Host::new(wire, with_address(PEER), Secret::new([3, 4]), None);
        let (key, payload) = (flow(), b"octets");
        let header = Header { flags: Flags::ACK, seq: SeqNumber(7), ..Header::default() };
        let mut template = sender.new_template(&key, Egress::Wire(receiver.interface.link.mac));
        let mut frame = sender.interface.empty_frame().unwrap();
        let headers = template.octets_with(&header);
        frame.append(headers + payload.len()).unwrap()[headers..].copy_from_slice(payload);
        template.write_header(&mut frame, &header, payload.len(), 0b10, DEFAULT_KIND);
        sender.interface.queue_reply(frame);
        sender.interface.flush(NOW);
        let mut burst = receiver.interface.dequeue_burst(NOW + 1_000_000).unwrap();
        let inbound = receiver.receive(NOW, burst.remove(0), Ingress::Wire);
        receiver.interface.end_burst(burst);
        let Ok(Inbound::Segment(segment, parsed, frame)) = inbound else { panic!("no segment") };
        let (source, destination) = (segment.flow.source(), segment.flow.destination());
        assert_eq!((source, destination), (key.local, key.remote));
        assert_eq!((segment.seq, parsed.seq, segment.ecn), (header.seq, header.seq, 0b10));
        let octets = &frame.piece(0).unwrap()[segment.payload_offset..];
        assert_eq!(&octets[..segment.payload_octets], payload);
    }
}

/// Writes the octets of a segment field by field, as RFC 791, RFC 8200 and RFC 9293 have them, with `octets`
/// of payload.
fn written_by_field(
    host: &Host<SimDevice>,
    key: &FlowKey,
    egress: Egress,
    header: &Header,
    octets: usize,
    ecn: u8,
) -> Vec<u8> {
    let mut segment = vec![0; header.header_len()];
    let ports = (key.local_port, key.remote_port);
    Header { source_port: ports.0, destination_port: ports.1, ..header.clone() }.emit(&mut segment);
    segment.extend((0..octets).map(|octet| octet as u8));
    let mut pseudo = checksum::pseudo_header(key.local, key.remote, Protocol::TCP.0, segment.len() as u16);
    let field = if host.interface.capabilities.transmit_checksums || egress.is_loopback() {
        pseudo.folded()
    } else {
        pseudo.add(&segment);
        pseudo.finish()
    };
    tcp::set_checksum(&mut segment, field);
    let mut link = vec![0; host.interface.link.octets()];
    let ethertype = if key.remote.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    host.interface.link.write(&mut link, host.interface.link.destination(egress), ethertype);
    let mut ip = vec![0; network_octets(key.remote)];
    match (key.local, key.remote) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = ipv4::Header {
                source,
                destination,
                protocol: Protocol::TCP,
                ttl: limits::TIME_TO_LIVE,
                total_len: (ip.len() + segment.len()) as u16,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                identification: 0,
                ecn,
                dscp: 0,
            };
            if host.interface.capabilities.transmit_ip_checksums {
                header.emit_without_checksum(&mut ip);
            } else {
                header.emit(&mut ip);
            }
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Header {
            source,
            destination,
            next_header: Protocol::TCP,
            hop_limit: limits::TIME_TO_LIVE,
            payload_len: segment.len() as u16,
            flow_label: host.flow_label(key),
            ecn,
            dscp: 0,
        }
        .emit(&mut ip),
        _ => panic!("a flow between two families"),
    }
    [link, ip, segment].concat()
}

/// Headers with and without options, in an order in which each differs from the one before.
fn headers() -> Vec<(Header, usize, u8)> {
    let clock = |value| Some(Timestamps { value, echo: 6 });
    let header = |seq: u32, flags: Flags, options: Options| Header {
        seq: SeqNumber(seq),
        ack: SeqNumber(seq ^ 0x55),
        flags: flags | Flags::ACK,
        window: 900 + seq as u16,
        options,
        ..Header::default()
    };
    let block = (SeqNumber(70), SeqNumber(80));
    let none = Options::default;
    let clocks = |value| Options { timestamps: clock(value), ..none() };
    let sack = |timestamps| Options { timestamps, sack: [block].into_iter().collect(), ..none() };
    vec![
        (header(1, Flags::SYN, Options { mss: Some(1460), window_scale: Some(7), ..clocks(1) }), 0, 0),
        (header(2, Flags::empty(), clocks(2)), 0, 0),
        (header(3, Flags::PSH, clocks(3)), 101, 2),
        (header(4, Flags::empty(), clocks(3)), 101, 2),
        (header(5, Flags::PSH | Flags::ECE, clocks(4)), 101, 2),
        (header(6, Flags::empty(), sack(clock(4))), 0, 0),
        (header(7, Flags::CWR, clocks(5)), 1400, 2),
        (header(8, Flags::empty(), none()), 0, 0),
        (header(9, Flags::PSH, none()), 12, 0),
        (header(10, Flags::empty(), sack(None)), 0, 0),
        (header(11, Flags::FIN, none()), 0, 0),
        (header(12, Flags::PSH, clocks(6)), 1, 2),
    ]
}

/// A template writes the headers that are written field by field, whoever computes the checksums, over both
/// versions of IP, with and without a VLAN, whatever was written before; and the same when it goes on with
/// the next segments of a burst.
#[test]
fn a_template_has_the_headers_of_each_segment() {
    let peer = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    let flow6 = FlowKey { local: V6.into(), remote: peer.into(), ..flow() };
    let egresses = [Egress::Wire(MacAddress([2, 0, 0, 0, 0, 9])), Egress::Loopback];
    for (offloads, vlan) in
        [(false, false), (true, false), (true, true)].into_iter().flat_map(|o| [(o, None), (o, Some(7))])
    {
        let (transmit_checksums, transmit_ip_checksums) = offloads;
        let end = EndConfig { transmit_checksums, transmit_ip_checksums, ..EndConfig::a() };
        let (device, _wire) = sim::link(1, end, EndConfig::b());
        let mut host = Host::new(device, Config { vlan, ..config() }, Secret::new([1, 2]), None);
        for (key, egress) in [flow(), flow6].into_iter().flat_map(|key| egresses.map(|egress| (key, egress)))
        {
            let mut template = host.new_template(&key, egress);
            let frame_with = |host: &mut Host<SimDevice>, headers: usize, octets: usize| {
                let mut frame = host.interface.empty_frame().expect("a frame");
                let room = frame.append(headers + octets).expect("room");
                room[headers..].iter_mut().zip(0..).for_each(|(to, octet)| *to = octet as u8);
                frame
            };
            for (header, octets, ecn) in headers() {
                let mut frame = frame_with(&mut host, template.octets_with(&header), octets);
                template.write_header(&mut frame, &header, octets, ecn, DEFAULT_KIND);
                let expected = written_by_field(&host, &key, egress, &header, octets, ecn);
                let case = format!("{header:?} on {key:?}, {egress:?}, {offloads:?}, {vlan:?}");
                assert_eq!(frame.piece(0), Some(&expected[..]), "{case}");
                if !header.options.is_usual() {
                    continue;
                }
                for (seq, push, octets) in [(0, false, octets), (u32::MAX, true, octets), (7, false, 64)] {
                    let mut frame = frame_with(&mut host, template.octets(), octets);
                    template.write(&mut frame, SeqNumber(seq), push, octets);
                    let mut flags = header.flags;
                    flags.set(Flags::PSH, push);
                    let header = Header { seq: SeqNumber(seq), flags, ..header.clone() };
                    let expected = written_by_field(&host, &key, egress, &header, octets, ecn);
                    assert_eq!(frame.piece(0), Some(&expected[..]), "{seq} after {case}");
                    for body in [2, 14, 18] {
                        let option = RdmaOption::parse(&[0x11; 18][..body]).expect("a form of the option");
                        let mut frame = frame_with(&mut host, template.octets() + option.len(), octets);
                        let kind = DEFAULT_KIND;
                        template.write_with_option(&mut frame, header.seq, push, octets, &option, kind);
                        let options = Options { rdma: Some(option), ..header.options.clone() };
                        let annotated = Header { options, ..header.clone() };
                        let expected = written_by_field(&host, &key, egress, &annotated, octets, ecn);
                        assert_eq!(frame.piece(0), Some(&expected[..]), "{option:?}, {seq} after {case}");
                    }
                }
            }
        }
    }
}

/// A template is renewed when the hardware address that it leads to does not hold any more, and once in a
/// tick; without a next hop nothing leaves.
#[test]
fn a_template_is_renewed_when_the_path_changes() {
    let (mut host, mut wire) = host(config());
    let key = flow();
    assert!(host.path(&key, 0, NOW).is_none(), "the neighbour is unknown");
    let reply = arp_packet(&wire, arp::Operation::Reply, V4);
    let mac = host.interface.link.mac;
    let _ = host.receive(NOW, frame(&mut wire, mac, EtherType::ARP, &reply), Ingress::Wire);
    assert!(host.path(&key, 0, NOW).is_some());
    // The neighbour is silent when it is asked again: it counts as unreachable in the end.
    let mut now = NOW;
    while host.path(&key, 0, now).is_some() {
        assert!(now < NOW + 200 * crate::time::SECOND, "the template leads nowhere");
        now += crate::time::SECOND / 2;
        host.solicit_neighbours(now);
        sent(&mut host, &mut wire);
    }
    assert!(now > NOW + limits::NEIGHBOUR_REACHABLE_NS / 2, "it was reachable for a while: {now:?}");
    let _ = host.receive(now, frame(&mut wire, mac, EtherType::ARP, &reply), Ingress::Wire);
    assert!(host.path(&key, 0, now).is_some());
    // The host gives up an address: nothing leaves from it.
    let key = FlowKey { local: V6.into(), remote: V6.into(), ..key };
    assert!(host.path(&key, 0, now).is_some());
    host.neighbourhood.on_rival(&mut host.interface, V6, None, wire.mac());
    assert!(host.path(&key, 0, now).is_none());
}

/// Frames that are filled leave in their order, however many there are, to the device or to the host itself.
/// One that could not be filled is counted, and the others leave; where the device has no more, fewer do.
#[test]
fn filled_frames_leave_in_their_order() {
    let (device, mut wire) = sim::link(1, EndConfig::a(), EndConfig::b());
    let network = device.network();
    let mut host = Host::new(device, config(), Secret::new([1, 2]), None);
    let reply = arp_packet(&wire, arp::Operation::Reply, V4);
    host.neighbourhood.resolve(&flow(), NOW);
    let mac = host.interface.link.mac;
    let _ = host.receive(NOW, frame(&mut wire, mac, EtherType::ARP, &reply), Ingress::Wire);
    sent(&mut host, &mut wire);
    let looped = FlowKey { remote: V4.into(), ..flow() };
    for (key, is_looped) in [(flow(), false), (looped, true)] {
        // A frame that waits for the device, whatever is done with those after it.
        let waiting = frame(&mut wire, mac, EtherType::ARP, &[0; 46]);
        host.interface.queue_reply(waiting);
        let path = host.path(&key, 0, NOW).expect("the next hop is known");
        let drops = host.interface.counters().drops.get(DropCause::NoTransmitBuffer);
        let mut number = 0;
        let fill = |_: &_, frame: &mut <SimDevice as Device>::Frame| {
            number += 1;
            frame.append(60).unwrap().fill(number);
            number % 10 != 3
        };
        assert_eq!(host.send_filled(NOW, path, 20, fill), 20);
        assert_eq!(host.interface.counters().drops.get(DropCause::NoTransmitBuffer), drops + 2);
        let mut on_wire = sent(&mut host, &mut wire);
        assert_eq!(on_wire.remove(0)[12..14], EtherType::ARP.0.to_be_bytes(), "looped: {is_looped}");
        let numbers: Vec<u8> = if is_looped {
            assert!(on_wire.is_empty());
            let burst = host.interface.dequeue_looped_burst();
            burst.iter().map(|frame| frame.piece(0).unwrap()[0]).collect()
        } else {
            on_wire.iter().map(|octets| octets[0]).collect()
        };
        let expected: Vec<u8> = (1..=20).filter(|number| number % 10 != 3).collect();
        assert_eq!(numbers, expected, "looped: {is_looped}");
    }
    let path = host.path(&flow(), 0, NOW).expect("the next hop is known");
    network.set_transmit_credit(sim::End::A, Some(0));
    network.set_frame_limit(sim::End::A, 5);
    let fill = |_: &_, frame: &mut <SimDevice as Device>::Frame| frame.append(60).is_some();
    let there_were = host.send_filled(NOW, path, 20, fill);
    assert!((1..=5).contains(&there_were), "{there_were}");
    assert_eq!(host.interface.frames_to_send(), there_were);
}
