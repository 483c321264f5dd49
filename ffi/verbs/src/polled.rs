//! A completion queue as programs poll it: without what queue pairs report after they were destroyed.
//!
//! A queue pair that is destroyed may still deliver what was posted, and flush the rest. libfabric's provider
//! polls its queue empty after `ibv_destroy_qp` has returned, and then frees what its identifiers of work
//! stand for: it needs each completion that is there by then, and none may come later.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpline::{Completion, CompletionQueue, QpNumber, SharedCompletionQueue};

/// A completion queue, and the numbers of destroyed queue pairs that have reported to it.
///
/// All but the queue changes under the lock of the queue. A thread that polls holds that lock from before it
/// looks whether there is a filter, so what it takes is neither newer than completions that have passed, nor
/// of a queue pair that was destroyed before.
pub(crate) struct PolledQueue {
    queue: SharedCompletionQueue,
    /// False if `filter` is empty, so that polling takes no second lock.
    is_filtered: AtomicBool,
    /// Only a thread that has the lock of the queue locks it.
    filter: Mutex<Filter>,
    report_overflow: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Filter {
    /// Destroyed queue pairs whose number no other has yet.
    destroyed: HashSet<QpNumber>,
    /// Completions that are the program's, older than those in the queue.
    passed: VecDeque<Completion>,
}

impl Filter {
    /// Takes all that is in the queue. Returns false if some is lost.
    fn pass(&mut self, queue: &CompletionQueue) -> bool {
        self.take_in(queue.drain(), queue.capacity())
    }

    /// Takes the completions that are the program's, and keeps no more than `room` in all:
    /// a program that does not poll has let the queue overflow. Returns false then.
    fn take_in(&mut self, completions: impl Iterator<Item = Completion>, room: usize) -> bool {
        let Self { destroyed, passed } = self;
        let mut has_room = true;
        for completion in completions.filter(|completion| !destroyed.contains(&completion.qp)) {
            if passed.len() < room {
                passed.push_back(completion);
            } else {
                has_room = false;
            }
        }
        has_room
    }
}

impl PolledQueue {
    pub(crate) fn new(
        queue: SharedCompletionQueue,
        report_overflow: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let report_overflow = Box::new(report_overflow);
        Self { queue, is_filtered: AtomicBool::new(false), filter: Mutex::default(), report_overflow }
    }

    /// Drops what a queue pair reports from now on: it is about to be destroyed.
    pub(crate) fn leave_out(&self, destroyed: QpNumber) {
        let has_room = self.pass_and_leave_out(&self.queue.lock(), destroyed);
        self.report_unless(has_room);
    }

    fn pass_and_leave_out(&self, queue: &CompletionQueue, destroyed: QpNumber) -> bool {
        self.pass_and_change(queue, |filter| _ = filter.destroyed.insert(destroyed))
    }

    /// Passes what a new queue pair of this number will report. All that the destroyed one has reported is in
    /// the queue: its number was free.
    pub(crate) fn admit(&self, number: QpNumber) {
        let removed = |filter: &mut Filter| _ = filter.destroyed.remove(&number);
        let has_room = self.pass_and_change(&self.queue.lock(), removed);
        self.report_unless(has_room);
    }

    /// Takes all that is in the queue, and changes the filter. Returns false if some is lost.
    fn pass_and_change(&self, queue: &CompletionQueue, change: impl FnOnce(&mut Filter)) -> bool {
        self.change(|filter| {
            let has_room = filter.pass(queue);
            change(filter);
            has_room
        })
    }

    fn report_unless(&self, has_room: bool) {
        if !has_room {
            (self.report_overflow)();
        }
    }

