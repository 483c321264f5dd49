//! An acknowledgement arrives: the octets it delivers, losses and congestion (RFC 9293 §3.10.7.4, fifth, with
//! RFC 5681, 6675, 8985, 9937 and 3168).

use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

use super::congestion::{AckSample, CongestionControl, Signal};
use super::counters::Counters;
use super::losses::LossRepair;
use super::passed_marks;
use super::rack::Rack;
use super::recovery::Phase;
use super::sack_blocks::Block;
use super::send_queue::{Segment, SegmentState, SendPayload};
use super::send_state::SendState;
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

impl Selective {
    /// The valid blocks of a header: those inside the outstanding octets, and a first block below the
    /// acknowledgement number or inside the second block, which reports a duplicate (RFC 2883 §4).
    fn of(header: &Header, send: &SendState) -> Self {
        let mut selective = Self::default();
        let blocks = &header.options.sack;
        for (index, &(left, right)) in blocks.iter().enumerate() {
            // Our FIN has a sequence number, but is not an octet.
            let after_fin = send.acknowledges_fin(right);
            let right = if after_fin { send.queue.nxt() } else { right };
            if left >= right || right > send.queue.nxt() {
                continue;
            }
            let below = right <= header.ack;
            let inside_next = blocks.get(1).is_some_and(|next| next.0 <= left && right <= next.1);
            if index == 0 && (below || inside_next) {
                let recent = i64::from(send.una - left) <= i64::from(send.max_window_octets);
                selective.duplicate = recent.then_some((left, right));
            } else if left >= header.ack {
                selective.blocks.push((left, right));
            }
        }
        selective
    }
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

/// An acknowledgement while a connection accepts it.
pub(super) struct Acknowledgement<'c, P, F> {
    tcp: &'c mut Connection,
    pools: &'c mut Pools<P, F>,
    now: Instant,
    /// SND.UNA before it.
    una: SeqNumber,
    /// The octets that were outstanding before it, and those of them not selectively acknowledged.
    flight_octets: u32,
    outstanding_octets: u32,
    delivery: Delivery,
}

impl<'c, P: SendPayload, F> Acknowledgement<'c, P, F> {
    #[inline]
    fn new(tcp: &'c mut Connection, now: Instant, pools: &'c mut Pools<P, F>) -> Self {
        let send = &tcp.send;
        let (una, flight_octets) = (send.una, send.flight_octets());
        let outstanding_octets = send.queue.outstanding_octets();
        Self { una, flight_octets, outstanding_octets, tcp, pools, now, delivery: Delivery::default() }
    }

    /// Has a connection without [rare conditions](Unusual::RECEIVE) accept an acknowledgement that
    /// [advances](SendState::advances) SND.UNA. The search for losses is left out if the oldest segment in
    /// flight rules any loss out.
    #[inline(never)]
    pub(super) fn advance(
        tcp: &'c mut Connection,
        now: Instant,
        acknowledged: Acknowledged,
        pools: &'c mut Pools<P, F>,
    ) {
        let mut accepted = Self::new(tcp, now, pools);
        accepted.delivery.acked_octets = (acknowledged.ack - accepted.una).max(0) as u32;
        accepted.deliver_in_order(acknowledged);
        accepted.tcp.send.una = acknowledged.ack;
        accepted.record_progress(acknowledged.echo);
        accepted.tcp.recovery.duplicate_acks = 0;
        if accepted.tcp.may_have_lost(&accepted.pools.segments) {
            accepted.repair(acknowledged.ack, true);
            accepted.tcp.unusual |= Unusual::of(accepted.tcp);
        }
        accepted.grow(false);
        accepted.rearm(true, false);
        passed_marks::renew(accepted.tcp, accepted.una);
    }

    /// Has a connection accept the acknowledgement of a segment that is otherwise acceptable.
    pub(super) fn accept(
        tcp: &'c mut Connection,
        now: Instant,
        header: &Header,
        carries_nothing: bool,
        pools: &'c mut Pools<P, F>,
    ) -> Result<Changes, Refusal> {
        let ack = header.ack;
        if !tcp.send.is_acceptable_ack(ack) {
            tcp.owe_ack();
            return Err(Refusal::BadAck);
        }
        if tcp.state == State::TimeWait {
            return Ok(Changes::empty());
        }
        if ack < tcp.send.una {
            return Ok(Changes::empty());
        }
        tcp.probe.on_ack();
        Ok(Self::new(tcp, now, pools).accept_new(header, carries_nothing))
    }

