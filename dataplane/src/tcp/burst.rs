//! Bursts: segments with data that a connection sends one after the other, and whose headers differ in
//! sequence number, length, PSH and RDMA option only. Nearly all data leaves so, also a single segment.
//!
//! Nothing arrives while a connection is served, so what [`Burst::begin`] finds out once holds for all of
//! them: the acknowledgement, the window, the timestamps, how much both windows allow, and that nothing is to
//! be sent before them ([`Unusual::SEND`]). [`Burst::advance`] goes from one to the next, and the send queue
//! records those of a group together. Everything else is left to [`Connection::poll_transmit`]:
//! retransmissions, probes, the segment that a window is too small for or that has to wait for its pace or
//! for more data, one that is to be cut, and segments without data.

use crate::time::Instant;
use crate::wire::tcp::{Flags, SegmentHeader};

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

impl<P: SendPayload> Burst<P> {
    /// Begins a burst with the next segment never sent, which is sent at `now`; `None`, and nothing changes,
    /// if that is not to be sent so, or there is none. None of its segments has an RDMA option if
    /// `without_options` is true. None of the conditions that [send other segments](Unusual::SEND) may hold.
    /// The caller [ends](Self::end) the burst before it does anything else with the connection.
    #[inline]
    pub fn begin<F>(
        tcp: &mut Connection,
        now: Instant,
        pools: &mut Pools<P, F>,
        without_options: bool,
    ) -> Option<Self> {
        debug_assert!(!Unusual::of(tcp).intersects(Unusual::SEND), "another segment goes before");
        let (first, count) = tcp.send.queue.peek_group(&pools.segments)?;
        let octets = first.octets;
        let option_octets = tcp.receive.rdma_option.octets_for(&first.payload);
        let (emss_octets, nagle) = (tcp.path.emss_octets(), tcp.config.behaviour.nagle);
        // Nagle's algorithm may hold back a segment that is not full, and one that is too long is cut.
        let full_octets = emss_octets - option_octets;
        let fits = octets == full_octets || (octets < full_octets && !nagle);
        if !fits || (without_options && option_octets > 0) {
            return None;
        }
        let mut pace = tcp.pace();
        if pace.as_ref().is_some_and(|pace| tcp.pacer.wait_until(now, pace).is_some()) {
            return None;
        }
        if tcp.restart_after_idle(now) {
            // Its window is smaller.
            pace = tcp.pace();
        }
        let pipe = tcp.pipe_octets();
        let network = tcp.congestion.window_octets().saturating_sub(pipe);
        let peer = (tcp.send.window_end() - tcp.send.queue.nxt()).max(0).cast_unsigned();
        if octets > peer || (pipe > 0 && octets > network) {
            return None;
        }
        let (least_octets, most_octets) = if nagle { (octets, octets) } else { (1, emss_octets) };
        let segment = *first;
        let mut burst = Self {
            header: tcp.segment_header(now, segment.seq, Flags::ACK),
            ecn: tcp.ecn.field(),
            push: segment.end() == tcp.send.queue.end(),
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
            tcp.pacer.on_sent(now, &pace, octets);
            burst.pace = Some(BurstPace::new(pace, octets));
        }
        if tcp.send.flight_octets() == 0 {
            tcp.activity.last_progress = now;
        }
        tcp.activity.data_sent_at = now;
        tcp.timers.clear(Timer::Persist);
        if !tcp.timers.is_set(Timer::Retransmit) {
            tcp.arm_retransmit(now);
        }
        tcp.on_ack_sent();
        Some(burst)
    }

