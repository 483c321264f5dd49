//! Runs of octets of a stream, which neither overlap nor touch.

use std::collections::BTreeMap;

/// The end of each run by its beginning.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<i64, i64>);

impl Runs {
    /// Returns the run that holds the octet at `at`.
    pub(super) fn around(&self, at: i64) -> Option<(i64, i64)> {
        self.0.range(..=at).next_back().map(|(from, to)| (*from, *to)).filter(|(_, to)| *to > at)
    }

    /// Returns true if all octets from `from` to `to` are there.
    pub(super) fn have(&self, from: i64, to: i64) -> bool {
        self.around(from).is_some_and(|(_, end)| end >= to)
    }

    /// Returns what is there of the octets from `from` to `to`.
    pub(super) fn within(&self, from: i64, to: i64) -> impl Iterator<Item = (i64, i64)> {
        let before = self.around(from).into_iter();
        let after = self.0.range(from + 1..to.max(from + 1)).map(|(from, to)| (*from, *to));
        before.chain(after).map(move |(begin, end)| (begin.max(from), end.min(to)))
    }

    /// Adds the octets from `from` to `to`.
    pub(super) fn add(&mut self, mut from: i64, mut to: i64) {
        while let Some((begin, end)) = self.0.range(..=to).next_back().map(|(begin, end)| (*begin, *end))
            && end >= from
        {
            self.0.remove(&begin);
            (from, to) = (from.min(begin), to.max(end));
        }
        self.0.insert(from, to);
    }
}
