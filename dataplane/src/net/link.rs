//! The Ethernet link of a host: its hardware address and its VLAN, and the headers that name them.

use crate::device::Frame;
use crate::drops::DropCause;
use crate::wire::ethernet::{self, EtherType, MacAddress, Tag};
use crate::wire::flow::Flow;

/// Octets of the Ethernet header, and with a VLAN tag.
pub(super) const LINK: usize = ethernet::Header::LEN;
pub(super) const TAGGED_LINK: usize = LINK + Tag::LEN;

/// The EtherTypes of IP, as a frame has them.
pub(super) const IPV4: [u8; 2] = EtherType::IPV4.0.to_be_bytes();
pub(super) const IPV6: [u8; 2] = EtherType::IPV6.0.to_be_bytes();

/// Where a frame leaves the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// Through the device, to the station with this hardware address.
    Wire(MacAddress),
    /// To the host itself. The hardware address does not say so: the kernel's end of a net_tap has that
    /// of the port.
    Loopback,
}

impl Egress {
    /// Returns true for [`Loopback`](Self::Loopback).
    #[inline]
    pub(crate) const fn is_loopback(self) -> bool {
        matches!(self, Self::Loopback)
    }
}

/// The hardware address of a host, and the VLAN that all of its frames belong to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) mac: MacAddress,
    /// 1 to 4094; `None` for frames without a tag.
    pub(super) vlan: Option<u16>,
}

/// What the Ethernet header of a frame for the host says.
pub(super) struct LinkHeader {
    /// Whether the frame is for the host's hardware address, not for a group.
    pub(super) is_unicast: bool,
    pub(super) ethertype: EtherType,
    /// Where the packet begins.
    pub(super) network: usize,
}

impl Link {
    /// Parses the header of a frame.
    ///
    /// # Errors
    ///
    /// Why the frame is not for the host.
    pub(super) fn parse(&self, octets: &[u8]) -> Result<LinkHeader, DropCause> {
        let (header, mut network) = ethernet::Header::parse(octets).map_err(|_| DropCause::Malformed)?;
        if header.destination != self.mac && !header.destination.is_multicast() {
            return Err(DropCause::OtherMac);
        }
        let mut ethertype = header.ethertype;
        if ethertype == EtherType::VLAN {
            let tag = Tag::parse(&octets[network..]).map_err(|_| DropCause::Malformed)?;
            if self.vlan != Some(tag.vlan) {
                return Err(DropCause::OtherVlan);
            }
            (ethertype, network) = (tag.ethertype, network + Tag::LEN);
        } else if self.vlan.is_some() {
            return Err(DropCause::OtherVlan);
        }
        Ok(LinkHeader { is_unicast: header.destination == self.mac, ethertype, network })
    }

    /// Returns the octets before the IP header of the frames that the host sends.
    #[inline]
    pub(super) const fn octets(&self) -> usize {
        if self.vlan.is_some() { TAGGED_LINK } else { LINK }
    }

    /// Writes the Ethernet header, and the VLAN tag, to the first [`octets`](Self::octets) of `out`.
    pub(super) fn write(&self, out: &mut [u8], destination: MacAddress, ethertype: EtherType) {
        let header = ethernet::Header { destination, source: self.mac, ethertype };
        match self.vlan {
            None => header.emit(out),
            Some(vlan) => {
                ethernet::Header { ethertype: EtherType::VLAN, ..header }.emit(out);
                Tag { vlan, ethertype }.emit(&mut out[LINK..]);
            }
        }
    }

    /// Returns the hardware address of frames that leave by `egress`.
    pub(super) const fn destination(&self, egress: Egress) -> MacAddress {
        match egress {
            Egress::Wire(mac) => mac,
            Egress::Loopback => self.mac,
        }
    }

    /// Returns the octets before the IP header of a frame with the tag of the host's VLAN.
    #[inline]
    pub(super) fn tagged(&self, octets: &[u8]) -> Option<usize> {
        let (link, rest) = octets.split_first_chunk::<LINK>()?;
        let tag = Tag::parse(rest).ok()?;
        let is_tagged = link.last_chunk() == Some(&EtherType::VLAN.0.to_be_bytes());
        (is_tagged && self.vlan == Some(tag.vlan)).then_some(TAGGED_LINK)
    }

    /// Returns where the addresses and ports of a segment lie in most frames, read from there, to look
    /// ahead: nothing is checked, and the frame may be no segment.
    #[inline]
    pub(super) fn flow_of(&self, frame: &impl Frame) -> Option<Flow> {
        let octets = frame.piece(0)?;
        let (ethernet, packet) = octets.split_at_checked(self.octets())?;
        match *ethernet.last_chunk()? {
            IPV4 => Flow::at_ipv4(packet),
            IPV6 => Flow::at_ipv6(packet),
            _ => None,
        }
    }
}
