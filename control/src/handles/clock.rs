//! The clock of all devices of this process.

use std::sync::LazyLock;

use warpline_dataplane::time::{Instant, MILLISECOND};

use crate::vocabulary::duration::nanos;

/// The origin of all [`Instant`]s of this process, so that devices on different cores agree on the time.
static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Returns the time as all devices of this process see it, from an origin of their own.
pub fn now() -> Instant {
    Instant::from_nanos(nanos(ORIGIN.elapsed()))
}

/// How long a poll loop goes on from one reading of the system's clock. What the two clocks differ in until
/// then is below a microsecond.
const READING_NS: u64 = MILLISECOND;
/// The longest that reading the system's clock may take for its time to count, in ticks of the counter: some
/// microseconds. A thread that was interrupted meanwhile cannot say which tick belongs to the time.
const READING_TICKS_MAX: u64 = 1 << 14;
/// The binary digits of a rate after the point.
const RATE_SHIFT: u32 = 32;
/// The rates that a counter can have: a sixteenth of a nanosecond per tick to sixteen.
const RATES: std::ops::Range<u64> = 1 << (RATE_SHIFT - 4)..16 << RATE_SHIFT;

/// [`now`] for a poll loop, which asks for the time in each turn: at a fraction of the cost, where the
/// processor has a time-stamp counter of constant rate.
///
/// The system's clock is read once a millisecond; between two readings the counter goes on, at the rate that
/// the readings before have shown. So the time is that of [`now`], whatever the counter does in the long run.
/// It never runs backwards.
#[derive(Debug)]
pub(crate) struct PollClock<C = TimeStamp> {
    counter: C,
    /// The last reading of both clocks.
    reading: Option<Reading>,
    /// Nanoseconds per tick, shifted by [`RATE_SHIFT`]; 0 until it is known.
    rate: u64,
    /// Ticks from the last reading until the next.
    reading_ticks: u64,
    last: Instant,
}

/// A time on both clocks.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: u64,
    time: Instant,
}

/// A counter of constant rate.
pub(crate) trait Counter {
    /// Returns its ticks; `None` if there is none.
    fn ticks(&self) -> Option<u64>;
}

/// The time-stamp counter of the processor.
#[derive(Debug)]
pub(crate) struct TimeStamp;

impl Counter for TimeStamp {
    #[cfg(feature = "dpdk")]
    #[inline]
    fn ticks(&self) -> Option<u64> {
        dpdk::time_stamp()
    }

    #[cfg(not(feature = "dpdk"))]
    fn ticks(&self) -> Option<u64> {
        None
    }
}

impl PollClock {
    /// Returns a clock that has read nothing yet.
    pub(crate) const fn new() -> Self {
        Self::with_counter(TimeStamp)
    }
}

impl<C: Counter> PollClock<C> {
    /// Returns a clock that goes on by `counter`.
    const fn with_counter(counter: C) -> Self {
        Self { counter, reading: None, rate: 0, reading_ticks: 0, last: Instant::ZERO }
    }

    /// Returns the time.
    #[inline]
    pub(crate) fn now(&mut self) -> Instant {
        let time = match (self.counter.ticks(), self.reading) {
            (Some(ticks), Some(reading)) if ticks.wrapping_sub(reading.ticks) < self.reading_ticks => {
                reading.time + ((ticks.wrapping_sub(reading.ticks) * self.rate) >> RATE_SHIFT)
            }
            (Some(ticks), _) => self.read(ticks),
            (None, _) => now(),
        };
        self.last = self.last.max(time);
        self.last
    }

    /// Reads the system's clock when the counter is at `before`, and learns the counter's rate.
    #[cold]
    fn read(&mut self, before: u64) -> Instant {
        let time = now();
        let took = self.counter.ticks().map_or(u64::MAX, |after| after.wrapping_sub(before));
        if took > READING_TICKS_MAX {
            return time;
        }
        let reading = Reading { ticks: before.wrapping_add(took / 2), time };
        let Some(last) = self.reading.replace(reading) else { return time };
        let (ticks, elapsed_ns) = (reading.ticks.wrapping_sub(last.ticks), time - last.time);
        if elapsed_ns < READING_NS && self.rate == 0 {
            // Too short to learn from: the first reading stays.
            self.reading = Some(last);
            return time;
        }
        let rate = (u128::from(elapsed_ns) << RATE_SHIFT).checked_div(u128::from(ticks)).unwrap_or(0);
        // A counter that has jumped teaches nothing: neither way is any true rate so far from a nanosecond.
        self.rate = u64::try_from(rate).ok().filter(|rate| RATES.contains(rate)).unwrap_or(0);
        self.reading_ticks = (READING_NS << RATE_SHIFT).checked_div(self.rate).unwrap_or(0);
        time
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    /// A counter of three ticks a nanosecond that a test can move.
    #[derive(Default)]
    struct Movable(Cell<u64>);

    impl Counter for Movable {
        fn ticks(&self) -> Option<u64> {
            Some((3 * now().as_nanos()).wrapping_add(self.0.get()))
        }
    }

    /// How far the clock may be off: a reading counts only if its tick is known to 2^14 ticks, here five
    /// microseconds, and two such readings a millisecond apart show the rate to one in a hundred.
    const TOLERANCE_NS: u64 = 30_000;

    fn assert_right<C: Counter>(clock: &mut PollClock<C>) {
        let (before, time, after) = (now(), clock.now(), now());
        assert!(time + TOLERANCE_NS >= before, "{time:?} for {before:?}");
        assert!(time <= after + TOLERANCE_NS, "{time:?} for {after:?}");
    }

    fn assert_right_for<C: Counter>(clock: &mut PollClock<C>, duration: Duration) {
        let start = std::time::Instant::now();
        while start.elapsed() < duration {
            assert_right(clock);
        }
    }

    #[test]
    fn it_shows_the_time_of_the_system() {
        let mut clock = PollClock::with_counter(Movable::default());
        assert_right_for(&mut clock, Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(20));
        assert_right(&mut clock);
    }

    #[test]
    fn so_does_that_of_this_processor() {
        assert_right_for(&mut PollClock::new(), Duration::from_millis(20));
    }

    /// As when a virtual machine moves: the next reading finds out.
    #[test]
    fn it_survives_a_jump_of_the_counter() {
        for jump in [1 << 34, 1 << 40, 1 << 60, 1_u64.wrapping_neg() << 40, 0] {
            let mut clock = PollClock::with_counter(Movable::default());
            assert_right_for(&mut clock, Duration::from_millis(5));
            clock.counter.0.set(jump);
            assert_right_for(&mut clock, Duration::from_millis(5));
        }
    }

    #[test]
    fn it_never_runs_backwards() {
        let mut clock = PollClock::with_counter(Movable::default());
        let mut before = clock.now();
        for step in 0..10_000_u64 {
            // Back by up to a tenth of a millisecond, which no reading notices.
            clock.counter.0.set((step % 300 * 1000).wrapping_neg());
            let time = clock.now();
            assert!(time >= before);
            before = time;
        }
    }
}
