//! Tests of completion queues: entries, polling, arming and overflow.

use core::sync::atomic::AtomicUsize;
use std::thread;

use super::*;
use crate::qp::core_ring::lines_of;
use crate::qp::work::{CompletionKind, QpNumber};

#[derive(Default)]
struct Bell(AtomicUsize);

impl Notify for Bell {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A queue that one core fills.
struct Queue {
    ring: Arc<CompletionRing>,
    core: CoreEnd,
}

impl Queue {
    fn new(capacity: usize) -> Self {
        Self::of(CompletionRing::new(capacity))
    }

    fn of(ring: CompletionRing) -> Self {
        let ring = Arc::new(ring);
        Self { core: CoreEnd::new(ring.clone(), &Arc::new(Doorbells::new(1))), ring }
    }

    fn push(&self, completion: Completion) {
        assert_eq!(self.ring.reserve(1), 1);
        self.core.push(completion);
    }

    fn polled(&self) -> Option<u64> {
        self.ring.poll().map(|completion| completion.id)
    }
}

fn with_bell(capacity: usize) -> (Queue, Arc<Bell>) {
    let bell = Arc::new(Bell::default());
    (Queue::of(CompletionRing::with_notify(capacity, bell.clone())), bell)
}

fn completion(id: u64) -> Completion {
    Completion::new(QpNumber(7), id, CompletionKind::Receive, Status::Success, 0)
}

/// Entries of a drain that is not over are in use; the others serve meanwhile, for as long as it takes.
#[test]
fn a_core_does_not_wait_for_a_poller() {
    let queue = Queue::new(4);
    (0..4).for_each(|id| queue.push(completion(id)));
    let mut held = queue.ring.drain();
    assert_eq!(held.next().map(|completion| completion.id), Some(0));
    for id in 1..40 {
        assert_eq!(queue.polled(), Some(id));
        queue.push(completion(id + 3));
    }
    assert_eq!(queue.ring.reserve(4), 0);
    drop(held);
    assert_eq!(queue.ring.reserve(4), 1, "that of the first completion");
}

/// Each core has a ring of its own; they share the entries. The ring of a core that has ended serves the next
/// one.
#[test]
fn cores_fill_a_queue_side_by_side() {
    let queue = Queue::new(4);
    let other = Arc::new(Doorbells::new(1));
    let beside = CoreEnd::new(queue.ring.clone(), &other);
    let same = CoreEnd::new(queue.ring.clone(), &other);
    assert_eq!(queue.ring.reserve(9), 4);
    beside.push(completion(10));
    queue.core.push(completion(20));
    same.push(completion(11));
    queue.core.push(completion(21));
    assert!(queue.ring.arm(Notice::Next));
    let (of_other, of_core): (Vec<u64>, Vec<u64>) =
        queue.ring.drain().map(|completion| completion.id).partition(|id| *id < 20);
    assert_eq!((of_other, of_core), (vec![10, 11], vec![20, 21]));
    assert!(!queue.ring.arm(Notice::Next));
    assert_eq!(queue.ring.rings.iter().count(), 2);
    drop((beside, same, other));
    let next = CoreEnd::new(queue.ring.clone(), &Arc::new(Doorbells::new(1)));
    assert_eq!(queue.ring.rings.iter().count(), 2);
    assert_eq!(queue.ring.reserve(1), 1);
    next.push(completion(12));
    assert_eq!(queue.polled(), Some(12));
}

/// A core that fills its ring whenever the queue is polled does not keep the completions of another back.
#[test]
fn a_busy_core_does_not_hide_another() {
    let queue = Queue::new(4);
    let beside = CoreEnd::new(queue.ring.clone(), &Arc::new(Doorbells::new(1)));
    assert_eq!(queue.ring.reserve(1), 1);
    beside.push(completion(100));
    let one_each = (0..3).map(|id| {
        queue.push(completion(id));
        queue.polled().unwrap()
    });
    assert!(one_each.collect::<Vec<_>>().contains(&100));
    assert_eq!(queue.ring.drain().count(), 1);
}

#[test]
fn many_are_polled_at_once() {
    let queue = Queue::new(8);
    let ring = &queue.ring;
    assert_eq!(ring.reserve(20), 8);
    assert_eq!(ring.reserve(1), 0);
    (0..8).for_each(|id| queue.core.push(completion(id)));
    let mut some = [completion(99); 5];
    assert_eq!(ring.poll_many(&mut some), 5);
    assert_eq!(some.map(|completion| completion.id), [0, 1, 2, 3, 4]);
    assert_eq!(ring.reserve(20), 5, "the places of those that were polled, and no other");
    assert_eq!(ring.poll_many(&mut some), 3);
    assert_eq!(some.map(|completion| completion.id), [5, 6, 7, 3, 4], "the rest is as it was");
    assert_eq!(ring.poll_many(&mut some), 0);
    assert_eq!(ring.drain().count(), 0);
}

/// Verbs' `req_notify_cq`: one notification for each time the queue is armed, none for completions that
/// are already there.
#[test]
fn an_armed_queue_tells_once() {
    let (queue, bell) = with_bell(8);
    queue.push(completion(1));
    assert_eq!(bell.rung(), 0, "nobody has asked");
    assert!(queue.ring.arm(Notice::Next), "there is one already");
    assert_eq!(bell.rung(), 0);
    queue.ring.poll().unwrap();
    assert!(!queue.ring.arm(Notice::Next));
    queue.push(completion(2));
    queue.push(completion(3));
    assert_eq!(bell.rung(), 1);
    assert_eq!(queue.ring.drain().count(), 2);
}

/// A Solicited Event wakes, and so does an error; a common success does not.
// Requirements: RDMAP-5.3-04
#[test]
fn who_waits_for_solicited_events_sleeps_through_others() {
    let (queue, bell) = with_bell(16);
    assert!(!queue.ring.arm(Notice::Solicited));
    queue.push(completion(1));
    assert_eq!(bell.rung(), 0);
    queue.push(Completion { solicited: true, ..completion(2) });
    queue.push(Completion { solicited: true, ..completion(3) });
    assert_eq!(bell.rung(), 1);
    assert!(queue.ring.arm(Notice::Solicited));
    queue.push(Completion { status: Status::Flushed, ..completion(4) });
    assert_eq!(bell.rung(), 2);
    // Arming for more extends the notice; arming for less then changes nothing.
    queue.ring.arm(Notice::Next);
    queue.ring.arm(Notice::Solicited);
    queue.push(completion(5));
    assert_eq!(bell.rung(), 3);
}

/// The race that the verbs documentation describes: a completion that arrives while the queue is armed is
/// either found by `arm` or notified.
#[test]
fn no_completion_slips_past_arming() {
    const COMPLETIONS: u64 = 200_000;
    let (queue, bell) = with_bell(64);
    let ring = &queue.ring;
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..COMPLETIONS {
                while ring.reserve(1) == 0 {
                    thread::yield_now();
                }
                queue.core.push(completion(id));
            }
        });
        let (mut heard, mut next) = (0, 0);
        while next < COMPLETIONS {
            for completion in ring.drain() {
                assert_eq!(completion.id, next);
                next += 1;
            }
            if next < COMPLETIONS && !ring.arm(Notice::Next) {
                // A sleeper: nothing but the bell wakes it. Were one lost, this would never end.
                while bell.rung() == heard {
                    thread::yield_now();
                }
            }
            heard = bell.rung();
        }
    });
    assert!(ring.poll().is_none());
}

