//! The scoreboard of a send queue (RFC 6675): acknowledgements free its segments, selective ones and losses
//! change their state.

use super::SendQueue;
use super::group::{Segment, SegmentPool, SegmentState, SendPayload};
use crate::tcp::scan_budget::ScanBudget;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

impl SendQueue {
    /// Frees the segments that `ack` covers completely. Calls `delivered` before, for each group of them,
    /// with the first and their number. A segment acknowledged in part stays, and all of it is retransmitted
    /// if necessary, so that its boundaries hold.
    pub fn acknowledge<P: SendPayload>(
        &mut self,
        pool: &mut SegmentPool<P>,
        ack: SeqNumber,
        mut delivered: impl FnMut(&Segment<()>, u32),
    ) {
        while let Some(front) = self.groups.front() {
            let Some(group) = pool.get(front) else { break };
            let first = group.first.bare();
            if first.end() > ack || first.transmissions == 0 {
                break;
            }
            let is_entire = group.end() <= ack;
            let count = if is_entire { group.count } else { (ack - first.seq) as u32 / first.octets.max(1) };
            delivered(&first, count);
            self.subtract(first.state, first.octets * count, count);
            self.len -= count;
            if !is_entire {
                pool.drop_first(front, count);
                break;
            }
            if self.lost_from == Some(front) {
                self.lost_from = pool.next(front);
            }
            pool.drop_front(&mut self.groups, count);
        }
    }

    /// Frees, as [`acknowledge`](Self::acknowledge) does, the segments that `ack` covers completely, up to
    /// the first that is not in flight or was sent again. Without a [hole](Self::has_holes) those before it
    /// were sent in order, so the last of them says what is to be known of all.
    #[inline]
    pub fn acknowledge_sent_once<P: SendPayload>(
        &mut self,
        pool: &mut SegmentPool<P>,
        ack: SeqNumber,
    ) -> SentOnce {
        debug_assert!(!self.has_holes(), "the last segment was not the last to be delivered");
        let mut sum = SentOnce::default();
        while let Some(front) = self.groups.front() {
            let Some(group) = pool.get(front) else { break };
            let first = &group.first;
            if first.end() > ack || first.transmissions != 1 || first.state != SegmentState::InFlight {
                break;
            }
            let is_entire = group.end() <= ack;
            let count = if is_entire { group.count } else { (ack - first.seq) as u32 / first.octets.max(1) };
            let octets = first.octets * count;
            sum.octets += octets;
            sum.count += count;
            sum.largest_octets = sum.largest_octets.max(first.octets);
            (sum.end, sum.sent_at) = (first.seq + octets, first.sent_at);
            if !is_entire {
                pool.drop_first(front, count);
                break;
            }
            if self.lost_from == Some(front) {
                self.lost_from = pool.next(front);
            }
            pool.drop_front(&mut self.groups, count);
        }
        self.in_flight_octets -= sum.octets;
        self.len -= sum.count;
        sum
    }

    /// Subtracts `count` segments, of `octets` octets together, from the sums of those in `state`.
    #[inline]
    const fn subtract(&mut self, state: SegmentState, octets: u32, count: u32) {
        match state {
            SegmentState::InFlight => self.in_flight_octets -= octets,
            SegmentState::Lost => self.lost_octets -= octets,
            SegmentState::Sacked => {
                self.sacked_octets -= octets;
                self.sacked_segments -= count;
            }
            SegmentState::Unsent => {}
        }
    }

    /// Marks the segments that lie completely inside `blocks` (first octet, octet after the last) as held by
    /// the peer. Calls `delivered` before, for each group of those newly marked, with the first and their
    /// number.
    pub fn mark_sacked<P: SendPayload>(
        &mut self,
        pool: &mut SegmentPool<P>,
        budget: &mut ScanBudget,
        blocks: &[(SeqNumber, SeqNumber)],
        mut delivered: impl FnMut(&Segment<()>, u32),
    ) {
        let Some(highest) = blocks.iter().map(|block| block.1).reduce(SeqNumber::later) else { return };
        let is_held = |segment: &Segment<()>| {
            let held =
                |&(left, right): &(SeqNumber, SeqNumber)| left <= segment.seq && segment.end() <= right;
            blocks.iter().any(held)
        };
        let mut at = self.groups.front();
        while let Some(node) = at {
            budget.spend_one();
            let Some(group) = pool.get(node) else { return };
            let (first, count) = (group.first.bare(), group.count);
            if first.end() > highest || first.transmissions == 0 {
                return;
            }
            let held = is_held(&first);
            let alike = count_alike(budget, first, count, |segment| is_held(segment) == held);
            pool.split(&mut self.groups, node, alike);
            if held && first.state != SegmentState::Sacked {
                delivered(&first, alike);
                let octets = first.octets * alike;
                self.subtract(first.state, octets, alike);
                if let Some(group) = pool.get_mut(node) {
                    group.first.state = SegmentState::Sacked;
                }
                let end = first.seq + octets;
                self.sacked_end = if self.sacked_segments == 0 { end } else { self.sacked_end.later(end) };
                self.sacked_segments += alike;
                self.sacked_octets += octets;
            }
            at = pool.next(node);
        }
    }

