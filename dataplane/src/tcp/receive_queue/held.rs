//! What is kept of received octets, and the pool it is kept in.

use crate::device::Frame;
use crate::limits;
use crate::pool::{List, NodeId, Pool};
use crate::wire::tcp::SeqNumber;

/// Octets of the stream: inside the frame they came in or, once they are placed, no more than where they were.
#[derive(Debug)]
pub struct Held<F> {
    pub(super) seq: SeqNumber,
    pub(super) octets: u32,
    /// Where in the frame the octets begin.
    pub(super) offset: u32,
    /// `None` for octets that were placed beyond a gap: whole FPDUs, which wait for their Delivery only.
    pub(super) frame: Option<F>,
}

impl<F> Held<F> {
    pub(super) fn end(&self) -> SeqNumber {
        self.seq + self.octets
    }

    pub(super) const fn is_placed(&self) -> bool {
        self.frame.is_none()
    }

    /// Drops what lies before `start`; `false` when nothing is left.
    pub(super) fn trim_front(&mut self, start: SeqNumber) -> bool {
        let before = (start - self.seq).max(0) as u32;
        if before >= self.octets {
            return false;
        }
        self.seq += before;
        self.offset += before;
        self.octets -= before;
        true
    }

    /// Drops what lies from `end` on.
    pub(super) fn trim_back(&mut self, end: SeqNumber) {
        self.octets = self.octets.min((end - self.seq).max(0) as u32);
    }
}

impl<F: Frame> Held<F> {
    /// Calls `f` with the slices that make up `octets` octets from `start` on. Octets that are placed have none.
    pub(super) fn pieces(&self, start: usize, octets: usize, f: &mut impl FnMut(&[u8])) {
        let Some(frame) = self.frame.as_ref() else {
            debug_assert!(false, "placed octets are gone");
            return;
        };
        let (mut skip, mut left) = (self.offset as usize + start, octets);
        let mut index = 0;
        while left > 0 {
            let Some(piece) = frame.piece(index) else {
                debug_assert!(false, "frame shorter than its segment");
                return;
            };
            if skip < piece.len() {
                let take = left.min(piece.len() - skip);
                f(&piece[skip..skip + take]);
                left -= take;
                skip = 0;
            } else {
                skip -= piece.len();
            }
            index += 1;
        }
    }
}

/// The frames, and the records of placed octets, of all connections of a core.
pub struct HeldPool<F> {
    nodes: Pool<Held<F>>,
    frames_max: usize,
    /// Records of placed octets.
    placed_runs: usize,
    placed_runs_max: usize,
    /// Whether the octets of the segment that comes leave their frame at once, or are given back.
    passing: bool,
    frames_peak: usize,
}

impl<F> HeldPool<F> {
    /// Room for `frames` frames and `placed_runs` records.
    pub fn new(frames: usize, placed_runs: usize) -> Self {
        Self {
            nodes: Pool::new(frames + placed_runs),
            frames_max: frames,
            placed_runs: 0,
            placed_runs_max: placed_runs,
            passing: false,
            frames_peak: 0,
        }
    }

    /// Frames kept.
    pub const fn frames(&self) -> usize {
        self.nodes.used() - self.placed_runs
    }

    /// Frames that could still be kept.
    pub const fn free_frames(&self) -> usize {
        self.frames_max - self.frames()
    }

    /// The most frames kept between segments: those that a segment's octets only passed through do not count.
    pub const fn frames_peak(&self) -> usize {
        self.frames_peak
    }

    /// A segment has been dealt with: what is kept now is kept.
    #[inline]
    pub fn note_peak(&mut self) {
        self.frames_peak = self.frames_peak.max(self.frames());
    }

    /// Says of the segment that comes next whether its octets, if they are in order, leave their frame at once or are given
    /// back ([`is_over_share`](Self::is_over_share)). Then it may use the frames that are reserved for that.
    #[inline]
    pub const fn expect_passing(&mut self, passing: bool) {
        self.passing = passing;
    }

