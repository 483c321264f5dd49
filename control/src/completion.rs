//! Completion queues.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use warpline_dataplane::qp::shared::CompletionRing;
use warpline_dataplane::qp::work::Completion;

/// A bounded queue of completions. Clones are the same queue.
///
/// A place is reserved for every work request when it is posted, so completions are never lost: a queue that nobody polls
/// makes posting fail (RDMAP-8.1.1-05). Queue pairs may share one, for sends, receives or both; do not let users share
/// one who do not trust each other (RDMAP-8.1.1-04).
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(crate) ring: Arc<CompletionRing>,
}

impl CompletionQueue {
    /// A queue with room for the completions of `capacity` work requests, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { ring: Arc::new(CompletionRing::new(capacity)) }
    }

    /// The oldest completion that was not polled yet. Does not wait.
    pub fn poll(&self) -> Option<Completion> {
        self.ring.poll()
    }

    /// Appends completions to `completions` as far as it has room without allocating; gives how many.
    pub fn poll_into(&self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        while completions.len() < completions.capacity() {
            match self.poll() {
                Some(completion) => completions.push(completion),
                None => break,
            }
        }
        completions.len() - before
    }

    /// Polls until there is a completion or `timeout` has passed, giving way to other threads meanwhile. A peer that falls
    /// silent shows here alone (MPA-7.1.2-26).
    pub fn wait(&self, timeout: Duration) -> Option<Completion> {
        /// Polls before the clock is read and other threads are let run.
        const POLLS: usize = 128;
        let start = Instant::now();
        loop {
            for _ in 0..POLLS {
                if let Some(completion) = self.poll() {
                    return Some(completion);
                }
                core::hint::spin_loop();
            }
            if start.elapsed() >= timeout {
                return None;
            }
            thread::yield_now();
        }
    }
}
