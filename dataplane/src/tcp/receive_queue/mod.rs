//! The receive queue of a connection: received octets that are not consumed yet, in the frames they came in,
//! in stream order and without overlap. There is no reassembly copy. Only runs of very small segments are
//! gathered into the frame before them, so that the number of frames stays bounded. The frames of octets
//! placed beyond a gap are freed; a record stands for these octets until their Delivery (`placed`).
//!
//! An FPDU that lies in several segments, or waits beyond a gap, needs no reassembly buffer: its frames stay
//! where they are until it is complete. Only runs of segments up to 512 octets are gathered into the frame
//! before them, so that a peer that sends single octets cannot exhaust the frames; while frames are scarce,
//! longer ones are too. A connection may hold frames for a window of 2 MiB in segments of any length.
//!
//! What a peer sends decides neither how long a search takes nor how often an octet is verified. What is held
//! of a connection, and the placed segments that wait for their Delivery, lie in balanced trees over nodes
//! allocated once per core (`ordered`): a few descents a segment, whatever its place. Which octets are in
//! order is a number beside the tree, so that no gap that closes or opens again moves anything. A complete
//! FPDU beyond a gap is verified once: it is placed, or its frame remembers that it waits for its turn. One
//! in the middle of a frame is not verified before it can be placed. `bytes_verified` and `nodes_visited` of
//! the statistics count it.
//!
//! # The frames of a core
//!
//! Frames held are few, and peers may mean harm. A connection may hold a multiple of what is left for all, so
//! that the share of each falls as more want one; some frames are reserved for FPDUs that come complete and
//! need one only to pass through; what came in order and would use one of those for longer is given back
//! before it is acknowledged, and the peer sends it again. Octets that are next, and would be one frame too
//! many, take the place of the last ones beyond a gap. All connections before Full Operation together
//! have a quarter of the frames, which they share by the same rule: their peers are strangers. When a
//! connection that holds few finds none for octets that are next, connections that have held their fair share
//! (all frames, divided by those who hold some) or more for four seconds are reset, those that hold most
//! first, whatever they consume; none that holds less than that share is (`core/eviction.rs`). Records of
//! placed octets and segments of Sends that wait for their Delivery are shared like frames; without one,
//! octets stay in their frames until their turn.
//!
//! # Windows of byte streams
//!
//! What the window of a byte stream offers is held until its application reads, however many of them pause
//! together, and whatever the length of the segments. Three quarters of a core's frames, 5.25 MiB, are an
//! account of promises (`tcp/receive_queue/promise.rs`). What the application's ring has room for needs none
//! (but see `byte_stream` for streams with the TCP RDMA option). For the rest of the window frames are
//! promised before it is offered: as much as the configuration says, but at most four fifths of what is left
//! in the account, and 3 MiB. A window that was offered never shrinks (RFC 9293 §3.8.6.2.1); it is not moved
//! on instead, until octets are read and their promise is worth no more than a new one. Segments are gathered
//! where frames would be emptier than promised, and frames that are promised are not there for others. A
//! single stream has all of its window of 2 MiB. Of sixteen that receive together each has, by arithmetic,
//! about 0.3 MiB beside its ring. When nothing is left, a stream has what its ring has room for and two
//! segments, so that its window always opens again. Tests pause a thousand readers so; by arithmetic 1800 may
//! pause before a segment is refused. While windows are promised, a new connection is offered a sixteenth of
//! what is left, or 64 KiB, until it is known what it carries.
//!
//! Windows of queue pairs are not promised: their FPDUs pass through frames. Where messages wait for receives
//! on many queue pairs, or many connections are offered their window before the first of them becomes a byte
//! stream, a segment may still be refused when all frames are held; its sender sends it again after its
//! timeout.

mod held;
mod placed;
mod promise;
#[cfg(test)]
mod tests;

use core::ops::Range;

use arrayvec::ArrayVec;

use crate::device::Frame;
use crate::limits;
use crate::ordered::{ANY, OrderedSet};
use crate::wire::tcp::SeqNumber;

use held::{AFTER_GAP, NEW_STRETCH};
pub use held::{Held, HeldPool};
pub use placed::{Stretch, StretchView};
pub use promise::WindowPromise;

