//! The timestamps option and protection against wrapped sequence numbers (RFC 7323 §3 to §5).

use core::ops::RangeInclusive;

use crate::limits;
use crate::time::{Instant, MILLISECOND, SECOND};
use crate::wire::tcp::{SeqNumber, Timestamps};

/// Octets of the option in each segment, padding included.
const OPTION_OCTETS: u16 = 12;

/// A remembered timestamp is invalid after this long without a segment (§5.5): in 24 days, a clock of one
/// tick a millisecond advances by half its range.
const OUTDATED_NS: u64 = 24 * 24 * 3600 * SECOND;

/// The timestamp state of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimestampClock {
    /// Both ends send timestamps.
    pub(super) negotiated: bool,
    /// Added to the clock, so that it does not reveal the uptime of this machine (§7.1).
    offset: u32,
    /// TS.Recent: the peer's timestamp to be echoed.
    recent: u32,
    /// When TS.Recent was updated.
    recent_at: Instant,
}

impl TimestampClock {
    pub(super) const fn new(offset: u32) -> Self {
        Self { negotiated: false, offset, recent: 0, recent_at: Instant::ZERO }
    }

    /// Octets of options in each segment with data (RFC 6691: the MSS does not count them, the EMSS must). An
    /// RDMA option is in some of them only, which have as much less room.
    pub(super) const fn option_octets(&self) -> u16 {
        if self.negotiated { OPTION_OCTETS } else { 0 }
    }

    /// Our clock at `now`: a tick a millisecond (§5.4).
    pub(super) const fn value(&self, now: Instant) -> u32 {
        ((now.as_nanos() / MILLISECOND) as u32).wrapping_add(self.offset)
    }

    /// The option of a segment sent at `now`.
    pub(super) const fn option(&self, now: Instant) -> Timestamps {
        Timestamps { value: self.value(now), echo: self.recent }
    }

    /// Returns the least and the most nanoseconds from when a segment was sent with the value `echo` of our
    /// clock until `now`; `None` if the ends have not agreed on timestamps, or none was sent with it within
    /// the longest timeout.
    ///
    /// Example: a segment is sent at 7.9 ms and echoed at 10.1 ms. The values are 7 and 10, so it took 2 ms
    /// to 4 ms.
    pub(super) fn age_ns(&self, now: Instant, echo: u32) -> Option<RangeInclusive<u64>> {
        let ticks = u64::from(self.value(now).wrapping_sub(echo));
        let is_credible = self.negotiated && ticks * MILLISECOND <= limits::MAX_RTO_NS;
        is_credible.then(|| ticks.saturating_sub(1) * MILLISECOND..=(ticks + 1) * MILLISECOND)
    }

    /// The offset of the clock, and TS.Recent.
    pub(super) const fn values(&self) -> (u32, u32) {
        (self.offset, self.recent)
    }

    /// Starts with the peer's first timestamp.
    pub(super) const fn start(&mut self, now: Instant, value: u32) {
        self.negotiated = true;
        self.recent = value;
        self.recent_at = now;
    }

    /// Whether a segment with this timestamp is an old duplicate (§5.3 R1).
    pub(super) fn is_old(&self, now: Instant, value: u32) -> bool {
        is_before(value, self.recent) && now - self.recent_at < OUTDATED_NS
    }

    /// Accepts the timestamp of an acceptable segment that begins at or before the last acknowledgement sent
    /// (§4.3).
    pub(super) fn update(&mut self, now: Instant, value: u32, seq: SeqNumber, last_ack_sent: SeqNumber) {
        let newer = !is_before(value, self.recent) || now - self.recent_at >= OUTDATED_NS;
        if newer && seq <= last_ack_sent {
            self.recent = value;
            self.recent_at = now;
        }
    }
}

/// Whether clock value `a` is before `b`, modulo 2^32.
pub(super) const fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MICROSECOND;

    const NOW: Instant = Instant::from_nanos(5 * SECOND);

    #[test]
    fn the_clock_ticks_each_millisecond_from_its_offset() {
        let clocks = TimestampClock::new(u32::MAX - 4999);
        assert_eq!(clocks.value(NOW), 0, "5000 ticks bring it over the wrap");
        assert_eq!(clocks.value(NOW + MILLISECOND), 1);
    }

    #[test]
    fn an_echo_says_how_long_ago_it_was_sent() {
        let mut clocks = TimestampClock::new(u32::MAX - 4999);
        let sent = clocks.value(NOW + 7900 * MICROSECOND);
        let echoed = NOW + 10_100 * MICROSECOND;
        assert_eq!(clocks.age_ns(echoed, sent), None, "timestamps are not in use");
        clocks.start(NOW, 5);
        assert_eq!(clocks.age_ns(echoed, sent), Some(2 * MILLISECOND..=4 * MILLISECOND));
        assert_eq!(clocks.age_ns(echoed, clocks.value(echoed)), Some(0..=MILLISECOND));
        assert_eq!(clocks.age_ns(echoed, clocks.value(echoed).wrapping_add(1)), None, "not sent yet");
        assert_eq!(clocks.age_ns(echoed + limits::MAX_RTO_NS, sent), None, "not credible");
    }

    /// §5.3: older timestamps are refused, across the wrap too, unless the one remembered is very old itself.
    #[test]
    fn old_duplicates_are_told_by_their_clock() {
        let mut clocks = TimestampClock::new(0);
        clocks.start(NOW, 5);
        assert!(clocks.is_old(NOW, 4));
        assert!(clocks.is_old(NOW, u32::MAX), "before the wrap");
        assert!(!clocks.is_old(NOW, 5));
        assert!(!clocks.is_old(NOW + OUTDATED_NS, 4));
    }

    /// §4.3: the timestamp echoed is that of the segment which moved the left edge, not of one beyond a gap.
    #[test]
    fn the_echo_follows_the_left_edge() {
        let mut clocks = TimestampClock::new(0);
        clocks.start(NOW, 5);
        clocks.update(NOW, 9, SeqNumber(101), SeqNumber(100));
        assert_eq!(clocks.recent, 5);
        clocks.update(NOW, 7, SeqNumber(100), SeqNumber(100));
        assert_eq!(clocks.recent, 7);
    }
}
