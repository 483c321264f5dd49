//! The next segment that a connection sends.

use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SegmentHeader, SeqNumber};

use super::ack_state::EarlierAck;
use super::congestion::CongestionControl;
use super::ecn::EcnField;
use super::recovery::{Phase, TailProbe};
use super::send_queue::{Segment, SendPayload};
use super::send_state::Fin;
use super::timers::Timer;
use super::unusual::Unusual;
use super::{Connection, Pools, State};

/// A segment to send. The caller fills in ports and checksum.
#[derive(Clone, Debug)]
pub struct Outgoing<P> {
    /// The header, ports zero.
    pub header: Header,
    /// The data, if any: a range of a descriptor's payload.
    pub segment: Option<Segment<P>>,
    /// The ECN field of the IP header.
    pub ecn: EcnField,
}

impl<P> Outgoing<P> {
    /// A segment without data. It is never sent as ECN-capable (RFC 3168 §6.1.4).
    pub(super) const fn control(header: Header) -> Self {
        Self { header, segment: None, ecn: EcnField::NotCapable }
    }
}

impl Connection {
    /// Returns the next segment to send at `now`, or `None` if there is none for now. The caller repeats the
    /// call until it returns `None`.
    pub fn poll_transmit<P: SendPayload, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
    ) -> Option<Outgoing<P>> {
        if self.unusual.contains(Unusual::AWAITS_PATH) {
            self.end_await_path();
        }
        if core::mem::take(&mut self.reset_owed) {
            let flags = Flags::RST | Flags::ACK;
            return Some(Outgoing::control(self.header(now, self.bare_seq(), flags)));
        }
        if self.state == State::Closed {
            return None;
        }
        if self.is_opening() {
            return self.poll_syn(now).or_else(|| self.poll_ack(now));
        }
        if let Some(ack) = self.ack.next_ce_change() {
            return Some(Outgoing::control(self.earlier_acknowledgement(now, ack)));
        }
        if let Some(outgoing) = self.poll_data(now, pools) {
            return Some(outgoing);
        }
        if self.send.fin.is_due() && !self.has_unsent() {
            if !self.send.fin.is_sent() && self.send.flight_octets() == 0 {
                // The user timeout of the FIN: the time before it was idle (RFC 5482 §2).
                self.activity.last_progress = now;
            }
            let again = core::mem::replace(&mut self.send.fin, Fin::Sent).is_sent();
            let probes_window = again && self.probe.persist_backoff > 0;
            if !probes_window || !self.timers.is_set(Timer::Retransmit) {
                self.arm_retransmit(now);
            }
            let header = self.header(now, self.send.queue.end(), Flags::FIN | Flags::ACK);
            if again {
                self.on_ack_sent_again();
            } else {
                self.on_ack_sent();
            }
            return Some(Outgoing::control(header));
        }
        if core::mem::take(&mut self.probe.owed) {
            return Some(Outgoing::control(self.probe(now)));
        }
        self.poll_ack(now)
    }

    /// A probe of the peer or its window, one sequence number before SND.UNA: the peer answers with its
    /// window, and no FPDU is cut. RFC 2018 §4: every acknowledgement of less than all that has come has
    /// blocks.
    fn probe(&mut self, now: Instant) -> Header {
        let mut header = self.header(now, self.send.una - 1, Flags::ACK);
        header.options.sack = self.ack.held();
        // There are peers that accept the acknowledgement of a segment that they have (BSD).
        self.on_ack_sent_again();
        header
    }

    /// The acknowledgement that is owed. In SYN-RECEIVED it answers a segment that is not acceptable (RFC
    /// 9293 §3.10.7.4, RFC 5961 §3); in SYN-SENT none is owed.
    fn poll_ack<P>(&mut self, now: Instant) -> Option<Outgoing<P>> {
        if self.ack.owed == 0 {
            return None;
        }
        self.ack.owed -= 1;
        let mut header = self.header(now, self.bare_seq(), Flags::ACK);
        header.options.sack = self.ack.report();
        self.on_ack_sent();
        Some(Outgoing::control(header))
    }

    /// The sequence number of a segment without data: SND.NXT, unless the peer has taken back the window
    /// before it, and so would not accept that (RFC 9293 §3.8.6). Less than a unit of the window field is
    /// rounding.
    fn bare_seq(&self) -> SeqNumber {
        let (next, end) = (self.send.next(), self.send.window_end());
        if next - end < 1 << self.send.scale || self.is_opening() { next } else { end.later(self.send.una) }
    }

    /// Whether nothing never sent is queued, and no acknowledgement is owed: then there is nothing to send,
    /// but for the [rare conditions](super::Unusual::SEND).
    #[inline]
    pub fn is_silent(&self) -> bool {
        !self.has_unsent() && self.ack.owed == 0
    }

    /// Whether nothing is queued or outstanding, and no acknowledgement is owed.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.send.queue.is_empty() && self.ack.owed == 0
    }

    /// The next segment with data: lost segments first, then those never sent.
    fn poll_data<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> Option<Outgoing<P>> {
        if self.send.queue.is_empty() {
            self.recovery.tail_probe_owed = false;
            return None;
        }
        let probe = core::mem::take(&mut self.recovery.tail_probe_owed);
        if !probe && !self.may_send_by_pace(now) {
            return None;
        }
        if let Some(left) = self.recovery.frto_segments_left() {
            let segment = if left > 0 { self.next_unsent(now, false, pools) } else { None };
            self.recovery.on_frto_segment(segment.is_some());
            if segment.is_some() || self.recovery.frto_segments_left().is_some() {
                return segment.map(|segment| self.data(now, segment));
            }
        }
        if let Some(segment) = self.next_lost(now, pools) {
            return Some(self.data(now, segment));
        }
        if let Some(segment) = self.next_unsent(now, probe, pools) {
            return Some(self.data(now, segment));
        }
        let (segments, budget) = (&mut pools.segments, &mut pools.scan_budget);
        if probe && let Some(segment) = self.send.queue.resend_last(segments, budget, now) {
            self.counters.retransmitted_as_probe += 1;
            self.recovery.tail_probe = Some(TailProbe { end: self.send.queue.nxt(), retransmission: true });
            self.arm_retransmit(now);
            return Some(self.data(now, segment));
        }
        None
    }

    fn may_send_by_pace(&mut self, now: Instant) -> bool {
        let Some(at) = self.pace().and_then(|pace| self.pacer.wait_until(now, &pace)) else { return true };
        self.timers.set(Timer::Pace, at);
        false
    }

    /// The first lost segment, if the congestion window allows it.
    fn next_lost<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> Option<Segment<P>> {
        let lost = self.send.queue.peek_lost(&pools.segments)?;
        let emss = self.emss_beside_option(&lost.payload);
        if lost.octets > emss && self.send.queue.split_lost(&mut pools.segments, emss) {
            self.counters.cut_segments += 1;
        }
        let lost = self.send.queue.peek_lost(&pools.segments)?;
        if self.probe.persist_backoff > 0 && lost.seq > self.send.una && lost.end() > self.send.window_end() {
            // The peer refuses it. Only the oldest goes beyond the window, as the probe of it.
            return None;
        }
        let pipe = self.pipe_octets();
        // RFC 6298 §5.4: a timeout sends the oldest again, whatever else is in flight.
        let is_timed_out = lost.seq <= self.send.una && matches!(self.recovery.phase, Phase::Timeout { .. });
        if pipe > 0 && !is_timed_out && pipe + lost.octets > self.congestion.window_octets() {
            return None;
        }
        let segment = self.send.queue.resend_lost(&mut pools.segments, now)?;
        if matches!(self.recovery.phase, Phase::Timeout { .. }) {
            self.counters.retransmitted_after_timeout += 1;
        }
        // A round trip after this its acknowledgement comes, and that is later than the timer expects which
        // was set when the peer last acknowledged something (RFC 6675 §6).
        let begins_anew = segment.seq <= self.send.una && matches!(self.recovery.phase, Phase::Fast(_));
        if begins_anew || !self.timers.is_set(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
        Some(segment)
    }

    /// The octets of the largest segment with data of `payload`: the EMSS less the octets of its option.
    fn emss_beside_option<P: SendPayload>(&self, payload: &P) -> u32 {
        self.path.emss_octets() - self.receive.rdma_option.octets_for(payload)
    }

    /// The next segment never sent, if both windows allow it. A tail probe ignores the congestion window.
    fn next_unsent<P: SendPayload, F>(
        &mut self,
        now: Instant,
        probe: bool,
        pools: &mut Pools<P, F>,
    ) -> Option<Segment<P>> {
        let next = self.send.queue.peek(&pools.segments)?;
        let emss = self.emss_beside_option(&next.payload);
        let has_option = self.receive.rdma_option.octets_for(&next.payload) > 0;
        if next.octets > emss && self.send.queue.split(&mut pools.segments, emss) {
            self.counters.cut_segments += 1;
        }
        let octets = self.send.queue.peek(&pools.segments)?.octets;
        self.restart_after_idle(now);
        let flight = self.send.flight_octets();
        let pipe = self.pipe_octets();
        if !probe && pipe > 0 && pipe + octets > self.congestion.window_octets() {
            self.send.cwnd_limited_until = self.send.queue.nxt();
            return None;
        }
        // RFC 9293 §3.7.4. A segment that the next one could not join is as full as complete FPDUs make it.
        // None joins a segment with an option.
        // Requirements: MPA-A.2-01
        let after = self.send.queue.octets_after_next(&pools.segments);
        let joins = |after| !has_option && octets + after <= emss;
        let may_grow = octets < emss && after.is_none_or(joins);
        if self.config.behaviour.nagle && may_grow && flight > 0 && !self.send.fin.is_queued() {
            return None;
        }
        let window_end = self.send.window_end();
        if self.send.queue.nxt() + octets > window_end
            && (flight > 0 || !self.use_small_window(now, window_end, pools))
        {
            return None;
        }
        if flight == 0 {
            self.activity.last_progress = now;
        }
        let segment = self.send.queue.advance(&mut pools.segments, now)?;
        self.activity.data_sent_at = now;
        self.timers.clear(Timer::Persist);
        if probe {
            self.recovery.tail_probe = Some(TailProbe { end: self.send.queue.nxt(), retransmission: false });
            self.arm_retransmit(now);
        } else if !self.timers.is_set(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
        self.arm_probe(now);
        Some(segment)
    }

    /// RFC 5681 §4.1: after a time without sending, the congestion window does not reflect the path any more.
    /// Returns true if it has begun anew.
    pub(super) fn restart_after_idle(&mut self, now: Instant) -> bool {
        let idle_ns = now - self.activity.data_sent_at;
        let rto_ns = self.rtt.rto_ns();
        let was_idle =
            self.send.flight_octets() == 0 && self.activity.data_sent_at > Instant::ZERO && idle_ns > rto_ns;
        if was_idle {
            self.congestion.on_idle(now, idle_ns, rto_ns);
            // Once for this idle time, even if the segment cannot be sent yet.
            self.activity.data_sent_at = now;
        }
        was_idle
    }

    /// The peer's window is too small for the next segment, and nothing is in flight. If data has filled the
    /// window to a small rest, it is probed like a closed window, so that no FPDU is cut. A window that stays
    /// small, or was never much larger, is used by cutting the segment (RFC 9293 §3.8.6.2.1).
    fn use_small_window<P: SendPayload, F>(
        &mut self,
        now: Instant,
        window_end: SeqNumber,
        pools: &mut Pools<P, F>,
    ) -> bool {
        let room = (window_end - self.send.queue.nxt()).max(0) as u32;
        let use_it = room > 0 && (self.probe.window_stays_small() || room >= self.send.max_window_octets / 2);
        if self.probe.owed && use_it && self.send.queue.split(&mut pools.segments, room) {
            self.probe.owed = false;
            self.probe.on_small_window_used();
            self.counters.cut_segments += 1;
            return true;
        }
        if !self.timers.is_set(Timer::Persist) {
            self.activity.last_progress = now;
            self.arm_persist(now);
        }
        false
    }

    fn data<P: SendPayload>(&mut self, now: Instant, segment: Segment<P>) -> Outgoing<P> {
        let mut flags = Flags::ACK;
        if segment.end() == self.send.queue.end() {
            flags |= Flags::PSH;
        }
        self.counters.data_segments_sent += 1;
        let again = segment.retransmitted();
        if again {
            self.counters.retransmitted_segments += 1;
            let clock = self.timestamps.value(now);
            self.recovery.on_resent(clock, (segment.seq, segment.end()), self.send.una);
        }
        if let Some(pace) = self.pace() {
            self.pacer.on_sent(now, &pace, segment.octets);
        }
        if let Phase::Fast(prr) = &mut self.recovery.phase {
            prr.on_sent(segment.octets);
        }
        // RFC 3168 §6.1.5: a retransmission is not sent as ECN-capable. §6.1.2: new data reports a reduction.
        let ecn = if again { EcnField::NotCapable } else { self.ecn.field() };
        if !again && self.ecn.take_cwr() {
            flags |= Flags::CWR;
        }
        let mut header = self.header(now, segment.seq, flags);
        header.options.rdma = self.receive.rdma_option.of(&segment);
        if again {
            self.on_ack_sent_again();
        } else {
            self.on_ack_sent();
        }
        Outgoing { header, segment: Some(segment), ecn }
    }

    pub(super) fn header(&mut self, now: Instant, seq: SeqNumber, flags: Flags) -> Header {
        self.segment_header(now, seq, flags).into()
    }

    /// The header of a segment that is sent now, and has no options but perhaps timestamps.
    #[inline]
    pub(super) fn segment_header(&mut self, now: Instant, seq: SeqNumber, mut flags: Flags) -> SegmentHeader {
        let acknowledges = flags.contains(Flags::ACK);
        if acknowledges && self.ecn.is_echoing() && !flags.contains(Flags::SYN) {
            flags |= Flags::ECE;
        }
        SegmentHeader {
            seq,
            ack: if acknowledges { self.receive.next() } else { SeqNumber(0) },
            flags,
            window: if acknowledges { self.receive.offer_window() } else { 0 },
            timestamps: self.timestamps.negotiated.then(|| self.timestamps.option(now)),
        }
    }

    /// An acknowledgement of the octets in order before the ECN echo changed, with the echo of before. It
    /// offers the same right edge as any other.
    fn earlier_acknowledgement(&mut self, now: Instant, earlier: EarlierAck) -> Header {
        let mut header = self.header(now, self.bare_seq(), Flags::ACK);
        header.flags.set(Flags::ECE, earlier.echoes);
        header.ack = earlier.ack;
        header.window = self.receive.window_from(earlier.ack);
        header
    }

    /// An acknowledgement has left with octets or a FIN that were sent before. A peer that has those drops it
    /// with them (RFC 9293 §3.10.7.4), so another that is owed or delayed is still to be sent.
    #[cold]
    fn on_ack_sent_again(&mut self) {
        self.ack.last_sent = self.receive.next();
    }

    /// A segment with an acknowledgement has left.
    pub(super) fn on_ack_sent(&mut self) {
        self.ack.on_sent(self.receive.next(), self.receive.queue.has_gap());
        self.timers.clear(Timer::DelayedAck);
    }
}