    /// Frames that are left for all to hold.
    const fn spare(&self) -> usize {
        let eighth = self.frames_max / 8;
        let reserved =
            if eighth < limits::HELD_FRAMES_RESERVED { eighth } else { limits::HELD_FRAMES_RESERVED };
        self.free_frames().saturating_sub(reserved)
    }

    /// Whether some connection could hold more than its share.
    #[inline]
    pub const fn is_short(&self) -> bool {
        self.spare() < limits::HELD_FRAMES_PER_CONNECTION / limits::HELD_SHARE_IN_ORDER
    }

    /// Whether more than three quarters of the frames are kept: some hold what others want.
    pub const fn is_crowded(&self) -> bool {
        self.free_frames() < self.frames_max / 4
    }

    /// Whether a connection that holds `frames` frames holds more than its share.
    pub const fn is_over_share(&self, frames: usize) -> bool {
        frames > limits::HELD_SHARE_IN_ORDER * self.spare()
    }

    /// Whether a connection that holds `frames` frames may have one more for octets in order.
    #[inline]
    pub(super) const fn takes_in_order(&self, frames: usize) -> bool {
        self.passing || frames < limits::HELD_SHARE_IN_ORDER * self.spare()
    }

    /// The same for octets beyond a gap: they wait, and leave a part to what comes in order, which fills gaps and frees
    /// frames.
    pub(super) const fn takes_beyond_gap(&self, frames: usize) -> bool {
        frames < limits::HELD_SHARE_BEYOND_GAP * self.spare() && self.free_frames() > self.frames() / 8
    }

    /// Records kept.
    pub const fn placed_runs(&self) -> usize {
        self.placed_runs
    }

    /// Whether there is room for another record. Each record has a node that no frame can take.
    pub(super) const fn has_room_for_record(&self) -> bool {
        self.placed_runs < self.placed_runs_max
    }

    #[inline]
    pub(super) fn get(&self, node: NodeId) -> Option<&Held<F>> {
        self.nodes.get(node)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, node: NodeId) -> Option<&mut Held<F>> {
        self.nodes.get_mut(node)
    }

    #[inline]
    pub(super) fn next(&self, node: NodeId) -> Option<NodeId> {
        self.nodes.next(node)
    }

    /// The node after `previous` in `list`; the first one for `None`.
    #[inline]
    pub(super) fn after(&self, list: &List, previous: Option<NodeId>) -> Option<NodeId> {
        match previous {
            Some(previous) => self.nodes.next(previous),
            None => list.front(),
        }
    }

    /// Inserts `held` after `previous`, or at the front for `None`; gives it back when its kind has no room left.
    #[inline]
    pub(super) fn insert_after(
        &mut self,
        list: &mut List,
        previous: Option<NodeId>,
        held: Held<F>,
    ) -> Result<NodeId, Held<F>> {
        let placed = held.is_placed();
        let full = if placed { !self.has_room_for_record() } else { self.free_frames() == 0 };
        if full {
            return Err(held);
        }
        let node = self.nodes.insert_after(list, previous, held)?;
        self.placed_runs += usize::from(placed);
        Ok(node)
    }

    /// Takes the node after `previous` (the first for `None`) out of `list`.
    #[inline]
    pub(super) fn remove_after(&mut self, list: &mut List, previous: Option<NodeId>) -> Option<Held<F>> {
        let held = self.nodes.remove_after(list, previous)?;
        self.placed_runs -= usize::from(held.is_placed());
        Some(held)
    }
}

impl<F: Frame> HeldPool<F> {
    /// Calls `f` with the slices that make up `octets` octets from `skip` octets after the beginning of `node` on.
    #[inline]
    pub(super) fn for_each_slice(
        &self,
        mut node: Option<NodeId>,
        mut skip: usize,
        octets: usize,
        f: &mut impl FnMut(&[u8]),
    ) {
        let mut left = octets;
        while left > 0 {
            let Some(held) = node.and_then(|node| self.get(node)) else { return };
            let held_octets = held.octets as usize;
            if skip < held_octets {
                let take = left.min(held_octets - skip);
                held.pieces(skip, take, f);
                left -= take;
                skip = 0;
            } else {
                skip -= held_octets;
            }
            node = node.and_then(|node| self.next(node));
        }
    }
}