    /// Accepts an acknowledgement that is not older than others.
    fn accept_new(mut self, header: &Header, carries_nothing: bool) -> Changes {
        let (ack, send) = (header.ack, &self.tcp.send);
        let mut selective =
            if self.tcp.ack.sack { Selective::of(header, send) } else { Selective::default() };
        if !selective.blocks.is_empty() && !self.pools.scan_budget.begin_scan() {
            selective.blocks.clear();
        }
        let same_window = send.scaled(header.window) == send.window_octets;
        let repeats = ack == self.una && carries_nothing && same_window;
        let duplicate = repeats && send.queue.in_flight_octets() > 0;
        let kind = AckKind { advanced: ack > self.una, duplicate };
        // The window was probed because it was closed over what is in flight.
        let was_overrun = self.tcp.probe.persist_backoff > 0 && send.next() > send.window_end();
        let window_grew = self.tcp.accept_window(header);
        let fin_acked = self.tcp.send.acknowledges_fin(ack);
        let data_ack = if fin_acked { self.tcp.send.queue.nxt() } else { ack };
        let echo = header.options.timestamps.map(|clock| clock.echo);
        self.delivery = self.deliver(Acknowledged { ack: data_ack, echo }, &selective);
        self.tcp.send.una = ack;
        if kind.advanced {
            self.record_progress(echo);
        }
        self.judge_tail_probe(ack, &selective, repeats && !self.delivery.newly_sacked);
        self.count_duplicates(kind);
        LossRepair::of(self.tcp).judge_timeout(self.now, kind, &self.delivery, self.pools);
        // With the FIN all is acknowledged: nothing was refused.
        if was_overrun && window_grew && !fin_acked {
            self.tcp.resend_refused(self.now, self.pools);
        }
        self.repair(ack, kind.advanced);
        self.undo_if_spurious(header, &selective);
        self.grow(self.tcp.ecn.sends_capable() && header.flags.contains(Flags::ECE));
        self.rearm(kind.advanced, fin_acked);
        passed_marks::renew(self.tcp, self.una);
        let mut changes = Changes::empty();
        if kind.advanced {
            changes |= Changes::ACKNOWLEDGED;
            if fin_acked {
                changes |= self.tcp.on_fin_acknowledged(self.now);
            }
        }
        changes
    }

    /// Removes acknowledged segments from the queue and marks those that are selectively acknowledged.
    fn deliver(&mut self, acknowledged: Acknowledged, selective: &Selective) -> Delivery {
        let Connection { send, recovery, rtt, timestamps, counters, .. } = &mut *self.tcp;
        let acked_octets = (acknowledged.ack - self.una).max(0) as u32;
        let mut deliveries = Deliveries {
            now: self.now,
            acknowledged,
            least_ns: rtt.least_ns().unwrap_or(0),
            until: recovery.until,
            probe_end: recovery.tail_probe.map(|probe| probe.end),
            clocks: timestamps,
            rack: &mut recovery.rack,
            counters,
            delivery: Delivery { acked_octets, ..Delivery::default() },
        };
        let (queue, pools) = (&mut send.queue, &mut *self.pools);
        let mut record = |segment: &Segment<()>, count| deliveries.record(segment, count);
        queue.acknowledge(&mut pools.segments, acknowledged.ack, &mut record);
        let sacked_before = queue.sacked_segments();
        queue.mark_sacked(&mut pools.segments, &mut pools.scan_budget, &selective.blocks, &mut record);
        let newly_sacked = queue.sacked_segments() > sacked_before;
        Delivery { newly_sacked, ..deliveries.delivery }
    }

