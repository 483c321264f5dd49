//! Single segments, and groups of them, through every change of their state.

use super::*;
use crate::tcp::scan_budget::ScanBudget;

const START: SeqNumber = SeqNumber(0xffff_ff00);

impl SendPayload for char {
    fn move_on(&mut self, count: u32) {
        *self = ('a'..).nth(*self as usize - 'a' as usize + count as usize).unwrap();
    }
}

fn queue(sizes: &[u32]) -> (SendQueue, SegmentPool<char>) {
    let mut pool = SegmentPool::new(8);
    let mut queue = SendQueue::new(START);
    for (name, size) in ('a'..).zip(sizes) {
        assert!(queue.push(&mut pool, name, 0, *size));
    }
    (queue, pool)
}

fn sent(queue: &mut SendQueue, pool: &mut SegmentPool<char>) -> Option<(char, u32, u32)> {
    queue.advance(pool, Instant::ZERO).map(|s| (s.payload, s.skip, s.octets))
}

fn resent(queue: &mut SendQueue, pool: &mut SegmentPool<char>) -> Option<(char, u32, u32)> {
    queue.resend_lost(pool, Instant::ZERO).map(|s| (s.payload, s.skip, s.octets))
}

fn counts(queue: &SendQueue) -> (u32, u32, u32) {
    (queue.in_flight_octets(), queue.lost_octets(), queue.sacked_octets())
}

/// A retransmission keeps its segment boundaries.
// Requirements: MPA-A.1-04
#[test]
fn retransmission_keeps_boundaries() {
    let (mut queue, mut pool) = queue(&[100, 200, 300]);
    while sent(&mut queue, &mut pool).is_some() {}
    queue.acknowledge(&mut pool, START + 150, |_, _| {});
    assert_eq!(queue.len(), 2, "a segment acknowledged in part stays");
    assert!(queue.mark_lost(&mut pool, &mut ScanBudget::new(), |_| Verdict::Lost));
    assert_eq!(counts(&queue), (0, 500, 0));
    assert_eq!(resent(&mut queue, &mut pool), Some(('b', 0, 200)));
    assert_eq!(resent(&mut queue, &mut pool), Some(('c', 0, 300)));
    assert_eq!(resent(&mut queue, &mut pool), None);
    assert_eq!(counts(&queue), (500, 0, 0));
}

#[test]
fn an_ack_may_overtake_the_second_sending() {
    let (mut queue, mut pool) = queue(&[100, 200, 300]);
    while sent(&mut queue, &mut pool).is_some() {}
    queue.mark_lost(&mut pool, &mut ScanBudget::new(), |_| Verdict::Lost);
    assert_eq!(resent(&mut queue, &mut pool), Some(('a', 0, 100)));
    let mut freed = Vec::new();
    queue.acknowledge(&mut pool, START + 300, |s, _| freed.push((s.seq - START, s.retransmitted())));
    assert_eq!(freed, [(0, true), (100, false)]);
    assert_eq!(resent(&mut queue, &mut pool), Some(('c', 0, 300)));
    queue.acknowledge(&mut pool, START + 600, |_, _| {});
    assert!(queue.is_empty());
    assert_eq!((pool.used(), counts(&queue)), (0, (0, 0, 0)));
}

/// RFC 2018 §5: only segments that are completely inside a block count as held by the peer.
#[test]
fn selective_acknowledgement_marks_whole_segments() {
    let (mut queue, mut pool) = queue(&[100, 100, 100, 100]);
    while sent(&mut queue, &mut pool).is_some() {}
    let mut held = Vec::new();
    let blocks = [(START + 100, START + 200), (START + 250, START + 400)];
    queue.mark_sacked(&mut pool, &mut ScanBudget::new(), &blocks, |s, _| held.push(s.seq - START));
    queue.mark_sacked(&mut pool, &mut ScanBudget::new(), &blocks, |s, _| held.push(s.seq - START));
    assert_eq!(held, [100, 300], "each is shown once, and not all of c is covered");
    assert_eq!((counts(&queue), queue.sacked_segments()), ((200, 0, 200), 2));
    assert_eq!(queue.sacked_end(), Some(START + 400));
    assert!(queue.mark_lost(&mut pool, &mut ScanBudget::new(), |_| Verdict::Lost), "of a and c");
    assert_eq!(resent(&mut queue, &mut pool), Some(('a', 0, 100)));
    assert_eq!(resent(&mut queue, &mut pool), Some(('c', 0, 100)));
    assert_eq!(resent(&mut queue, &mut pool), None);
}

#[test]
fn a_peer_that_drops_what_it_held_gets_it_again() {
    let (mut queue, mut pool) = queue(&[100, 100]);
    while sent(&mut queue, &mut pool).is_some() {}
    queue.mark_sacked(&mut pool, &mut ScanBudget::new(), &[(START + 100, START + 200)], |_, _| {});
    queue.forget_sacked(&mut pool);
    assert_eq!(counts(&queue), (100, 100, 0));
    assert_eq!(resent(&mut queue, &mut pool), Some(('b', 0, 100)));
}

