//! Deadlines of the engine's connections, openings, queue pairs and registrations, the earliest first.

use std::collections::BTreeSet;

use warpline_dataplane::time::Instant;

/// Deadlines of what `K` names, at most one of each: what is due is found without a look at the others.
#[derive(Debug)]
pub(super) struct Deadlines<K>(BTreeSet<(Instant, K)>);

impl<K: Copy + Ord> Deadlines<K> {
    pub(super) const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Moves the deadline of `key` from `before` to `after`. There is none at [`Instant::NEVER`].
    pub(super) fn change(&mut self, key: K, before: Instant, after: Instant) {
        if before == after {
            return;
        }
        if before != Instant::NEVER {
            self.0.remove(&(before, key));
        }
        if after != Instant::NEVER {
            self.0.insert((after, key));
        }
    }

    /// Returns the earliest deadline.
    pub(super) fn next(&self) -> Instant {
        self.0.first().map_or(Instant::NEVER, |(at, _)| *at)
    }

    /// Removes the earliest deadline if it has come, and returns what it is of.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next() > now {
            return None;
        }
        self.0.pop_first().map(|(_, key)| key)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_the_order_of_time() {
        let [one, two, three] = [1, 2, 3].map(Instant::from_nanos);
        let mut deadlines = Deadlines::new();
        assert_eq!((deadlines.next(), deadlines.pop_due(three)), (Instant::NEVER, None));
        for (name, at) in [('a', three), ('b', one), ('c', three), ('d', two)] {
            deadlines.change(name, Instant::NEVER, at);
        }
        deadlines.change('c', three, one);
        deadlines.change('d', two, Instant::NEVER);
        assert_eq!((deadlines.next(), deadlines.pop_due(Instant::ZERO)), (one, None));
        let due: Vec<char> = std::iter::from_fn(|| deadlines.pop_due(two)).collect();
        assert_eq!(due, ['b', 'c']);
        assert_eq!((deadlines.next(), deadlines.pop_due(three)), (three, Some('a')));
        assert!(deadlines.is_empty());
    }
}