/// The result of inserting the payload of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It extends the octets in order; a gap may have been closed too.
    InOrder {
        /// Whether octets that had come out of order are now in order.
        filled_gap: bool,
        /// Everything new in it is kept, and nothing that was kept beyond a gap had to go for it.
        all: bool,
    },
    /// It lies beyond a gap and is kept.
    OutOfOrder {
        /// The first octet kept.
        from: SeqNumber,
        /// The sequence number after the first run of octets kept.
        to: SeqNumber,
        /// The sequence number after the last octet kept; between those kept lie others that had come before.
        last: SeqNumber,
        /// Octets kept.
        octets: u32,
        /// Everything new in it is kept.
        all: bool,
    },
    /// Nothing in it is new.
    Duplicate,
    /// It is new, but a bound on frames is reached. The peer will send it again.
    NoRoom,
}

impl Insertion {
    /// The result of two runs of one segment, this one and then `next`. What is in order makes all in order.
    fn and_then(self, next: Self) -> Self {
        match (self, next) {
            (Self::InOrder { filled_gap, all }, Self::InOrder { filled_gap: gap, all: also }) => {
                Self::InOrder { filled_gap: filled_gap || gap, all: all && also }
            }
            (Self::OutOfOrder { from, to, octets, .. }, Self::OutOfOrder { last, octets: more, all, .. }) => {
                Self::OutOfOrder { from, to, last, octets: octets + more, all }
            }
            (_, next) => next,
        }
    }

    /// The same result for a segment of which something new is not kept.
    fn in_part(self) -> Self {
        match self {
            Self::InOrder { filled_gap, .. } => Self::InOrder { filled_gap, all: false },
            Self::OutOfOrder { from, to, last, octets, .. } => {
                Self::OutOfOrder { from, to, last, octets, all: false }
            }
            Self::Duplicate | Self::NoRoom => Self::NoRoom,
        }
    }
}

/// The receive side of one connection.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// Frames and records of placed octets, without overlap, ordered by their first sequence numbers only.
    /// Nothing moves when octets come in order or are dropped.
    held: OrderedSet,
    /// Records of placed octets among them.
    placed_runs: u16,
    /// Its frames count among those of connections before Full Operation.
    in_startup: bool,
    /// The sequence number of the first octet not consumed.
    unread: SeqNumber,
    /// RCV.NXT: the sequence number of the next octet expected.
    nxt: SeqNumber,
    /// The sequence number after the last octet kept, or `nxt` if nothing waits beyond a gap.
    end: SeqNumber,
}

impl ReceiveQueue {
    /// An empty queue that expects `start`.
    pub const fn new(start: SeqNumber) -> Self {
        let held = OrderedSet::new();
        Self { held, placed_runs: 0, in_startup: false, unread: start, nxt: start, end: start }
    }

    /// Expects `start` from now on. The queue is empty.
    pub fn restart(&mut self, start: SeqNumber) {
        debug_assert!(self.is_drained(), "its frames would be lost");
        *self = Self { in_startup: self.in_startup, ..Self::new(start) };
    }

    /// Counts its frames among those of connections before Full Operation, which have a bound of their own.
    /// It is empty.
    pub fn enter_startup(&mut self) {
        debug_assert!(self.is_drained(), "frames are counted when they come");
        self.in_startup = true;
    }

    /// Counts its frames no longer among those of connections before Full Operation.
    pub fn leave_startup<F>(&mut self, pool: &mut HeldPool<F>) {
        if core::mem::take(&mut self.in_startup) {
            pool.frames_in_startup -= self.frames();
        }
    }

    /// Whether its frames count among those of connections before Full Operation.
    pub const fn is_in_startup(&self) -> bool {
        self.in_startup
    }

    /// RCV.NXT.
    pub const fn nxt(&self) -> SeqNumber {
        self.nxt
    }

    /// The sequence number of the first octet not consumed.
    pub const fn unread(&self) -> SeqNumber {
        self.unread
    }

    /// Octets in order and not consumed, placed ones among them.
    pub fn available(&self) -> usize {
        (self.nxt - self.unread) as usize
    }

    /// Of those, the octets before the first placed one, which can still be read.
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

    /// The sequence number after the last octet kept.
    pub const fn end(&self) -> SeqNumber {
        self.end
    }

    /// Whether octets wait beyond a gap.
    pub fn has_gap(&self) -> bool {
        self.end != self.nxt
    }

