//! A bound on the work that peers can cause by selective acknowledgements: each lets the send queue be
//! searched, and a peer of tiny segments and many holes can make it long.

use crate::limits;

/// How many segments of the send queues of a core may still be looked at in this poll. An acknowledgement
/// that finds nothing left counts as one without blocks: the next one says the same again.
#[derive(Debug)]
pub struct ScanBudget {
    left: u32,
    refused: u64,
}

impl ScanBudget {
    /// For the first poll.
    pub const fn new() -> Self {
        Self { left: limits::SEGMENTS_SEARCHED_PER_POLL, refused: 0 }
    }

    /// A poll begins.
    pub const fn begin_poll(&mut self) {
        self.left = limits::SEGMENTS_SEARCHED_PER_POLL;
    }

    /// Searches that were not made.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether there may be another search; it is counted if not. One that has begun comes to its end.
    pub(super) const fn begin_scan(&mut self) -> bool {
        if self.left == 0 {
            self.refused += 1;
        }
        self.left > 0
    }

    /// A segment is looked at.
    #[inline]
    pub(super) const fn spend_one(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

impl Default for ScanBudget {
    fn default() -> Self {
        Self::new()
    }
}
