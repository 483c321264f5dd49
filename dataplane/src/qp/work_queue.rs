//! Work queues: requests on their way from applications to a core, in the order of posting.

use crossbeam::utils::CachePadded;

use super::completion_queue::CompletionRing;
use super::post_error::PostError;
use super::slot::{Slot, Slots};
use crate::sync::{AtomicU64, Ordering};

/// A bounded queue of work requests of up to `N` words. A request counts until it is complete, so that there
/// is never more work under way than the depth of the queue.
///
/// Each request has a position: the first that is posted has position 0. A thread that posts counts its
/// requests first, which shows that there is room, and then takes as many positions in one step; so there are
/// never more positions than requests were counted, and the slot of a position was read when it is written
/// again.
#[derive(Debug)]
pub(super) struct WorkQueue<const N: usize> {
    slots: Slots<N>,
    depth: usize,
    posters: CachePadded<Posters>,
    /// Requests that the core has taken. Only the core uses it.
    taken: CachePadded<AtomicU64>,
    /// Requests completed so far. Only the core writes it, so it needs no atomic read-modify-write, which
    /// would be among the most expensive steps of a request.
    finished: CachePadded<AtomicU64>,
}

/// What the posting threads write.
#[derive(Debug)]
struct Posters {
    /// Requests counted so far.
    counted: AtomicU64,
    /// The position of the next request.
    next: AtomicU64,
}

impl<const N: usize> WorkQueue<N> {
    /// A queue of `depth` requests, at least one.
    pub(super) fn new(depth: usize) -> Self {
        let depth = depth.max(1);
        Self {
            slots: Slots::new(depth),
            depth,
            posters: CachePadded::new(Posters { counted: AtomicU64::new(0), next: AtomicU64::new(0) }),
            taken: CachePadded::new(AtomicU64::new(0)),
            finished: CachePadded::new(AtomicU64::new(0)),
        }
    }

    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The number of its slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Requests posted and not completed.
    pub(super) fn outstanding(&self) -> u32 {
        // In this order, so that no request seems finished before it is counted.
        let finished = self.finished.load(Ordering::Acquire);
        let outstanding = self.posters.counted.load(Ordering::Acquire).saturating_sub(finished);
        u32::try_from(outstanding).unwrap_or(u32::MAX)
    }

    /// Posts the first of `requests`: as many as fit this queue, and as have an entry in `completions` if
    /// they are signaled. `signaled` returns how many of the first requests are. `words` returns the words
    /// of a request whose slot has the index it is called with, and how many of them count. Returns how many
    /// were posted, and why the next was refused.
    #[inline]
    pub(super) fn post<R>(
        &self,
        requests: &[R],
        completions: &CompletionRing,
        signaled: impl Fn(&[R]) -> u32,
        words: impl Fn(&R, usize) -> ([u64; N], usize),
    ) -> (usize, Option<PostError>) {
        let wanted = requests.len().min(u32::MAX as usize) as u32;
        let counted = self.count(wanted);
        let counted_requests = &requests[..counted as usize];
        let places_wanted = signaled(counted_requests);
        let places = completions.reserve(places_wanted);
        let accepted = if places < places_wanted {
            longest_prefix(counted, |len| signaled(&counted_requests[..len as usize]) <= places)
        } else {
            counted
        };
        if accepted < counted {
            self.posters.counted.fetch_sub(u64::from(counted - accepted), Ordering::Relaxed);
        }
        if accepted > 0 {
            // Acquire and Release: the thread that has counted last may get an earlier position than another
            // one, whose slot was finished with only when it counted. It takes its position before the other.
            let first = self.posters.next.fetch_add(u64::from(accepted), Ordering::AcqRel);
            for (position, request) in (first..).zip(&requests[..accepted as usize]) {
                let (words, used) = words(request, self.slots.index(position));
                self.slots.slot(position).write(position, &words[..used]);
            }
        }
        let refused = if accepted < counted {
            Some(PostError::CompletionQueueFull)
        } else if counted < wanted {
            Some(PostError::QueueFull)
        } else {
            None
        };
        (accepted as usize, refused)
    }

    /// Counts up to `wanted` requests as outstanding. Returns how many.
    #[inline]
    fn count(&self, wanted: u32) -> u32 {
        let mut counted = self.posters.counted.load(Ordering::Relaxed);
        loop {
            // Acquire: a thread that writes to the slot of a finished request sees everything that the core
            // did before. A successful exchange shows that `counted` is current; `finished` may be old, which
            // is safe.
            let finished = self.finished.load(Ordering::Acquire);
            let room = (self.depth as u64).saturating_sub(counted.saturating_sub(finished));
            let granted = u64::from(wanted).min(room);
            if granted == 0 {
                return 0;
            }
            let (order, more) = (Ordering::Relaxed, counted + granted);
            match self.posters.counted.compare_exchange_weak(counted, more, order, order) {
                Ok(_) => return granted as u32,
                Err(now) => counted = now,
            }
        }
    }

    /// The slot of the oldest request that is not taken, for the core, which [takes](Self::advance) it once
    /// it has read the slot.
    #[inline]
    pub(super) fn front(&self) -> Option<&Slot<N>> {
        self.slots.written(self.taken.load(Ordering::Relaxed))
    }

    /// Notes that the request at the [front](Self::front) was read, for the core.
    #[inline]
    pub(super) fn advance(&self) {
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(taken + 1, Ordering::Relaxed);
    }

    /// Returns the requests that are not taken, from the oldest on, for the core.
    #[inline]
    pub(super) fn untaken(&self) -> Untaken<'_, N> {
        Untaken { queue: self, next: self.taken.load(Ordering::Relaxed) }
    }

    /// Whether the core has taken all requests, for the core.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    /// Counts a request that came from a shared receive queue as outstanding, for the core.
    pub(super) fn count_one(&self) {
        self.posters.counted.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a request is complete and its entry is free, for the core.
    #[inline]
    pub(super) fn finish_one(&self) {
        self.finish(1);
    }

    /// Notes that `requests` requests are complete, as [`finish_one`](Self::finish_one) does.
    #[inline]
    pub(super) fn finish(&self, requests: u64) {
        let finished = self.finished.load(Ordering::Relaxed);
        self.finished.store(finished + requests, Ordering::Release);
    }
}

/// Requests of a queue that a core takes one after the other. They are taken when this is dropped.
#[derive(Debug)]
pub(super) struct Untaken<'q, const N: usize> {
    queue: &'q WorkQueue<N>,
    next: u64,
}

impl<const N: usize> Untaken<'_, N> {
    /// The slot of the next request, as [`WorkQueue::front`] returns it.
    #[inline]
    pub(super) fn front(&self) -> Option<&Slot<N>> {
        self.queue.slots.written(self.next)
    }

    /// Takes the next request.
    #[inline]
    pub(super) const fn advance(&mut self) {
        self.next += 1;
    }
}

impl<const N: usize> Drop for Untaken<'_, N> {
    #[inline]
    fn drop(&mut self) {
        self.queue.taken.store(self.next, Ordering::Relaxed);
    }
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
