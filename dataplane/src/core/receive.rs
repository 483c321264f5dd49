//! Frames in: the host parses each of them, and the connection it is for handles the segment or the ICMP
//! error.

use std::vec::Drain;

use crate::conn::HeldSyn;
use crate::device::Device;
use crate::drops::DropCause;
use crate::endpoint::{Burst, BurstOutcome, Outcome, Unreachable};
use crate::limits;
use crate::net::Host;
use crate::net::between_cores::News;
use crate::net::flow::FlowKey;
use crate::net::icmp_errors::IcmpErrorKind;
use crate::net::inbound::{IcmpError, Inbound};
use crate::net::input::Ingress;
use crate::net::output::min_headers_octets;
use crate::ring::Event;
use crate::tcp::{Changes, EcnField, Payload, Refusal};
use crate::time::Instant;
use crate::wire::segment::Segment;
use crate::wire::tcp::{Flags, Header, SeqNumber};

use super::unmatched::OpenedByCookie;
use super::{Core, demultiplexing, look_ahead};

impl<D: Device> Core<D> {
    /// Receives a burst of frames from the device. Returns how many there were.
    #[inline]
    pub(super) fn receive(&mut self, now: Instant) -> usize {
        let Some(burst) = self.host.interface.dequeue_burst(now) else { return 0 };
        let count = burst.len();
        if self.host.interface.has_adapter_notice() {
            self.report_adapter();
        }
        self.on_burst(now, burst, Ingress::Wire);
        count
    }

    /// Receives the frames that were queued for the host itself before, a burst at most. Returns true if
    /// there were any.
    #[inline]
    pub(super) fn receive_looped(&mut self, now: Instant) -> bool {
        let has_looped = self.host.interface.looped_frames() > 0;
        if has_looped {
            let burst = self.host.interface.dequeue_looped_burst();
            self.on_burst(now, burst, Ingress::Loopback);
        }
        has_looped
    }

    /// Receives what other cores of the device have sent: notes, and frames to its own addresses. Returns
    /// true if there may have been anything.
    #[inline]
    pub(super) fn receive_from_cores(&mut self, now: Instant) -> bool {
        let may_have_input = self.host.interface.may_have_input_of_cores();
        if may_have_input {
            self.receive_input_of_cores(now);
        }
        may_have_input
    }

    #[inline(never)]
    fn receive_input_of_cores(&mut self, now: Instant) {
        let News { neighbour, address } = self.host.receive_notes(now);
        if neighbour || address {
            self.on_new_paths(address);
        }
        let burst = self.host.interface.dequeue_burst_of_cores();
        self.on_burst(now, burst, Ingress::Loopback);
    }

    /// Handles the frames of a burst. Segments that follow one another are handed to their connection
    /// together.
    fn on_burst(&mut self, now: Instant, mut burst: Vec<D::Frame>, ingress: Ingress) {
        if look_ahead::is_useful(&self.endpoints.table) && burst.len() > 1 {
            look_ahead::fetch_receivers(&mut self.endpoints, &self.host, &burst, ingress);
        }
        let mut segment = Segment::NONE;
        let mut frames = burst.drain(..);
        while let Some(frame) = frames.next() {
            if !self.host.parser.find(&mut segment, &frame, ingress) {
                self.on_other_frame(now, frame, ingress);
                continue;
            }
            match demultiplexing::find(&mut self.endpoints.table, &self.host, &segment.flow, ingress) {
                Some(slot) => self.on_segments(now, slot, &mut segment, frame, &mut frames, ingress),
                None if ingress.is_loopback() => self.on_other_frame(now, frame, ingress),
                None => self.on_other_frame(now, frame, Ingress::Verified),
            }
        }
        drop(frames);
        self.host.interface.end_burst(burst);
    }

