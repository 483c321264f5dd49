//! Ethernet frames in and out: the host's hardware address and its VLAN.

use super::Host;
use super::inbound::Inbound;
use super::input::Ingress;
use crate::device::{Device, Frame};
use crate::drops::DropCause;
use crate::time::Instant;
use crate::wire::ethernet::{self, EtherType, MacAddress, Tag};

impl<D: Device> Host<D> {
    /// Parses a frame, whatever it carries. Returns what is for the layers above.
    ///
    /// # Errors
    ///
    /// Why the frame was dropped.
    #[inline(never)]
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        frame: D::Frame,
        ingress: Ingress,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let octets = frame.piece(0).unwrap_or_default();
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
        match ethertype {
            EtherType::ARP if self.is_replica() => self.hand_to_host_core(frame),
            EtherType::ARP if !ingress.is_loopback() => self.on_arp(now, &frame, network),
            EtherType::IPV4 if header.destination == self.mac => self.on_ipv4(now, frame, network, ingress),
            EtherType::IPV6 => self.on_ipv6(now, frame, network, false, ingress),
            _ => Err(DropCause::OtherProtocol),
        }
    }

    /// Returns the number of frames from the host to itself that wait to be received.
    #[inline]
    pub(crate) fn looped_frames(&self) -> usize {
        self.loopback.len()
    }

    /// Returns the octets before the IP header of the frames that the host sends.
    pub(super) const fn link_octets(&self) -> usize {
        ethernet::Header::LEN + if self.vlan.is_some() { Tag::LEN } else { 0 }
    }

    /// Writes the Ethernet header, and the VLAN tag, to the first [`link_octets`](Self::link_octets) of
    /// `out`.
    pub(super) fn write_link(&self, out: &mut [u8], destination: MacAddress, ethertype: EtherType) {
        let header = ethernet::Header { destination, source: self.mac, ethertype };
        match self.vlan {
            None => header.emit(out),
            Some(vlan) => {
                ethernet::Header { ethertype: EtherType::VLAN, ..header }.emit(out);
                Tag { vlan, ethertype }.emit(&mut out[ethernet::Header::LEN..]);
            }
        }
    }

    /// Sends a frame to `destination` with `octets` octets after the Ethernet header, which `write` fills in.
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
        self.queue_reply(frame);
    }
}
