//! IP packets in: checked, and handed to what they carry.

use std::net::{IpAddr, Ipv6Addr};

use super::Core;
use super::loopback::Arrival;
use super::statistics::DropCause;
use crate::device::{ChecksumStatus, Device, Frame};
use crate::net::addresses::{is_directed_broadcast, is_host_address};
use crate::time::Instant;
use crate::wire::ethernet;
use crate::wire::ipv4::{self, Protocol};
use crate::wire::ipv6::{self, Dead};

/// A packet for us, and where its parts lie in its frame.
pub(super) struct Packet {
    /// Who sent it.
    pub(super) source: IpAddr,
    /// The address of ours, or the group of ours, that it is for.
    pub(super) destination: IpAddr,
    /// Hops it had left.
    pub(super) hop_limit: u8,
    /// Its ECN bits.
    pub(super) ecn: u8,
    /// Where the IP header begins.
    pub(super) network: usize,
    /// Where what the packet carries begins.
    pub(super) transport: usize,
    /// Where the packet ends; Ethernet padding may follow.
    pub(super) end: usize,
    /// Where its frame came from.
    pub(super) arrival: Arrival,
}

impl<D: Device> Core<D> {
    pub(super) fn on_ipv4(
        &mut self,
        now: Instant,
        frame: D::Frame,
        network: usize,
        arrival: Arrival,
    ) -> Result<(), DropCause> {
        let octets = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
        let (header, header_octets) =
            ipv4::Header::parse_for(octets, frame.len() - network).map_err(|_| DropCause::Malformed)?;
        match frame.checksums().ip {
            _ if arrival == Arrival::Loopback => {}
            ChecksumStatus::Good => {}
            ChecksumStatus::Unknown if ipv4::verify_checksum(&octets[..header_octets]) => {}
            ChecksumStatus::Bad | ChecksumStatus::Unknown => return Err(DropCause::IpChecksum),
        }
        if !self.is_own(header.destination.into()) {
            return Err(DropCause::OtherAddress);
        }
        self.check_arrival(arrival, header.source.into())?;
        if header.is_fragment() {
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
            arrival,
        };
        match header.protocol {
            Protocol::TCP => self.on_tcp(now, frame, &packet),
            Protocol::ICMP => self.on_icmp(now, frame, &packet),
            _ => Err(DropCause::OtherProtocol),
        }
    }

    /// A packet that was put together from fragments is `reassembled`: none of those is a fragment again.
    pub(super) fn on_ipv6(
        &mut self,
        now: Instant,
        frame: D::Frame,
        network: usize,
        reassembled: bool,
        arrival: Arrival,
    ) -> Result<(), DropCause> {
        let octets = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
        let header =
            ipv6::Header::parse_for(octets, frame.len() - network).map_err(|_| DropCause::Malformed)?;
        self.check_destination(&frame, header.destination)?;
        let upper = ipv6::upper(&header, octets).map_err(|dead| match dead {
            Dead::Malformed | Dead::TooMany => DropCause::Malformed,
            Dead::Unsupported => DropCause::OtherProtocol,
        })?;
        // Neighbor Discovery comes from nobody too, and from others who say that they are us.
        if upper.protocol != Protocol::ICMPV6 {
            self.check_arrival(arrival, header.source.into())?;
        }
        if let Some(fragment) = upper.fragment {
            if reassembled || header.destination.is_multicast() {
                return Err(DropCause::Fragment);
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
            arrival,
        };
        match upper.protocol {
            Protocol::TCP if !header.destination.is_multicast() => self.on_tcp(now, frame, &packet),
            Protocol::ICMPV6 => self.on_icmpv6(now, frame, &packet, (header.source, header.destination)),
            _ => Err(DropCause::OtherProtocol),
        }
    }

    /// A packet is for us if its address is ours and the frame was for us alone, or if we are in the group it is for.
    fn check_destination(&self, frame: &D::Frame, destination: Ipv6Addr) -> Result<(), DropCause> {
        if destination.is_multicast() {
            let joined = destination == ipv6::ALL_NODES || self.is_solicited_group(destination);
            return if joined { Ok(()) } else { Err(DropCause::OtherAddress) };
        }
        let (link, _) =
            ethernet::Header::parse(frame.piece(0).unwrap_or_default()).map_err(|_| DropCause::Malformed)?;
        if link.destination != self.mac {
            return Err(DropCause::OtherMac);
        }
        if self.is_own(destination.into()) || self.is_tentative(destination) {
            Ok(())
        } else {
            Err(DropCause::OtherAddress)
        }
    }

    /// Checks the source of a packet by where it came from: ourselves only where that cannot be a lie.
    pub(super) fn check_arrival(&self, arrival: Arrival, source: IpAddr) -> Result<(), DropCause> {
        match arrival {
            Arrival::Wire => self.check_source(source),
            Arrival::Loopback if self.is_own(source) => Ok(()),
            Arrival::Loopback => Err(DropCause::BadSource),
        }
    }

    /// RFC 9293 §3.9.2.3 (MUST-63), RFC 1122 §3.2.1.3, RFC 4291 §2.7: no group, no broadcast, no loopback,
    /// nobody, and not ourselves.
    pub(super) fn check_source(&self, source: IpAddr) -> Result<(), DropCause> {
        let broadcast = is_directed_broadcast(&self.config.addresses, source);
        let sound = is_host_address(source) && !broadcast && !self.is_own(source);
        if sound { Ok(()) } else { Err(DropCause::BadSource) }
    }
}
