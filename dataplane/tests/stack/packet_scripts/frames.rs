//! Builds the peer's frames: segments, whole and in fragments, and routers' errors about segments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use warpline_dataplane::wire::ethernet::{self, EtherType};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{self, Header};
use warpline_dataplane::wire::{checksum, icmpv6, ipv6};

use super::script::IcmpMessage;
use crate::common::raw::{OUR_MAC, PEER_MAC};
use crate::common::{address, address_v6};

/// Which family the script runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The address of the core (1) or of the peer (2).
    pub fn address(self, host: u8) -> IpAddr {
        match self {
            Self::V4 => address(host).into(),
            Self::V6 => address_v6(host).into(),
        }
    }
}

/// Fields of the IP header of a packet of the peer.
#[derive(Clone, Copy)]
pub struct Ip {
    pub family: Family,
    pub ecn: u8,
    pub identification: u16,
}

fn frame(ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::Header::LEN];
    ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype }.emit(&mut frame);
    frame.extend_from_slice(packet);
    frame
}

fn packet_v4(header: ipv4::Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv4::Header::LEN];
    let total_len = (ipv4::Header::LEN + payload.len()) as u16;
    ipv4::Header { total_len, ..header }.emit(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

fn packet_v6(header: ipv6::Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv6::Header::LEN];
    ipv6::Header { payload_len: payload.len() as u16, ..header }.emit(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

fn header_v4(ip: Ip, protocol: Protocol, (source, destination): (Ipv4Addr, Ipv4Addr)) -> ipv4::Header {
    ipv4::Header {
        source,
        destination,
        protocol,
        ttl: 64,
        total_len: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        identification: ip.identification,
        ecn: ip.ecn,
        dscp: 0,
    }
}

fn header_v6(ip: Ip, protocol: Protocol, (source, destination): (Ipv6Addr, Ipv6Addr)) -> ipv6::Header {
    ipv6::Header {
        source,
        destination,
        next_header: protocol,
        hop_limit: 64,
        payload_len: 0,
        flow_label: 0,
        ecn: ip.ecn,
        dscp: 0,
    }
}

/// The frames of a segment: one, or one for each of `fragments`.
///
/// # Errors
///
/// Fragments of IPv6.
pub fn segment(
    ip: Ip,
    tcp: &Header,
    payload: &[u8],
    fragments: &[Range<usize>],
) -> Result<Vec<Vec<u8>>, String> {
    let mut segment = vec![0; tcp.header_len()];
    tcp.emit(&mut segment);
    segment.extend_from_slice(payload);
    let (source, destination) = (ip.family.address(2), ip.family.address(1));
    let mut sum = checksum::pseudo_header(source, destination, Protocol::TCP.0, segment.len() as u16);
    sum.add(&segment);
    tcp::set_checksum(&mut segment, sum.finish());
    match (ip.family, fragments) {
        (Family::V4, []) => {
            let whole = header_v4(ip, Protocol::TCP, (address(2), address(1)));
            Ok(vec![frame(EtherType::IPV4, &packet_v4(whole, &segment))])
        }
        (Family::V4, _) => Ok(fragments.iter().map(|range| fragment(ip, &segment, range)).collect()),
        (Family::V6, []) => {
            let whole = header_v6(ip, Protocol::TCP, (address_v6(2), address_v6(1)));
            Ok(vec![frame(EtherType::IPV6, &packet_v6(whole, &segment))])
        }
        (Family::V6, _) => Err("scripts have no fragments of IPv6".to_owned()),
    }
}

fn fragment(ip: Ip, segment: &[u8], range: &Range<usize>) -> Vec<u8> {
    let end = range.end.min(segment.len());
    let header = ipv4::Header {
        dont_fragment: false,
        more_fragments: end < segment.len(),
        fragment_offset: range.start as u16,
        ..header_v4(ip, Protocol::TCP, (address(2), address(1)))
    };
    frame(EtherType::IPV4, &packet_v4(header, &segment[range.start..end]))
}

/// An ICMP message about the segment of the core that `quoted` is the header of.
pub fn icmp(family: Family, message: IcmpMessage, quoted: &Header, octets: u32) -> Vec<u8> {
    let ip = Ip { family, ecn: 0, identification: 1 };
    let mut segment = vec![0; quoted.header_len()];
    quoted.emit(&mut segment);
    let segment_octets = quoted.header_len() + octets as usize;
    match family {
        Family::V4 => icmp_v4(ip, message, &segment[..8], segment_octets),
        Family::V6 => icmp_v6(ip, message, &segment, segment_octets),
    }
}

/// RFC 792: the IP header and eight octets are quoted.
fn icmp_v4(ip: Ip, message: IcmpMessage, quoted: &[u8], segment_octets: usize) -> Vec<u8> {
    let (code, mtu) = match message {
        IcmpMessage::Unreachable(code) => (code, 0),
        IcmpMessage::TooBig(mtu) => (4, mtu as u16),
    };
    let mut icmp = vec![3, code, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    let mut original = vec![0; ipv4::Header::LEN];
    let total_len = (ipv4::Header::LEN + segment_octets) as u16;
    let header = header_v4(ip, Protocol::TCP, (address(1), address(2)));
    ipv4::Header { ttl: 63, total_len, ..header }.emit(&mut original);
    icmp.extend(original);
    icmp.extend(quoted);
    let sum = checksum::sum(&icmp).finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = header_v4(ip, Protocol::ICMP, (address(2), address(1)));
    frame(EtherType::IPV4, &packet_v4(header, &icmp))
}

/// RFC 4443 §3: as much as fits is quoted; here the headers.
fn icmp_v6(ip: Ip, message: IcmpMessage, quoted: &[u8], segment_octets: usize) -> Vec<u8> {
    let (kind, code, mtu) = match message {
        // RFC 4443 §3.1 has other numbers for RFC 792's host, port and prohibited.
        IcmpMessage::Unreachable(code) => (1, [0, 3, 4, 4][usize::from(code.min(3))], 0),
        IcmpMessage::TooBig(mtu) => (2, 0, mtu),
    };
    let mut icmp = vec![kind, code, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    let mut original = vec![0; ipv6::Header::LEN];
    let header = header_v6(ip, Protocol::TCP, (address_v6(1), address_v6(2)));
    ipv6::Header { hop_limit: 63, payload_len: segment_octets as u16, ..header }.emit(&mut original);
    icmp.extend(original);
    icmp.extend(quoted);
    icmpv6::set_checksum(&mut icmp, address_v6(2), address_v6(1));
    let header = header_v6(ip, Protocol::ICMPV6, (address_v6(2), address_v6(1)));
    frame(EtherType::IPV6, &packet_v6(header, &icmp))
}

/// One FPDU of `octets` octets with an RDMA Write to `stag`, `to` (RFC 5044 §4, RFC 5041 §4.1).
pub fn fpdu(octets: usize, stag: u32, to: u64, payload: impl Fn(usize) -> u8) -> Result<Vec<u8>, String> {
    const OVERHEAD: usize = 2 + 14 + 4;
    if !octets.is_multiple_of(4) || octets < OVERHEAD {
        return Err(format!("no FPDU of an RDMA Write has {octets} octets and no PAD"));
    }
    let mut fpdu = ((octets - 6) as u16).to_be_bytes().to_vec();
    fpdu.extend([0xc1, 0x40]);
    fpdu.extend(stag.to_be_bytes());
    fpdu.extend(to.to_be_bytes());
    fpdu.extend((0..octets - OVERHEAD).map(|index| payload(to as usize + index)));
    fpdu.extend(crc32c::crc32c(&fpdu).to_le_bytes());
    Ok(fpdu)
}
