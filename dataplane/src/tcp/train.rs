//! Trains: segments that one turn sends one after the other and whose headers differ in the sequence number
//! alone, and in PSH of the last.
//!
//! [`Connection::poll_transmit`] returns the first segment of a turn with data. Nothing arrives in the turn,
//! so what it found out holds for those after it: nothing is owed that goes before data, nothing is lost, the
//! acknowledgement, the window and the timestamps are the same. [`Connection::train_after`] computes once how
//! many segments both windows take, [`Connection::next_of_train`] goes from one to the next, and the send queue
//! notes those of a series together. What is not like the first is left to `poll_transmit`: retransmissions,
//! segments of another length, the segment that a window is too small for or that has to wait for its pace,
//! and a FIN.

use crate::time::Instant;
use crate::wire::tcp::Flags;

use super::congestion::CongestionControl;
use super::outgoing::Outgoing;
use super::pacing::Pace;
use super::send_queue::{Segment, SendPayload};
use super::timers::Timer;
use super::{Connection, Pools};

/// A train of segments after its first.
#[derive(Clone, Copy, Debug)]
pub struct Train<P> {
    /// The last one that was sent.
    segment: Segment<P>,
    /// How many of its series are sent and not yet noted in the send queue, itself included.
    unnoted: u32,
    /// How many of its series follow it.
    in_series: u32,
    /// How many more both windows take.
    left: u32,
    /// The pace of the connection, if it has one, and the time that each segment takes at it.
    pace: Option<(Pace, u64)>,
}

impl<P> Train<P> {
    /// The segment that was sent last.
    pub const fn segment(&self) -> &Segment<P> {
        &self.segment
    }
}

impl Connection {
    /// Returns the train that `first` leads, which [`poll_transmit`](Self::poll_transmit) has just returned;
    /// `None` if no other may follow.
    pub fn train_after<P: Copy>(&self, first: &Outgoing<P>) -> Option<Train<P>> {
        let segment = first.segment.as_ref()?;
        let octets = segment.octets;
        // A new segment that reports a reduction of the congestion window is the only one that does.
        let ordinary = !segment.retransmitted() && !first.header.flags.contains(Flags::CWR);
        let nothing_lost = self.recovery.is_open()
            && self.recovery.duplicate_acks == 0
            && self.send.queue.lost_octets() == 0;
        // Nagle's algorithm may hold back a segment that is not full.
        let full = octets == self.path.emss_octets() || !self.config.behaviour.nagle;
        if !ordinary || !nothing_lost || !full || !self.timers.is_set(Timer::Retransmit) {
            return None;
        }
        let network = self.congestion.window_octets().saturating_sub(self.pipe_octets());
        let peer = (self.send.window_end() - self.send.queue.nxt()).max(0).cast_unsigned();
        let left = network.min(peer) / octets.max(1);
        let pace = || self.pace().map(|pace| (pace, pace.time_ns(octets)));
        (left > 0).then(|| Train { segment: *segment, unnoted: 0, in_series: 0, left, pace: pace() })
    }

    /// Returns the next segment of a train, which is sent at `now`, and true if it has PSH; `None` if there
    /// is none. The caller [ends](Self::end_train) the train before it does anything else with the connection.
    #[inline]
    pub fn next_of_train<'t, P: SendPayload, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
        train: &'t mut Train<P>,
    ) -> Option<(&'t Segment<P>, bool)> {
        train.left = train.left.checked_sub(1)?;
        if let Some((pace, _)) = &train.pace
            && self.pacer.wait_until(now, pace).is_some()
        {
            return None;
        }
        if train.in_series > 0 {
            train.in_series -= 1;
            train.segment.move_on(1);
        } else {
            self.note_sent_of(now, pools, train);
            let (next, count) = self.send.queue.peek_series(&pools.segments)?;
            if next.octets != train.segment.octets {
                return None;
            }
            debug_assert!(next.transmissions == 0, "a segment is unsent before its first transmission");
            (train.segment, train.in_series) = (*next, count - 1);
        }
        train.unnoted += 1;
        if let Some((_, time_ns)) = train.pace {
            self.pacer.on_sent_for(now, time_ns);
        }
        let end = train.segment.end();
        debug_assert!(
            self.pipe_octets() + (end - self.send.queue.nxt()).cast_unsigned()
                <= self.congestion.window_octets(),
            "the network takes it"
        );
        debug_assert!(end <= self.send.window_end(), "the peer takes it");
        Some((&train.segment, end == self.send.queue.end()))
    }

    /// Notes the end of a train sent at `now`. Of a segment sent, only the probe timer depends on how much is
    /// in flight.
    pub fn end_train<P: SendPayload, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
        mut train: Train<P>,
    ) {
        self.note_sent_of(now, pools, &mut train);
        self.arm_probe(now);
    }

    /// Notes in the send queue what is sent of the series under way.
    #[inline]
    fn note_sent_of<P: SendPayload, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
        train: &mut Train<P>,
    ) {
        let count = core::mem::take(&mut train.unnoted);
        if count > 0 {
            self.send.queue.advance_by(&mut pools.segments, now, count);
            self.counters.data_segments_sent += u64::from(count);
        }
    }
}

#[cfg(test)]
mod tests;
