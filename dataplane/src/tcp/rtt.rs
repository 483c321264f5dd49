//! Round-trip time and the retransmission timeout (RFC 6298).

use core::ops::RangeInclusive;

use crate::limits;
use crate::time::Instant;

/// Estimates the round-trip time and the retransmission timeout of one connection.
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    /// SRTT and RTTVAR in nanoseconds, once there is a first sample.
    smoothed_ns: Option<(u64, u64)>,
    /// Timeouts in a row without an acknowledgement of new data.
    timeouts: u8,
    /// How often the timeout was doubled since the last sample.
    backoff: u8,
    /// The SYN was not answered in time.
    lost_syn: bool,
    /// The least samples of this span of time and of the one before.
    least_ns: (u64, u64),
    span_began: Instant,
}

impl RttEstimator {
    /// An estimator without a sample: the timeout is the initial one (RFC 6298 §2.1).
    pub const fn new() -> Self {
        Self {
            smoothed_ns: None,
            timeouts: 0,
            backoff: 0,
            lost_syn: false,
            least_ns: (u64::MAX, u64::MAX),
            span_began: Instant::ZERO,
        }
    }

    /// Accepts a sample at `now`. The caller passes only samples of segments that were sent once, or that a
    /// timestamp tells apart (Karn's algorithm, RFC 6298 §3).
    pub fn sample(&mut self, now: Instant, rtt_ns: u64) {
        if now - self.span_began >= limits::LEAST_RTT_SPAN_NS {
            self.least_ns = (u64::MAX, self.least_ns.0);
            self.span_began = now;
        }
        self.least_ns.0 = self.least_ns.0.min(rtt_ns);
        // RFC 6298 §2.2, §2.3: alpha 1/8, beta 1/4.
        self.smoothed_ns = Some(match self.smoothed_ns {
            None => (rtt_ns, rtt_ns / 2),
            Some((srtt, rttvar)) => {
                let rttvar = (3 * rttvar + srtt.abs_diff(rtt_ns)) / 4;
                ((7 * srtt + rtt_ns) / 8, rttvar)
            }
        });
        (self.timeouts, self.backoff) = (0, 0);
    }

    /// Accepts a sample at `now` that a coarse clock has measured: it lies in `bounds_ns`. It counts as the
    /// time there that is nearest to the smoothed one, so a round-trip time far below a tick stays as it is.
    pub fn sample_within(&mut self, now: Instant, bounds_ns: RangeInclusive<u64>) {
        let (least_ns, most_ns) = bounds_ns.into_inner();
        let nearest_ns = self.smoothed_ns().map_or(most_ns, |srtt| srtt.clamp(least_ns, most_ns));
        self.sample(now, nearest_ns);
    }

    /// The smoothed round-trip time in nanoseconds, once known.
    pub fn smoothed_ns(&self) -> Option<u64> {
        self.smoothed_ns.map(|(srtt, _)| srtt)
    }

    /// The variation of the round-trip time in nanoseconds, once known.
    pub fn variation_ns(&self) -> Option<u64> {
        self.smoothed_ns.map(|(_, rttvar)| rttvar)
    }

    /// The least round-trip time of the last minutes in nanoseconds, once known.
    pub fn least_ns(&self) -> Option<u64> {
        let least = self.least_ns.0.min(self.least_ns.1);
        (least != u64::MAX).then_some(least)
    }

    /// The retransmission timeout in nanoseconds, with backoff.
    pub fn rto_ns(&self) -> u64 {
        // §5.5: double at each timeout, up to the maximum.
        self.base_rto_ns().saturating_mul(1 << self.backoff.min(16)).min(limits::MAX_RTO_NS)
    }

    /// The retransmission timeout in nanoseconds, without backoff.
    pub fn base_rto_ns(&self) -> u64 {
        let base = match self.smoothed_ns {
            None if self.lost_syn => limits::INITIAL_RTO_AFTER_LOST_SYN_NS,
            None => limits::INITIAL_RTO_NS,
            Some((srtt, rttvar)) => srtt + (4 * rttvar).max(limits::CLOCK_GRANULARITY_NS),
        };
        base.clamp(limits::MIN_RTO_NS, limits::MAX_RTO_NS)
    }