    /// Calls `judge` for the segments in flight, oldest first, and marks as lost those for which it returns
    /// [`Verdict::Lost`]. It ends at the first [`Verdict::Stop`]. Returns true if it marked any.
    pub fn mark_lost<P: SendPayload>(
        &mut self,
        pool: &mut SegmentPool<P>,
        budget: &mut ScanBudget,
        mut judge: impl FnMut(&Segment<()>) -> Verdict,
    ) -> bool {
        self.mark_lost_with(pool, budget, |segment, _| judge(segment))
    }

    /// Marks segments as [`mark_lost`](Self::mark_lost) does, by their payload too: `judge` gets that of the
    /// first of the group.
    #[inline]
    pub fn mark_lost_with<P: SendPayload>(
        &mut self,
        pool: &mut SegmentPool<P>,
        budget: &mut ScanBudget,
        mut judge: impl FnMut(&Segment<()>, &P) -> Verdict,
    ) -> bool {
        let mut first_lost = None;
        let mut at = self.groups.front();
        while let Some(node) = at {
            budget.spend_one();
            let Some(group) = pool.get(node) else { break };
            let (first, count, payload) = (group.first.bare(), group.count, &group.first.payload);
            match first.state {
                SegmentState::Unsent => break,
                SegmentState::Sacked | SegmentState::Lost => {}
                SegmentState::InFlight => match judge(&first, payload) {
                    Verdict::Stop => break,
                    verdict => {
                        let alike =
                            count_alike(budget, first, count, |segment| judge(segment, payload) == verdict);
                        pool.split(&mut self.groups, node, alike);
                        if verdict == Verdict::Lost {
                            let octets = first.octets * alike;
                            self.subtract(SegmentState::InFlight, octets, alike);
                            self.lost_octets += octets;
                            if let Some(group) = pool.get_mut(node) {
                                group.first.state = SegmentState::Lost;
                            }
                            first_lost = first_lost.or(at);
                        }
                    }
                },
            }
            at = pool.next(node);
        }
        if first_lost.is_some() {
            // The first lost segment is this one or an older one; the next search starts at the front.
            self.lost_from = self.groups.front();
        }
        first_lost.is_some()
    }

    /// Marks all lost segments as in flight: they were not lost (a spurious timeout or retransmission).
    pub fn unmark_lost<P>(&mut self, pool: &mut SegmentPool<P>) {
        while self.peek_lost(pool).is_some() {
            let Some(group) = self.lost_from.and_then(|node| pool.get_mut(node)) else { return };
            group.first.state = SegmentState::InFlight;
            self.lost_octets -= group.octets();
            self.in_flight_octets += group.octets();
        }
    }

    /// Marks all selectively acknowledged segments as lost: the peer has dropped them (RFC 2018 §8).
    pub fn forget_sacked<P>(&mut self, pool: &mut SegmentPool<P>) {
        let mut at = self.groups.front();
        while let Some(node) = at {
            let Some(group) = pool.get_mut(node) else { break };
            if group.first.state == SegmentState::Sacked {
                group.first.state = SegmentState::Lost;
                self.lost_octets += group.octets();
            }
            at = pool.next(node);
        }
        (self.sacked_octets, self.sacked_segments) = (0, 0);
        self.lost_from = self.groups.front();
    }
}

/// For how many of the `count` segments from `first` on `is_alike` returns true, before it returns false. It
/// is not called for the first.
#[inline]
fn count_alike(
    budget: &mut ScanBudget,
    first: Segment<()>,
    count: u32,
    mut is_alike: impl FnMut(&Segment<()>) -> bool,
) -> u32 {
    let mut segment = first;
    for alike in 1..count {
        segment.move_on(1);
        if !is_alike(&segment) {
            return alike;
        }
        budget.spend_one();
    }
    count
}

/// Segments sent once and in order that an acknowledgement covers
/// ([`SendQueue::acknowledge_sent_once`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentOnce {
    /// How many they are.
    pub count: u32,
    /// Octets of all.
    pub octets: u32,
    /// Octets of the largest.
    pub largest_octets: u32,
    /// The sequence number after the last, if there is any.
    pub end: SeqNumber,
    /// When the last was sent.
    pub sent_at: Instant,
}

/// The verdict on a segment in flight, for [`SendQueue::mark_lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may still arrive.
    Keep,
    /// It is lost.
    Lost,
    /// Neither it nor any after it is lost.
    Stop,
}
