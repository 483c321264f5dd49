//! Frames in: classified, checked, and given to the connection they belong to.

use std::net::IpAddr;

use super::connection::FlowKey;
use super::statistics::DropCause;
use super::{Core, connection};
use crate::device::{ChecksumStatus, Device, Frame};
use crate::limits;
use crate::tcp::{self, Payload, Refusal};
use crate::time::Instant;
use crate::wire::arp;
use crate::wire::checksum::{self, Sum};
use crate::wire::ethernet::{self, EtherType, MacAddress};
use crate::wire::icmp;
use crate::wire::ipv4::{self, Protocol};
use crate::wire::tcp::{Flags, Header};

/// Where the parts of an IPv4 packet lie in its frame.
struct Packet {
    header: ipv4::Header,
    /// Where the IPv4 header begins.
    network: usize,
    /// Where what the packet carries begins.
    transport: usize,
    /// Where the packet ends; Ethernet padding may follow.
    end: usize,
}

impl<D: Device> Core<D> {
    pub(super) fn receive(&mut self, now: Instant) -> bool {
        let mut frames = core::mem::take(&mut self.received);
        let count = self.device.receive(now, &mut frames, limits::RECEIVE_BURST_FRAMES);
        self.statistics.frames_received += count as u64;
        for frame in frames.drain(..) {
            if let Err(cause) = self.on_frame(now, frame) {
                self.statistics.count(cause);
            }
        }
        self.received = frames;
        count > 0
    }

    fn on_frame(&mut self, now: Instant, frame: D::Frame) -> Result<(), DropCause> {
        let octets = frame.piece(0).unwrap_or_default();
        let (header, network) = ethernet::Header::parse(octets).map_err(|_| DropCause::Malformed)?;
        if header.destination != self.mac && !header.destination.is_multicast() {
            return Err(DropCause::OtherMac);
        }
        match header.ethertype {
            EtherType::ARP => self.on_arp(now, &frame, network),
            EtherType::IPV4 if header.destination == self.mac => self.on_ipv4(now, frame, network),
            _ => Err(DropCause::OtherProtocol),
        }
    }

    fn on_arp(&mut self, now: Instant, frame: &D::Frame, network: usize) -> Result<(), DropCause> {
        let octets = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
        let packet = arp::Packet::parse(octets).map_err(|_| DropCause::Malformed)?;
        let for_us = self.is_own(packet.target_ip.into());
        if self.is_own(packet.sender_ip.into()) {
            return Err(DropCause::OtherAddress);
        }
        if self.neighbours.learn(packet.sender_ip.into(), packet.sender_mac, now, for_us) {
            self.wake_waiting_for(packet.sender_ip.into());
        }
        if !for_us {
            return Err(DropCause::OtherAddress);
        }
        if packet.operation == arp::Operation::Request {
            self.send_arp(arp::Packet {
                operation: arp::Operation::Reply,
                sender_mac: self.mac,
                sender_ip: packet.target_ip,
                target_mac: packet.sender_mac,
                target_ip: packet.sender_ip,
            });
        }
        Ok(())
    }

    /// Connections that wait for a hardware address have something to send again.
    fn wake_waiting_for(&mut self, neighbour: IpAddr) {
        for index in 0..self.slots.len() as u32 {
            let waits = self.slots[index as usize]
                .connection
                .as_ref()
                .is_some_and(|connection| self.next_hop(connection.key.remote) == Some(neighbour));
            if waits {
                self.mark_dirty(index);
            }
        }
    }

    pub(super) fn send_arp(&mut self, packet: arp::Packet) {
        let destination = match packet.operation {
            arp::Operation::Request => MacAddress::BROADCAST,
            arp::Operation::Reply => packet.target_mac,
        };
        let Some(mut frame) = self.empty_frame() else { return };
        let Some(octets) = frame.append(ethernet::Header::LEN + arp::Packet::LEN) else { return };
        let (ethernet, rest) = octets.split_at_mut(ethernet::Header::LEN);
        ethernet::Header { destination, source: self.mac, ethertype: EtherType::ARP }.emit(ethernet);
        packet.emit(rest);
        self.to_send.push_back(frame);
    }

