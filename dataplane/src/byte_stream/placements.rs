//! Octets that are placed in the buffers of transfers before their turn in the stream comes.

use std::collections::VecDeque;

use super::intervals::BufferRange;
use super::message_starts::MessageStarts;
use super::transfers::TransferId;

/// Octets placed whose turn has not come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    /// The position of the first octet.
    pub(super) at: u64,
    /// Where they are in the buffer.
    pub(super) range: BufferRange,
    pub(super) transfer: TransferId,
    pub(super) beyond_gap: bool,
}

impl Placement {
    /// The position after the last octet.
    pub(super) fn end(&self) -> u64 {
        self.at + u64::from(self.range.octets())
    }

    /// Returns it and `next` as one, if `next` is the same claim on the next octets of the stream, for the
    /// next octets of the buffer.
    fn joined(&self, next: &Self) -> Option<Self> {
        let continues = self.end() == next.at
            && self.range.end() == u64::from(next.range.offset())
            && (self.transfer, self.beyond_gap) == (next.transfer, next.beyond_gap);
        let octets = self.range.octets().checked_add(next.range.octets()).filter(|_| continues)?;
        let range = BufferRange::new(self.range.offset(), octets)?;
        (self.range.octets() > 0 && next.range.octets() > 0).then_some(Self { range, ..*self })
    }
}

/// The placements of a stream, in its order and without overlap.
#[derive(Debug)]
pub(super) struct Placements(VecDeque<Placement>);

impl Placements {
    /// Returns no placements, with room for `capacity`.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(VecDeque::with_capacity(capacity))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first.
    #[inline]
    pub(super) fn front(&self) -> Option<Placement> {
        self.0.front().copied()
    }

    pub(super) fn pop_front(&mut self) -> Option<Placement> {
        self.0.pop_front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Placement> {
        self.0.iter()
    }

    /// Those that end after position `at`.
    pub(super) fn after(&self, at: u64) -> impl Iterator<Item = &Placement> {
        self.0.range(self.0.partition_point(|placement| placement.end() <= at)..)
    }

    /// Whether position `at` lies inside of a placement, and is not its first.
    pub(super) fn encloses(&self, at: u64) -> bool {
        self.after(at).next().is_some_and(|placement| placement.at < at)
    }

    /// Adds a placement, as one with its neighbours where they continue each other: small segments of one
    /// burst need no more room than large ones. A message that begins between two, by `starts`, is reported
    /// between them.
    pub(super) fn add(&mut self, mut placement: Placement, starts: &MessageStarts) {
        let Placement { at, .. } = placement;
        // Transfers of nothing go before others at their position, and have none for themselves.
        let mut index = self
            .0
            .partition_point(|before| before.at < at || (before.at == at && before.range.octets() == 0));
        let after = self.0.get(index).filter(|after| !starts.contain(after.at));
        if let Some(joined) = after.and_then(|after| placement.joined(after)) {
            placement = joined;
            self.0.remove(index);
        }
        let before = index.checked_sub(1).and_then(|before| self.0.get(before));
        let before = before.filter(|_| !starts.contain(at));
        if let Some(joined) = before.and_then(|before| before.joined(&placement)) {
            placement = joined;
            index -= 1;
            self.0.remove(index);
        }
        self.0.insert(index, placement);
    }
}
