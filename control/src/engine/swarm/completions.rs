//! The completion queues of a host, and the thread of an application that polls them in each way there is and
//! sleeps between: what it waits for must wake it, once, and nothing else.

use std::sync::Arc;

use fastrand::Rng;
use warpline_dataplane::qp::completion_queue::{CompletionRing, Notice};
use warpline_dataplane::qp::shared::CompletionRings;
use warpline_dataplane::qp::work::{Completion, CompletionKind, QpNumber, Status};

use super::stream_oracle::bell::Bell;

/// Places of a completion queue: for all that can be posted on all queue pairs that report to it, twice over,
/// as queues that may overflow keep half of them from sends.
const COMPLETIONS: usize = 4096;
/// Completions that are taken at a time.
const BATCH: usize = 5;

/// A queue, and what wakes the thread that polls it.
struct Queue {
    ring: Arc<CompletionRing>,
    bell: Bell,
    /// What the thread waits for, if it sleeps.
    armed: Option<Notice>,
}

/// The completion queues of a host.
pub(super) struct Completions {
    queues: Vec<Queue>,
    /// All queue pairs report to one.
    is_one: bool,
    /// Of the thread that polls.
    rng: Rng,
}

impl Completions {
    pub(super) fn new(is_one: bool, secret: u64) -> Self {
        Self { queues: Vec::new(), is_one, rng: Rng::with_seed(secret) }
    }

    /// Returns the queues of another queue pair.
    pub(super) fn of_another(&mut self) -> CompletionRings {
        CompletionRings { send: self.another(), receive: self.another() }
    }

    fn another(&mut self) -> Arc<CompletionRing> {
        if !self.is_one || self.queues.is_empty() {
            let bell = Bell::default();
            let mut ring = CompletionRing::with_notify(COMPLETIONS, bell.notify());
            if self.rng.bool() {
                ring.set_may_overflow();
            }
            self.queues.push(Queue { ring: Arc::new(ring), bell, armed: None });
        }
        self.queues.last().expect("there is one").ring.clone()
    }

    /// Takes all completions, and sleeps until the next ones, or does not.
    pub(super) fn poll(&mut self) -> Vec<Completion> {
        let Self { queues, rng, .. } = self;
        queues.iter_mut().flat_map(|queue| queue.poll(rng)).collect()
    }
}

impl Queue {
    fn poll(&mut self, rng: &mut Rng) -> Vec<Completion> {
        let completions = match rng.u8(..4) {
            0 => std::iter::from_fn(|| self.ring.poll()).collect(),
            1 => self.poll_many(),
            2 => self.poll_into(),
            _ => self.ring.drain().collect(),
        };
        if let Some(notice) = self.armed {
            let is_due = completions.iter().any(|completion| is_due(notice, completion));
            assert_eq!(self.bell.has_rung(), is_due, "{notice:?} of {completions:?}");
            if is_due {
                self.armed = None;
            }
        }
        if self.armed.is_none() && rng.bool() {
            let notice = [Notice::Next, Notice::Solicited][rng.usize(..2)];
            self.bell.wait();
            self.armed = Some(notice);
            assert!(!self.ring.arm(notice), "all were taken");
        }
        completions
    }

    fn poll_many(&self) -> Vec<Completion> {
        let nothing = Completion::new(QpNumber(0), 0, CompletionKind::Send, Status::Success, 0);
        let mut all = Vec::new();
        loop {
            let mut batch = [nothing; BATCH];
            let count = self.ring.poll_many(&mut batch);
            all.extend(&batch[..count]);
            if count < BATCH {
                return all;
            }
        }
    }

    fn poll_into(&self) -> Vec<Completion> {
        let mut all = Vec::new();
        let mut batch = Vec::with_capacity(BATCH);
        while self.ring.poll_into(&mut batch) > 0 {
            all.append(&mut batch);
        }
        all
    }
}

/// Returns true if a completion is one that `notice` is of (RFC 5040 §5.3).
fn is_due(notice: Notice, completion: &Completion) -> bool {
    notice == Notice::Next || completion.solicited || completion.status != Status::Success
}
