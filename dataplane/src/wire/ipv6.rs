//! IPv6 headers and extension headers (RFC 8200), and its groups on Ethernet.

use core::net::Ipv6Addr;

use super::ethernet::MacAddress;
use super::ipv4::Protocol;
use super::{Malformed, Reader, Writer, room};

/// The fixed header of an IPv6 packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address.
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

    /// Parses the header at the start of `octets`, the first octets of a packet of which `packet_octets` are
    /// there in all. Octets after the payload length are padding of the link.
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

    /// As [`parse_for`](Self::parse_for), for a complete packet.
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

/// Writes the flow label to the header at the start of `octets`.
#[inline]
pub fn set_flow_label(octets: &mut [u8], flow_label: u32) {
    if let Some(header) = room::<{ Header::LEN }>(octets) {
        let [_, high, middle, low] = flow_label.to_be_bytes();
        header[1] = header[1] & 0xf0 | high & 0x0f;
        [header[2], header[3]] = [middle, low];
    }
}

/// Writes the octets after the header and the two ECN bits to the header at the start of `octets`.
#[inline]
pub fn patch(octets: &mut [u8], payload_len: u16, ecn: u8) {
    if let Some(header) = room::<{ Header::LEN }>(octets) {
        header[1] = header[1] & !0x30 | (ecn & 0x03) << 4;
        [header[4], header[5]] = payload_len.to_be_bytes();
    }
}

/// Options of a Hop-by-Hop or Destination Options header that are padding.
const PAD1: u8 = 0;

/// The upper two bits of an option that is skipped if it is unknown (RFC 8200 §4.2).
const SKIPPED_IF_UNKNOWN: u8 = 0x00;

/// The payload of a packet after its extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upper {
    /// What it is.
    pub protocol: Protocol,
    /// Where it begins, in octets from the start of the packet.
    pub offset: usize,
    /// The packet is a fragment; `protocol` and `offset` are those of what is fragmented.
    pub fragment: Option<Fragment>,
    /// It has a Fragment header, although it is all of its packet (RFC 6946).
    pub is_atomic: bool,
}

/// A Fragment header (RFC 8200 §4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Octets before this fragment in what is fragmented, a multiple of eight.
    pub offset: u16,
    /// Others follow.
    pub more: bool,
    /// Names the packet its fragments belong to.
    pub identification: u32,
}

/// Why the extension headers of a packet lead nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dead {
    /// They are incomplete, or contradict each other.
    Malformed,
    /// More of them than [`EXTENSION_HEADERS_MAX`].
    TooMany,
    /// One asks for what we do not do: an option that must not be skipped, or a route that does not end here
    /// (RFC 8200 §4.2, §4.4; RFC 5095).
    Unsupported,
}

/// Extension headers of a packet that are walked: each of the four that a host skips once, and one more of
/// those that may stand twice (RFC 8200 §4.1).
pub const EXTENSION_HEADERS_MAX: usize = 5;

/// Walks over the extension headers that follow `header` in `packet`, of which the first octets are enough.
///
/// # Errors
///
/// [`Dead`].
#[inline]
pub fn upper(header: &Header, packet: &[u8]) -> Result<Upper, Dead> {
    let (protocol, offset) = (header.next_header, Header::LEN);
    // By far the most packets.
    if protocol == Protocol::TCP {
        return Ok(Upper { protocol, offset, fragment: None, is_atomic: false });
    }
    let end = (Header::LEN + usize::from(header.payload_len)).min(packet.len());
    walk(protocol, offset, &packet[..end], 0)
}

/// Walks over the extension headers that the first fragment of a packet has behind its Fragment header: they
/// are those of the packet, and are all in this fragment, with the start of what follows them (RFC 8200
/// §4.5).
///
/// # Errors
///
/// [`Dead`].
pub fn upper_of_first_fragment(header: &Header, fragment: &Upper, packet: &[u8]) -> Result<Upper, Dead> {
    let end = (Header::LEN + usize::from(header.payload_len)).min(packet.len());
    walk(fragment.protocol, fragment.offset, &packet[..end], 1)
}

