//! Doorbells: how applications announce new work to a core.

use std::sync::Arc;

use super::work::QpNumber;
use crate::sync::{ArrayQueue, AtomicBool, Ordering};
use crate::waker::Waker;

/// The doorbells of a core: the numbers of queue pairs with new work, whether receives were posted to a
/// shared receive queue that queue pairs wait for, and the names of byte streams with work.
#[derive(Debug)]
pub struct Doorbells {
    queue_pairs: ArrayQueue<QpNumber>,
    /// Whether receives were posted to a shared receive queue that queue pairs wait for.
    shared_receives: AtomicBool,
    byte_streams: ArrayQueue<u64>,
    /// Whether there is anything but numbers of queue pairs, or was just now.
    others: AtomicBool,
    /// Wakes the thread that polls the core, if that thread may sleep.
    waker: Option<Arc<Waker>>,
}

impl Doorbells {
    /// Doorbells for `queue_pairs` queue pairs.
    pub fn new(queue_pairs: usize) -> Self {
        Self {
            queue_pairs: ArrayQueue::new(queue_pairs.max(1)),
            shared_receives: AtomicBool::new(false),
            byte_streams: ArrayQueue::new(1),
            others: AtomicBool::new(false),
            waker: None,
        }
    }

    /// The same, also for `byte_streams` byte streams.
    #[must_use]
    pub fn with_byte_streams(self, byte_streams: usize) -> Self {
        Self { byte_streams: ArrayQueue::new(byte_streams.max(1)), ..self }
    }

    /// The same, for a core whose thread may sleep.
    #[must_use]
    pub fn with_waker(self, waker: Arc<Waker>) -> Self {
        Self { waker: Some(waker), ..self }
    }

    /// Wakes the core's thread if it sleeps, for work outside of the doorbells, such as a command.
    #[inline]
    pub fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Rings the doorbell of a queue pair, which is not ringing yet.
    pub(super) fn ring(&self, queue_pair: QpNumber) {
        // There is an entry for every queue pair, and each is in the queue at most once.
        let rung = self.queue_pairs.push(queue_pair);
        debug_assert!(rung.is_ok(), "more queue pairs than doorbells");
        self.wake();
    }

    /// Rings for receives in a shared receive queue that queue pairs wait for.
    pub(crate) fn ring_shared_receives(&self) {
        self.shared_receives.store(true, Ordering::Release);
        self.others.store(true, Ordering::Release);
        self.wake();
    }

    /// Rings the bell of the byte stream `name`, which is not ringing yet.
    pub(crate) fn ring_byte_stream(&self, name: u64) {
        // There is an entry for every connection, and each is in the queue at most once.
        let rung = self.byte_streams.push(name);
        debug_assert!(rung.is_ok(), "more byte streams than bells");
        self.others.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns true if shared receive queues or byte streams may ring, and looks anew from now on.
    #[inline]
    pub fn take_others(&self) -> bool {
        self.others.load(Ordering::Relaxed) && self.others.swap(false, Ordering::AcqRel)
    }

    /// Notes that byte streams are left that ring.
    pub fn leave_others(&self) {
        self.others.store(true, Ordering::Release);
    }

    /// Takes the name of the next byte stream that has work.
    pub fn take_byte_stream(&self) -> Option<u64> {
        if self.byte_streams.is_empty() { None } else { self.byte_streams.pop() }
    }

    /// Returns true if the doorbell of shared receive queues rings, and clears it.
    pub fn take_shared_receives(&self) -> bool {
        self.shared_receives.load(Ordering::Relaxed) && self.shared_receives.swap(false, Ordering::AcqRel)
    }

    /// Takes the next queue pair that has new work.
    #[inline]
    pub fn take(&self) -> Option<QpNumber> {
        // The pop of an empty queue costs a fence.
        if self.queue_pairs.is_empty() { None } else { self.queue_pairs.pop() }
    }

    /// Whether no doorbell rings.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue_pairs.is_empty() && !self.others.load(Ordering::Acquire)
    }
}
