//! The usual form of a TCP segment, recognized in one pass: an established connection sends hardly any other.

use super::tcp::{Flags, Header, Options, SeqNumber, Timestamps};
use super::tuple::{Tuple, Tuple4, Tuple6};
use super::{ipv4, ipv6};

/// A TCP segment whose headers have the usual form: an IPv4 header without options, of a packet that is not a
/// fragment, or an IPv6 header without extension headers; a TCP header with no option, or with the timestamps
/// option after two NOPs, as RFC 7323 appendix A recommends; and of the control bits ACK, perhaps with PSH.
///
/// Any other segment is parsed field by field ([`ipv4::Header`], [`ipv6::Header`], [`Header`]); of one in
/// this form that gives the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSegment {
    /// Its addresses and ports.
    pub tuple: Tuple,
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
const VERSION_4_AND_LENGTH: u8 = 0x45;
/// The bits that are clear in a packet that is no fragment: "more fragments", the offset, and the reserved
/// flag.
const FRAGMENT: u16 = 0xbfff;
/// Version 6, in the upper half of an octet.
const VERSION_6: u8 = 6;
/// The number of TCP.
const TCP: u8 = 6;
/// Two NOPs, and kind and length of the timestamps option.
const TIMESTAMPS_AFTER_NOPS: [u8; 4] = [1, 1, 8, 10];
/// Octets of a header with this option.
const WITH_TIMESTAMPS: usize = Header::MIN_LEN + 12;

/// What the IP header says of a segment.
struct Packet {
    /// Where in the frame the segment begins.
    transport: usize,
    /// Octets of the segment, headers of TCP included.
    segment_octets: usize,
    ecn: u8,
}

impl PlainSegment {
    /// Parses the IPv4 packet that begins at `network` in `frame`. Returns `None` unless it is whole and has
    /// the usual form. Checksums are left to the caller.
    #[inline]
    pub fn parse_ipv4(frame: &[u8], network: usize) -> Option<Self> {
        let (ip, segment) = frame.get(network..)?.split_first_chunk::<{ ipv4::Header::LEN }>()?;
        let plain = ip[0] == VERSION_4_AND_LENGTH
            && ip[9] == TCP
            && u16::from_be_bytes([ip[6], ip[7]]) & FRAGMENT == 0;
        if !plain {
            return None;
        }
        let total_octets = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let packet = Packet {
            transport: network + ipv4::Header::LEN,
            segment_octets: total_octets.checked_sub(ipv4::Header::LEN)?,
            ecn: ip[1] & 0x03,
        };
        let addresses = *ip.last_chunk()?;
        Self::of_segment(&packet, segment, |ports| Tuple::V4(Tuple4 { addresses, ports }))
    }

    /// Parses an IPv6 packet as [`parse_ipv4`](Self::parse_ipv4) parses one of IPv4.
    #[inline]
    pub fn parse_ipv6(frame: &[u8], network: usize) -> Option<Self> {
        let (ip, segment) = frame.get(network..)?.split_first_chunk::<{ ipv6::Header::LEN }>()?;
        if ip[0] >> 4 != VERSION_6 || ip[6] != TCP {
            return None;
        }
        let packet = Packet {
            transport: network + ipv6::Header::LEN,
            segment_octets: usize::from(u16::from_be_bytes([ip[4], ip[5]])),
            // The lower two of the eight bits of the traffic class, which begins in the middle of an octet.
            ecn: ip[1] >> 4 & 0x03,
        };
        let addresses = *ip.last_chunk()?;
        Self::of_segment(&packet, segment, |ports| Tuple::V6(Tuple6 { addresses, ports }))
    }

    /// Parses a segment, with octets after it that do not belong to it.
    #[inline]
    fn of_segment(packet: &Packet, segment: &[u8], tuple: impl FnOnce([u8; 4]) -> Tuple) -> Option<Self> {
        let (tcp, options) = segment.split_first_chunk::<{ Header::MIN_LEN }>()?;
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let flags = Flags::from_bits_retain(tcp[13]);
        if packet.segment_octets > segment.len() || flags.difference(Flags::PSH) != Flags::ACK {
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
        Some(Self {
            tuple: tuple(*tcp.first_chunk()?),
            seq: SeqNumber(word(4)),
            ack: SeqNumber(word(8)),
            push: flags.contains(Flags::PSH),
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            timestamps,
            ecn: packet.ecn,
            payload_offset: packet.transport + header_len,
            payload_octets: packet.segment_octets.checked_sub(header_len)?,
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
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::wire::tcp_rdma::RdmaOption;

    const SOURCE: (IpAddr, IpAddr) =
        (IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)));
    const DESTINATION: (IpAddr, IpAddr) =
        (IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)));

