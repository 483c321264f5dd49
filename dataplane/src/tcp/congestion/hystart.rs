//! HyStart++ (RFC 9406): leaves the first slow start when the round-trip time rises, before the queue
//! overflows.

use super::control::AckSample;
use crate::time::MILLISECOND;
use crate::wire::tcp::SeqNumber;

/// RFC 9406 §4.3, names and values.
const MIN_RTT_THRESH_NS: u32 = 4 * MILLISECOND as u32;
const MAX_RTT_THRESH_NS: u32 = 16 * MILLISECOND as u32;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;

/// Returns a round-trip time in fewer bits: above 4 s it makes no difference.
fn narrowed(rtt_ns: u64) -> u32 {
    u32::try_from(rtt_ns).unwrap_or(u32::MAX - 1)
}

/// The phase of slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Ordinary slow start.
    SlowStart,
    /// Conservative slow start: the round-trip time rose; a few rounds show whether it stays so.
    Conservative,
    /// Slow start is over: the threshold is the window.
    Done,
}

/// Follows the round-trip time round by round.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// Least round-trip times in nanoseconds, up to 4 s; `u32::MAX` without a sample.
    last_round_min_ns: u32,
    current_round_min_ns: u32,
    /// Below this, the rise that began conservative slow start was a passing one.
    baseline_min_ns: u32,
    /// Where the current round ends (`windowEnd`), once the first has begun.
    round_end: Option<SeqNumber>,
    samples: u8,
    conservative_rounds: u8,
    phase: Phase,
}

impl HyStart {
    pub(super) const fn new() -> Self {
        Self {
            last_round_min_ns: u32::MAX,
            current_round_min_ns: u32::MAX,
            baseline_min_ns: u32::MAX,
            round_end: None,
            samples: 0,
            conservative_rounds: 0,
            phase: Phase::SlowStart,
        }
    }

    /// Returns the divisor of growth in the current phase.
    pub(super) const fn divisor(&self) -> u32 {
        match self.phase {
            Phase::Conservative => CSS_GROWTH_DIVISOR,
            Phase::SlowStart | Phase::Done => 1,
        }
    }

    /// Accepts what an acknowledgement says (RFC 9406 §4.2).
    pub(super) fn on_ack(&mut self, sample: &AckSample) -> Phase {
        if let Some(rtt_ns) = sample.rtt_ns {
            self.current_round_min_ns = self.current_round_min_ns.min(narrowed(rtt_ns));
            self.samples = self.samples.saturating_add(1);
        }
        self.judge();
        // The round's last acknowledgement still belongs to it.
        match self.round_end {
            Some(end) if sample.ack < end => {}
            Some(_) => self.next_round(sample.highest_sent),
            None => self.round_end = Some(sample.highest_sent),
        }
        self.phase
    }

    fn judge(&mut self) {
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match self.phase {
            Phase::SlowStart if self.last_round_min_ns != u32::MAX => {
                let rise_ns =
                    (self.last_round_min_ns / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_NS, MAX_RTT_THRESH_NS);
                if self.current_round_min_ns >= self.last_round_min_ns.saturating_add(rise_ns) {
                    self.baseline_min_ns = self.current_round_min_ns;
                    self.conservative_rounds = 0;
                    self.phase = Phase::Conservative;
                }
            }
            Phase::Conservative if self.current_round_min_ns < self.baseline_min_ns => {
                self.baseline_min_ns = u32::MAX;
                self.phase = Phase::SlowStart;
            }
            Phase::SlowStart | Phase::Conservative | Phase::Done => {}
        }
    }

    fn next_round(&mut self, highest_sent: SeqNumber) {
        self.round_end = Some(highest_sent);
        self.last_round_min_ns = self.current_round_min_ns;
        self.current_round_min_ns = u32::MAX;
        self.samples = 0;
        if self.phase == Phase::Conservative {
            // The part of a round in which it began counts as one.
            self.conservative_rounds += 1;
            if self.conservative_rounds >= CSS_ROUNDS {
                self.phase = Phase::Done;
            }
        }
    }
}
