//! The connections of a core on which a message waits for a receive of a shared receive queue.

use std::collections::BTreeMap;

use crate::conn::ConnectionId;

/// Connections on which a message waits for a receive of a shared receive queue, the longest wait first. When
/// receives are posted, a pass asks each of them whether its queue has one. A pass may take several polls.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWaiters {
    /// By the number of the wait: a later one has a greater number.
    waiting: BTreeMap<u64, ConnectionId>,
    /// The number of the last wait that began; the first has number 1.
    last: u64,
    pass: Option<Pass>,
    /// Receives were posted during the pass, for connections that it may have come by.
    again: bool,
}

/// Those that wait again after the pass has begun are not visited by it.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// The least number that was not visited, and the greatest to visit.
    next: u64,
    last: u64,
}

impl ReceiveWaiters {
    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a connection, whose wait begins. Returns the number of its wait.
    pub(super) fn add(&mut self, id: ConnectionId) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, id);
        self.last
    }

    /// Removes the wait of this number.
    pub(crate) fn remove(&mut self, number: u64) {
        self.waiting.remove(&number);
    }

    /// Begins a pass, or has one that goes on followed by another.
    pub(crate) fn begin_pass(&mut self) {
        if self.is_passing() {
            self.again = true;
        } else {
            self.pass = Some(Pass { next: 0, last: self.last });
        }
    }

    /// Returns true if a pass goes on.
    pub(crate) const fn is_passing(&self) -> bool {
        self.pass.is_some()
    }

    /// Returns the next connection to visit and the number of its wait. `None` ends the pass.
    pub(crate) fn next_to_visit(&mut self) -> Option<(u64, ConnectionId)> {
        let Pass { next, last } = self.pass?;
        let found = self.waiting.range(next..).next().map(|(number, id)| (*number, *id));
        let found = found.filter(|(number, _)| *number <= last);
        if found.is_none() {
            self.pass = None;
            if core::mem::take(&mut self.again) {
                self.begin_pass();
            }
        }
        found
    }

    /// Records that the pass has visited the wait of this number.
    pub(crate) const fn record_visit(&mut self, number: u64) {
        if let Some(pass) = &mut self.pass {
            pass.next = number + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> ConnectionId {
        ConnectionId::from_bits(n)
    }

    /// Visits the rest of a pass; returns the names.
    fn visit_all(waiters: &mut ReceiveWaiters) -> Vec<u64> {
        let visit = || {
            let (number, id) = waiters.next_to_visit()?;
            waiters.record_visit(number);
            Some(id.to_bits())
        };
        core::iter::from_fn(visit).collect()
    }

    #[test]
    fn a_pass_visits_those_that_wait_when_it_begins() {
        let mut waiters = ReceiveWaiters::default();
        let numbers: Vec<u64> = (0..5).map(|n| waiters.add(id(n))).collect();
        assert!(waiters.next_to_visit().is_none(), "there is no pass");
        waiters.begin_pass();
        assert_eq!(waiters.next_to_visit(), Some((numbers[0], id(0))));
        waiters.record_visit(numbers[0]);
        waiters.remove(numbers[2]);
        waiters.add(id(9));
        assert_eq!(visit_all(&mut waiters), [1, 3, 4]);
        assert!(!waiters.is_passing() && waiters.len() == 5);
    }

    /// A receive that is posted during a pass may be for a connection that the pass has come by.
    #[test]
    fn a_post_during_a_pass_begins_another() {
        let mut waiters = ReceiveWaiters::default();
        (0..3).for_each(|n| _ = waiters.add(id(n)));
        waiters.begin_pass();
        waiters.begin_pass();
        assert_eq!((visit_all(&mut waiters), waiters.is_passing()), (vec![0, 1, 2], true));
        assert_eq!((visit_all(&mut waiters), waiters.is_passing()), (vec![0, 1, 2], false));
    }
}
