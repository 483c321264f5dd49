//! Frames in, and segments given to the connection they belong to.

use std::net::IpAddr;

use super::Core;
use super::connection::Connection;
use super::statistics::DropCause;
use crate::device::Device;
use crate::limits;
use crate::net::flow::FlowKey;
use crate::net::inbound::{Inbound, Segment};
use crate::tcp::{self, Payload, Refusal};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header};

impl<D: Device> Core<D> {
    /// Receives a burst of frames from the device. Returns true if there was one.
    pub(super) fn receive(&mut self, now: Instant) -> bool {
        let mut burst = self.host.take_burst(now);
        let busy = !burst.is_empty();
        for frame in burst.drain(..) {
            let inbound = self.host.receive(now, frame);
            self.on_inbound(now, inbound);
        }
        self.host.end_burst(burst);
        busy
    }

    /// Receives the frames that the host had sent to itself before, a burst at most. Returns true if there was one.
    pub(super) fn receive_looped(&mut self, now: Instant) -> bool {
        let count = self.host.looped_frames().min(limits::RECEIVE_BURST_FRAMES);
        for _ in 0..count {
            let Some(inbound) = self.host.receive_looped(now) else { break };
            self.on_inbound(now, inbound);
        }
        count > 0
    }

    /// Passes on what a frame holds, and counts the frame if it is dropped.
    fn on_inbound(&mut self, now: Instant, inbound: Result<Inbound<D::Frame>, DropCause>) {
        let done = match inbound {
            Ok(Inbound::Segment(segment)) => self.on_tcp(now, segment),
            Ok(Inbound::IcmpError(error)) => self.on_icmp_error(now, &error),
            Ok(Inbound::NeighbourResolved(address)) => {
                self.wake_where(|core, key| core.host.next_hop(key.remote) == Some(address));
                Ok(())
            }
            Ok(Inbound::Done) => Ok(()),
            Err(cause) => Err(cause),
        };
        if let Err(cause) = done {
            self.statistics.count(cause);
        }
    }

    /// Brings the addresses of the host into use. Returns true if one was due.
    pub(super) fn begin_addresses(&mut self, now: Instant) -> bool {
        let Some(assigned) = self.host.detect_duplicates(now) else { return false };
        for address in assigned {
            self.wake_where(|_, key| key.local == IpAddr::V6(address));
        }
        true
    }

    /// Gives a turn to connections that wait for something else than TCP.
    fn wake_where(&mut self, wakes: impl Fn(&Self, FlowKey) -> bool) {
        for index in 0..self.slots.len() as u32 {
            let key = self.slots[index as usize].connection.as_ref().map(|connection| connection.key);
            if key.is_some_and(|key| wakes(self, key)) {
                self.mark_dirty(index);
            }
        }
    }

    fn on_tcp(&mut self, now: Instant, segment: Segment<D::Frame>) -> Result<(), DropCause> {
        let Segment { key, mut header, frame, payload_offset, payload_octets, ecn } = segment;
        if header.flags.contains(Flags::SYN) && !key.remote.is_ipv4() {
            // RFC 9293 §3.7.1: the MSS of a SYN over IPv6 that names none.
            header.options.mss = header.options.mss.or(Some(limits::DEFAULT_MSS_IPV6_OCTETS));
        }
        let payload = Payload {
            offset: payload_offset,
            octets: payload_octets,
            frame,
            ecn: tcp::EcnField::from_bits(ecn),
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
        self.host.send_bare(key, reset);
    }

    /// Takes note of what a segment or a timer led to.
    pub(super) fn on_progress(&mut self, now: Instant, index: u32, progress: tcp::Changes) {
        if progress.contains(tcp::Changes::ESTABLISHED) {
            self.limit_to_path(now, index);
            self.announce(index);
        }
        if progress.contains(tcp::Changes::ACKNOWLEDGED) {
            if let Some(connection) = self.slots[index as usize].connection.as_ref() {
                self.host.confirm_reachable(connection.key.remote, now);
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
