//! Tests of the receive queue: insertion, gaps, placement, bounds and random segments.

use super::*;
use crate::device::{ChecksumRequest, ReceivedChecksums};

/// A frame with `headroom` octets of headers before its payload and free octets after it.
struct TestFrame {
    octets: Vec<u8>,
    room: usize,
}

const HEADERS: usize = 5;
const IN_ORDER: Insertion = Insertion::InOrder { filled_gap: false, all: true };
const FILLED: Insertion = Insertion::InOrder { filled_gap: true, all: true };
const RECORDS: usize = 24;

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
        let cut = HEADERS + self.octets.len().saturating_sub(HEADERS) / 2;
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

    fn copy_part(&self, offset: usize, octets: usize) -> Option<Self> {
        // In one piece.
        Some(Self { octets: self.octets[offset..offset + octets].to_vec(), room: 63 })
    }

    fn checksums(&self) -> ReceivedChecksums {
        ReceivedChecksums::default()
    }

    fn request_checksums(&mut self, _: ChecksumRequest) {}
}

struct Fixture {
    queue: ReceiveQueue,
    pool: HeldPool<TestFrame>,
    stream: Vec<u8>,
    start: SeqNumber,
}

impl Fixture {
    fn new(octets: usize, frames: usize) -> Self {
        let start = SeqNumber(0xffff_fff0);
        let stream = (0..octets).map(|n| (n * 7 + n / 256) as u8).collect();
        Self { queue: ReceiveQueue::new(start), pool: HeldPool::new(frames, 2048, RECORDS), stream, start }
    }

    fn beyond_gap(&self, from: u32, to: u32) -> Insertion {
        self.runs_beyond_gap(from, to, to, to - from)
    }

    /// The insertion of `octets` octets in all, of which the first run is `from..to` and the last ends at
    /// `last`.
    fn runs_beyond_gap(&self, from: u32, to: u32, last: u32, octets: u32) -> Insertion {
        let (from, to, last) = (self.start + from, self.start + to, self.start + last);
        Insertion::OutOfOrder { from, to, last, octets, all: true }
    }

    fn insert(&mut self, from: usize, to: usize) -> Insertion {
        let frame = TestFrame::new(&self.stream[from..to]);
        self.queue.insert(&mut self.pool, self.start + from as u32, HEADERS, to - from, frame)
    }

    /// Places `from..to`, having looked at it; `false` when that cannot be.
    fn place(&mut self, from: usize, to: usize) -> bool {
        let (first, last) = (self.start + from as u32, self.start + to as u32);
        let Some(stretch) = self.queue.stretch_around(&self.pool, first) else { return false };
        if last > stretch.end
            || !self.queue.may_place_at(&self.pool, &stretch, first)
            || !self.queue.may_place(&self.pool, first, last)
        {
            return false;
        }
        let mut got = Vec::new();
        let view = self.queue.view(&self.pool, &stretch, first);
        view.for_each_slice(0, to - from, |slice| got.extend_from_slice(slice));
        assert_eq!(got, self.stream[from..to]);
        self.queue.place(&mut self.pool, first, last);
        true
    }

    /// The stretch around octet `at`: where it begins and ends, and whether placed octets come before it.
    fn stretch(&self, at: u32) -> Option<(u32, u32, bool)> {
        let place = |seq: SeqNumber| (seq - self.start) as u32;
        let stretch = self.queue.stretch_around(&self.pool, self.start + at)?;
        Some((place(stretch.start), place(stretch.end), stretch.after_placed))
    }

