//! What loss recovery remembers of a connection, and how a recovery begins and ends: fast recovery (RFC 6675, with RACK to
//! tell losses and PRR to pace them), retransmission timeouts with F-RTO (RFC 5682), and taking back what was for
//! nothing (Eifel, RFC 3522 and 4015; D-SACK, RFC 3708).

use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::congestion::{CongestionControl, Signal};
use super::prr::Prr;
use super::rack::{Patience, Rack};
use super::send_queue::{SendQueue, Verdict};
use super::timers::Timer;
use super::{Connection, Pools};

/// Segments selectively acknowledged beyond a hole, or duplicate acknowledgements, that make a loss certain.
pub(super) const DUPLICATE_THRESHOLD: u32 = 3;

/// What the sender is doing about losses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// Nothing: none is known.
    Open,
    /// Repairing them without a timeout.
    Fast(Prr),
    /// Repairing them after a timeout.
    Timeout {
        /// Whether the timeout was for nothing is still to be found out (RFC 5682).
        undecided: bool,
    },
}

/// A segment sent to find out whether the tail of what was sent has arrived (RFC 8985 §7.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct TailProbe {
    /// SND.NXT after it.
    pub(super) end: SeqNumber,
    /// It was sent before.
    pub(super) retransmission: bool,
}

/// What is needed to take a reduction back.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// The first octet sent again.
    from: SeqNumber,
    /// What was outstanding then ends here.
    to: SeqNumber,
    /// Our clock when the first segment was sent again.
    clock: Option<u32>,
    /// Segments sent again that the peer has not yet called duplicates.
    retransmissions: u32,
}

/// The loss recovery of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    pub(super) phase: Phase,
    pub(super) rack: Rack,
    /// What was outstanding when the last recovery began ends here: its end, too (RFC 6582 `recover`).
    pub(super) until: SeqNumber,
    /// No further reduction for marked packets before this is acknowledged: one a round trip (RFC 3168 §6.1.2).
    pub(super) ecn_until: SeqNumber,
    pub(super) tail_probe: Option<TailProbe>,
    pub(super) tail_probe_owed: bool,
    /// Duplicate acknowledgements, where there are no selective ones.
    pub(super) duplicate_acks: u32,
    undo: Option<Undo>,
}

