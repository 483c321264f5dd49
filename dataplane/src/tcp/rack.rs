//! RACK: which segments are lost, told from time rather than from counting duplicates (RFC 8985 §6).

use crate::limits;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::send_queue::{Segment, Verdict};

/// What RACK knows of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rack {
    /// When the segment was sent that was sent last of all those delivered; [`Instant::ZERO`] before the
    /// first.
    sent_at: Instant,
    /// The place after that segment.
    end: SeqNumber,
    /// Its round-trip time.
    rtt_ns: u64,
    /// The place after the highest octet delivered (RACK.fack).
    highest: SeqNumber,
    /// A segment was delivered after a later one without having been sent twice.
    reordering_seen: bool,
    /// The window of reordering in quarters of the least round-trip time.
    window_quarters: u8,
    /// Recoveries that the widened window still outlasts.
    window_persists: u8,
    /// Where the round trip ends in which the window was last widened.
    widened_round: SeqNumber,
}

/// What decides how long a segment may be late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// In loss recovery, or as many segments selectively acknowledged as make a loss certain: no patience
    /// without reordering (§6.2 step 4).
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

    pub(super) const fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    /// Whether anything was delivered yet.
    pub(super) const fn has_sample(&self) -> bool {
        self.sent_at.as_nanos() > 0
    }

    /// Takes note of a delivered segment (§6.2 steps 2, 3); gives whether it shows reordering. `ambiguous`
    /// when its acknowledgement may be of an earlier sending.
    pub(super) fn on_delivered<P>(&mut self, now: Instant, segment: &Segment<P>, ambiguous: bool) -> bool {
        let reordered = segment.end() < self.highest && !segment.retransmitted();
        self.highest = self.highest.later(segment.end());
        self.reordering_seen |= reordered;
        if !ambiguous && sent_after(segment, self.sent_at, self.end) {
            self.sent_at = segment.sent_at;
            self.end = segment.end();
            self.rtt_ns = now - segment.sent_at;
        }
        reordered
    }

    /// A D-SACK: something was sent again for nothing. The window grows by a quarter of the least round-trip
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

    fn window_ns(&self, patience: Patience) -> u64 {
        if !self.reordering_seen && patience.certain {
            return 0;
        }
        (patience.min_rtt_ns / 4)
            .saturating_mul(u64::from(self.window_quarters))
            .min(patience.smoothed_rtt_ns)
    }

    /// How to judge segments in flight at `now` (§6.2 step 5). The judge notes in `wait_ns` how long until
    /// the next could be lost, 0 for never.
    pub(super) fn judge<P>(
        &self,
        now: Instant,
        patience: Patience,
        wait_ns: &mut u64,
    ) -> impl FnMut(&Segment<P>) -> Verdict {
        let window_ns = self.window_ns(patience);
        let rack = *self;
        move |segment| {
            if !sent_before(segment, rack.sent_at, rack.end) {
                // What was sent once was sent in order: all that follow are later still.
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
    pub(super) fn overdue<P>(&self, now: Instant, patience: Patience, segment: &Segment<P>) -> bool {
        segment.sent_at + self.rtt_ns + self.window_ns(patience) <= now
    }
}

/// RACK_sent_after of §6.2, with places breaking ties.
fn sent_after<P>(segment: &Segment<P>, at: Instant, end: SeqNumber) -> bool {
    segment.sent_at > at || (segment.sent_at == at && segment.end() > end)
}

fn sent_before<P>(segment: &Segment<P>, at: Instant, end: SeqNumber) -> bool {
    segment.sent_at < at || (segment.sent_at == at && segment.end() < end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::send_queue::SegmentState;
    use crate::time::MILLISECOND;

    const PATIENCE: Patience =
        Patience { certain: false, min_rtt_ns: 20 * MILLISECOND, smoothed_rtt_ns: 40 * MILLISECOND };

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

    fn verdict(rack: &Rack, now_ms: u64, patience: Patience, segment: &Segment<()>) -> (Verdict, u64) {
        let mut wait_ns = 0;
        let verdict = rack.judge(at(now_ms), patience, &mut wait_ns)(segment);
        (verdict, wait_ns / MILLISECOND)
    }

    /// §6.2 step 5: lost once a later one was delivered and the window of reordering has passed: a quarter of
    /// 20 ms.
    #[test]
    fn a_segment_is_lost_when_later_ones_arrived_and_it_is_late() {
        let mut rack = Rack::new(SeqNumber(0));
        assert_eq!(verdict(&rack, 50, PATIENCE, &segment(0, 10, 1)), (Verdict::Stop, 0), "nothing delivered");
        rack.on_delivered(at(41), &segment(1, 11, 1), false);
        assert_eq!(verdict(&rack, 41, PATIENCE, &segment(0, 10, 1)), (Verdict::Keep, 4), "10 + 30 + 5 - 41");
        assert_eq!(verdict(&rack, 45, PATIENCE, &segment(0, 10, 1)), (Verdict::Lost, 0));
        let certain = Patience { certain: true, ..PATIENCE };
        assert_eq!(verdict(&rack, 41, certain, &segment(0, 10, 1)), (Verdict::Lost, 0), "three later ones");
        assert_eq!(verdict(&rack, 99, certain, &segment(2, 12, 1)), (Verdict::Stop, 0), "sent later");
        assert_eq!(verdict(&rack, 99, certain, &segment(0, 40, 2)), (Verdict::Keep, 0), "sent again later");
    }

    /// §6.2 step 4: with reordering seen there is always patience, and more of it after a D-SACK, once a
    /// round trip.
    #[test]
    fn reordering_makes_it_patient() {
        let mut rack = Rack::new(SeqNumber(0));
        assert!(!rack.on_delivered(at(41), &segment(5, 11, 1), false));
        assert!(rack.on_delivered(at(42), &segment(3, 10, 1), false));
        let certain = Patience { certain: true, ..PATIENCE };
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