    pub(super) fn on_ipv4(&mut self, now: Instant, frame: D::Frame, network: usize) -> Result<(), DropCause> {
        let octets = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
        let (header, header_octets) =
            ipv4::Header::parse_for(octets, frame.len() - network).map_err(|_| DropCause::Malformed)?;
        match frame.checksums().ip {
            ChecksumStatus::Good => {}
            ChecksumStatus::Unknown if ipv4::verify_checksum(&octets[..header_octets]) => {}
            ChecksumStatus::Bad | ChecksumStatus::Unknown => return Err(DropCause::IpChecksum),
        }
        if !self.is_own(header.destination.into()) {
            return Err(DropCause::OtherAddress);
        }
        if header.is_fragment() {
            return self.on_ipv4_fragment(now, &frame, network, header, header_octets);
        }
        let end = network + usize::from(header.total_len);
        let packet = Packet { network, transport: network + header_octets, end, header };
        match packet.header.protocol {
            Protocol::TCP => self.on_tcp(now, frame, &packet),
            Protocol::ICMP => self.on_icmp(now, frame, &packet),
            _ => Err(DropCause::OtherProtocol),
        }
    }

    /// RFC 1122 §3.2.2.6: an echo request is answered with the same data, in the frame it came in.
    fn on_icmp(&mut self, now: Instant, mut frame: D::Frame, packet: &Packet) -> Result<(), DropCause> {
        let mac = self.mac;
        let octets = frame.first_mut();
        let message = octets.get_mut(packet.transport..packet.end).ok_or(DropCause::Malformed)?;
        match icmp::Message::parse(message) {
            Ok(icmp::Message::EchoRequest { .. }) => {}
            Ok(message) => return self.on_icmp_error(now, &message),
            Err(crate::wire::Malformed::Checksum) => return Err(DropCause::IcmpChecksum),
            Err(_) => return Err(DropCause::Malformed),
        }
        if !self.echo_replies.take(now) {
            return Err(DropCause::RateLimited);
        }
        icmp::echo_request_into_reply(message);
        let (request, _) = ethernet::Header::parse(octets).map_err(|_| DropCause::Malformed)?;
        ethernet::Header { destination: request.source, source: mac, ethertype: EtherType::IPV4 }
            .emit(&mut octets[..packet.network]);
        let reply = ipv4::Header {
            source: packet.header.destination,
            destination: packet.header.source,
            ttl: limits::TIME_TO_LIVE,
            ..packet.header
        };
        if packet.transport - packet.network != ipv4::Header::LEN {
            // Options are not sent back.
            return Err(DropCause::OtherProtocol);
        }
        reply.emit(&mut octets[packet.network..packet.transport]);
        self.to_send.push_back(frame);
        Ok(())
    }

    fn on_tcp(&mut self, now: Instant, frame: D::Frame, packet: &Packet) -> Result<(), DropCause> {
        let segment_octets = packet.end - packet.transport;
        match frame.checksums().tcp {
            ChecksumStatus::Good => {}
            ChecksumStatus::Unknown if tcp_checksum_holds(&frame, packet, segment_octets) => {}
            ChecksumStatus::Bad | ChecksumStatus::Unknown => return Err(DropCause::TcpChecksum),
        }
        let first = frame.piece(0).unwrap_or_default();
        let head = first.get(packet.transport..packet.end.min(first.len())).ok_or(DropCause::Malformed)?;
        let (header, header_octets) = Header::parse(head).map_err(|_| DropCause::Malformed)?;
        let payload = Payload {
            offset: packet.transport + header_octets,
            octets: segment_octets - header_octets,
            frame,
            ecn: tcp::EcnField::from_bits(packet.header.ecn),
        };
        let key = FlowKey {
            local: packet.header.destination.into(),
            remote: packet.header.source.into(),
            remote_port: header.source_port,
            local_port: header.destination_port,
        };
        match self.flows.get(&self.slots, &key) {
            Some(index) => self.on_segment(now, index, &header, payload),
            None => self.on_segment_of_nobody(now, key, &header, payload),
        }
    }