#[test]
fn overflow_is_told_once_and_remembered() {
    let ring = CompletionRing::new(1);
    let events = AsyncEvents::new(None);
    assert!(!ring.has_overflowed());
    ring.overflow(Some(&events));
    ring.overflow(Some(&events));
    assert!(ring.has_overflowed());
    assert_eq!(events.dequeue(), Some(AsyncEvent::CompletionQueueOverflow { cq: ring.number() }));
    assert_eq!(events.dequeue(), None);
    assert_ne!(CompletionRing::new(1).number(), ring.number());
}

/// Completions in several rings are polled in each of the ways that there are: each once, those of a core in
/// its order, and no more than fit.
#[test]
fn every_way_of_polling_takes_the_rings_in_turn() {
    let ring = Arc::new(CompletionRing::new(12));
    let cores: Vec<_> = (0..3).map(|_| Arc::new(Doorbells::new(1))).collect();
    let ends: Vec<_> = cores.iter().map(|core| CoreEnd::new(ring.clone(), core)).collect();
    let fill = || {
        assert_eq!(ring.reserve(12), 12);
        for id in 0..4 {
            (0..).zip(&ends).for_each(|(core, end)| end.push(completion(10 * core + id)));
        }
    };
    let check = |polled: &[Completion]| {
        for core in 0..3 {
            let ids = polled.iter().map(|completion| completion.id).filter(|id| id / 10 == core);
            assert_eq!(ids.collect::<Vec<_>>(), [0, 1, 2, 3].map(|id| 10 * core + id));
        }
        assert_eq!((polled.len(), ring.poll(), ring.arm(Notice::Next)), (12, None, false));
    };
    fill();
    check(&core::iter::from_fn(|| ring.poll()).collect::<Vec<_>>());
    fill();
    check(&ring.drain().collect::<Vec<_>>());
    fill();
    let (mut all, mut some) = (Vec::new(), [completion(99); 5]);
    for expected in [5, 5, 2] {
        assert_eq!(ring.poll_many(&mut some), expected);
        all.extend_from_slice(&some[..expected]);
    }
    check(&all);
    fill();
    let (mut all, mut some) = (Vec::new(), Vec::with_capacity(5));
    for expected in [5, 5, 2] {
        assert_eq!(ring.poll_into(&mut some), expected);
        all.append(&mut some);
    }
    check(&all);
}

