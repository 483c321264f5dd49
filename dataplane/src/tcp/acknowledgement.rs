//! An acknowledgement arrives: the octets it delivers, losses and congestion (RFC 9293 §3.10.7.4, fifth, with
//! RFC 5681, 6675, 8985, 9937 and 3168).

use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

use super::congestion::{AckSample, CongestionControl, Signal};
use super::counters::Counters;
use super::rack::Rack;
use super::recovery::{DUPLICATE_THRESHOLD, Phase};
use super::sack_blocks::Block;
use super::send_queue::{Segment, SegmentPool, SegmentState, SendPayload, SendQueue, Verdict};
use super::timers::Timer;
use super::timestamps::{TimestampClock, is_before};
use super::unusual::Unusual;
use super::{Changes, Connection, Pools, Refusal, State};

/// The octets that one acknowledgement delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivery {
    /// Octets by which SND.UNA moved.
    acked_octets: u32,
    /// Octets newly delivered, in complete segments, selectively acknowledged ones included.
    pub(super) octets: u32,
    /// Octets of the largest segment among them.
    largest_octets: u32,
    /// Round-trip time of the segment sent last among those sent once.
    rtt_ns: Option<u64>,
    /// A segment sent once, and before the last recovery began, is among them.
    pub(super) original: bool,
    /// A segment sent for the first time since the last recovery began is among them.
    pub(super) beyond: bool,
    /// A segment is selectively acknowledged for the first time.
    newly_sacked: bool,
}

/// The selective acknowledgement of a header, checked.
#[derive(Debug, Default)]
struct Selective {
    blocks: arrayvec::ArrayVec<Block, 4>,
    duplicate: Option<Block>,
}

/// The acknowledgement number of a segment without that of the FIN, and its timestamp echo.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    pub(super) ack: SeqNumber,
    pub(super) echo: Option<u32>,
}

/// The segments that one acknowledgement delivers, while they are recorded.
struct Deliveries<'c> {
    now: Instant,
    acknowledged: Acknowledged,
    /// The least round-trip time in nanoseconds; 0 if none is known.
    least_ns: u64,
    /// Where the last recovery began.
    until: SeqNumber,
    /// Where the outstanding tail probe ends.
    probe_end: Option<SeqNumber>,
    clocks: &'c TimestampClock,
    rack: &'c mut Rack,
    counters: &'c mut Counters,
    delivery: Delivery,
}

impl Deliveries<'_> {
    /// Records that the `count` segments of a group are delivered, of which `segment` is the first.
    #[inline]
    fn record(&mut self, segment: &Segment<()>, count: u32) {
        if segment.state == SegmentState::Sacked {
            return;
        }
        let ambiguous = segment.retransmitted() && self.is_ambiguous(segment);
        let (now, delivery) = (self.now, &mut self.delivery);
        self.counters.reordered_segments += self.rack.on_delivered(now, segment, count, ambiguous);
        if !segment.retransmitted() {
            let rtt_ns = now - segment.sent_at;
            delivery.rtt_ns = Some(delivery.rtt_ns.map_or(rtt_ns, |least| least.min(rtt_ns)));
            delivery.original |= segment.end() <= self.until;
        }
        delivery.beyond |= segment.end() > self.until;
        delivery.octets += segment.octets * count;
        delivery.largest_octets = delivery.largest_octets.max(segment.octets);
    }

    /// RFC 8985 §6.2 step 2: the acknowledgement of a retransmitted segment may be for its first
    /// transmission. The timestamp echo is valid only for octets acknowledged in order: the peer does not
    /// accept timestamps of segments beyond a hole (RFC 7323 §4.3). A tail probe is sent so late that a short
    /// round-trip time is more likely that of a small segment.
    fn is_ambiguous(&self, segment: &Segment<()>) -> bool {
        let Acknowledged { ack, echo } = self.acknowledged;
        let too_soon = self.now - segment.sent_at < self.least_ns && self.probe_end != Some(segment.end());
        let older_echo = || {
            self.clocks.negotiated
                && segment.end() <= ack
                && echo.is_some_and(|echo| is_before(echo, self.clocks.value(segment.sent_at)))
        };
        too_soon || older_echo()
    }
}

