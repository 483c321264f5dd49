//! The usual form of a TCP segment over IPv4, recognized in one pass: an established connection sends hardly
//! any other.

use core::net::Ipv4Addr;

use super::ipv4;
use super::tcp::{Flags, Header, Options, SeqNumber, Timestamps};

/// The addresses and ports of a segment over IPv4, as its headers have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple4 {
    /// Source and destination address.
    pub addresses: [u8; 8],
    /// Source and destination port.
    pub ports: [u8; 4],
}

impl Tuple4 {
    /// Returns the tuple of segments between two addresses and ports.
    pub const fn new(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Self {
        let addresses = (source.0.to_bits() as u64) << 32 | destination.0.to_bits() as u64;
        let ports = (source.1 as u32) << 16 | destination.1 as u32;
        Self { addresses: addresses.to_be_bytes(), ports: ports.to_be_bytes() }
    }

    /// Returns the source address.
    pub const fn source(&self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.addresses;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the destination address.
    pub const fn destination(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = self.addresses;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the source port.
    pub const fn source_port(&self) -> u16 {
        let [high, low, ..] = self.ports;
        u16::from_be_bytes([high, low])
    }

    /// Returns the destination port.
    pub const fn destination_port(&self) -> u16 {
        let [.., high, low] = self.ports;
        u16::from_be_bytes([high, low])
    }
}

/// A TCP segment whose headers have the usual form: an IPv4 header without options, of a packet that is not a
/// fragment; a TCP header with no option, or with the timestamps option after two NOPs, as RFC 7323 appendix
/// A recommends; and of the control bits ACK, perhaps with PSH.
///
/// Any other segment is parsed field by field ([`ipv4::Header`], [`Header`]); of one in this form that gives
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSegment {
    /// Its addresses and ports.
    pub tuple: Tuple4,
    /// The first octet of payload.
    pub seq: SeqNumber,
    /// The next octet the sender expects.
    pub ack: SeqNumber,
    /// The PSH bit.
    pub push: bool,
    /// The window field.
    pub window: u16,
    /// The timestamps option.
    pub timestamps: Option<Timestamps>,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
    /// Where in the frame its payload begins.
    pub payload_offset: usize,
    /// Octets of payload.
    pub payload_octets: usize,
}

/// Version 4, and five words of header.
const VERSION_AND_LENGTH: u8 = 0x45;
/// The bits that are clear in a packet that is no fragment: "more fragments", the offset, and the reserved
/// flag.
const FRAGMENT: u16 = 0xbfff;
/// The number of TCP.
const TCP: u8 = 6;
/// Two NOPs, and kind and length of the timestamps option.
const TIMESTAMPS_AFTER_NOPS: [u8; 4] = [1, 1, 8, 10];
/// Octets of a header with this option.
const WITH_TIMESTAMPS: usize = Header::MIN_LEN + 12;

impl PlainSegment {
    /// Octets of the IP header.
    pub const IP_LEN: usize = ipv4::Header::LEN;

    /// Parses the packet that begins at `network` in `frame`. Returns `None` unless it is whole and has the
    /// usual form. Checksums are left to the caller.
    #[inline]
    pub fn parse(frame: &[u8], network: usize) -> Option<Self> {
        let packet = frame.get(network..)?;
        let (ip, segment) = packet.split_first_chunk::<{ ipv4::Header::LEN }>()?;
        let (tcp, options) = segment.split_first_chunk::<{ Header::MIN_LEN }>()?;
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let plain_ip =
            ip[0] == VERSION_AND_LENGTH && ip[9] == TCP && u16::from_be_bytes([ip[6], ip[7]]) & FRAGMENT == 0;
        let flags = Flags::from_bits_retain(tcp[13]);
        if !plain_ip || flags.difference(Flags::PSH) != Flags::ACK {
            return None;
        }
        let (header_len, timestamps) = match tcp[12] >> 4 {
            5 => (Header::MIN_LEN, None),
            8 => {
                let [kinds @ .., v0, v1, v2, v3, e0, e1, e2, e3] = *options.first_chunk::<12>()?;
                if kinds != TIMESTAMPS_AFTER_NOPS {
                    return None;
                }
                let value = u32::from_be_bytes([v0, v1, v2, v3]);
                (WITH_TIMESTAMPS, Some(Timestamps { value, echo: u32::from_be_bytes([e0, e1, e2, e3]) }))
            }
            _ => return None,
        };
        let end = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let headers_len = ipv4::Header::LEN + header_len;
        if end > packet.len() {
            return None;
        }
        Some(Self {
            tuple: Tuple4 { addresses: *ip.last_chunk()?, ports: *tcp.first_chunk()? },
            seq: SeqNumber(word(4)),
            ack: SeqNumber(word(8)),
            push: flags.contains(Flags::PSH),
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            timestamps,
            ecn: ip[1] & 0x03,
            payload_offset: network + headers_len,
            payload_octets: end.checked_sub(headers_len)?,
        })
    }

    /// Returns where in the frame it ends.
    #[inline]
    pub const fn end(&self) -> usize {
        self.payload_offset + self.payload_octets
    }

    /// Returns its TCP header, in the form that any segment has.
    pub fn header(&self) -> Header {
        Header {
            source_port: self.tuple.source_port(),
            destination_port: self.tuple.destination_port(),
            seq: self.seq,
            ack: self.ack,
            flags: if self.push { Flags::ACK | Flags::PSH } else { Flags::ACK },
            window: self.window,
            urgent: 0,
            options: Options { timestamps: self.timestamps, ..Options::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses as the general path does, and returns what a plain segment has.
    fn by_fields(octets: &[u8]) -> Option<(PlainSegment, Header)> {
        let (ip, ip_len) = ipv4::Header::parse_for(octets, octets.len()).ok()?;
        let end = usize::from(ip.total_len);
        let (header, header_len) = Header::parse(octets.get(ip_len..end)?).ok()?;
        let source = (ip.source, header.source_port);
        let plain = PlainSegment {
            tuple: Tuple4::new(source, (ip.destination, header.destination_port)),
            seq: header.seq,
            ack: header.ack,
            push: header.flags.contains(Flags::PSH),
            window: header.window,
            timestamps: header.options.timestamps,
            ecn: ip.ecn,
            payload_offset: ip_len + header_len,
            payload_octets: end - ip_len - header_len,
        };
        let usual = !ip.is_fragment() && ip.protocol.0 == TCP;
        usual.then_some((plain, header))
    }

    /// The packet of `header` with `payload` octets of payload, and `padding` octets after it.
    fn packet(header: &Header, payload: usize, padding: usize) -> Vec<u8> {
        let total_len = (ipv4::Header::LEN + header.header_len() + payload) as u16;
        let ip = ipv4::Header {
            source: [198, 18, 0, 1].into(),
            destination: [198, 18, 0, 2].into(),
            protocol: ipv4::Protocol::TCP,
            ttl: 64,
            total_len,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            identification: 7,
            ecn: 2,
            dscp: 1,
        };
        let mut octets = vec![0; usize::from(total_len) + padding];
        ip.emit(&mut octets);
        header.emit(&mut octets[ipv4::Header::LEN..]);
        octets
    }

    fn header(timestamps: Option<Timestamps>) -> Header {
        Header {
            source_port: 7471,
            destination_port: 50_000,
            seq: SeqNumber(0xffff_fff0),
            ack: SeqNumber(3),
            flags: Flags::ACK | Flags::PSH,
            window: 501,
            urgent: 0,
            options: Options { timestamps, ..Options::default() },
        }
    }

    #[test]
    fn the_usual_form_is_recognized() {
        for timestamps in [None, Some(Timestamps { value: 9, echo: 8 })] {
            for (payload, padding) in [(0, 6), (1, 0), (1428, 0), (10, 3)] {
                let header = header(timestamps);
                let octets = packet(&header, payload, padding);
                let plain = PlainSegment::parse(&octets, 0).expect("it is plain");
                assert_eq!((plain.payload_octets, plain.header()), (payload, header.clone()));
                assert_eq!(by_fields(&octets), Some((plain, header)));
            }
        }
    }

    #[test]
    fn other_forms_are_left() {
        let plain = packet(&header(Some(Timestamps::default())), 20, 0);
        let changed = |at: usize, value: u8| {
            let mut octets = plain.clone();
            octets[at] = value;
            octets
        };
        for (at, value, what) in [
            (0, 0x46, "IP options"),
            (0, 0x65, "another version"),
            (6, 0x20, "a first fragment"),
            (7, 1, "a later fragment"),
            (9, 17, "another protocol"),
            (3, 51, "shorter than its headers"),
            (2, 1, "cut off"),
            (33, 0x12, "SYN"),
            (33, 0x11, "FIN"),
            (33, 0x14, "RST"),
            (33, 0x30, "URG"),
            (33, 0x50, "ECE"),
            (33, 0x90, "CWR"),
            (33, 0x08, "no ACK"),
            (32, 0x90, "more options"),
            (42, 5, "another option"),
            (43, 9, "an impossible length"),
        ] {
            assert_eq!(PlainSegment::parse(&changed(at, value), 0), None, "{what}");
        }
        for len in 0..plain.len() {
            assert_eq!(PlainSegment::parse(&plain[..len], 0), None, "{len}");
        }
    }

    proptest! {
        /// What is taken for plain has the same meaning when it is parsed field by field.
        #[test]
        fn both_ways_of_parsing_agree(
            timestamps: bool,
            changes in proptest::collection::vec((0usize..60, any::<u8>()), 0..3),
        ) {
            let mut octets = packet(&header(timestamps.then_some(Timestamps { value: 1, echo: 2 })), 40, 2);
            for (at, value) in changes {
                octets[at] = value;
            }
            if let Some(plain) = PlainSegment::parse(&octets, 0) {
                let (expected, header) = by_fields(&octets).expect("it is a segment");
                prop_assert_eq!(plain, expected);
                prop_assert_eq!(plain.header(), Header { urgent: 0, ..header });
            }
        }
    }
}