    pub(super) fn on_segment(
        &mut self,
        now: Instant,
        index: u32,
        header: &Header,
        payload: Payload<D::Frame>,
    ) -> Result<(), DropCause> {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else {
            return Err(DropCause::NoConnection);
        };
        let payload_octets = payload.octets;
        let disposition = connection.tcp.on_segment(now, header, payload, &mut self.pools);
        let key = connection.key;
        self.mark_dirty(index);
        self.on_progress(now, index, disposition.progress);
        let Some(refusal) = disposition.refusal else { return Ok(()) };
        if refusal == Refusal::BadAck && self.is_opening(index) {
            // RFC 9293 §3.10.7.3: a segment of an older connection between the same ports.
            self.send_reset(now, key, header, payload_octets);
        }
        Err(match refusal {
            Refusal::OutsideWindow => DropCause::OutsideWindow,
            Refusal::Duplicate => DropCause::Duplicate,
            Refusal::BadAck => DropCause::BadAck,
            Refusal::Challenged => DropCause::Challenged,
            Refusal::NoRoom => DropCause::NoRoomForFrame,
            Refusal::WrongState => DropCause::WrongState,
            Refusal::RateLimited => DropCause::RateLimited,
            Refusal::OldTimestamp => DropCause::OldTimestamp,
        })
    }

    fn is_opening(&self, index: u32) -> bool {
        let connection = self.slots[index as usize].connection.as_ref();
        connection.is_some_and(|connection| {
            matches!(connection.tcp.state(), tcp::State::SynSent | tcp::State::SynReceived)
        })
    }

    /// RFC 9293 §3.5.2, group 1.
    pub(super) fn send_reset(&mut self, now: Instant, key: FlowKey, header: &Header, payload_octets: usize) {
        if header.flags.contains(Flags::RST) || !self.resets.take(now) {
            return;
        }
        let mut reset = Header { flags: Flags::RST, ..Header::default() };
        if header.flags.contains(Flags::ACK) {
            reset.seq = header.ack;
        } else {
            let control = header.flags & (Flags::SYN | Flags::FIN);
            reset.flags |= Flags::ACK;
            reset.ack = header.seq + payload_octets as u32 + control.bits().count_ones();
        }
        self.send_bare(key, reset);
    }

    /// Takes note of what a segment or a timer led to.
    pub(super) fn on_progress(&mut self, now: Instant, index: u32, progress: tcp::Progress) {
        if progress.contains(tcp::Progress::ESTABLISHED) {
            self.limit_to_path(now, index);
            self.announce(index);
        }
        if progress.contains(tcp::Progress::ACKNOWLEDGED) {
            self.complete_sends(index);
        }
        if progress.contains(tcp::Progress::DATA) {
            self.take_octets(now, index);
        }
        // Control hears of the end after the octets before it.
        let handed_up = !self.has_streaming_octets(index);
        if progress.contains(tcp::Progress::PEER_FINISHED) && handed_up {
            self.on_peer_finished(now, index);
        }
        let rests = handed_up && self.state_of(index) == Some(tcp::State::TimeWait);
        if progress.contains(tcp::Progress::CLOSED) || rests {
            self.on_closed(index);
        }
    }

    fn state_of(&self, index: u32) -> Option<tcp::State> {
        self.slots[index as usize]
            .connection
            .as_ref()
            .map(|connection: &connection::Connection| connection.tcp.state())
    }
}

/// The checksum over the pseudo-header and the segment, in all the pieces of the frame.
fn tcp_checksum_holds(frame: &impl Frame, packet: &Packet, segment_octets: usize) -> bool {
    let mut sum: Sum = checksum::ipv4_pseudo_header(
        packet.header.source,
        packet.header.destination,
        Protocol::TCP.0,
        segment_octets as u16,
    );
    let (mut skip, mut left) = (packet.transport, segment_octets);
    let mut index = 0;
    while left > 0 {
        let Some(piece) = frame.piece(index) else { return false };
        index += 1;
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let take = left.min(piece.len() - skip);
        sum.add(&piece[skip..skip + take]);
        left -= take;
        skip = 0;
    }
    sum.finish() == 0
}
