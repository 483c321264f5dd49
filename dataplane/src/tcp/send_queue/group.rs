//! Groups of the segments of a send queue: segments in a row that one descriptor describes.
//!
//! A long message makes segments of equal length, each computed from the first. A group keeps the first of
//! them, how many there are, and one state for all. So what a message costs does not grow with the number of
//! its segments, as long as the same happens to all of them. Where it does not, a group is split into two,
//! each with a first segment and a number.
//!
//! Example: the first 8 of 45 segments are sent at once, the peer reports that it holds the third to the
//! eighth, and one is sent again. Then the groups are 1 sent twice, 1 lost, 6 selectively acknowledged and 37
//! unsent.

use crate::memory::prefetch;
use crate::pool::{List, NodeId, Pool};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;
use crate::wire::tcp_rdma::RdmaOption;

/// What the sender knows of the state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Not yet sent.
    Unsent,
    /// Sent, and presumed to be in the network.
    InFlight,
    /// Selectively acknowledged: the peer holds it, though it may still drop it (RFC 2018 §8).
    Sacked,
    /// Presumed lost, to be retransmitted.
    Lost,
}

/// A descriptor from which the layer above builds the octets of segments.
pub trait SendPayload: Copy {
    /// Makes the descriptor of a segment that of the segment `count` places after it in its group.
    fn move_on(&mut self, count: u32);

    /// Returns the RDMA option of a segment with `octets` octets of the payload from `skip` octets into it;
    /// `None` if it needs none. It follows from the descriptor and the range only, so a retransmission has
    /// the same, however it is cut. A connection whose ends have not agreed on the option sends none.
    ///
    /// Example: of a payload of 3000 octets that is one transfer, the segment of the 1000 octets from 2000 on
    /// has an option with a buffer offset that is larger by 2000.
    // Requirements: TRO-3.1.8-01
    #[inline]
    fn rdma_option(&self, skip: u32, octets: u32) -> Option<RdmaOption> {
        let _ = (skip, octets);
        None
    }

    /// Returns the octets of option space that any segment of the payload needs: the largest
    /// [`len`](RdmaOption::len) of its options, or 0 if none has one. Its segments have as much less data,
    /// and it never shares a segment with another payload. All segments of a group need the same.
    #[inline]
    fn option_octets(&self) -> u32 {
        0
    }
}

/// For segments without their payload.
impl SendPayload for () {
    fn move_on(&mut self, _count: u32) {}
}

/// The data of one segment: a range of a descriptor's payload.
#[derive(Clone, Copy, Debug)]
pub struct Segment<P> {
    /// The sequence number of the first octet.
    pub seq: SeqNumber,
    /// Octets in the segment.
    pub octets: u32,
    /// The descriptor from which the layer above builds the octets.
    pub payload: P,
    /// The offset in the payload at which the segment begins: 0 unless an FPDU had to be cut (RFC 5044 §4.5,
    /// EMSS below the floor).
    pub skip: u32,
    /// When it was last sent.
    pub sent_at: Instant,
    /// The number of transmissions.
    pub transmissions: u8,
    /// Its state.
    pub state: SegmentState,
}

impl<P> Segment<P> {
    /// The sequence number after the last octet.
    #[inline]
    pub fn end(&self) -> SeqNumber {
        self.seq + self.octets
    }

    /// Whether it was sent more than once, so that its acknowledgement is ambiguous (Karn).
    #[inline]
    pub const fn retransmitted(&self) -> bool {
        self.transmissions > 1
    }

    /// The segment without its payload.
    #[inline]
    pub(super) const fn bare(&self) -> Segment<()> {
        let Self { seq, octets, skip, sent_at, transmissions, state, .. } = *self;
        Segment { seq, octets, payload: (), skip, sent_at, transmissions, state }
    }

    /// Records that it is sent at `now`.
    #[inline]
    pub(super) const fn mark_sent(&mut self, now: Instant) {
        self.sent_at = now;
        self.transmissions = self.transmissions.saturating_add(1);
        self.state = SegmentState::InFlight;
    }
}

impl<P: SendPayload> Segment<P> {
    /// Makes the segment the one `count` places after it in its group.
    #[inline]
    pub fn move_on(&mut self, count: u32) {
        self.seq += self.octets * count;
        self.payload.move_on(count);
    }

    /// The segment `index` places after this one in its group.
    #[inline]
    pub(in crate::tcp) fn nth(mut self, index: u32) -> Self {
        self.move_on(index);
        self
    }
}

/// Segments in a row that have the same length and state. If there are several, none of them was ever cut or
/// sent again, and all were last sent at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentGroup<P> {
    /// The first.
    pub(super) first: Segment<P>,
    /// How many there are, at least one.
    pub(super) count: u32,
    /// The group that it was split from, which it continues as long as it is the next one after it.
    pub(super) after: Option<NodeId>,
}

impl<P> SegmentGroup<P> {
    /// Octets of all segments.
    #[inline]
    pub(super) const fn octets(&self) -> u32 {
        self.first.octets * self.count
    }

    /// The sequence number after the last octet.
    #[inline]
    pub(super) fn end(&self) -> SeqNumber {
        self.first.seq + self.octets()
    }
}

/// Descriptors of segments, over all connections of a core. Each segment counts against the capacity, so a
/// group can always be split.
pub struct SegmentPool<P> {
    groups: Pool<SegmentGroup<P>>,
    /// Segments of all groups.
    used: usize,
    capacity: usize,
    /// Segments that a queue may have unsent while the pool is scarce.
    unsent_max: u32,
}