impl Recovery {
    pub(super) const fn new(start: SeqNumber) -> Self {
        Self {
            phase: Phase::Open,
            rack: Rack::new(start),
            until: start,
            ecn_until: start,
            tail_probe: None,
            tail_probe_owed: false,
            duplicate_acks: 0,
            undo: None,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Octets that duplicate acknowledgements say have left the network.
    pub(super) fn left_octets(&self, emss_octets: u16) -> u32 {
        self.duplicate_acks.saturating_mul(u32::from(emss_octets))
    }

    /// A segment was sent again at clock value `clock`.
    pub(super) const fn on_resent(&mut self, clock: u32) {
        if let Some(undo) = &mut self.undo {
            undo.retransmissions += 1;
            if undo.clock.is_none() {
                undo.clock = Some(clock);
            }
        }
    }

    /// The peer got the octets up to `end` twice: if that goes for all that was sent again, nothing was lost (RFC 3708).
    pub(super) fn on_duplicate_delivery(&mut self, block: (SeqNumber, SeqNumber)) -> bool {
        let Some(undo) = &mut self.undo else { return false };
        if block.0 < undo.from || block.1 > undo.to || undo.retransmissions == 0 {
            return false;
        }
        undo.retransmissions -= 1;
        undo.retransmissions == 0
    }

    /// An acknowledgement up to `ack` echoes our clock `echo`: if the first segment sent again is acknowledged by an
    /// older clock, its first sending had arrived (RFC 3522).
    pub(super) fn answers_first_sending(&self, ack: SeqNumber, echo: u32) -> bool {
        self.undo.is_some_and(|undo| {
            ack > undo.from && undo.clock.is_some_and(|clock| super::timestamps::is_before(echo, clock))
        })
    }

    pub(super) const fn forget_undo(&mut self) {
        self.undo = None;
    }
}

impl Connection {
    pub(super) fn patience(&self) -> Patience {
        Patience {
            certain: !self.recovery.is_open() || self.send.sacked_segments() >= DUPLICATE_THRESHOLD,
            min_rtt_ns: self.rtt.least_ns().unwrap_or(0),
            smoothed_rtt_ns: self.rtt.smoothed_ns().unwrap_or(0),
        }
    }

    /// Finds out by RACK what is lost, and begins recovery if something is. Gives whether something was found.
    pub(super) fn detect_losses<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> bool {
        self.timers.clear(Timer::Reorder);
        if !self.sack || !self.recovery.rack.has_sample() {
            return false;
        }
        let before = outstanding_octets(&self.send);
        let mut wait_ns = 0;
        let patience = self.patience();
        let judge = self.recovery.rack.judge(now, patience, &mut wait_ns);
        let found = self.send.mark_lost(&mut pools.segments, judge);
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
        if self.snd_una >= self.recovery.ecn_until {
            let signal = Signal::Loss;
            self.congestion.on_congestion(now, self.flight_octets(), signal);
        }
        self.recovery.phase = Phase::Fast(Prr::new(outstanding_octets));
        self.recovery.tail_probe = None;
        self.timers.clear(Timer::Probe);
        self.note_reduction();
        self.ecn.reduced = self.ecn.negotiated;
        self.counters.fast_retransmits += 1;
    }

    /// A recovery begins: what is outstanding now is its business.
    fn note_reduction(&mut self) {
        self.recovery.until = self.send.nxt();
        self.recovery.undo =
            Some(Undo { from: self.snd_una, to: self.send.nxt(), clock: None, retransmissions: 0 });
    }

    /// What the retransmission timeout means for what is outstanding (RFC 8985 §6.3, RFC 5682 §3).
    pub(super) fn begin_timeout_recovery<P: Copy, F>(
        &mut self,
        now: Instant,
        first: bool,
        pools: &mut Pools<P, F>,
    ) {
        let reneged = self.send.oldest(&pools.segments).is_some_and(|oldest| {
            oldest.fate == super::send_queue::Fate::Sacked && oldest.seq >= self.snd_una
        });
        if reneged {
            // The peer cannot hold the oldest octets and not acknowledge them (RFC 2018 §8).
            self.counters.reneged += 1;
            self.send.forget_sacked(&mut pools.segments);
        }
        let undecided = first && (self.sack || self.clocks.negotiated) && !reneged;
        self.congestion.on_timeout(now, self.flight_octets(), first);
        let patience = self.patience();
        let (rack, una, sack) = (self.recovery.rack, self.snd_una, self.sack);
        self.send.mark_lost(&mut pools.segments, |segment| {
            let oldest = segment.seq <= una;
            if oldest || !sack || rack.overdue(now, patience, segment) {
                Verdict::Lost
            } else {
                Verdict::Keep
            }
        });
        self.ecn.reduced = self.ecn.negotiated;
        self.recovery.phase = Phase::Timeout { undecided };
        self.recovery.duplicate_acks = 0;
        self.recovery.tail_probe = None;
        self.timers.clear(Timer::Probe);
        self.timers.clear(Timer::Reorder);
        if first {
            self.note_reduction();
        } else {
            self.recovery.until = self.send.nxt();
        }
    }

    /// The last reduction was for nothing.
    pub(super) fn take_reduction_back<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        self.send.unmark_lost(&mut pools.segments);
        self.congestion.undo(now);
        self.recovery.phase = Phase::Open;
        self.recovery.duplicate_acks = 0;
        self.recovery.undo = None;
        self.counters.undone_reductions += 1;
    }
}

/// Octets sent and neither acknowledged nor selectively acknowledged.
pub(super) fn outstanding_octets(send: &SendQueue) -> u32 {
    send.in_flight_octets() + send.lost_octets()
}
