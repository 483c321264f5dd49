//! What a connection sends next.

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, SeqNumber};

use super::congestion::CongestionControl;
use super::ecn::EcnField;
use super::recovery::{Phase, TailProbe};
use super::send_queue::Segment;
use super::timers::Timer;
use super::{Connection, Pools, State};

/// A segment to send. Ports and checksum are the caller's.
#[derive(Clone, Debug)]
pub struct Outgoing<P> {
    /// The header, ports zero.
    pub header: Header,
    /// The data, if any: a range of what a descriptor stands for.
    pub segment: Option<Segment<P>>,
    /// What the IP header says of congestion.
    pub ecn: EcnField,
}

impl<P> Outgoing<P> {
    /// A segment without data. It is never marked as capable of ECN (RFC 3168 §6.1.4).
    pub(super) const fn control(header: Header) -> Self {
        Self { header, segment: None, ecn: EcnField::NotCapable }
    }
}

/// The window shift that lets 16 bits name a window of `octets`.
pub(super) fn scale_for(octets: u32) -> u8 {
    (0..14).find(|shift| octets >> shift <= 0xffff).unwrap_or(14)
}

impl Connection {
    /// The next segment to send at `now`; `None` when there is none for now. To be called until it gives `None`.
    pub fn poll_transmit<P: Copy, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
    ) -> Option<Outgoing<P>> {
        if core::mem::take(&mut self.reset_owed) {
            let flags = Flags::RST | Flags::ACK;
            return Some(Outgoing::control(self.header(now, self.next_seq(), flags)));
        }
        if self.state == State::Closed {
            return None;
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return self.poll_syn(now);
        }
        if let Some(ack) = self.earlier_ack.take() {
            return Some(Outgoing::control(self.earlier_acknowledgement(now, ack)));
        }
        if let Some(outgoing) = self.poll_data(now, pools) {
            return Some(outgoing);
        }
        if self.fin_queued && !self.has_unsent() && (!self.fin_sent || core::mem::take(&mut self.fin_owed)) {
            self.fin_sent = true;
            self.arm_retransmit(now);
            let header = self.header(now, self.send.end(), Flags::FIN | Flags::ACK);
            self.note_ack_sent();
            return Some(Outgoing::control(header));
        }
        if core::mem::take(&mut self.probe_owed) {
            // One place before the window: the peer answers with its window, and no FPDU is cut.
            return Some(Outgoing::control(self.header(now, self.snd_una - 1, Flags::ACK)));
        }
        if self.acks_owed > 0 {
            self.acks_owed -= 1;
            let mut header = self.header(now, self.next_seq(), Flags::ACK);
            if !self.sack_blocks.is_empty() {
                header.options.sack = self.sack_blocks.report();
            }
            self.note_ack_sent();
            return Some(Outgoing::control(header));
        }
        None
    }

    /// The next segment with data: what is lost first, then what was never sent.
    fn poll_data<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> Option<Outgoing<P>> {
        if self.send.is_empty() {
            self.recovery.tail_probe_owed = false;
            return None;
        }
        let probe = core::mem::take(&mut self.recovery.tail_probe_owed);
        if !probe && !self.may_send_by_pace(now) {
            return None;
        }
        if let Some(segment) = self.next_lost(now, pools) {
            return Some(self.data(now, segment));
        }
        if let Some(segment) = self.next_unsent(now, probe, pools) {
            return Some(self.data(now, segment));
        }
        if probe && let Some(segment) = self.send.resend_last(&mut pools.segments, now) {
            self.counters.retransmitted_as_probe += 1;
            self.recovery.tail_probe = Some(TailProbe { end: self.send.nxt(), retransmission: true });
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

    /// The first lost segment, if the congestion window lets it out.
    fn next_lost<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> Option<Segment<P>> {
        let lost = self.send.peek_lost(&pools.segments)?;
        let emss = u32::from(self.emss_octets);
        if lost.octets > emss && self.send.split_lost(&mut pools.segments, emss) {
            self.counters.cut_segments += 1;
        }
        let lost = self.send.peek_lost(&pools.segments)?;
        let pipe = self.pipe_octets();
        if pipe > 0 && pipe + lost.octets > self.congestion.window_octets() {
            return None;
        }
        let segment = self.send.resend_lost(&mut pools.segments, now)?;
        if matches!(self.recovery.phase, Phase::Timeout { .. }) {
            self.counters.retransmitted_after_timeout += 1;
        }
        if !self.timers.is_set(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
        Some(segment)
    }

    /// The next segment never sent, if the windows let it out. A probe of the tail need not ask the congestion window.
    fn next_unsent<P: Copy, F>(
        &mut self,
        now: Instant,
        probe: bool,
        pools: &mut Pools<P, F>,
    ) -> Option<Segment<P>> {
        let next = self.send.peek(&pools.segments)?;
        let emss = u32::from(self.emss_octets);
        if next.octets > emss && self.send.split(&mut pools.segments, emss) {
            self.counters.cut_segments += 1;
        }
        let octets = self.send.peek(&pools.segments)?.octets;
        self.restart_after_idle(now);
        let flight = self.flight_octets();
        let pipe = self.pipe_octets();
        if !probe && pipe > 0 && pipe + octets > self.congestion.window_octets() {
            self.limited_until = self.send.nxt();
            return None;
        }
        // RFC 9293 §3.7.4. One that the next could not join is as full as FPDUs make it (MPA-A.2-01).
        let behind = self.send.octets_behind(&pools.segments);
        let may_grow = octets < emss && behind.is_none_or(|behind| octets + behind <= emss);
        if self.config.behaviour.nagle && may_grow && flight > 0 && !self.fin_queued {
            return None;
        }
        let window_end = self.snd_una + self.snd_wnd;
        if self.send.nxt() + octets > window_end
            && (flight > 0 || !self.use_small_window(now, window_end, pools))
        {
            return None;
        }
        if flight == 0 {
            self.progress_at = now;
        }
        let segment = self.send.advance(&mut pools.segments, now)?;
        self.sent_at = now;
        self.timers.clear(Timer::Persist);
        if probe {
            self.recovery.tail_probe = Some(TailProbe { end: self.send.nxt(), retransmission: false });
            self.arm_retransmit(now);
        } else if !self.timers.is_set(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
        self.arm_probe(now);
        Some(segment)
    }

    /// RFC 5681 §4.1: after a time without sending, the window says nothing of the path any more.
    fn restart_after_idle(&mut self, now: Instant) {
        let idle_ns = now - self.sent_at;
        let rto_ns = self.rtt.rto_ns();
        if self.flight_octets() == 0 && self.sent_at > Instant::ZERO && idle_ns > rto_ns {
            self.congestion.on_idle(now, idle_ns, rto_ns);
            // Once for this idle time, even if the segment cannot go yet.
            self.sent_at = now;
        }
    }

    /// The window is too small for the next segment and nothing is in flight. A window that data has filled to a small
    /// rest is probed as a closed one is, so that no FPDU is cut; one that stays small, or was never much larger, is used
    /// by cutting the segment (RFC 9293 §3.8.6.2.1).
    fn use_small_window<P: Copy, F>(
        &mut self,
        now: Instant,
        window_end: SeqNumber,
        pools: &mut Pools<P, F>,
    ) -> bool {
        let room = (window_end - self.send.nxt()).max(0) as u32;
        let stays_small = self.persist_backoff >= limits::SMALL_WINDOW_PROBES;
        let use_it = room > 0 && (stays_small || room >= self.snd_wnd_max / 2);
        if self.probe_owed && use_it && self.send.split(&mut pools.segments, room) {
            self.probe_owed = false;
            self.counters.cut_segments += 1;
            return true;
        }
        if !self.timers.is_set(Timer::Persist) {
            self.arm_persist(now);
        }
        false
    }

    fn data<P>(&mut self, now: Instant, segment: Segment<P>) -> Outgoing<P> {
        let mut flags = Flags::ACK;
        if segment.end() == self.send.end() {
            flags |= Flags::PSH;
        }
        self.counters.data_segments_sent += 1;
        let again = segment.retransmitted();
        if again {
            self.counters.retransmitted_segments += 1;
            self.recovery.on_resent(self.clocks.value(now), (segment.seq, segment.end()));
        }
        if let Some(pace) = self.pace() {
            self.pacer.on_sent(now, &pace, segment.octets);
        }
        if let Phase::Fast(prr) = &mut self.recovery.phase {
            prr.on_sent(segment.octets);
        }
        // RFC 3168 §6.1.5: what is sent again is not capable of ECN; §6.1.2: new data tells of a reduction.
        let ecn = if self.ecn.negotiated && !again { EcnField::Capable0 } else { EcnField::NotCapable };
        if ecn == EcnField::Capable0 && core::mem::take(&mut self.ecn.reduced) {
            flags |= Flags::CWR;
        }
        let header = self.header(now, segment.seq, flags);
        self.note_ack_sent();
        Outgoing { header, segment: Some(segment), ecn }
    }

    /// The sequence number of a segment without data.
    fn next_seq(&self) -> SeqNumber {
        self.send.nxt() + u32::from(self.fin_sent)
    }

    /// The next place expected from the peer, its FIN included.
    pub(super) fn receive_next(&self) -> SeqNumber {
        self.receive.nxt() + u32::from(self.peer_finished)
    }

    pub(super) fn header(&mut self, now: Instant, seq: SeqNumber, mut flags: Flags) -> Header {
        let acknowledges = flags.contains(Flags::ACK);
        if acknowledges && self.ecn.echoes() && !flags.contains(Flags::SYN) {
            flags |= Flags::ECE;
        }
        let timestamps = self.clocks.negotiated.then(|| self.clocks.option(now));
        Header {
            source_port: 0,
            destination_port: 0,
            seq,
            ack: if acknowledges { self.receive_next() } else { SeqNumber(0) },
            flags,
            window: if acknowledges { self.offer_window() } else { 0 },
            urgent: 0,
            options: Options { timestamps, ..Options::default() },
        }
    }

    /// An acknowledgement of what was in order before the echo of marks changed, with the echo of then. It offers the same
    /// right edge as any other.
    fn earlier_acknowledgement(&mut self, now: Instant, ack: SeqNumber) -> Header {
        let mut header = self.header(now, self.next_seq(), Flags::ACK);
        header.flags.toggle(Flags::ECE);
        header.ack = ack;
        header.window = self.window_from(ack);
        header
    }

    /// Every segment acknowledges all that is in order. Beyond a gap the peer counts acknowledgements without data
    /// (RFC 5681 §2), so those stay owed.
    fn note_ack_sent(&mut self) {
        self.last_ack_sent = self.receive_next();
        self.unacknowledged_segments = 0;
        if !self.receive.has_gap() && self.sack_blocks.is_empty() {
            self.acks_owed = 0;
        }
        self.timers.clear(Timer::DelayedAck);
    }

    /// Octets we could take beyond RCV.NXT. What waits beyond a gap, or is placed there, lies inside the window already
    /// (DDP-A-02); what is in order and nobody has taken makes it smaller (DDP-A-03).
    fn room(&self) -> u32 {
        self.config.window_octets.saturating_sub(self.receive.available() as u32)
    }

    /// Moves the right edge as far as silly-window avoidance allows (RFC 9293 §3.8.6.2.2) and gives the window field.
    fn offer_window(&mut self) -> u16 {
        let nxt = self.receive_next();
        let edge = nxt + self.room();
        let gain = (edge - self.rcv_edge).max(0) as u32;
        if gain >= u32::from(self.config.mss_octets).min(self.config.window_octets / 2) {
            self.rcv_edge = edge;
        }
        self.window_from(nxt)
    }

    /// The window field beside the acknowledgement number `ack`.
    fn window_from(&mut self, ack: SeqNumber) -> u16 {
        let window = (self.rcv_edge - ack).max(0) as u32;
        // Rounded up, and the edge with it, so that scaling never pulls it back (DDP-A-04).
        let field = window.div_ceil(1 << self.rcv_scale).min(0xffff);
        self.rcv_edge = self.rcv_edge.later(ack + (field << self.rcv_scale));
        field as u16
    }

    /// Whether the window could be offered much larger than the peer knows.
    pub(super) fn window_grows_enough(&self) -> bool {
        let known = (self.rcv_edge - self.receive_next()).max(0) as u32;
        known < self.config.window_octets / 2 && self.room() >= known + self.config.window_octets / 4
    }
}
