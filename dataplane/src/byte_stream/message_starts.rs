//! The positions of a stream where messages begin, and whose turn has not come.

use std::collections::VecDeque;

use crate::limits;

/// A position where a message begins, and whose turn has not come.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageStart {
    pub(super) position: u64,
    /// The end of octets that were handed out from here on, or from before; 0 if none were.
    pub(super) handed_out_to: u64,
}

/// Where messages begin, in stream order.
#[derive(Debug, Default)]
pub(super) struct MessageStarts {
    starts: VecDeque<MessageStart>,
    /// The last of those reported to the application: a copy of its segment may come before its octets
    /// find room.
    last_reported: Option<u64>,
}

impl MessageStarts {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Whether a message begins at `position`.
    pub(super) fn contain(&self, position: u64) -> bool {
        self.starts.binary_search_by_key(&position, |start| start.position).is_ok()
    }

    /// Records that a message begins at `position`. A copy of its segment says the same.
    pub(super) fn add(&mut self, position: u64) {
        if Some(position) == self.last_reported {
            return;
        }
        if let Err(at) = self.starts.binary_search_by_key(&position, |start| start.position)
            && self.starts.len() < limits::MESSAGE_STARTS_PER_STREAM
        {
            // Octets are handed out once, also if they turn out to be two messages.
            let before = at.checked_sub(1).map_or(0, |before| self.starts[before].handed_out_to);
            let handed_out_to = if before > position { before } else { 0 };
            self.starts.insert(at, MessageStart { position, handed_out_to });
        }
    }

    /// The first position up to `end`. Those before `position`, which are inside of placements, are dropped.
    pub(super) fn next(&mut self, position: u64, end: u64) -> Option<u64> {
        while self.starts.front().is_some_and(|start| start.position < position) {
            self.starts.pop_front();
        }
        self.starts.front().map(|start| start.position).filter(|start| *start <= end)
    }

    /// Removes the first, which is reported to the application.
    pub(super) fn tell_first(&mut self) {
        self.last_reported = self.starts.pop_front().map(|start| start.position);
    }

    /// The index of the last one before `position`, or of the first of all.
    pub(super) fn index_before(&self, position: u64) -> usize {
        self.starts.partition_point(|start| start.position < position).saturating_sub(1)
    }

    /// The one at `index`, and the position of the one after it.
    pub(super) fn with_next(&mut self, index: usize) -> Option<(&mut MessageStart, u64)> {
        let next = self.starts.get(index + 1)?.position;
        Some((self.starts.get_mut(index)?, next))
    }
}
