//! Plain acknowledgements: one that moves SND.UNA forward while no loss is known, and nothing else.
//!
//! Nearly all acknowledgements are such. One changes the window, the round-trip time, RACK's latest delivery,
//! the congestion window and two timers, and releases segments from the front of the send queue. It is
//! recognized by a few comparisons. Selective acknowledgements, duplicates, ECN echoes, acknowledgements of a
//! FIN and those in a recovery, or while one could still be undone, go the general way
//! ([`Connection::on_segment`]); for a plain one that would change the same fields in the same way. Only the
//! [search for losses](super::losses) is left out if the oldest segment in flight rules any loss out: the
//! general way would take it from the budget of searches.

use crate::time::Instant;
use crate::wire::plain_segment::PlainSegment;
use crate::wire::tcp::SeqNumber;

use super::acknowledgement::Acknowledged;
use super::send_queue::{SegmentPool, SendPayload};
use super::timers::Timer;
use super::{Changes, Connection, Pools, State};

impl Connection {
    /// Takes a segment without payload whose acknowledgement is plain, or acknowledges nothing new while
    /// nothing is outstanding. Returns what has changed, or `None`, and has changed nothing, if the segment
    /// has to go the general way.
    #[inline]
    pub fn take_plain_ack<P: SendPayload, F>(
        &mut self,
        now: Instant,
        segment: &PlainSegment,
        pools: &mut Pools<P, F>,
    ) -> Option<Changes> {
        let expected = segment.payload_octets == 0
            && self.state == State::Established
            && segment.seq == self.receive.queue.nxt()
            && self.is_clock_of(now, segment);
        if !expected {
            return None;
        }
        let changes = if self.advances_plainly(segment.ack) {
            self.advance_plainly(now, segment, pools);
            Changes::ACKNOWLEDGED
        } else if segment.ack == self.send.una && self.awaits_no_acknowledgement() {
            self.note_plain_window(segment);
            Changes::empty()
        } else {
            return None;
        };
        self.receive.last_arrival = now;
        if let Some(clock) = segment.timestamps.filter(|_| self.timestamps.negotiated) {
            self.timestamps.take(now, clock.value, segment.seq, self.ack.last_sent);
        }
        Some(changes)
    }

    /// Returns true if the acknowledgement number `ack` of a segment in the
    /// [usual form](PlainSegment) acknowledges something new on an established connection, no loss is known
    /// or suspected, and nothing that was done about one could still be undone.
    #[inline]
    pub(super) fn advances_plainly(&self, ack: SeqNumber) -> bool {
        debug_assert!(!self.send.fin.is_queued() || self.state != State::Established, "a FIN needs more");
        ack > self.send.una
            && ack <= self.send.queue.nxt()
            && self.recovery.is_at_rest()
            && !self.send.queue.has_holes()
            && !self.timers.is_set(Timer::Reorder)
    }

    /// Takes the acknowledgement of a segment for which [`advances_plainly`](Self::advances_plainly) holds.
    #[inline(never)]
    pub(super) fn advance_plainly<P: SendPayload, F>(
        &mut self,
        now: Instant,
        segment: &PlainSegment,
        pools: &mut Pools<P, F>,
    ) {
        self.note_plain_window(segment);
        let flight = self.send.flight_octets();
        let outstanding = self.send.queue.outstanding_octets();
        let una = self.send.una;
        let acknowledged =
            Acknowledged { ack: segment.ack, echo: segment.timestamps.map(|clock| clock.echo) };
        let delivery = self.deliver_in_order(now, acknowledged, pools);
        self.send.una = segment.ack;
        self.note_progress(now, &delivery);
        self.recovery.duplicate_acks = 0;
        if self.may_have_lost(&pools.segments) {
            self.repair(now, segment.ack, true, outstanding, &delivery, pools);
        }
        self.grow(now, false, una, flight, &delivery);
        self.rearm(now, true, false);
    }

    /// Takes the window of a segment that acknowledges what is acceptable.
    #[inline]
    pub(super) fn note_plain_window(&mut self, segment: &PlainSegment) {
        self.probe.on_ack();
        self.note_window(segment.seq, segment.ack, self.send.scaled(segment.window));
    }

    /// Returns false if the oldest segment in flight shows that RACK would find no loss: it was sent once,
    /// and after everything that was delivered, and so were those after it.
    #[inline]
    fn may_have_lost<P>(&self, segments: &SegmentPool<P>) -> bool {
        self.ack.sack
            && self
                .send
                .queue
                .oldest(segments)
                .is_some_and(|oldest| oldest.retransmitted() || self.recovery.rack.has_overtaken(oldest))
    }
}

#[cfg(test)]
mod tests;