    /// Whether nothing is kept: everything that has come is in order and consumed.
    #[inline]
    pub const fn is_drained(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns true if all octets in order are consumed, and those up to `end` have not come: what is kept
    /// lies beyond a gap that ends there or later.
    #[inline(never)]
    pub fn lacks_up_to<F>(&self, pool: &HeldPool<F>, end: SeqNumber) -> bool {
        self.nxt == self.unread && pool.front(&self.held).is_some_and(|first| first.seq >= end)
    }

    /// The sequence number of the first octet kept.
    #[inline]
    pub fn first_kept<F>(&self, pool: &HeldPool<F>) -> Option<SeqNumber> {
        pool.front(&self.held).map(|first| first.seq)
    }

    /// Moves RCV.NXT to `next` over octets that have come in order, and lie in their frames outside of the
    /// queue. It is [drained](Self::is_drained), or [lacks](Self::lacks_up_to) these octets.
    /// [`pass`](Self::pass) and [`keep`](Self::keep) follow before the queue is read or changed, and
    /// [`close_gap`](Self::close_gap) unless it is drained.
    #[inline]
    pub fn advance_to(&mut self, next: SeqNumber) {
        debug_assert!(!self.is_drained() || self.end == self.nxt, "octets wait before these");
        self.nxt = next;
        self.end = self.end.later(next);
    }

    /// Consumes the first `octets` of them.
    #[inline]
    pub fn pass(&mut self, octets: usize) {
        debug_assert!(octets <= self.available(), "more than has come");
        self.unread += octets as u32;
    }

    /// Keeps the rest of them, which are at `offset` of `frame`. The pool has room for a frame.
    pub fn keep<F: Frame>(&mut self, pool: &mut HeldPool<F>, offset: usize, frame: F) {
        let held = Held::in_frame(self.unread, self.available() as u32, offset as u32, frame);
        let kept = if self.is_drained() {
            pool.append(&mut self.held, held, 0)
        } else {
            pool.insert(&mut self.held, held)
        };
        debug_assert!(kept.is_ok() && !self.in_startup, "there was room, and it is for FPDUs");
    }

    /// Takes the frame out whose octets waited for those that RCV.NXT was [advanced](Self::advance_to) over,
    /// all of which are consumed, and advances RCV.NXT over its octets: [`pass`](Self::pass) and
    /// [`keep`](Self::keep) follow as after that. Returns `None` if no octets waited for them, or none that
    /// lie in a frame.
    #[inline]
    pub fn pop_next<F>(&mut self, pool: &mut HeldPool<F>) -> Option<(F, Range<usize>)> {
        debug_assert!(self.nxt == self.unread && !self.in_startup, "octets are to be read before these");
        pool.front(&self.held).filter(|first| first.seq == self.nxt && !first.is_placed())?;
        let Held { octets, offset, frame, .. } = pool.pop_first(&mut self.held)?;
        self.nxt += octets;
        Some((frame?, offset as usize..(offset + octets) as usize))
    }

    /// Moves RCV.NXT over the octets that waited for those it was [advanced](Self::advance_to) over. Returns
    /// true if there are any.
    pub fn close_gap<F>(&mut self, pool: &HeldPool<F>) -> bool {
        let is_filled = pool.holder(&self.held, self.nxt).is_some();
        if is_filled {
            self.nxt = self.run_end(pool, self.nxt + 1);
        }
        is_filled
    }

    /// Keeps the new ones of the `octets` octets at `offset` in `frame`, whose first sequence number is
    /// `seq`. The caller has trimmed them to the window. Octets already held are neither replaced nor
    /// delivered twice.
    ///
    /// Example: 11 to 20 and 31 to 40 are held, and 1 to 50 come. 1 to 10, 21 to 30 and 41 to 50 are new, and
    /// all is in order then.
    // Requirements: MPA-A.3-02, C00-5.1-05, DDP-3-12
    pub fn insert<F: Frame>(
        &mut self,
        pool: &mut HeldPool<F>,
        seq: SeqNumber,
        offset: usize,
        octets: usize,
        frame: F,
    ) -> Insertion {
        let mut held = Held::in_frame(seq, octets as u32, offset as u32, frame);
        if !held.trim_front(self.nxt) {
            return Insertion::Duplicate;
        }
        if self.may_hold(held.seq) && self.new_run(pool, held.seq, held.end()) != Some((held.seq, held.end()))
        {
            return self.insert_new_runs(pool, held);
        }
        self.insert_run(pool, held)
    }

    /// Keeps the runs of new octets of a segment that overlaps what is held. A frame holds one run of octets,
    /// so all runs but one are copied.
    #[cold]
    fn insert_new_runs<F: Frame>(&mut self, pool: &mut HeldPool<F>, held: Held<F>) -> Insertion {
        let end = held.end();
        let mut inserted = Insertion::Duplicate;
        let (mut at, mut original) = (held.seq, Some(held));
        for run in 1..=limits::NEW_RUNS_PER_SEGMENT {
            let Some((from, to)) = self.new_run(pool, at, end) else { break };
            let is_last = run == limits::NEW_RUNS_PER_SEGMENT || self.new_run(pool, to, end).is_none();
            let copy = original.as_ref().filter(|_| !is_last).and_then(|held| held.copy(from, to));
            let Some(part) = copy.or_else(|| original.take().map(|held| held.cut(from, to))) else { break };
            match self.insert_run(pool, part) {
                Insertion::NoRoom => break,
                kept => inserted = inserted.and_then(kept),
            }
            at = to;
        }
        if self.new_run(pool, at, end).is_some() { inserted.in_part() } else { inserted }
    }

    /// The first run of octets from `from` to `end` that have not come, and lie after those in order.
    pub fn new_run<F>(
        &self,
        pool: &HeldPool<F>,
        from: SeqNumber,
        end: SeqNumber,
    ) -> Option<(SeqNumber, SeqNumber)> {
        let mut from = from.later(self.nxt);
        if pool.holder(&self.held, from).is_some() {
            from = self.run_end(pool, from + 1);
        }
        let next = pool.first_from(&self.held, from, ANY).and_then(|node| pool.get(node));
        let to = next.map_or(end, |next| next.seq.earlier(end));
        (from < end).then_some((from, to))
    }

    /// Whether the octet at `at`, or one after it, may have come before.
    #[inline]
    pub fn may_hold(&self, at: SeqNumber) -> bool {
        // `end` is `nxt` if nothing waits beyond a gap.
        at < self.end
    }

    /// The first run of octets from `from` to `end` that have come before.
    pub fn first_duplicate<F>(
        &self,
        pool: &HeldPool<F>,
        from: SeqNumber,
        end: SeqNumber,
    ) -> Option<(SeqNumber, SeqNumber)> {
        let start = if from < self.nxt || pool.holder(&self.held, from).is_some() {
            from
        } else {
            pool.first_from(&self.held, from, ANY).and_then(|node| pool.get(node))?.seq
        };
        let to = if start < self.nxt { self.nxt } else { self.run_end(pool, start + 1) };
        (start < end).then_some((start, to.earlier(end)))
    }

    /// Keeps octets of which none is held.
    #[inline]
    fn insert_run<F: Frame>(&mut self, pool: &mut HeldPool<F>, held: Held<F>) -> Insertion {
        if held.seq == self.nxt {
            self.insert_in_order(pool, held)
        } else {
            self.insert_beyond_gap(pool, held)
        }
    }

    fn insert_in_order<F: Frame>(&mut self, pool: &mut HeldPool<F>, held: Held<F>) -> Insertion {
        let end = held.end();
        if self.gather(pool, &held) {
            return self.close_gaps(pool, end);
        }
        let is_full = self.frames() >= limits::HELD_FRAMES_PER_CONNECTION
            || !pool.accepts_in_order(self.frames(), self.in_startup);
        if is_full && !self.drop_last_beyond_gap(pool) {
            return Insertion::NoRoom;
        }
        let kept = if self.has_gap() || self.placed_runs > 0 {
            pool.insert(&mut self.held, held)
        } else {
            pool.append(&mut self.held, held, 0)
        };
        match kept {
            Ok(()) => {
                pool.frames_in_startup += usize::from(self.in_startup);
                let inserted = self.close_gaps(pool, end);
                if is_full { inserted.in_part() } else { inserted }
            }
            Err(_) => Insertion::NoRoom,
        }
    }

    /// Drops the frame that lies farthest beyond a gap. Its octets are not acknowledged, so the peer sends
    /// them again, also where it was told that they are here (RFC 2018 §8). Returns false if there is none.
    #[cold]
    fn drop_last_beyond_gap<F>(&mut self, pool: &mut HeldPool<F>) -> bool {
        let last = pool.last_before(&self.held, self.end, ANY).and_then(|node| pool.get(node));
        let Some(last) = last.filter(|last| last.seq > self.nxt && !last.is_placed()) else { return false };
        self.remove(pool, last.seq);
        self.end = pool.end_of(&self.held).map_or(self.nxt, |end| end.later(self.nxt));
        true
    }

    /// Copies an in-order segment to the end of the frame before it, if it fits there: a small one once
    /// several frames are held, any while frames are scarce or emptier than a promised window allows.
    fn gather<F: Frame>(&mut self, pool: &mut HeldPool<F>, held: &Held<F>) -> bool {
        let octets = held.octets as usize;
        let gathers = self.frames() >= limits::HELD_FRAMES_BEFORE_GATHERING
            && (octets <= limits::GATHER_MAX_BYTES || pool.is_short());
        if !gathers && !pool.wastes_promise(self.frames(), self.available()) {
            return false;
        }
        let Some(last) = pool.holder_mut(&self.held, self.nxt - 1) else { return false };
        let end = (last.offset + last.octets) as usize;
        let Some(frame) = last.frame.as_mut().filter(|frame| frame.len() == end) else { return false };
        let Some(mut room) = frame.append(octets) else { return false };
        held.pieces(0, octets, &mut |slice| {
            let (taken, rest) = core::mem::take(&mut room).split_at_mut(slice.len());
            taken.copy_from_slice(slice);
            room = rest;
        });
        pool.extend(&mut self.held, held.seq, held.octets);
        true
    }

    /// Moves RCV.NXT to `end`, where the octets just inserted end, and over the octets that waited for them.
    fn close_gaps<F>(&mut self, pool: &HeldPool<F>, end: SeqNumber) -> Insertion {
        let all_in_order = !self.has_gap();
        self.nxt = if all_in_order { end } else { self.run_end(pool, end) };
        if all_in_order {
            self.end = end;
        }
        Insertion::InOrder { filled_gap: self.nxt != end, all: true }
    }

    /// The end of the octets kept without a gap from `at` on. The octet before `at` is kept.
    fn run_end<F>(&self, pool: &HeldPool<F>, at: SeqNumber) -> SeqNumber {
        let Some(next) = pool.first_from(&self.held, at, AFTER_GAP).and_then(|node| pool.get(node)) else {
            return self.end;
        };
        let last = pool.last_before(&self.held, next.seq, ANY).and_then(|node| pool.get(node));
        last.map_or(at, Held::end)
    }

    /// Returns the run of octets kept, without a gap, that those from `from` to `to` are in.
    #[cold]
    pub fn run_around<F>(
        &self,
        pool: &HeldPool<F>,
        from: SeqNumber,
        to: SeqNumber,
    ) -> (SeqNumber, SeqNumber) {
        let first = pool.last_before(&self.held, from + 1, AFTER_GAP).and_then(|node| pool.get(node));
        (first.map_or(from, |first| first.seq), self.run_end(pool, to))
    }

    fn insert_beyond_gap<F>(&mut self, pool: &mut HeldPool<F>, held: Held<F>) -> Insertion {
        // A part of the bound is left to what comes in order: it fills gaps and frees frames.
        if self.frames() >= limits::HELD_FRAMES_BEYOND_GAP
            || !pool.accepts_beyond_gap(self.frames(), self.in_startup)
        {
            return Insertion::NoRoom;
        }
        let (from, to, octets) = (held.seq, held.end(), held.octets);
        // Nothing is kept after it, and what lies before it ends earlier.
        let kept = if from > self.end {
            pool.append(&mut self.held, held, AFTER_GAP | NEW_STRETCH)
        } else {
            pool.insert(&mut self.held, held)
        };
        match kept {
            Ok(()) => {
                pool.frames_in_startup += usize::from(self.in_startup);
                self.end = self.end.later(to);
                Insertion::OutOfOrder { from, to, last: to, octets, all: true }
            }
            Err(_) => Insertion::NoRoom,
        }
    }

    /// The runs of octets beyond gaps, the first ones.
    pub fn runs_beyond_gaps<F>(&self, pool: &HeldPool<F>) -> ArrayVec<(SeqNumber, SeqNumber), 4> {
        let mut runs = ArrayVec::<(SeqNumber, SeqNumber), 4>::new();
        let mut at = self.nxt;
        while at < self.end
            && let Some(first) = pool.first_from(&self.held, at, ANY).and_then(|node| pool.get(node))
        {
            at = self.run_end(pool, first.seq + 1);
            if runs.try_push((first.seq, at)).is_err() {
                break;
            }
        }
        runs
    }

    /// Returns the first octets in order, those of one frame, if they lie in its first piece.
    #[inline]
    pub fn front_octets<'p, F: Frame>(&self, pool: &'p HeldPool<F>) -> Option<&'p [u8]> {
        let first = pool.front(&self.held).filter(|first| first.seq == self.unread)?;
        let (offset, octets) = (first.offset as usize, first.octets as usize);
        let is_in_order = first.end() <= self.nxt;
        let frame = first.frame.as_ref().filter(|_| is_in_order)?;
        frame.piece(0)?.get(offset..offset + octets)
    }

    /// Calls `f` with the slices that make up `octets` octets in order, from `start` octets after the first
    /// unread one. The range must be readable.
    pub fn for_each_slice<F: Frame>(
        &self,
        pool: &HeldPool<F>,
        start: usize,
        octets: usize,
        mut f: impl FnMut(&[u8]),
    ) {
        debug_assert!(start + octets <= self.readable(pool), "range not readable");
        pool.for_each_slice(&self.held, self.unread + start as u32, octets, &mut f);
    }

    /// Calls `f` with the slices that make up `octets` octets from the sequence number `from` on, which are
    /// kept, in order or beyond a gap.
    pub fn for_each_kept_slice<F: Frame>(
        &self,
        pool: &HeldPool<F>,
        from: SeqNumber,
        octets: usize,
        mut f: impl FnMut(&[u8]),
    ) {
        pool.for_each_slice(&self.held, from, octets, &mut f);
    }

    /// Consumes `octets` octets, freeing the frames they lie in.
    pub fn consume<F>(&mut self, pool: &mut HeldPool<F>, octets: usize) {
        debug_assert!(octets <= self.available(), "consumed more than is in order");
        self.unread += octets as u32;
        while let Some(first) = pool.front(&self.held) {
            if first.end() > self.unread {
                if first.seq < self.unread {
                    pool.trim_first(&self.held, self.unread);
                }
                return;
            }
            let removed = pool.pop_first(&mut self.held);
            self.placed_runs -= u16::from(removed.is_some_and(|held| held.is_placed()));
            if self.in_startup {
                pool.frames_in_startup -= 1;
            }
        }
    }

    fn remove<F>(&mut self, pool: &mut HeldPool<F>, seq: SeqNumber) {
        let removed = pool.remove(&mut self.held, seq);
        self.placed_runs -= u16::from(removed.as_ref().is_some_and(Held::is_placed));
        // Nothing is placed before Full Operation.
        pool.frames_in_startup -= usize::from(self.in_startup && removed.is_some());
    }

    /// Drops `octets` octets in order, from `start` octets after the first unread one, as if they had not
    /// come. Octets after them are now beyond a gap. The caller has not acknowledged them. Placed octets and
    /// those after them are not dropped.
    pub fn forget<F>(&mut self, pool: &mut HeldPool<F>, start: usize, octets: usize) {
        let from = self.unread + start as u32;
        let to = from + octets.min(self.readable(pool).saturating_sub(start)) as u32;
        if to <= from {
            return;
        }
        if pool.holder(&self.held, from).is_some_and(|held| held.seq < from) {
            // Octets after the dropped ones in the same frame are dropped too: a frame holds one run.
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
        self.nxt = from;
        self.end = pool.end_of(&self.held).map_or(from, |end| end.later(from));
    }

    /// Frees every frame; RCV.NXT stays.
    pub fn clear<F>(&mut self, pool: &mut HeldPool<F>) {
        while pool.pop_first(&mut self.held).is_some() {
            pool.frames_in_startup -= usize::from(self.in_startup);
        }
        self.placed_runs = 0;
        self.unread = self.nxt;
        self.end = self.nxt;
    }
}
