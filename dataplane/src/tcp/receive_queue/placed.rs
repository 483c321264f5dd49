//! Octets placed beyond a gap (RFC 5044 §6, appendix B): their frames are freed, and a record stands for them
//! until the gap has closed and they are Delivered.
//!
//! A frame has one owner. It can be trimmed at its front or its back, not cut in the middle, so octets are
//! placed only where they leave no remainder on both sides of the same frame. Other octets stay in their
//! frames: none are copied twice.

use super::ReceiveQueue;
use super::held::{AFTER_GAP, Held, HeldPool, NEW_STRETCH, PLACED};
use crate::device::Frame;
use crate::limits;
use crate::ordered::{ANY, OrderedSet};
use crate::wire::tcp::SeqNumber;

/// Octets beyond a gap that lie in frames, without a gap or a record between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first octet.
    pub start: SeqNumber,
    /// The sequence number after the last.
    pub end: SeqNumber,
    /// Whether placed octets come right before it: then an FPDU begins at `start`.
    pub after_placed: bool,
}

/// The octets of a [`Stretch`] from some sequence number on.
pub struct StretchView<'p, F> {
    pool: &'p HeldPool<F>,
    held: &'p OrderedSet,
    at: SeqNumber,
    octets: usize,
}

impl<F: Frame> StretchView<'_, F> {
    /// Octets from that number to the end of the stretch.
    pub const fn octets(&self) -> usize {
        self.octets
    }

    /// Calls `f` with the slices that make up `octets` octets from `start` octets after the place on.
    pub fn for_each_slice(&self, start: usize, octets: usize, mut f: impl FnMut(&[u8])) {
        debug_assert!(start + octets <= self.octets, "range not in the stretch");
        self.pool.for_each_slice(self.held, self.at + start as u32, octets, &mut f);
    }

    /// Moves the place by `octets` octets, which the stretch has.
    pub fn advance(&mut self, octets: usize) {
        debug_assert!(octets <= self.octets, "beyond the stretch");
        self.octets -= octets;
        self.at += octets as u32;
    }
}

impl ReceiveQueue {
    /// Records of placed octets.
    pub const fn placed_runs(&self) -> usize {
        self.placed_runs as usize
    }

    pub(super) fn readable_before_placed<F>(&self, pool: &HeldPool<F>) -> usize {
        let placed = pool.first_from(&self.held, self.unread, PLACED).and_then(|node| pool.get(node));
        let end = placed.map_or(self.nxt, |placed| placed.seq.earlier(self.nxt));
        (end - self.unread) as usize
    }

    /// Octets of the record that is next in order, once everything before it is consumed.
    #[inline]
    pub fn placed_next<F>(&self, pool: &HeldPool<F>) -> Option<usize> {
        if self.placed_runs == 0 {
            return None;
        }
        let held = pool.front(&self.held).filter(|held| held.is_placed() && held.seq < self.nxt)?;
        Some(held.octets as usize)
    }

    /// The stretch beyond a gap that `at` lies in; `None` if there is none.
    pub fn stretch_around<F>(&self, pool: &HeldPool<F>, at: SeqNumber) -> Option<Stretch> {
        pool.holder(&self.held, at).filter(|held| held.seq > self.nxt && !held.is_placed())?;
        let first = pool.last_before(&self.held, at + 1, NEW_STRETCH)?;
        let next = pool.first_from(&self.held, at + 1, NEW_STRETCH).and_then(|node| pool.get(node));
        let end = match next {
            Some(next) => pool.last_before(&self.held, next.seq, ANY).and_then(|node| pool.get(node))?.end(),
            None => self.end,
        };
        let after_placed = pool.marks(first) & AFTER_GAP == 0;
        Some(Stretch { start: pool.get(first)?.seq, end, after_placed })
    }

