//! IP packets in: the checks of their headers, and the protocols that they carry.

use std::net::{IpAddr, Ipv6Addr};

use super::Host;
use super::inbound::Inbound;
use super::input::Ingress;
use super::segment;
use crate::device::{ChecksumStatus, Device, Frame, IpVersion};
use crate::drops::DropCause;
use crate::time::Instant;
use crate::wire::ethernet;
use crate::wire::ipv4::{self, Protocol};
use crate::wire::ipv6::{self, Dead};

/// A packet for the host, and where its headers and payload lie in its frame.
pub(super) struct Packet {
    /// The address that it came from.
    pub(super) source: IpAddr,
    /// The address or group of the host that it is for.
    pub(super) destination: IpAddr,
    /// Its hop limit, or time to live.
    pub(super) hop_limit: u8,
    /// Its ECN bits.
    pub(super) ecn: u8,
    /// Where the IP header begins.
    pub(super) network: usize,
    /// Where the header of the protocol that it carries begins.
    pub(super) transport: usize,
    /// Where the packet ends; Ethernet padding may follow.
    pub(super) end: usize,
    /// Where its frame came from.
    pub(super) ingress: Ingress,
}

impl<D: Device> Host<D> {
    pub(super) fn on_ipv4(
        &mut self,
        now: Instant,
        frame: D::Frame,
        network: usize,
        ingress: Ingress,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let octets = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
        let (header, header_octets) = ipv4::Header::parse_for(octets, frame.len() - network)
            .map_err(|_| self.interface.unreadable(octets, IpVersion::V4))?;
        match frame.checksums().ip {
            _ if ingress.is_verified() => {}
            ChecksumStatus::Good => {}
            ChecksumStatus::Unknown if ipv4::verify_checksum(&octets[..header_octets]) => {}
            ChecksumStatus::Bad | ChecksumStatus::Unknown => return Err(DropCause::IpChecksum),
        }
        if !self.neighbourhood.own.contains(header.destination.into()) {
            return Err(DropCause::OtherAddress);
        }
        self.neighbourhood.check_ingress(ingress, header.source.into())?;
        if header.is_fragment() {
            if self.interface.is_replica() {
                return self.interface.hand_to_host_core(frame);
            }
            return self.on_ipv4_fragment(now, &frame, network, header, header_octets);
        }
        let packet = Packet {
            source: header.source.into(),
            destination: header.destination.into(),
            hop_limit: header.ttl,
            ecn: header.ecn,
            network,
            transport: network + header_octets,
            end: network + usize::from(header.total_len),
            ingress,
        };
        match header.protocol {
            Protocol::TCP => self.on_segment(frame, &packet),
            Protocol::ICMP => self.on_icmp(now, frame, &packet),
            _ => Err(DropCause::OtherProtocol),
        }
    }

    /// Handles an IPv6 packet. `reassembled` is true for a packet that was put together from fragments, which
    /// may not be a fragment itself.
    pub(super) fn on_ipv6(
        &mut self,
        now: Instant,
        frame: D::Frame,
        network: usize,
        reassembled: bool,
        ingress: Ingress,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let octets = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
        let header = ipv6::Header::parse_for(octets, frame.len() - network)
            .map_err(|_| self.interface.unreadable(octets, IpVersion::V6))?;
        self.check_destination(&frame, header.destination)?;
        let upper = ipv6::upper(&header, octets).map_err(|dead| match dead {
            Dead::Malformed | Dead::TooMany => DropCause::Malformed,
            Dead::Unsupported => DropCause::OtherProtocol,
        })?;
        // Neighbor Discovery messages also come from the unspecified address, and from stations that claim an
        // address of the host: `on_icmpv6` checks their source.
        if upper.protocol != Protocol::ICMPV6 {
            self.neighbourhood.check_ingress(ingress, header.source.into())?;
        }
        if let Some(fragment) = upper.fragment {
            if reassembled || header.destination.is_multicast() {
                return Err(DropCause::Fragment);
            }
            if self.interface.is_replica() {
                return self.interface.hand_to_host_core(frame);
            }
            return self.on_ipv6_fragment(now, &frame, network, header, &upper, fragment);
        }
        let packet = Packet {
            source: header.source.into(),
            destination: header.destination.into(),
            hop_limit: header.hop_limit,
            ecn: header.ecn,
            network,
            transport: network + upper.offset,
            end: network + ipv6::Header::LEN + usize::from(header.payload_len),
            ingress,
        };
        match upper.protocol {
            Protocol::TCP if !header.destination.is_multicast() => self.on_segment(frame, &packet),
            Protocol::ICMPV6 => {
                let is_fragmented = reassembled || upper.is_atomic;
                self.on_icmpv6(now, frame, &packet, header.source, header.destination, is_fragmented)
            }
            _ => Err(DropCause::OtherProtocol),
        }
    }

    #[inline]
    fn on_segment(&mut self, frame: D::Frame, packet: &Packet) -> Result<Inbound<D::Frame>, DropCause> {
        let received = segment::receive(&frame, packet, self.parser.rdma_option_kind);
        if matches!(received, Err(DropCause::PartialChecksum)) {
            self.interface.notices.record_partial_checksum(packet.source);
        }
        let (segment, header) = received?;
        // The device has not seen whose segment it is that was in fragments or behind extension headers.
        if self.interface.place.is_some()
            && let Some(owner) = self.interface.other_owner(&segment.flow)
        {
            return self.interface.hand_over(owner, frame);
        }
        Ok(Inbound::Segment(segment, header, frame))
    }

    /// Checks that a packet is for the host: for an address of its own in a frame to its hardware address, or
    /// for a group that it has joined.
    fn check_destination(&self, frame: &D::Frame, destination: Ipv6Addr) -> Result<(), DropCause> {
        if destination.is_multicast() {
            let joined =
                destination == ipv6::ALL_NODES || self.neighbourhood.own.is_solicited_group(destination);
            return if joined { Ok(()) } else { Err(DropCause::OtherAddress) };
        }
        let (link, _) =
            ethernet::Header::parse(frame.piece(0).unwrap_or_default()).map_err(|_| DropCause::Malformed)?;
        if link.destination != self.interface.link.mac {
            return Err(DropCause::OtherMac);
        }
        if self.neighbourhood.own.contains(destination.into())
            || self.neighbourhood.own.is_tentative(destination)
        {
            Ok(())
        } else {
            Err(DropCause::OtherAddress)
        }
    }
}
