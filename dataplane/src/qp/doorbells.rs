//! How a core hears of new work.

use super::work::QpNumber;
use crate::sync::ArrayQueue;

/// The bell that applications ring at a core: the numbers of queue pairs with new work.
#[derive(Debug)]
pub struct Doorbells(ArrayQueue<QpNumber>);

impl Doorbells {
    /// Bells for `queue_pairs` queue pairs.
    pub fn new(queue_pairs: usize) -> Self {
        Self(ArrayQueue::new(queue_pairs.max(1)))
    }

    /// Rings for a queue pair that the bell does not ring for yet.
    pub(super) fn ring(&self, queue_pair: QpNumber) {
        // There is a place for every queue pair, and each is in the queue at most once.
        let rung = self.0.push(queue_pair);
        debug_assert!(rung.is_ok(), "more queue pairs than doorbells");
    }

    /// The next queue pair that has new work.
    pub fn take(&self) -> Option<QpNumber> {
        self.0.pop()
    }

    /// Whether no bell rings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
