//! The send queue of a queue pair at its core: entries of requests that were accepted, in a ring where they
//! are written in place and stay until they are complete.

use core::ops::Range;

use super::entry::SendEntry;
use crate::qp::wqe::Wqe;

/// Entries of the send queue, oldest first.
#[derive(Debug)]
pub(super) struct SendEntries {
    entries: Box<[SendEntry]>,
    /// The place of the oldest.
    head: usize,
    len: usize,
}

/// Where entries lie.
struct Extent {
    /// The place of the first.
    place: usize,
    /// How many there are.
    len: usize,
    /// How many of these are in a row in memory, from the first on.
    in_a_row: usize,
}

impl SendEntries {
    /// A queue for up to `capacity` entries, at least one.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let entry = |_| SendEntry::new(Wqe::none());
        Self { entries: (0..capacity.max(1)).map(entry).collect(), head: 0, len: 0 }
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of the entry at `index`, which is at most the capacity.
    #[inline]
    const fn place(&self, index: usize) -> usize {
        let place = self.head + index;
        if place < self.entries.len() { place } else { place - self.entries.len() }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&SendEntry> {
        if index < self.len { self.entries.get(self.place(index)) } else { None }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut SendEntry> {
        if index < self.len { self.entries.get_mut(self.place(index)) } else { None }
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&SendEntry> {
        self.get(0)
    }

    #[inline]
    pub(super) fn front_mut(&mut self) -> Option<&mut SendEntry> {
        self.get_mut(0)
    }

    #[inline]
    pub(super) fn back(&self) -> Option<&SendEntry> {
        self.get(self.len.checked_sub(1)?)
    }

    #[inline]
    pub(super) fn back_mut(&mut self) -> Option<&mut SendEntry> {
        self.get_mut(self.len.checked_sub(1)?)
    }

    /// The entries from `from` on.
    #[inline]
    pub(super) fn from(&self, from: usize) -> impl Iterator<Item = &SendEntry> {
        (from..self.len).filter_map(|index| self.get(index))
    }

    /// Where the entries in `range` lie, those that are there.
    #[inline]
    fn extent(&self, range: Range<usize>) -> Extent {
        let start = range.start.min(self.len);
        let len = range.end.min(self.len).saturating_sub(start);
        let place = self.place(start);
        Extent { place, len, in_a_row: len.min(self.entries.len() - place) }
    }

    /// The entries in `range` that are there: in the two pieces that are in a row in memory.
    #[inline]
    pub(super) fn in_a_row(&self, range: Range<usize>) -> [&[SendEntry]; 2] {
        let Extent { place, len, in_a_row } = self.extent(range);
        let before = self.entries.get(place..place + in_a_row).unwrap_or_default();
        [before, self.entries.get(..len - in_a_row).unwrap_or_default()]
    }

    /// The entries in `range` as [`in_a_row`](Self::in_a_row) returns them.
    #[inline]
    pub(super) fn in_a_row_mut(&mut self, range: Range<usize>) -> [&mut [SendEntry]; 2] {
        let Extent { place, len, in_a_row } = self.extent(range);
        let Some((wrapped, first)) = self.entries.split_at_mut_checked(place) else {
            return [&mut [], &mut []];
        };
        let before = first.get_mut(..in_a_row).unwrap_or_default();
        [before, wrapped.get_mut(..len - in_a_row).unwrap_or_default()]
    }

    /// The entries in `range` that are there.
    pub(super) fn range_mut(&mut self, range: Range<usize>) -> impl Iterator<Item = &mut SendEntry> {
        let [before, after] = self.in_a_row_mut(range);
        before.iter_mut().chain(after)
    }

    /// The entry that is the next to be [pushed](Self::push_next), with what it held before; `None` if there
    /// is no room.
    #[inline]
    pub(super) fn next_mut(&mut self) -> Option<&mut SendEntry> {
        if self.len < self.entries.len() { self.entries.get_mut(self.place(self.len)) } else { None }
    }

    /// The [next entries](Self::next_mut), those that are in a row in memory.
    #[inline]
    pub(super) fn next_run(&mut self) -> &mut [SendEntry] {
        let next = self.place(self.len);
        let end = if next < self.head { self.head } else { self.entries.len() };
        let run = if self.len < self.entries.len() { self.entries.get_mut(next..end) } else { None };
        run.unwrap_or_default()
    }

    /// Adds the [next entry](Self::next_mut), which was written.
    #[inline]
    pub(super) const fn push_next(&mut self) {
        self.push_many(1);
    }

    /// Adds the first `count` of the [next entries](Self::next_run), which were written.
    #[inline]
    pub(super) const fn push_many(&mut self, count: usize) {
        self.len += count;
        debug_assert!(self.len <= self.entries.len(), "more entries than places");
    }

    /// The oldest entries, those that are in a row in memory.
    #[inline]
    pub(super) fn front_run(&mut self) -> &mut [SendEntry] {
        let end = (self.head + self.len).min(self.entries.len());
        self.entries.get_mut(self.head..end).unwrap_or_default()
    }

    /// Removes the oldest `count` entries.
    #[inline]
    pub(super) const fn pop_front(&mut self, count: usize) {
        debug_assert!(count <= self.len, "more entries to remove than there are");
        self.head = self.place(count);
        self.len -= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qp::payload::Slice;
    use crate::qp::work::{Operation, SendRequest};

    fn push(queue: &mut SendEntries, id: u64) {
        let request = SendRequest::new(id, Operation::SEND, Slice::default());
        *queue.next_mut().unwrap() = SendEntry::new(Wqe::posted(&request, false));
        queue.push_next();
    }

    /// The identifiers of entries that are in two pieces.
    trait ConcatIds {
        fn concat_ids(&self) -> Vec<u64>;
    }

    impl ConcatIds for [&[SendEntry]; 2] {
        fn concat_ids(&self) -> Vec<u64> {
            self.iter().flat_map(|part| part.iter()).map(|wqe| wqe.request.id()).collect()
        }
    }

    fn ids(queue: &mut SendEntries, range: Range<usize>) -> Vec<u64> {
        let by_index = |index| queue.get(index).map(|wqe| wqe.request.id());
        let seen: Vec<u64> = range.clone().filter_map(by_index).collect();
        assert_eq!(queue.range_mut(range).map(|wqe| wqe.request.id()).collect::<Vec<_>>(), seen);
        seen
    }

    /// As a `VecDeque` of a fixed capacity, wherever the ring wraps.
    #[test]
    fn entries_keep_their_order_around_the_ring() {
        let mut queue = SendEntries::with_capacity(3);
        assert!(queue.is_empty() && queue.front().is_none() && queue.back().is_none());
        for id in 0..10 {
            push(&mut queue, id);
            push(&mut queue, id + 100);
            push(&mut queue, id + 200);
            assert!(queue.next_mut().is_none(), "full");
            assert_eq!(ids(&mut queue, 0..3), [id, id + 100, id + 200]);
            assert_eq!(ids(&mut queue, 1..2), [id + 100]);
            assert_eq!(ids(&mut queue, 2..9), [id + 200]);
            assert_eq!(ids(&mut queue, 7..9), []);
            assert_eq!(queue.from(1).map(|wqe| wqe.request.id()).collect::<Vec<_>>(), [id + 100, id + 200]);
            assert_eq!(queue.front_mut().map(|wqe| wqe.request.id()), Some(id));
            assert_eq!(queue.back_mut().map(|wqe| wqe.request.id()), Some(id + 200));
            assert_eq!((queue.len(), queue.get(3).is_none()), (3, true));
            let ids_in_a_row = |range| queue.in_a_row(range).concat_ids();
            assert_eq!(ids_in_a_row(0..3), [id, id + 100, id + 200]);
            assert_eq!(
                (ids_in_a_row(1..2), ids_in_a_row(2..9), ids_in_a_row(7..9)),
                (vec![id + 100], vec![id + 200], vec![])
            );
            assert!(queue.next_run().is_empty());
            let in_a_row = queue.front_run().iter().map(|wqe| wqe.request.id()).collect::<Vec<_>>();
            assert!([id, id + 100, id + 200].starts_with(&in_a_row) && !in_a_row.is_empty());
            queue.pop_front(2);
            assert_eq!(ids(&mut queue, 0..1), [id + 200]);
            let next = queue.next_run().as_ptr();
            assert!((1..=2).contains(&queue.next_run().len()));
            assert_eq!(next, core::ptr::from_ref(queue.next_mut().unwrap()));
            queue.pop_front(1);
            // The next round begins one place later.
            push(&mut queue, id);
            queue.pop_front(1);
        }
    }
}