#[test]
fn a_mistaken_loss_is_undone() {
    let (mut queue, mut pool) = queue(&[100, 100]);
    while sent(&mut queue, &mut pool).is_some() {}
    queue.mark_lost(&mut pool, &mut ScanBudget::new(), |_| Verdict::Lost);
    queue.unmark_lost(&mut pool);
    assert_eq!(counts(&queue), (200, 0, 0));
    assert_eq!(resent(&mut queue, &mut pool), None);
}

#[test]
fn a_cut_segment_loses_nothing() {
    let (mut queue, mut pool) = queue(&[100, 200]);
    assert!(queue.split(&mut pool, 30));
    assert!(!queue.split(&mut pool, 30), "it has no more");
    assert_eq!(sent(&mut queue, &mut pool), Some(('a', 0, 30)));
    assert_eq!(sent(&mut queue, &mut pool), Some(('a', 30, 70)));
    assert_eq!(sent(&mut queue, &mut pool), Some(('b', 0, 200)));
    assert_eq!(queue.unsent_octets(), 0);
    queue.mark_lost(&mut pool, &mut ScanBudget::new(), |s| {
        if s.seq - START == 100 { Verdict::Lost } else { Verdict::Keep }
    });
    assert!(queue.split_lost(&mut pool, 150), "the path has become narrower");
    assert_eq!(resent(&mut queue, &mut pool), Some(('b', 0, 150)));
    assert_eq!(resent(&mut queue, &mut pool), Some(('b', 150, 50)));
    assert_eq!(counts(&queue), (300, 0, 0));
}

/// RFC 8985 §7.3: the last segment that was sent, whether others wait to be sent or not.
#[test]
fn the_last_segment_is_sent_again_as_a_probe() {
    let (mut queue, mut pool) = queue(&[100, 200, 300]);
    let probe = |queue: &mut SendQueue, pool: &mut SegmentPool<char>| {
        let probe = queue.resend_last(pool, &mut ScanBudget::new(), Instant::ZERO);
        probe.map(|segment| (segment.payload, segment.transmissions))
    };
    assert_eq!(probe(&mut queue, &mut pool), None, "nothing was sent");
    for (name, in_flight) in [('a', 100), ('b', 300), ('c', 600)] {
        sent(&mut queue, &mut pool);
        assert_eq!(probe(&mut queue, &mut pool), Some((name, 2)));
        assert_eq!(counts(&queue), (in_flight, 0, 0));
    }
}

/// While more than half of a pool is in use, a queue takes no more segments than will be sent at once, but
/// always one. With enough of them it takes what it likes.
#[test]
fn a_scarce_pool_is_for_what_is_sent_at_once() {
    let mut pool = SegmentPool::new(100);
    let (mut first, mut second) = (SendQueue::new(START), SendQueue::new(START));
    pool.limit_unsent(3);
    assert!(first.push(&mut pool, 'a', 0, 10));
    assert_eq!(first.grow_last(&mut pool, 60), 60, "there are enough");
    assert!(second.push(&mut pool, 'a', 0, 10));
    assert_eq!(second.grow_last(&mut pool, 60), 2, "three in all");
    assert!(!second.push(&mut pool, 'd', 0, 10));
    // Those that are sent make room for as many.
    assert_eq!(sent(&mut second, &mut pool), Some(('a', 0, 10)));
    assert!(second.push(&mut pool, 'd', 0, 10) && !second.push(&mut pool, 'e', 0, 10));
    pool.limit_unsent(0);
    while sent(&mut second, &mut pool).is_some() {}
    assert!(second.push(&mut pool, 'e', 0, 10), "one may always wait");
    assert!(!second.push(&mut pool, 'f', 0, 10));
}

#[test]
fn a_full_pool_refuses() {
    let (mut one, mut pool) = queue(&[1; 7]);
    assert!(!one.push(&mut pool, 'x', 0, 1), "it has four fifths and more");
    assert_eq!(one.unsent_octets(), 7);
    let mut other = SendQueue::new(START);
    assert!(other.push(&mut pool, 'x', 0, 1), "one is left");
    assert!(!SendQueue::new(START).push(&mut pool, 'x', 0, 1));
    other.clear(&mut pool);
    one.clear(&mut pool);
    assert_eq!(pool.used(), 0);
}

/// What there is to see of a segment.
type Seen = (SeqNumber, u32, u32, u32, Instant, u8, SegmentState);

/// A queue, its pool, and the segments that it has shown as delivered.
struct End {
    queue: SendQueue,
    pool: SegmentPool<u32>,
    budget: ScanBudget,
    delivered: Vec<(SeqNumber, u32)>,
    left_in_group: bool,
}

