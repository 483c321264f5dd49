//! Work queues: requests from an application to a core, in the order of posting.
//!
//! A queue pair has two. What the thread that posts writes to both of them is one cache line, and what the
//! core writes is another. Neither line has anything else, and the two lie apart: a processor may fetch the
//! neighbour of a line with it. Where the slots are, which both sides read, lies elsewhere.

use core::ops::Range;

use super::completion_queue::CompletionRing;
use super::post_error::PostError;
use super::slot::{Slot, Slots};
use crate::sync::{AtomicU64, Ordering};

/// A bounded queue of work requests of up to `N` words, for one thread that posts and one core. A request
/// counts until it is complete, so that there is never more work outstanding than the depth of the queue, and
/// the slot of a request was read when it is written again.
///
/// Each counter has one writer, which needs no locked operation: a request is handed over by the turn of its
/// slot, and the slots of finished requests come back by `finished`. If two threads post at the same time,
/// one request may be written over the other; nothing else breaks.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkQueue<'q, const N: usize> {
    slots: &'q Slots<N>,
    poster: &'q Poster,
    core: &'q CoreSide,
}

/// The counters of one side for both queues of a queue pair, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct BothQueues<T> {
    /// Those of the send queue.
    pub sends: T,
    /// Those of the receive queue.
    pub receives: T,
}

/// What the thread that posts writes.
#[derive(Debug, Default)]
pub(super) struct Poster {
    /// Requests posted so far: the position of the next.
    posted: AtomicU64,
    /// What it has last seen of [`CoreSide::finished`]. Only this thread uses it: it looks again when the
    /// queue would be full, and does not touch the core's cache line until then.
    finished: AtomicU64,
}

/// What the core writes.
#[derive(Debug, Default)]
pub(super) struct CoreSide {
    /// Requests that the core has dequeued.
    dequeued: AtomicU64,
    /// Requests completed so far.
    finished: AtomicU64,
}

/// How much of a list is posted that cannot be posted whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Portion {
    /// The requests before the first that is refused.
    Prefix,
    /// None.
    Whole,
}

impl<'q, const N: usize> WorkQueue<'q, N> {
    /// The queue that consists of these.
    #[inline]
    pub(super) const fn new(slots: &'q Slots<N>, poster: &'q Poster, core: &'q CoreSide) -> Self {
        Self { slots, poster, core }
    }

    /// Requests posted and not completed.
    pub(super) fn outstanding(&self) -> u32 {
        // In this order, so that no request seems finished before it is posted.
        let finished = self.core.finished.load(Ordering::Acquire);
        count(finished, self.poster.posted.load(Ordering::Acquire))
    }

    /// Requests dequeued and not completed.
    pub(super) fn held(&self) -> u32 {
        // In this order, so that no request seems finished before it is dequeued.
        let finished = self.core.finished.load(Ordering::Acquire);
        count(finished, self.dequeued())
    }

    /// Requests dequeued so far.
    pub(super) fn dequeued(&self) -> u64 {
        self.core.dequeued.load(Ordering::Acquire)
    }

    /// Posts the first of `requests`: as many as fit this queue, and as have an entry in `completions` if
    /// they are signaled. `signaled` returns how many of the first requests are. `write` writes a request to
    /// the slot of a position. Returns how many were posted, and why the next was refused. With
    /// [`Portion::Whole`] none is posted then, and no entry is reserved even for a moment: a core that needs
    /// one for another queue pair would find none, and end its stream.
    #[inline]
    pub(super) fn post<R>(
        &self,
        requests: &[R],
        extent: Portion,
        completions: &CompletionRing,
        signaled: impl Fn(&[R]) -> u32,
        write: impl Fn(&R, &Slots<N>, u64),
    ) -> (usize, Option<PostError>) {
        let posted = self.poster.posted.load(Ordering::Relaxed);
        let wanted = requests.len().min(u32::MAX as usize) as u32;
        let fitting = self.room(posted, wanted);
        if extent == Portion::Whole && fitting < wanted {
            return (0, Some(PostError::QueueFull));
        }
        let fitting_requests = &requests[..fitting as usize];
        let places_wanted = signaled(fitting_requests);
        let places = match extent {
            Portion::Prefix => completions.reserve(places_wanted),
            Portion::Whole => completions.reserve_all(places_wanted),
        };
        let accepted = if places < places_wanted {
            longest_prefix(fitting, |len| signaled(&fitting_requests[..len as usize]) <= places)
        } else {
            fitting
        };
        let refused = if accepted < fitting {
            Some(PostError::CompletionQueueFull)
        } else if fitting < wanted {
            Some(PostError::QueueFull)
        } else {
            None
        };
        if extent == Portion::Whole && refused.is_some() {
            return (0, refused);
        }
        let end = posted + u64::from(accepted);
        for (position, request) in (posted..end).zip(requests) {
            write(request, self.slots, position);
        }
        self.poster.posted.store(end, Ordering::Release);
        (accepted as usize, refused)
    }

