//! ICMP messages in, of either family: echo requests are answered, Neighbor Discovery goes to its place.

use std::net::Ipv6Addr;

use super::Core;
use super::icmp_errors::IcmpError;
use super::ip::Packet;
use super::loopback::Arrival;
use super::statistics::DropCause;
use crate::device::{Device, Frame};
use crate::limits;
use crate::time::Instant;
use crate::wire::Malformed;
use crate::wire::ethernet;
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

impl<D: Device> Core<D> {
    pub(super) fn on_icmp(
        &mut self,
        now: Instant,
        mut frame: D::Frame,
        packet: &Packet,
    ) -> Result<(), DropCause> {
        let message = frame.first_mut().get_mut(packet.transport..packet.end).ok_or(DropCause::Malformed)?;
        match icmp::Message::parse(message).map_err(cause)? {
            icmp::Message::EchoRequest { .. } => self.answer_echo(now, frame, packet),
            message => self.on_icmp_error(now, &message),
        }
    }

    /// RFC 1122 §3.2.2.6: an echo request is answered with the same data, in the frame it came in.
    fn answer_echo(&mut self, now: Instant, mut frame: D::Frame, packet: &Packet) -> Result<(), DropCause> {
        if packet.transport - packet.network != ipv4::Header::LEN {
            // Options are not sent back.
            return Err(DropCause::OtherProtocol);
        }
        self.check_fits(packet)?;
        if !self.echo_replies.take(now) {
            return Err(DropCause::RateLimited);
        }
        let octets = frame.first_mut();
        let (request, _) =
            ipv4::Header::parse(&octets[packet.network..packet.end]).map_err(|_| DropCause::Malformed)?;
        icmp::echo_request_into_reply(&mut octets[packet.transport..packet.end]);
        let (source, destination) = (request.destination, request.source);
        // The identification is the request's, and so is the permission to fragment (RFC 6864 §4.3): what
        // this end sends shows in neither, and the replies differ where the requests do.
        ipv4::Header { source, destination, ttl: limits::TIME_TO_LIVE, ..request }
            .emit(&mut octets[packet.network..packet.transport]);
        ethernet::turn_around(octets, self.mac);
        self.queue_echo(frame, packet.arrival);
        Ok(())
    }

    /// Sends an answer to where the request came from.
    fn queue_echo(&mut self, frame: D::Frame, arrival: Arrival) {
        match arrival {
            Arrival::Wire => self.queue_answer(frame),
            Arrival::Loopback => self.loop_back(frame),
        }
    }

    /// A device may take frames that are longer than it may send.
    const fn check_fits(&self, packet: &Packet) -> Result<(), DropCause> {
        if packet.end - packet.network > self.capabilities.mtu_octets {
            return Err(DropCause::OtherProtocol);
        }
        Ok(())
    }

    pub(super) fn on_icmpv6(
        &mut self,
        now: Instant,
        frame: D::Frame,
        packet: &Packet,
        (source, destination): (Ipv6Addr, Ipv6Addr),
    ) -> Result<(), DropCause> {
        let octets = frame.piece(0).unwrap_or_default();
        let message = octets.get(packet.transport..packet.end).ok_or(DropCause::Malformed)?;
        let message = Message::parse(message, source, destination).map_err(cause)?;
        let discovery =
            matches!(message, Message::NeighborSolicitation(_) | Message::NeighborAdvertisement(_));
        if discovery && packet.hop_limit != icmpv6::DISCOVERY_HOP_LIMIT {
            // RFC 4861 §7.1: it has passed a router.
            return Err(DropCause::Malformed);
        }
        match message {
            Message::NeighborSolicitation(solicitation) => {
                // Only probes for duplicates have no source (RFC 4862 §5.4.2).
                if !source.is_unspecified() {
                    self.check_source(packet.source)?;
                }
                let (link, _) = ethernet::Header::parse(octets).map_err(|_| DropCause::Malformed)?;
                self.on_solicitation(now, &solicitation, (source, destination), link.source)
            }
            Message::NeighborAdvertisement(advertisement) => {
                self.on_advertisement(now, &advertisement, destination)
            }
            Message::EchoRequest { .. } if self.is_own(packet.destination) => {
                self.check_arrival(packet.arrival, packet.source)?;
                self.answer_echo_v6(now, frame, packet)
            }
            Message::PacketTooBig { mtu, original } if self.is_own(packet.destination) => {
                self.on_icmpv6_error(now, original, IcmpError::PacketTooBig { mtu_octets: mtu })
            }
            Message::DestinationUnreachable { code, original } if self.is_own(packet.destination) => {
                self.on_icmpv6_error(now, original, IcmpError::of_icmpv6(code))
            }
            _ => Err(DropCause::OtherProtocol),
        }
    }

    /// RFC 4443 §4.2, in the frame the request came in.
    fn answer_echo_v6(
        &mut self,
        now: Instant,
        mut frame: D::Frame,
        packet: &Packet,
    ) -> Result<(), DropCause> {
        if packet.transport - packet.network != ipv6::Header::LEN {
            // Extension headers are not sent back.
            return Err(DropCause::OtherProtocol);
        }
        self.check_fits(packet)?;
        if !self.echo_replies.take(now) {
            return Err(DropCause::RateLimited);
        }
        let octets = frame.first_mut();
        let request =
            ipv6::Header::parse(&octets[packet.network..packet.end]).map_err(|_| DropCause::Malformed)?;
        icmpv6::echo_request_into_reply(&mut octets[packet.transport..packet.end]);
        let (source, destination) = (request.destination, request.source);
        ipv6::Header { source, destination, hop_limit: limits::TIME_TO_LIVE, flow_label: 0, ..request }
            .emit(&mut octets[packet.network..packet.transport]);
        ethernet::turn_around(octets, self.mac);
        self.queue_echo(frame, packet.arrival);
        Ok(())
    }
}
