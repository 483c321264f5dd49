//! Ethernet frames in and out: our hardware address, our VLAN.

use super::Core;
use super::loopback::Arrival;
use super::statistics::DropCause;
use crate::device::{Device, Frame};
use crate::time::Instant;
use crate::wire::ethernet::{self, EtherType, MacAddress, Tag};

impl<D: Device> Core<D> {
    pub(super) fn on_frame(&mut self, now: Instant, frame: D::Frame) -> Result<(), DropCause> {
        let octets = frame.piece(0).unwrap_or_default();
        let (header, mut network) = ethernet::Header::parse(octets).map_err(|_| DropCause::Malformed)?;
        if header.destination != self.mac && !header.destination.is_multicast() {
            return Err(DropCause::OtherMac);
        }
        let mut ethertype = header.ethertype;
        if ethertype == EtherType::VLAN {
            let tag = Tag::parse(&octets[network..]).map_err(|_| DropCause::Malformed)?;
            if self.config.vlan != Some(tag.vlan) {
                return Err(DropCause::OtherVlan);
            }
            (ethertype, network) = (tag.ethertype, network + Tag::LEN);
        } else if self.config.vlan.is_some() {
            return Err(DropCause::OtherVlan);
        }
        match ethertype {
            EtherType::ARP => self.on_arp(now, &frame, network),
            EtherType::IPV4 if header.destination == self.mac => {
                self.on_ipv4(now, frame, network, Arrival::Wire)
            }
            EtherType::IPV6 => self.on_ipv6(now, frame, network, false, Arrival::Wire),
            _ => Err(DropCause::OtherProtocol),
        }
    }

    /// Octets before the IP header of the frames we send.
    pub(super) const fn link_octets(&self) -> usize {
        ethernet::Header::LEN + if self.config.vlan.is_some() { Tag::LEN } else { 0 }
    }

    /// Writes the Ethernet header, and our VLAN's tag, to the first [`link_octets`](Self::link_octets) of `out`.
    pub(super) fn write_link(&self, out: &mut [u8], destination: MacAddress, ethertype: EtherType) {
        let header = ethernet::Header { destination, source: self.mac, ethertype };
        match self.config.vlan {
            None => header.emit(out),
            Some(vlan) => {
                ethernet::Header { ethertype: EtherType::VLAN, ..header }.emit(out);
                Tag { vlan, ethertype }.emit(&mut out[ethernet::Header::LEN..]);
            }
        }
    }

    /// Sends a frame to `destination` with `octets` octets behind the Ethernet header, which `write` fills in.
    pub(super) fn send_frame(
        &mut self,
        destination: MacAddress,
        ethertype: EtherType,
        octets: usize,
        write: impl FnOnce(&mut [u8]),
    ) {
        let link = self.link_octets();
        let Some(mut frame) = self.empty_frame() else { return };
        let Some(room) = frame.append(link + octets) else { return };
        self.write_link(room, destination, ethertype);
        write(&mut room[link..]);
        self.queue_answer(frame);
    }
}
