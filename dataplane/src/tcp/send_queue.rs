//! The send queue of a connection: descriptors of segments to send and sent, not their octets, and the state
//! of each. A retransmission returns the same descriptor, so the layer above rebuilds the same FPDU within
//! the same boundaries (RFC 5044 App. A.1).

mod group;
mod scoreboard;

use crate::limits;
use crate::pool::{List, NodeId};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::scan_budget::ScanBudget;

use group::SegmentGroup;

pub use group::{Segment, SegmentPool, SegmentState, SendPayload};
pub use scoreboard::{SentOnce, Verdict};

/// The segments of one connection from the oldest unacknowledged to the last queued.
#[derive(Debug)]
pub struct SendQueue {
    /// The segments, in groups.
    groups: List,
    /// Segments in all groups.
    len: u32,
    /// The group of the next segment never sent; `None` when all are sent.
    next: Option<NodeId>,
    /// No segment before this group is lost; `None` if no segment is.
    lost_from: Option<NodeId>,
    /// SND.NXT: the sequence number of the next octet never sent.
    nxt: SeqNumber,
    /// The sequence number after the last queued octet.
    end: SeqNumber,
    in_flight_octets: u32,
    lost_octets: u32,
    sacked_octets: u32,
    sacked_segments: u32,
    /// The sequence number after the highest octet selectively acknowledged.
    sacked_end: SeqNumber,
}

impl SendQueue {
    /// An empty queue whose first octet will have the sequence number `start`.
    pub const fn new(start: SeqNumber) -> Self {
        Self {
            groups: List::new(),
            len: 0,
            next: None,
            lost_from: None,
            nxt: start,
            end: start,
            in_flight_octets: 0,
            lost_octets: 0,
            sacked_octets: 0,
            sacked_segments: 0,
            sacked_end: start,
        }
    }

    /// SND.NXT: the sequence number of the next octet never sent.
    pub const fn nxt(&self) -> SeqNumber {
        self.nxt
    }

    /// The sequence number after the last queued octet.
    pub const fn end(&self) -> SeqNumber {
        self.end
    }

    /// Octets queued and never sent.
    pub fn unsent_octets(&self) -> u32 {
        (self.end - self.nxt) as u32
    }

    /// Octets presumed to be in the network (the pipe of RFC 6675 §4).
    pub const fn in_flight_octets(&self) -> u32 {
        self.in_flight_octets
    }

    /// Octets presumed lost and not retransmitted yet.
    pub const fn lost_octets(&self) -> u32 {
        self.lost_octets
    }

    /// Octets sent and neither acknowledged nor selectively acknowledged.
    pub const fn outstanding_octets(&self) -> u32 {
        self.in_flight_octets + self.lost_octets
    }

    /// Whether any octet was sent that is not acknowledged, selectively or not at all.
    pub const fn is_outstanding(&self) -> bool {
        self.outstanding_octets() > 0 || self.sacked_octets > 0
    }

    /// Octets selectively acknowledged.
    pub const fn sacked_octets(&self) -> u32 {
        self.sacked_octets
    }

    /// Segments selectively acknowledged.
    pub const fn sacked_segments(&self) -> u32 {
        self.sacked_segments
    }

    /// Whether a segment is lost or selectively acknowledged.
    #[inline]
    pub const fn has_holes(&self) -> bool {
        self.lost_octets > 0 || self.sacked_segments > 0
    }

    /// The sequence number after the highest octet selectively acknowledged, if any is.
    pub const fn sacked_end(&self) -> Option<SeqNumber> {
        if self.sacked_segments > 0 { Some(self.sacked_end) } else { None }
    }

    /// Has the processor fetch the oldest segment, and the next one to send.
    #[inline]
    pub fn prefetch<P>(&self, pool: &SegmentPool<P>) {
        for node in [self.groups.front(), self.next].into_iter().flatten() {
            pool.prefetch(node);
        }
    }

