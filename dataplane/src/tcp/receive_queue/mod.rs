//! Received octets that are not consumed yet: frames kept by reference, in stream order, without overlap. There is no
//! reassembly copy; only runs of very small segments are gathered into the frame before them, so that the number of
//! frames stays bounded whatever the peer sends. Octets that were placed beyond a gap leave their frames: a record of where
//! they were stands for them until their turn (`placed`).

mod held;
mod placed;
#[cfg(test)]
mod tests;

use arrayvec::ArrayVec;

use crate::device::Frame;
use crate::limits;
use crate::pool::{List, NodeId};
use crate::wire::tcp::SeqNumber;

pub use held::{Held, HeldPool};
pub use placed::{Stretch, StretchView};

/// What became of an arriving segment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It extends the octets in order; a gap may have been closed too.
    InOrder {
        /// Whether octets that had come out of order are now in order.
        filled_gap: bool,
    },
    /// It lies beyond a gap and is kept.
    OutOfOrder {
        /// The first octet kept.
        from: SeqNumber,
        /// The place after the last.
        to: SeqNumber,
    },
    /// Nothing in it is new.
    Duplicate,
    /// It is new, but a bound on frames is reached. The peer will send it again.
    NoRoom,
}

/// The receive side of one connection.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// Frames and records of placed octets.
    held: List,
    /// Records of placed octets among them.
    placed_runs: u16,
    /// Last of those that are in order.
    in_order_back: Option<NodeId>,
    /// Place of the first octet not consumed.
    unread: SeqNumber,
    /// Place of the next octet expected (RCV.NXT).
    nxt: SeqNumber,
}

impl ReceiveQueue {
    /// An empty queue that expects `start`.
    pub const fn new(start: SeqNumber) -> Self {
        Self { held: List::new(), placed_runs: 0, in_order_back: None, unread: start, nxt: start }
    }

    /// RCV.NXT.
    pub const fn nxt(&self) -> SeqNumber {
        self.nxt
    }

    /// Place of the first octet not consumed.
    pub const fn unread(&self) -> SeqNumber {
        self.unread
    }

    /// Octets in order and not consumed, placed ones among them.
    pub fn available(&self) -> usize {
        (self.nxt - self.unread) as usize
    }

    /// Of those, the octets before the first placed one: what can still be looked at.
    #[inline]
    pub fn readable<F>(&self, pool: &HeldPool<F>) -> usize {
        if self.placed_runs == 0 {
            return self.available();
        }
        self.readable_before_placed(pool)
    }

    /// Frames kept.
    pub const fn frames(&self) -> usize {
        self.held.len() - self.placed_runs as usize
    }

    /// Whether octets wait beyond a gap.
    pub fn has_gap(&self) -> bool {
        self.in_order_back != self.held.back()
    }

    /// Keeps the octets of `frame` from `offset` that are new, `octets` of them from place `seq` in the stream.
    /// The caller has trimmed them to the window. Octets already held are never replaced, nor given up
    /// twice (MPA-A.3-02, C00-5.1-05, DDP-3-12).
    pub fn insert<F: Frame>(
        &mut self,
        pool: &mut HeldPool<F>,
        seq: SeqNumber,
        offset: usize,
        octets: usize,
        frame: F,
    ) -> Insertion {
        let mut held = Held { seq, octets: octets as u32, offset: offset as u32, frame: Some(frame) };
        if !held.trim_front(self.nxt) {
            return Insertion::Duplicate;
        }
        if held.seq == self.nxt {
            self.insert_in_order(pool, held)
        } else {
            self.insert_beyond_gap(pool, held)
        }
    }

    fn insert_in_order<F: Frame>(&mut self, pool: &mut HeldPool<F>, mut held: Held<F>) -> Insertion {
        if let Some(next) = self.after_in_order(pool).and_then(|node| pool.get(node)) {
            held.trim_back(next.seq);
        }
        if self.gather_small(pool, &held) {
            return self.close_gaps(pool);
        }
        if self.frames() >= limits::HELD_FRAMES_PER_CONNECTION || !pool.takes_in_order(self.frames()) {
            return Insertion::NoRoom;
        }
        self.nxt = held.end();
        match pool.insert_after(&mut self.held, self.in_order_back, held) {
            Ok(node) => {
                self.in_order_back = Some(node);
                self.close_gaps(pool)
            }
            Err(held) => {
                self.nxt = held.seq;
                Insertion::NoRoom
            }
        }
    }

    /// Copies a small in-order segment behind the octets of the frame before it, once several frames are held.
    fn gather_small<F: Frame>(&mut self, pool: &mut HeldPool<F>, held: &Held<F>) -> bool {
        let octets = held.octets as usize;
        if self.frames() < limits::HELD_FRAMES_BEFORE_GATHERING || octets > limits::GATHER_MAX_OCTETS {
            return false;
        }
        let Some(last) = self.in_order_back.and_then(|node| pool.get_mut(node)) else { return false };
        let end = (last.offset + last.octets) as usize;
        let Some(frame) = last.frame.as_mut().filter(|frame| frame.len() == end) else { return false };
        let Some(mut room) = frame.append(octets) else { return false };
        held.pieces(0, octets, &mut |slice| {
            let (taken, rest) = core::mem::take(&mut room).split_at_mut(slice.len());
            taken.copy_from_slice(slice);
            room = rest;
        });
        last.octets += held.octets;
        self.nxt = held.end();
        true
    }

    fn after_in_order<F>(&self, pool: &HeldPool<F>) -> Option<NodeId> {
        pool.after(&self.held, self.in_order_back)
    }

