//! Trains: segments that one turn sends one after the other and whose headers differ in sequence number and
//! length alone, and in PSH of the last.
//!
//! [`Connection::poll_transmit`] returns the first segment of a turn with data. Nothing arrives in the turn,
//! so what it found out holds for those after it: nothing is owed that goes before data, nothing is lost, the
//! acknowledgement, the window and the timestamps are the same. [`Connection::train_after`] computes once how
//! much both windows take, [`Connection::next_of_train`] goes from one to the next, and the send queue notes
//! those of a series together. What is not like the first is left to `poll_transmit`: retransmissions, the
//! segment that a window is too small for or that has to wait for its pace, one with an RDMA option, and a
//! FIN.

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
    /// Octets of the shortest and of the longest.
    least_octets: u32,
    most_octets: u32,
    /// Octets that both windows still take.
    left_octets: u32,
    /// The pace of the connection, if it has one.
    pace: Option<TrainPace>,
}

/// The pace of a train.
#[derive(Clone, Copy, Debug)]
struct TrainPace {
    pace: Pace,
    /// Octets of the first segment, and the time that they take.
    octets: u32,
    time_ns: u64,
}

impl TrainPace {
    fn new(pace: Pace, octets: u32) -> Self {
        Self { pace, octets, time_ns: pace.time_ns(octets) }
    }

    /// Returns the time that a segment takes.
    fn time_ns(&self, octets: u32) -> u64 {
        if octets == self.octets { self.time_ns } else { self.pace.time_ns(octets) }
    }
}

impl<P> Train<P> {
    /// The segment that was sent last.
    pub const fn segment(&self) -> &Segment<P> {
        &self.segment
    }

    /// How many more segments of its series there are: each is computed from the one before. Both windows may
    /// take fewer.
    #[inline]
    pub const fn in_series(&self) -> u32 {
        self.in_series
    }
}

impl Connection {
    /// Returns the train that `first` leads, which [`poll_transmit`](Self::poll_transmit) has just returned;
    /// `None` if no other may follow. Its segments are all as long as the first if `alike` is true.
    pub fn train_after<P: SendPayload>(&self, first: &Outgoing<P>, alike: bool) -> Option<Train<P>> {
        let segment = first.segment.as_ref()?;
        let octets = segment.octets;
        // A new segment that reports a reduction of the congestion window is the only one that does.
        let ordinary = !segment.retransmitted() && !first.header.flags.contains(Flags::CWR);
        let nothing_lost = self.recovery.is_open()
            && self.recovery.duplicate_acks == 0
            && self.send.queue.lost_octets() == 0;
        // Nagle's algorithm may hold back a segment that is not full.
        let emss_octets = self.path.emss_octets();
        let nagle = self.config.behaviour.nagle;
        let full = octets == emss_octets || !nagle;
        // The headers of segments with an option differ in it.
        let ordinary = ordinary && self.payload_option_octets(&segment.payload) == 0;
        if !self.has_unsent() || !ordinary || !nothing_lost || !full || !self.timers.is_set(Timer::Retransmit)
        {
            return None;
        }
        let (least_octets, most_octets) = if alike || nagle { (octets, octets) } else { (1, emss_octets) };
        let network = self.congestion.window_octets().saturating_sub(self.pipe_octets());
        let peer = (self.send.window_end() - self.send.queue.nxt()).max(0).cast_unsigned();
        let left_octets = network.min(peer);
        let pace = || self.pace().map(|pace| TrainPace::new(pace, octets));
        (left_octets >= least_octets).then(|| Train {
            segment: *segment,
            unnoted: 0,
            in_series: 0,
            least_octets,
            most_octets,
            left_octets,
            pace: pace(),
        })
    }

    /// Returns the next segment of a train, which is sent at `now`, and true if it has PSH; `None` if there
    /// is none. The caller [ends](Self::end_train) the train before it does anything else with the
    /// connection.
    #[inline]
    pub fn next_of_train<'t, P: SendPayload, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
        train: &'t mut Train<P>,
    ) -> Option<(&'t Segment<P>, bool)> {
        if train.in_series > 0 {
            return self.next_in_series(now, train);
        }
        if self.has_to_wait(now, train) {
            return None;
        }
        self.note_sent_of(now, pools, train);
        let (next, count) = self.send.queue.peek_series(&pools.segments)?;
        let most = train.most_octets.min(train.left_octets);
        let has_option = self.payload_option_octets(&next.payload) > 0;
        if has_option || !(train.least_octets..=most).contains(&next.octets) {
            return None;
        }
        debug_assert!(next.transmissions == 0, "a segment is unsent before its first transmission");
        (train.segment, train.in_series) = (*next, count - 1);
        Some(self.send_of_train(now, train))
    }

    /// Returns the next segment of the series under way, as [`next_of_train`](Self::next_of_train) does.
    #[expect(
        clippy::inline_always,
        reason = "most segments of a busy connection are sent by it, and it is shorter than a call of it"
    )]
    #[inline(always)]
    pub fn next_in_series<'t, P: SendPayload>(
        &mut self,
        now: Instant,
        train: &'t mut Train<P>,
    ) -> Option<(&'t Segment<P>, bool)> {
        debug_assert!(train.in_series > 0, "the series has ended");
        if self.has_to_wait(now, train) || train.segment.octets > train.left_octets {
            return None;
        }
        train.in_series -= 1;
        train.segment.move_on(1);
        Some(self.send_of_train(now, train))
    }

    /// Returns true if the next segment has to wait for its pace.
    #[inline]
    fn has_to_wait<P>(&self, now: Instant, train: &Train<P>) -> bool {
        train.pace.as_ref().is_some_and(|TrainPace { pace, .. }| self.pacer.wait_until(now, pace).is_some())
    }

    /// Notes in a train that its segment is sent at `now`. Returns it, and true if it has PSH.
    #[inline]
    fn send_of_train<'t, P: SendPayload>(
        &mut self,
        now: Instant,
        train: &'t mut Train<P>,
    ) -> (&'t Segment<P>, bool) {
        train.unnoted += 1;
        train.left_octets -= train.segment.octets;
        if let Some(pace) = &train.pace {
            self.pacer.on_sent_for(now, pace.time_ns(train.segment.octets));
        }
        let end = train.segment.end();
        debug_assert!(
            self.pipe_octets() + (end - self.send.queue.nxt()).cast_unsigned()
                <= self.congestion.window_octets(),
            "the network takes it"
        );
        debug_assert!(end <= self.send.window_end(), "the peer takes it");
        (&train.segment, end == self.send.queue.end())
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
