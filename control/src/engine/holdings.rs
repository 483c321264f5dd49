//! Counts what each holder has against the quotas of a device (RFC 5042 §5.2).

use std::collections::HashMap;
use std::hash::Hash;

/// Counts what each holder has. A holder at its quota gets no more, and no other holder is affected.
// Requirements: DDP-8.3.2-03, DDP-8.3.2-06, RDMAP-8.1.2-01, RDMAP-8.1.2-03
#[derive(Debug)]
pub(crate) struct Holdings<Holder> {
    quota: usize,
    counts: HashMap<Holder, u32>,
    refused: u64,
}

impl<Holder: Copy + Eq + Hash> Holdings<Holder> {
    pub(crate) fn new(quota: usize) -> Self {
        Self { quota, counts: HashMap::new(), refused: 0 }
    }

    /// Returns true if `holder` may have another one; counts a refusal if not.
    pub(crate) fn has_room(&mut self, holder: Holder) -> bool {
        let room = self.counts.get(&holder).is_none_or(|&count| (count as usize) < self.quota);
        self.refused += u64::from(!room);
        room
    }

    /// Records that `holder` has one more from now on.
    pub(crate) fn add(&mut self, holder: Holder) {
        *self.counts.entry(holder).or_default() += 1;
    }

    /// Records that `holder` has one less: one that was [added](Self::add). Returns true if it has none now.
    pub(crate) fn give_back(&mut self, holder: Holder) -> bool {
        let Some(count) = self.counts.get_mut(&holder) else {
            debug_assert!(false, "given back by a holder that has nothing");
            return true;
        };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&holder);
            return true;
        }
        false
    }

    /// Returns true if no holder has anything.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns how often a quota left no room.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One holder's share is used up by that one alone, and comes back.
    // Requirements: DDP-8.3.2-06, RDMAP-8.1.2-03
    #[test]
    fn shares_are_counted_apart() {
        let mut holdings = Holdings::new(2);
        for _ in 0..2 {
            assert!(holdings.has_room(1));
            holdings.add(1);
        }
        assert!(!holdings.has_room(1) && holdings.has_room(2));
        assert_eq!(holdings.refused(), 1);
        holdings.give_back(1);
        assert!(holdings.has_room(1), "one came back");
        holdings.add(1);
        assert!(!holdings.has_room(1), "and only one");
        holdings.give_back(1);
        holdings.give_back(1);
        assert!(holdings.is_empty(), "a holder of nothing is forgotten");
    }
}