    /// Moves the frontier over frames that were waiting for the octets just inserted.
    fn close_gaps<F>(&mut self, pool: &HeldPool<F>) -> Insertion {
        let mut filled_gap = false;
        while let Some(node) = self.after_in_order(pool) {
            let Some(next) = pool.get(node).filter(|next| next.seq == self.nxt) else { break };
            self.nxt = next.end();
            self.in_order_back = Some(node);
            filled_gap = true;
        }
        Insertion::InOrder { filled_gap }
    }

    fn insert_beyond_gap<F>(&mut self, pool: &mut HeldPool<F>, mut held: Held<F>) -> Insertion {
        // A part of the bound is left to what comes in order: it fills gaps and frees frames.
        let bound = limits::HELD_FRAMES_PER_CONNECTION - limits::HELD_FRAMES_IN_ORDER;
        if self.frames() >= bound || !pool.takes_beyond_gap(self.frames()) {
            return Insertion::NoRoom;
        }
        let previous = match self.place_for(pool, &mut held) {
            Ok(previous) => previous,
            Err(duplicate) => return duplicate,
        };
        let (from, to) = (held.seq, held.end());
        match pool.insert_after(&mut self.held, previous, held) {
            Ok(_) => Insertion::OutOfOrder { from, to },
            Err(_) => Insertion::NoRoom,
        }
    }

    /// Finds the frame after which `held` goes, and trims what is there already off it. The run in order lies before it
    /// by construction.
    fn place_for<F>(&self, pool: &HeldPool<F>, held: &mut Held<F>) -> Result<Option<NodeId>, Insertion> {
        let back = self.held.back();
        if self.has_gap() && back.and_then(|node| pool.get(node)).is_some_and(|last| last.end() <= held.seq) {
            // What comes after one loss comes in order, mostly.
            return Ok(back);
        }
        let mut previous = self.in_order_back;
        while let Some(next_node) = pool.after(&self.held, previous) {
            let Some(next) = pool.get(next_node) else { break };
            if next.seq > held.seq {
                // Only the first gap the segment reaches is filled; what lies beyond `next` comes again.
                held.trim_back(next.seq);
                break;
            }
            if !held.trim_front(next.end()) {
                return Err(Insertion::Duplicate);
            }
            previous = Some(next_node);
        }
        Ok(previous)
    }

    /// The runs of octets beyond gaps, the first ones.
    pub fn runs_beyond_gaps<F>(&self, pool: &HeldPool<F>) -> ArrayVec<(SeqNumber, SeqNumber), 4> {
        let mut runs = ArrayVec::<(SeqNumber, SeqNumber), 4>::new();
        let mut at = self.after_in_order(pool);
        while let Some(node) = at {
            let Some(held) = pool.get(node) else { break };
            if let Some(run) = runs.last_mut().filter(|run| run.1 == held.seq) {
                run.1 = held.end();
            } else if runs.try_push((held.seq, held.end())).is_err() {
                break;
            }
            at = pool.next(node);
        }
        runs
    }

    /// Calls `f` with the slices that make up `octets` octets in order, from `start` octets after the first unread one.
    /// The range must be readable.
    pub fn for_each_slice<F: Frame>(
        &self,
        pool: &HeldPool<F>,
        start: usize,
        octets: usize,
        mut f: impl FnMut(&[u8]),
    ) {
        debug_assert!(start + octets <= self.readable(pool), "range not readable");
        pool.for_each_slice(self.held.front(), start, octets, &mut f);
    }

    /// Consumes `octets` octets, freeing the frames they lie in.
    pub fn consume<F>(&mut self, pool: &mut HeldPool<F>, octets: usize) {
        debug_assert!(octets <= self.available(), "consumed more than is in order");
        self.unread += octets as u32;
        while let Some(front) = self.held.front() {
            let Some(held) = pool.get_mut(front) else { return };
            if held.end() > self.unread {
                if held.seq < self.unread {
                    held.trim_front(self.unread);
                }
                return;
            }
            if self.in_order_back == Some(front) {
                self.in_order_back = None;
            }
            self.remove_after(pool, None);
        }
    }

    fn remove_after<F>(&mut self, pool: &mut HeldPool<F>, previous: Option<NodeId>) {
        let removed = pool.remove_after(&mut self.held, previous);
        self.placed_runs -= u16::from(removed.is_some_and(|held| held.is_placed()));
    }

    /// Forgets `octets` octets in order from `start` octets after the first unread one, as if they had never come. What
    /// lies behind them now lies beyond a gap. The caller has not acknowledged them. Placed octets are not forgotten, nor is
    /// what follows them.
    pub fn forget<F>(&mut self, pool: &mut HeldPool<F>, start: usize, octets: usize) {
        let from = self.unread + start as u32;
        let to = from + octets.min(self.readable(pool).saturating_sub(start)) as u32;
        if to <= from {
            return;
        }
        let mut last = None;
        let mut at = self.held.front();
        while let Some(node) = at {
            let Some(held) = pool.get_mut(node) else { break };
            if held.seq >= to {
                break;
            }
            if held.seq < from {
                // The octets behind the forgotten ones in the same frame go with them: a frame is one run.
                held.trim_back(from);
                last = at;
                at = pool.next(node);
            } else if held.trim_front(to) {
                break;
            } else {
                at = pool.next(node);
                self.remove_after(pool, last);
            }
        }
        self.in_order_back = last;
        self.nxt = from;
    }

    /// Frees every frame; the place of the next octet stays.
    pub fn clear<F>(&mut self, pool: &mut HeldPool<F>) {
        while !self.held.is_empty() {
            self.remove_after(pool, None);
        }
        self.in_order_back = None;
        self.unread = self.nxt;
    }
}
