//! The packet that an ICMP error quotes: the fields that identify its connection.

use core::net::SocketAddr;

use super::ipv4::{self, Protocol};
use super::ipv6;
use super::tcp::SeqNumber;

/// The TCP segment an ICMP error is about, as we sent it if the error is true (RFC 5927 §4). Nothing of it is
/// verified: the quotation ends before the checksum's octets do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The source address.
    pub source: SocketAddr,
    /// The destination address.
    pub destination: SocketAddr,
    /// Its first octet.
    pub seq: SeqNumber,
    /// Octets of the IP packet it was in.
    pub packet_octets: u32,
}

/// Ports and sequence number: the eight octets of a transport header that RFC 792 requires routers to quote.
const PORTS_AND_SEQUENCE: usize = 8;

impl Segment {
    /// The segment in a quoted IPv4 packet; `None` when it is none, or not its first fragment, or not enough
    /// is quoted.
    pub fn in_ipv4(original: &[u8]) -> Option<Self> {
        let (header, header_octets) = ipv4::Header::parse_for(original, usize::from(u16::MAX)).ok()?;
        if header.protocol != Protocol::TCP || header.fragment_offset != 0 {
            return None;
        }
        let (source, destination) = (header.source.into(), header.destination.into());
        Self::of(source, destination, original.get(header_octets..)?, header.total_len.into())
    }

    /// The segment in a quoted IPv6 packet; `None` as for [`in_ipv4`](Self::in_ipv4).
    pub fn in_ipv6(original: &[u8]) -> Option<Self> {
        let header = ipv6::Header::parse_for(original, usize::MAX).ok()?;
        let upper = ipv6::upper(&header, original).ok()?;
        if upper.protocol != Protocol::TCP || upper.fragment.is_some_and(|fragment| fragment.offset != 0) {
            return None;
        }
        let (source, destination) = (header.source.into(), header.destination.into());
        let packet_octets = ipv6::Header::LEN as u32 + u32::from(header.payload_len);
        Self::of(source, destination, original.get(upper.offset..)?, packet_octets)
    }

    fn of(
        source: core::net::IpAddr,
        destination: core::net::IpAddr,
        transport: &[u8],
        packet_octets: u32,
    ) -> Option<Self> {
        let [a, b, c, d, seq @ ..] = *transport.first_chunk::<PORTS_AND_SEQUENCE>()?;
        Some(Self {
            source: SocketAddr::new(source, u16::from_be_bytes([a, b])),
            destination: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
            seq: SeqNumber(u32::from_be_bytes(seq)),
            packet_octets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::icmp;

    /// A SYN of Linux over IPv6.
    const SYN: &[u8] = include_bytes!("../../tests/vectors/frames/tcp_syn.bin");

    #[test]
    fn a_segment_is_known_by_its_first_octets() {
        let expected = Segment {
            source: "[fd00::1]:46262".parse().unwrap(),
            destination: "[fd00::2]:7471".parse().unwrap(),
            seq: SeqNumber(0xb27d_3ebb),
            packet_octets: 80,
        };
        assert_eq!(Segment::in_ipv6(&SYN[14..]), Some(expected));
        assert_eq!(Segment::in_ipv6(&SYN[14..62]), Some(expected), "eight octets of TCP are enough");
        assert_eq!(Segment::in_ipv6(&SYN[14..61]), None);
        assert_eq!(Segment::in_ipv4(&SYN[14..]), None);
    }

    #[test]
    fn a_quotation_is_shorter_than_its_packet() {
        let frame: &[u8] = include_bytes!("../../tests/vectors/frames/fragmentation_needed.bin");
        let Ok(icmp::Message::DestinationUnreachable { code: 4, next_hop_mtu: 1400, original }) =
            icmp::Message::parse(&frame[34..])
        else {
            panic!("no report of the MTU")
        };
        assert_eq!(Segment::in_ipv4(original), None, "it quotes an echo request");
        // The same packet as TCP: ports and sequence number are the first octets after the header.
        let mut original = original.to_vec();
        original[9] = Protocol::TCP.0;
        original[20..28].copy_from_slice(&[0x1d, 0x2f, 0xb4, 0xb6, 0, 0, 1, 2]);
        let expected = Segment {
            source: "198.18.0.1:7471".parse().unwrap(),
            destination: "198.18.1.1:46262".parse().unwrap(),
            seq: SeqNumber(0x102),
            packet_octets: 1408,
        };
        assert_eq!(Segment::in_ipv4(&original), Some(expected));
        assert_eq!(Segment::in_ipv4(&original[..28]), Some(expected));
        assert_eq!(Segment::in_ipv4(&original[..27]), None);
        original[7] = 1;
        assert_eq!(Segment::in_ipv4(&original), None, "a later fragment has no ports");
    }
}
