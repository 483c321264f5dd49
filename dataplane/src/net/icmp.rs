//! ICMP messages in, of either family: echo requests, which the host replies to, errors, and Neighbor
//! Discovery.

use std::net::Ipv6Addr;

use super::Host;
use super::addresses::Presence;
use super::icmp_errors;
use super::inbound::{IcmpError, Inbound};
use super::input::Ingress;
use super::ip::Packet;
use super::neighbor_discovery::Solicited;
use crate::device::{Device, Frame};
use crate::drops::DropCause;
use crate::limits;
use crate::time::Instant;
use crate::wire::Malformed;
use crate::wire::ethernet;
use crate::wire::flow::Flow;
use crate::wire::icmp;
use crate::wire::icmpv6::{self, Message};
use crate::wire::ipv4;
use crate::wire::ipv6;

fn cause(malformed: Malformed) -> DropCause {
    match malformed {
        Malformed::Checksum => DropCause::IcmpChecksum,
        _ => DropCause::Malformed,
    }
}

impl<D: Device> Host<D> {
    pub(super) fn on_icmp(
        &mut self,
        now: Instant,
        frame: D::Frame,
        packet: &Packet,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let mut frame = self.in_one_piece(frame, packet)?;
        let message = frame.first_mut().get_mut(packet.transport..packet.end).ok_or(DropCause::Malformed)?;
        match icmp::Message::parse(message).map_err(cause)? {
            // For the other owner of the address.
            icmp::Message::EchoRequest { .. } if self.neighbourhood.presence == Presence::Shared => {
                Err(DropCause::OtherProtocol)
            }
            icmp::Message::EchoRequest { .. } if self.interface.is_replica() => {
                self.interface.hand_to_host_core(frame)
            }
            icmp::Message::EchoRequest { .. } => self.reply_to_echo(now, frame, packet),
            message => {
                let error = icmp_errors::of_icmp(&message)?;
                self.error_for_owner(error, frame)
            }
        }
    }

    /// Returns `frame` if `packet` ends in its first piece, or a copy in one piece: a reply is a changed
    /// request. A frame of the device has room for no longer packet than the device can send.
    fn in_one_piece(&mut self, frame: D::Frame, packet: &Packet) -> Result<D::Frame, DropCause> {
        if frame.piece(0).is_some_and(|first| first.len() >= packet.end) {
            return Ok(frame);
        }
        self.check_fits(packet)?;
        let mut copy = self.interface.device.allocate().ok_or(DropCause::NoTransmitBuffer)?;
        let mut room = copy.append(packet.end).ok_or(DropCause::OtherProtocol)?;
        for index in 0.. {
            let Some(piece) = frame.piece(index).filter(|_| !room.is_empty()) else { break };
            let (taken, rest) = room.split_at_mut(piece.len().min(room.len()));
            taken.copy_from_slice(&piece[..taken.len()]);
            room = rest;
        }
        if room.is_empty() { Ok(copy) } else { Err(DropCause::Malformed) }
    }

    /// Returns an ICMP error, or hands its frame to the core that owns the flow of the segment it quotes.
    fn error_for_owner(&mut self, error: IcmpError, frame: D::Frame) -> Result<Inbound<D::Frame>, DropCause> {
        // The segment went out: those of its flow that are received go the other way.
        let flow = Flow::new(error.segment.destination, error.segment.source);
        match flow.and_then(|flow| self.interface.other_owner(&flow)) {
            Some(owner) => self.interface.hand_over(owner, frame),
            None => Ok(Inbound::IcmpError(error)),
        }
    }

    /// Replies to an echo request with the same data, in the frame that it came in (RFC 1122 §3.2.2.6).
    fn reply_to_echo(
        &mut self,
        now: Instant,
        mut frame: D::Frame,
        packet: &Packet,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        if packet.transport - packet.network != ipv4::Header::LEN {
            // The reply would have to carry the options of the request.
            return Err(DropCause::OtherProtocol);
        }
        self.check_fits(packet)?;
        if !self.echo_replies.admit(now) {
            return Err(DropCause::RateLimited);
        }
        let octets = frame.first_mut();
        let (request, _) =
            ipv4::Header::parse(&octets[packet.network..packet.end]).map_err(|_| DropCause::Malformed)?;
        icmp::echo_request_into_reply(&mut octets[packet.transport..packet.end]);
        let (source, destination) = (request.destination, request.source);
        // RFC 6864 §4.3: the identification and the permission to fragment are those of the request. They
        // show nothing of what else the host sends, and differ between replies where they differ between
        // requests.
        ipv4::Header { source, destination, ttl: limits::TIME_TO_LIVE, ..request }
            .emit(&mut octets[packet.network..packet.transport]);
        ethernet::turn_around(octets, self.interface.link.mac);
        self.send_echo_reply(frame, packet.ingress);
        Ok(Inbound::Done)
    }

