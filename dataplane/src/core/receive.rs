//! Frames in: the host takes each of them apart, and the connection it is for handles the segment or the ICMP
//! error.

use std::net::IpAddr;

use crate::device::Device;
use crate::drops::DropCause;
use crate::endpoint::{Outcome, Unreachable};
use crate::limits;
use crate::net::flow::FlowKey;
use crate::net::headers::min_headers_octets;
use crate::net::icmp_errors::IcmpErrorKind;
use crate::net::inbound::{IcmpError, Inbound, Segment};
use crate::ring::Event;
use crate::tcp::{Changes, EcnField, Payload, Refusal};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

use super::Core;
use super::plain::Other;

impl<D: Device> Core<D> {
    /// Takes a burst of frames from the device. Returns how many there were.
    pub(super) fn receive(&mut self, now: Instant) -> usize {
        let Some(mut burst) = self.host.take_burst(now) else { return 0 };
        let count = burst.len();
        let mut frames = burst.drain(..);
        while let Some(frame) = frames.next() {
            if let Some(Other { frame, recognized }) = self.on_plain_frame(now, frame, &mut frames) {
                let inbound = if recognized {
                    self.host.receive_recognized(now, frame)
                } else {
                    self.host.receive(now, frame)
                };
                self.on_inbound(now, inbound);
            }
        }
        drop(frames);
        self.host.end_burst(burst);
        count
    }

    /// Takes the frames that were queued for the host itself before, a burst at most. Returns true if there
    /// were any.
    #[inline]
    pub(super) fn receive_looped(&mut self, now: Instant) -> bool {
        let count = self.host.looped_frames().min(limits::RECEIVE_BURST_FRAMES);
        for _ in 0..count {
            if let Some(inbound) = self.host.receive_looped(now) {
                self.on_inbound(now, inbound);
            }
        }
        count > 0
    }

    /// Begins to use the host's addresses that are due, and gives a turn to the connections that wait for
    /// them. Returns true if any was due.
    #[inline]
    pub(super) fn detect_duplicates(&mut self, now: Instant) -> bool {
        let Some(assigned) = self.host.detect_duplicates(now) else { return false };
        for address in assigned {
            self.endpoints.table.mark_dirty_where(|connection| connection.key.local == address);
        }
        true
    }

    fn on_inbound(&mut self, now: Instant, inbound: Result<Inbound<D::Frame>, DropCause>) {
        let handled = match inbound {
            Ok(Inbound::Segment(segment)) => self.on_tcp(now, segment),
            Ok(Inbound::IcmpError(error)) => self.on_icmp_error(now, &error),
            Ok(Inbound::NeighbourResolved(neighbour)) => {
                let host = &self.host;
                self.endpoints
                    .table
                    .mark_dirty_where(|connection| host.next_hop(connection.key.remote) == Some(neighbour));
                Ok(())
            }
            Ok(Inbound::Done) => Ok(()),
            Err(cause) => Err(cause),
        };
        if let Err(cause) = handled {
            self.endpoints.context.statistics.count(cause);
            if matches!(
                cause,
                DropCause::AddressConflict | DropCause::PartialChecksum | DropCause::OversizedPacket
            ) {
                self.report_notice();
            }
        }
    }

    /// Hands control what the host has found. Without room for it a later finding is handed over.
    #[cold]
    fn report_notice(&mut self) {
        let events = &mut self.endpoints.context.events;
        if events.has_room()
            && let Some(notice) = self.host.take_notice()
        {
            events.push(Event::Notice(notice));
        }
    }

    fn on_tcp(&mut self, now: Instant, segment: Segment<D::Frame>) -> Result<(), DropCause> {
        let Segment { key, mut header, frame, payload_offset, payload_octets, ecn } = segment;
        if header.flags.contains(Flags::SYN) && !key.remote.is_ipv4() {
            // RFC 9293 §3.7.1: the default MSS of a SYN over IPv6 that names none.
            header.options.mss = header.options.mss.or(Some(limits::DEFAULT_MSS_IPV6_BYTES));
        }
        let ecn = EcnField::from_bits(ecn);
        let payload = Payload { offset: payload_offset, octets: payload_octets, frame, ecn };
        match self.endpoints.table.find(&key) {
            Some(slot) => self.on_segment(now, slot, &key, &header, payload),
            None => self.on_unmatched_segment(now, key, &header, payload),
        }
    }

