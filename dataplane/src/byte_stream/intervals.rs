//! Ranges of a buffer, and sets of offsets as a few intervals.

use arrayvec::ArrayVec;

use crate::limits;

/// Octets of a buffer of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferRange {
    offset: u32,
    octets: u32,
}

impl BufferRange {
    /// Returns the `octets` octets from `offset` on; `None` if the offset of the last has more than 32 bits.
    ///
    /// Example: 10 octets from 2^32 - 10 on are a range, whose end is 2^32; 11 are none.
    pub(super) const fn new(offset: u32, octets: u32) -> Option<Self> {
        if octets > 0 && offset.checked_add(octets - 1).is_none() {
            return None;
        }
        Some(Self { offset, octets })
    }

    /// Returns the offset of the first octet.
    pub(super) const fn offset(self) -> u32 {
        self.offset
    }

    /// Returns the number of octets.
    pub(super) const fn octets(self) -> u32 {
        self.octets
    }

    /// Returns the offset after the last octet, at most 2^32.
    pub(super) const fn end(self) -> u64 {
        self.offset as u64 + self.octets as u64
    }

    /// Returns its interval, if it has octets.
    const fn interval(self) -> Option<Interval> {
        match self.octets.checked_sub(1) {
            Some(after_first) => Some(Interval { first: self.offset, last: self.offset + after_first }),
            None => None,
        }
    }
}

/// Offsets from the first to the last, which belongs to them: so 32 bits are enough for an end of 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    first: u32,
    last: u32,
}

impl Interval {
    /// Returns true if `next` begins right after it.
    const fn touches(self, next: Self) -> bool {
        // One that ends at 2^32 has nothing after it.
        matches!(self.last.checked_add(1), Some(after) if after == next.first)
    }
}

/// A set of offsets in a buffer. Neighbouring intervals are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals {
    /// In order, with a gap between any two.
    runs: ArrayVec<Interval, { limits::TRANSFER_INTERVALS }>,
}

/// What [`Intervals::insert_or_close_gap`] has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// The offsets of the range.
    Range,
    /// These, and those of a gap.
    RangeAndGap,
    /// None: they take more intervals than there may be.
    Nothing,
}

impl Intervals {
    /// Returns true if any octet of `range` is in the set.
    pub(super) fn overlaps(&self, range: BufferRange) -> bool {
        let Some(new) = range.interval() else { return false };
        let at = self.runs.partition_point(|run| run.last < new.first);
        self.runs.get(at).is_some_and(|run| run.first <= new.last)
    }

    /// Adds `range`, of which no octet is in the set. Returns false, and adds nothing, if that takes more
    /// intervals than there may be.
    pub(super) fn insert(&mut self, range: BufferRange) -> bool {
        debug_assert!(!self.overlaps(range), "no offset is added twice");
        let Some(new) = range.interval() else { return true };
        let at = self.runs.partition_point(|run| run.last < new.first);
        let joins_before = at > 0 && self.runs[at - 1].touches(new);
        let joins_after = self.runs.get(at).is_some_and(|run| new.touches(*run));
        match (joins_before, joins_after) {
            (true, true) => {
                self.runs[at - 1].last = self.runs[at].last;
                self.runs.remove(at);
            }
            (true, false) => self.runs[at - 1].last = new.last,
            (false, true) => self.runs[at].first = new.first,
            (false, false) if self.runs.is_full() => return false,
            (false, false) => self.runs.insert(at, new),
        }
        true
    }

    /// Adds `range` if it continues the last interval, or is the first one. Returns false, and adds nothing,
    /// if it does not.
    #[inline]
    pub(super) fn append(&mut self, range: BufferRange) -> bool {
        let (Some(new), last) = (range.interval(), self.runs.last_mut()) else { return false };
        match last {
            Some(last) if last.touches(new) => last.last = new.last,
            Some(_) => return false,
            None => self.runs.push(new),
        }
        true
    }

