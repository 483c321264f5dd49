//! Frames that the peers send, built octet by octet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum;

/// The core's hardware address.
pub const CORE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The core's addresses.
pub const CORE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const CORE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// The router to other networks.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);
/// The peers: two neighbours, one beyond the gateway, and one that uses IPv6.
pub const PEERS: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(198, 18, 0, 3)),
    IpAddr::V4(Ipv4Addr::new(198, 19, 0, 4)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5)),
];

/// IP protocols.
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const ICMPV6: u8 = 58;

/// The source hardware address of packets of `host`.
pub fn mac_of(host: IpAddr) -> [u8; 6] {
    let last = match host {
        host if host == PEERS[2] => GATEWAY.octets()[3],
        IpAddr::V4(host) => host.octets()[3],
        IpAddr::V6(host) => host.octets()[15],
    };
    [2, 0, 0, 0, 0, last]
}

/// The core's address for `peer`.
pub fn core_for(peer: IpAddr) -> IpAddr {
    if peer.is_ipv4() { CORE.into() } else { CORE6.into() }
}

/// The octets of an address.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The octets of a peer's address and the core's, as the pseudo-header has them.
fn addresses(source: IpAddr) -> Vec<u8> {
    [octets(source), octets(core_for(source))].concat()
}

/// How an IP header departs from the usual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odd {
    /// The checksum is wrong (IPv4).
    pub bad_checksum: bool,
    /// The two low bits of the traffic class.
    pub ecn: u8,
    /// Flags and fragment offset, as IPv4 has them.
    pub fragment: u16,
    pub identification: u16,
    /// Octets of options up to 40: of the header in IPv4, of a header for each hop in IPv6.
    pub options: u8,
    /// Octets of padding after the packet.
    pub padding: u8,
}

/// An IP packet from `source` to the core, in a frame.
pub fn packet(source: IpAddr, protocol: u8, odd: Odd, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128 + payload.len());
    frame.extend(CORE_MAC);
    frame.extend(mac_of(source));
    match source {
        IpAddr::V4(source) => ipv4(&mut frame, source, protocol, odd, payload),
        IpAddr::V6(source) => ipv6(&mut frame, source, protocol, odd, payload),
    }
    frame.extend(core::iter::repeat_n(0x5a, usize::from(odd.padding)));
    frame
}

fn ipv4(frame: &mut Vec<u8>, source: Ipv4Addr, protocol: u8, odd: Odd, payload: &[u8]) {
    let options = usize::from(odd.options.min(40) & !3);
    let header_octets = 20 + options;
    frame.extend([8, 0]);
    frame.extend([0x40 | (header_octets / 4) as u8, odd.ecn & 3]);
    frame.extend(((header_octets + payload.len()) as u16).to_be_bytes());
    frame.extend(odd.identification.to_be_bytes());
    frame.extend(odd.fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(source.octets());
    frame.extend(CORE.octets());
    frame.extend(core::iter::repeat_n(1, options));
    let header = checksum::of(&frame[14..]) ^ u16::from(odd.bad_checksum);
    frame[24..26].copy_from_slice(&header.to_be_bytes());
    frame.extend(payload);
}

fn ipv6(frame: &mut Vec<u8>, source: Ipv6Addr, protocol: u8, odd: Odd, payload: &[u8]) {
    // The chain of headers from its end: the packet, a fragment header before it, options before both.
    let (mut next, mut packet) = (protocol, payload.to_vec());
    if odd.fragment & 0x3fff != 0 {
        let offset = (odd.fragment & 0x1fff) << 3 | odd.fragment >> 13 & 1;
        let mut header = vec![next, 0];
        header.extend(offset.to_be_bytes());
        header.extend(u32::from(odd.identification).to_be_bytes());
        (next, packet) = (44, [header, packet].concat());
    }
    if odd.options > 0 {
        let units = usize::from(odd.options.min(40)) / 8;
        let mut header = vec![next, units as u8, 1, 4 + 8 * units as u8];
        header.resize(8 + 8 * units, 0);
        (next, packet) = (0, [header, packet].concat());
    }
    frame.extend([0x86, 0xdd, 0x60, (odd.ecn & 3) << 4, 0, 0]);
    frame.extend((packet.len() as u16).to_be_bytes());
    // Neighbour discovery is only believed from the same link (RFC 4861 §6.1.1).
    frame.extend([next, if protocol == ICMPV6 { 255 } else { 64 }]);
    frame.extend(source.octets());
    frame.extend(CORE6.octets());
    frame.extend(packet);
}

/// A TCP segment as a peer sends it.
#[derive(Clone, Debug, Default)]
pub struct Segment<'p> {
    pub source_port: u16,
    pub destination_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub urgent: u16,
    /// Options, not padded.
    pub options: Vec<u8>,
    pub payload: &'p [u8],
    pub bad_checksum: bool,
}

impl Segment<'_> {
    /// The segment from `source` to the core, in a frame.
    pub fn frame(&self, source: IpAddr, odd: Odd) -> Vec<u8> {
        let mut options = self.options.clone();
        options.truncate(40);
        options.resize(options.len().next_multiple_of(4), 0);
        let mut segment = Vec::with_capacity(20 + options.len() + self.payload.len());
        segment.extend(self.source_port.to_be_bytes());
        segment.extend(self.destination_port.to_be_bytes());
        segment.extend(self.seq.to_be_bytes());
        segment.extend(self.ack.to_be_bytes());
        segment.extend([((20 + options.len()) / 4) as u8 * 16, self.flags]);
        segment.extend(self.window.to_be_bytes());
        segment.extend([0, 0]);
        segment.extend(self.urgent.to_be_bytes());
        segment.extend(options);
        segment.extend(self.payload);
        let sum =
            checksum::with_pseudo_header(&addresses(source), TCP, &segment) ^ u16::from(self.bad_checksum);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        packet(source, TCP, odd, &segment)
    }
}

/// An ARP packet to the core or to everybody.
pub fn arp(operation: u16, sender_mac: [u8; 6], sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(60);
    frame.extend(if operation == 1 { [0xff; 6] } else { CORE_MAC });
    frame.extend(sender_mac);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4]);
    frame.extend(operation.to_be_bytes());
    frame.extend(sender_mac);
    frame.extend(sender.octets());
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame.resize(60, 0);
    frame
}

/// An ICMP message to the core, of the version that `source` has.
pub fn icmp(source: IpAddr, (kind, code): (u8, u8), rest: &[u8], bad: bool) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest);
    let (protocol, sum) = match source {
        IpAddr::V4(_) => (ICMP, checksum::of(&message)),
        IpAddr::V6(_) => (ICMPV6, checksum::with_pseudo_header(&addresses(source), ICMPV6, &message)),
    };
    message[2..4].copy_from_slice(&(sum ^ u16::from(bad)).to_be_bytes());
    packet(source, protocol, Odd::default(), &message)
}

/// A neighbour advertisement of `target` by itself, with `flags` and its hardware address (RFC 4861 §4.4).
pub fn neighbour_advertisement(target: IpAddr, flags: u8, mac: [u8; 6]) -> Vec<u8> {
    let rest = [&[flags, 0, 0, 0], &octets(target)[..], &[2, 1], &mac].concat();
    icmp(target, (136, 0), &rest, false)
}

/// A neighbour solicitation by `source` for `target`, with its hardware address (RFC 4861 §4.3).
pub fn neighbour_solicitation(source: IpAddr, target: IpAddr, mac: [u8; 6]) -> Vec<u8> {
    let rest = [&[0; 4], &octets(target)[..], &[1, 1], &mac].concat();
    icmp(source, (135, 0), &rest, false)
}
