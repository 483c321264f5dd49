//! The flow of a received frame: what an adapter hashes, read from its octets in software.

use super::Steering;
use crate::wire::ethernet::{EtherType, Header, Tag};
use crate::wire::flow::{Flow, FlowV4};
use crate::wire::ipv4::{self, Protocol};
use crate::wire::{ipv6, tcp};

impl Steering {
    /// Returns the core that owns the TCP segment in an Ethernet frame, of which `octets` are the first, all
    /// headers among them; `None` if the frame has no flow: core 0 takes it.
    #[inline]
    pub fn owner_of_frame(&self, octets: &[u8]) -> Option<u8> {
        flow_of_frame(octets).map(|flow| self.owner(&flow))
    }
}

/// Returns the flow of the TCP segment in an Ethernet frame with at most one VLAN tag, of which `octets` are
/// the first, all headers among them. Neither checksums are verified, nor what TCP's header says.
///
/// `None` for all that has no ports at a place that every adapter finds: other protocols, fragments, TCP
/// after extension headers of IPv6, which some adapters hash without its ports, and packets whose version is
/// not that of their EtherType, or that end before their TCP header does, by their length or by the frame's.
#[inline]
pub fn flow_of_frame(octets: &[u8]) -> Option<Flow> {
    match packet_of_frame(octets)? {
        (EtherType::IPV4, packet) => flow_of_ipv4(packet),
        (EtherType::IPV6, packet) => flow_of_ipv6(packet),
        _ => None,
    }
}

/// Returns the EtherType of what an Ethernet frame with at most one VLAN tag carries, and its octets.
#[inline]
pub fn packet_of_frame(octets: &[u8]) -> Option<(EtherType, &[u8])> {
    let (link, packet) = octets.split_at_checked(Header::LEN)?;
    match EtherType(u16::from_be_bytes(*link.last_chunk()?)) {
        EtherType::VLAN => {
            let (tag, packet) = packet.split_at_checked(Tag::LEN)?;
            Some((EtherType(u16::from_be_bytes(*tag.last_chunk()?)), packet))
        }
        ether_type => Some((ether_type, packet)),
    }
}

/// Returns the flow of the segment in an IPv4 packet that is no fragment, with options or without.
#[inline]
fn flow_of_ipv4(packet: &[u8]) -> Option<Flow> {
    let header: &[u8; ipv4::Header::LEN] = packet.first_chunk()?;
    let total_len = u16::from_be_bytes([header[2], header[3]]);
    // The flag MF, and the offset.
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if is_fragment || header[9] != Protocol::TCP.0 || !matches!(header[0], 0x45..=0x4f) {
        return None;
    }
    let header_octets = usize::from(header[0] & 0x0f) * 4;
    let end = header_octets + tcp::Header::MIN_LEN;
    let (addresses, ports) = (header.last_chunk()?, packet.get(header_octets..end)?.first_chunk()?);
    (usize::from(total_len) >= end).then_some(Flow::V4(FlowV4 { addresses: *addresses, ports: *ports }))
}

