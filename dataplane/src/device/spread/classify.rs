//! Which flow a received frame belongs to, from its octets alone: any octets, of which nothing is verified.

use crate::steering::classify::{flow_of_frame, packet_of_frame};
use crate::wire::ethernet::EtherType;
use crate::wire::flow::Flow;
use crate::wire::ipv4::{self, Protocol};
use crate::wire::quoted::Segment;
use crate::wire::{icmp, icmpv6, ipv6};

/// What a received frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A TCP segment, whole, and directly after the header of IPv4, with options or without, or of IPv6.
    Segment(Flow),
    /// An ICMP error that quotes a segment. The flow is that of the peer's segments, as they are received.
    QuotedSegment(Flow),
    /// Anything else: ARP, Neighbor Discovery, echo, fragments, extension headers, malformed packets.
    Other,
}

/// Where an IPv4 header has the fragment fields and the protocol, and an IPv6 header the next header.
const FRAGMENT_FIELDS: usize = 6;
const PROTOCOL: usize = 9;
const NEXT_HEADER: usize = 6;

/// The bits of the fragment fields that a whole datagram has clear: More Fragments and the offset.
const FRAGMENT: u16 = 0x3fff;

/// The errors among ICMP's messages (RFC 1122 §3.2.2), and the first that is none among ICMPv6's (RFC 4443
/// §2.1).
const ICMP_ERRORS: [u8; 3] = [3, 11, 12];
const ICMPV6_INFORMATIONAL: u8 = 128;

/// Returns true for a segment over IPv4 whose header has options: some adapters do not find its ports.
pub(crate) fn has_ipv4_options(octets: &[u8]) -> bool {
    const NO_OPTIONS: u8 = 0x40 | (ipv4::Header::LEN / 4) as u8;
    let packet = packet_of_frame(octets);
    packet.is_some_and(|(ethertype, packet)| {
        ethertype == EtherType::IPV4 && packet.first() != Some(&NO_OPTIONS)
    })
}

/// Returns what the frame carries whose first octets, all headers among them, are `octets`.
#[inline]
pub(crate) fn classify(octets: &[u8]) -> Content {
    match flow_of_frame(octets) {
        Some(flow) => Content::Segment(flow),
        None => quoted_flow(octets).map_or(Content::Other, Content::QuotedSegment),
    }
}

/// Returns the flow of the segment that the ICMP error in a frame quotes, as its segments are received: the
/// quoted one went out, so these go the other way.
#[inline(never)]
fn quoted_flow(octets: &[u8]) -> Option<Flow> {
    let segment = match packet_of_frame(octets)? {
        (EtherType::IPV4, packet) => quoted_over_ipv4(packet),
        (EtherType::IPV6, packet) => quoted_over_ipv6(packet),
        _ => None,
    }?;
    Flow::new(segment.destination, segment.source)
}

fn quoted_over_ipv4(packet: &[u8]) -> Option<Segment> {
    let header = packet.first_chunk::<{ ipv4::Header::LEN }>()?;
    let octets = usize::from(header[0] & 0x0f) * 4;
    let fragment = u16::from_be_bytes([header[FRAGMENT_FIELDS], header[FRAGMENT_FIELDS + 1]]);
    let message = packet.get(octets..)?;
    let is_error = header[0] >> 4 == 4
        && octets >= ipv4::Header::LEN
        && fragment & FRAGMENT == 0
        && header[PROTOCOL] == Protocol::ICMP.0
        && ICMP_ERRORS.contains(message.first()?);
    if is_error { Segment::in_ipv4(message.get(icmp::HEADER_LEN..)?) } else { None }
}

fn quoted_over_ipv6(packet: &[u8]) -> Option<Segment> {
    let (header, message) = packet.split_at_checked(ipv6::Header::LEN)?;
    let is_error = header[0] >> 4 == 6
        && header[NEXT_HEADER] == Protocol::ICMPV6.0
        && *message.first()? < ICMPV6_INFORMATIONAL;
    if is_error { Segment::in_ipv6(message.get(icmpv6::HEADER_LEN..)?) } else { None }
}
