//! RACK: loss detection by time instead of by counting duplicate acknowledgements (RFC 8985 §6).

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::send_queue::{Segment, SentOnce, Verdict};

/// The RACK state of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rack {
    /// The transmission time of the most recently sent segment that was delivered (RACK.xmit_ts);
    /// [`Instant::ZERO`] before the first.
    sent_at: Instant,
    /// The sequence number after that segment (RACK.end_seq).
    end: SeqNumber,
    /// Its round-trip time.
    rtt_ns: u64,
    /// The sequence number after the highest octet delivered (RACK.fack).
    highest: SeqNumber,
    /// A segment that was sent once was delivered after a later one.
    reordering_seen: bool,
    /// The reordering window in quarters of the least round-trip time.
    window_quarters: u8,
    /// Recoveries for which the widened window still holds.
    window_persists: u8,
    /// The end of the round trip in which the window was last widened.
    widened_round: SeqNumber,
}

/// The inputs for how late a segment may be before it counts as lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReorderTolerance {
    /// In loss recovery, or enough segments are selectively acknowledged to make a loss certain: without
    /// reordering, no delay is tolerated (§6.2 step 4).
    pub(super) certain: bool,
    pub(super) min_rtt_ns: u64,
    pub(super) smoothed_rtt_ns: u64,
}

impl Rack {
    pub(super) const fn new(start: SeqNumber) -> Self {
        Self {
            sent_at: Instant::ZERO,
            end: start,
            rtt_ns: 0,
            highest: start,
            reordering_seen: false,
            window_quarters: 1,
            window_persists: 0,
            widened_round: start,
        }
    }

    /// The end of the round trip in which the window was last widened.
    pub(super) const fn widened_round_mut(&mut self) -> &mut SeqNumber {
        &mut self.widened_round
    }

    pub(super) const fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    /// Whether a segment was delivered yet.
    pub(super) const fn has_sample(&self) -> bool {
        self.sent_at.as_nanos() > 0
    }

    /// The transmission of the most recently sent segment that was delivered.
    #[inline]
    const fn newest(&self) -> Transmission {
        Transmission { sent_at: self.sent_at, end: self.end }
    }

    /// Whether a segment sent after `segment` was delivered.
    #[inline]
    pub(super) fn has_overtaken<P>(&self, segment: &Segment<P>) -> bool {
        self.newest().is_after(&Transmission::of(segment))
    }

    /// Records `count` delivered segments of a group, the first of which is `segment` (§6.2 steps 2, 3).
    /// Returns how many of them show reordering. `ambiguous` says that the acknowledgement may be for an
    /// earlier transmission; then it is one segment.
    pub(super) fn on_delivered(
        &mut self,
        now: Instant,
        segment: &Segment<()>,
        count: u32,
        ambiguous: bool,
    ) -> u32 {
        let last = segment.nth(count - 1);
        let reordered = match (self.highest - segment.end()).max(0).cast_unsigned() {
            0 => 0,
            _ if segment.retransmitted() => 0,
            // Those that end before it.
            octets => octets.div_ceil(segment.octets.max(1)).min(count),
        };
        self.highest = self.highest.later(last.end());
        self.reordering_seen |= reordered > 0;
        if !ambiguous && Transmission::of(&last).is_after(&self.newest()) {
            (self.sent_at, self.end, self.rtt_ns) = (last.sent_at, last.end(), now - last.sent_at);
        }
        reordered
    }

    /// Returns true if a segment that ends at `end` or later would show no reordering if it were delivered
    /// now.
    #[inline]
    pub(super) fn is_in_order(&self, end: SeqNumber) -> bool {
        self.highest <= end
    }

    /// Records delivered segments, of which each was sent once and is [in order](Self::is_in_order), as
    /// [`on_delivered`](Self::on_delivered) does.
    #[inline]
    pub(super) fn on_delivered_in_order(&mut self, now: Instant, segments: &SentOnce) {
        let SentOnce { end, sent_at, .. } = *segments;
        self.highest = end;
        if (Transmission { sent_at, end }).is_after(&self.newest()) {
            (self.sent_at, self.end, self.rtt_ns) = (sent_at, end, now - sent_at);
        }
    }

    /// Records a D-SACK: a retransmission was spurious. The window grows by a quarter of the least round-trip
    /// time, once a round trip (§6.2 step 4).
    pub(super) fn on_duplicate_delivery(&mut self, una: SeqNumber, nxt: SeqNumber) {
        if una >= self.widened_round {
            self.window_quarters = self.window_quarters.saturating_add(1);
            self.window_persists = limits::REORDER_WINDOW_PERSISTS;
            self.widened_round = nxt;
        }
    }

    /// A recovery is over.
    pub(super) const fn on_recovered(&mut self) {
        self.window_persists = self.window_persists.saturating_sub(1);
        if self.window_persists == 0 {
            self.window_quarters = 1;
        }
    }

    fn window_ns(&self, tolerance: ReorderTolerance) -> u64 {
        if !self.reordering_seen && tolerance.certain {
            return 0;
        }
        (tolerance.min_rtt_ns / 4)
            .saturating_mul(u64::from(self.window_quarters))
            .min(tolerance.smoothed_rtt_ns)
    }

