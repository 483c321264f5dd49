//! Names that the engine assigns, STags and queue pair numbers, and tables by what it numbers itself.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

use siphasher::sip::SipHasher24;
use warpline_dataplane::limits;
use warpline_dataplane::memory::STag;
use warpline_dataplane::qp::work::QpNumber;

/// A table by keys that no peer chooses. The order of its entries depends on nothing but its history, so a
/// simulation of the engine can be replayed.
pub(super) type Table<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// Numbers that a peer cannot predict without the key: a keyed hash of a counter.
#[derive(Debug)]
pub(crate) struct KeyedSequence {
    key: [u8; 16],
    counter: u64,
}

impl KeyedSequence {
    /// Returns the sequence of `key`.
    pub(crate) const fn new(key: [u8; 16]) -> Self {
        Self { key, counter: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(self.counter);
        self.counter += 1;
        hasher.finish()
    }
}

/// The STags in use.
#[derive(Debug)]
pub(crate) struct StagNames {
    random: KeyedSequence,
    /// Slots that may be in use at once: half of them at most, so that names stay sparse and a free one is
    /// found at once.
    // Requirements: RDMAP-8.1.1-03
    capacity: usize,
    /// Slots in use.
    slots: HashSet<u16>,
    /// The key that each slot had last, of those that were in use.
    last_keys: HashMap<u16, u16>,
}

impl StagNames {
    /// Returns no names, and room for `capacity`, which is at most
    /// [`REGISTRATIONS_MAX`](limits::REGISTRATIONS_MAX).
    pub(crate) fn new(random: KeyedSequence, capacity: usize) -> Self {
        let capacity = capacity.min(limits::REGISTRATIONS_MAX);
        Self { random, capacity, slots: HashSet::new(), last_keys: HashMap::new() }
    }

    /// Returns a new STag: a random free slot and a random key, both hard to predict, never 0, nor what the
    /// slot was called last: a peer may still have that. `None` when no slot is free.
    // Requirements: RDMAP-8.1.1-03
    pub(crate) fn allocate(&mut self) -> Option<STag> {
        if self.slots.len() >= self.capacity {
            return None;
        }
        loop {
            let random = self.random.next();
            let (slot, key) = (random as u16, (random >> 16) as u16);
            let stag = STag::new(slot, key);
            let is_new = stag.0 != 0 && self.last_keys.get(&slot) != Some(&key);
            if is_new && self.slots.insert(slot) {
                return Some(stag);
            }
        }
    }

    /// Frees the slot of `stag`, which names nothing any more: it is what its slot was called last.
    pub(crate) fn give_back(&mut self, stag: STag) {
        let slot = stag.index() as u16;
        let was_there = self.slots.remove(&slot);
        self.last_keys.insert(slot, stag.key());
        debug_assert!(was_there, "an STag given back twice");
    }

    pub(crate) fn in_use(&self) -> usize {
        self.slots.len()
    }
}

/// The free queue pair numbers, the longest unused first: a late completion of an old queue pair is not taken
/// for one of the next.
#[derive(Debug)]
pub(crate) struct QpNumbers {
    /// Numbers from this one on were never in use.
    next: u32,
    capacity: u32,
    /// Those that were, and are free.
    free: VecDeque<QpNumber>,
}

impl QpNumbers {
    /// Returns `capacity` free numbers.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { next: 0, capacity: capacity as u32, free: VecDeque::new() }
    }

    pub(crate) fn allocate(&mut self) -> Option<QpNumber> {
        if self.next == self.capacity {
            return self.free.pop_front();
        }
        self.next += 1;
        Some(QpNumber(self.next - 1))
    }

    pub(crate) fn give_back(&mut self, number: QpNumber) {
        self.free.push_back(number);
    }

    /// Returns true if no number is in use.
    #[cfg(test)]
    pub(crate) fn are_all_free(&self) -> bool {
        self.free.len() == self.next as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over many allocations every bit of the STag is set about half of the time, and no name follows from
    /// the one before.
    // Requirements: RDMAP-8.1.1-03
    #[test]
    fn stags_are_spread_over_all_values() {
        const DRAWS: u32 = 4096;
        let mut names = StagNames::new(KeyedSequence::new([9; 16]), limits::REGISTRATIONS_MAX);
        let stags: Vec<STag> = (0..DRAWS).map(|_| names.allocate().unwrap()).collect();
        for bit in 0..32 {
            let set = stags.iter().filter(|stag| stag.0 >> bit & 1 == 1).count() as u32;
            // Ten standard deviations of a fair coin.
            assert!(set.abs_diff(DRAWS / 2) < 320, "bit {bit} is set in {set} of {DRAWS}");
        }
        let steps: HashSet<u32> = stags.windows(2).map(|pair| pair[1].0.wrapping_sub(pair[0].0)).collect();
        assert!(steps.len() > DRAWS as usize - 10, "steps repeat");
        let slots: HashSet<usize> = stags.iter().map(|stag| stag.index()).collect();
        assert_eq!(slots.len(), stags.len(), "two STags share a slot");
    }

    #[test]
    fn slots_run_out_and_come_back() {
        let mut names = StagNames::new(KeyedSequence::new([9; 16]), 1000);
        let first = names.allocate().unwrap();
        while names.allocate().is_some() {}
        assert_eq!(names.in_use(), 1000);
        names.give_back(first);
        assert!(names.allocate().is_some());
        assert!(names.allocate().is_none());
    }

    /// A slot does not have the same name twice in a row, not even by chance.
    #[test]
    fn the_last_name_of_a_slot_is_passed_over() {
        let same_draws = || StagNames::new(KeyedSequence::new([7; 16]), 1000);
        let (mut first, mut second) = (same_draws(), same_draws());
        let stag = first.allocate().unwrap();
        let next = first.allocate().unwrap();
        // In the second allocator that slot was issued before, and `stag` was its last name.
        let before = stag.with_key(!stag.key());
        second.slots.insert(before.index() as u16);
        second.give_back(stag);
        assert_eq!(second.allocate(), Some(next));
    }

    #[test]
    fn queue_pair_numbers_rest_before_they_are_used_again() {
        let mut numbers = QpNumbers::new(1000);
        let first = numbers.allocate().unwrap();
        numbers.give_back(first);
        assert!((1..1000).all(|_| numbers.allocate().is_some_and(|number| number != first)));
        assert_eq!((numbers.allocate(), numbers.allocate()), (Some(first), None));
    }
}
