//! A TCP segment in its frame: the fields of its headers that every segment has, in one pass.

use super::flow::{Flow, FlowV4, FlowV6};
use super::tcp::{Flags, Header, Options, SeqNumber, Timestamps};
use super::tcp_rdma::RdmaOption;
use super::{ipv4, ipv6};

/// A TCP segment, and where its payload lies in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its addresses and ports.
    pub flow: Flow,
    /// The first octet of payload, or the SYN.
    pub seq: SeqNumber,
    /// The next octet the sender expects.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: Flags,
    /// The window field.
    pub window: u16,
    /// The timestamps option, if it comes after two NOPs (RFC 7323 appendix A), and with no other option but
    /// the TCP RDMA option after it.
    pub timestamps: Option<Timestamps>,
    /// Octets of the TCP RDMA option, if it was [found](Self::find_rdma_option) with no other option but
    /// those `timestamps` before it.
    pub rdma_octets: u8,
    /// There are options, and not only these: [`header`](Self::header) parses all of them.
    pub has_other_options: bool,
    /// The two ECN bits of the IP header (RFC 3168 §5).
    pub ecn: u8,
    /// Where in the frame its TCP header begins.
    pub transport: usize,
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
    /// Where in the frame the packet begins.
    network: usize,
    /// Octets of the packet.
    octets: usize,
    /// Where in the frame the segment begins.
    transport: usize,
    ecn: u8,
}

impl Segment {
    /// No segment: what [`read_ipv4`](Self::read_ipv4) and [`read_ipv6`](Self::read_ipv6) replace.
    pub const NONE: Self = Self {
        flow: Flow::V4(FlowV4 { addresses: [0; 8], ports: [0; 4] }),
        seq: SeqNumber(0),
        ack: SeqNumber(0),
        flags: Flags::empty(),
        window: 0,
        timestamps: None,
        rdma_octets: 0,
        has_other_options: false,
        ecn: 0,
        transport: 0,
        payload_offset: 0,
        payload_octets: 0,
    };

    /// Makes this the segment in the IPv4 packet that begins at `network` in `frame`. Returns false, and what
    /// it is then is unspecified, for a packet with IP options, a fragment, another protocol than TCP, and
    /// one that is not complete or not valid: [`ipv4::Header`] tells them apart. Checksums are left to the
    /// caller.
    #[inline]
    pub fn read_ipv4(&mut self, frame: &[u8], network: usize) -> bool {
        let Some(octets) = frame.get(network..) else { return false };
        let Some((headers, _)) = octets.split_first_chunk::<{ ipv4::Header::LEN + Header::MIN_LEN }>() else {
            return false;
        };
        let (ip, tcp) = headers.split_at(ipv4::Header::LEN);
        let is_segment = ip[0] == VERSION_4_AND_LENGTH
            && ip[9] == TCP
            && u16::from_be_bytes([ip[6], ip[7]]) & FRAGMENT == 0;
        let (Some(addresses), Some(tcp)) = (ip.last_chunk(), tcp.first_chunk()) else { return false };
        if !is_segment {
            return false;
        }
        let packet = Packet {
            network,
            octets: usize::from(u16::from_be_bytes([ip[2], ip[3]])),
            transport: network + ipv4::Header::LEN,
            ecn: ip[1] & 0x03,
        };
        self.flow = Flow::V4(FlowV4 { addresses: *addresses, ports: ports(tcp) });
        self.read_tcp(&packet, tcp, frame)
    }

    /// Makes this the segment in an IPv6 packet as [`read_ipv4`](Self::read_ipv4) does with one of IPv4; of
    /// one with extension headers it returns false.
    #[inline]
    pub fn read_ipv6(&mut self, frame: &[u8], network: usize) -> bool {
        let Some(octets) = frame.get(network..) else { return false };
        let Some((headers, _)) = octets.split_first_chunk::<{ ipv6::Header::LEN + Header::MIN_LEN }>() else {
            return false;
        };
        let (ip, tcp) = headers.split_at(ipv6::Header::LEN);
        let (Some(addresses), Some(tcp)) = (ip.last_chunk(), tcp.first_chunk()) else { return false };
        if ip[0] >> 4 != VERSION_6 || ip[6] != TCP {
            return false;
        }
        let packet = Packet {
            network,
            octets: ipv6::Header::LEN + usize::from(u16::from_be_bytes([ip[4], ip[5]])),
            transport: network + ipv6::Header::LEN,
            // The lower two of the eight bits of the traffic class, which begins in the middle of an octet.
            ecn: ip[1] >> 4 & 0x03,
        };
        self.flow = Flow::V6(FlowV6 { addresses: *addresses, ports: ports(tcp) });
        self.read_tcp(&packet, tcp, frame)
    }

