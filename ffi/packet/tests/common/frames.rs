//! Frames, built and taken apart without the crate under test.

use std::net::IpAddr;

use packet::{Offload, Segmentation};

pub const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// Returns the sum of RFC 1071 over `octets`, folded and not inverted.
pub fn sum(octets: &[u8]) -> u16 {
    let mut sum: u32 =
        octets.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the folded sum of the pseudo-header.
pub fn pseudo_sum(source: IpAddr, destination: IpAddr, protocol: u8, octets: usize) -> u16 {
    let mut header = Vec::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => header.extend(address.octets()),
            IpAddr::V6(address) => header.extend(address.octets()),
        }
    }
    header.extend((octets as u32).to_be_bytes());
    header.extend([0, 0, 0, protocol]);
    sum(&header)
}

/// Returns an Ethernet frame from near to far.
pub fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&FAR_MAC[..], &NEAR_MAC, &ether_type.to_be_bytes(), payload].concat()
}

/// Returns `frame` with a VLAN tag.
pub fn tagged(frame: &[u8], tpid: u16, tci: u16) -> Vec<u8> {
    [&frame[..12], &tpid.to_be_bytes(), &tci.to_be_bytes(), &frame[12..]].concat()
}

/// Returns an Ethernet frame with an IP packet.
pub fn ip(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0];
            header.extend(((20 + payload.len()) as u16).to_be_bytes());
            header.extend([0, 7, 0x40, 0, 64, protocol, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
            let checksum = !sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            ethernet(0x0800, &[&header, payload].concat())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend((payload.len() as u16).to_be_bytes());
            header.extend([protocol, 64]);
            header.extend(source.octets());
            header.extend(destination.octets());
            ethernet(0x86dd, &[&header, payload].concat())
        }
        _ => panic!("two families"),
    }
}

/// Returns a UDP datagram. Its checksum is complete, or the pseudo-header's sum if `partial`.
pub fn udp(source: (IpAddr, u16), destination: (IpAddr, u16), payload: &[u8], partial: bool) -> Vec<u8> {
    let octets = 8 + payload.len();
    let mut datagram = Vec::new();
    datagram.extend(source.1.to_be_bytes());
    datagram.extend(destination.1.to_be_bytes());
    datagram.extend((octets as u16).to_be_bytes());
    let pseudo = pseudo_sum(source.0, destination.0, UDP, octets);
    datagram.extend(pseudo.to_be_bytes());
    datagram.extend(payload);
    if !partial {
        let checksum = !sum(&datagram);
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    }
    ip(source.0, destination.0, UDP, &datagram)
}

/// What a TCP segment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub source: (IpAddr, u16),
    pub destination: (IpAddr, u16),
    pub sequence: u32,
    pub acknowledgment: u32,
    /// FIN 1, SYN 2, RST 4, PSH 8, ACK 16.
    pub flags: u8,
    pub payload: Vec<u8>,
}

impl Segment {
    /// Returns the frame, whose checksum field holds the sum of the pseudo-header.
    pub fn frame(&self) -> Vec<u8> {
        let mut segment = Vec::new();
        segment.extend(self.source.1.to_be_bytes());
        segment.extend(self.destination.1.to_be_bytes());
        segment.extend(self.sequence.to_be_bytes());
        segment.extend(self.acknowledgment.to_be_bytes());
        segment.extend([0x50, self.flags, 0xff, 0xff]);
        let pseudo = pseudo_sum(self.source.0, self.destination.0, TCP, 20 + self.payload.len());
        segment.extend(pseudo.to_be_bytes());
        segment.extend([0, 0]);
        segment.extend(&self.payload);
        ip(self.source.0, self.destination.0, TCP, &segment)
    }

    /// Returns the offload of the frame, with segments of `segment_octets` if that is not 0. `tag_octets` are
    /// those of a VLAN tag.
    pub fn offload(&self, segment_octets: u16, tag_octets: u16) -> Offload {
        let ipv6 = self.source.0.is_ipv6();
        let checksum_start = 14 + tag_octets + if ipv6 { 40 } else { 20 };
        let header_octets = checksum_start + 20;
        let segmentation = Segmentation { segment_octets, header_octets, ipv6 };
        Offload {
            checksum_start,
            checksum_offset: 16,
            segmentation: (segment_octets > 0).then_some(segmentation),
        }
    }

    /// Returns the segment in a frame without a VLAN tag, or `None` if it is something else. The checksums
    /// have to be good, unless `partial`: then the TCP checksum has to be the pseudo-header's sum.
    pub fn parse(frame: &[u8], partial: bool) -> Option<Self> {
        let (source, destination, protocol, transport) = parse_ip(frame)?;
        if protocol != TCP {
            return None;
        }
        let pseudo = pseudo_sum(source, destination, TCP, transport.len());
        if partial {
            assert_eq!(transport[16..18], pseudo.to_be_bytes(), "the sum of the pseudo-header");
        } else {
            let total = sum(&[&pseudo.to_be_bytes(), transport].concat());
            assert_eq!(total, 0xffff, "the checksum of TCP");
        }
        let word = |at: usize| u32::from_be_bytes(transport[at..at + 4].try_into().unwrap());
        let port = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
        Some(Self {
            source: (source, port(0)),
            destination: (destination, port(2)),
            sequence: word(4),
            acknowledgment: word(8),
            flags: transport[13],
            payload: transport[usize::from(transport[12] >> 4) * 4..].to_vec(),
        })
    }
}

/// Returns source, destination, protocol and payload of an IP packet in a frame without a VLAN tag.
pub fn parse_ip(frame: &[u8]) -> Option<(IpAddr, IpAddr, u8, &[u8])> {
    let packet = &frame[14..];
    match frame[12..14] {
        [0x08, 0x00] => {
            assert_eq!(sum(&packet[..20]), 0xffff, "the checksum of the IPv4 header");
            let octets = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap().into();
            Some((address(12), address(16), packet[9], &packet[20..octets]))
        }
        [0x86, 0xdd] => {
            let octets = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap().into();
            Some((address(8), address(24), packet[6], &packet[40..40 + octets]))
        }
        _ => None,
    }
}

/// Returns `octets` octets that repeat after a prime number of them, and differ by `seed`.
pub fn pattern(octets: usize, seed: usize) -> Vec<u8> {
    (0..octets).map(|at| ((at + seed) % 251) as u8).collect()
}

/// Returns the destination of an IP packet in a frame without a VLAN tag, whatever its checksum.
pub fn parse_destination(frame: &[u8]) -> IpAddr {
    match frame[12..14] {
        [0x08, 0x00] => <[u8; 4]>::try_from(&frame[30..34]).unwrap().into(),
        _ => <[u8; 16]>::try_from(&frame[38..54]).unwrap().into(),
    }
}
