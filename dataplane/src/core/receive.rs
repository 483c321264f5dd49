//! Frames in, and segments given to the connection they belong to.

use super::Core;
use super::connection::Connection;
use super::ip::Packet;
use super::loopback::Arrival;
use super::statistics::DropCause;
use crate::device::{ChecksumStatus, Device, Frame};
use crate::limits;
use crate::net::flow::FlowKey;
use crate::tcp::{self, Payload, Refusal};
use crate::time::Instant;
use crate::wire::checksum::{self, Sum};
use crate::wire::ipv4::Protocol;
use crate::wire::tcp::{Flags, Header};

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

    pub(super) fn on_tcp(&mut self, now: Instant, frame: D::Frame, packet: &Packet) -> Result<(), DropCause> {
        let segment_octets = packet.end - packet.transport;
        match frame.checksums().tcp {
            _ if packet.arrival == Arrival::Loopback => {}
            ChecksumStatus::Good => {}
            ChecksumStatus::Unknown if tcp_checksum_holds(&frame, packet, segment_octets) => {}
            ChecksumStatus::Bad | ChecksumStatus::Unknown => return Err(DropCause::TcpChecksum),
        }
        let first = frame.piece(0).unwrap_or_default();
        let head = first.get(packet.transport..packet.end.min(first.len())).ok_or(DropCause::Malformed)?;
        let (mut header, header_octets) = Header::parse(head).map_err(|_| DropCause::Malformed)?;
        if header.flags.contains(Flags::SYN) && !packet.source.is_ipv4() {
            // RFC 9293 §3.7.1: what a SYN over IPv6 means that names no MSS.
            header.options.mss = header.options.mss.or(Some(limits::DEFAULT_MSS_IPV6_OCTETS));
        }
        let payload = Payload {
            offset: packet.transport + header_octets,
            octets: segment_octets - header_octets,
            frame,
            ecn: tcp::EcnField::from_bits(packet.ecn),
        };
        let key = FlowKey {
            local: packet.destination,
            remote: packet.source,
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
        self.pools.held.expect_passing(!connection.receives_stream() && !connection.awaits_receive());
        let disposition = connection.tcp.on_segment(now, header, payload, &mut self.pools);
        connection.note_progress(now, disposition.changes);
        let key = connection.key;
        self.mark_dirty(index);
        self.on_progress(now, index, disposition.changes);
        if let Some(kept) = disposition.beyond_gap {
            self.place_out_of_order(index, kept);
        }
        if self.shed_surplus(index) {
            self.statistics.count(DropCause::NoRoomForFrame);
            self.relieve(now);
        }
        self.pools.held.note_peak();
        let Some(refusal) = disposition.refusal else { return Ok(()) };
        if refusal == Refusal::BadAck && self.is_opening(index) {
            // RFC 9293 §3.10.7.3: a segment of an older connection between the same ports.
            self.send_reset(now, key, header, payload_octets);
        }
        if refusal == Refusal::NoRoom {
            self.relieve(now);
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
    pub(super) fn on_progress(&mut self, now: Instant, index: u32, progress: tcp::Changes) {
        if progress.contains(tcp::Changes::ESTABLISHED) {
            self.limit_to_path(now, index);
            self.announce(index);
        }
        if progress.contains(tcp::Changes::ACKNOWLEDGED) {
            if let Some(connection) = self.slots[index as usize].connection.as_ref() {
                self.confirm_reachable(connection.key.remote, now);
            }
            self.complete_sends(index);
        }
        if progress.contains(tcp::Changes::DATA) {
            self.take_octets(now, index);
        }
        // Control hears of the end after the octets before it.
        let handed_up = !self.slots[index as usize].connection.as_ref().is_some_and(Connection::holds_back);
        if progress.contains(tcp::Changes::PEER_FINISHED) && handed_up {
            self.on_peer_finished(now, index);
        }
        let rests = handed_up && self.state_of(index) == Some(tcp::State::TimeWait);
        // After an orderly end what was acknowledged still reaches control, however long that takes.
        let closed = progress.contains(tcp::Changes::CLOSED) && (handed_up || !self.finished(index));
        if closed || rests {
            self.on_closed(index);
        }
    }

    /// Whether TCP is over because both ends have finished.
    fn finished(&self, index: u32) -> bool {
        self.slots[index as usize].connection.as_ref().is_some_and(|connection| {
            connection.tcp.state() == tcp::State::Closed
                && connection.tcp.close_reason() == tcp::CloseReason::Finished
        })
    }

    fn state_of(&self, index: u32) -> Option<tcp::State> {
        self.slots[index as usize].connection.as_ref().map(|connection| connection.tcp.state())
    }
}

/// The checksum over the pseudo-header and the segment, in all the pieces of the frame.
fn tcp_checksum_holds(frame: &impl Frame, packet: &Packet, segment_octets: usize) -> bool {
    let mut sum: Sum =
        checksum::pseudo_header(packet.source, packet.destination, Protocol::TCP.0, segment_octets as u16);
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
