//! The Internet checksum (RFC 1071), implemented a second time: the check of the core's frames does not use
//! the core's own code.

use warpline_dataplane::device::{ChecksumRequest, IpVersion};

/// Octets of an Ethernet header.
pub const ETHERNET_OCTETS: usize = 14;

/// The ones' complement sum of `octets`, carried into 16 bits.
fn sum(octets: &[u8], start: u32) -> u16 {
    let mut sum = u64::from(start);
    for pair in octets.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// Returns the value of a checksum field.
pub fn of(octets: &[u8]) -> u16 {
    !sum(octets, 0)
}

/// The checksum of a TCP segment or ICMPv6 message between two addresses of 4 or 16 octets each.
pub fn with_pseudo_header(addresses: &[u8], protocol: u8, segment: &[u8]) -> u16 {
    let start = u32::from(sum(addresses, 0)) + u32::from(protocol) + segment.len() as u32;
    !sum(segment, start)
}

/// The IPv4 packet in a frame: where it begins and ends, and how long its header is. `None` when it is not
/// one.
fn ipv4(frame: &[u8]) -> Option<(&[u8], usize)> {
    let packet = frame.get(ETHERNET_OCTETS..)?;
    let header_octets = usize::from(packet.first()? & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let whole = frame[12..14] == [8, 0] && packet[0] >> 4 == 4 && header_octets >= 20;
    (whole && total >= header_octets).then_some((packet.get(..total)?, header_octets))
}

/// Whether the IPv4 header checksum of a frame holds; `None` when the frame has none.
pub fn ipv4_holds(frame: &[u8]) -> Option<bool> {
    let (packet, header_octets) = ipv4(frame)?;
    Some(of(&packet[..header_octets]) == 0)
}

/// Whether the checksum of the TCP segment in an unfragmented IPv4 packet holds; `None` when the frame has
/// none.
pub fn tcp_holds(frame: &[u8]) -> Option<bool> {
    let (packet, header_octets) = ipv4(frame)?;
    let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    (packet[9] == 6 && !fragment)
        .then(|| with_pseudo_header(&packet[12..20], 6, &packet[header_octets..]) == 0)
}

/// Completes a checksum request as a device does: the TCP field holds the sum of the pseudo-header.
pub fn complete(frame: &mut [u8], request: ChecksumRequest) {
    let network = usize::from(request.l2_octets);
    let transport = network + usize::from(request.l3_octets);
    if request.ip == IpVersion::V4 && request.ip_checksum {
        frame[network + 10..network + 12].fill(0);
        let header = of(&frame[network..transport]);
        frame[network + 10..network + 12].copy_from_slice(&header.to_be_bytes());
    }
    let segment = of(&frame[transport..]);
    frame[transport + 16..transport + 18].copy_from_slice(&segment.to_be_bytes());
}