/// A core that keeps its ring filled has a thread that polls a few completions at a time leave none of the
/// others waiting for longer than it takes to poll each ring once.
#[test]
fn no_ring_waits_for_one_that_is_kept_filled() {
    let queue = Queue::new(16);
    let cores: Vec<_> = (0..3).map(|_| Arc::new(Doorbells::new(1))).collect();
    let others: Vec<_> = cores.iter().map(|core| CoreEnd::new(queue.ring.clone(), core)).collect();
    assert_eq!(queue.ring.reserve(3), 3);
    (100..).zip(&others).for_each(|(id, end)| end.push(completion(id)));
    (0..4).for_each(|id| queue.push(completion(id)));
    let (mut some, mut polled) = ([completion(99); 2], Vec::new());
    for _ in 0..4 {
        let count = queue.ring.poll_many(&mut some);
        polled.extend(some[..count].iter().map(|completion| completion.id));
        while queue.ring.reserve(1) == 1 {
            queue.core.push(completion(50));
        }
    }
    assert!([100, 101, 102].iter().all(|id| polled.contains(id)), "{polled:?}");
}

/// Two cores that fill a queue write to lines of their own, and to none that a thread writes which posts or
/// polls.
#[test]
fn cores_that_fill_a_queue_share_no_line() {
    let queue = Queue::new(8);
    let other = Arc::new(Doorbells::new(1));
    let beside = CoreEnd::new(queue.ring.clone(), &other);
    assert_eq!(queue.ring.reserve(2), 2);
    let counters = || {
        let CompletionRing { reserved, polled, .. } = &*queue.ring;
        (reserved.load(Ordering::Relaxed), polled.load(Ordering::Relaxed))
    };
    let before = counters();
    queue.core.push(completion(1));
    beside.push(completion(2));
    assert_eq!(counters(), before, "those are of the threads that post and poll");

    let mut lines = vec![lines_of(&*queue.ring.reserved), lines_of(&*queue.ring.polled)];
    for end in [&queue.core, &beside] {
        lines.extend(end.target.ring.get().expect("it has a core").written_lines());
    }
    lines.sort_unstable_by_key(|lines| *lines.start());
    let apart = lines.windows(2).all(|next_to| next_to[0].end() < next_to[1].start());
    assert!(lines.len() == 8 && apart, "{lines:?}");
}
