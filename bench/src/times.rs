//! How long pings took, and the CPU time of a thread.

use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// The longest time that is recorded as it is, an hour, in nanoseconds: longer ones count as this.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Decimal digits of a time that are recorded.
const DIGITS: u8 = 3;

/// How long pings took.
#[derive(Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(
            Histogram::new_with_max(LONGEST_NS, DIGITS)
                .expect("the bounds are in order, the digits at most five"),
        )
    }
}

impl Times {
    /// Records the time of one more ping.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS));
    }

    /// Records all times of `other` too.
    pub fn add(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// Returns the number of pings.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the shortest time, in microseconds.
    pub fn min_us(&self) -> f64 {
        microseconds(self.0.min())
    }

    /// Returns the longest time, in microseconds.
    pub fn max_us(&self) -> f64 {
        microseconds(self.0.max())
    }

    /// Returns the mean, in microseconds.
    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// Returns the standard deviation, in microseconds.
    pub fn stdev_us(&self) -> f64 {
        self.0.stdev() / 1e3
    }

    /// Returns the time that `quantile` of the pings did not exceed, in microseconds.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        microseconds(self.0.value_at_quantile(quantile))
    }

    /// Returns the times in microseconds, as far as the histogram distinguishes them, each with its count.
    pub fn counts(&self) -> Vec<(f64, u64)> {
        let recorded = self.0.iter_recorded();
        recorded.map(|step| (microseconds(step.value_iterated_to()), step.count_at_value())).collect()
    }
}

/// Returns the CPU time of this thread.
pub fn thread_time() -> Duration {
    // It is not negative.
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_three_digits() {
        let mut times = Times::default();
        for us in 1..=1000 {
            times.record(Duration::from_micros(us));
        }
        assert_eq!(times.count(), 1000);
        for (quantile, expected) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let found = times.quantile_us(quantile);
            assert!((found / expected - 1.0).abs() < 0.002, "{quantile}: {found} us");
        }
        let counts = times.counts();
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 1000);
        assert!(counts.is_sorted_by(|a, b| a.0 < b.0) && counts[0].0 >= 1.0);
        times.record(Duration::from_secs(1_000_000));
        assert_eq!(times.count(), 1001, "an absurd one counts too");
        let mut both = Times::default();
        both.record(Duration::from_nanos(5));
        both.add(&times);
        assert_eq!((both.count(), both.min_us()), (1002, 0.005));
    }
}
