//! Received octets that are not consumed yet: frames kept by reference, in stream order, without overlap. There is no
//! reassembly copy; only runs of very small segments are gathered into the frame before them, so that the number of
//! frames stays bounded whatever the peer sends.

use arrayvec::ArrayVec;

use crate::device::Frame;
use crate::limits;
use crate::pool::{List, NodeId, Pool};
use crate::wire::tcp::SeqNumber;

/// Octets of the stream inside a frame that is kept.
#[derive(Debug)]
pub struct Held<F> {
    seq: SeqNumber,
    octets: u32,
    /// Where in the frame the octets begin.
    offset: u32,
    frame: F,
}

impl<F> Held<F> {
    fn end(&self) -> SeqNumber {
        self.seq + self.octets
    }
}

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
    frames: List,
    /// Last frame of the run that is in order.
    in_order_back: Option<NodeId>,
    /// Place of the first octet not consumed.
    unread: SeqNumber,
    /// Place of the next octet expected (RCV.NXT).
    nxt: SeqNumber,
}

impl ReceiveQueue {
    /// An empty queue that expects `start`.
    pub const fn new(start: SeqNumber) -> Self {
        Self { frames: List::new(), in_order_back: None, unread: start, nxt: start }
    }

    /// RCV.NXT.
    pub const fn nxt(&self) -> SeqNumber {
        self.nxt
    }

    /// Place of the first octet not consumed.
    pub const fn unread(&self) -> SeqNumber {
        self.unread
    }

    /// Octets in order and not consumed.
    pub fn available(&self) -> usize {
        (self.nxt - self.unread) as usize
    }

    /// Frames kept.
    pub const fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Whether octets wait beyond a gap.
    pub fn has_gap(&self) -> bool {
        self.in_order_back != self.frames.back()
    }

    /// Keeps the octets of `frame` from `offset` that are new, `octets` of them from place `seq` in the stream.
    /// The caller has trimmed them to the window. Octets already held are never replaced (MPA-A.3-02).
    pub fn insert<F: Frame>(
        &mut self,
        pool: &mut Pool<Held<F>>,
        seq: SeqNumber,
        offset: usize,
        octets: usize,
        frame: F,
    ) -> Insertion {
        let mut held = Held { seq, octets: octets as u32, offset: offset as u32, frame };
        if !trim_front(&mut held, self.nxt) {
            return Insertion::Duplicate;
        }
        if held.seq == self.nxt {
            self.insert_in_order(pool, held)
        } else {
            self.insert_beyond_gap(pool, held)
        }
    }