    /// Hands `segment`, which lies in the first of these frames, to the connection in `slot`, and the
    /// segments after it in the burst that follow it.
    #[inline]
    fn on_segments(
        &mut self,
        now: Instant,
        slot: u32,
        segment: &mut Segment,
        frame: D::Frame,
        rest: &mut Drain<'_, D::Frame>,
        ingress: Ingress,
    ) {
        let is_scheduled = self.endpoints.table.is_scheduled(slot);
        let Some(mut endpoint) = self.endpoints.at(now, slot) else { return };
        if !rest.as_slice().is_empty() {
            self.host.parser.begin_following(segment, &frame);
        }
        let mut burst = Following { host: &mut self.host, rest, ingress };
        let BurstOutcome { changes, refusal, unexpected } =
            endpoint.on_expected_segments(segment, frame, &mut burst);
        let dropped_surplus = endpoint.connection.drop_unacked_surplus(&mut endpoint.context.pools);
        if !changes.is_empty() || unexpected.is_none() {
            let rests_until = if is_scheduled { None } else { endpoint.rest_after(changes) };
            let outcome = Outcome { schedule: true, changes, dropped_surplus, refusal, ..Outcome::NONE };
            self.after_segments(now, slot, segment, outcome, rests_until);
        }
        if let Some(frame) = unexpected {
            let mut header = self.host.parser.header_of(segment, &frame);
            set_default_mss(&mut header, &FlowKey::of_received(&segment.flow));
            self.on_segment(now, slot, segment, &header, frame);
        }
    }

    /// Handles a frame in which no segment was [found](crate::net::input::SegmentParser::find), or
    /// one that belongs to no connection.
    #[inline(never)]
    fn on_other_frame(&mut self, now: Instant, frame: D::Frame, ingress: Ingress) {
        let inbound = self.host.receive(now, frame, ingress);
        self.on_inbound(now, inbound, ingress);
    }

    /// Begins to use the host's addresses that are due, and schedules the connections that wait for
    /// them. Returns true if any was due.
    #[inline]
    pub(super) fn detect_duplicates(&mut self, now: Instant) -> bool {
        let Some(assigned) = self.host.detect_duplicates(now) else { return false };
        if !assigned.is_empty() {
            self.on_new_paths(true);
        }
        true
    }

    /// Has connections that wait for a path looked at: a neighbour answered, or an address of the host came
    /// into use.
    #[cold]
    fn on_new_paths(&mut self, has_new_address: bool) {
        self.path_waiters.begin_to_resume(&mut self.endpoints.table, has_new_address);
        self.walks_on = true;
    }

