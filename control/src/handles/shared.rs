//! Queue pairs and completion queues for several threads: a lock around what is for one.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use warpline_dataplane::locked::Locked;
use warpline_dataplane::qp::completion_queue::Notice;
use warpline_dataplane::qp::work::Completion;

use crate::handles::completion::{CompletionQueue, CompletionQueueControl};
use crate::handles::queue_pair::{QueuePair, QueuePairControl};

/// A queue pair that several threads post to, in turn. Clones are the same queue pair.
///
/// A thread that posts holds the lock meanwhile; what [`QueuePairControl`] offers needs no lock. A thread
/// that posts much of its own is better off with a [`QueuePair`] of its own.
///
/// ```no_run
/// # use warpline::{QueuePair, SharedQueuePair, Slice};
/// # fn post(qp: QueuePair, slice: Slice) -> Result<(), Box<dyn std::error::Error>> {
/// let qp = SharedQueuePair::new(qp);
/// let other = qp.clone();
/// std::thread::spawn(move || other.lock().post_send(1, slice));
/// qp.lock().post_send(2, slice)?;
/// qp.disconnect();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedQueuePair {
    queue_pair: Arc<Locked<QueuePair>>,
    control: Arc<QueuePairControl>,
}

impl SharedQueuePair {
    /// Puts a lock around a queue pair.
    pub fn new(queue_pair: QueuePair) -> Self {
        Self { control: queue_pair.control(), queue_pair: Arc::new(Locked::new(queue_pair)) }
    }

    /// Waits until no other thread posts. This thread may post for as long as it has the guard; one lock does
    /// for several requests.
    pub fn lock(&self) -> MutexGuard<'_, QueuePair> {
        self.queue_pair.lock()
    }
}

impl Deref for SharedQueuePair {
    type Target = QueuePairControl;

    fn deref(&self) -> &QueuePairControl {
        &self.control
    }
}

impl From<QueuePair> for SharedQueuePair {
    fn from(queue_pair: QueuePair) -> Self {
        Self::new(queue_pair)
    }
}

impl fmt::Debug for SharedQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.control, f)
    }
}

/// A completion queue that several threads poll, in turn. Clones are the same queue.
///
/// A thread that polls holds the lock meanwhile; one that [waits](Self::wait) does not.
#[derive(Clone, Debug)]
pub struct SharedCompletionQueue {
    queue: Arc<Locked<CompletionQueue>>,
    control: Arc<CompletionQueueControl>,
}

impl SharedCompletionQueue {
    /// Puts a lock around a completion queue.
    pub fn new(queue: CompletionQueue) -> Self {
        Self { control: Arc::new(queue.control()), queue: Arc::new(Locked::new(queue)) }
    }

    /// Waits until no other thread polls. This thread may poll for as long as it has the guard.
    pub fn lock(&self) -> MutexGuard<'_, CompletionQueue> {
        self.queue.lock()
    }

    /// Returns the oldest completion; waits for it for `timeout`, as [`CompletionQueue::wait`] does. Any
    /// number of threads may wait: each completion is returned to one of them.
    pub fn wait(&self, timeout: Duration) -> Option<Completion> {
        let arm = || {
            self.lock().arm(Notice::Next);
        };
        self.control.wait(timeout, || self.lock().poll(), arm)
    }
}

impl Deref for SharedCompletionQueue {
    type Target = CompletionQueueControl;

    fn deref(&self) -> &CompletionQueueControl {
        &self.control
    }
}

impl From<CompletionQueue> for SharedCompletionQueue {
    fn from(queue: CompletionQueue) -> Self {
        Self::new(queue)
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync + Clone>() {}
    is_shared::<SharedQueuePair>();
    is_shared::<SharedCompletionQueue>();
};