    /// Removes acknowledged segments from the queue, in which there is no hole: those that were sent once
    /// together, any others as [`deliver`](Self::deliver) does.
    #[inline]
    fn deliver_in_order(&mut self, acknowledged: Acknowledged) {
        let (queue, rack) = (&mut self.tcp.send.queue, &mut self.tcp.recovery.rack);
        let segments = &mut self.pools.segments;
        let oldest_end = queue.oldest(segments).map(Segment::end);
        if oldest_end.is_none_or(|end| rack.is_in_order(end)) {
            let sent_once = queue.acknowledge_sent_once(segments, acknowledged.ack);
            if sent_once.count > 0 {
                rack.on_delivered_in_order(self.now, &sent_once);
                self.delivery.octets = sent_once.octets;
                self.delivery.largest_octets = sent_once.largest_octets;
                self.delivery.rtt_ns = Some(self.now - sent_once.sent_at);
            }
        }
        if queue.oldest(segments).is_some_and(|oldest| oldest.end() <= acknowledged.ack) {
            self.deliver_others(acknowledged);
        }
    }

    /// Removes the acknowledged segments that are left after those which were sent once and in order.
    #[cold]
    fn deliver_others(&mut self, acknowledged: Acknowledged) {
        let others = self.deliver(acknowledged, &Selective::default());
        let delivery = &mut self.delivery;
        delivery.octets += others.octets;
        delivery.largest_octets = delivery.largest_octets.max(others.largest_octets);
        delivery.rtt_ns = delivery.rtt_ns.into_iter().chain(others.rtt_ns).min();
        delivery.original |= others.original;
        delivery.beyond |= others.beyond;
    }

    #[inline]
    fn record_progress(&mut self, echo: Option<u32>) {
        self.tcp.activity.last_progress = self.now;
        self.tcp.path.on_delivered(self.delivery.largest_octets);
        match self.delivery.rtt_ns {
            Some(rtt_ns) => self.tcp.rtt.sample(self.now, rtt_ns),
            None => self.sample_echo(echo),
        }
    }

    /// Takes the round-trip time from the timestamp echo of an acknowledgement that advances SND.UNA, where
    /// every segment that it covers was sent more than once (RFC 7323 §4.1). Without that, a path that has
    /// become longer than the timeout would have each segment sent twice, and never give a sample.
    #[cold]
    fn sample_echo(&mut self, echo: Option<u32>) {
        let Connection { rtt, timestamps, .. } = &mut *self.tcp;
        rtt.progress();
        if let Some(bounds_ns) = echo.and_then(|echo| timestamps.age_ns(self.now, echo)) {
            rtt.sample_within(self.now, bounds_ns);
        }
    }

    /// RFC 8985 §7.4: whether the tail was lost. If the probe repaired the loss, no other algorithm sees it,
    /// so the window is reduced here. A bare duplicate is the answer to a probe that came twice, from a peer
    /// that does not say so, also where nothing is in flight any more.
    fn judge_tail_probe(&mut self, ack: SeqNumber, selective: &Selective, bare_duplicate: bool) {
        let Connection { recovery, congestion, .. } = &mut *self.tcp;
        let Some(probe) = recovery.tail_probe else { return };
        if ack < probe.end {
            return;
        }
        let came_twice = selective.duplicate.is_some_and(|block| block.1 == probe.end);
        if !probe.retransmission || came_twice {
            recovery.tail_probe = None;
        } else if ack > probe.end {
            recovery.tail_probe = None;
            congestion.on_congestion(self.now, self.flight_octets, Signal::Loss);
            congestion.on_recovered(self.now);
        } else if bare_duplicate {
            recovery.tail_probe = None;
        }
    }

    /// Duplicate acknowledgements stand in for selective ones (RFC 5681 §3.2, RFC 6582).
    fn count_duplicates(&mut self, kind: AckKind) {
        if self.tcp.ack.sack {
            return;
        }
        let duplicates = &mut self.tcp.recovery.duplicate_acks;
        if kind.duplicate {
            *duplicates = duplicates.saturating_add(1);
        } else if kind.advanced {
            // The segment that filled the hole had no duplicate acknowledgement.
            let segments = self.delivery.acked_octets / self.tcp.path.emss_octets().max(1);
            *duplicates = match self.tcp.recovery.phase {
                Phase::Fast(_) => duplicates.saturating_sub(segments.saturating_sub(1)),
                Phase::Open | Phase::Timeout { .. } => 0,
            };
        }
    }