/// How an acknowledgement differs from others of the same octets.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckKind {
    /// It acknowledges octets cumulatively.
    pub(super) advanced: bool,
    /// It is a duplicate acknowledgement (RFC 5681 §2).
    pub(super) duplicate: bool,
}

impl Connection {
    /// Returns true if the acknowledgement number `ack` of a connection without
    /// [rare conditions](super::Unusual::RECEIVE) acknowledges something new.
    #[inline]
    pub(super) fn advances(&self, ack: SeqNumber) -> bool {
        debug_assert!(!self.send.fin.is_queued() || self.state != State::Established, "a FIN needs more");
        ack > self.send.una && ack <= self.send.queue.nxt()
    }

    /// Returns true if the acknowledgement number `ack` of such a connection acknowledges nothing new, and is
    /// no duplicate acknowledgement (RFC 5681 §2): it changes no more than the window.
    #[inline]
    pub(super) fn repeats<P>(
        &self,
        ack: SeqNumber,
        carries_nothing: bool,
        segments: &SegmentPool<P>,
    ) -> bool {
        ack == self.send.una
            && (self.send.queue.is_empty() && !self.timers.repairs()
                || !carries_nothing
                    && self.send.queue.outstanding_octets() > 0
                    && !self.may_have_lost(segments))
    }

    /// Returns true if no loss is known or suspected, and nothing that was done about one could still be
    /// undone.
    #[inline]
    pub(super) fn suspects_no_loss(&self) -> bool {
        self.recovery.is_at_rest() && !self.send.queue.has_holes() && !self.timers.is_set(Timer::Reorder)
    }

    /// Accepts an acknowledgement that [advances](Self::advances) SND.UNA. The search for losses is left out
    /// if the oldest segment in flight rules any loss out.
    #[inline(never)]
    pub(super) fn advance<P: SendPayload, F>(
        &mut self,
        now: Instant,
        acknowledged: Acknowledged,
        pools: &mut Pools<P, F>,
    ) {
        let ack = acknowledged.ack;
        let flight = self.send.flight_octets();
        let outstanding = self.send.queue.outstanding_octets();
        let una = self.send.una;
        let acked_octets = (ack - una).max(0) as u32;
        let mut delivery = Delivery { acked_octets, ..Delivery::default() };
        self.deliver_in_order(now, acknowledged, &mut delivery, pools);
        self.send.una = ack;
        self.record_progress(now, &delivery);
        self.recovery.duplicate_acks = 0;
        if self.may_have_lost(&pools.segments) {
            self.repair(now, ack, true, outstanding, &delivery, pools);
            self.unusual |= Unusual::of(self);
        }
        self.grow(now, false, una, flight, &delivery);
        self.rearm(now, true, false);
    }

    /// Returns false if the oldest segment in flight shows that RACK would find no loss: it was sent once,
    /// and after everything that was delivered, and so were those after it.
    #[inline]
    fn may_have_lost<P>(&self, segments: &SegmentPool<P>) -> bool {
        self.ack.sack
            && self
                .send
                .queue
                .oldest(segments)
                .is_some_and(|oldest| oldest.retransmitted() || self.recovery.rack.has_overtaken(oldest))
    }

