//! Ethernet II frames.

use core::fmt;

use super::{Malformed, Reader, Writer, room};

/// A hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Every station on the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether the address names a group of stations; true of [`BROADCAST`](Self::BROADCAST) too.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, octet) in self.0.iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{octet:02x}")?;
        }
        Ok(())
    }
}

/// The EtherType of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// The Address Resolution Protocol.
    pub const ARP: Self = Self(0x0806);
    /// An IEEE 802.1Q tag.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
}

/// The header of an Ethernet frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The destination address.
    pub destination: MacAddress,
    /// The source address.
    pub source: MacAddress,
    /// The type of the payload.
    pub ethertype: EtherType,
}

impl Header {
    /// Octets of an untagged header.
    pub const LEN: usize = 14;

    /// Octets of an IEEE 802.1Q tag.
    const TAG_LEN: usize = 4;

    /// Parses the header at the start of `frame`. Returns it and its length.
    ///
    /// A priority tag (VLAN 0) puts the frame into no VLAN, so it is skipped and counted as part of the
    /// header. A frame of any other VLAN keeps [`EtherType::VLAN`] and its tag: it is not for a station
    /// outside that VLAN.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`].
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, usize), Malformed> {
        let mut rest = Reader(frame);
        let destination = MacAddress(rest.take().ok_or(Malformed::Truncated)?);
        let source = MacAddress(rest.take().ok_or(Malformed::Truncated)?);
        let ethertype = EtherType(u16::from_be_bytes(rest.take().ok_or(Malformed::Truncated)?));
        let untagged = Self { destination, source, ethertype };
        if ethertype != EtherType::VLAN {
            return Ok((untagged, Self::LEN));
        }
        let [tci_high, tci_low, inner @ ..] = rest.take::<{ Self::TAG_LEN }>().ok_or(Malformed::Truncated)?;
        if tci_high & 0x0f != 0 || tci_low != 0 {
            return Ok((untagged, Self::LEN));
        }
        Ok((Self { ethertype: EtherType(u16::from_be_bytes(inner)), ..untagged }, Self::LEN + Self::TAG_LEN))
    }

    /// Writes the header, untagged, to the first [`LEN`](Self::LEN) octets of `out`.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let mut out = Writer(out);
            out.put(self.destination.0);
            out.put(self.source.0);
            out.put(self.ethertype.0.to_be_bytes());
        }
    }
}

/// An IEEE 802.1Q tag and the type of the payload after it: the octets after a header of [`EtherType::VLAN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The VLAN, 1 to 4094.
    pub vlan: u16,
    /// The type of the payload.
    pub ethertype: EtherType,
}

impl Tag {
    /// Octets of a tag, with the type that follows it.
    pub const LEN: usize = 4;

    /// Parses the tag at the start of `octets`. Priority and drop eligibility are ignored.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`].
    #[inline]
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        let [high, low, ethertype @ ..] =
            *octets.first_chunk::<{ Self::LEN }>().ok_or(Malformed::Truncated)?;
        let vlan = u16::from_be_bytes([high, low]) & 0x0fff;
        Ok(Self { vlan, ethertype: EtherType(u16::from_be_bytes(ethertype)) })
    }

    /// Writes the tag, of priority 0, to the first [`LEN`](Self::LEN) octets of `out`.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        if let Some(out) = room::<{ Self::LEN }>(out) {
            let mut out = Writer(out);
            out.put((self.vlan & 0x0fff).to_be_bytes());
            out.put(self.ethertype.0.to_be_bytes());
        }
    }
}

/// Turns the frame in `octets` round: to its source address, from `mac`. Tags stay. Nothing changes in octets
/// that are no frame.
pub fn turn_around(octets: &mut [u8], mac: MacAddress) {
    if let Some([header @ .., _, _]) = octets.first_chunk_mut::<{ Header::LEN }>() {
        let (destination, source) = header.split_at_mut(6);
        destination.copy_from_slice(source);
        source.copy_from_slice(&mac.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        destination: MacAddress([2, 0, 0, 0, 0, 1]),
        source: MacAddress([2, 0, 0, 0, 0, 2]),
        ethertype: EtherType::IPV4,
    };

    #[test]
    fn a_header_survives_emission_and_parsing() {
        let mut octets = [0; Header::LEN];
        HEADER.emit(&mut octets);
        assert_eq!(octets, [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        assert_eq!(Header::parse(&octets), Ok((HEADER, 14)));
        for len in 0..octets.len() {
            assert_eq!(Header::parse(&octets[..len]), Err(Malformed::Truncated));
        }
    }

    #[test]
    fn only_the_priority_tag_is_skipped() {
        let mut octets = [0; 18];
        Header { ethertype: EtherType::VLAN, ..HEADER }.emit(&mut octets);
        octets[14..].copy_from_slice(&[0xe0, 0, 0x08, 0x06]);
        assert_eq!(Header::parse(&octets), Ok((Header { ethertype: EtherType::ARP, ..HEADER }, 18)));
        octets[15] = 5;
        assert_eq!(Header::parse(&octets), Ok((Header { ethertype: EtherType::VLAN, ..HEADER }, 14)));
        assert_eq!(Header::parse(&octets[..17]), Err(Malformed::Truncated));
    }

    #[test]
    fn a_tag_names_its_vlan() {
        let tag = Tag { vlan: 0x123, ethertype: EtherType::IPV6 };
        let mut octets = [0xff; 4];
        tag.emit(&mut octets);
        assert_eq!(octets, [0x01, 0x23, 0x86, 0xdd]);
        octets[0] |= 0xf0;
        assert_eq!(Tag::parse(&octets), Ok(tag), "priority is nobody's business here");
        assert_eq!(Tag::parse(&octets[..3]), Err(Malformed::Truncated));
    }

    #[test]
    fn a_frame_goes_back_to_its_sender() {
        let mut octets = [0; 20];
        HEADER.emit(&mut octets);
        octets[14..18].copy_from_slice(&[1, 2, 3, 4]);
        let mac = MacAddress([2, 9, 9, 9, 9, 9]);
        turn_around(&mut octets, mac);
        let expected = Header { destination: HEADER.source, source: mac, ..HEADER };
        assert_eq!(Header::parse(&octets), Ok((expected, 14)));
        assert_eq!(octets[14..], [1, 2, 3, 4, 0, 0]);
        turn_around(&mut octets[..13], mac);
        assert_eq!(Header::parse(&octets), Ok((expected, 14)));
    }

    #[test]
    fn groups_are_known_by_their_first_bit() {
        assert!(MacAddress::BROADCAST.is_multicast());
        assert!(MacAddress([1, 0, 0x5e, 0, 0, 1]).is_multicast());
        assert!(!HEADER.source.is_multicast());
        assert_eq!(MacAddress([0, 0x1b, 0x21, 0xab, 0xcd, 0xef]).to_string(), "00:1b:21:ab:cd:ef");
    }
}
