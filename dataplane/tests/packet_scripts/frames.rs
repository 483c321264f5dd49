//! The peer's frames: segments, whole and in fragments, and what routers say of segments.

use std::ops::Range;

use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ethernet::{self, EtherType};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{self, Header};

use super::script::IcmpMessage;
use crate::common::address;
use crate::common::raw::{OUR_MAC, PEER_MAC};

/// What the IP header of a packet of the peer says.
#[derive(Clone, Copy)]
pub struct Ip {
    pub ecn: u8,
    pub identification: u16,
}

fn frame(ip: ipv4::Header, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::Header::LEN + ipv4::Header::LEN];
    ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::IPV4 }.emit(&mut frame);
    let total_len = (ipv4::Header::LEN + payload.len()) as u16;
    ipv4::Header { total_len, ..ip }.emit(&mut frame[ethernet::Header::LEN..]);
    frame.extend_from_slice(payload);
    frame
}

fn header(ip: Ip, protocol: Protocol) -> ipv4::Header {
    ipv4::Header {
        source: address(2),
        destination: address(1),
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

/// The frames of a segment: one, or one for each of `fragments`.
pub fn segment(ip: Ip, tcp: &Header, payload: &[u8], fragments: &[Range<usize>]) -> Vec<Vec<u8>> {
    let mut segment = vec![0; tcp.header_len()];
    tcp.emit(&mut segment);
    segment.extend_from_slice(payload);
    let mut sum = checksum::ipv4_pseudo_header(address(2), address(1), Protocol::TCP.0, segment.len() as u16);
    sum.add(&segment);
    tcp::set_checksum(&mut segment, sum.finish());
    let whole = header(ip, Protocol::TCP);
    if fragments.is_empty() {
        return vec![frame(whole, &segment)];
    }
    let fragment = |range: &Range<usize>| {
        let end = range.end.min(segment.len());
        let ip = ipv4::Header {
            dont_fragment: false,
            more_fragments: end < segment.len(),
            fragment_offset: range.start as u16,
            ..whole
        };
        frame(ip, &segment[range.start..end])
    };
    fragments.iter().map(fragment).collect()
}

/// An ICMP message about the segment of the core that `quoted` is the header of (RFC 792): IP header and eight octets.
pub fn icmp(message: IcmpMessage, quoted: &Header, octets: u32) -> Vec<u8> {
    let (code, mtu) = match message {
        IcmpMessage::Unreachable(code) => (code, 0),
        IcmpMessage::TooBig(mtu) => (4, mtu as u16),
    };
    let mut icmp = vec![3, code, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    let mut original = vec![0; ipv4::Header::LEN];
    let total_len = (ipv4::Header::LEN + quoted.header_len() + octets as usize) as u16;
    ipv4::Header {
        source: address(1),
        destination: address(2),
        ttl: 63,
        total_len,
        ..header(Ip { ecn: 0, identification: 1 }, Protocol::TCP)
    }
    .emit(&mut original);
    let mut segment = vec![0; quoted.header_len()];
    quoted.emit(&mut segment);
    icmp.extend(original);
    icmp.extend(&segment[..8]);
    let sum = checksum::sum(&icmp).finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    frame(header(Ip { ecn: 0, identification: 2 }, Protocol::ICMP), &icmp)
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
