//! IPv4 headers (RFC 791).

use core::net::Ipv4Addr;

use super::{Malformed, checksum, room};

/// The protocol of an IP packet's payload. The numbers are also those of IPv6's Next Header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Protocol(pub u8);

impl Protocol {
    /// The Internet Control Message Protocol.
    pub const ICMP: Self = Self(1);
    /// The Transmission Control Protocol.
    pub const TCP: Self = Self(6);
    /// IPv6's Hop-by-Hop Options.
    pub const HOP_BY_HOP: Self = Self(0);
    /// IPv6's Routing header.
    pub const ROUTING: Self = Self(43);
    /// IPv6's Fragment header.
    pub const FRAGMENT: Self = Self(44);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// IPv6's Destination Options.
    pub const DESTINATION_OPTIONS: Self = Self(60);
}

/// An IPv4 header. Options are skipped on receipt and never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The source address.
    pub source: Ipv4Addr,
    /// The destination address.
    pub destination: Ipv4Addr,
    /// The protocol of the payload.
    pub protocol: Protocol,
    /// Hops left.
    pub ttl: u8,
    /// Octets of header and payload.
    pub total_len: u16,
    /// Routers must not fragment.
    pub dont_fragment: bool,
    /// This is a fragment, and not the last.
    pub more_fragments: bool,
    /// Octets of the datagram's payload before this fragment, a multiple of eight.
    pub fragment_offset: u16,
    /// Names the datagram its fragments belong to.
    pub identification: u16,
    /// The two bits of Explicit Congestion Notification (RFC 3168).
    pub ecn: u8,
    /// The six bits of the Differentiated Services field (RFC 2474).
    pub dscp: u8,
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

impl Header {
    /// Octets of a header without options.
    pub const LEN: usize = 20;

    /// Parses the header at the start of `octets`. Returns it and its length, options included. The checksum
    /// is left to [`verify_checksum`], or to the device. Octets after the total length are padding of the
    /// link.
    ///
    /// # Errors
    ///
    /// [`Malformed::Version`]; [`Malformed::Length`] when header length, total length and fragment offset
    /// cannot be; [`Malformed::Truncated`] when octets are missing.
    #[inline]
    pub fn parse(octets: &[u8]) -> Result<(Self, usize), Malformed> {
        Self::parse_for(octets, octets.len())
    }

    /// As [`parse`](Self::parse), for a packet of which `octets` are only the first, the header among them:
    /// `packet_octets` are there in all.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse).
    #[inline]
    pub fn parse_for(octets: &[u8], packet_octets: usize) -> Result<(Self, usize), Malformed> {
        let field: &[u8; Self::LEN] = octets.first_chunk().ok_or(Malformed::Truncated)?;
        if field[0] >> 4 != 4 {
            return Err(Malformed::Version);
        }
        let header_len = usize::from(field[0] & 0x0f) * 4;
        let total_len = u16::from_be_bytes([field[2], field[3]]);
        if header_len < Self::LEN || usize::from(total_len) < header_len {
            return Err(Malformed::Length);
        }
        if usize::from(total_len) > packet_octets || header_len > octets.len() {
            return Err(Malformed::Truncated);
        }
        let fragment = u16::from_be_bytes([field[6], field[7]]);
        let fragment_offset = (fragment & OFFSET) * 8;
        // No fragment reaches past the largest datagram there can be.
        if fragment_offset.checked_add(total_len).is_none() {
            return Err(Malformed::Length);
        }
        let header = Self {
            source: Ipv4Addr::new(field[12], field[13], field[14], field[15]),
            destination: Ipv4Addr::new(field[16], field[17], field[18], field[19]),
            protocol: Protocol(field[9]),
            ttl: field[8],
            total_len,
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset,
            identification: u16::from_be_bytes([field[4], field[5]]),
            ecn: field[1] & 0x03,
            dscp: field[1] >> 2,
        };
        Ok((header, header_len))
    }

    /// Whether the packet is a piece of a datagram and not all of it.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// Writes the header with its checksum to the first [`LEN`](Self::LEN) octets of `out`.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        self.emit_without_checksum(out);
        if let Some(out) = out.first_chunk_mut::<{ Self::LEN }>() {
            let checksum = checksum::sum(out).finish();
            [out[10], out[11]] = checksum.to_be_bytes();
        }
    }

    /// Writes the header with a zero checksum field, for a device that fills it in.
    #[inline]
    pub fn emit_without_checksum(&self, out: &mut [u8]) {
        let Some(out) = room::<{ Self::LEN }>(out) else {
            return;
        };
        let mut fragment = self.fragment_offset / 8;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            fragment |= MORE_FRAGMENTS;
        }
        out[0] = 0x45;
        out[1] = self.dscp << 2 | self.ecn & 0x03;
        [out[2], out[3]] = self.total_len.to_be_bytes();
        [out[4], out[5]] = self.identification.to_be_bytes();
        [out[6], out[7]] = fragment.to_be_bytes();
        out[8] = self.ttl;
        out[9] = self.protocol.0;
        [out[10], out[11]] = [0, 0];
        [out[12], out[13], out[14], out[15]] = self.source.octets();
        [out[16], out[17], out[18], out[19]] = self.destination.octets();
    }
}

