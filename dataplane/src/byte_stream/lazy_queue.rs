//! A bounded queue from one thread to another that takes memory as it is used: most byte streams never use
//! more than the beginning of theirs.

use std::sync::OnceLock;

use crossbeam::utils::CachePadded;

use crate::sync::{ArrayQueue, AtomicU64, Ordering};

/// Elements of a segment.
const SEGMENT: usize = 32;

/// A queue between one thread that pushes and one that pops. Its memory comes in segments, each of which the
/// thread that pushes allocates when it comes to it for the first time.
pub(super) struct LazyQueue<T> {
    /// Element n goes through segment n / [`SEGMENT`], and after the last one through the first again.
    segments: Box<[OnceLock<ArrayQueue<T>>]>,
    capacity: usize,
    /// Elements pushed since the beginning; written by the thread that pushes.
    pushed: CachePadded<AtomicU64>,
    /// Elements popped since the beginning; written by the thread that pops.
    popped: CachePadded<AtomicU64>,
}

impl<T> LazyQueue<T> {
    /// Returns a queue of at most `capacity` elements.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            segments: (0..capacity.div_ceil(SEGMENT)).map(|_| OnceLock::new()).collect(),
            capacity,
            pushed: CachePadded::new(AtomicU64::new(0)),
            popped: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Allocates all segments, so that the thread that pushes allocates none.
    pub(super) fn allocate(&self) {
        for segment in &self.segments {
            segment.get_or_init(|| self.new_segment());
        }
    }

    fn new_segment(&self) -> ArrayQueue<T> {
        ArrayQueue::new(SEGMENT.min(self.capacity))
    }

    /// Returns the segment of element `number`.
    fn segment(&self, number: u64) -> &OnceLock<ArrayQueue<T>> {
        &self.segments[(number / SEGMENT as u64) as usize % self.segments.len()]
    }

    /// Appends `element`; one thread alone calls this.
    ///
    /// # Errors
    ///
    /// `element`, when there is no room.
    pub(super) fn push(&self, element: T) -> Result<(), T> {
        let pushed = self.pushed.load(Ordering::Relaxed);
        if self.len() == self.capacity {
            return Err(element);
        }
        let segment = self.segment(pushed).get_or_init(|| self.new_segment());
        segment.push(element)?;
        self.pushed.store(pushed + 1, Ordering::Release);
        Ok(())
    }

    /// Returns the oldest element; one thread alone calls this.
    pub(super) fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let popped = self.popped.load(Ordering::Relaxed);
        let element = self.segment(popped).get()?.pop();
        debug_assert!(element.is_some(), "it was pushed, and nobody else pops");
        self.popped.store(popped + 1, Ordering::Release);
        element
    }

    /// Elements in it: of the thread that pushes at most so many, of the one that pops at least so many.
    pub(super) fn len(&self) -> usize {
        // In this order: more may be popped meanwhile, and never more than was pushed before.
        let popped = self.popped.load(Ordering::Acquire);
        (self.pushed.load(Ordering::Acquire) - popped) as usize
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

    #[test]
    fn a_short_queue_takes_little() {
        let queue = LazyQueue::new(100 * SEGMENT);
        for number in 0..SEGMENT {
            assert_eq!((queue.push(number), queue.pop()), (Ok(()), Some(number)));
        }
        let allocated = || queue.segments.iter().filter(|segment| segment.get().is_some()).count();
        assert_eq!(allocated(), 1);
        queue.allocate();
        assert_eq!(allocated(), 100);
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
