//! Work queues: requests on their way from applications to a core, in the order of posting.

use super::completion_queue::CompletionRing;
use super::shared::PostError;
use crate::sync::{ArrayQueue, AtomicU32, Ordering};

/// A bounded queue of work requests. A request counts until it is completed, so that there is never more work under way
/// than the queue was made for.
#[derive(Debug)]
pub(super) struct WorkQueue<T> {
    posted: ArrayQueue<T>,
    /// Posted and not completed.
    outstanding: AtomicU32,
}

impl<T: Copy> WorkQueue<T> {
    /// A queue of `depth` requests, at least one.
    pub(super) fn new(depth: usize) -> Self {
        Self { posted: ArrayQueue::new(depth.max(1)), outstanding: AtomicU32::new(0) }
    }

    pub(super) fn depth(&self) -> usize {
        self.posted.capacity()
    }

    /// Requests posted and not completed.
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding.load(Ordering::Acquire)
    }

    /// Posts the first of `requests`, as many as there is room for here and in `completions`; gives how many, and why not
    /// the next.
    pub(super) fn post(&self, requests: &[T], completions: &CompletionRing) -> (usize, Option<PostError>) {
        let wanted = requests.len().min(u32::MAX as usize) as u32;
        let taken = self.take_places(wanted);
        let places = completions.reserve(taken);
        if places < taken {
            self.outstanding.fetch_sub(taken - places, Ordering::Relaxed);
        }
        for request in &requests[..places as usize] {
            let pushed = self.posted.push(*request);
            debug_assert!(pushed.is_ok(), "fewer places than outstanding requests");
        }
        let refused = if places < taken {
            Some(PostError::CompletionQueueFull)
        } else if taken < wanted {
            Some(PostError::QueueFull)
        } else {
            None
        };
        (places as usize, refused)
    }

    /// Counts up to `wanted` requests as outstanding; gives how many.
    fn take_places(&self, wanted: u32) -> u32 {
        let before = self.outstanding.fetch_add(wanted, Ordering::Acquire);
        let granted = wanted.min((self.depth() as u32).saturating_sub(before));
        if granted < wanted {
            self.outstanding.fetch_sub(wanted - granted, Ordering::Relaxed);
        }
        granted
    }

    /// The oldest request that the core has not taken.
    pub(super) fn take(&self) -> Option<T> {
        self.posted.pop()
    }

    /// Whether the core has taken all there is.
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// A request that came another way counts as outstanding.
    pub(super) fn count_one(&self) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
    }

    /// A request is done: its place is free.
    pub(super) fn finish_one(&self) {
        self.outstanding.fetch_sub(1, Ordering::Release);
    }
}