    /// The octets of `stretch` from `at` on, which lies in it. Nothing was inserted or placed since it was
    /// found.
    pub const fn view<'p, F: Frame>(
        &'p self,
        pool: &'p HeldPool<F>,
        stretch: &Stretch,
        at: SeqNumber,
    ) -> StretchView<'p, F> {
        StretchView { pool, held: &self.held, at, octets: octets_between(at, stretch.end) }
    }

    /// The end of the octets in the frame that holds `at`, beyond a gap; `None` if the octets of the frame
    /// begin at `at`. Octets that end before that cannot be placed from `at` on: they would leave a remainder
    /// on both sides of the frame.
    pub fn frame_cut_at<F>(&self, pool: &HeldPool<F>, at: SeqNumber) -> Option<SeqNumber> {
        pool.holder(&self.held, at).filter(|held| held.seq < at).map(Held::end)
    }

    /// Whether `from..to` of a stretch can be placed: no frame keeps a remainder on both sides.
    pub fn may_place<F>(&self, pool: &HeldPool<F>, from: SeqNumber, to: SeqNumber) -> bool {
        self.frame_cut_at(pool, from).is_none_or(|end| end <= to)
    }

    /// Whether there is a record for octets of `stretch` from `from` on.
    pub fn may_place_at<F>(&self, pool: &HeldPool<F>, stretch: &Stretch, from: SeqNumber) -> bool {
        // Without a gap or a frame between, the record before it takes it up.
        let joins = stretch.after_placed && from == stretch.start;
        let records = self.placed_runs();
        joins || (pool.accepts_record(records) && records < limits::PLACED_RUNS_PER_CONNECTION)
    }

    /// Whether an FPDU that begins at `at`, or one after it in the same frame, was [judged](Self::judge).
    pub fn is_judged<F>(&self, pool: &HeldPool<F>, at: SeqNumber) -> bool {
        pool.holder(&self.held, at).is_some_and(|held| at < held.judged)
    }

    /// Records that the FPDU at `at` is complete and is not placed out of order: it is damaged, or the checks
    /// do not allow it. No later segment changes that, so it is not verified again.
    pub fn judge<F>(&self, pool: &mut HeldPool<F>, at: SeqNumber) {
        if let Some(held) = pool.holder_mut(&self.held, at) {
            held.judged = held.judged.later(at + 1);
        }
    }

    /// Replaces `from..to`, octets of one stretch that [`may_place`](Self::may_place) allows and that the
    /// caller has placed, by a record, and frees their frames. Results of earlier searches in the stretch
    /// become invalid.
    pub fn place<F>(&mut self, pool: &mut HeldPool<F>, from: SeqNumber, to: SeqNumber) {
        if self.frame_cut_at(pool, from).is_some() {
            pool.trim_back(&mut self.held, from);
        }
        while let Some(next) = pool.first_from(&self.held, from, ANY).and_then(|node| pool.get(node)) {
            if next.seq >= to {
                break;
            }
            if next.end() > to {
                pool.trim_front(&mut self.held, to);
                break;
            }
            self.remove(pool, next.seq);
        }
        self.record(pool, from, to);
    }

    /// Records `from..to` as placed, in one record with those it touches.
    fn record<F>(&mut self, pool: &mut HeldPool<F>, from: SeqNumber, mut to: SeqNumber) {
        if let Some(next) = pool.holder(&self.held, to).filter(|next| next.is_placed()) {
            let seq = next.seq;
            to = next.end();
            self.remove(pool, seq);
        }
        if pool.holder(&self.held, from - 1).is_some_and(Held::is_placed) {
            pool.extend(&mut self.held, from, octets_between(from, to) as u32);
            return;
        }
        let done = pool.insert(&mut self.held, Held::placed(from, octets_between(from, to) as u32)).is_ok();
        debug_assert!(done, "may_place_at has seen the room");
        self.placed_runs += u16::from(done);
    }
}

/// Octets from `from` to `to`, which comes after it.
const fn octets_between(from: SeqNumber, to: SeqNumber) -> usize {
    to.0.wrapping_sub(from.0) as usize
}
