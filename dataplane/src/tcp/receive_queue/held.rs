//! Received octets that a queue keeps, and the pool of a core that holds them.

use crate::device::Frame;
use crate::limits;
use crate::ordered::{ANY, Marks, Ordered, OrderedPool, OrderedSet};
use crate::pool::NodeId;
use crate::wire::tcp::SeqNumber;

/// Octets of the stream: in the frame they came in, or a record of them once they are placed.
#[derive(Debug)]
pub struct Held<F> {
    pub(super) seq: SeqNumber,
    pub(super) octets: u32,
    /// The offset in the frame at which the octets begin.
    pub(super) offset: u32,
    /// FPDUs that begin in these octets before this sequence number are checked, and wait for the gap to
    /// close.
    pub(super) judged: SeqNumber,
    /// `None` for octets that were placed beyond a gap: complete FPDUs that only wait for their Delivery.
    pub(super) frame: Option<F>,
}

/// The octets before these are missing.
pub(super) const AFTER_GAP: Marks = 1;
/// A stretch begins: the octets before these are missing, or of the other kind, placed or in a frame.
pub(super) const NEW_STRETCH: Marks = 2;
/// A record of placed octets.
pub(super) const PLACED: Marks = 4;

impl<F> Ordered for Held<F> {
    type Key = SeqNumber;

    #[inline]
    fn key(&self) -> SeqNumber {
        self.seq
    }
}

impl<F> Held<F> {
    /// Octets in `frame`, from `offset` on.
    pub(super) const fn in_frame(seq: SeqNumber, octets: u32, offset: u32, frame: F) -> Self {
        Self { seq, octets, offset, judged: seq, frame: Some(frame) }
    }

    /// Octets that are placed.
    pub(super) const fn placed(seq: SeqNumber, octets: u32) -> Self {
        Self { seq, octets, offset: 0, judged: seq, frame: None }
    }

    /// The marks of these octets after `previous`, the octets kept before them.
    pub(super) fn marks(&self, previous: Option<&Self>) -> Marks {
        let kind = if self.is_placed() { PLACED } else { 0 };
        match previous {
            Some(previous) if previous.end() != self.seq => kind | AFTER_GAP | NEW_STRETCH,
            Some(previous) if previous.is_placed() != self.is_placed() => kind | NEW_STRETCH,
            Some(_) => kind,
            None => kind | AFTER_GAP | NEW_STRETCH,
        }
    }

    pub(super) fn end(&self) -> SeqNumber {
        self.seq + self.octets
    }

    pub(super) const fn is_placed(&self) -> bool {
        self.frame.is_none()
    }

    /// Drops the octets before `start`. Returns false if nothing is left.
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

    /// Keeps only the octets from `from` to `to`, which are among these.
    pub(super) fn cut(mut self, from: SeqNumber, to: SeqNumber) -> Self {
        self.trim_back(to);
        let left = self.trim_front(from);
        debug_assert!(left, "none of these octets");
        self
    }

    /// Drops the octets from `end` on.
    pub(super) fn trim_back(&mut self, end: SeqNumber) {
        self.octets = self.octets.min((end - self.seq).max(0) as u32);
    }
}

impl<F: Frame> Held<F> {
    /// Returns a copy of the octets from `from` to `to`, which are among these, in a frame of their own;
    /// `None` if there is no frame for it.
    pub(super) fn copy(&self, from: SeqNumber, to: SeqNumber) -> Option<Self> {
        let (skip, octets) = ((from - self.seq).cast_unsigned(), (to - from).cast_unsigned());
        let frame = self.frame.as_ref()?.copy_part((self.offset + skip) as usize, octets as usize)?;
        Some(Self::in_frame(from, octets, 0, frame))
    }