    fn on_inbound(&mut self, now: Instant, inbound: Result<Inbound<D::Frame>, DropCause>, ingress: Ingress) {
        let handled = match inbound {
            Ok(Inbound::Segment(segment, header, frame)) => {
                self.on_tcp(now, &segment, header, frame, ingress)
            }
            Ok(Inbound::IcmpError(error)) => self.on_icmp_error(now, &error),
            Ok(Inbound::NeighbourResolved(neighbour)) => {
                debug_assert!(
                    self.host.neighbourhood.knows_neighbour(neighbour),
                    "its hardware address is known now"
                );
                self.on_new_paths(false);
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
            && let Some(notice) = self.host.interface.dequeue_notice()
        {
            events.push(Event::Notice(notice));
        }
    }

    /// Hands control that the adapter differs. Without room for it the next burst does.
    #[cold]
    fn report_adapter(&mut self) {
        let events = &mut self.endpoints.context.events;
        if events.has_room() {
            events.push(Event::Notice(self.host.interface.take_adapter_notice()));
        }
    }

    fn on_tcp(
        &mut self,
        now: Instant,
        segment: &Segment,
        mut header: Header,
        frame: D::Frame,
        ingress: Ingress,
    ) -> Result<(), DropCause> {
        let key = FlowKey::of_received(&segment.flow);
        set_default_mss(&mut header, &key);
        let (slot, frame) = match self.endpoints.table.find(&key) {
            Some(slot) => (slot, frame),
            None => match self.opener(now).on_unmatched_segment(key, segment, &header, frame, ingress)? {
                Some(OpenedByCookie { slot, frame }) => (slot, frame),
                None => return Ok(()),
            },
        };
        self.on_segment(now, slot, segment, &header, frame);
        Ok(())
    }

    /// Handles the SYNs for which there is a listener now, or that are refused as they have waited in vain.
    /// Returns true.
    #[cold]
    pub(super) fn handle_held_syns(&mut self, now: Instant) -> bool {
        while let Some(HeldSyn { frame, ingress }) = self.handshakes.left_ports.pop(now) {
            self.on_other_frame(now, frame, ingress);
        }
        true
    }

    /// Hands a segment to the connection in `slot`, which it belongs to, whatever its header is.
    #[inline(never)]
    fn on_segment(&mut self, now: Instant, slot: u32, segment: &Segment, header: &Header, frame: D::Frame) {
        let is_scheduled = self.endpoints.table.is_scheduled(slot);
        let Some(mut endpoint) = self.endpoints.at(now, slot) else {
            return self.endpoints.context.statistics.count(DropCause::NoConnection);
        };
        let payload = Payload {
            frame,
            offset: segment.payload_offset,
            octets: segment.payload_octets,
            ecn: EcnField::from_bits(segment.ecn),
        };
        let outcome = endpoint.on_segment(header, payload);
        endpoint.connection.review();
        let rests_until = if is_scheduled { None } else { endpoint.rest_after(outcome.changes) };
        self.after_segments(now, slot, segment, outcome, rests_until);
    }

    /// Does what follows from what segments have changed; `segment` is the last of them. A connection that
    /// rests has nothing to send, so it is not served before it has.
    #[inline]
    fn after_segments(
        &mut self,
        now: Instant,
        slot: u32,
        segment: &Segment,
        outcome: Outcome,
        rests_until: Option<Instant>,
    ) {
        match rests_until {
            Some(deadline) => self.endpoints.table.set_deadline(slot, deadline),
            None => self.endpoints.schedule_if_due(slot, outcome),
        }
        self.data_arrived |= outcome.changes.contains(Changes::DATA);
        if outcome.changes.contains(Changes::ACKNOWLEDGED) {
            self.host.confirm_reachable(segment.flow.source(), now);
        }
        self.endpoints.context.pools.held.record_peak();
        if outcome.is_rare() {
            self.after_rare_segment(now, slot, segment, outcome);
        }
    }

    /// Does what follows where a segment has opened its connection, was refused, or found too few frames.
    #[cold]
    fn after_rare_segment(&mut self, now: Instant, slot: u32, segment: &Segment, outcome: Outcome) {
        if outcome.dropped_surplus {
            self.endpoints.context.statistics.count(DropCause::NoRoomForFrame);
            self.walks_on |= self.eviction.relieve_shortage(now, &self.endpoints, slot);
        }
        let key = FlowKey::of_received(&segment.flow);
        if outcome.changes.contains(Changes::ESTABLISHED) {
            self.limit_to_path(now, slot, &key);
        }
        let Some(refusal) = outcome.refusal else { return };
        if outcome.reset
            && let Some(reset) = self.handshakes.resets.reply_to(now, segment, &self.host)
        {
            self.host.send_bare(key, &reset);
        }
        let is_next = |at: SeqNumber| segment.seq <= at;
        let found = self.endpoints.table.at(slot);
        if refusal == Refusal::NoRoom && found.is_some_and(|found| is_next(found.tcp.received().nxt())) {
            self.walks_on |= self.eviction.relieve_shortage(now, &self.endpoints, slot);
        }
        self.endpoints.context.statistics.count(match refusal {
            Refusal::OutsideWindow => DropCause::OutsideWindow,
            Refusal::Duplicate => DropCause::Duplicate,
            Refusal::BadAck => DropCause::BadAck,
            Refusal::Challenged => DropCause::Challenged,
            Refusal::NoRoom => DropCause::NoRoomForFrame,
            Refusal::WrongState => DropCause::WrongState,
            Refusal::RateLimited => DropCause::RateLimited,
            Refusal::OldTimestamp => DropCause::OldTimestamp,
            Refusal::AfterClose => DropCause::AfterClose,
        });
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
        self.endpoints.apply(slot, outcome.ok_or(DropCause::IcmpRefused)?);
        Ok(())
    }
}

/// The frames of a burst after the one that is handled.
struct Following<'c, 'b, D: Device> {
    host: &'c mut Host<D>,
    rest: &'c mut Drain<'b, D::Frame>,
    ingress: Ingress,
}

impl<D: Device> Burst<D::Frame> for Following<'_, '_, D> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.rest.as_slice().is_empty()
    }

    #[expect(clippy::inline_always, reason = "a call costs two loops a tenth of what they do for a segment")]
    #[inline(always)]
    fn next_after(&mut self, segment: &mut Segment) -> Option<D::Frame> {
        let next = self.rest.as_slice().first()?;
        if self.host.parser.follow(segment, next, self.ingress) { self.rest.next() } else { None }
    }

    #[inline]
    fn recycle(&mut self, frame: D::Frame) {
        self.host.interface.recycle(frame);
    }
}

/// RFC 9293 §3.7.1: the default MSS of a SYN over IPv6 that names none. A connection knows that of IPv4.
fn set_default_mss(header: &mut Header, key: &FlowKey) {
    if header.flags.contains(Flags::SYN) && !key.remote.is_ipv4() {
        header.options.mss = header.options.mss.or(Some(limits::DEFAULT_MSS_IPV6_BYTES));
    }
}
