//! Octets that are placed beyond a gap (RFC 5044 §6, appendix B): their frames are freed, and a record stands for them until
//! the gap has closed and it is their turn to be delivered.
//!
//! A frame has one owner. It can be trimmed at its front or its back, not cut in the middle, so octets are placed only where
//! they leave no remainder on both sides of the same frame. The others stay where they are: none is ever copied twice.

use super::ReceiveQueue;
use super::held::{Held, HeldPool};
use crate::device::Frame;
use crate::limits;
use crate::pool::NodeId;
use crate::wire::tcp::SeqNumber;

/// Octets beyond a gap that lie in frames, without a gap or a record between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// What is kept right before it.
    before: Option<NodeId>,
    /// The first octet.
    pub start: SeqNumber,
    /// The place after the last.
    pub end: SeqNumber,
    /// Whether placed octets come right before it: then an FPDU begins with it.
    pub after_placed: bool,
}

impl Stretch {
    fn contains(&self, at: SeqNumber) -> bool {
        self.start <= at && at < self.end
    }
}

/// The octets of a [`Stretch`], from some place on.
pub struct StretchView<'p, F> {
    pool: &'p HeldPool<F>,
    node: Option<NodeId>,
    /// Octets of `node` before the place.
    skip: usize,
    octets: usize,
}

impl<F: Frame> StretchView<'_, F> {
    /// Octets from the place to the end of the stretch.
    pub const fn octets(&self) -> usize {
        self.octets
    }

    /// Calls `f` with the slices that make up `octets` octets from `start` octets after the place on.
    pub fn for_each_slice(&self, start: usize, octets: usize, mut f: impl FnMut(&[u8])) {
        debug_assert!(start + octets <= self.octets, "range not in the stretch");
        self.pool.for_each_slice(self.node, self.skip + start, octets, &mut f);
    }

    /// Moves the place by `octets` octets, which the stretch has.
    pub fn advance(&mut self, octets: usize) {
        debug_assert!(octets <= self.octets, "beyond the stretch");
        self.octets -= octets;
        self.skip += octets;
        while let Some(held) = self.node.and_then(|node| self.pool.get(node)) {
            if self.skip < held.octets as usize {
                return;
            }
            self.skip -= held.octets as usize;
            self.node = self.node.and_then(|node| self.pool.next(node));
        }
    }
}

impl ReceiveQueue {
    /// Records of placed octets.
    pub const fn placed_runs(&self) -> usize {
        self.placed_runs as usize
    }

    pub(super) fn readable_before_placed<F>(&self, pool: &HeldPool<F>) -> usize {
        let mut end = self.unread;
        let mut node = self.held.front().filter(|_| self.in_order_back.is_some());
        while let Some(held) = node.and_then(|node| pool.get(node)).filter(|held| !held.is_placed()) {
            end = held.end();
            node = node.filter(|_| node != self.in_order_back).and_then(|node| pool.next(node));
        }
        (end - self.unread) as usize
    }

    /// Octets of the record that is next in order, once everything before it is consumed.
    #[inline]
    pub fn placed_next<F>(&self, pool: &HeldPool<F>) -> Option<usize> {
        if self.placed_runs == 0 {
            return None;
        }
        let front = self.held.front().filter(|_| self.in_order_back.is_some())?;
        let held = pool.get(front).filter(|held| held.is_placed())?;
        Some(held.octets as usize)
    }

    /// The stretch beyond a gap that `at` lies in; `None` if there is none, or it lies behind more frames and records than
    /// are looked at for one segment.
    pub fn stretch_around<F>(&self, pool: &HeldPool<F>, at: SeqNumber) -> Option<Stretch> {
        let mut stretch: Option<Stretch> = None;
        let mut placed_end = None;
        let mut previous = self.in_order_back;
        for _ in 0..limits::PLACEMENT_LOOKS {
            let Some(node) = pool.after(&self.held, previous) else { break };
            let Some(held) = pool.get(node) else { break };
            match &mut stretch {
                Some(stretch) if stretch.end == held.seq && !held.is_placed() => stretch.end = held.end(),
                Some(found) if found.contains(at) => return stretch,
                _ if held.seq > at => return None,
                _ => {
                    stretch = (!held.is_placed()).then(|| Stretch {
                        before: previous,
                        start: held.seq,
                        end: held.end(),
                        after_placed: placed_end == Some(held.seq),
                    });
                }
            }
            placed_end = held.is_placed().then(|| held.end());
            previous = Some(node);
        }
        stretch.filter(|stretch| stretch.contains(at))
    }