    /// Hands up to `room` completions to `target`, oldest first. Returns how many.
    pub(crate) fn take(&self, room: usize, mut target: impl FnMut(usize, &Completion)) -> usize {
        let queue = self.queue.lock();
        let mut polled = 0;
        // Relaxed: it changes under the lock of the queue.
        if !self.is_filtered.load(Ordering::Relaxed) {
            for completion in queue.drain().take(room) {
                target(polled, &completion);
                polled += 1;
            }
            return polled;
        }
        self.change(|filter| {
            while polled < room
                && let Some(completion) = filter.passed.pop_front()
            {
                target(polled, &completion);
                polled += 1;
            }
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

    /// Changes the filter, for a thread that has the lock of the queue.
    fn change<T>(&self, change: impl FnOnce(&mut Filter) -> T) -> T {
        let mut filter: MutexGuard<'_, Filter> = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut filter);
        let is_filtered = !filter.destroyed.is_empty() || !filter.passed.is_empty();
        self.is_filtered.store(is_filtered, Ordering::Relaxed);
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::{Duration, Instant};

    use warpline::{Notice, QpConfig, QpState, SliceList};

    use super::*;
    use crate::testing;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// What is taken out of the queue for a program that does not poll is no more than the queue holds.
    #[test]
    fn what_has_passed_is_bounded() {
        let queue = SharedCompletionQueue::new(CompletionQueue::new(4));
        let overflows = Arc::new(AtomicUsize::new(0));
        let counted = overflows.clone();
        let polled = PolledQueue::new(queue, move || _ = counted.fetch_add(1, Ordering::Relaxed));
        let capacity = polled.queue.capacity();
        let mut filter = polled.filter.lock().unwrap();
        let completion = |id| {
            let (kind, status) = (warpline::CompletionKind::Send, warpline::Status::Success);
            Completion::new(QpNumber(1), id, kind, status, 0)
        };
        assert!(filter.take_in((0..capacity as u64).map(completion), capacity));
        filter.destroyed.insert(QpNumber(1));
        assert!(filter.take_in([completion(9)].into_iter(), capacity), "one that is left out");
        filter.destroyed.clear();
        assert!(!filter.take_in([completion(9)].into_iter(), capacity));
        assert_eq!(filter.passed.len(), capacity);
        drop(filter);
        polled.leave_out(QpNumber(2));
        assert_eq!(overflows.load(Ordering::Relaxed), 0, "nothing was lost by that");
        let mut ids = Vec::new();
        assert_eq!(polled.take(100, |_, completion| ids.push(completion.id)), capacity);
        assert_eq!(ids, (0..capacity as u64).collect::<Vec<_>>());
    }

    /// A thread may be about to poll while another destroys a queue pair. It finds older completions first,
    /// and none of that queue pair.
    #[test]
    fn a_thread_that_is_about_to_poll_does_not_pass_by_the_filter() {
        let (device, turns) = testing::device();
        let until = |condition: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !condition() {
                assert!(start.elapsed() < PATIENCE);
                turns.turn();
            }
        };
        let queue = SharedCompletionQueue::new(CompletionQueue::new(16));
        let domain = device.protection_domain();
        // Both have ended: each receive that is posted is flushed.
        let [destroyed, other] = [(); 2].map(|()| {
            let qp = domain.queue_pair(&QpConfig::default(), &queue, &queue).unwrap();
            qp.abort();
            until(&|| qp.state() == QpState::Error);
            qp
        });
        let polled = PolledQueue::new(queue.clone(), || {});
        thread::scope(|scope| {
            let held = queue.lock();
            // It returns whether there are completions.
            let has_completions = || held.arm(Notice::Next);
            other.post_receive(1, SliceList::default()).unwrap();
            until(&has_completions);
            let polling = scope.spawn(|| {
                let (mut found, start) = (Vec::new(), Instant::now());
                while found.len() < 2 && start.elapsed() < PATIENCE {
                    polled.take(16, |_, completion| found.push((completion.qp, completion.id)));
                }
                found
            });
            // It waits for the lock by then.
            thread::sleep(Duration::from_millis(100));
            assert!(polled.pass_and_leave_out(&held, destroyed.number()));
            assert!(!has_completions());
            destroyed.post_receive(2, SliceList::default()).unwrap();
            until(&has_completions);
            other.post_receive(3, SliceList::default()).unwrap();
            drop(held);
            assert_eq!(polling.join().unwrap(), [(other.number(), 1), (other.number(), 3)]);
        });
    }
}
