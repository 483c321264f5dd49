//! Bursts: segments with data that a connection sends one after the other, and whose headers differ in
//! sequence number, length, PSH and RDMA option only. Nearly all data leaves so, also a single segment.
//!
//! Nothing arrives while a connection is served, so what [`Connection::begin_burst`] finds out once holds for
//! all of them: the acknowledgement, the window, the timestamps, how much both windows allow, and that
//! nothing is to be sent before them ([`Unusual::SEND`]). [`Connection::next_of_burst`] goes from one to the
//! next, and the send queue records those of a group together. Everything else is left to
//! [`poll_transmit`](Connection::poll_transmit): retransmissions, probes, the segment that a window is too
//! small for or that has to wait for its pace or for more data, one that is to be cut, and segments without
//! data.

use crate::time::Instant;
use crate::wire::tcp::{Flags, SegmentHeader, SeqNumber};

use super::congestion::CongestionControl;
use super::ecn::EcnField;
use super::pacing::Pace;
use super::send_queue::{Segment, SendPayload};
use super::timers::Timer;
use super::unusual::Unusual;
use super::{Connection, Pools};

/// A burst of segments that are being sent.
#[derive(Clone, Copy, Debug)]
pub struct Burst<P> {
    /// The header of all segments, but for sequence number and PSH.
    header: SegmentHeader,
    ecn: EcnField,
    /// The segment that is sent now.
    segment: Segment<P>,
    /// How many of its group are sent and not yet recorded in the send queue, itself included.
    unrecorded: u32,
    /// How many of its group follow it.
    left_in_group: u32,
    /// None has an option.
    without_options: bool,
    /// Octets of the shortest and of the longest.
    least_octets: u32,
    most_octets: u32,
    /// Octets that both windows still allow.
    left_octets: u32,
    /// It is the last segment of the queue.
    push: bool,
    /// The pace of the connection, if it has one.
    pace: Option<BurstPace>,
}

/// The pace of a burst.
#[derive(Clone, Copy, Debug)]
struct BurstPace {
    pace: Pace,
    /// Octets of the first segment, and the time that they take.
    octets: u32,
    time_ns: u64,
}

impl BurstPace {
    fn new(pace: Pace, octets: u32) -> Self {
        Self { pace, octets, time_ns: pace.time_ns(octets) }
    }

    /// Returns the time that a segment takes.
    fn time_ns(&self, octets: u32) -> u64 {
        if octets == self.octets { self.time_ns } else { self.pace.time_ns(octets) }
    }
}

impl<P> Burst<P> {
    /// The header of all segments, without PSH and RDMA option. Its sequence number is that of the first.
    #[inline]
    pub const fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The ECN field of their IP headers.
    #[inline]
    pub const fn ecn(&self) -> EcnField {
        self.ecn
    }

    /// The segment that is sent now.
    #[inline]
    pub const fn segment(&self) -> &Segment<P> {
        &self.segment
    }

    /// Whether it has PSH: no other is queued after it.
    #[inline]
    pub const fn push(&self) -> bool {
        self.push
    }

    /// How many more segments of its group there are: each is computed from the one before. Both windows may
    /// take fewer.
    #[inline]
    pub const fn left_in_group(&self) -> u32 {
        self.left_in_group
    }
}