    /// Reads the readable octets and checks them against the stream. Returns their position in the stream.
    fn check(&self) -> Range<usize> {
        let from = (self.queue.unread() - self.start) as usize;
        let mut got = Vec::new();
        self.queue.for_each_slice(&self.pool, 0, self.queue.readable(&self.pool), |slice| {
            got.extend_from_slice(slice);
        });
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
    assert_eq!(f.insert(0, 30), FILLED);
    assert_eq!(f.check(), 0..40);
    assert!(f.queue.has_gap());
    assert_eq!(f.insert(30, 70), FILLED);
    assert_eq!(f.check(), 0..80);
    assert!(!f.queue.has_gap());
    assert_eq!(f.insert(70, 75), Insertion::Duplicate);
}

/// Octets of the first copy stay, whatever a later copy contains.
// Requirements: MPA-A.3-02, C00-5.1-05
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

/// RFC 9293 §3.10.7.4: of a segment that overlaps what is held, everything new is kept, in order and beyond a
/// gap, and between octets that are placed too.
#[test]
fn all_that_is_new_is_kept() {
    let mut f = Fixture::new(200, 16);
    for (from, to) in [(20, 30), (40, 50), (50, 60), (80, 90)] {
        f.insert(from, to);
    }
    assert!(f.place(50, 60));
    assert_eq!(f.insert(10, 100), f.runs_beyond_gap(10, 20, 100, 50), "10, 10, 20 and 10 octets");
    assert_eq!(f.queue.runs_beyond_gaps(&f.pool)[..], [(f.start + 10, f.start + 100)]);
    assert_eq!(f.queue.frames(), 7, "three before it, and one for each run");
    assert_eq!(f.insert(110, 120), f.beyond_gap(110, 120));
    assert_eq!(f.insert(0, 130), FILLED);
    assert_eq!((f.queue.nxt(), f.queue.has_gap()), (f.start + 130, false));
    assert_eq!(f.check(), 0..50);
    f.queue.consume(&mut f.pool, 50);
    assert_eq!(f.queue.placed_next(&f.pool), Some(10));
    f.queue.consume(&mut f.pool, 10);
    assert_eq!(f.check(), 60..130);
    f.queue.consume(&mut f.pool, 70);
    assert_eq!((f.pool.frames(), f.pool.placed_runs()), (0, 0));
}

/// Runs of one segment are bounded, in number and by the frames there are; the rest comes again.
#[test]
fn runs_of_one_segment_are_bounded() {
    let holes = 2 * limits::NEW_RUNS_PER_SEGMENT;
    let mut f = Fixture::new(2 * holes, 8 * holes);
    for n in 1..holes {
        f.insert(2 * n + 1, 2 * n + 2);
    }
    let part = |f: &mut Fixture| f.insert(0, 2 * holes);
    assert_eq!(part(&mut f), Insertion::InOrder { filled_gap: true, all: false });
    // The first run has two octets, 0 and 1 before the one held at 3.
    assert_eq!(f.check(), 0..2 * limits::NEW_RUNS_PER_SEGMENT + 2);
    assert_eq!(part(&mut f), FILLED);
    assert_eq!(f.check(), 0..2 * holes);
    // With room for a few frames only.
    let mut f = Fixture::new(100, 8);
    for at in [10, 20, 30] {
        f.insert(at, at + 1);
    }
    let Insertion::OutOfOrder { from, all, .. } = f.insert(5, 90) else { panic!("nothing is kept") };
    assert_eq!((from, all), (f.start + 5, false));
    let frames = f.pool.frames();
    assert_eq!(f.insert(5, 90), Insertion::NoRoom);
    assert_eq!(f.pool.frames(), frames);
}

/// RFC 2883 §4.2: of what has come before in a segment, the first run.
#[test]
fn the_first_duplicate_run_is_found() {
    let mut f = Fixture::new(200, 16);
    f.insert(0, 10);
    for (from, to) in [(20, 30), (30, 35), (50, 60)] {
        f.insert(from, to);
    }
    let first = |from: u32, to: u32| {
        let run = f.queue.first_duplicate(&f.pool, f.start + from, f.start + to);
        run.map(|(from, to)| ((from - f.start) as u32, (to - f.start) as u32))
    };
    assert_eq!(first(0, 5), Some((0, 5)));
    assert_eq!(first(5, 55), Some((5, 10)), "in order");
    assert_eq!(first(10, 55), Some((20, 35)), "beyond a gap");
    assert_eq!(first(25, 55), Some((25, 35)));
    assert_eq!(first(25, 28), Some((25, 28)));
    assert_eq!(first(35, 52), Some((50, 52)));
    assert_eq!((first(10, 20), first(35, 50), first(60, 70)), (None, None, None));
}

#[test]
fn consumed_frames_are_free_again() {
    let mut f = Fixture::new(100, 4);
    f.insert(0, 30);
    f.insert(30, 60);
    f.queue.consume(&mut f.pool, 40);
    assert_eq!((f.check(), f.pool.frames()), (40..60, 1));
    f.queue.consume(&mut f.pool, 20);
    assert_eq!(f.pool.frames(), 0);
    assert_eq!(f.insert(50, 70), IN_ORDER);
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
    assert_eq!(f.insert(10, 20), IN_ORDER);
}

/// A window of segments beyond a gap does not keep out those that fill it, though they are held for a while
/// too: their FPDU may end beyond the gap.
#[test]
fn what_lies_beyond_a_gap_leaves_room_for_what_fills_it() {
    let (segment, frames) = (600, 2 * limits::HELD_FRAMES_PER_CONNECTION);
    let mut f = Fixture::new(segment * frames, 8 * frames);
    let kept = |n: &usize| matches!(f.insert(n * segment, (n + 1) * segment), Insertion::OutOfOrder { .. });
    let held = (1..frames).take_while(kept).count();
    assert!(held > 600, "{held}");
    assert_eq!(f.insert(0, 300), IN_ORDER);
    assert_eq!(f.insert(300, segment), FILLED);
    assert_eq!(f.check(), 0..(1 + held) * segment);
}

/// A connection has filled its share with frames beyond a gap, and then another one takes octets in order, so
/// that the share is less: what is next takes the place of what lies farthest.
#[test]
fn what_is_next_takes_the_place_of_what_lies_farthest() {
    let mut f = Fixture::new(2000, 160);
    let kept = |n: &usize| matches!(f.insert(10 * n, 10 * n + 10), Insertion::OutOfOrder { .. });
    let held = (1..199).take_while(kept).count();
    assert!(held > 50, "{held}");
    let mut other = ReceiveQueue::new(SeqNumber(0));
    let mut insert_other = |pool: &mut HeldPool<TestFrame>, at: u32| {
        other.insert(pool, SeqNumber(at), HEADERS, 10, TestFrame::new(&[7; 10]))
    };
    let others = (0..2000).take_while(|n| insert_other(&mut f.pool, 10 * n) == IN_ORDER).count();
    assert!(others < 2000, "all that it may have");
    assert!(!f.pool.accepts_in_order(f.queue.frames(), false), "its share has become small: {others}");
    let frames = f.pool.frames();
    assert_eq!(f.insert(0, 10), Insertion::InOrder { filled_gap: true, all: false });
    assert_eq!(f.pool.frames(), frames, "not one more");
    let next = 10 * held;
    assert_eq!((f.check(), (f.queue.end() - f.start) as usize), (0..next, next), "the last has gone");
    assert_eq!(f.insert(next, next + 100), Insertion::NoRoom, "nothing lies beyond a gap any more");
    f.queue.consume(&mut f.pool, next);
    assert_eq!(f.insert(next, next + 10), IN_ORDER);
}

/// Segments of one octet do not exhaust the frames: they are gathered, and counted as in order.
#[test]
fn tiny_segments_are_gathered() {
    let octets = 4000;
    let mut f = Fixture::new(octets, 200);
    for n in 0..octets {
        assert_ne!(f.insert(n, n + 1), Insertion::NoRoom, "octet {n}");
    }
    assert!(f.pool.frames() < 100, "{} frames", f.pool.frames());
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
        "what lies after them is kept"
    );
    assert_eq!(f.insert(20, 50), FILLED);
    assert_eq!(f.check(), 10..70);
    assert_eq!(f.insert(70, 80), FILLED);
    assert_eq!(f.check(), 10..90);
    f.queue.clear(&mut f.pool);
    assert_eq!(f.pool.frames(), 0);
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
            let inserted = f.insert(from, to);
            let again = matches!(
                inserted,
                Insertion::InOrder { all: true, .. } | Insertion::OutOfOrder { all: true, .. }
            );
            assert!(!again || f.insert(from, to) == Insertion::Duplicate, "seed {seed}: not all was kept");
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
        assert_eq!(f.pool.frames(), 0, "seed {seed}: frames leaked");
    }
}