    /// Reads the TCP header `tcp` of `packet` in `frame`, which may have octets after the packet that do not
    /// belong to it.
    #[inline]
    fn read_tcp(&mut self, packet: &Packet, tcp: &[u8; Header::MIN_LEN], frame: &[u8]) -> bool {
        let header_octets = usize::from(tcp[12] >> 4) * 4;
        let payload_offset = packet.transport + header_octets;
        let end = packet.network + packet.octets;
        if header_octets < Header::MIN_LEN || end < payload_offset || end > frame.len() {
            return false;
        }
        self.timestamps = if header_octets == WITH_TIMESTAMPS {
            frame.get(packet.transport + Header::MIN_LEN..).and_then(timestamps_only)
        } else {
            None
        };
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        self.seq = SeqNumber(word(4));
        self.ack = SeqNumber(word(8));
        self.flags = Flags::from_bits_retain(tcp[13]);
        self.window = u16::from_be_bytes([tcp[14], tcp[15]]);
        self.rdma_octets = 0;
        self.has_other_options = header_octets != Header::MIN_LEN && self.timestamps.is_none();
        self.ecn = packet.ecn;
        self.transport = packet.transport;
        self.payload_offset = payload_offset;
        self.payload_octets = end - payload_offset;
        true
    }

    /// Returns the segment between the ends of `flow` that begins with `header`, of `header_octets`, at
    /// `transport` in its frame, and has `payload_octets` of payload.
    pub fn with_header(
        flow: Flow,
        header: &Header,
        ecn: u8,
        transport: usize,
        header_octets: usize,
        payload_octets: usize,
    ) -> Self {
        let timestamps = header.options.timestamps;
        let has_only_timestamps = header.options == Options { timestamps, ..Options::default() };
        Self {
            flow,
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            timestamps: timestamps.filter(|_| has_only_timestamps),
            rdma_octets: 0,
            has_other_options: !has_only_timestamps,
            ecn,
            transport,
            payload_offset: transport + header_octets,
            payload_octets,
        }
    }

    /// Returns where in the frame it ends.
    #[inline]
    pub const fn end(&self) -> usize {
        self.payload_offset + self.payload_octets
    }

    /// Returns the sequence number after its payload.
    #[inline]
    pub fn text_end(&self) -> SeqNumber {
        self.seq + self.payload_octets as u32
    }

    /// Finds the TCP RDMA option, of the kind `kind`, if there is no other option, or only timestamps before
    /// it, after two NOPs. `frame` is the one that the segment was parsed from.
    #[inline(never)]
    pub fn find_rdma_option(&mut self, frame: &[u8], kind: u8) {
        let options = frame.get(self.transport + Header::MIN_LEN..self.payload_offset).unwrap_or_default();
        let timestamps = timestamps_only(options);
        let rdma = if timestamps.is_some() { &options[WITH_TIMESTAMPS - Header::MIN_LEN..] } else { options };
        let [found, octets, body @ ..] = rdma else { return };
        // The offer, which is for SYNs, is followed by NOPs.
        if *found == kind && usize::from(*octets) == rdma.len() && RdmaOption::parse(body).is_some() {
            (self.timestamps, self.rdma_octets, self.has_other_options) = (timestamps, *octets, false);
        }
    }

    /// Returns the octets of the TCP RDMA option, if it was [found](Self::find_rdma_option), and none if not.
    /// `frame` is the one that the segment lies in.
    #[inline]
    pub fn rdma_octets<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        let octets = usize::from(self.rdma_octets);
        frame.get(self.payload_offset - octets..self.payload_offset).unwrap_or_default()
    }

    /// Returns the TCP RDMA option, if it was found.
    #[cfg(test)]
    pub fn rdma_option(&self, frame: &[u8]) -> Option<RdmaOption> {
        RdmaOption::parse(self.rdma_octets(frame).get(2..)?)
    }

    /// Returns its header with all options, of which those of the RDMA option have the kind `rdma_kind`.
    /// `frame` is the one it was parsed from.
    pub fn header(&self, frame: &[u8], rdma_kind: u8) -> Header {
        if self.has_other_options || self.rdma_octets > 0 {
            let parsed = frame.get(self.transport..self.payload_offset);
            if let Some(Ok((header, _))) = parsed.map(|octets| Header::parse_with(octets, rdma_kind)) {
                return header;
            }
            debug_assert!(false, "a header that was parsed");
        }
        Header {
            source_port: self.flow.source_port(),
            destination_port: self.flow.destination_port(),
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: 0,
            options: Options { timestamps: self.timestamps, ..Options::default() },
        }
    }
}

/// Returns the ports in a TCP header.
#[inline]
const fn ports(tcp: &[u8; Header::MIN_LEN]) -> [u8; 4] {
    [tcp[0], tcp[1], tcp[2], tcp[3]]
}