impl<P> SegmentPool<P> {
    /// Returns a pool for `capacity` segments.
    pub fn new(capacity: usize) -> Self {
        Self { groups: Pool::new(capacity), used: 0, capacity, unsent_max: u32::MAX }
    }

    /// The address space of a pool of `capacity` segments, in bytes.
    pub const fn bytes(capacity: usize) -> usize {
        Pool::<SegmentGroup<P>>::bytes(capacity)
    }

    /// Segments in the pool.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Segments for which there is room.
    #[inline]
    pub const fn free(&self) -> usize {
        self.capacity - self.used
    }

    /// Has a queue that is about to take segments hold no more than `segments` unsent while the pool is
    /// scarce: those that will be sent at once. What waited in ten thousand queues would be all there is.
    #[inline]
    pub const fn limit_unsent(&mut self, segments: u32) {
        self.unsent_max = segments;
    }

    /// How many segments of `octets` octets a queue with `unsent_octets` may hold unsent besides.
    #[inline]
    pub(super) fn unsent_room(&self, unsent_octets: u32, octets: u32) -> u32 {
        let is_scarce = self.used > self.capacity / 2;
        if is_scarce { self.unsent_max.saturating_sub(unsent_octets / octets.max(1)) } else { u32::MAX }
    }

    /// Has the processor fetch a group.
    #[inline]
    pub(super) fn prefetch(&self, node: NodeId) {
        if let Some(place) = self.groups.place(node) {
            prefetch(place);
        }
    }

    #[inline]
    pub(super) fn get(&self, node: NodeId) -> Option<&SegmentGroup<P>> {
        self.groups.get(node)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, node: NodeId) -> Option<&mut SegmentGroup<P>> {
        self.groups.get_mut(node)
    }

    #[inline]
    pub(super) fn get_mut_and_next(
        &mut self,
        node: NodeId,
    ) -> Option<(&mut SegmentGroup<P>, Option<NodeId>)> {
        self.groups.get_mut_and_next(node)
    }

    /// The group after `node` in its queue.
    #[inline]
    pub(super) fn next(&self, node: NodeId) -> Option<NodeId> {
        self.groups.next(node)
    }

    /// Appends a segment to `list`, if there is room for it.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, first: Segment<P>) -> Option<NodeId> {
        let group = SegmentGroup { first, count: 1, after: None };
        let node = self.groups.push_back(list, group).ok()?;
        self.used += 1;
        Some(node)
    }

    /// Extends the group `node` by `count` segments, for which there is room.
    #[inline]
    pub(super) fn grow(&mut self, node: NodeId, count: u32) {
        debug_assert!(count as usize <= self.free(), "no room for the segments of a group");
        if let Some(group) = self.groups.get_mut(node) {
            group.count += count;
            self.used += count as usize;
        }
    }

    /// Inserts a segment, the rest of one that is cut, after `node`, if there is room for it.
    pub(super) fn insert(&mut self, list: &mut List, node: NodeId, rest: Segment<P>) -> Option<NodeId> {
        if self.free() == 0 {
            return None;
        }
        let group = SegmentGroup { first: rest, count: 1, after: None };
        let inserted = self.groups.insert_after(list, Some(node), group).ok()?;
        self.used += 1;
        Some(inserted)
    }

    /// Removes the first group of `list`, which has `count` segments.
    #[inline]
    pub(super) fn drop_front(&mut self, list: &mut List, count: u32) {
        debug_assert_eq!(list.front().and_then(|node| self.get(node)).map(|group| group.count), Some(count));
        self.used -= count as usize;
        self.groups.drop_front(list);
    }

    /// Removes everything of `list`.
    pub(super) fn clear(&mut self, list: &mut List) {
        while let Some(group) = self.groups.pop_front(list) {
            self.used -= group.count as usize;
        }
    }
}

impl<P: SendPayload> SegmentPool<P> {
    /// Splits the group `node` after its first `count` segments, if it has more. Returns the group of the
    /// rest.
    pub(super) fn split(&mut self, list: &mut List, node: NodeId, count: u32) -> Option<NodeId> {
        let group = self.groups.get_mut(node).filter(|group| (1..group.count).contains(&count))?;
        let rest =
            SegmentGroup { first: group.first.nth(count), count: group.count - count, after: Some(node) };
        // There is room for as many groups as segments, and the number of segments stays the same.
        debug_assert!(self.groups.used() < self.used && self.groups.free() > 0, "each segment counts");
        let inserted = self.groups.insert_after(list, Some(node), rest).ok();
        if inserted.is_some()
            && let Some(group) = self.groups.get_mut(node)
        {
            group.count = count;
        }
        inserted
    }

    /// Removes the first `count` segments, not all, of the group `node`.
    #[inline]
    pub(super) fn drop_first(&mut self, node: NodeId, count: u32) {
        if let Some(group) = self.groups.get_mut(node) {
            debug_assert!(count < group.count, "a group is not empty");
            group.first.move_on(count);
            group.count -= count;
            self.used -= count as usize;
        }
    }

    /// Moves the first `count` segments of the group `from` to the end of `to`, which is before it in `list`
    /// and which it continues. Returns the group after `to`.
    #[inline]
    pub(super) fn move_first(
        &mut self,
        list: &mut List,
        to: NodeId,
        from: NodeId,
        count: u32,
    ) -> Option<NodeId> {
        if let Some(group) = self.groups.get_mut(to) {
            group.count += count;
        }
        let moved = self.groups.get_mut(from)?;
        if count < moved.count {
            moved.first.move_on(count);
            moved.count -= count;
            return Some(from);
        }
        self.groups.remove_after(list, Some(to));
        self.groups.next(to)
    }
}