impl Connection {
    /// Begins a burst with the next segment never sent, which is sent at `now`; `None`, and nothing changes,
    /// if that is not to be sent so, or there is none. None of its segments has an RDMA option if
    /// `without_options` is true. None of the conditions that [send other segments](Unusual::SEND) may hold.
    /// The caller [ends](Self::end_burst) the burst before it does anything else with the connection.
    #[inline]
    pub fn begin_burst<P: SendPayload, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
        without_options: bool,
    ) -> Option<Burst<P>> {
        debug_assert!(!Unusual::of(self).intersects(Unusual::SEND), "another segment goes before");
        let (first, count) = self.send.queue.peek_group(&pools.segments)?;
        let octets = first.octets;
        let option_octets = self.receive.rdma_option.octets_for(&first.payload);
        let (emss_octets, nagle) = (self.path.emss_octets(), self.config.behaviour.nagle);
        // Nagle's algorithm may hold back a segment that is not full, and one that is too long is cut.
        let full_octets = emss_octets - option_octets;
        let fits = octets == full_octets || (octets < full_octets && !nagle);
        if !fits || (without_options && option_octets > 0) {
            return None;
        }
        let mut pace = self.pace();
        if pace.as_ref().is_some_and(|pace| self.pacer.wait_until(now, pace).is_some()) {
            return None;
        }
        if self.restart_after_idle(now) {
            // Its window is smaller.
            pace = self.pace();
        }
        let pipe = self.pipe_octets();
        let network = self.congestion.window_octets().saturating_sub(pipe);
        let peer = (self.send.window_end() - self.send.queue.nxt()).max(0).cast_unsigned();
        if octets > peer || (pipe > 0 && octets > network) {
            return None;
        }
        let (least_octets, most_octets) = if nagle { (octets, octets) } else { (1, emss_octets) };
        let ecn = if self.ecn.is_negotiated() { EcnField::Capable0 } else { EcnField::NotCapable };
        let segment = *first;
        let mut burst = Burst {
            header: self.segment_header(now, segment.seq, Flags::ACK),
            ecn,
            push: segment.end() == self.send.queue.end(),
            segment,
            unrecorded: 1,
            left_in_group: count - 1,
            without_options,
            least_octets,
            most_octets,
            left_octets: network.min(peer).saturating_sub(octets),
            pace: None,
        };
        if let Some(pace) = pace {
            self.pacer.on_sent(now, &pace, octets);
            burst.pace = Some(BurstPace::new(pace, octets));
        }
        if self.send.flight_octets() == 0 {
            self.activity.last_progress = now;
        }
        self.activity.data_sent_at = now;
        self.timers.clear(Timer::Persist);
        if !self.timers.is_set(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
        self.on_ack_sent();
        Some(burst)
    }

    /// Goes on to the next segment of a burst, which is sent at `now`. Returns false if there is none, or it
    /// has more than `most_octets` octets.
    #[inline]
    pub fn next_of_burst<P: SendPayload, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
        burst: &mut Burst<P>,
        most_octets: u32,
    ) -> bool {
        if burst.left_in_group > 0 {
            let next = self.fit_of_group(now, burst, (burst.segment.octets <= most_octets).into());
            if next > 0 {
                self.send_of_group(now, burst, next);
            }
            return next > 0;
        }
        if burst.push || self.has_to_wait(now, burst) {
            return false;
        }
        self.mark_sent_of(now, pools, burst);
        let Some((next, count)) = self.send.queue.peek_group(&pools.segments) else { return false };
        let option_octets = self.receive.rdma_option.octets_for(&next.payload);
        let full_octets = self.path.emss_octets() - option_octets;
        let most = burst.most_octets.min(burst.left_octets).min(full_octets).min(most_octets);
        if (burst.without_options && option_octets > 0) || !(burst.least_octets..=most).contains(&next.octets)
        {
            return false;
        }
        debug_assert!(next.transmissions == 0, "a segment is unsent before its first transmission");
        (burst.segment, burst.left_in_group) = (*next, count - 1);
        self.send_of_burst(now, burst, 1);
        true
    }

    /// Returns how many of the segments that are left of the current group may be sent at `now`, up to
    /// `most`: one by one where the connection has a pace. The caller sends so many, or fewer
    /// ([`send_of_group`](Self::send_of_group)).
    #[inline]
    pub fn fit_of_group<P>(&self, now: Instant, burst: &Burst<P>, most: u32) -> u32 {
        let fit = burst.left_octets / burst.segment.octets.max(1);
        let fit = fit.min(burst.left_in_group).min(most);
        if burst.pace.is_none() { fit } else { fit.min((!self.has_to_wait(now, burst)).into()) }
    }

    /// Goes on by `count` segments of the current group, which [fit](Self::fit_of_group) and are sent at
    /// `now`.
    #[inline]
    pub fn send_of_group<P: SendPayload>(&mut self, now: Instant, burst: &mut Burst<P>, count: u32) {
        burst.left_in_group -= count;
        burst.segment.move_on(count);
        self.send_of_burst(now, burst, count);
    }

    /// Returns the sequence number after all octets that are queued: the segment that ends there has PSH.
    #[inline]
    pub const fn queued_until(&self) -> SeqNumber {
        self.send.queue.end()
    }

    /// Whether the next segment has to wait for its pace.
    #[inline]
    fn has_to_wait<P>(&self, now: Instant, burst: &Burst<P>) -> bool {
        burst.pace.as_ref().is_some_and(|BurstPace { pace, .. }| self.pacer.wait_until(now, pace).is_some())
    }

    /// Records in a burst that its segment, which is not the first, and the `count - 1` before it, which are
    /// as long, are sent at `now`: one where the connection has a pace.
    #[inline]
    fn send_of_burst<P: SendPayload>(&mut self, now: Instant, burst: &mut Burst<P>, count: u32) {
        burst.unrecorded += count;
        burst.left_octets -= burst.segment.octets * count;
        if let Some(pace) = &burst.pace {
            debug_assert_eq!(count, 1, "each has its time");
            self.pacer.on_sent_for(now, pace.time_ns(burst.segment.octets));
        }
        let end = burst.segment.end();
        burst.push = end == self.send.queue.end();
        debug_assert!(
            self.pipe_octets() + (end - self.send.queue.nxt()).cast_unsigned()
                <= self.congestion.window_octets(),
            "the network takes it"
        );
        debug_assert!(end <= self.send.window_end(), "the peer takes it");
    }

    /// Ends a burst sent at `now`. Of the segments sent, only the probe timer depends on how much is in
    /// flight.
    #[inline]
    pub fn end_burst<P: SendPayload, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
        burst: &mut Burst<P>,
    ) {
        self.mark_sent_of(now, pools, burst);
        self.arm_probe(now);
    }

    /// Records in the send queue what is sent of the current group.
    #[inline]
    fn mark_sent_of<P: SendPayload, F>(
        &mut self,
        now: Instant,
        pools: &mut Pools<P, F>,
        burst: &mut Burst<P>,
    ) {
        let count = core::mem::take(&mut burst.unrecorded);
        if count > 0 {
            self.send.queue.advance_by(&mut pools.segments, now, count);
            self.counters.data_segments_sent += u64::from(count);
        }
    }
}

#[cfg(test)]
mod tests;