/// Placed octets leave their frames, are acknowledged like other octets, and are delivered in their turn.
#[test]
fn placed_octets_wait_without_a_frame() {
    let mut f = Fixture::new(200, 8);
    f.insert(20, 60);
    f.insert(60, 100);
    f.insert(140, 160);
    assert_eq!(f.stretch(20), Some((20, 100, false)));
    assert_eq!((f.stretch(110), f.stretch(0)), (None, None));
    assert!(f.place(20, 80));
    assert_eq!((f.pool.frames(), f.queue.frames(), f.queue.placed_runs()), (2, 2, 1));
    assert_eq!(f.stretch(80), Some((80, 100, true)), "an FPDU begins there");
    assert!(f.place(80, 100));
    assert_eq!((f.pool.frames(), f.queue.placed_runs()), (1, 1), "records that touch become one");
    let runs = f.queue.runs_beyond_gaps(&f.pool);
    assert_eq!(runs[..], [(f.start + 20, f.start + 100), (f.start + 140, f.start + 160)]);
    assert_eq!(f.insert(30, 90), Insertion::Duplicate, "MPA-A.3-02");
    assert_eq!(f.insert(90, 120), f.beyond_gap(100, 120));
    assert_eq!(f.insert(0, 30), FILLED);
    assert_eq!((f.queue.nxt(), f.queue.available()), (f.start + 120, 120));
    assert_eq!((f.check(), f.queue.placed_next(&f.pool)), (0..20, None), "not before its turn");
    f.queue.consume(&mut f.pool, 20);
    assert_eq!((f.check(), f.queue.placed_next(&f.pool)), (20..20, Some(80)));
    f.queue.consume(&mut f.pool, 80);
    assert_eq!((f.check(), f.queue.placed_next(&f.pool)), (100..120, None));
    assert_eq!((f.pool.placed_runs(), f.queue.placed_runs()), (0, 0));
}