    /// Sends a reply to where the request came from.
    fn send_echo_reply(&mut self, frame: D::Frame, ingress: Ingress) {
        match ingress {
            Ingress::Wire | Ingress::Verified => self.interface.queue_reply(frame),
            // Of this core: echo is the host core's.
            Ingress::Loopback => {
                if self.interface.loopback.push(frame).is_err() {
                    self.interface.count_no_buffer();
                }
            }
        }
    }

    /// Checks that the device can send a packet as long as `packet`: it may receive longer ones.
    const fn check_fits(&self, packet: &Packet) -> Result<(), DropCause> {
        if packet.end - packet.network > self.interface.capabilities.mtu_bytes {
            return Err(DropCause::OtherProtocol);
        }
        Ok(())
    }

    pub(super) fn on_icmpv6(
        &mut self,
        now: Instant,
        frame: D::Frame,
        packet: &Packet,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        is_fragmented: bool,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let frame = self.in_one_piece(frame, packet)?;
        let octets = frame.piece(0).unwrap_or_default();
        let message = octets.get(packet.transport..packet.end).ok_or(DropCause::Malformed)?;
        let message = Message::parse(message, source, destination).map_err(cause)?;
        let discovery =
            matches!(message, Message::NeighborSolicitation(_) | Message::NeighborAdvertisement(_));
        if discovery && packet.hop_limit != icmpv6::DISCOVERY_HOP_LIMIT {
            // RFC 4861 §7.1: the packet has passed a router.
            return Err(DropCause::Malformed);
        }
        if discovery && is_fragmented {
            // RFC 6980 §5: switches that look for forged messages do not see through fragments.
            return Err(DropCause::Fragment);
        }
        match message {
            Message::NeighborSolicitation(_)
            | Message::NeighborAdvertisement(_)
            | Message::EchoRequest { .. }
                if self.interface.is_replica() =>
            {
                self.interface.hand_to_host_core(frame)
            }
            Message::NeighborSolicitation(solicitation) => {
                // RFC 4862 §5.4.2: only probes for duplicates have no source.
                if !source.is_unspecified() {
                    self.neighbourhood.check_source(packet.source)?;
                }
                let (link, _) = ethernet::Header::parse(octets).map_err(|_| DropCause::Malformed)?;
                let solicited =
                    Solicited { solicitation: &solicitation, source, destination, link_source: link.source };
                self.neighbourhood
                    .on_solicitation(now, &mut self.interface, &solicited)
                    .map(Inbound::resolved)
            }
            Message::NeighborAdvertisement(advertisement) => self
                .neighbourhood
                .on_advertisement(now, &mut self.interface, &advertisement, destination)
                .map(Inbound::resolved),
            Message::EchoRequest { .. }
                if self.neighbourhood.presence == Presence::Own
                    && self.neighbourhood.own.contains(packet.destination) =>
            {
                self.neighbourhood.check_ingress(packet.ingress, packet.source)?;
                self.reply_to_echo_v6(now, frame, packet)
            }
            Message::PacketTooBig { mtu, original }
                if self.neighbourhood.own.contains(packet.destination) =>
            {
                let error = icmp_errors::packet_too_big(original, mtu)?;
                self.error_for_owner(error, frame)
            }
            Message::DestinationUnreachable { code, original }
                if self.neighbourhood.own.contains(packet.destination) =>
            {
                let error = icmp_errors::unreachable_v6(original, code)?;
                self.error_for_owner(error, frame)
            }
            _ => Err(DropCause::OtherProtocol),
        }
    }

    /// Replies as [`reply_to_echo`](Self::reply_to_echo) does, for IPv6 (RFC 4443 §4.2).
    fn reply_to_echo_v6(
        &mut self,
        now: Instant,
        mut frame: D::Frame,
        packet: &Packet,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        if packet.transport - packet.network != ipv6::Header::LEN {
            // The reply would have to carry the extension headers of the request.
            return Err(DropCause::OtherProtocol);
        }
        self.check_fits(packet)?;
        if !self.echo_replies.admit(now) {
            return Err(DropCause::RateLimited);
        }
        let octets = frame.first_mut();
        let request =
            ipv6::Header::parse(&octets[packet.network..packet.end]).map_err(|_| DropCause::Malformed)?;
        icmpv6::echo_request_into_reply(&mut octets[packet.transport..packet.end]);
        let (source, destination) = (request.destination, request.source);
        ipv6::Header { source, destination, hop_limit: limits::TIME_TO_LIVE, flow_label: 0, ..request }
            .emit(&mut octets[packet.network..packet.transport]);
        ethernet::turn_around(octets, self.interface.link.mac);
        self.send_echo_reply(frame, packet.ingress);
        Ok(Inbound::Done)
    }
}