    /// Accepts the acknowledgement of a segment that is otherwise acceptable.
    pub(super) fn on_ack<P: SendPayload, F>(
        &mut self,
        now: Instant,
        header: &Header,
        carries_nothing: bool,
        pools: &mut Pools<P, F>,
    ) -> Result<Changes, Refusal> {
        let ack = header.ack;
        if !self.send.is_acceptable_ack(ack) {
            self.owe_ack();
            return Err(Refusal::BadAck);
        }
        if self.state == State::TimeWait {
            // Only a FIN sent again arrives here: acknowledge it and wait anew.
            if header.flags.contains(Flags::FIN) {
                self.owe_ack();
                self.timers.set(Timer::Linger, now + crate::limits::LINGER_NS);
            }
            return Ok(Changes::empty());
        }
        if ack < self.send.una {
            return Ok(Changes::empty());
        }
        self.probe.on_ack();
        let mut selective = self.selective(header);
        if !selective.blocks.is_empty() && !pools.scan_budget.begin_scan() {
            selective.blocks.clear();
        }
        let same_window = self.send.scaled(header.window) == self.send.window_octets;
        let duplicate =
            ack == self.send.una && carries_nothing && same_window && self.send.queue.in_flight_octets() > 0;
        self.accept_window(header);
        let fin_acked = self.send.acknowledges_fin(ack);
        let data_ack = if fin_acked { self.send.queue.nxt() } else { ack };
        let flight = self.send.flight_octets();
        let outstanding = self.send.queue.outstanding_octets();
        let una = self.send.una;
        let echo = header.options.timestamps.map(|clock| clock.echo);
        let delivery = self.deliver(now, Acknowledged { ack: data_ack, echo }, &selective, pools);
        self.send.una = ack;
        if ack > una {
            self.record_progress(now, &delivery);
        }
        self.judge_tail_probe(now, ack, &selective, duplicate && !delivery.newly_sacked);
        self.count_duplicates(duplicate, ack > una, &delivery);
        self.judge_timeout(now, AckKind { advanced: ack > una, duplicate }, &delivery, pools);
        self.repair(now, ack, ack > una, outstanding, &delivery, pools);
        self.undo_if_spurious(now, header, &selective, pools);
        let ece = self.ecn.is_negotiated() && header.flags.contains(Flags::ECE);
        self.grow(now, ece, una, flight, &delivery);
        self.rearm(now, ack > una, fin_acked);
        let mut changes = Changes::empty();
        if ack > una {
            changes |= Changes::ACKNOWLEDGED;
            if fin_acked {
                changes |= self.on_fin_acknowledged(now);
            }
        }
        Ok(changes)
    }

    /// The valid blocks of a header: those inside the outstanding octets, and a first block below the
    /// acknowledgement number or inside the second block, which reports a duplicate (RFC 2883 §4).
    fn selective(&self, header: &Header) -> Selective {
        let mut selective = Selective::default();
        if !self.ack.sack {
            return selective;
        }
        let blocks = &header.options.sack;
        for (index, &(left, right)) in blocks.iter().enumerate() {
            // Our FIN has a sequence number, but is not an octet.
            let after_fin = self.send.acknowledges_fin(right);
            let right = if after_fin { self.send.queue.nxt() } else { right };
            if left >= right || right > self.send.queue.nxt() {
                continue;
            }
            let below = right <= header.ack;
            let inside_next = blocks.get(1).is_some_and(|next| next.0 <= left && right <= next.1);
            if index == 0 && (below || inside_next) {
                let recent = i64::from(self.send.una - left) <= i64::from(self.send.max_window_octets);
                selective.duplicate = recent.then_some((left, right));
            } else if left >= header.ack {
                selective.blocks.push((left, right));
            }
        }
        selective
    }

    /// Removes acknowledged segments from the queue and marks those that are selectively acknowledged.
    fn deliver<P: SendPayload, F>(
        &mut self,
        now: Instant,
        acknowledged: Acknowledged,
        selective: &Selective,
        pools: &mut Pools<P, F>,
    ) -> Delivery {
        let (queue, mut deliveries) = self.deliveries(now, acknowledged);
        let mut record = |segment: &Segment<()>, count| deliveries.record(segment, count);
        queue.acknowledge(&mut pools.segments, acknowledged.ack, &mut record);
        let sacked_before = queue.sacked_segments();
        queue.mark_sacked(&mut pools.segments, &mut pools.scan_budget, &selective.blocks, &mut record);
        let newly_sacked = queue.sacked_segments() > sacked_before;
        Delivery { newly_sacked, ..deliveries.delivery }
    }