    /// Returns a judge of segments in flight at `now` (§6.2 step 5). It sets `wait_ns` to the time until the
    /// next segment could be lost, 0 for never.
    pub(super) fn judge(
        &self,
        now: Instant,
        tolerance: ReorderTolerance,
        wait_ns: &mut u64,
    ) -> impl FnMut(&Segment<()>) -> Verdict {
        let window_ns = self.window_ns(tolerance);
        let rack = *self;
        move |segment| {
            if !rack.has_overtaken(segment) {
                // Segments sent once were sent in order: all that follow were sent later.
                return if segment.retransmitted() { Verdict::Keep } else { Verdict::Stop };
            }
            let overdue = segment.sent_at + rack.rtt_ns + window_ns;
            if overdue <= now {
                return Verdict::Lost;
            }
            let left = overdue - now;
            *wait_ns = (*wait_ns).max(left);
            Verdict::Keep
        }
    }

    /// Whether a segment is due to be lost when the retransmission timer expires (§6.3).
    pub(super) fn overdue(&self, now: Instant, tolerance: ReorderTolerance, segment: &Segment<()>) -> bool {
        segment.sent_at + self.rtt_ns + self.window_ns(tolerance) <= now
    }
}

/// The last transmission of a segment: when it was sent, and the sequence number after its last octet.
#[derive(Clone, Copy)]
struct Transmission {
    sent_at: Instant,
    end: SeqNumber,
}

impl Transmission {
    #[inline]
    fn of<P>(segment: &Segment<P>) -> Self {
        Self { sent_at: segment.sent_at, end: segment.end() }
    }

    /// RACK_sent_after of §6.2; sequence numbers break ties.
    #[inline]
    fn is_after(&self, other: &Self) -> bool {
        self.sent_at > other.sent_at || (self.sent_at == other.sent_at && self.end > other.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::send_queue::SegmentState;
    use crate::time::MILLISECOND;

    const TOLERANCE: ReorderTolerance =
        ReorderTolerance { certain: false, min_rtt_ns: 20 * MILLISECOND, smoothed_rtt_ns: 40 * MILLISECOND };

    fn segment(number: u32, sent_ms: u64, transmissions: u8) -> Segment<()> {
        Segment {
            seq: SeqNumber(number * 100),
            octets: 100,
            payload: (),
            skip: 0,
            sent_at: at(sent_ms),
            transmissions,
            state: SegmentState::InFlight,
        }
    }

    fn at(milliseconds: u64) -> Instant {
        Instant::from_nanos(milliseconds * MILLISECOND)
    }

    fn verdict(
        rack: &Rack,
        now_ms: u64,
        tolerance: ReorderTolerance,
        segment: &Segment<()>,
    ) -> (Verdict, u64) {
        let mut wait_ns = 0;
        let verdict = rack.judge(at(now_ms), tolerance, &mut wait_ns)(segment);
        (verdict, wait_ns / MILLISECOND)
    }

    /// §6.2 step 5: lost once a later one was delivered and the window of reordering has passed: a quarter of
    /// 20 ms.
    #[test]
    fn a_segment_is_lost_when_later_ones_arrived_and_it_is_late() {
        let mut rack = Rack::new(SeqNumber(0));
        assert_eq!(
            verdict(&rack, 50, TOLERANCE, &segment(0, 10, 1)),
            (Verdict::Stop, 0),
            "nothing delivered"
        );
        rack.on_delivered(at(41), &segment(1, 11, 1), 1, false);
        assert_eq!(verdict(&rack, 41, TOLERANCE, &segment(0, 10, 1)), (Verdict::Keep, 4), "10 + 30 + 5 - 41");
        assert_eq!(verdict(&rack, 45, TOLERANCE, &segment(0, 10, 1)), (Verdict::Lost, 0));
        let certain = ReorderTolerance { certain: true, ..TOLERANCE };
        assert_eq!(verdict(&rack, 41, certain, &segment(0, 10, 1)), (Verdict::Lost, 0), "three later ones");
        assert_eq!(verdict(&rack, 99, certain, &segment(2, 12, 1)), (Verdict::Stop, 0), "sent later");
        assert_eq!(verdict(&rack, 99, certain, &segment(0, 40, 2)), (Verdict::Keep, 0), "sent again later");
    }

    /// §6.2 step 4: once reordering was seen, lateness is tolerated, and more of it after a D-SACK, once a
    /// round trip.
    #[test]
    fn reordering_makes_it_patient() {
        let mut rack = Rack::new(SeqNumber(0));
        assert_eq!(rack.on_delivered(at(41), &segment(5, 11, 1), 1, false), 0);
        assert_eq!(rack.on_delivered(at(42), &segment(3, 10, 1), 1, false), 1);
        let certain = ReorderTolerance { certain: true, ..TOLERANCE };
        assert_eq!(verdict(&rack, 41, certain, &segment(0, 10, 1)), (Verdict::Keep, 4));
        rack.on_duplicate_delivery(SeqNumber(600), SeqNumber(900));
        rack.on_duplicate_delivery(SeqNumber(700), SeqNumber(950));
        assert_eq!(verdict(&rack, 41, certain, &segment(0, 10, 1)), (Verdict::Keep, 9), "two quarters");
        for _ in 0..limits::REORDER_WINDOW_PERSISTS {
            rack.on_recovered();
        }
        assert_eq!(verdict(&rack, 41, certain, &segment(0, 10, 1)), (Verdict::Keep, 4));
    }
}