/// A frame is trimmed on one side only: octets whose removal would split the frame stay.
#[test]
fn frames_are_not_cut_in_the_middle() {
    let mut f = Fixture::new(200, 8);
    f.insert(20, 60);
    assert!(!f.place(30, 50));
    assert!(f.place(30, 60), "the back of it");
    assert_eq!(f.stretch(20), Some((20, 30, false)));
    f.insert(60, 100);
    assert!(f.place(60, 90), "and the front of the next");
    assert_eq!((f.queue.placed_runs(), f.queue.frames()), (1, 2));
    f.insert(100, 120);
    assert!(!f.place(95, 98));
    assert!(f.place(95, 110), "a remainder in each of two frames");
    assert_eq!((f.queue.placed_runs(), f.queue.frames()), (2, 3));
    assert!(f.place(90, 95), "and what was between two records joins them");
    assert_eq!((f.queue.placed_runs(), f.queue.frames()), (1, 2));
    assert_eq!(f.insert(0, 20), FILLED);
    assert_eq!(f.check(), 0..30);
}

/// Records have a bound, of which a single connection has two thirds and others find a part of the rest;
/// frames keep the nodes that are theirs.
#[test]
fn records_are_bounded() {
    const SHARE: usize = RECORDS * limits::PLACED_SHARE / (limits::PLACED_SHARE + 1);
    let mut f = Fixture::new(4 * (SHARE + 1), 2);
    for n in 0..SHARE {
        f.insert(4 * n + 2, 4 * n + 4);
        assert!(f.place(4 * n + 2, 4 * n + 4));
    }
    f.insert(4 * SHARE + 2, 4 * SHARE + 4);
    assert!(!f.place(4 * SHARE + 2, 4 * SHARE + 4), "no record is left");
    assert_eq!((f.pool.frames(), f.pool.placed_runs()), (1, SHARE));
    let mut first = core::mem::replace(&mut f.queue, ReceiveQueue::new(f.start));
    let mut records = 0;
    while {
        f.insert(4 * records + 2, 4 * records + 4);
        f.place(4 * records + 2, 4 * records + 4)
    } {
        records += 1;
    }
    assert_eq!(records, 6, "of the eight that the first has left");
    f.queue.clear(&mut f.pool);
    core::mem::swap(&mut f.queue, &mut first);
    assert_eq!(f.insert(0, 2), FILLED);
    f.queue.consume(&mut f.pool, 4);
    assert!(f.place(4 * SHARE + 2, 4 * SHARE + 4));
    f.queue.clear(&mut f.pool);
    assert_eq!((f.pool.frames(), f.pool.placed_runs()), (0, 0));
}

