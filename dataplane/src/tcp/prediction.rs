//! Header prediction: the next segment in order of an established connection, which nothing else concerns.
//!
//! Nearly all segments that carry data come in order, to a connection that has consumed everything before
//! them. Such a segment changes a handful of fields: RCV.NXT, the acknowledgement that is owed, the peer's
//! window and clock. It is recognized by a few comparisons, and its payload does not enter the receive queue:
//! the layer above consumes it where it lies, in its frame, and gives back what it cannot consume yet. Every
//! other segment goes the general way ([`Connection::on_segment`]); for a predicted one that would change the
//! same fields in the same way.

use crate::device::Frame;
use crate::limits;
use crate::time::Instant;
use crate::wire::plain_segment::PlainSegment;

use super::ecn::EcnField;
use super::send_queue::SendPayload;
use super::timers::Timer;
use super::{Changes, Connection, Pools, State};

impl Connection {
    /// Returns true if `segment` is the next one in order, all of its payload fits the window, and neither
    /// its flags, its clock nor its acknowledgement number need more than [`take_predicted`] does.
    ///
    /// [`take_predicted`]: Self::take_predicted
    #[inline]
    pub fn predicts<P, F>(&self, now: Instant, segment: &PlainSegment, pools: &Pools<P, F>) -> bool {
        let window = (self.receive.edge - segment.seq).max(0) as usize;
        self.state == State::Established
            && self.receive.is_drained()
            && segment.seq == self.receive.queue.nxt()
            && (1..=window).contains(&segment.payload_octets)
            && self.is_clock_of(now, segment)
            && segment.ack >= self.send.una
            && self.send.is_acceptable_ack(segment.ack)
            && pools.held.free_frames() > 0
    }

    /// Returns true if the segment has the timestamps option exactly if the ends have agreed on it, and its
    /// timestamp is not old (RFC 7323 §3.2, §5.3).
    #[inline]
    pub(super) fn is_clock_of(&self, now: Instant, segment: &PlainSegment) -> bool {
        match segment.timestamps {
            Some(clock) => !self.timestamps.negotiated || !self.timestamps.is_old(now, clock.value),
            None => !self.timestamps.negotiated,
        }
    }

    /// Takes a segment that [`predicts`](Self::predicts) holds for. Its payload is in order from now on, and
    /// lies in its frame: [`pass`](Self::pass) consumes it, or [`keep`](Self::keep) keeps it. Returns what
    /// else has changed.
    #[inline]
    pub fn take_predicted<P: SendPayload, F: Frame>(
        &mut self,
        now: Instant,
        segment: &PlainSegment,
        pools: &mut Pools<P, F>,
    ) -> Changes {
        let mut changes = Changes::DATA;
        if self.repeats_plainly(segment.ack, &pools.segments) {
            self.note_plain_window(segment);
        } else if self.advances_plainly(segment.ack) {
            self.advance_plainly(now, segment, pools);
            changes |= Changes::ACKNOWLEDGED;
        } else if let Ok(acknowledged) = self.on_ack(now, &segment.header(), false, pools) {
            changes |= acknowledged;
        }
        if now - self.receive.last_arrival >= limits::MIN_RTO_NS {
            self.ack.expect_small_window();
        }
        self.receive.last_arrival = now;
        if let Some(clock) = segment.timestamps.filter(|_| self.timestamps.negotiated) {
            self.timestamps.take(now, clock.value, segment.seq, self.ack.last_sent);
        }
        let marked = EcnField::from_bits(segment.ecn) == EcnField::CongestionExperienced;
        if self.ecn.on_data(marked, false) && self.ack.on_ce_change(self.receive.next()) {
            self.timers.clear(Timer::DelayedAck);
        }
        self.receive.queue.advance(segment.payload_octets);
        self.receive.held_frames_peak = self.receive.held_frames_peak.max(1);
        self.ack.on_in_order(self.receive.queue.nxt());
        let at_once = segment.push || self.holds_several(segment.payload_octets);
        self.owe_ack_for_data(now, at_once);
        changes
    }

    /// Returns true if nothing is outstanding, no recovery is under way or could still be undone, and none of
    /// its timers runs: an acknowledgement that acknowledges nothing new then changes no more than the
    /// window.
    #[inline]
    pub(super) const fn awaits_no_acknowledgement(&self) -> bool {
        self.send.queue.is_empty() && self.recovery.is_at_rest() && !self.timers.repairs()
    }

    /// Consumes the first `octets` of the payload of a predicted segment.
    #[inline]
    pub fn pass(&mut self, octets: usize) {
        self.receive.queue.pass(octets);
        if self.receive.may_grow_window() {
            self.ack.owe_one();
        }
    }

    /// Consumes `octets` octets, all of the payload of a predicted segment, whose window
    /// [is promised](Self::promise_window) after this.
    #[inline]
    pub fn pass_promised(&mut self, octets: usize) {
        self.receive.queue.pass(octets);
    }

    /// Keeps the rest of the payload of a predicted segment, which is at `offset` of `frame`, for later.
    pub fn keep<P, F: Frame>(&mut self, pools: &mut Pools<P, F>, offset: usize, frame: F) {
        self.receive.queue.keep(&mut pools.held, offset, frame);
    }
}
