//! Frames of every kind that a queue may receive.

use std::net::{IpAddr, SocketAddr};

use crate::wire::ethernet::{EtherType, Header, MacAddress, Tag};
use crate::wire::flow::Flow;
use crate::wire::ipv4::{self, Protocol};
use crate::wire::{icmpv6, ipv6};

/// Octets of the payload of a segment: its frame needs no padding.
const PAYLOAD: usize = 40;

/// Returns a frame with `packet`, in a VLAN or in none.
pub(super) fn frame(vlan: Option<u16>, ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let mut octets = vec![0; Header::LEN];
    let outer = if vlan.is_some() { EtherType::VLAN } else { ethertype };
    Header { destination: MacAddress([2; 6]), source: MacAddress([4; 6]), ethertype: outer }
        .emit(&mut octets);
    if let Some(vlan) = vlan {
        let mut tag = [0; Tag::LEN];
        Tag { vlan, ethertype }.emit(&mut tag);
        octets.extend(tag);
    }
    octets.extend(packet);
    octets
}

/// Returns an IP packet, of IPv4 with so many words of options.
pub(super) fn packet(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    words: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut octets;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            octets = vec![0; ipv4::Header::LEN];
            ipv4::Header {
                source,
                destination,
                protocol,
                ttl: 64,
                total_len: (ipv4::Header::LEN + usize::from(words) * 4 + payload.len()) as u16,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                identification: 7,
                ecn: 0,
                dscp: 0,
            }
            .emit(&mut octets);
            octets[0] += words;
            // No-Operation.
            octets.extend(vec![1; usize::from(words) * 4]);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            octets = vec![0; ipv6::Header::LEN];
            ipv6::Header {
                source,
                destination,
                next_header: protocol,
                hop_limit: 64,
                payload_len: payload.len() as u16,
                flow_label: 0,
                ecn: 0,
                dscp: 0,
            }
            .emit(&mut octets);
        }
        _ => panic!("two families"),
    }
    octets.extend(payload);
    octets
}

pub(super) fn ethertype_of(address: IpAddr) -> EtherType {
    if address.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 }
}

/// Returns a segment's packet, whose sequence number is `number`.
pub(super) fn segment_packet(flow: &Flow, number: u32, words: u8) -> Vec<u8> {
    let mut tcp = Vec::new();
    tcp.extend(flow.source_port().to_be_bytes());
    tcp.extend(flow.destination_port().to_be_bytes());
    tcp.extend(number.to_be_bytes());
    tcp.extend([0; PAYLOAD]);
    packet(flow.source(), flow.destination(), Protocol::TCP, words, &tcp)
}

/// Returns a segment's frame, whose sequence number is `number`.
pub(super) fn segment(flow: &Flow, number: u32) -> Vec<u8> {
    frame(None, ethertype_of(flow.source()), &segment_packet(flow, number, 0))
}

/// Returns an ICMP error that a router sends about a segment of ours, whose answers have `flow`.
pub(super) fn error_about(flow: &Flow, number: u32) -> Vec<u8> {
    let ends = |address: IpAddr, port| SocketAddr::new(address, port);
    let (ours, peers) =
        (ends(flow.destination(), flow.destination_port()), ends(flow.source(), flow.source_port()));
    let sent = segment_packet(&Flow::new(ours, peers).expect("one family"), number, 0);
    let (message_type, protocol) = if ours.is_ipv4() { (3, Protocol::ICMP) } else { (1, Protocol::ICMPV6) };
    let mut message = vec![message_type, 1, 0, 0, 0, 0, 0, 0];
    message.extend(&sent[..sent.len() - PAYLOAD]);
    let router = peers.ip();
    frame(None, ethertype_of(router), &packet(router, ours.ip(), protocol, 0, &message))
}

/// Returns an echo request, which `number` distinguishes from others.
pub(super) fn echo_request(flow: &Flow, number: u32) -> Vec<u8> {
    let is_ipv4 = flow.source().is_ipv4();
    let (message_type, protocol) = if is_ipv4 { (8, Protocol::ICMP) } else { (128, Protocol::ICMPV6) };
    let mut message = vec![message_type, 0, 0, 0];
    message.extend(number.to_be_bytes());
    message.extend([0; icmpv6::HEADER_LEN + PAYLOAD]);
    let packet = packet(flow.source(), flow.destination(), protocol, 0, &message);
    frame(None, ethertype_of(flow.source()), &packet)
}

/// Returns a fragment of a segment over IPv4, the first one or another.
pub(super) fn fragment(flow: &Flow, number: u32, is_first: bool) -> Vec<u8> {
    let mut packet = segment_packet(flow, number, 0);
    packet[6..8].copy_from_slice(if is_first { &[0x20, 0] } else { &[0, 9] });
    frame(None, EtherType::IPV4, &packet)
}

/// Returns a flow to our address over one family.
pub(super) fn flow(host: u8, remote_port: u16, v6: bool) -> Flow {
    let address = |host: u8| -> IpAddr {
        if v6 { [0xfd00, 0, 0, 0, 0, 0, 0, host.into()].into() } else { [198, 18, 0, host].into() }
    };
    Flow::new((address(host), remote_port).into(), (address(1), 7471).into()).expect("one family")
}

/// Returns the sequence number of a segment in a frame without a tag.
pub(super) fn number_of(octets: &[u8], flow: &Flow) -> u32 {
    let at = Header::LEN + flow.network_octets() + 4;
    u32::from_be_bytes(*octets[at..].first_chunk().expect("a segment"))
}
