//! Sets of offsets, as a few intervals.

use arrayvec::ArrayVec;

use crate::limits;

/// A set of offsets in a buffer. Neighbouring intervals are one.
#[derive(Clone, Debug, Default)]
pub struct Intervals {
    /// First and one after the last offset, in order, with a gap between any two.
    runs: ArrayVec<(u64, u64), { limits::TRANSFER_INTERVALS }>,
}

impl Intervals {
    /// Whether any of `from..to` is in the set.
    pub fn overlaps(&self, from: u64, to: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 <= from);
        from < to && self.runs.get(at).is_some_and(|run| run.0 < to)
    }

    /// Adds `from..to`, of which no offset is in the set. Returns false, and adds nothing, if that takes more
    /// intervals than there may be.
    pub fn insert(&mut self, from: u64, to: u64) -> bool {
        debug_assert!(!self.overlaps(from, to), "no offset is added twice");
        if from >= to {
            return true;
        }
        let at = self.runs.partition_point(|run| run.1 <= from);
        let joins_before = at > 0 && self.runs[at - 1].1 == from;
        let joins_after = self.runs.get(at).is_some_and(|run| run.0 == to);
        match (joins_before, joins_after) {
            (true, true) => {
                self.runs[at - 1].1 = self.runs[at].1;
                self.runs.remove(at);
            }
            (true, false) => self.runs[at - 1].1 = to,
            (false, true) => self.runs[at].0 = from,
            (false, false) if self.runs.is_full() => return false,
            (false, false) => self.runs.insert(at, (from, to)),
        }
        true
    }

    /// Removes `from..to`, if it lies in one interval. Returns false, and removes nothing, if that takes more
    /// intervals than there may be.
    pub fn remove(&mut self, from: u64, to: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 <= from);
        let holds = |run: &(u64, u64)| run.0 <= from && to <= run.1 && from < to;
        let Some(run) = self.runs.get(at).copied().filter(holds) else { return true };
        match (run.0 == from, run.1 == to) {
            (true, true) => {
                self.runs.remove(at);
            }
            (true, false) => self.runs[at].0 = to,
            (false, true) => self.runs[at].1 = from,
            (false, false) if self.runs.is_full() => return false,
            (false, false) => {
                self.runs[at].1 = from;
                self.runs.insert(at + 1, (to, run.1));
            }
        }
        true
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.runs.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many intervals a set has.
    fn runs(set: &std::collections::BTreeSet<u64>) -> usize {
        set.iter().filter(|offset| !set.contains(&(**offset + 1))).count()
    }

    proptest! {
        #[test]
        fn they_are_a_set(
            ranges in proptest::collection::vec((0_u64..200, 0_u64..12, any::<bool>()), 0..80),
        ) {
            let mut set = Intervals::default();
            let mut model = std::collections::BTreeSet::new();
            for (from, octets, adds) in ranges {
                let (to, before) = (from + octets, model.clone());
                if !adds {
                    let runs = runs(&model);
                    let inside = (from..to).all(|offset| model.contains(&offset));
                    if !inside {
                        continue;
                    }
                    if set.remove(from, to) {
                        model.retain(|offset| !(from..to).contains(offset));
                    } else {
                        prop_assert_eq!(runs, limits::TRANSFER_INTERVALS);
                    }
                    for offset in 0..220 {
                        prop_assert_eq!(set.overlaps(offset, offset + 1), model.contains(&offset));
                    }
                    continue;
                }
                let overlaps = (from..to).any(|offset| model.contains(&offset));
                prop_assert_eq!(set.overlaps(from, to), overlaps);
                if overlaps {
                    continue;
                }
                if set.insert(from, to) {
                    model.extend(from..to);
                } else {
                    prop_assert_eq!(runs(&before), limits::TRANSFER_INTERVALS);
                }
                for offset in 0..220 {
                    prop_assert_eq!(set.overlaps(offset, offset + 1), model.contains(&offset));
                }
            }
        }
    }
}
