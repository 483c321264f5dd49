//! Pacing: the segments of a window are spread over the round trip, and those of a connection with a rate
//! limit over time.

use core::num::NonZeroU32;

use crate::limits;
use crate::time::{Instant, SECOND};

/// When a connection may send next, by a leaky bucket in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    /// When everything sent so far would have been sent at the paced rate.
    drained: Instant,
}

/// A rate, and the burst it allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    octets_per_second: u64,
    burst_ns: u64,
}

impl Pace {
    /// The pace of a window over a round-trip time. The rate is twice that of the window in slow start, which
    /// doubles the window each round trip, and 1.25 times that of the window otherwise, so that pacing does
    /// not limit the sender.
    pub(super) fn new(window_octets: u32, rtt_ns: u64, slow_start: bool, emss_octets: u32) -> Self {
        let gain_quarters = if slow_start { 8 } else { 5 };
        let octets = u64::from(window_octets.max(emss_octets)) * gain_quarters / 4;
        // No window is so large that this overflows: 2^31 times 10^9 is below 2^61.
        let octets_per_second = (octets * SECOND / rtt_ns.max(1)).max(1);
        let mut pace = Self { octets_per_second, burst_ns: 0 };
        pace.burst_ns = pace.time_ns(limits::PACED_BURST_SEGMENTS * emss_octets).max(limits::PACED_BURST_NS);
        pace
    }

    /// The pace of a rate limit: so many kilobytes a second.
    pub(super) fn limited(limit_kbps: NonZeroU32, emss_octets: u32) -> Self {
        let mut pace = Self { octets_per_second: u64::from(limit_kbps.get()) * 1000, burst_ns: 0 };
        pace.burst_ns = pace.time_ns(emss_octets).max(limits::PACED_BURST_NS);
        pace
    }

    /// The slower of two paces.
    pub(super) const fn slower(self, other: Self) -> Self {
        if self.octets_per_second <= other.octets_per_second { self } else { other }
    }

    /// The time that `octets` octets take at this pace.
    pub(super) fn time_ns(&self, octets: u32) -> u64 {
        u64::from(octets) * SECOND / self.octets_per_second
    }
}

impl Pacer {
    pub(super) const fn new() -> Self {
        Self { drained: Instant::ZERO }
    }

    /// When the next segment may be sent, if not at `now`.
    pub(super) fn wait_until(self, now: Instant, pace: &Pace) -> Option<Instant> {
        let ahead_ns = self.drained - now;
        (ahead_ns > pace.burst_ns).then(|| now + (ahead_ns - pace.burst_ns))
    }

    pub(super) fn on_sent(&mut self, now: Instant, pace: &Pace, octets: u32) {
        self.on_sent_for(now, pace.time_ns(octets));
    }

    /// Records that octets are sent that take `time_ns` at the pace.
    pub(super) fn on_sent_for(&mut self, now: Instant, time_ns: u64) {
        self.drained = self.drained.max(now) + time_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MILLISECOND;

    /// A window of 100 segments over 100 ms in avoidance: 1.25 segments a millisecond after a burst of ten.
    #[test]
    fn a_window_leaves_over_its_round_trip() {
        let pace = Pace::new(100_000, 100 * MILLISECOND, false, 1000);
        let (mut pacer, mut now, mut sent) = (Pacer::new(), Instant::from_nanos(SECOND), 0);
        let start = now;
        while sent < 100 {
            while pacer.wait_until(now, &pace).is_none() && sent < 100 {
                pacer.on_sent(now, &pace, 1000);
                sent += 1;
                assert!(now > start || sent <= 11, "the burst has a bound");
            }
            now = pacer.wait_until(now, &pace).unwrap_or(now);
        }
        let took_ms = (now - start) / MILLISECOND;
        assert!((70..=73).contains(&took_ms), "{took_ms}: 89 segments after the burst, 0.8 ms each");
    }

    /// On a path of little delay the window is spent long before the burst's 2 ms.
    #[test]
    fn a_path_of_little_delay_is_not_paced() {
        let pace = Pace::new(100_000, 100_000, false, 1000);
        let mut pacer = Pacer::new();
        let now = Instant::from_nanos(SECOND);
        for _ in 0..100 {
            assert!(pacer.wait_until(now, &pace).is_none());
            pacer.on_sent(now, &pace, 1000);
        }
    }
}
