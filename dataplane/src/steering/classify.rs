//! The flow of a received frame: what an adapter hashes, read from its octets in software.

use super::Steering;
use crate::wire::ethernet::{EtherType, Header, Tag};
use crate::wire::flow::{Flow, FlowV4};
use crate::wire::ipv4::{self, Protocol};

/// Where the EtherType of a frame without a VLAN tag is, and of one with a tag.
const ETHER_TYPE: usize = Header::LEN - 2;
const TAGGED_ETHER_TYPE: usize = ETHER_TYPE + Tag::LEN;

impl Steering {
    /// Returns the core that owns the TCP segment in an Ethernet frame, of which `octets` are the first, all
    /// headers among them; `None` if the frame has no flow: core 0 takes it.
    #[inline]
    pub fn owner_of_frame(&self, octets: &[u8]) -> Option<u8> {
        flow_of_frame(octets).map(|flow| self.owner(&flow))
    }
}

/// Returns the flow of the TCP segment in an Ethernet frame with at most one VLAN tag, of which `octets` are
/// the first, all headers among them. Nothing is verified that the flow does not depend on.
///
/// `None` for all that has no ports at a place that every adapter finds: other protocols, fragments, and TCP
/// after extension headers of IPv6, which some adapters hash without its ports.
#[inline]
pub fn flow_of_frame(octets: &[u8]) -> Option<Flow> {
    let ether_type = ether_type_at(octets, ETHER_TYPE)?;
    let (ether_type, network) = if ether_type == EtherType::VLAN {
        (ether_type_at(octets, TAGGED_ETHER_TYPE)?, Header::LEN + Tag::LEN)
    } else {
        (ether_type, Header::LEN)
    };
    let packet = octets.get(network..)?;
    match ether_type {
        EtherType::IPV4 => flow_of_ipv4(packet),
        EtherType::IPV6 if packet.get(6) == Some(&Protocol::TCP.0) => Flow::at_ipv6(packet),
        _ => None,
    }
}

#[inline]
fn ether_type_at(octets: &[u8], offset: usize) -> Option<EtherType> {
    let field = octets.get(offset..)?.first_chunk()?;
    Some(EtherType(u16::from_be_bytes(*field)))
}

/// Returns the flow of the segment in an IPv4 packet that is no fragment, with options or without.
#[inline]
fn flow_of_ipv4(packet: &[u8]) -> Option<Flow> {
    let header: &[u8; ipv4::Header::LEN] = packet.first_chunk()?;
    // The flag MF, and the offset.
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if is_fragment || header[9] != Protocol::TCP.0 {
        return None;
    }
    match header[0] {
        0x45 => Flow::at_ipv4(packet),
        0x46..=0x4f => {
            let ports = packet.get(usize::from(header[0] & 0x0f) * 4..)?.first_chunk()?;
            let addresses = header.last_chunk()?;
            Some(Flow::V4(FlowV4 { addresses: *addresses, ports: *ports }))
        }
        _ => None,
    }
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
        packet[9] = Protocol::TCP.0;
        packet[12..20].copy_from_slice(&[198, 18, 0, 2, 198, 18, 0, 1]);
        let ports = 20 + 4 * options;
        packet[ports..ports + 4].copy_from_slice(&[0xc3, 0x50, 0x1d, 0x2f]);
        [&[0; 12][..], &[0x08, 0x00], &packet].concat()
    }

    fn v6() -> Vec<u8> {
        let mut packet = vec![0; 60];
        (packet[0], packet[6]) = (0x60, Protocol::TCP.0);
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
    fn a_frame_that_ends_before_its_ports_has_no_flow() {
        for (frame, ports) in [(v4(0), 34), (v4(3), 46), (tagged(&v4(0)), 38), (v6(), 54)] {
            for len in 0..frame.len() {
                let flow = flow_of_frame(&frame[..len]);
                assert_eq!(flow.is_some(), len >= ports + 4, "{len} of {frame:?}");
            }
        }
    }
}
