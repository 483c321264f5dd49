//! IPv6 headers (RFC 8200).

use core::net::Ipv6Addr;

use super::ipv4::Protocol;
use super::{Malformed, Reader, Writer, room};

/// The fixed header of an IPv6 packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Who sent the packet.
    pub source: Ipv6Addr,
    /// Who it is for.
    pub destination: Ipv6Addr,
    /// The header that follows.
    pub next_header: Protocol,
    /// Hops left.
    pub hop_limit: u8,
    /// Octets after this header, extension headers included.
    pub payload_len: u16,
    /// Names the flow of the packet, in 20 bits; 0 for none (RFC 6437).
    pub flow_label: u32,
    /// The two bits of Explicit Congestion Notification (RFC 3168).
    pub ecn: u8,
    /// The six bits of the Differentiated Services field (RFC 2474).
    pub dscp: u8,
}

/// The bits of a flow label.
const FLOW_LABEL: u32 = 0x000f_ffff;

impl Header {
    /// Octets of the header.
    pub const LEN: usize = 40;

    /// Parses the header at the start of `octets`, the first octets of a packet of which `packet_octets` are there in all.
    /// Octets after the payload length are padding of the link.
    ///
    /// # Errors
    ///
    /// [`Malformed::Version`]; [`Malformed::Truncated`] when octets are missing.
    #[inline]
    pub fn parse_for(octets: &[u8], packet_octets: usize) -> Result<Self, Malformed> {
        let mut field = Reader(octets.get(..Self::LEN).ok_or(Malformed::Truncated)?);
        let first = u32::from_be_bytes(field.take().ok_or(Malformed::Truncated)?);
        if first >> 28 != 6 {
            return Err(Malformed::Version);
        }
        let payload_len = u16::from_be_bytes(field.take().ok_or(Malformed::Truncated)?);
        let [next_header, hop_limit] = field.take().ok_or(Malformed::Truncated)?;
        let source = field.take::<16>().ok_or(Malformed::Truncated)?;
        let destination = field.take::<16>().ok_or(Malformed::Truncated)?;
        if Self::LEN + usize::from(payload_len) > packet_octets {
            return Err(Malformed::Truncated);
        }
        Ok(Self {
            source: source.into(),
            destination: destination.into(),
            next_header: Protocol(next_header),
            hop_limit,
            payload_len,
            flow_label: first & FLOW_LABEL,
            ecn: (first >> 20) as u8 & 0x03,
            dscp: (first >> 22) as u8 & 0x3f,
        })
    }

    /// As [`parse_for`](Self::parse_for), for a packet that is there whole.
    ///
    /// # Errors
    ///
    /// As for [`parse_for`](Self::parse_for).
    #[inline]
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        Self::parse_for(octets, octets.len())
    }

    /// Writes the header to the first [`LEN`](Self::LEN) octets of `out`.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let class = u32::from(self.dscp << 2 | self.ecn & 0x03);
            let mut out = Writer(out);
            out.put((6 << 28 | class << 20 | self.flow_label & FLOW_LABEL).to_be_bytes());
            out.put(self.payload_len.to_be_bytes());
            out.put([self.next_header.0, self.hop_limit]);
            out.put(self.source.octets());
            out.put(self.destination.octets());
        }
    }
}