/// Walks on from the header `protocol` at `offset`, with `walked` headers before it.
fn walk(mut protocol: Protocol, mut offset: usize, packet: &[u8], walked: usize) -> Result<Upper, Dead> {
    let mut is_atomic = false;
    for walked in walked..=EXTENSION_HEADERS_MAX {
        let rest = packet.get(offset..).ok_or(Dead::Malformed)?;
        let octets = match protocol {
            // RFC 8200 §4.1: only right after the IPv6 header.
            Protocol::HOP_BY_HOP if walked > 0 => return Err(Dead::Malformed),
            Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS => {
                let body = extension(rest)?;
                skip_options(body.get(2..).ok_or(Dead::Malformed)?)?;
                body.len()
            }
            Protocol::ROUTING => {
                let body = extension(rest)?;
                // Segments Left: the packet is to go on from here, and we are no router.
                if body[3] != 0 {
                    return Err(Dead::Unsupported);
                }
                body.len()
            }
            Protocol::FRAGMENT => {
                let (fragment, octets) = fragment(rest)?;
                // A fragment that is all of its packet is that packet (RFC 6946 §4).
                if fragment.offset != 0 || fragment.more {
                    let fragment = Some(fragment);
                    let (protocol, offset) = (Protocol(rest[0]), offset + octets);
                    return Ok(Upper { protocol, offset, fragment, is_atomic });
                }
                is_atomic = true;
                octets
            }
            _ => return Ok(Upper { protocol, offset, fragment: None, is_atomic }),
        };
        protocol = Protocol(rest[0]);
        offset += octets;
    }
    Err(Dead::TooMany)
}

/// The extension header at the start of `octets`: its second octet counts units of eight after the first
/// eight.
fn extension(octets: &[u8]) -> Result<&[u8], Dead> {
    let units = octets.get(1).ok_or(Dead::Malformed)?;
    octets.get(..8 * (1 + usize::from(*units))).ok_or(Dead::Malformed)
}

fn skip_options(mut octets: &[u8]) -> Result<(), Dead> {
    loop {
        octets = match octets {
            [] => return Ok(()),
            [PAD1, rest @ ..] => rest,
            [kind, ..] if kind & 0xc0 != SKIPPED_IF_UNKNOWN => return Err(Dead::Unsupported),
            [_, len, rest @ ..] => rest.get(usize::from(*len)..).ok_or(Dead::Malformed)?,
            [_] => return Err(Dead::Malformed),
        };
    }
}

fn fragment(octets: &[u8]) -> Result<(Fragment, usize), Dead> {
    let [_, _, high, low, identification @ ..] =
        *octets.first_chunk::<{ Fragment::LEN }>().ok_or(Dead::Malformed)?;
    let place = u16::from_be_bytes([high, low]);
    let fragment = Fragment {
        offset: place & !7,
        more: place & 1 != 0,
        identification: u32::from_be_bytes(identification),
    };
    Ok((fragment, Fragment::LEN))
}

impl Fragment {
    /// Octets of the header.
    pub const LEN: usize = 8;
}

/// Every node on the link (RFC 4291 §2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The solicited-node group of `address` (RFC 4291 §2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., x, y, z] = address.octets();
    Ipv6Addr::from_octets([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, x, y, z])
}