    /// Segments held.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether nothing is held.
    pub const fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Queues a segment of `octets` octets. Returns false and queues nothing if the pool has no room left, or
    /// this queue holds its share of it. One segment may always wait to be sent.
    #[inline]
    pub fn push<P>(&mut self, pool: &mut SegmentPool<P>, payload: P, skip: u32, octets: u32) -> bool {
        if self.len() >= limits::SEND_DESCRIPTOR_SHARE * pool.free() {
            return false;
        }
        if self.unsent_octets() > 0 && pool.unsent_room(self.unsent_octets(), octets) == 0 {
            return false;
        }
        let (sent_at, state) = (Instant::ZERO, SegmentState::Unsent);
        let segment = Segment { seq: self.end, octets, payload, skip, sent_at, transmissions: 0, state };
        let Some(node) = pool.push(&mut self.groups, segment) else { return false };
        self.len += 1;
        self.end += octets;
        if self.next.is_none() {
            self.next = Some(node);
        }
        true
    }

    /// Queues up to `count` more segments of the group whose first is the last one, which was just
    /// [queued](Self::push). Returns how many it queued: fewer if the pool has no room left, or this queue
    /// holds its share of it.
    pub fn grow_last<P>(&mut self, pool: &mut SegmentPool<P>, count: u32) -> u32 {
        let Some((node, last)) = self.groups.back().and_then(|node| Some((node, pool.get(node)?))) else {
            return 0;
        };
        debug_assert!(last.first.state == SegmentState::Unsent && last.first.skip == 0, "it was just queued");
        let octets = last.first.octets;
        let count = count.min(self.room(pool)).min(pool.unsent_room(self.unsent_octets(), octets));
        pool.grow(node, count);
        self.len += count;
        self.end += octets * count;
        count
    }

    /// How many more segments this queue may hold: one more as long as it holds less than its share.
    #[inline]
    fn room<P>(&self, pool: &SegmentPool<P>) -> u32 {
        let share = limits::SEND_DESCRIPTOR_SHARE * pool.free();
        // Each segment leaves one less free, and makes one more held.
        share.saturating_sub(self.len()).div_ceil(limits::SEND_DESCRIPTOR_SHARE + 1) as u32
    }