    /// Goes on to the next segment of a burst, which is sent at `now`. Returns false if there is none, or it
    /// has more than `most_octets` octets.
    #[inline]
    pub fn advance<F>(
        &mut self,
        tcp: &mut Connection,
        now: Instant,
        pools: &mut Pools<P, F>,
        most_octets: u32,
    ) -> bool {
        if self.left_in_group > 0 {
            let next = self.fit_of_group(tcp, now, (self.segment.octets <= most_octets).into());
            if next > 0 {
                self.advance_in_group(tcp, now, next);
            }
            return next > 0;
        }
        if self.push || self.has_to_wait(tcp, now) {
            return false;
        }
        self.mark_sent(tcp, now, pools);
        let Some((next, count)) = tcp.send.queue.peek_group(&pools.segments) else { return false };
        let option_octets = tcp.receive.rdma_option.octets_for(&next.payload);
        let full_octets = tcp.path.emss_octets() - option_octets;
        let most = self.most_octets.min(self.left_octets).min(full_octets).min(most_octets);
        if (self.without_options && option_octets > 0) || !(self.least_octets..=most).contains(&next.octets) {
            return false;
        }
        debug_assert!(next.transmissions == 0, "a segment is unsent before its first transmission");
        (self.segment, self.left_in_group) = (*next, count - 1);
        self.count_sent(tcp, now, 1);
        true
    }

    /// Returns how many of the segments that are left of the current group may be sent at `now`, up to
    /// `most`: one by one where the connection has a pace. The caller sends so many, or fewer
    /// ([`advance_in_group`](Self::advance_in_group)).
    #[inline]
    pub fn fit_of_group(&self, tcp: &Connection, now: Instant, most: u32) -> u32 {
        let fit = self.left_octets / self.segment.octets.max(1);
        let fit = fit.min(self.left_in_group).min(most);
        if self.pace.is_none() { fit } else { fit.min((!self.has_to_wait(tcp, now)).into()) }
    }

    /// Goes on by `count` segments of the current group, which [fit](Self::fit_of_group) and are sent at
    /// `now`.
    #[inline]
    pub fn advance_in_group(&mut self, tcp: &mut Connection, now: Instant, count: u32) {
        self.left_in_group -= count;
        self.segment.move_on(count);
        self.count_sent(tcp, now, count);
    }

    /// Whether the next segment has to wait for its pace.
    #[inline]
    fn has_to_wait(&self, tcp: &Connection, now: Instant) -> bool {
        self.pace.as_ref().is_some_and(|BurstPace { pace, .. }| tcp.pacer.wait_until(now, pace).is_some())
    }

    /// Records in a burst that its segment, which is not the first, and the `count - 1` before it, which are
    /// as long, are sent at `now`: one where the connection has a pace.
    #[inline]
    fn count_sent(&mut self, tcp: &mut Connection, now: Instant, count: u32) {
        self.unrecorded += count;
        self.left_octets -= self.segment.octets * count;
        if let Some(pace) = &self.pace {
            debug_assert_eq!(count, 1, "each has its time");
            tcp.pacer.on_sent_for(now, pace.time_ns(self.segment.octets));
        }
        let end = self.segment.end();
        self.push = end == tcp.send.queue.end();
        debug_assert!(
            tcp.pipe_octets() + (end - tcp.send.queue.nxt()).cast_unsigned()
                <= tcp.congestion.window_octets(),
            "the network takes it"
        );
        debug_assert!(end <= tcp.send.window_end(), "the peer takes it");
    }

    /// Ends a burst sent at `now`. Of the segments sent, only the probe timer depends on how much is in
    /// flight.
    #[inline]
    pub fn end<F>(&mut self, tcp: &mut Connection, now: Instant, pools: &mut Pools<P, F>) {
        self.mark_sent(tcp, now, pools);
        tcp.arm_probe(now);
    }

    /// Records in the send queue what is sent of the current group.
    #[inline]
    fn mark_sent<F>(&mut self, tcp: &mut Connection, now: Instant, pools: &mut Pools<P, F>) {
        let count = core::mem::take(&mut self.unrecorded);
        if count > 0 {
            tcp.send.queue.advance_by(&mut pools.segments, now, count);
            tcp.counters.data_segments_sent += u64::from(count);
        }
    }
}

#[cfg(test)]
mod tests;