/// Returns the timestamps of options that begin with them after two NOPs.
#[inline]
fn timestamps_only(options: &[u8]) -> Option<Timestamps> {
    let [kinds @ .., v0, v1, v2, v3, e0, e1, e2, e3] = *options.first_chunk::<12>()?;
    let value = u32::from_be_bytes([v0, v1, v2, v3]);
    (kinds == TIMESTAMPS_AFTER_NOPS)
        .then_some(Timestamps { value, echo: u32::from_be_bytes([e0, e1, e2, e3]) })
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::wire::tcp::{Flags, Options, SeqNumber, Timestamps};
    use crate::wire::tcp_rdma::{self, RdmaOption};

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

        fn parse(self, octets: &[u8]) -> Option<Segment> {
            let mut segment = Segment::NONE;
            let found = match self {
                V4 => segment.read_ipv4(octets, 0),
                V6 => segment.read_ipv6(octets, 0),
            };
            found.then_some(segment)
        }
    }

    /// The fields of an IP header that a segment has, and where the segment begins and ends.
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

    /// Parses field by field, as the host does with a packet in any form.
    fn by_fields(family: Family, octets: &[u8]) -> Option<(Segment, Header)> {
        let ip = match family {
            V4 => ipv4_fields(octets)?,
            V6 => ipv6_fields(octets)?,
        };
        let (header, header_len) = Header::parse(octets.get(ip.segment.clone())?).ok()?;
        let source = (ip.source, header.source_port);
        let flow = Flow::new(source.into(), (ip.destination, header.destination_port).into())?;
        let (transport, payload_octets) = (ip.segment.start, ip.segment.len() - header_len);
        let segment = Segment::with_header(flow, &header, ip.ecn, transport, header_len, payload_octets);
        Some((segment, header))
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

    /// Whatever its control bits and options are, with padding after it or not.
    #[test]
    fn a_segment_has_the_fields_of_its_headers() {
        let mut headers = vec![header(None), header(Some(Timestamps { value: 9, echo: 8 }))];
        let mut with_blocks = header(Some(Timestamps { value: 9, echo: 8 }));
        with_blocks.options.sack.push((SeqNumber(5), SeqNumber(9)));
        headers.push(with_blocks);
        headers.push(Header { flags: Flags::SYN | Flags::ECE | Flags::CWR, ..header(None) });
        for octets in [0, 2, 14, 18] {
            let option = RdmaOption::parse(&[0; 18][..octets]);
            assert!(option.is_some());
            let mut with_option = header(Some(Timestamps { value: 9, echo: 8 }));
            with_option.options.rdma = option;
            headers.push(with_option);
        }
        for (family, header) in
            [V4, V6].into_iter().flat_map(|family| headers.iter().map(move |h| (family, h)))
        {
            for (payload, padding) in [(0, 6), (1, 0), (1428, 0), (10, 3)] {
                let octets = packet(family, header, payload, padding);
                let segment = family.parse(&octets).expect("a segment");
                let parsed = segment.header(&octets, tcp_rdma::DEFAULT_KIND);
                assert_eq!((segment.payload_octets, &parsed), (payload, header));
                assert_eq!(segment.end(), octets.len() - padding);
                assert_eq!((segment.ecn, segment.flow.network_octets()), (2, family.header_len()));
                assert_eq!(by_fields(family, &octets), Some((segment, parsed)));
            }
        }
    }

    /// Offsets in a packet, values that they must not have, and what the packet then is.
    type Changes<'a> = &'a [(usize, u8, &'a str)];

    fn none_is_a_segment(family: Family, changes: Changes<'_>) {
        let valid = packet(family, &header(Some(Timestamps::default())), 20, 0);
        assert!(family.parse(&valid).is_some());
        for (at, value, what) in changes {
            let mut octets = valid.clone();
            octets[*at] = *value;
            assert_eq!(family.parse(&octets), None, "{family:?}: {what}");
        }
        for len in 0..valid.len() {
            assert_eq!(family.parse(&valid[..len]), None, "{len}");
        }
    }

    #[test]
    fn other_packets_are_left() {
        none_is_a_segment(
            V4,
            &[
                (0, 0x46, "IP options"),
                (0, 0x65, "another version"),
                (6, 0x20, "a first fragment"),
                (7, 1, "a later fragment"),
                (9, 17, "another protocol"),
                (3, 51, "shorter than its headers"),
                (2, 1, "cut off"),
                (32, 0x40, "a data offset inside the header"),
                (32, 0xf0, "a data offset beyond the segment"),
            ],
        );
        none_is_a_segment(
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

    proptest! {
        /// What is found in one pass has the same meaning when it is parsed field by field.
        #[test]
        fn one_pass_agrees_with_the_fields(
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
            if let Some(segment) = family.parse(&octets) {
                let header = segment.header(&octets, tcp_rdma::DEFAULT_KIND);
                let (expected, header_by_fields) = by_fields(family, &octets).expect("a segment");
                prop_assert_eq!(Header { urgent: 0, ..header }, Header { urgent: 0, ..header_by_fields });
                let is_same = Segment { has_other_options: expected.has_other_options, ..segment };
                prop_assert_eq!(is_same, Segment { timestamps: segment.timestamps, ..expected });
                // Timestamps that stand otherwise are parsed with the other options.
                prop_assert!(segment.has_other_options || !expected.has_other_options);
            }
        }
    }
}