    /// Returns true if it has no offset.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds `range`, of which no octet is in the set. If that takes more intervals than there may be, the
    /// narrowest gap in which `others` has nothing is closed: its offsets are in the set from then on.
    pub(super) fn insert_or_close_gap(&mut self, range: BufferRange, others: &Self) -> Inserted {
        if self.insert(range) {
            return Inserted::Range;
        }
        let gap = |at: usize| {
            let (before, after) = (self.runs.get(at)?, self.runs.get(at + 1)?);
            BufferRange::new(before.last + 1, after.first - before.last - 1)
        };
        let holds_range =
            |gap: BufferRange| gap.offset() <= range.offset() && u64::from(range.offset()) < gap.end();
        let free = |at: &usize| gap(*at).is_some_and(|gap| !others.overlaps(gap) && !holds_range(gap));
        let octets = |at: &usize| gap(*at).map(BufferRange::octets);
        let Some(at) = (0..self.runs.len()).filter(free).min_by_key(octets) else { return Inserted::Nothing };
        self.runs[at].last = self.runs[at + 1].last;
        self.runs.remove(at + 1);
        if self.insert(range) { Inserted::RangeAndGap } else { Inserted::Nothing }
    }

    /// Removes `range`, if it lies in one interval. Returns false, and removes nothing, if that takes more
    /// intervals than there may be.
    pub(super) fn remove(&mut self, range: BufferRange) -> bool {
        let Some(old) = range.interval() else { return true };
        let at = self.runs.partition_point(|run| run.last < old.first);
        let holds = |run: &Interval| run.first <= old.first && old.last <= run.last;
        let Some(run) = self.runs.get(at).copied().filter(holds) else { return true };
        match (run.first == old.first, run.last == old.last) {
            (true, true) => {
                self.runs.remove(at);
            }
            (true, false) => self.runs[at].first = old.last + 1,
            (false, true) => self.runs[at].last = old.first - 1,
            (false, false) if self.runs.is_full() => return false,
            (false, false) => {
                self.runs[at].last = old.first - 1;
                self.runs.insert(at + 1, Interval { first: old.last + 1, last: run.last });
            }
        }
        true
    }

    /// Returns true if the set is all offsets below `end`, and no other.
    pub(super) fn is_all_below(&self, end: u32) -> bool {
        match (self.runs.as_slice(), end.checked_sub(1)) {
            ([], None) => true,
            ([run], Some(last)) => *run == (Interval { first: 0, last }),
            _ => false,
        }
    }

    /// Returns the offset after the last one of the set, at most 2^32; 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| u64::from(run.last) + 1)
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// How many intervals a set has.
    fn runs(set: &BTreeSet<u64>) -> usize {
        set.iter().filter(|offset| !set.contains(&(**offset + 1))).count()
    }

    /// Checks that `set` has the offsets of `model`, which all lie in 220 octets from `base` on.
    fn check(set: &Intervals, model: &BTreeSet<u64>, base: u32) -> Result<(), TestCaseError> {
        for skip in 0..220 {
            let Some(offset) = base.checked_add(skip) else { break };
            let one = BufferRange::new(offset, 1).unwrap();
            prop_assert_eq!(set.overlaps(one), model.contains(&u64::from(offset)), "{}", offset);
        }
        prop_assert_eq!(set.end(), model.last().map_or(0, |last| last + 1));
        let all_below = (0..model.len() as u64).eq(model.iter().copied());
        prop_assert_eq!(set.is_all_below(model.len() as u32), all_below);
        prop_assert!(!set.is_all_below(model.len() as u32 + 1));
        Ok(())
    }

    /// As many intervals as there may be, of ten offsets each, with gaps of ten and one of five.
    fn full() -> Intervals {
        let mut set = Intervals::default();
        for run in 0..limits::TRANSFER_INTERVALS as u32 {
            assert!(set.insert(range(run * 20, run * 20 + if run == 3 { 15 } else { 10 })));
        }
        set
    }

    /// The offsets from `from` to the one before `to`.
    fn range(from: u32, to: u32) -> BufferRange {
        BufferRange::new(from, to - from).unwrap()
    }