    /// The segments held, in order.
    pub fn iter<'p, P: SendPayload>(
        &self,
        pool: &'p SegmentPool<P>,
    ) -> impl Iterator<Item = Segment<P>> + 'p {
        let next = |node: &NodeId| pool.next(*node);
        let segments = |group: &'p SegmentGroup<P>| (0..group.count).map(|index| group.first.nth(index));
        core::iter::successors(self.groups.front(), next).filter_map(|node| pool.get(node)).flat_map(segments)
    }

    /// Replaces the payload of every segment by `payload`.
    pub fn replace_payloads<P: Copy>(&mut self, pool: &mut SegmentPool<P>, payload: P) {
        let mut at = self.groups.front();
        while let Some(node) = at {
            if let Some(group) = pool.get_mut(node) {
                (group.first.payload, group.first.skip) = (payload, 0);
            }
            at = pool.next(node);
        }
    }

    /// The payload and the octets of the last segment, if it was never sent or cut, is the only one of its
    /// group, and needs no option of its own.
    pub fn last_unsent<P: SendPayload>(&self, pool: &SegmentPool<P>) -> Option<(P, u32)> {
        let SegmentGroup { first: last, count, after } = pool.get(self.groups.back()?)?;
        let is_single = *count == 1 && after.is_none() && last.payload.option_octets() == 0;
        (is_single && last.state == SegmentState::Unsent && last.skip == 0)
            .then_some((last.payload, last.octets))
    }

    /// Replaces the last segment, which [`last_unsent`](Self::last_unsent) returned and which is not longer,
    /// by `payload` of `octets` octets.
    pub fn extend_last<P>(&mut self, pool: &mut SegmentPool<P>, payload: P, octets: u32) {
        let Some(group) = self.groups.back().and_then(|node| pool.get_mut(node)) else { return };
        let last = &mut group.first;
        debug_assert!(group.count == 1 && last.state == SegmentState::Unsent, "it cannot grow any more");
        debug_assert!(last.octets <= octets, "it becomes shorter");
        self.end += octets - last.octets;
        (last.payload, last.octets) = (payload, octets);
    }

    /// Octets of the segment after the next one never sent.
    pub fn octets_after_next<P>(&self, pool: &SegmentPool<P>) -> Option<u32> {
        let next = self.next?;
        let group = pool.get(next)?;
        if group.count > 1 {
            return Some(group.first.octets);
        }
        pool.get(pool.next(next)?).map(|group| group.first.octets)
    }

    /// The next segment never sent.
    #[inline]
    pub fn peek<'p, P>(&self, pool: &'p SegmentPool<P>) -> Option<&'p Segment<P>> {
        self.peek_group(pool).map(|(first, _)| first)
    }

    /// The next segment never sent, and how many there are in its group from it on.
    #[inline]
    pub fn peek_group<'p, P>(&self, pool: &'p SegmentPool<P>) -> Option<(&'p Segment<P>, u32)> {
        pool.get(self.next?).map(|group| (&group.first, group.count))
    }

    /// The oldest unacknowledged segment, if it was ever sent.
    #[inline]
    pub fn oldest<'p, P>(&self, pool: &'p SegmentPool<P>) -> Option<&'p Segment<P>> {
        let group = pool.get(self.groups.front()?)?;
        Some(&group.first).filter(|segment| segment.transmissions > 0)
    }

    /// The first segment presumed lost.
    pub fn peek_lost<'p, P>(&mut self, pool: &'p SegmentPool<P>) -> Option<&'p Segment<P>> {
        if self.lost_octets == 0 {
            return None;
        }
        let mut at = self.lost_from;
        while let Some(node) = at {
            let group = pool.get(node)?;
            if group.first.state == SegmentState::Lost {
                self.lost_from = at;
                return Some(&group.first);
            }
            at = pool.next(node);
        }
        debug_assert!(false, "lost octets without a lost segment");
        None
    }

    /// Records that the next unsent segment is sent at `now`, and returns it.
    pub fn advance<P: SendPayload>(&mut self, pool: &mut SegmentPool<P>, now: Instant) -> Option<Segment<P>> {
        let mut segment = *self.peek(pool)?;
        self.advance_by(pool, now, 1);
        segment.mark_sent(now);
        Some(segment)
    }

    /// Records that the first `count` segments, at least one, of the group that
    /// [`peek_group`](Self::peek_group) returned are sent at `now`.
    #[inline]
    pub fn advance_by<P: SendPayload>(&mut self, pool: &mut SegmentPool<P>, now: Instant, count: u32) {
        let Some(node) = self.next else { return };
        let Some((next, following)) = pool.get_mut_and_next(node) else { return };
        debug_assert!((1..=next.count).contains(&count), "the group has fewer segments");
        let octets = next.first.octets;
        self.in_flight_octets += octets * count;
        self.nxt += octets * count;
        if next.count == count && next.after.is_none() {
            next.first.mark_sent(now);
            self.next = following;
        } else {
            self.next = self.advance_within(pool, now, node, octets, count);
        }
    }

    /// Records that the first `count` segments, of `octets` octets each, of the group `node` are sent at
    /// `now`. Returns the group after them. Those that are sent at the same time are one group again.
    fn advance_within<P: SendPayload>(
        &mut self,
        pool: &mut SegmentPool<P>,
        now: Instant,
        node: NodeId,
        octets: u32,
        count: u32,
    ) -> Option<NodeId> {
        if let Some(before) = pool.get(node)?.after
            && pool.next(before) == Some(node)
            && pool.get(before).is_some_and(|before| was_sent_once(&before.first, now, octets))
        {
            return pool.move_first(&mut self.groups, before, node, count);
        }
        pool.split(&mut self.groups, node, count);
        let (sent, following) = pool.get_mut_and_next(node)?;
        sent.first.mark_sent(now);
        following
    }

    /// Records that the first lost segment is retransmitted at `now`, and returns it.
    pub fn resend_lost<P: SendPayload>(
        &mut self,
        pool: &mut SegmentPool<P>,
        now: Instant,
    ) -> Option<Segment<P>> {
        self.peek_lost(pool)?;
        let node = self.lost_from?;
        pool.split(&mut self.groups, node, 1);
        let segment = &mut pool.get_mut(node)?.first;
        segment.mark_sent(now);
        self.lost_octets -= segment.octets;
        self.in_flight_octets += segment.octets;
        Some(*segment)
    }

    /// Records that the last segment sent is retransmitted at `now`, and returns it (RFC 8985 §7.3).
    pub fn resend_last<P: SendPayload>(
        &mut self,
        pool: &mut SegmentPool<P>,
        budget: &mut ScanBudget,
        now: Instant,
    ) -> Option<Segment<P>> {
        let node = self.last_sent(pool, budget)?;
        let group = pool.get(node)?;
        let (state, octets, count) = (group.first.state, group.first.octets, group.count);
        match state {
            SegmentState::InFlight => {}
            SegmentState::Lost => {
                self.lost_octets -= octets;
                self.in_flight_octets += octets;
            }
            SegmentState::Sacked | SegmentState::Unsent => return None,
        }
        let node = pool.split(&mut self.groups, node, count - 1).unwrap_or(node);
        let segment = &mut pool.get_mut(node)?.first;
        segment.mark_sent(now);
        Some(*segment)
    }

    /// The group of the last segment sent: the last of all, unless segments wait to be sent.
    fn last_sent<P>(&self, pool: &SegmentPool<P>, budget: &mut ScanBudget) -> Option<NodeId> {
        let Some(unsent) = self.next else { return self.groups.back() };
        let mut at = self.groups.front().filter(|front| *front != unsent)?;
        while let Some(after) = pool.next(at)
            && after != unsent
        {
            budget.spend_one();
            at = after;
        }
        Some(at)
    }

    /// Cuts the next unsent segment so that its first part has `octets` octets. Returns false if it is not
    /// longer than that, or the pool has no room left.
    pub fn split<P: SendPayload>(&mut self, pool: &mut SegmentPool<P>, octets: u32) -> bool {
        let Some(node) = self.next else { return false };
        self.cut(pool, node, octets)
    }

    /// Cuts the first lost segment so that its first part has `octets` octets: the path has become narrower.
    pub fn split_lost<P: SendPayload>(&mut self, pool: &mut SegmentPool<P>, octets: u32) -> bool {
        if self.peek_lost(pool).is_none() {
            return false;
        }
        let Some(node) = self.lost_from else { return false };
        self.cut(pool, node, octets)
    }

    /// Cuts the first segment of the group `node`.
    fn cut<P: SendPayload>(&mut self, pool: &mut SegmentPool<P>, node: NodeId, octets: u32) -> bool {
        let Some(first) = pool.get(node).map(|group| group.first) else { return false };
        if octets == 0 || first.octets <= octets || pool.free() == 0 {
            return false;
        }
        pool.split(&mut self.groups, node, 1);
        let rest = Segment {
            seq: first.seq + octets,
            octets: first.octets - octets,
            skip: first.skip + octets,
            ..first
        };
        if pool.insert(&mut self.groups, node, rest).is_none() {
            return false;
        }
        self.len += 1;
        if let Some(group) = pool.get_mut(node) {
            group.first.octets = octets;
        }
        true
    }

    /// Frees everything.
    pub fn clear<P>(&mut self, pool: &mut SegmentPool<P>) {
        pool.clear(&mut self.groups);
        *self = Self::new(self.nxt);
    }
}

/// Whether `segment` has `octets` octets, was never cut, and was sent once, at `now`.
#[inline]
fn was_sent_once<P>(segment: &Segment<P>, now: Instant, octets: u32) -> bool {
    let once = segment.transmissions == 1 && segment.state == SegmentState::InFlight;
    once && segment.sent_at == now && segment.octets == octets && segment.skip == 0
}

#[cfg(test)]
mod tests;
