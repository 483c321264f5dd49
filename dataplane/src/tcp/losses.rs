//! What a connection does about lost segments: fast recovery (RFC 6675, with RACK for detection and PRR for
//! the rate), retransmission timeouts with F-RTO (RFC 5682), and undoing spurious reductions (Eifel, RFC 3522
//! and 4015; D-SACK, RFC 3708).

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::congestion::{Congestion, CongestionControl, Signal};
use super::counters::Counters;
use super::ecn::Ecn;
use super::prr::Prr;
use super::rack::ReorderTolerance;
use super::recovery::{DUPLICATE_THRESHOLD, Frto, Phase, Recovery};
use super::rtt::RttEstimator;
use super::send_queue::{SegmentState, SendPayload, Verdict};
use super::send_state::SendState;
use super::timers::{Timer, Timers};
use super::{Connection, Pools};

/// What a connection repairs losses with.
pub(super) struct LossRepair<'c> {
    pub(super) send: &'c mut SendState,
    pub(super) recovery: &'c mut Recovery,
    pub(super) congestion: &'c mut Congestion,
    timers: &'c mut Timers,
    ecn: &'c mut Ecn,
    counters: &'c mut Counters,
    rtt: &'c RttEstimator,
    pub(super) emss_octets: u32,
    /// Whether the peer understands selective acknowledgements.
    pub(super) sack: bool,
}

impl<'c> LossRepair<'c> {
    /// Returns what `tcp` repairs losses with.
    #[inline]
    pub(super) fn of(tcp: &'c mut Connection) -> Self {
        Self {
            send: &mut tcp.send,
            recovery: &mut tcp.recovery,
            congestion: &mut tcp.congestion,
            timers: &mut tcp.timers,
            ecn: &mut tcp.ecn,
            counters: &mut tcp.counters,
            rtt: &tcp.rtt,
            emss_octets: tcp.path.emss_octets(),
            sack: tcp.ack.sack,
        }
    }

    fn tolerance(&self) -> ReorderTolerance {
        ReorderTolerance {
            certain: !self.recovery.is_open() || self.send.queue.sacked_segments() >= DUPLICATE_THRESHOLD,
            min_rtt_ns: self.rtt.least_ns().unwrap_or(0),
            smoothed_rtt_ns: self.rtt.smoothed_ns().unwrap_or(0),
        }
    }

    /// Detects losses by RACK, and begins fast recovery if there are any. Returns true if it found one.
    pub(super) fn detect<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> bool {
        self.timers.clear(Timer::Reorder);
        if !self.sack || !self.recovery.rack.has_sample() {
            return false;
        }
        if !pools.scan_budget.begin_scan() {
            self.timers.set(Timer::Reorder, now + limits::SEARCH_RETRY_NS);
            return false;
        }
        let before = self.send.queue.outstanding_octets();
        let mut wait_ns = 0;
        let tolerance = self.tolerance();
        let judge = self.recovery.rack.judge(now, tolerance, &mut wait_ns);
        let found = self.send.queue.mark_lost(&mut pools.segments, &mut pools.scan_budget, judge);
        if wait_ns > 0 {
            self.timers.set(Timer::Reorder, now + wait_ns);
        }
        if found && self.recovery.is_open() {
            self.begin_fast(now, before);
        }
        found
    }

    /// RFC 6582 §3.2: the third duplicate, and in recovery each partial acknowledgement, stands for one lost
    /// segment. `outstanding_octets` were not selectively acknowledged before the acknowledgement of `ack`.
    pub(super) fn detect_by_duplicates<P: SendPayload, F>(
        &mut self,
        now: Instant,
        ack: SeqNumber,
        advanced: bool,
        outstanding_octets: u32,
        pools: &mut Pools<P, F>,
    ) -> bool {
        let partial = advanced && matches!(self.recovery.phase, Phase::Fast(_));
        let third = !advanced
            && self.recovery.is_open()
            && self.recovery.duplicate_acks == DUPLICATE_THRESHOLD
            // §3.2 step 1: not for segments that an earlier recovery retransmitted.
            && ack > self.recovery.until;
        if !partial && !third {
            return false;
        }
        // A hole inside a segment comes from a middlebox: the rest of the segment is in flight.
        let una = self.send.una;
        let found = self.send.queue.mark_lost(&mut pools.segments, &mut pools.scan_budget, |segment| {
            if segment.seq == una { Verdict::Lost } else { Verdict::Stop }
        });
        if third {
            self.begin_fast(now, outstanding_octets);
        }
        found
    }