/// Octets that are dropped for a wrong CRC end where placed octets begin.
// Requirements: MPA-8-08
#[test]
fn placed_octets_are_not_forgotten() {
    let mut f = Fixture::new(100, 8);
    f.insert(20, 40);
    f.insert(40, 60);
    assert!(f.place(20, 40));
    f.insert(0, 20);
    f.queue.forget(&mut f.pool, 5, 50);
    assert_eq!((f.check(), f.queue.nxt()), (0..5, f.start + 5));
    assert_eq!(f.queue.runs_beyond_gaps(&f.pool)[..], [(f.start + 20, f.start + 60)]);
    assert_eq!(f.insert(5, 45), FILLED);
    f.queue.consume(&mut f.pool, 20);
    assert_eq!(f.queue.placed_next(&f.pool), Some(20));
    f.queue.forget(&mut f.pool, 0, 50);
    assert_eq!((f.queue.placed_next(&f.pool), f.queue.nxt()), (Some(20), f.start + 60));
}

/// Random segments, placements, reads and losses of memory: each octet is read or placed once, and none is
/// lost.
#[test]
fn every_octet_is_read_or_placed_once() {
    let mut placed_in_all = 0;
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let octets = 5000;
        let mut f = Fixture::new(octets, 64);
        let mut placed = vec![false; octets];
        let mut consumed = 0;
        for _ in 0..100_000 {
            if consumed == octets {
                break;
            }
            let near = (f.queue.nxt() - f.start) as usize;
            let from = (near + rng.usize(..400)).saturating_sub(rng.usize(..200)).min(octets - 1);
            let to = (from + 1 + rng.usize(..150)).min(octets);
            let inserted = f.insert(from, to);
            let again = matches!(
                inserted,
                Insertion::InOrder { all: true, .. } | Insertion::OutOfOrder { all: true, .. }
            );
            assert!(!again || f.insert(from, to) == Insertion::Duplicate, "seed {seed}: not all was kept");
            let (from, to) = (near + 1 + rng.usize(..400), 1 + rng.usize(..200));
            let to = (from + to).min(octets);
            if from < to && f.place(from, to) {
                assert!(!placed[from..to].contains(&true), "seed {seed}: placed twice");
                placed[from..to].fill(true);
            }
            let readable = f.check();
            assert!(!placed[readable.clone()].contains(&true), "seed {seed}: placed octets are gone");
            if rng.u32(..4) == 0 && !readable.is_empty() {
                let take = 1 + rng.usize(..readable.len());
                f.queue.consume(&mut f.pool, take);
                consumed += take;
            } else if rng.u32(..20) == 0 {
                let keep = rng.usize(..=readable.len());
                f.queue.forget(&mut f.pool, keep, 1 + rng.usize(..200));
            }
            if let Some(next) = f.queue.placed_next(&f.pool) {
                assert!(!placed[consumed..consumed + next].contains(&false), "seed {seed}");
                assert!(consumed + next == octets || !placed[consumed + next], "seed {seed}: not one record");
                f.queue.consume(&mut f.pool, next);
                consumed += next;
            }
            assert_eq!(f.check().start, consumed, "seed {seed}");
            assert_eq!(f.pool.placed_runs(), f.queue.placed_runs(), "seed {seed}");
            assert_eq!(f.pool.frames(), f.queue.frames(), "seed {seed}");
        }
        assert_eq!(consumed, octets, "seed {seed}");
        placed_in_all += placed.iter().filter(|placed| **placed).count();
        f.queue.clear(&mut f.pool);
        assert_eq!((f.pool.frames(), f.pool.placed_runs()), (0, 0), "seed {seed}: leaked");
    }
    assert!(placed_in_all > 100_000, "{placed_in_all} octets");
}

/// What a window offers is held until it is read, whatever the length of the segments: those of up to 512
/// octets are gathered, of others there are not more than frames.
#[test]
fn a_window_is_held_in_segments_of_any_length() {
    const WINDOW: usize = 2 << 20;
    for octets in [513, 536, 768, 1023, 1428] {
        let mut f = Fixture::new(WINDOW, limits::HELD_FRAMES_PER_CORE);
        for from in (0..WINDOW).step_by(octets) {
            let to = WINDOW.min(from + octets);
            assert_eq!(f.insert(from, to), IN_ORDER, "{from} in segments of {octets}");
        }
        assert_eq!(f.queue.available(), WINDOW);
        f.queue.clear(&mut f.pool);
    }
}