    /// Removes acknowledged segments from the queue, in which there is no hole, and adds them to `delivery`:
    /// those that were sent once together, any others as [`deliver`](Self::deliver) does.
    #[inline]
    fn deliver_in_order<P: SendPayload, F>(
        &mut self,
        now: Instant,
        acknowledged: Acknowledged,
        delivery: &mut Delivery,
        pools: &mut Pools<P, F>,
    ) {
        let oldest_end = self.send.queue.oldest(&pools.segments).map(Segment::end);
        if oldest_end.is_none_or(|end| self.recovery.rack.is_in_order(end)) {
            let segments = self.send.queue.acknowledge_sent_once(&mut pools.segments, acknowledged.ack);
            if segments.count > 0 {
                self.recovery.rack.on_delivered_in_order(now, &segments);
                delivery.octets = segments.octets;
                delivery.largest_octets = segments.largest_octets;
                delivery.rtt_ns = Some(now - segments.sent_at);
            }
        }
        let oldest = self.send.queue.oldest(&pools.segments);
        if oldest.is_some_and(|oldest| oldest.end() <= acknowledged.ack) {
            self.deliver_others(now, acknowledged, delivery, pools);
        }
    }

    /// Removes the acknowledged segments that are left after those which were sent once and in order.
    #[cold]
    fn deliver_others<P: SendPayload, F>(
        &mut self,
        now: Instant,
        acknowledged: Acknowledged,
        delivery: &mut Delivery,
        pools: &mut Pools<P, F>,
    ) {
        let others = self.deliver(now, acknowledged, &Selective::default(), pools);
        delivery.octets += others.octets;
        delivery.largest_octets = delivery.largest_octets.max(others.largest_octets);
        delivery.rtt_ns = delivery.rtt_ns.into_iter().chain(others.rtt_ns).min();
        delivery.original |= others.original;
        delivery.beyond |= others.beyond;
    }

    /// The send queue, and what is to be recorded of the segments that an acknowledgement delivers.
    #[inline]
    fn deliveries(&mut self, now: Instant, acknowledged: Acknowledged) -> (&mut SendQueue, Deliveries<'_>) {
        let acked_octets = (acknowledged.ack - self.send.una).max(0) as u32;
        let deliveries = Deliveries {
            now,
            acknowledged,
            least_ns: self.rtt.least_ns().unwrap_or(0),
            until: self.recovery.until,
            probe_end: self.recovery.tail_probe.map(|probe| probe.end),
            clocks: &self.timestamps,
            rack: &mut self.recovery.rack,
            counters: &mut self.counters,
            delivery: Delivery { acked_octets, ..Delivery::default() },
        };
        (&mut self.send.queue, deliveries)
    }

    #[inline]
    pub(super) fn record_progress(&mut self, now: Instant, delivery: &Delivery) {
        self.activity.last_progress = now;
        self.path.on_delivered(delivery.largest_octets);
        match delivery.rtt_ns {
            Some(rtt_ns) => self.rtt.sample(now, rtt_ns),
            None => self.rtt.progress(),
        }
    }

    /// RFC 8985 §7.4: whether the tail was lost. If the probe repaired the loss, no other algorithm sees it,
    /// so the window is reduced here.
    fn judge_tail_probe(
        &mut self,
        now: Instant,
        ack: SeqNumber,
        selective: &Selective,
        bare_duplicate: bool,
    ) {
        let Some(probe) = self.recovery.tail_probe else { return };
        if ack < probe.end {
            return;
        }
        let came_twice = selective.duplicate.is_some_and(|block| block.1 == probe.end);
        if !probe.retransmission || came_twice {
            self.recovery.tail_probe = None;
        } else if ack > probe.end {
            self.recovery.tail_probe = None;
            self.congestion.on_congestion(now, self.send.flight_octets(), Signal::Loss);
            self.congestion.on_recovered(now);
        } else if bare_duplicate {
            self.recovery.tail_probe = None;
        }
    }