impl End {
    fn new(left_in_group: bool) -> Self {
        let (queue, pool) = (SendQueue::new(START), SegmentPool::new(60));
        Self { queue, pool, budget: ScanBudget::new(), delivered: Vec::new(), left_in_group }
    }

    fn push(&mut self, number: u32, count: u32, octets: u32) {
        if self.left_in_group {
            if self.queue.push(&mut self.pool, number, 0, octets) {
                self.queue.grow_last(&mut self.pool, count - 1);
            }
        } else {
            (number..number + count).all(|number| self.queue.push(&mut self.pool, number, 0, octets));
        }
    }

    /// Sends `count` segments, those of a group together.
    fn send(&mut self, now: Instant, mut count: u32) {
        while count > 0
            && let Some((_, most)) = self.queue.peek_group(&self.pool)
        {
            let together = if self.left_in_group { most.min(count) } else { 1 };
            self.queue.advance_by(&mut self.pool, now, together);
            count -= together;
        }
    }

    /// How many groups there are.
    fn groups(&self) -> usize {
        let next = |node: &NodeId| self.pool.next(*node);
        core::iter::successors(self.queue.groups.front(), next).count()
    }

    fn step(&mut self, now: Instant, [step, at, count, length]: [u32; 4], lost: u64) -> Option<Seen> {
        let Self { queue, pool, budget, delivered, .. } = self;
        let record = |delivered: &mut Vec<_>, first: &Segment<()>, count| {
            delivered.extend((0..count).map(|index| (first.nth(index).seq, first.octets)));
        };
        let first = queue.iter(pool).next().map_or(queue.nxt(), |segment| segment.seq);
        let flight = (queue.nxt() - first) as u32;
        let (from, to) = (first + at * flight / 100, first + (at + count) * flight / 100);
        match step {
            0 => queue.acknowledge(pool, from, |first, count| record(delivered, first, count)),
            1 => {
                queue.mark_sacked(pool, budget, &[(from, to), (to + length, queue.nxt())], |first, count| {
                    record(delivered, first, count);
                });
            }
            2 => {
                queue.mark_lost(pool, budget, |segment| match (lost >> (segment.seq.0 % 61)) & 3 {
                    0 => Verdict::Lost,
                    1 if segment.seq > to => Verdict::Stop,
                    _ => Verdict::Keep,
                });
            }
            3 => return queue.resend_lost(pool, now).map(seen),
            4 => return queue.resend_last(pool, budget, now).map(seen),
            5 => _ = queue.split(pool, length),
            6 => _ = queue.split_lost(pool, length),
            7 => queue.unmark_lost(pool),
            8 => queue.forget_sacked(pool),
            9 => return queue.advance(pool, now).map(seen),
            _ => self.send(now, count),
        }
        None
    }
}

fn seen(segment: Segment<u32>) -> Seen {
    let Segment { seq, octets, payload, skip, sent_at, transmissions, state } = segment;
    (seq, octets, payload, skip, sent_at, transmissions, state)
}

/// Whatever happens to a queue of groups happens to one of single segments: the same segments are held, in
/// the same state, shown as delivered and sent again. The pool always has room to split a group.
#[test]
fn group_are_what_their_segments_would_be() {
    let mut parted = 0;
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut ends = [false, true].map(End::new);
        let mut now = Instant::from_nanos(1);
        for number in 0..200 {
            let push = rng.u8(..3) == 0;
            let (count, octets) = (rng.u32(1..20), rng.u32(1..200));
            let step = [rng.u32(..14), rng.u32(..=100), rng.u32(..50), rng.u32(..200)];
            let lost = rng.u64(..);
            now += u64::from(rng.u8(..2));
            let after = ends.each_mut().map(|end| {
                if push {
                    end.push(number * 100, count, octets);
                }
                let sent = end.step(now, step, lost);
                let queue = &end.queue;
                let (segments, state) = (queue.iter(&end.pool).map(seen).collect::<Vec<_>>(), counts(queue));
                let sacked = (queue.sacked_segments(), queue.sacked_end());
                let ends = (queue.nxt(), queue.end(), queue.len(), end.pool.used());
                let (delivered, group) = (core::mem::take(&mut end.delivered), end.groups());
                parted += usize::from(end.left_in_group && (2..segments.len()).contains(&group));
                (sent, segments, state, sacked, ends, queue.octets_after_next(&end.pool), delivered)
            });
            assert_eq!(after[0], after[1], "seed {seed}, step {number}: {step:?}");
        }
        for end in &mut ends {
            end.queue.clear(&mut end.pool);
            assert_eq!(end.pool.used(), 0);
        }
    }
    assert!(parted > 10_000, "{parted} queues had several group, and fewer than segments");
}
