//! A bounded queue from one thread to another that takes memory as it is used: most byte streams never have
//! more than a few elements at a time in theirs.
//!
//! Elements lie in segments. The thread that pushes fills one after the other, and says in each which one
//! comes next; the thread that pops returns those that it has emptied. Example: if no more than 32 elements
//! are in the queue at a time, two segments take turns, or three, and no other is ever allocated.

use std::sync::OnceLock;

use crossbeam::utils::CachePadded;

use crate::sync::{ArrayQueue, AtomicU32, AtomicU64, Ordering};

/// Elements of a segment.
const SEGMENT: usize = 32;
/// The most segments: one bit each in a word.
const SEGMENTS_MAX: usize = u64::BITS as usize;

/// A queue between one thread that pushes and one that pops.
pub(super) struct LazyQueue<T> {
    segments: Box<[Segment<T>]>,
    capacity: usize,
    /// The thread that pushes writes this, and the next ones.
    pushing: CachePadded<Side>,
    /// Segments that were used so far, those with the lowest numbers.
    used: AtomicU32,
    /// The thread that pops writes this.
    popping: CachePadded<Side>,
    /// Segments that are used and empty, a bit each: the thread that pops sets bits, the other clears them.
    empty: CachePadded<AtomicU64>,
}

struct Segment<T> {
    elements: OnceLock<Box<ArrayQueue<T>>>,
    /// The segment with the elements after these.
    next: AtomicU32,
}

/// What one of the two threads has done.
struct Side {
    /// Elements that it has pushed or popped, since the beginning.
    elements: AtomicU64,
    /// Its segment; for this thread alone.
    segment: AtomicU32,
}

impl Side {
    fn new() -> CachePadded<Self> {
        CachePadded::new(Self { elements: AtomicU64::new(0), segment: AtomicU32::new(0) })
    }
}

impl<T> LazyQueue<T> {
    /// Returns a queue of at most `capacity` elements.
    pub(super) fn new(capacity: usize) -> Self {
        // Full, it has a segment with its first elements and one with its last ones that are not full of
        // them, and the one before those is returned when the next element is popped.
        let segments = capacity.div_ceil(SEGMENT) + 2;
        assert!(segments <= SEGMENTS_MAX, "a queue of {capacity} elements has too many segments");
        let segment = |_| Segment { elements: OnceLock::new(), next: AtomicU32::new(0) };
        Self {
            segments: (0..segments).map(segment).collect(),
            capacity,
            pushing: Side::new(),
            used: AtomicU32::new(1),
            popping: Side::new(),
            empty: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Allocates all segments, so that the thread that pushes allocates none.
    pub(super) fn allocate(&self) {
        for segment in &self.segments {
            self.elements(segment);
        }
    }

    fn elements<'s>(&self, segment: &'s Segment<T>) -> &'s ArrayQueue<T> {
        segment.elements.get_or_init(|| Box::new(ArrayQueue::new(self.segment_capacity())))
    }

    fn segment_capacity(&self) -> usize {
        SEGMENT.min(self.capacity)
    }

    /// Whether a segment ends with element `number`, counted from 1.
    fn is_end(&self, number: u64) -> bool {
        number > 0 && number.is_multiple_of(self.segment_capacity() as u64)
    }

    /// Appends `element`; one thread alone calls this.
    ///
    /// # Errors
    ///
    /// `element`, when there is no room.
    pub(super) fn push(&self, element: T) -> Result<(), T> {
        let pushed = self.pushing.elements.load(Ordering::Relaxed);
        if self.len() == self.capacity {
            return Err(element);
        }
        let mut segment = self.pushing.segment.load(Ordering::Relaxed);
        if self.is_end(pushed) {
            let next = self.next_segment();
            self.segments[segment as usize].next.store(next, Ordering::Relaxed);
            self.pushing.segment.store(next, Ordering::Relaxed);
            segment = next;
        }
        self.elements(&self.segments[segment as usize]).push(element)?;
        self.pushing.elements.store(pushed + 1, Ordering::Release);
        Ok(())
    }