    /// The handshake is complete, but its timer had expired: until there is a sample, the timeout is a longer
    /// one, not backed off (RFC 6298 §5.7).
    pub fn on_lost_syn(&mut self) {
        self.lost_syn = true;
        self.backoff = 0;
    }

    /// Doubles the timeout (RFC 6298 §5.5).
    pub fn back_off(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
        self.backoff = self.backoff.saturating_add(1);
    }

    /// What timed out was never sent: the timeout is as long as before.
    pub fn forget_timeouts(&mut self) {
        (self.timeouts, self.backoff) = (0, 0);
    }

    /// New data was acknowledged without a sample: the path works. The timeout stays backed off until there
    /// is one, because it may have been too short (RFC 6298 §5, RFC 8961 §4).
    pub fn progress(&mut self) {
        self.timeouts = 0;
    }

    /// Timeouts in a row.
    pub const fn timeouts_in_a_row(&self) -> u8 {
        self.timeouts
    }
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{MILLISECOND, SECOND};

    const NOW: Instant = Instant::from_nanos(SECOND);

    /// RFC 8985 §6.2 step 1: the least over a window of time, so that a longer path is noticed.
    #[test]
    fn the_least_is_forgotten_after_two_spans() {
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.least_ns(), None);
        rtt.sample(NOW, 5);
        rtt.sample(NOW + limits::LEAST_RTT_SPAN_NS, 9);
        assert_eq!(rtt.least_ns(), Some(5));
        rtt.sample(NOW + 2 * limits::LEAST_RTT_SPAN_NS, 10);
        assert_eq!(rtt.least_ns(), Some(9));
    }

    #[test]
    fn follows_rfc_6298() {
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.rto_ns(), SECOND);
        rtt.sample(NOW, 400 * MILLISECOND);
        assert_eq!(rtt.rto_ns(), (400 + 4 * 200) * MILLISECOND, "R + 4 * R/2");
        rtt.sample(NOW, 400 * MILLISECOND);
        assert_eq!(rtt.rto_ns(), (400 + 4 * 150) * MILLISECOND, "RTTVAR decays by a quarter");
    }

    #[test]
    fn backs_off_within_bounds_and_recovers() {
        let mut rtt = RttEstimator::new();
        rtt.sample(NOW, MILLISECOND);
        assert_eq!(rtt.rto_ns(), limits::MIN_RTO_NS);
        rtt.back_off();
        assert_eq!(rtt.rto_ns(), 2 * limits::MIN_RTO_NS);
        for _ in 0..300 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto_ns(), limits::MAX_RTO_NS);
        rtt.progress();
        assert_eq!((rtt.timeouts_in_a_row(), rtt.rto_ns()), (0, limits::MAX_RTO_NS), "no sample");
        rtt.sample(NOW, MILLISECOND);
        assert_eq!((rtt.timeouts_in_a_row(), rtt.rto_ns()), (0, limits::MIN_RTO_NS));
    }

    /// RFC 6298 §5.7.
    #[test]
    fn a_lost_syn_leaves_a_longer_timeout() {
        let mut rtt = RttEstimator::new();
        rtt.back_off();
        rtt.back_off();
        rtt.progress();
        rtt.on_lost_syn();
        assert_eq!(rtt.rto_ns(), limits::INITIAL_RTO_AFTER_LOST_SYN_NS);
    }

    /// A clock of milliseconds says nothing new of a path of microseconds, and much of one that has become
    /// longer.
    #[test]
    fn a_coarse_sample_is_no_finer_than_it_is() {
        let mut rtt = RttEstimator::new();
        rtt.sample_within(NOW, 0..=MILLISECOND);
        assert_eq!(rtt.smoothed_ns(), Some(MILLISECOND), "the longest, if nothing is known");
        let mut rtt = RttEstimator::new();
        rtt.sample(NOW, 20_000);
        rtt.sample_within(NOW, 0..=MILLISECOND);
        assert_eq!((rtt.smoothed_ns(), rtt.least_ns()), (Some(20_000), Some(20_000)));
        rtt.back_off();
        rtt.sample_within(NOW, 80 * MILLISECOND..=82 * MILLISECOND);
        assert_eq!(rtt.smoothed_ns(), Some((7 * 20_000 + 80 * MILLISECOND) / 8));
        assert_eq!(rtt.timeouts_in_a_row(), 0);
    }
}