    /// Handles that segments which others have overtaken count as lost now.
    pub(super) fn on_reorder_timeout<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        let found = self.detect(now, pools);
        self.limit_window(0, !found);
    }

    /// Sets the window for the time in which losses are repaired without a timeout: `delivered_octets` have
    /// arrived since it was set last, and `is_progress` if that has shown no further loss (RFC 9937).
    pub(super) fn limit_window(&mut self, delivered_octets: u32, is_progress: bool) {
        let pipe = self.recovery.pipe_octets(&self.send.queue, self.emss_octets);
        if let Phase::Fast(prr) = &mut self.recovery.phase {
            let threshold = self.congestion.threshold_octets();
            let window = prr.window_octets(delivered_octets, pipe, threshold, self.emss_octets, is_progress);
            self.congestion.set_window(window);
        }
    }

    /// Ends a recovery that is complete: what it has repaired is acknowledged.
    pub(super) fn end_if_complete(&mut self, now: Instant) {
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
    }

    /// Loss recovery without a timeout begins, with `outstanding_octets` not selectively acknowledged.
    fn begin_fast(&mut self, now: Instant, outstanding_octets: u32) {
        // One reduction a round trip, for losses and marks together (RFC 3168 §6.1.2).
        if self.send.una >= self.recovery.ecn_until {
            let signal = Signal::Loss;
            self.congestion.on_congestion(now, self.send.flight_octets(), signal);
            self.recovery.answer_marks(self.send.una, self.send.queue.nxt());
        } else {
            self.congestion.on_recovery();
        }
        self.recovery.phase = Phase::Fast(Prr::new(outstanding_octets));
        self.recovery.tail_probe = None;
        self.timers.clear(Timer::Probe);
        self.recovery.on_reduction(self.send.una, self.send.queue.nxt());
        self.ecn.on_reduction();
        self.counters.fast_retransmits += 1;
    }

    /// Begins recovery after a retransmission timeout (RFC 8985 §6.3, RFC 5682 §3).
    pub(super) fn begin_after_timeout<P: SendPayload, F>(
        &mut self,
        now: Instant,
        first: bool,
        pools: &mut Pools<P, F>,
    ) {
        let oldest = self.send.queue.oldest(&pools.segments);
        let reneged = oldest.is_some_and(|oldest| oldest.state == SegmentState::Sacked);
        if reneged {
            // A peer that holds the oldest octets acknowledges them: it has dropped them, or those of them
            // that it has not acknowledged (RFC 2018 §8).
            self.counters.reneged += 1;
            self.send.queue.forget_sacked(&mut pools.segments);
        }
        // RFC 5682 §2.1 step 1: not in a recovery, whose retransmissions are acknowledged too.
        let frto = Frto::new(first && self.recovery.is_open() && !reneged);
        self.congestion.on_timeout(now, self.send.flight_octets(), first);
        let tolerance = self.tolerance();
        let (rack, una, sack) = (self.recovery.rack, self.send.una, self.sack);
        self.send.queue.mark_lost(&mut pools.segments, &mut pools.scan_budget, |segment| {
            let oldest = segment.seq <= una;
            if oldest || !sack || rack.overdue(now, tolerance, segment) {
                Verdict::Lost
            } else {
                Verdict::Keep
            }
        });
        self.ecn.on_reduction();
        self.recovery.phase = Phase::Timeout { frto };
        self.recovery.duplicate_acks = 0;
        self.recovery.tail_probe = None;
        self.timers.clear(Timer::Probe);
        self.timers.clear(Timer::Reorder);
        if first {
            self.recovery.on_reduction(self.send.una, self.send.queue.nxt());
            self.recovery.answer_marks(self.send.una, self.send.queue.nxt());
        } else {
            self.recovery.until = self.send.queue.nxt();
        }
    }

    /// Takes back what was done about losses: there were none. A reduction for a mark stays.
    pub(super) fn undo_reduction<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        self.send.queue.unmark_lost(&mut pools.segments);
        if self.congestion.undo(now) {
            self.counters.undone_reductions += 1;
            self.recovery.forget_answer(self.send.una);
        }
        self.recovery.phase = Phase::Open;
        self.recovery.duplicate_acks = 0;
        self.recovery.forget_undo();
    }
}