    /// Duplicate acknowledgements stand in for selective ones (RFC 5681 §3.2, RFC 6582).
    fn count_duplicates(&mut self, duplicate: bool, advanced: bool, delivery: &Delivery) {
        if self.ack.sack {
            return;
        }
        let duplicates = &mut self.recovery.duplicate_acks;
        if duplicate {
            *duplicates = duplicates.saturating_add(1);
        } else if advanced {
            // The segment that filled the hole had no duplicate acknowledgement.
            let segments = delivery.acked_octets / self.path.emss_octets().max(1);
            *duplicates = match self.recovery.phase {
                Phase::Fast(_) => duplicates.saturating_sub(segments.saturating_sub(1)),
                Phase::Open | Phase::Timeout { .. } => 0,
            };
        }
    }

    /// Ends a recovery that is complete, finds further losses, and sets the window while they are repaired.
    pub(super) fn repair<P: SendPayload, F>(
        &mut self,
        now: Instant,
        ack: SeqNumber,
        advanced: bool,
        outstanding: u32,
        delivery: &Delivery,
        pools: &mut Pools<P, F>,
    ) {
        let complete = self.send.una >= self.recovery.until;
        match self.recovery.phase {
            Phase::Fast(_) if complete => {
                self.congestion.on_recovered(now);
                self.recovery.rack.on_recovered();
                self.recovery.phase = Phase::Open;
                self.recovery.duplicate_acks = 0;
            }
            Phase::Timeout { .. } if complete => self.recovery.phase = Phase::Open,
            Phase::Open | Phase::Fast(_) | Phase::Timeout { .. } => {}
        }
        let found = if self.ack.sack {
            self.detect_losses(now, pools)
        } else {
            self.detect_losses_by_duplicates(now, ack, advanced, outstanding, pools)
        };
        let (emss, pipe) = (self.path.emss_octets(), self.pipe_octets());
        if let Phase::Fast(prr) = &mut self.recovery.phase {
            let delivered = if self.ack.sack || advanced { delivery.octets } else { emss };
            let threshold = self.congestion.threshold_octets();
            let window = prr.window_octets(delivered, pipe, threshold, emss, advanced && !found);
            self.congestion.set_window(window);
        }
    }

    /// RFC 6582 §3.2: the third duplicate, and in recovery each partial acknowledgement, stands for one lost
    /// segment.
    fn detect_losses_by_duplicates<P: SendPayload, F>(
        &mut self,
        now: Instant,
        ack: SeqNumber,
        advanced: bool,
        outstanding: u32,
        pools: &mut Pools<P, F>,
    ) -> bool {
        let partial = advanced && matches!(self.recovery.phase, Phase::Fast(_));
        let third = !advanced
            && self.recovery.is_open()
            && self.recovery.duplicate_acks == DUPLICATE_THRESHOLD
            // §3.2 step 1: not for segments that an earlier recovery retransmitted.
            && ack >= self.recovery.until;
        if !partial && !third {
            return false;
        }
        // A hole inside a segment comes from a middlebox: the rest of the segment is in flight.
        let una = self.send.una;
        let found = self.send.queue.mark_lost(&mut pools.segments, &mut pools.scan_budget, |segment| {
            if segment.seq == una { Verdict::Lost } else { Verdict::Stop }
        });
        if third {
            self.begin_fast_recovery(now, outstanding);
        }
        found
    }