    fn insert_in_order<F: Frame>(&mut self, pool: &mut Pool<Held<F>>, mut held: Held<F>) -> Insertion {
        if let Some(next) = self.after_in_order(pool).and_then(|node| pool.get(node)) {
            trim_back(&mut held, next.seq);
        }
        if self.gather_small(pool, &held) {
            return self.close_gaps(pool);
        }
        if self.frames.len() >= limits::HELD_FRAMES_PER_CONNECTION {
            return Insertion::NoRoom;
        }
        self.nxt = held.end();
        match pool.insert_after(&mut self.frames, self.in_order_back, held) {
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
    fn gather_small<F: Frame>(&mut self, pool: &mut Pool<Held<F>>, held: &Held<F>) -> bool {
        let octets = held.octets as usize;
        if self.frames.len() < limits::HELD_FRAMES_BEFORE_GATHERING || octets > limits::GATHER_MAX_OCTETS {
            return false;
        }
        let Some(last) = self.in_order_back.and_then(|node| pool.get_mut(node)) else { return false };
        if last.frame.len() != (last.offset + last.octets) as usize {
            return false;
        }
        let Some(mut room) = last.frame.append(octets) else { return false };
        pieces(&held.frame, held.offset as usize, octets, &mut |slice| {
            let (taken, rest) = core::mem::take(&mut room).split_at_mut(slice.len());
            taken.copy_from_slice(slice);
            room = rest;
        });
        last.octets += held.octets;
        self.nxt = held.end();
        true
    }

    fn after_in_order<F>(&self, pool: &Pool<Held<F>>) -> Option<NodeId> {
        match self.in_order_back {
            Some(node) => pool.next(node),
            None => self.frames.front(),
        }
    }

    /// Moves the frontier over frames that were waiting for the octets just inserted.
    fn close_gaps<F>(&mut self, pool: &Pool<Held<F>>) -> Insertion {
        let mut filled_gap = false;
        while let Some(node) = self.after_in_order(pool) {
            let Some(next) = pool.get(node).filter(|next| next.seq == self.nxt) else { break };
            self.nxt = next.end();
            self.in_order_back = Some(node);
            filled_gap = true;
        }
        Insertion::InOrder { filled_gap }
    }

    fn insert_beyond_gap<F>(&mut self, pool: &mut Pool<Held<F>>, mut held: Held<F>) -> Insertion {
        // A part of the bound and of the pool is left to what comes in order: it fills gaps and frees frames.
        let bound = limits::HELD_FRAMES_PER_CONNECTION - limits::HELD_FRAMES_IN_ORDER;
        if self.frames.len() >= bound || pool.free() <= pool.used() / 8 {
            return Insertion::NoRoom;
        }
        let previous = match self.place_for(pool, &mut held) {
            Ok(previous) => previous,
            Err(duplicate) => return duplicate,
        };
        let (from, to) = (held.seq, held.end());
        match pool.insert_after(&mut self.frames, previous, held) {
            Ok(_) => Insertion::OutOfOrder { from, to },
            Err(_) => Insertion::NoRoom,
        }
    }

    /// Finds the frame after which `held` goes, and trims what is there already off it. The run in order lies before it
    /// by construction.
    fn place_for<F>(&self, pool: &Pool<Held<F>>, held: &mut Held<F>) -> Result<Option<NodeId>, Insertion> {
        let back = self.frames.back();
        if self.has_gap() && back.and_then(|node| pool.get(node)).is_some_and(|last| last.end() <= held.seq) {
            // What comes after one loss comes in order, mostly.
            return Ok(back);
        }
        let mut previous = self.in_order_back;
        loop {
            let next = match previous {
                Some(node) => pool.next(node),
                None => self.frames.front(),
            };
            let Some(next_node) = next else { break };
            let Some(next) = pool.get(next_node) else { break };
            if next.seq > held.seq {
                // Only the first gap the segment reaches is filled; what lies beyond `next` comes again.
                trim_back(held, next.seq);
                break;
            }
            if !trim_front(held, next.end()) {
                return Err(Insertion::Duplicate);
            }
            previous = Some(next_node);
        }
        Ok(previous)
    }

    /// The runs of octets beyond gaps, the first ones.
    pub fn runs_beyond_gaps<F>(&self, pool: &Pool<Held<F>>) -> ArrayVec<(SeqNumber, SeqNumber), 4> {
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
    /// The range must be available.
    pub fn for_each_slice<F: Frame>(
        &self,
        pool: &Pool<Held<F>>,
        start: usize,
        octets: usize,
        mut f: impl FnMut(&[u8]),
    ) {
        debug_assert!(start + octets <= self.available(), "range not available");
        let mut skip = start;
        let mut left = octets;
        for (_, held) in pool.iter(&self.frames) {
            if left == 0 {
                return;
            }
            let held_octets = held.octets as usize;
            if skip >= held_octets {
                skip -= held_octets;
                continue;
            }
            let take = left.min(held_octets - skip);
            pieces(&held.frame, held.offset as usize + skip, take, &mut f);
            left -= take;
            skip = 0;
        }
    }

    /// Consumes `octets` octets, freeing the frames they lie in.
    pub fn consume<F>(&mut self, pool: &mut Pool<Held<F>>, octets: usize) {
        debug_assert!(octets <= self.available(), "consumed more than is in order");
        self.unread += octets as u32;
        while let Some(front) = self.frames.front() {
            let Some(held) = pool.get_mut(front) else { return };
            if held.end() > self.unread {
                if held.seq < self.unread {
                    trim_front(held, self.unread);
                }
                return;
            }
            if self.in_order_back == Some(front) {
                self.in_order_back = None;
            }
            pool.pop_front(&mut self.frames);
        }
    }

    /// Forgets `octets` octets in order from `start` octets after the first unread one, as if they had never come. What
    /// lies behind them now lies beyond a gap. The caller has not acknowledged them.
    pub fn forget<F>(&mut self, pool: &mut Pool<Held<F>>, start: usize, octets: usize) {
        let from = self.unread + start as u32;
        let to = from + octets.min(self.available().saturating_sub(start)) as u32;
        if to <= from {
            return;
        }
        let mut last = None;
        let mut at = self.frames.front();
        while let Some(node) = at {
            let Some(held) = pool.get_mut(node) else { break };
            if held.seq >= to {
                break;
            }
            if held.seq < from {
                // The octets behind the forgotten ones in the same frame go with them: a frame is one run.
                trim_back(held, from);
                last = at;
                at = pool.next(node);
            } else if trim_front(held, to) {
                break;
            } else {
                at = pool.next(node);
                pool.remove_after(&mut self.frames, last);
            }
        }
        self.in_order_back = last;
        self.nxt = from;
    }

    /// Frees every frame; the place of the next octet stays.
    pub fn clear<F>(&mut self, pool: &mut Pool<Held<F>>) {
        pool.clear(&mut self.frames);
        self.in_order_back = None;
        self.unread = self.nxt;
    }
}

/// Drops what lies before `start`; `false` when nothing is left.
fn trim_front<F>(held: &mut Held<F>, start: SeqNumber) -> bool {
    let before = (start - held.seq).max(0) as u32;
    if before >= held.octets {
        return false;
    }
    held.seq += before;
    held.offset += before;
    held.octets -= before;
    true
}

/// Drops what lies from `end` on.
fn trim_back<F>(held: &mut Held<F>, end: SeqNumber) {
    held.octets = held.octets.min((end - held.seq).max(0) as u32);
}

fn pieces<F: Frame>(frame: &F, mut skip: usize, mut left: usize, f: &mut impl FnMut(&[u8])) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{ChecksumRequest, ReceivedChecksums};

    /// A frame with `headroom` octets of headers before its payload and room behind it.
    struct TestFrame {
        octets: Vec<u8>,
        room: usize,
    }

    const HEADERS: usize = 5;

    impl TestFrame {
        fn new(payload: &[u8]) -> Self {
            let mut octets = vec![0xee; HEADERS];
            octets.extend_from_slice(payload);
            Self { octets, room: 64 }
        }
    }

    impl Frame for TestFrame {
        /// Two pieces, cut in the middle of the payload, so that the queue has to cross them.
        fn piece(&self, index: usize) -> Option<&[u8]> {
            let cut = HEADERS + (self.octets.len() - HEADERS) / 2;
            match index {
                0 if self.room < 64 => Some(&self.octets),
                0 => Some(&self.octets[..cut]),
                1 if self.room == 64 => Some(&self.octets[cut..]),
                _ => None,
            }
        }

        fn first_mut(&mut self) -> &mut [u8] {
            &mut self.octets
        }

        fn append(&mut self, octets: usize) -> Option<&mut [u8]> {
            self.room = self.room.checked_sub(octets)?;
            let start = self.octets.len();
            self.octets.resize(start + octets, 0);
            Some(&mut self.octets[start..])
        }

        fn checksums(&self) -> ReceivedChecksums {
            ReceivedChecksums::default()
        }

        fn request_checksums(&mut self, _: ChecksumRequest) {}
    }

    struct Fixture {
        queue: ReceiveQueue,
        pool: Pool<Held<TestFrame>>,
        stream: Vec<u8>,
        start: SeqNumber,
    }

    impl Fixture {
        fn new(octets: usize, frames: usize) -> Self {
            let start = SeqNumber(0xffff_fff0);
            let stream = (0..octets).map(|n| (n * 7 + n / 256) as u8).collect();
            Self { queue: ReceiveQueue::new(start), pool: Pool::new(frames), stream, start }
        }

        fn beyond_gap(&self, from: u32, to: u32) -> Insertion {
            Insertion::OutOfOrder { from: self.start + from, to: self.start + to }
        }

        fn insert(&mut self, from: usize, to: usize) -> Insertion {
            let frame = TestFrame::new(&self.stream[from..to]);
            self.queue.insert(&mut self.pool, self.start + from as u32, HEADERS, to - from, frame)
        }

        /// Reads what is available and checks it against the stream; gives its place in the stream.
        fn check(&self) -> core::ops::Range<usize> {
            let from = (self.queue.unread() - self.start) as usize;
            let mut got = Vec::new();
            self.queue
                .for_each_slice(&self.pool, 0, self.queue.available(), |slice| got.extend_from_slice(slice));
            let range = from..from + got.len();
            assert_eq!(got, self.stream[range.clone()]);
            range
        }
    }

    #[test]
    fn gaps_are_filled_in_any_order() {
        let mut f = Fixture::new(100, 8);
        assert_eq!(f.insert(20, 40), f.beyond_gap(20, 40));
        assert_eq!(f.insert(60, 80), f.beyond_gap(60, 80));
        assert_eq!(f.insert(20, 40), Insertion::Duplicate);
        assert_eq!(f.check(), 0..0);
        assert_eq!(f.insert(0, 30), Insertion::InOrder { filled_gap: true });
        assert_eq!(f.check(), 0..40);
        assert!(f.queue.has_gap());
        assert_eq!(f.insert(30, 70), Insertion::InOrder { filled_gap: true });
        assert_eq!(f.check(), 0..80);
        assert!(!f.queue.has_gap());
        assert_eq!(f.insert(70, 75), Insertion::Duplicate);
    }

    /// MPA-A.3-02: what was taken first stays, whatever a later copy says.
    #[test]
    fn a_duplicate_never_replaces() {
        let mut f = Fixture::new(100, 8);
        f.insert(10, 20);
        let altered = vec![0xff; 40];
        f.queue.insert(&mut f.pool, f.start, HEADERS, 40, TestFrame::new(&altered));
        let mut got = Vec::new();
        f.queue.for_each_slice(&f.pool, 0, 20, |slice| got.extend_from_slice(slice));
        assert_eq!(got[10..20], f.stream[10..20], "held before the altered copy came");
        assert_eq!(got[..10], altered[..10]);
    }

    #[test]
    fn consumed_frames_are_free_again() {
        let mut f = Fixture::new(100, 4);
        f.insert(0, 30);
        f.insert(30, 60);
        f.queue.consume(&mut f.pool, 40);
        assert_eq!((f.check(), f.pool.used()), (40..60, 1));
        f.queue.consume(&mut f.pool, 20);
        assert_eq!(f.pool.used(), 0);
        assert_eq!(f.insert(50, 70), Insertion::InOrder { filled_gap: false });
        assert_eq!(f.check(), 60..70);
    }

    #[test]
    fn no_room_changes_nothing() {
        let mut f = Fixture::new(100, 1);
        f.insert(0, 10);
        assert_eq!(f.insert(10, 20), Insertion::NoRoom);
        assert_eq!(f.insert(30, 40), Insertion::NoRoom);
        assert_eq!(f.check(), 0..10);
        f.queue.consume(&mut f.pool, 10);
        assert_eq!(f.insert(10, 20), Insertion::InOrder { filled_gap: false });
    }

    /// A window of segments beyond a gap does not keep out those that fill it, though they are held for a while too: their
    /// FPDU may end beyond the gap.
    #[test]
    fn what_lies_beyond_a_gap_leaves_room_for_what_fills_it() {
        let (segment, frames) = (600, 2 * limits::HELD_FRAMES_PER_CONNECTION);
        let mut f = Fixture::new(segment * frames, 8 * frames);
        let kept =
            |n: &usize| matches!(f.insert(n * segment, (n + 1) * segment), Insertion::OutOfOrder { .. });
        let held = (1..frames).take_while(kept).count();
        assert!(held > 600, "{held}");
        assert_eq!(f.insert(0, 300), Insertion::InOrder { filled_gap: false });
        assert_eq!(f.insert(300, segment), Insertion::InOrder { filled_gap: true });
        assert_eq!(f.check(), 0..(1 + held) * segment);
    }

    /// Segments of one octet do not exhaust the frames: they are gathered, and counted as in order.
    #[test]
    fn tiny_segments_are_gathered() {
        let octets = 4000;
        let mut f = Fixture::new(octets, 200);
        for n in 0..octets {
            assert_ne!(f.insert(n, n + 1), Insertion::NoRoom, "octet {n}");
        }
        assert!(f.pool.used() < 100, "{} frames", f.pool.used());
        assert_eq!(f.check(), 0..octets);
    }

    #[test]
    fn forgotten_octets_come_again() {
        let mut f = Fixture::new(100, 8);
        f.insert(0, 30);
        f.insert(30, 60);
        f.insert(80, 90);
        f.queue.consume(&mut f.pool, 10);
        f.insert(60, 70);
        f.queue.forget(&mut f.pool, 15, 10);
        assert_eq!((f.check(), f.queue.nxt()), (10..25, f.start + 25), "the rest of its frame goes too");
        let start = f.start;
        let runs = f.queue.runs_beyond_gaps(&f.pool);
        assert_eq!(
            runs[..],
            [(start + 35, start + 70), (start + 80, start + 90)],
            "what lies behind is kept"
        );
        assert_eq!(f.insert(20, 50), Insertion::InOrder { filled_gap: true });
        assert_eq!(f.check(), 10..70);
        assert_eq!(f.insert(70, 80), Insertion::InOrder { filled_gap: true });
        assert_eq!(f.check(), 10..90);
        f.queue.clear(&mut f.pool);
        assert_eq!(f.pool.used(), 0);
    }

    /// Random segments, reads and losses of memory against the stream itself.
    #[test]
    fn every_octet_comes_once_and_in_order() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let octets = 5000;
            let mut f = Fixture::new(octets, 64);
            let mut consumed = 0;
            for _ in 0..100_000 {
                if consumed == octets {
                    break;
                }
                let near = (f.queue.nxt() - f.start) as usize;
                let from = (near + rng.usize(..200)).saturating_sub(rng.usize(..100)).min(octets - 1);
                let to = (from + 1 + rng.usize(..150)).min(octets);
                f.insert(from, to);
                let available = f.check();
                if rng.u32(..4) == 0 && !available.is_empty() {
                    let take = 1 + rng.usize(..available.len());
                    f.queue.consume(&mut f.pool, take);
                    consumed += take;
                    assert_eq!(f.check().start, consumed, "seed {seed}");
                } else if rng.u32(..20) == 0 {
                    let keep = rng.usize(..=available.len());
                    f.queue.forget(&mut f.pool, keep, 1 + rng.usize(..200));
                    assert_eq!(f.check(), consumed..consumed + keep, "seed {seed}");
                }
            }
            assert_eq!(consumed, octets, "seed {seed}");
            f.queue.clear(&mut f.pool);
            assert_eq!(f.pool.used(), 0, "seed {seed}: frames leaked");
        }
    }
}