/// The most nodes that one of `segments` has looked at.
fn most_visits(f: &mut Fixture, segments: impl IntoIterator<Item = (usize, usize)>) -> u64 {
    let visits = |(from, to)| {
        let before = f.pool.visits();
        f.insert(from, to);
        // The calls that TCP and MPA make after each segment.
        f.queue.readable(&f.pool);
        f.queue.runs_beyond_gaps(&f.pool);
        f.queue.stretch_around(&f.pool, f.start + from as u32);
        f.pool.visits() - before
    };
    segments.into_iter().map(visits).max().unwrap_or(0)
}

/// A peer cannot lengthen a search: it sends as many one-octet segments with holes as are kept, in any order,
/// and then the same again and again. The bound is that of some forty descents of a tree with 2560 nodes.
#[test]
fn no_order_of_segments_makes_a_search_long() {
    const SEARCH_VISITS_MAX: u64 = 400;
    let most = limits::HELD_FRAMES_BEYOND_GAP;
    let orders: [fn(usize, usize) -> usize; 3] =
        [|n, _| n, |n, count| count - 1 - n, |n, count| if n % 2 == 0 { n } else { count - n }];
    for order in orders {
        let mut f = Fixture::new(3 * most, 8 * most);
        let at = |n: usize| 2 + 2 * order(n, most);
        let visits = most_visits(&mut f, (0..most - 1).map(|n| (at(n), at(n) + 1)));
        assert!(visits < SEARCH_VISITS_MAX, "{visits} nodes for a new segment");
        assert_eq!(f.queue.frames(), most - 1);
        for again in [0, most / 2, most - 2] {
            let visits = most_visits(&mut f, (0..10).map(|_| (2 + 2 * again, 3 + 2 * again)));
            assert!(visits < SEARCH_VISITS_MAX, "{visits} nodes for a duplicate");
        }
        // A segment over all holes: some of them are filled.
        let visits = most_visits(&mut f, [(2, 2 * most)]);
        let bound = SEARCH_VISITS_MAX * limits::NEW_RUNS_PER_SEGMENT as u64;
        assert!(visits < bound, "{visits} nodes for a segment over all holes");
    }
}

/// The same without holes: octets that one segment covers, octets that fill the gap, and octets that are
/// dropped and received again.
#[test]
fn no_run_of_segments_is_walked() {
    const SEARCH_VISITS_MAX: u64 = 400;
    let most = limits::HELD_FRAMES_BEYOND_GAP;
    let mut f = Fixture::new(3 * most, 8 * most);
    most_visits(&mut f, (0..most - 1).map(|n| (2 + n, 3 + n)));
    let end = most + 1;
    let visits = most_visits(&mut f, [(2, end), (3, end - 1), (2, end + 1)]);
    assert!(visits < SEARCH_VISITS_MAX, "{visits} nodes for a segment over the run");
    for _ in 0..3 {
        let visits = most_visits(&mut f, [(0, 2)]);
        assert_eq!((f.queue.nxt() - f.start) as usize, end + 1);
        assert!(visits < SEARCH_VISITS_MAX, "{visits} nodes for what fills the gap");
        let before = f.pool.visits();
        f.queue.forget(&mut f.pool, 0, 2);
        let visits = f.pool.visits() - before;
        assert!(visits < SEARCH_VISITS_MAX, "{visits} nodes for what is forgotten");
    }
}

#[test]
fn a_run_is_found_from_any_of_its_octets() {
    let mut f = Fixture::new(100, 8);
    for (from, to) in [(10, 20), (30, 40), (40, 50), (20, 25), (60, 70)] {
        f.insert(from, to);
    }
    for (block, run) in
        [((12, 14), (10, 25)), ((20, 25), (10, 25)), ((35, 45), (30, 50)), ((60, 70), (60, 70))]
    {
        let [block, run] = [block, run].map(|(from, to)| (f.start + from, f.start + to));
        assert_eq!(f.queue.run_around(&f.pool, block.0, block.1), run);
    }
}