    /// Returns how many requests fit now. For the thread that posts, which finds no fewer until it does.
    pub(super) fn free(&self) -> usize {
        self.room(self.poster.posted.load(Ordering::Relaxed), u32::MAX) as usize
    }

    /// Returns how many of `wanted` requests fit, of which the first has position `posted`.
    #[inline]
    fn room(&self, posted: u64, wanted: u32) -> u32 {
        let room = |finished: u64| (self.slots.capacity() as u64).saturating_sub(posted - finished);
        let seen = room(self.poster.finished.load(Ordering::Relaxed));
        if seen >= u64::from(wanted) {
            return wanted;
        }
        // Acquire: what is written to the slot of a finished request comes after all that the core did with
        // the request.
        let finished = self.core.finished.load(Ordering::Acquire);
        self.poster.finished.store(finished, Ordering::Relaxed);
        u64::from(wanted).min(room(finished)) as u32
    }

    /// The slot of the oldest request that is not dequeued, for the core, which [dequeues](Self::advance) it
    /// once it has read the slot.
    #[inline]
    pub(super) fn front(&self) -> Option<&'q Slot<N>> {
        self.slots.written(self.core.dequeued.load(Ordering::Relaxed))
    }

    /// The slot of the request that is posted after `index` others that are not dequeued, for the core.
    pub(super) fn posted_at(&self, index: usize) -> Option<&'q Slot<N>> {
        let position = self.core.dequeued.load(Ordering::Relaxed) + index as u64;
        // A slot is found again further on than the queue is deep.
        if index < self.slots.capacity() { self.slots.written(position) } else { None }
    }

    /// Records that the request at the [front](Self::front) was read, or counts one that came from a shared
    /// receive queue, for the core.
    #[inline]
    pub(super) fn advance(&self) {
        let dequeued = self.core.dequeued.load(Ordering::Relaxed);
        self.core.dequeued.store(dequeued + 1, Ordering::Relaxed);
    }

    /// Returns the requests that are not dequeued, from the oldest on, for the core.
    #[inline]
    pub(super) fn posted(&self) -> Posted<'q, N> {
        let Self { slots, core, .. } = *self;
        Posted { slots, core, next: core.dequeued.load(Ordering::Relaxed) }
    }

    /// Whether the core has dequeued all requests, for the core.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    /// The positions of the requests that are not complete, for a thread that has the side of a core that has
    /// ended. Of a queue that only counts they are those that were counted.
    pub(super) fn unfinished(&self) -> Range<u64> {
        let posted = self.poster.posted.load(Ordering::Acquire);
        self.core.finished.load(Ordering::Relaxed)..posted.max(self.dequeued())
    }

    /// The slot of the request at `position`, which is posted and not complete.
    pub(super) fn slot_of(&self, position: u64) -> Option<&'q Slot<N>> {
        self.slots.written(position)
    }

    /// Records that a request is complete and its entry is free, for the core.
    #[inline]
    pub(super) fn finish_one(&self) {
        self.finish(1);
    }

    /// Records that `requests` requests are complete, as [`finish_one`](Self::finish_one) does.
    #[inline]
    pub(super) fn finish(&self, requests: u64) {
        let finished = self.core.finished.load(Ordering::Relaxed);
        self.core.finished.store(finished + requests, Ordering::Release);
    }
}

/// Requests of a queue that a core reads one after the other. They are dequeued when this is dropped.
#[derive(Debug)]
pub(super) struct Posted<'q, const N: usize> {
    slots: &'q Slots<N>,
    core: &'q CoreSide,
    next: u64,
}

impl<const N: usize> Posted<'_, N> {
    /// The slot of the next request, as [`WorkQueue::front`] returns it.
    #[inline]
    pub(super) fn front(&self) -> Option<&Slot<N>> {
        self.slots.written(self.next)
    }

    /// Goes on to the next request.
    #[inline]
    pub(super) const fn advance(&mut self) {
        self.next += 1;
    }
}

impl<const N: usize> Drop for Posted<'_, N> {
    #[inline]
    fn drop(&mut self) {
        self.core.dequeued.store(self.next, Ordering::Relaxed);
    }
}

/// How many are in `begun` and not in `finished`.
fn count(finished: u64, begun: u64) -> u32 {
    u32::try_from(begun.saturating_sub(finished)).unwrap_or(u32::MAX)
}

/// Returns the length of the longest prefix of up to `most` requests that `fits`; the empty one does, and so
/// does each part of one that does.
fn longest_prefix(most: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut fitting, mut limit) = (0, most);
    while fitting < limit {
        let middle = fitting + (limit - fitting).div_ceil(2);
        if fits(middle) {
            fitting = middle;
        } else {
            limit = middle - 1;
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_is_found() {
        for most in 0..40 {
            for fitting in 0..=most {
                assert_eq!(longest_prefix(most, |len| len <= fitting), fitting, "of {most}");
            }
        }
        assert_eq!(longest_prefix(u32::MAX, |len| len < u32::MAX), u32::MAX - 1);
    }
}
