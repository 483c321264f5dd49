//! A completion queue as programs poll it: without what queue pairs report after they were destroyed.
//!
//! A queue pair that is destroyed may still deliver what was posted, and flush the rest. libfabric's provider
//! polls its queue empty after `ibv_destroy_qp` has returned, and then frees what its identifiers of work
//! stand for: it needs each completion that is there by then, and none may come later.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpline::{Completion, QpNumber, SharedCompletionQueue};

/// A completion queue, and the numbers of destroyed queue pairs that have reported to it.
pub(crate) struct PolledQueue {
    queue: SharedCompletionQueue,
    /// False if `filter` is empty, so that polling takes no second lock.
    is_filtered: AtomicBool,
    filter: Mutex<Filter>,
}

#[derive(Default)]
struct Filter {
    /// Destroyed queue pairs whose number no other has yet.
    destroyed: HashSet<QpNumber>,
    /// Completions that are the program's, older than those in the queue.
    passed: VecDeque<Completion>,
}

impl Filter {
    /// Takes all that is in the queue.
    fn pass(&mut self, queue: &SharedCompletionQueue) {
        let Self { destroyed, passed } = self;
        let queue = queue.lock();
        passed.extend(queue.drain().filter(|completion| !destroyed.contains(&completion.qp)));
    }
}

impl PolledQueue {
    pub(crate) fn new(queue: SharedCompletionQueue) -> Self {
        Self { queue, is_filtered: AtomicBool::new(false), filter: Mutex::default() }
    }

    /// Drops what a queue pair reports from now on: it is about to be destroyed.
    pub(crate) fn leave_out(&self, destroyed: QpNumber) {
        self.change(|filter, queue| {
            filter.pass(queue);
            filter.destroyed.insert(destroyed);
        });
    }

    /// Passes what a new queue pair of this number will report. All that the destroyed one has reported is in
    /// the queue: its number was free.
    pub(crate) fn admit(&self, number: QpNumber) {
        self.change(|filter, queue| {
            filter.pass(queue);
            filter.destroyed.remove(&number);
        });
    }

    /// Hands up to `room` completions to `target`, oldest first. Returns how many.
    pub(crate) fn take(&self, room: usize, mut target: impl FnMut(usize, &Completion)) -> usize {
        let mut polled = 0;
        if !self.is_filtered.load(Ordering::Acquire) {
            for completion in self.queue.lock().drain().take(room) {
                target(polled, &completion);
                polled += 1;
            }
            return polled;
        }
        self.change(|filter, queue| {
            while polled < room
                && let Some(completion) = filter.passed.pop_front()
            {
                target(polled, &completion);
                polled += 1;
            }
            let queue = queue.lock();
            let mut left = queue.drain();
            while polled < room
                && let Some(completion) = left.next()
            {
                if !filter.destroyed.contains(&completion.qp) {
                    target(polled, &completion);
                    polled += 1;
                }
            }
        });
        polled
    }

    fn change(&self, change: impl FnOnce(&mut Filter, &SharedCompletionQueue)) {
        let mut filter: MutexGuard<'_, Filter> = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut filter, &self.queue);
        let is_filtered = !filter.destroyed.is_empty() || !filter.passed.is_empty();
        self.is_filtered.store(is_filtered, Ordering::Release);
    }
}
