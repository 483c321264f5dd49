//! The loss recovery of a connection: fast recovery (RFC 6675, with RACK for detection and PRR for the rate),
//! retransmission timeouts with F-RTO (RFC 5682), and undoing spurious reductions (Eifel, RFC 3522 and 4015;
//! D-SACK, RFC 3708).

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::congestion::{CongestionControl, Signal};
use super::prr::Prr;
use super::rack::{Rack, ReorderTolerance};
use super::sack_blocks::Block;
use super::send_queue::{SegmentState, Verdict};
use super::timers::Timer;
use super::{Connection, Pools};

/// Segments selectively acknowledged beyond a hole, or duplicate acknowledgements, that make a loss certain.
pub(super) const DUPLICATE_THRESHOLD: u32 = 3;

/// The phase of loss recovery.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// No loss is known.
    Open,
    /// Fast recovery: losses are repaired without a timeout.
    Fast(Prr),
    /// Losses are repaired after a retransmission timeout.
    Timeout {
        /// It is not known yet whether the timeout was spurious (RFC 5682).
        undecided: bool,
    },
}

/// A tail loss probe: a segment sent to learn whether the last segments have arrived (RFC 8985 §7.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct TailProbe {
    /// SND.NXT after it.
    pub(super) end: SeqNumber,
    /// It was sent before.
    pub(super) retransmission: bool,
}

/// The segments that a recovery has retransmitted, if they are few. With many, a spurious recovery is
/// unlikely.
#[derive(Clone, Copy, Debug)]
struct Resent {
    /// The first `count` of them.
    blocks: [Block; 3],
    count: u8,
    too_many: bool,
}

impl Resent {
    const fn new() -> Self {
        Self { blocks: [(SeqNumber(0), SeqNumber(0)); 3], count: 0, too_many: false }
    }

    fn add(&mut self, block: Block) {
        match self.blocks.get_mut(usize::from(self.count)) {
            Some(place) if !self.too_many => {
                *place = block;
                self.count += 1;
            }
            _ => self.too_many = true,
        }
    }

    /// Notes that the peer received `block` twice. Returns true if it has now received every retransmitted
    /// segment twice.
    fn answered_by(&mut self, block: Block) -> bool {
        let sent = &mut self.blocks[..usize::from(self.count)];
        let Some(place) = sent.iter().position(|resent| block.0 <= resent.0 && resent.1 <= block.1) else {
            return false;
        };
        self.count -= 1;
        self.blocks.swap(place, usize::from(self.count));
        self.count == 0 && !self.too_many
    }
}

/// The state needed to undo a reduction.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// The first octet retransmitted.
    from: SeqNumber,
    /// Our timestamp clock when the first segment was retransmitted.
    clock: Option<u32>,
    /// Segments retransmitted that the peer has not reported as duplicates yet.
    resent: Resent,
}

/// The loss recovery of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    pub(super) phase: Phase,
    pub(super) rack: Rack,
    /// SND.NXT when the last recovery began: the recovery ends when this is acknowledged (RFC 6582
    /// `recover`).
    pub(super) until: SeqNumber,
    /// No further reduction for marked packets before this is acknowledged: one a round trip (RFC 3168
    /// §6.1.2).
    pub(super) ecn_until: SeqNumber,
    pub(super) tail_probe: Option<TailProbe>,
    pub(super) tail_probe_owed: bool,
    /// Duplicate acknowledgements, counted if there are no selective ones.
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

    /// Octets that have left the network according to duplicate acknowledgements.
    pub(super) fn left_octets(&self, emss_octets: u32) -> u32 {
        self.duplicate_acks.saturating_mul(emss_octets)
    }

    /// Notes that the octets `block` were retransmitted at clock value `clock`.
    pub(super) fn on_resent(&mut self, clock: u32, block: Block) {
        if let Some(undo) = &mut self.undo {
            undo.resent.add(block);
            if undo.clock.is_none() {
                undo.clock = Some(clock);
            }
        }
    }

    /// Notes that the peer received the octets `block` twice. Returns true if that holds for every
    /// retransmitted segment: then nothing was lost (RFC 3708 §2). Octets duplicated by the network alone do
    /// not count.
    pub(super) fn on_duplicate_delivery(&mut self, block: Block) -> bool {
        self.undo.as_mut().is_some_and(|undo| undo.resent.answered_by(block))
    }

    /// Whether an acknowledgement up to `ack` with the timestamp echo `echo` is for the first transmission of
    /// the first retransmitted segment: the echo is older than its retransmission (RFC 3522).
    pub(super) fn answers_first_sending(&self, ack: SeqNumber, echo: u32) -> bool {
        self.undo.is_some_and(|undo| {
            // If more segments were retransmitted, the first one does not show that the others had arrived.
            let alone = undo.resent.count <= 1 && !undo.resent.too_many;
            alone
                && ack > undo.from
                && undo.clock.is_some_and(|clock| super::timestamps::is_before(echo, clock))
        })
    }

    pub(super) const fn forget_undo(&mut self) {
        self.undo = None;
    }
}

impl Connection {
    pub(super) fn tolerance(&self) -> ReorderTolerance {
        ReorderTolerance {
            certain: !self.recovery.is_open() || self.send.queue.sacked_segments() >= DUPLICATE_THRESHOLD,
            min_rtt_ns: self.rtt.least_ns().unwrap_or(0),
            smoothed_rtt_ns: self.rtt.smoothed_ns().unwrap_or(0),
        }
    }

    /// Detects losses by RACK, and begins fast recovery if there are any. Returns true if it found one.
    pub(super) fn detect_losses<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> bool {
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
        self.note_reduction();
        self.ecn.reduced = self.ecn.is_negotiated();
        self.counters.fast_retransmits += 1;
    }

    /// Notes where a recovery begins: it repairs the segments outstanding now.
    fn note_reduction(&mut self) {
        self.recovery.until = self.send.queue.nxt();
        self.recovery.undo = Some(Undo { from: self.send.una, clock: None, resent: Resent::new() });
    }

    /// Begins recovery after a retransmission timeout (RFC 8985 §6.3, RFC 5682 §3).
    pub(super) fn begin_timeout_recovery<P: Copy, F>(
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
        let undecided = first && (self.ack.sack || self.timestamps.negotiated) && !reneged;
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
        self.recovery.phase = Phase::Timeout { undecided };
        self.recovery.duplicate_acks = 0;
        self.recovery.tail_probe = None;
        self.timers.clear(Timer::Probe);
        self.timers.clear(Timer::Reorder);
        if first {
            self.note_reduction();
        } else {
            self.recovery.until = self.send.queue.nxt();
        }
    }

    /// Undoes the last reduction: it was spurious.
    pub(super) fn take_reduction_back<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        self.send.queue.unmark_lost(&mut pools.segments);
        self.congestion.undo(now);
        self.recovery.phase = Phase::Open;
        self.recovery.duplicate_acks = 0;
        self.recovery.undo = None;
        self.counters.undone_reductions += 1;
    }
}