    /// Returns an empty segment to push to: one that was used before, if there is any.
    fn next_segment(&self) -> u32 {
        // Acquire: its elements were popped before.
        let empty = self.empty.load(Ordering::Acquire);
        if empty != 0 {
            self.empty.fetch_and(!(empty & empty.wrapping_neg()), Ordering::Relaxed);
            return empty.trailing_zeros();
        }
        let used = self.used.load(Ordering::Relaxed);
        debug_assert!((used as usize) < self.segments.len(), "a queue with room has a segment");
        self.used.store(used + 1, Ordering::Relaxed);
        used
    }

    /// Returns the oldest element; one thread alone calls this.
    pub(super) fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let popped = self.popping.elements.load(Ordering::Relaxed);
        let mut segment = self.popping.segment.load(Ordering::Relaxed);
        if self.is_end(popped) {
            // The other thread has stored it before the element that is there.
            let next = self.segments[segment as usize].next.load(Ordering::Relaxed);
            self.empty.fetch_or(1 << segment, Ordering::Release);
            self.popping.segment.store(next, Ordering::Relaxed);
            segment = next;
        }
        let element = self.segments[segment as usize].elements.get()?.pop();
        debug_assert!(element.is_some(), "it was pushed, and nobody else pops");
        self.popping.elements.store(popped + 1, Ordering::Release);
        element
    }

    /// Elements in it: of the thread that pushes at most so many, of the one that pops at least so many.
    pub(super) fn len(&self) -> usize {
        // In this order: more may be popped meanwhile, and never more than was pushed before.
        let popped = self.popping.elements.load(Ordering::Acquire);
        (self.pushing.elements.load(Ordering::Acquire) - popped) as usize
    }

    /// Returns true if there is no element.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most elements.
    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_has_its_capacity_and_its_order() {
        for capacity in [1, 2, SEGMENT - 1, SEGMENT, SEGMENT + 1, 5 * SEGMENT] {
            let queue = LazyQueue::new(capacity);
            for round in 0..7 {
                for number in 0..capacity {
                    assert_eq!(queue.len(), number);
                    assert_eq!(queue.push((round, number)), Ok(()));
                }
                assert_eq!(queue.push((round, 0)), Err((round, 0)), "{capacity}");
                for number in 0..capacity {
                    assert_eq!(queue.pop(), Some((round, number)), "{capacity}");
                }
                assert_eq!((queue.pop(), queue.is_empty()), (None, true));
                // The next round begins elsewhere.
                assert_eq!((queue.push((7, 7)), queue.pop()), (Ok(()), Some((7, 7))));
            }
        }
    }

    /// Two segments take turns where few elements are in the queue at a time; with its capacity in it, it has
    /// all segments but the one that may be empty.
    #[test]
    fn a_short_queue_takes_little() {
        let queue = LazyQueue::new(50 * SEGMENT);
        let allocated = |queue: &LazyQueue<usize>| {
            queue.segments.iter().filter(|segment| segment.elements.get().is_some()).count()
        };
        for number in 0..100 * SEGMENT {
            assert_eq!((queue.push(number), queue.pop()), (Ok(()), Some(number)));
        }
        assert_eq!(allocated(&queue), 2);
        for number in 0..7 {
            assert_eq!((queue.push(number), queue.pop()), (Ok(()), Some(number)));
        }
        for round in 0..3 {
            for number in 0..50 * SEGMENT {
                assert_eq!(queue.push(number), Ok(()), "round {round}");
            }
            for number in 0..50 * SEGMENT {
                assert_eq!(queue.pop(), Some(number), "round {round}");
            }
        }
        assert_eq!(allocated(&queue), 51);
        queue.allocate();
        assert_eq!(allocated(&queue), 52);
    }

    #[test]
    fn two_threads_share_it() {
        const ELEMENTS: u64 = 100_000;
        let queue = LazyQueue::new(SEGMENT + 3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..ELEMENTS {
                    while queue.push(number).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
            for number in 0..ELEMENTS {
                let next = loop {
                    match queue.pop() {
                        Some(next) => break next,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(next, number);
            }
        });
        assert!(queue.is_empty());
    }
}