    fn undo_if_spurious<P: SendPayload, F>(
        &mut self,
        now: Instant,
        header: &Header,
        selective: &Selective,
        pools: &mut Pools<P, F>,
    ) {
        let mut spurious = false;
        if let Some(block) = selective.duplicate {
            self.counters.duplicate_deliveries += 1;
            // More duplicates than retransmissions come from the network (RFC 8985 §6.2 step 4).
            if u64::from(self.counters.duplicate_deliveries) <= self.counters.retransmitted_segments {
                self.recovery.rack.on_duplicate_delivery(self.send.una, self.send.queue.nxt());
            }
            spurious |= self.recovery.on_duplicate_delivery(block);
        }
        if let Some(clock) = header.options.timestamps.filter(|_| self.timestamps.negotiated) {
            spurious |= self.recovery.answers_first_sending(header.ack, clock.echo);
        }
        if spurious {
            self.undo_reduction(now, pools);
        } else if self.recovery.is_open() && self.send.una > self.recovery.until {
            let settled = (self.send.una - self.recovery.until) as u32 > self.congestion.window_octets();
            if settled {
                self.recovery.forget_undo();
            }
        }
    }

    /// Reports delivered octets and ECN marks to congestion control (RFC 3168 §6.1.2).
    pub(super) fn grow(&mut self, now: Instant, ece: bool, una: SeqNumber, flight: u32, delivery: &Delivery) {
        let in_recovery = matches!(self.recovery.phase, Phase::Fast(_));
        if delivery.acked_octets > 0 {
            let slow_start = self.congestion.window_octets() < self.congestion.threshold_octets();
            let used_half = flight >= self.congestion.window_octets() / 2;
            let sample = AckSample {
                now,
                octets: delivery.acked_octets,
                flight_octets: flight,
                limited: una < self.send.cwnd_limited_until || (slow_start && used_half),
                rtt_ns: delivery.rtt_ns,
                smoothed_rtt_ns: self.rtt.smoothed_ns(),
                ack: self.send.una,
                highest_sent: self.send.queue.nxt(),
                ece,
            };
            self.congestion.on_ack(&sample, in_recovery);
        }
        // RFC 3168 §6.1.2: segments sent after the reduction carry CWR. Until one is acknowledged, echoes are
        // of old marks.
        if ece && self.recovery.is_open() && self.send.una > self.recovery.ecn_until {
            self.congestion.on_congestion(now, flight, Signal::Ecn);
            self.recovery.ecn_until = self.send.queue.nxt();
            self.ecn.reduced = true;
            self.counters.ecn_reductions += 1;
        }
    }

    /// RFC 6298 §5.2, §5.3; RFC 8985 §7.2.
    #[inline]
    pub(super) fn rearm(&mut self, now: Instant, advanced: bool, fin_acked: bool) {
        if !self.send.queue.is_outstanding() && (!self.send.fin.is_sent() || fin_acked) {
            self.timers.clear(Timer::Retransmit);
            self.timers.clear(Timer::Probe);
        } else if advanced {
            self.arm_retransmit(now);
            self.arm_probe(now);
        }
    }

    fn on_fin_acknowledged(&mut self, now: Instant) -> Changes {
        match self.state {
            State::FinWait1 => {
                // The peer may send for as long as it likes; the layer above limits the wait.
                // Requirements: DDP-6.2.1-06
                self.state = State::FinWait2;
            }
            State::Closing => self.enter_time_wait(now),
            State::LastAck => {
                self.enter_closed(super::CloseReason::Finished);
                return Changes::CLOSED;
            }
            _ => {}
        }
        Changes::empty()
    }

    /// Accepts the window of a segment that is not older than the last that changed it. That of a SYN is
    /// never scaled (RFC 7323 §2.2).
    pub(super) fn accept_window(&mut self, header: &Header) {
        let field = header.window;
        let syn = header.flags.contains(Flags::SYN);
        let octets = if syn { u32::from(field) } else { self.send.scaled(field) };
        self.record_window(header.seq, header.ack, octets);
    }

    /// Accepts a window of `octets` octets from a segment with these numbers.
    #[inline]
    pub(super) fn record_window(&mut self, seq: SeqNumber, ack: SeqNumber, octets: u32) {
        if self.send.update_window(seq, ack, octets) {
            self.timers.clear(Timer::Persist);
            self.probe.on_window_grown();
        }
    }
}

#[cfg(test)]
mod tests;