    /// The families of IP.
    #[derive(Clone, Copy, Debug)]
    enum Family {
        V4,
        V6,
    }
    use Family::{V4, V6};

    impl Family {
        /// Octets of its header.
        const fn header_len(self) -> usize {
            match self {
                V4 => ipv4::Header::LEN,
                V6 => ipv6::Header::LEN,
            }
        }

        fn parse(self, octets: &[u8]) -> Option<PlainSegment> {
            match self {
                V4 => PlainSegment::parse_ipv4(octets, 0),
                V6 => PlainSegment::parse_ipv6(octets, 0),
            }
        }
    }

    /// The fields of an IP header that a plain segment has, and where the segment begins and ends.
    struct ByFields {
        source: IpAddr,
        destination: IpAddr,
        ecn: u8,
        segment: core::ops::Range<usize>,
    }

    fn ipv4_fields(octets: &[u8]) -> Option<ByFields> {
        let (ip, ip_len) = ipv4::Header::parse_for(octets, octets.len()).ok()?;
        let usual = !ip.is_fragment() && ip.protocol.0 == TCP;
        let segment = ip_len..usize::from(ip.total_len);
        usual.then_some(ByFields {
            source: ip.source.into(),
            destination: ip.destination.into(),
            ecn: ip.ecn,
            segment,
        })
    }

    fn ipv6_fields(octets: &[u8]) -> Option<ByFields> {
        let ip = ipv6::Header::parse(octets).ok()?;
        let upper = ipv6::upper(&ip, octets).ok()?;
        let usual = upper.fragment.is_none() && upper.protocol.0 == TCP;
        let segment = upper.offset..ipv6::Header::LEN + usize::from(ip.payload_len);
        usual.then_some(ByFields {
            source: ip.source.into(),
            destination: ip.destination.into(),
            ecn: ip.ecn,
            segment,
        })
    }

    /// Parses as the general path does, and returns what a plain segment has.
    fn by_fields(family: Family, octets: &[u8]) -> Option<(PlainSegment, Header)> {
        let ip = match family {
            V4 => ipv4_fields(octets)?,
            V6 => ipv6_fields(octets)?,
        };
        let (header, header_len) = Header::parse(octets.get(ip.segment.clone())?).ok()?;
        let source = (ip.source, header.source_port);
        let plain = PlainSegment {
            tuple: Tuple::new(source, (ip.destination, header.destination_port))?,
            seq: header.seq,
            ack: header.ack,
            push: header.flags.contains(Flags::PSH),
            window: header.window,
            timestamps: header.options.timestamps,
            ecn: ip.ecn,
            payload_offset: ip.segment.start + header_len,
            payload_octets: ip.segment.len() - header_len,
        };
        Some((plain, header))
    }

    /// The packet of `header` with `payload` octets of payload, and `padding` octets after it.
    fn packet(family: Family, header: &Header, payload: usize, padding: usize) -> Vec<u8> {
        let segment_len = header.header_len() + payload;
        let mut octets = vec![0; family.header_len() + segment_len + padding];
        match (family, SOURCE, DESTINATION) {
            (V4, (IpAddr::V4(source), _), (IpAddr::V4(destination), _)) => ipv4::Header {
                source,
                destination,
                protocol: ipv4::Protocol::TCP,
                ttl: 64,
                total_len: (ipv4::Header::LEN + segment_len) as u16,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                identification: 7,
                ecn: 2,
                dscp: 1,
            }
            .emit(&mut octets),
            (V6, (_, IpAddr::V6(source)), (_, IpAddr::V6(destination))) => ipv6::Header {
                source,
                destination,
                next_header: ipv4::Protocol::TCP,
                hop_limit: 64,
                payload_len: segment_len as u16,
                flow_label: 0x1_2345,
                ecn: 2,
                dscp: 1,
            }
            .emit(&mut octets),
            _ => unreachable!("the addresses of each family"),
        }
        header.emit(&mut octets[family.header_len()..]);
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
        for family in [V4, V6] {
            for timestamps in [None, Some(Timestamps { value: 9, echo: 8 })] {
                for (payload, padding) in [(0, 6), (1, 0), (1428, 0), (10, 3)] {
                    let header = header(timestamps);
                    let octets = packet(family, &header, payload, padding);
                    let plain = family.parse(&octets).expect("it is plain");
                    assert_eq!((plain.payload_octets, plain.header()), (payload, header.clone()));
                    assert_eq!((plain.ecn, plain.tuple.network_octets()), (2, family.header_len()));
                    assert_eq!(by_fields(family, &octets), Some((plain, header)));
                }
            }
        }
    }