    /// Ends a recovery that is complete, finds further losses, and sets the window while they are repaired.
    fn repair(&mut self, ack: SeqNumber, advanced: bool) {
        let (now, outstanding) = (self.now, self.outstanding_octets);
        let mut losses = LossRepair::of(self.tcp);
        losses.end_if_complete(now);
        let found = if losses.sack {
            losses.detect(now, self.pools)
        } else {
            losses.detect_by_duplicates(now, ack, advanced, outstanding, self.pools)
        };
        let delivered = if losses.sack || advanced { self.delivery.octets } else { losses.emss_octets };
        losses.limit_window(delivered, advanced && !found);
    }

    fn undo_if_spurious(&mut self, header: &Header, selective: &Selective) {
        let Connection { recovery, send, counters, timestamps, congestion, .. } = &mut *self.tcp;
        let mut spurious = false;
        if let Some(block) = selective.duplicate {
            counters.duplicate_deliveries += 1;
            // More duplicates than retransmissions come from the network (RFC 8985 §6.2 step 4).
            if u64::from(counters.duplicate_deliveries) <= counters.retransmitted_segments {
                recovery.rack.on_duplicate_delivery(send.una, send.queue.nxt());
            }
            spurious |= recovery.on_duplicate_delivery(block);
        }
        if let Some(clock) = header.options.timestamps.filter(|_| timestamps.negotiated) {
            spurious |= recovery.answers_first_sending(header.ack, clock.echo);
        }
        if spurious {
            LossRepair::of(self.tcp).undo_reduction(self.now, self.pools);
        } else if recovery.is_open() && send.una > recovery.until {
            let settled = (send.una - recovery.until) as u32 > congestion.window_octets();
            if settled {
                recovery.forget_undo();
            }
        }
    }

    /// Reports delivered octets and ECN marks to congestion control (RFC 3168 §6.1.2).
    fn grow(&mut self, ece: bool) {
        let Connection { recovery, send, congestion, rtt, ecn, counters, .. } = &mut *self.tcp;
        let in_recovery = matches!(recovery.phase, Phase::Fast(_));
        if self.delivery.acked_octets > 0 {
            let slow_start = congestion.window_octets() < congestion.threshold_octets();
            let used_half = self.flight_octets >= congestion.window_octets() / 2;
            let sample = AckSample {
                now: self.now,
                octets: self.delivery.acked_octets,
                flight_octets: self.flight_octets,
                limited: self.una < send.cwnd_limited_until || (slow_start && used_half),
                rtt_ns: self.delivery.rtt_ns,
                smoothed_rtt_ns: rtt.smoothed_ns(),
                ack: send.una,
                highest_sent: send.queue.nxt(),
                ece,
            };
            congestion.on_ack(&sample, in_recovery);
        }
        // RFC 3168 §6.1.2: segments sent after the reduction carry CWR. Until one is acknowledged, echoes are
        // of old marks.
        if !ece {
            return;
        }
        if !recovery.is_open() {
            // The reduction for a loss answers the mark too, even if nothing was lost.
            congestion.keep_reduction();
        } else if send.una > recovery.ecn_until {
            congestion.on_congestion(self.now, self.flight_octets, Signal::Ecn);
            recovery.forget_undo();
            recovery.ecn_until = send.queue.nxt();
            ecn.on_reduction();
            counters.ecn_reductions += 1;
        }
    }

    /// RFC 6298 §5.2, §5.3; RFC 8985 §7.2.
    #[inline]
    fn rearm(&mut self, advanced: bool, fin_acked: bool) {
        let Connection { send, timers, unusual, .. } = &mut *self.tcp;
        if !send.queue.is_outstanding() && (!send.fin.is_sent() || fin_acked) {
            timers.clear(Timer::Probe);
            // What waits for a path is timed, whatever comes by another one.
            if !unusual.contains(Unusual::AWAITS_PATH) {
                timers.clear(Timer::Retransmit);
            }
        } else if advanced {
            self.tcp.arm_retransmit(self.now);
            self.tcp.arm_probe(self.now);
        }
    }
}

#[cfg(test)]
mod tests;