    /// The octets of `stretch` from `at` on, which lies in it. Nothing was inserted or placed since it was found.
    pub fn view<'p, F: Frame>(
        &self,
        pool: &'p HeldPool<F>,
        stretch: &Stretch,
        at: SeqNumber,
    ) -> StretchView<'p, F> {
        let octets = (stretch.end - stretch.start).max(0) as usize;
        let node = pool.after(&self.held, stretch.before);
        let mut view = StretchView { pool, node, skip: 0, octets };
        view.advance((at - stretch.start).max(0) as usize);
        view
    }

    /// Whether `from..to` of `stretch` can be placed: no frame keeps a remainder on both sides, and there is a record for
    /// it.
    pub fn may_place<F>(
        &self,
        pool: &HeldPool<F>,
        stretch: &Stretch,
        from: SeqNumber,
        to: SeqNumber,
    ) -> bool {
        let Some((before, first)) = self.frame_at(pool, stretch, from) else { return false };
        let Some(first) = pool.get(first) else { return false };
        if first.seq < from && to < first.end() {
            return false;
        }
        debug_assert!(before == stretch.before || from != stretch.start, "a stretch begins with a frame");
        self.may_place_at(pool, stretch, from)
    }

    /// Whether there is a record for octets of `stretch` from `from` on.
    pub fn may_place_at<F>(&self, pool: &HeldPool<F>, stretch: &Stretch, from: SeqNumber) -> bool {
        // Without a gap or a frame between, the record before it takes it up.
        let joins = stretch.after_placed && from == stretch.start;
        joins || (pool.has_room_for_record() && self.placed_runs() < limits::PLACED_RUNS_PER_CONNECTION)
    }

    /// Puts a record in the place of `from..to` of `stretch`, which [`may_place`](Self::may_place) allows and the caller has
    /// copied to where they belong: their frames are freed. Anything found in the stretch before is void.
    pub fn place<F>(&mut self, pool: &mut HeldPool<F>, stretch: &Stretch, from: SeqNumber, to: SeqNumber) {
        let Some((mut before, node)) = self.frame_at(pool, stretch, from) else { return };
        if let Some(first) = pool.get_mut(node)
            && first.seq < from
        {
            first.trim_back(from);
            before = Some(node);
        }
        while let Some(next) = pool.after(&self.held, before).and_then(|node| pool.get_mut(node)) {
            if next.seq >= to || next.trim_front(to) {
                break;
            }
            self.remove_after(pool, before);
        }
        self.record(pool, before, from, to);
    }

    /// Records `from..to` as placed after `before`, in one record with those it touches.
    fn record<F>(&mut self, pool: &mut HeldPool<F>, before: Option<NodeId>, from: SeqNumber, to: SeqNumber) {
        let octets = (to - from).max(0) as u32;
        let touches = |held: &&mut Held<F>| held.is_placed() && held.end() == from;
        let mut node = before;
        if let Some(record) = node.and_then(|node| pool.get_mut(node)).filter(touches) {
            record.octets += octets;
        } else {
            let record = Held { seq: from, octets, offset: 0, frame: None };
            node = pool.insert_after(&mut self.held, before, record).ok();
            debug_assert!(node.is_some(), "may_place has seen the room");
            self.placed_runs += u16::from(node.is_some());
        }
        let next = node.and_then(|node| pool.next(node)).and_then(|next| pool.get(next));
        let Some(next_octets) =
            next.filter(|next| next.is_placed() && next.seq == to).map(|next| next.octets)
        else {
            return;
        };
        self.remove_after(pool, node);
        if let Some(record) = node.and_then(|node| pool.get_mut(node)) {
            record.octets += next_octets;
        }
    }

    /// The frame of `stretch` that holds `at`, and what is kept right before it.
    fn frame_at<F>(
        &self,
        pool: &HeldPool<F>,
        stretch: &Stretch,
        at: SeqNumber,
    ) -> Option<(Option<NodeId>, NodeId)> {
        let mut before = stretch.before;
        loop {
            let node = pool.after(&self.held, before)?;
            let held = pool.get(node)?;
            if held.end() > at {
                return (held.seq <= at && !held.is_placed()).then_some((before, node));
            }
            before = Some(node);
        }
    }
}