    /// Offsets in a packet, values that they must not have, and what the packet then is.
    type Changes<'a> = &'a [(usize, u8, &'a str)];

    fn none_is_plain(family: Family, changes: Changes<'_>) {
        let plain = packet(family, &header(Some(Timestamps::default())), 20, 0);
        assert!(family.parse(&plain).is_some());
        let changed = |at: usize, value: u8| {
            let mut octets = plain.clone();
            octets[at] = value;
            octets
        };
        for (at, value, what) in changes {
            assert_eq!(family.parse(&changed(*at, *value)), None, "{family:?}: {what}");
        }
        let tcp: Changes<'_> = &[
            (13, 0x12, "SYN"),
            (13, 0x11, "FIN"),
            (13, 0x14, "RST"),
            (13, 0x30, "URG"),
            (13, 0x50, "ECE"),
            (13, 0x90, "CWR"),
            (13, 0x08, "no ACK"),
            (12, 0x90, "more options"),
            (22, 5, "another option"),
            (23, 9, "an impossible length"),
        ];
        for (at, value, what) in tcp {
            let octets = changed(family.header_len() + at, *value);
            assert_eq!(family.parse(&octets), None, "{family:?}: {what}");
        }
        for len in 0..plain.len() {
            assert_eq!(family.parse(&plain[..len]), None, "{len}");
        }
    }

    #[test]
    fn other_forms_are_left() {
        none_is_plain(
            V4,
            &[
                (0, 0x46, "IP options"),
                (0, 0x65, "another version"),
                (6, 0x20, "a first fragment"),
                (7, 1, "a later fragment"),
                (9, 17, "another protocol"),
                (3, 51, "shorter than its headers"),
                (2, 1, "cut off"),
            ],
        );
        none_is_plain(
            V6,
            &[
                (0, 0x40, "another version"),
                (6, 0, "options for each hop"),
                (6, 43, "a route"),
                (6, 44, "a fragment"),
                (6, 60, "options"),
                (6, 17, "another protocol"),
                (5, 31, "shorter than its headers"),
                (5, 0, "empty, or a jumbogram"),
                (4, 1, "cut off"),
            ],
        );
    }

    /// Segments with an RDMA option, beside timestamps or not, are parsed field by field.
    #[test]
    fn rdma_options_are_left() {
        for family in [V4, V6] {
            for timestamps in [None, Some(Timestamps { value: 9, echo: 8 })] {
                for octets in [0, 2, 14, 18] {
                    let option = RdmaOption::parse(&[0; 18][..octets]);
                    assert!(option.is_some());
                    let mut header = header(timestamps);
                    header.options.rdma = option;
                    let octets = packet(family, &header, 100, 0);
                    assert_eq!(family.parse(&octets), None, "{option:?}");
                    assert_eq!(by_fields(family, &octets).map(|(_, header)| header), Some(header));
                }
            }
        }
    }

    proptest! {
        /// What is taken for plain has the same meaning when it is parsed field by field.
        #[test]
        fn both_ways_of_parsing_agree(
            over_ipv6: bool,
            timestamps: bool,
            changes in proptest::collection::vec((0usize..80, any::<u8>()), 0..3),
        ) {
            let family = if over_ipv6 { V6 } else { V4 };
            let timestamps = timestamps.then_some(Timestamps { value: 1, echo: 2 });
            let mut octets = packet(family, &header(timestamps), 40, 2);
            for (at, value) in changes {
                octets[at] = value;
            }
            if let Some(plain) = family.parse(&octets) {
                let (expected, header) = by_fields(family, &octets).expect("it is a segment");
                prop_assert_eq!(plain, expected);
                prop_assert_eq!(plain.header(), Header { urgent: 0, ..header });
            }
        }
    }
}