/// Returns the flow of the segment directly after the header of an IPv6 packet.
#[inline]
fn flow_of_ipv6(packet: &[u8]) -> Option<Flow> {
    let segment: &[u8; ipv6::Header::LEN + tcp::Header::MIN_LEN] = packet.first_chunk()?;
    let payload_len = u16::from_be_bytes([segment[4], segment[5]]);
    let is_segment = segment[0] >> 4 == 6 && segment[6] == Protocol::TCP.0;
    if is_segment && usize::from(payload_len) >= tcp::Header::MIN_LEN { Flow::at_ipv6(segment) } else { None }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::steering::toeplitz::KEY_BYTES;

    const ADDRESSES: [(&str, &str); 2] =
        [("198.18.0.2:50000", "198.18.0.1:7471"), ("[fd00::2]:50000", "[fd00::1]:7471")];

    fn flow(which: usize) -> Flow {
        let (source, destination) = ADDRESSES[which];
        let [source, destination] = [source, destination].map(|text| text.parse::<SocketAddr>().unwrap());
        Flow::new(source, destination).expect("one family")
    }

    /// An Ethernet frame with a segment of IPv4, with `options` words of IP options.
    fn v4(options: usize) -> Vec<u8> {
        let mut packet = vec![0; 20 + 4 * options + 20];
        packet[0] = 0x45 + options as u8;
        packet[3] = packet.len() as u8;
        packet[9] = Protocol::TCP.0;
        packet[12..20].copy_from_slice(&[198, 18, 0, 2, 198, 18, 0, 1]);
        let ports = 20 + 4 * options;
        packet[ports..ports + 4].copy_from_slice(&[0xc3, 0x50, 0x1d, 0x2f]);
        [&[0; 12][..], &[0x08, 0x00], &packet].concat()
    }

    fn v6() -> Vec<u8> {
        let mut packet = vec![0; 60];
        (packet[0], packet[5], packet[6]) = (0x60, 20, Protocol::TCP.0);
        for (offset, host) in [(8, 2), (24, 1)] {
            (packet[offset], packet[offset + 15]) = (0xfd, host);
        }
        packet[40..44].copy_from_slice(&[0xc3, 0x50, 0x1d, 0x2f]);
        [&[0; 12][..], &[0x86, 0xdd], &packet].concat()
    }

    fn tagged(frame: &[u8]) -> Vec<u8> {
        [&frame[..12], &[0x81, 0x00, 0x00, 0x07], &frame[12..]].concat()
    }

    #[test]
    fn segments_have_the_flow_of_their_headers() {
        for (frame, expected) in [(v4(0), flow(0)), (v4(1), flow(0)), (v4(10), flow(0)), (v6(), flow(1))] {
            assert_eq!(flow_of_frame(&frame), Some(expected), "{frame:?}");
            assert_eq!(flow_of_frame(&tagged(&frame)), Some(expected), "with a tag: {frame:?}");
        }
    }

    #[test]
    fn the_owner_is_that_of_the_flow() {
        let mut rng = fastrand::Rng::with_seed(7);
        let steering = Steering::new(5, 64, |key: &mut [u8; KEY_BYTES]| rng.fill(key));
        assert_eq!(steering.owner_of_frame(&v4(0)), Some(steering.owner(&flow(0))));
        assert_eq!(steering.owner_of_frame(&tagged(&v6())), Some(steering.owner(&flow(1))));
        steering.restrict(7471, Some(4));
        assert_eq!(steering.owner_of_frame(&v6()), Some(4), "the port goes to one core");
        assert_eq!(steering.owner_of_frame(&[0; 60]), None);
    }

    /// What has no flow: fragments, other protocols, extension headers, other EtherTypes, a second tag.
    #[test]
    fn other_frames_have_no_flow() {
        let with = |mut frame: Vec<u8>, offset: usize, value: u8| {
            frame[14 + offset] = value;
            frame
        };
        let mut arp = v4(0);
        arp[13] = 0x06;
        for (frame, what) in [
            (with(v4(0), 6, 0x20), "the first fragment"),
            (with(v4(0), 7, 0x01), "a later fragment"),
            (with(v4(0), 9, 17), "UDP"),
            (with(v4(0), 0, 0x44), "a header that is too short"),
            (with(v4(0), 0, 0x65), "version 6 under IPv4's EtherType"),
            (with(v4(0), 3, 39), "too short for the TCP header"),
            (with(v4(0), 3, 0), "no length"),
            (with(v4(3), 3, 51), "too short for the TCP header behind options"),
            (with(v6(), 0, 0x45), "version 4 under IPv6's EtherType"),
            (with(v6(), 5, 19), "a payload too short for the TCP header"),
            (with(v6(), 5, 0), "no payload"),
            (with(v6(), 6, Protocol::FRAGMENT.0), "a fragment of IPv6"),
            (with(v6(), 6, Protocol::HOP_BY_HOP.0), "an extension header"),
            (with(v6(), 6, Protocol::ICMPV6.0), "ICMPv6"),
            (tagged(&tagged(&v4(0))), "two tags"),
            (arp, "ARP"),
        ] {
            assert_eq!(flow_of_frame(&frame), None, "{what}");
        }
        // DF is no fragment.
        assert!(flow_of_frame(&with(v4(0), 6, 0x40)).is_some());
    }

    /// A frame may end anywhere.
    #[test]
    fn a_frame_that_ends_before_its_tcp_header_has_no_flow() {
        for (frame, header) in [(v4(0), 34), (v4(3), 46), (tagged(&v4(0)), 38), (v6(), 54)] {
            for len in 0..=frame.len() {
                let flow = flow_of_frame(&frame[..len]);
                assert_eq!(flow.is_some(), len >= header + 20, "{len} of {frame:?}");
            }
        }
    }
}