    #[test]
    fn the_narrowest_gap_that_nobody_needs_is_closed() {
        let end = limits::TRANSFER_INTERVALS as u32 * 20;
        let mut set = full();
        assert_eq!(
            set.insert_or_close_gap(range(end, end + 5), &Intervals::default()),
            Inserted::RangeAndGap
        );
        assert!((60..90).all(|offset| set.overlaps(range(offset, offset + 1))), "of five offsets");
        assert!(
            set.overlaps(range(end, end + 5))
                && !set.overlaps(range(10, 20))
                && !set.overlaps(range(90, 100))
        );
        // Of those that are left the first.
        let mut others = Intervals::default();
        assert!(others.insert(range(19, 20)));
        assert_eq!(set.insert_or_close_gap(range(end + 10, end + 15), &others), Inserted::RangeAndGap);
        assert!(
            set.overlaps(range(30, 40)) && !set.overlaps(range(10, 20)),
            "others have something in the first"
        );
    }

    #[test]
    fn no_gap_is_closed_that_the_offsets_or_others_lie_in() {
        let mut set = full();
        let mut others = Intervals::default();
        for run in 0..limits::TRANSFER_INTERVALS as u32 - 1 {
            assert!(others.insert(range(run * 20 + 17, run * 20 + 18)));
        }
        let before = set.clone();
        let end = limits::TRANSFER_INTERVALS as u32 * 20;
        assert_eq!(set.insert_or_close_gap(range(end, end + 5), &others), Inserted::Nothing);
        assert_eq!(set.runs, before.runs);
        assert!(others.remove(range(17, 18)));
        assert_eq!(
            set.insert_or_close_gap(range(12, 15), &others),
            Inserted::Nothing,
            "it is in the only free one"
        );
        assert_eq!(set.runs, before.runs);
    }

    #[test]
    fn a_full_set_loses_nothing_from_within_an_interval() {
        let mut set = full();
        let before = set.clone();
        assert!(!set.remove(range(22, 25)), "two intervals of one");
        assert_eq!(set.runs, before.runs);
        assert!(set.remove(range(20, 22)) && set.remove(range(28, 30)), "one of one");
        assert!(!set.remove(range(24, 26)));
        assert!(set.remove(range(0, 10)), "none of one");
        assert!(set.remove(range(24, 26)), "there is room");
        let is_left = |from| set.overlaps(range(from, from + 2));
        assert_eq!([20, 22, 24, 26, 28].map(is_left), [false, true, false, true, false]);
    }

    proptest! {
        /// At the beginning of a buffer, and up to the last offset that 32 bits can say.
        #[test]
        fn they_are_a_set(
            ranges in proptest::collection::vec((0_u32..200, 0_u32..12, any::<bool>()), 0..160),
            at_end in any::<bool>(),
            appends in any::<bool>(),
        ) {
            let base = if at_end { u32::MAX - 199 } else { 0 };
            let mut set = Intervals::default();
            let mut model = BTreeSet::new();
            for (skip, octets, adds) in ranges {
                let offset = base + skip;
                let offsets = u64::from(offset)..u64::from(offset) + u64::from(octets);
                let Some(range) = BufferRange::new(offset, octets) else {
                    prop_assert!(offsets.end > 1 << 32);
                    continue;
                };
                prop_assert!(offsets.end <= 1 << 32);
                prop_assert_eq!(range.end(), offsets.end);
                let overlaps = offsets.clone().any(|offset| model.contains(&offset));
                prop_assert_eq!(set.overlaps(range), overlaps);
                if adds && !overlaps {
                    let continues = model.last().is_none_or(|last| last + 1 == offsets.start);
                    let appended = appends && set.append(range);
                    prop_assert_eq!(appended, appends && continues && octets > 0);
                    if appended || set.insert(range) {
                        model.extend(offsets);
                    } else {
                        prop_assert_eq!(runs(&model), limits::TRANSFER_INTERVALS);
                    }
                } else if !adds && offsets.clone().all(|offset| model.contains(&offset)) {
                    if set.remove(range) {
                        model.retain(|offset| !offsets.contains(offset));
                    } else {
                        prop_assert_eq!(runs(&model), limits::TRANSFER_INTERVALS);
                    }
                }
                check(&set, &model, base)?;
            }
        }
    }
}