/// The Ethernet group that packets to the multicast address `group` are sent to (RFC 2464 §7).
pub const fn multicast_mac(group: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = group.octets();
    MacAddress([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SYN: &[u8] = include_bytes!("../../tests/vectors/frames/tcp_syn.bin");

    fn packet(next_header: Protocol, rest: &[u8]) -> (Header, Vec<u8>) {
        let header =
            Header { next_header, payload_len: rest.len() as u16, ..Header::parse(&SYN[14..]).unwrap() };
        let mut octets = vec![0; Header::LEN];
        header.emit(&mut octets);
        octets.extend(rest);
        (header, octets)
    }

    fn walked(next_header: Protocol, rest: &[u8]) -> Result<Upper, Dead> {
        let (header, octets) = packet(next_header, rest);
        upper(&header, &octets)
    }

    #[test]
    fn a_header_as_linux_sends_it() {
        let header = Header::parse(&SYN[14..]).unwrap();
        let expected = Header {
            source: "fd00::1".parse().unwrap(),
            destination: "fd00::2".parse().unwrap(),
            next_header: Protocol::TCP,
            hop_limit: 64,
            payload_len: 40,
            flow_label: 0x57add,
            ecn: 0,
            dscp: 0xb8 >> 2,
        };
        assert_eq!(header, expected);
        let mut out = [0xff; 40];
        header.emit(&mut out);
        assert_eq!(out, SYN[14..54]);
        assert_eq!(
            upper(&header, &SYN[14..]),
            Ok(Upper { protocol: Protocol::TCP, offset: 40, fragment: None, is_atomic: false })
        );
        assert_eq!(Header::parse(&SYN[14..93]), Err(Malformed::Truncated));
        assert_eq!(Header::parse_for(&SYN[14..54], 80), Ok(expected));
        assert_eq!(Header::parse(&[0x45; 40]), Err(Malformed::Version));
        let mut congested = out;
        Header { ecn: 3, ..header }.emit(&mut congested);
        assert_eq!(congested[..2], [0x6b, 0xb5]);
        assert_eq!(Header::parse_for(&congested, 80).unwrap().ecn, 3);
    }

    #[test]
    fn extension_headers_are_skipped() {
        // Hop-by-hop with a padding option, destination options with an unknown one, an arrived routing
        // header, and a fragment header of a complete packet.
        let chain = [
            [60, 0, 1, 4, 0, 0, 0, 0],
            [43, 0, 0x1e, 2, 9, 9, 0, 0],
            [44, 0, 4, 0, 0, 0, 0, 0],
            [6, 0, 0, 0, 0, 0, 0, 7],
        ]
        .concat();
        let expected = Upper { protocol: Protocol::TCP, offset: 72, fragment: None, is_atomic: true };
        assert_eq!(walked(Protocol::HOP_BY_HOP, &chain), Ok(expected));
        for len in 0..chain.len() {
            assert_eq!(walked(Protocol::HOP_BY_HOP, &chain[..len]), Err(Dead::Malformed), "{len}");
        }
        let none = Upper { protocol: Protocol(59), offset: 48, fragment: None, is_atomic: false };
        assert_eq!(walked(Protocol::DESTINATION_OPTIONS, &[59, 0, 0, 0, 0, 0, 0, 0]), Ok(none));
    }

    #[test]
    fn fragments_are_known() {
        let fragment = Fragment { offset: 1448, more: true, identification: 0x0102_0304 };
        let expected =
            Upper { protocol: Protocol::TCP, offset: 48, fragment: Some(fragment), is_atomic: false };
        assert_eq!(walked(Protocol::FRAGMENT, &[6, 0, 0x05, 0xa9, 1, 2, 3, 4]), Ok(expected));
    }

    #[test]
    fn what_cannot_be_skipped_stops_the_packet() {
        for (next_header, octets, expected) in [
            // An option whose type requires a host that does not support it to discard the packet.
            (Protocol::HOP_BY_HOP, vec![6, 0, 0x42, 4, 0, 0, 0, 0], Dead::Unsupported),
            (Protocol::DESTINATION_OPTIONS, vec![6, 0, 0xc2, 4, 0, 0, 0, 0], Dead::Unsupported),
            // An option longer than its header.
            (Protocol::DESTINATION_OPTIONS, vec![6, 0, 0x02, 5, 0, 0, 0, 0], Dead::Malformed),
            // RFC 5095: a type 0 route with segments left.
            (Protocol::ROUTING, vec![6, 0, 0, 1, 0, 0, 0, 0], Dead::Unsupported),
            // Hop-by-hop options in second place.
            (Protocol::DESTINATION_OPTIONS, vec![0, 0, 0, 0, 0, 0, 0, 0], Dead::Malformed),
            (Protocol::DESTINATION_OPTIONS, [60, 0, 0, 0, 0, 0, 0, 0].repeat(20), Dead::TooMany),
        ] {
            assert_eq!(walked(next_header, &octets), Err(expected), "{octets:?}");
        }
    }

    #[test]
    fn groups_have_their_addresses() {
        // The examples of RFC 4291 §2.7.1 and RFC 2464 §7.
        let address = "4037::01:800:200e:8c6c".parse().unwrap();
        assert_eq!(solicited_node(address), "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
        let group = solicited_node("fd00::2".parse().unwrap());
        assert_eq!(multicast_mac(group).to_string(), "33:33:ff:00:00:02");
    }

    proptest! {
        #[test]
        fn no_octets_do_harm(next_header: u8, rest in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(upper) = walked(Protocol(next_header), &rest) {
                prop_assert!(upper.offset <= Header::LEN + rest.len());
            }
        }
    }
}
