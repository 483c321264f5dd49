//! Work queues: requests on their way from applications to a core, in the order of posting.

use crossbeam::utils::CachePadded;

use super::completion_queue::CompletionRing;
use super::post_error::PostError;
use crate::sync::{ArrayQueue, AtomicU64, Ordering};

/// A bounded queue of work requests. A request counts until it is complete, so that there is never more work
/// under way than the depth of the queue.
#[derive(Debug)]
pub(super) struct WorkQueue<T> {
    posted: ArrayQueue<T>,
    /// Requests counted so far, by the posting threads.
    counted: CachePadded<AtomicU64>,
    /// Requests completed so far. Only the core writes it, so it needs no atomic read-modify-write, which
    /// would be among the most expensive steps of a request.
    finished: CachePadded<AtomicU64>,
}

impl<T> WorkQueue<T> {
    /// A queue of `depth` requests, at least one.
    pub(super) fn new(depth: usize) -> Self {
        Self {
            posted: ArrayQueue::new(depth.max(1)),
            counted: CachePadded::new(AtomicU64::new(0)),
            finished: CachePadded::new(AtomicU64::new(0)),
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.posted.capacity()
    }

    /// Requests posted and not completed.
    pub(super) fn outstanding(&self) -> u32 {
        // In this order, so that no request seems finished before it is counted.
        let finished = self.finished.load(Ordering::Acquire);
        let outstanding = self.counted.load(Ordering::Acquire).saturating_sub(finished);
        u32::try_from(outstanding).unwrap_or(u32::MAX)
    }

    /// Posts the first of `requests`, converted by `posted`: as many as fit this queue, and as have an entry
    /// in `completions` if they are `signaled`. Returns how many, and why the next was refused.
    pub(super) fn post<R>(
        &self,
        requests: &[R],
        completions: &CompletionRing,
        signaled: impl Fn(&R) -> bool,
        posted: impl Fn(&R) -> T,
    ) -> (usize, Option<PostError>) {
        let wanted = requests.len().min(u32::MAX as usize) as u32;
        let counted = self.take_places(wanted);
        let counted_requests = &requests[..counted as usize];
        let places_wanted = counted_requests.iter().filter(|request| signaled(request)).count() as u32;
        let places = completions.reserve(places_wanted);
        let accepted = if places < places_wanted {
            // The list ends at the first request that needs an entry and finds none.
            let mut in_need = counted_requests.iter().enumerate().filter(|(_, request)| signaled(request));
            in_need.nth(places as usize).map_or(counted, |(index, _)| index as u32)
        } else {
            counted
        };
        if accepted < counted {
            self.counted.fetch_sub(u64::from(counted - accepted), Ordering::Relaxed);
        }
        for request in &requests[..accepted as usize] {
            let pushed = self.posted.push(posted(request));
            debug_assert!(pushed.is_ok(), "fewer places than outstanding requests");
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
    fn take_places(&self, wanted: u32) -> u32 {
        let mut counted = self.counted.load(Ordering::Relaxed);
        loop {
            // Acquire: a thread that reuses the entry of a finished request sees everything that the core did
            // before. A successful exchange shows that `counted` is current; `finished` may be old, which is
            // safe.
            let finished = self.finished.load(Ordering::Acquire);
            let room = (self.depth() as u64).saturating_sub(counted.saturating_sub(finished));
            let granted = u64::from(wanted).min(room);
            if granted == 0 {
                return 0;
            }
            let (order, more) = (Ordering::Relaxed, counted + granted);
            match self.counted.compare_exchange_weak(counted, more, order, order) {
                Ok(_) => return granted as u32,
                Err(now) => counted = now,
            }
        }
    }

    /// Takes the oldest request, for the core.
    #[inline]
    pub(super) fn take(&self) -> Option<T> {
        self.posted.pop()
    }

    /// Whether the core has taken all requests.
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Counts a request that came from a shared receive queue as outstanding, for the core.
    pub(super) fn count_one(&self) {
        self.counted.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a request is complete and its entry is free, for the core.
    #[inline]
    pub(super) fn finish_one(&self) {
        let finished = self.finished.load(Ordering::Relaxed);
        self.finished.store(finished + 1, Ordering::Release);
    }
}
