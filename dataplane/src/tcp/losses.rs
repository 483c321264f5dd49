//! What a connection does about lost segments: fast recovery (RFC 6675, with RACK for detection and PRR for
//! the rate), retransmission timeouts with F-RTO (RFC 5682), and undoing spurious reductions (Eifel, RFC 3522
//! and 4015; D-SACK, RFC 3708).

use crate::limits;
use crate::time::Instant;

use super::congestion::{CongestionControl, Signal};
use super::prr::Prr;
use super::rack::ReorderTolerance;
use super::recovery::{DUPLICATE_THRESHOLD, Frto, Phase};
use super::send_queue::{SegmentState, SendPayload, Verdict};
use super::timers::Timer;
use super::{Connection, Pools};

impl Connection {
    pub(super) fn tolerance(&self) -> ReorderTolerance {
        ReorderTolerance {
            certain: !self.recovery.is_open() || self.send.queue.sacked_segments() >= DUPLICATE_THRESHOLD,
            min_rtt_ns: self.rtt.least_ns().unwrap_or(0),
            smoothed_rtt_ns: self.rtt.smoothed_ns().unwrap_or(0),
        }
    }

    /// Detects losses by RACK, and begins fast recovery if there are any. Returns true if it found one.
    pub(super) fn detect_losses<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> bool {
        self.timers.clear(Timer::Reorder);
        if !self.ack.sack || !self.recovery.rack.has_sample() {
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
            self.begin_fast_recovery(now, before);
        }
        found
    }

    /// Loss recovery without a timeout begins, with `outstanding_octets` not selectively acknowledged.
    pub(super) fn begin_fast_recovery(&mut self, now: Instant, outstanding_octets: u32) {
        // One reduction a round trip, for losses and marks together (RFC 3168 §6.1.2).
        if self.send.una >= self.recovery.ecn_until {
            let signal = Signal::Loss;
            self.congestion.on_congestion(now, self.send.flight_octets(), signal);
        }
        self.recovery.phase = Phase::Fast(Prr::new(outstanding_octets));
        self.recovery.tail_probe = None;
        self.timers.clear(Timer::Probe);
        self.recovery.on_reduction(self.send.una, self.send.queue.nxt());
        self.ecn.reduced = self.ecn.is_negotiated();
        self.counters.fast_retransmits += 1;
    }

    /// Begins recovery after a retransmission timeout (RFC 8985 §6.3, RFC 5682 §3).
    pub(super) fn begin_timeout_recovery<P: SendPayload, F>(
        &mut self,
        now: Instant,
        first: bool,
        pools: &mut Pools<P, F>,
    ) {
        let reneged = self
            .send
            .queue
            .oldest(&pools.segments)
            .is_some_and(|oldest| oldest.state == SegmentState::Sacked && oldest.seq >= self.send.una);
        if reneged {
            // A peer that holds the oldest octets acknowledges them: it has dropped them (RFC 2018 §8).
            self.counters.reneged += 1;
            self.send.queue.forget_sacked(&mut pools.segments);
        }
        // RFC 5682 §2.1 step 1: not in a recovery, whose retransmissions are acknowledged too.
        let frto = Frto::new(first && self.recovery.is_open() && !reneged);
        self.congestion.on_timeout(now, self.send.flight_octets(), first);
        let tolerance = self.tolerance();
        let (rack, una, sack) = (self.recovery.rack, self.send.una, self.ack.sack);
        self.send.queue.mark_lost(&mut pools.segments, &mut pools.scan_budget, |segment| {
            let oldest = segment.seq <= una;
            if oldest || !sack || rack.overdue(now, tolerance, segment) {
                Verdict::Lost
            } else {
                Verdict::Keep
            }
        });
        self.ecn.reduced = self.ecn.is_negotiated();
        self.recovery.phase = Phase::Timeout { frto };
        self.recovery.duplicate_acks = 0;
        self.recovery.tail_probe = None;
        self.timers.clear(Timer::Probe);
        self.timers.clear(Timer::Reorder);
        if first {
            self.recovery.on_reduction(self.send.una, self.send.queue.nxt());
        } else {
            self.recovery.until = self.send.queue.nxt();
        }
    }

    /// Undoes the last reduction: it was spurious.
    pub(super) fn undo_reduction<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        self.send.queue.unmark_lost(&mut pools.segments);
        self.congestion.undo(now);
        self.recovery.phase = Phase::Open;
        self.recovery.duplicate_acks = 0;
        self.recovery.forget_undo();
        self.counters.undone_reductions += 1;
    }
}