/// Writes the length of the packet and the two ECN bits to the header at the start of `octets`, and the
/// checksum, if there is one.
#[inline]
pub fn patch(octets: &mut [u8], total_len: u16, ecn: u8, checksum: Option<u16>) {
    let Some(header) = room::<{ Header::LEN }>(octets) else { return };
    header[1] = header[1] & !0x03 | ecn & 0x03;
    [header[2], header[3]] = total_len.to_be_bytes();
    if let Some(checksum) = checksum {
        [header[10], header[11]] = checksum.to_be_bytes();
    }
}

/// Whether the header at the start of `octets` is complete and its checksum is correct.
#[inline]
pub fn verify_checksum(octets: &[u8]) -> bool {
    let header = octets.first().and_then(|first| octets.get(..usize::from(first & 0x0f) * 4));
    header.is_some_and(|header| header.len() >= Header::LEN && checksum::sum(header).finish() == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OCTETS: [u8; 20] =
        [0x45, 0x02, 0x00, 0x28, 0x12, 0x34, 0x40, 0x00, 0x40, 0x06, 0x14, 0x98, 10, 0, 0, 1, 10, 0, 0, 2];
    const HEADER: Header = Header {
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        protocol: Protocol::TCP,
        ttl: 64,
        total_len: 40,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        identification: 0x1234,
        ecn: 2,
        dscp: 0,
    };

    fn with_payload(header: &[u8], len: usize) -> Vec<u8> {
        let mut packet = header.to_vec();
        packet.resize(len, 0);
        packet
    }

    #[test]
    fn a_header_survives_emission_and_parsing() {
        let mut out = [0xff; 20];
        HEADER.emit(&mut out);
        assert!(verify_checksum(&out));
        assert_eq!(out[..10], OCTETS[..10]);
        assert_eq!(out[12..], OCTETS[12..]);
        let packet = with_payload(&out, 46);
        assert_eq!(Header::parse(&packet), Ok((HEADER, 20)), "padding of the link is allowed");
        assert_eq!(Header::parse(&packet[..39]), Err(Malformed::Truncated));
        HEADER.emit_without_checksum(&mut out);
        assert_eq!(out[10..12], [0, 0]);
        assert!(!verify_checksum(&out));
    }

    #[test]
    fn options_are_skipped() {
        let mut packet = with_payload(&OCTETS, 40);
        packet[0] = 0x46;
        assert_eq!(Header::parse(&packet).map(|(_, len)| len), Ok(24));
        packet[0] = 0x4f;
        assert_eq!(Header::parse(&packet), Err(Malformed::Length), "60 octets of header in 40 of packet");
        assert!(!verify_checksum(&packet));
    }

    #[test]
    fn impossible_headers_are_refused() {
        let packet = with_payload(&OCTETS, 40);
        for (at, value, expected) in [
            (0, 0x65, Malformed::Version),
            (0, 0x44, Malformed::Length),
            (3, 19, Malformed::Length),
            (3, 41, Malformed::Truncated),
        ] {
            let mut packet = packet.clone();
            packet[at] = value;
            assert_eq!(Header::parse(&packet), Err(expected));
        }
        let mut fragment = packet;
        [fragment[6], fragment[7]] = [0x1f, 0xff];
        assert_eq!(
            Header::parse(&fragment),
            Err(Malformed::Length),
            "the datagram would exceed 65535 octets"
        );
    }

    proptest! {
        #[test]
        fn any_octets_parse_or_fail(octets in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = verify_checksum(&octets);
            if let Ok((header, header_len)) = Header::parse(&octets) {
                prop_assert!(header_len <= usize::from(header.total_len));
                prop_assert!(usize::from(header.total_len) <= octets.len());
            }
        }

        #[test]
        fn fragments_survive(offset in 0u16..0x1000, more: bool, dont: bool, dscp in 0u8..64, ecn in 0u8..4) {
            let header = Header {
                fragment_offset: offset * 8, more_fragments: more, dont_fragment: dont, dscp, ecn, ..HEADER
            };
            let mut packet = [0; 40];
            header.emit(&mut packet);
            prop_assert!(verify_checksum(&packet));
            prop_assert_eq!(Header::parse(&packet), Ok((header, 20)));
            prop_assert_eq!(header.is_fragment(), more || offset != 0);
        }
    }
}