    /// Calls `f` with the slices that make up `octets` octets from `start` on. Octets that are placed have
    /// none.
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

/// Returns the octets that a frame in a buffer of `frame_octets` octets holds of a promised window: of two
/// neighbours that do not fit one buffer together each has half of it on average, without headers.
fn promised_per_frame(frame_octets: usize) -> usize {
    (frame_octets.saturating_sub(limits::PROMISED_FRAME_OVERHEAD_BYTES) / 2)
        .clamp(limits::PROMISED_BYTES_PER_FRAME, limits::PROMISED_BYTES_PER_FRAME_MAX)
}

/// The frames, and the records of placed octets, of all connections of a core.
pub struct HeldPool<F> {
    nodes: OrderedPool<Held<F>>,
    pub(super) frames_max: usize,
    /// Those of them that connections before Full Operation hold.
    pub(super) frames_in_startup: usize,
    /// Records of placed octets.
    placed_runs: usize,
    placed_runs_max: usize,
    /// Whether the octets of the next segment leave their frame at once, or are dropped again.
    passing: bool,
    /// Frames promised to the connection of the next segment.
    promised_to_next: usize,
    /// Octets that a frame holds of a promised window, on average.
    pub(super) octets_per_frame: usize,
    /// Octets of windows promised to all connections, and the frames that those connections keep.
    pub(super) promised_octets: usize,
    pub(super) frames_promised: usize,
    frames_peak: usize,
}

impl<F> HeldPool<F> {
    /// Room for `frames` frames, in buffers of `frame_octets` octets, and `placed_runs` records.
    pub fn new(frames: usize, frame_octets: usize, placed_runs: usize) -> Self {
        Self {
            nodes: OrderedPool::new(frames + placed_runs),
            frames_max: frames,
            frames_in_startup: 0,
            placed_runs: 0,
            placed_runs_max: placed_runs,
            passing: false,
            promised_to_next: 0,
            octets_per_frame: promised_per_frame(frame_octets),
            promised_octets: 0,
            frames_promised: 0,
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

    /// The most frames kept between segments. A frame whose octets are consumed at once does not count.
    pub const fn frames_peak(&self) -> usize {
        self.frames_peak
    }

    /// Records the peak after a segment is handled.
    #[inline]
    pub fn record_peak(&mut self) {
        self.frames_peak = self.frames_peak.max(self.frames());
    }

    /// Says of the segment that comes next whether its octets, if they are in order, leave their frame at
    /// once or are given back ([`is_over_share`](Self::is_over_share)). Then it may use the frames that are
    /// reserved for that.
    #[inline]
    pub const fn expect_passing(&mut self, passing: bool) {
        self.passing = passing;
    }

    /// Says how many frames the window of the connection of the next segment was promised; 0 for none.
    #[inline]
    pub const fn expect_promised(&mut self, frames: usize) {
        self.promised_to_next = frames;
    }

    /// Frames through which octets only pass.
    const fn reserved(&self) -> usize {
        let eighth = self.frames_max / 8;
        if eighth < limits::HELD_FRAMES_RESERVED { eighth } else { limits::HELD_FRAMES_RESERVED }
    }

    /// Frames that windows may promise together.
    pub(super) const fn promised_frames_max(&self) -> usize {
        self.frames_max / 4 * limits::PROMISED_FRAMES_OF_FOUR
    }

    /// Frames that connections may still hold, without the reserve and without those that windows were
    /// promised and that are not held yet. Windows that peers were offered before Full Operation may have to
    /// be promised beyond what there is to promise; then others still have their part.
    const fn spare(&self) -> usize {
        let promised = self.promised_octets / self.octets_per_frame;
        let most = self.promised_frames_max();
        let promised = if promised < most { promised } else { most };
        let to_come = promised.saturating_sub(self.frames_promised);
        self.free_frames().saturating_sub(self.reserved() + to_come)
    }

    /// Whether a connection that keeps `frames` frames may have one more of those that its window was
    /// promised.
    const fn keeps_promise(&self, frames: usize) -> bool {
        frames < self.promised_to_next && self.free_frames() > self.reserved()
    }

    /// Whether so few octets lie in `frames` frames that the connection of the next segment would need more
    /// of them than its window was promised.
    pub(super) const fn wastes_promise(&self, frames: usize, octets: usize) -> bool {
        self.promised_to_next > 0 && octets < frames * self.octets_per_frame
    }

    /// Whether some connection could hold more than its share.
    #[inline]
    pub const fn is_short(&self) -> bool {
        self.spare() < limits::HELD_FRAMES_PER_CONNECTION / limits::HELD_SHARE_IN_ORDER
    }

    /// Frames that connections of a kind may hold together: those before Full Operation, or all. On a device
    /// of very few frames a startup frame still finds one.
    pub const fn bound(&self, in_startup: bool) -> usize {
        let part = self.frames_max / limits::HELD_PART_IN_STARTUP;
        match (in_startup, part) {
            (true, 0) => 1,
            (true, part) => part,
            (false, _) => self.frames_max,
        }
    }

    /// Frames kept by connections before Full Operation.
    pub const fn frames_in_startup(&self) -> usize {
        self.frames_in_startup
    }

    /// Whether connections of a kind keep more than three quarters of the frames that they may hold: those
    /// before Full Operation, or all.
    pub const fn is_crowded(&self, in_startup: bool) -> bool {
        let kept = if in_startup { self.frames_in_startup } else { self.frames() };
        kept > self.bound(in_startup) / 4 * 3
    }

    /// Whether a connection that holds `frames` frames can go on without another: the longest FPDU fits, and
    /// it has no small part of them all.
    pub const fn is_well_off(&self, frames: usize) -> bool {
        frames >= limits::HELD_FRAMES_OF_FPDU || frames >= self.frames_max / 8
    }

    /// Whether a connection that holds `frames` frames holds more than its share.
    pub const fn is_over_share(&self, frames: usize) -> bool {
        frames > limits::HELD_SHARE_IN_ORDER * self.spare()
    }

    /// Frames that a connection may still hold, without the reserve.
    const fn spare_for(&self, in_startup: bool) -> usize {
        let spare = self.spare();
        let in_bound = self.bound(true).saturating_sub(self.frames_in_startup);
        if in_startup && in_bound < spare { in_bound } else { spare }
    }

    /// Whether a connection that holds `frames` frames may have one more for octets in order.
    #[inline]
    pub(super) const fn accepts_in_order(&self, frames: usize, in_startup: bool) -> bool {
        self.passing
            || self.keeps_promise(frames)
            || frames < limits::HELD_SHARE_IN_ORDER * self.spare_for(in_startup)
    }

    /// The same for octets beyond a gap: they wait, and leave a part to what comes in order, which fills gaps
    /// and frees frames.
    pub(super) const fn accepts_beyond_gap(&self, frames: usize, in_startup: bool) -> bool {
        // Of a promised window a part is left to what fills the gap, too.
        self.keeps_promise(frames + self.promised_to_next / 4)
            || frames < limits::HELD_SHARE_BEYOND_GAP * self.spare_for(in_startup)
                && self.free_frames() > self.frames() / 8
                && (!in_startup || self.spare_for(true) > self.frames_in_startup / 8)
    }

    /// Records kept.
    pub const fn placed_runs(&self) -> usize {
        self.placed_runs
    }

    /// Whether there is room for another record. Each record has a node that no frame can use.
    const fn has_room_for_record(&self) -> bool {
        self.placed_runs < self.placed_runs_max
    }

    /// Whether a connection with `records` records may have one more. Its share falls as others want some.
    pub(super) const fn accepts_record(&self, records: usize) -> bool {
        records < limits::PLACED_SHARE * (self.placed_runs_max - self.placed_runs)
    }

    /// Nodes visited so far: the work of searches.
    pub fn visits(&self) -> u64 {
        self.nodes.visits()
    }

    #[inline]
    pub(super) fn get(&self, node: NodeId) -> Option<&Held<F>> {
        self.nodes.get(node)
    }

    #[inline]
    pub(super) fn marks(&self, node: NodeId) -> Marks {
        self.nodes.marks(node)
    }

    /// The first of `list` with any of `marks` that begins at or after `at`.
    #[inline]
    pub(super) fn first_from(&self, list: &OrderedSet, at: SeqNumber, marks: Marks) -> Option<NodeId> {
        self.nodes.first(list, marks, |seq| seq >= at)
    }

    /// The last of `list` with any of `marks` that begins before `at`.
    #[inline]
    pub(super) fn last_before(&self, list: &OrderedSet, at: SeqNumber, marks: Marks) -> Option<NodeId> {
        self.nodes.last(list, marks, |seq| seq < at)
    }

    /// The entry that holds the octet at `at`.
    #[inline]
    pub(super) fn holder(&self, list: &OrderedSet, at: SeqNumber) -> Option<&Held<F>> {
        self.holder_node(list, at).and_then(|node| self.get(node))
    }

    /// The same, to change all but its place among the others and where it ends.
    pub(super) fn holder_mut(&mut self, list: &OrderedSet, at: SeqNumber) -> Option<&mut Held<F>> {
        self.holder_node(list, at).and_then(|node| self.nodes.get_mut(node))
    }

    #[inline]
    fn holder_node(&self, list: &OrderedSet, at: SeqNumber) -> Option<NodeId> {
        let node = self.nodes.last(list, ANY, |seq| seq <= at)?;
        self.get(node).is_some_and(|held| held.end() > at).then_some(node)
    }

    /// The first of `list`.
    #[inline]
    pub(super) fn front(&self, list: &OrderedSet) -> Option<&Held<F>> {
        self.nodes.first(list, ANY, |_| true).and_then(|node| self.get(node))
    }

    /// Where the last of `list` ends.
    pub(super) fn end_of(&self, list: &OrderedSet) -> Option<SeqNumber> {
        self.nodes.last(list, ANY, |_| true).and_then(|node| self.get(node)).map(Held::end)
    }

    /// Drops what lies before `start`, which the first of `list` holds.
    pub(super) fn trim_first(&mut self, list: &OrderedSet, start: SeqNumber) {
        if let Some(first) = self.holder_mut(list, start) {
            first.trim_front(start);
        }
    }

    /// Drops what lies before `start` of what holds it. Octets before it are missing then.
    pub(super) fn trim_front(&mut self, list: &mut OrderedSet, start: SeqNumber) {
        self.trim_first(list, start);
        self.mark_first_from(list, start);
    }

    /// Drops what lies after `end` of what holds the octet before it.
    pub(super) fn trim_back(&mut self, list: &mut OrderedSet, end: SeqNumber) {
        if let Some(held) = self.holder_mut(list, end - 1) {
            held.trim_back(end);
        }
        self.mark_first_from(list, end);
    }

    /// Octets are appended to those that end at `end`.
    pub(super) fn extend(&mut self, list: &mut OrderedSet, end: SeqNumber, octets: u32) {
        if let Some(held) = self.holder_mut(list, end - 1) {
            held.octets += octets;
        }
        self.mark_first_from(list, end);
    }

    /// Marks the first of `list` that begins at or after `at` as what lies before it says.
    fn mark_first_from(&mut self, list: &mut OrderedSet, at: SeqNumber) {
        let Some(held) = self.first_from(list, at, ANY).and_then(|node| self.get(node)) else { return };
        let seq = held.seq;
        let previous = self.last_before(list, seq, ANY).and_then(|node| self.get(node));
        let marks = held.marks(previous);
        self.nodes.set_marks(list, seq, marks);
    }

    /// Puts `held`, which lies in a frame, after everything in `list`, with these marks: none if it follows
    /// the last octets of a list that has no gap and no record of placed octets.
    ///
    /// # Errors
    ///
    /// Returns it when its kind has no room left.
    #[inline]
    pub(super) fn append(
        &mut self,
        list: &mut OrderedSet,
        held: Held<F>,
        marks: Marks,
    ) -> Result<(), Held<F>> {
        debug_assert!(!held.is_placed(), "a record has other marks");
        if self.free_frames() == 0 {
            return Err(held);
        }
        self.nodes.insert(list, held, marks).map(|_| ())
    }

    /// Puts `held` in its place in `list`.
    ///
    /// # Errors
    ///
    /// Returns it when its kind has no room left.
    pub(super) fn insert(&mut self, list: &mut OrderedSet, held: Held<F>) -> Result<(), Held<F>> {
        let placed = held.is_placed();
        let full = if placed { !self.has_room_for_record() } else { self.free_frames() == 0 };
        if full {
            return Err(held);
        }
        let end = held.end();
        let marks = held.marks(self.last_before(list, held.seq, ANY).and_then(|node| self.get(node)));
        self.nodes.insert(list, held, marks)?;
        self.placed_runs += usize::from(placed);
        self.mark_first_from(list, end);
        Ok(())
    }

    /// Removes what begins at `seq` from `list`.
    pub(super) fn remove(&mut self, list: &mut OrderedSet, seq: SeqNumber) -> Option<Held<F>> {
        let held = self.nodes.remove(list, seq)?;
        self.placed_runs -= usize::from(held.is_placed());
        self.mark_first_from(list, held.end());
        Some(held)
    }

    /// Removes the first of `list`, whose octets are consumed: nothing is missing before those that follow.
    #[inline]
    pub(super) fn pop_first(&mut self, list: &mut OrderedSet) -> Option<Held<F>> {
        let held = self.nodes.pop_first(list)?;
        self.placed_runs -= usize::from(held.is_placed());
        Some(held)
    }
}

impl<F: Frame> HeldPool<F> {
    /// Calls `f` with the slices that make up `octets` octets of `list` from place `at` on, which lie in
    /// frames.
    #[inline]
    pub(super) fn for_each_slice(
        &self,
        list: &OrderedSet,
        mut at: SeqNumber,
        octets: usize,
        f: &mut impl FnMut(&[u8]),
    ) {
        let mut left = octets;
        while left > 0 {
            let Some(held) = self.holder(list, at) else {
                debug_assert!(false, "octets that are not kept");
                return;
            };
            let take = left.min((held.end() - at) as usize);
            held.pieces((at - held.seq) as usize, take, f);
            at += take as u32;
            left -= take;
        }
    }
}