    /// Hands a segment to the connection in `slot`, which it belongs to.
    pub(super) fn on_segment(
        &mut self,
        now: Instant,
        slot: u32,
        key: &FlowKey,
        header: &Header,
        payload: Payload<D::Frame>,
    ) -> Result<(), DropCause> {
        let payload_octets = payload.octets;
        let Some(mut endpoint) = self.endpoints.at(now, slot) else { return Err(DropCause::NoConnection) };
        let outcome = endpoint.on_segment(header, payload);
        self.after_segment(now, slot, outcome, || key.remote);
        if outcome.changes.contains(Changes::ESTABLISHED) {
            self.limit_to_path(now, slot, key);
        }
        let Some(refusal) = outcome.refusal else { return Ok(()) };
        if outcome.reset {
            self.send_reset(now, *key, header, payload_octets);
        }
        let is_next = |at: SeqNumber| header.seq <= at;
        let found = self.endpoints.table.at(slot);
        if refusal == Refusal::NoRoom && found.is_some_and(|found| is_next(found.tcp.received().nxt())) {
            self.relieve_shortage(now, slot);
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
            Refusal::AfterClose => DropCause::AfterClose,
        })
    }

    /// Does what follows from the changes that a segment of the peer `remote` has made.
    #[inline]
    pub(super) fn after_segment(
        &mut self,
        now: Instant,
        slot: u32,
        outcome: Outcome,
        remote: impl Fn() -> IpAddr,
    ) {
        self.apply(slot, outcome);
        self.data_arrived |= outcome.changes.contains(Changes::DATA);
        if outcome.changes.contains(Changes::ACKNOWLEDGED) {
            self.host.confirm_reachable(remote(), now);
        }
        if outcome.dropped_surplus {
            self.endpoints.context.statistics.count(DropCause::NoRoomForFrame);
            self.relieve_shortage(now, slot);
        }
        self.endpoints.context.pools.held.note_peak();
    }

    /// Limits the segments of a connection that has just opened to what is known of the path.
    fn limit_to_path(&mut self, now: Instant, slot: u32, key: &FlowKey) {
        if let Some(mtu_octets) = self.host.path_mtu(now, key.remote)
            && let Some(mut endpoint) = self.endpoints.at(now, slot)
        {
            endpoint.limit_mss(mtu_octets.saturating_sub(min_headers_octets(key.remote)));
        }
    }

    fn on_icmp_error(&mut self, now: Instant, error: &IcmpError) -> Result<(), DropCause> {
        let (source, destination) = (error.segment.source, error.segment.destination);
        let key = FlowKey {
            local: source.ip(),
            remote: destination.ip(),
            remote_port: destination.port(),
            local_port: source.port(),
        };
        let slot = self.endpoints.table.find(&key).ok_or(DropCause::IcmpRefused)?;
        let mut endpoint = self.endpoints.at(now, slot).ok_or(DropCause::IcmpRefused)?;
        let seq = error.segment.seq;
        let outcome = match error.kind {
            IcmpErrorKind::PacketTooBig { mtu_octets } => {
                let mss_octets = mtu_octets - min_headers_octets(key.remote);
                let outcome = endpoint.on_packet_too_big(seq, mss_octets);
                if outcome.is_some() {
                    self.host.learn_path_mtu(now, key.remote, mtu_octets);
                }
                outcome
            }
            IcmpErrorKind::Refused => endpoint.on_unreachable(seq, Unreachable::Port),
            IcmpErrorKind::Hard => endpoint.on_unreachable(seq, Unreachable::Protocol),
            IcmpErrorKind::Soft => endpoint.on_unreachable(seq, Unreachable::ForNow),
        };
        self.apply(slot, outcome.ok_or(DropCause::IcmpRefused)?);
        Ok(())
    }

    /// Answers a segment that belongs to no connection with a RST (RFC 9293 §3.5.2, group 1).
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
        self.host.send_bare(key, &reset);
    }
}
