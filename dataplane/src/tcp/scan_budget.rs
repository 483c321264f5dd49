//! A bound on the work that selective acknowledgements cause: each scans the send queue, which a peer with
//! tiny segments and many holes can make long.

use crate::limits;

/// How many segments of the send queues of a core may still be scanned in this poll. If none are left, the
/// blocks of an acknowledgement are ignored; the next acknowledgement repeats them.
#[derive(Debug)]
pub struct ScanBudget {
    left: u32,
    refused: u64,
}

impl ScanBudget {
    /// The budget of the first poll.
    pub const fn new() -> Self {
        Self { left: limits::SEGMENTS_SEARCHED_PER_POLL, refused: 0 }
    }

    /// Renews the budget: a poll begins.
    pub const fn begin_poll(&mut self) {
        self.left = limits::SEGMENTS_SEARCHED_PER_POLL;
    }

    /// Scans that were refused.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns true if another scan may begin, and counts it as refused if not. A scan that has begun always
    /// finishes.
    pub(super) const fn begin_scan(&mut self) -> bool {
        if self.left == 0 {
            self.refused += 1;
        }
        self.left > 0
    }

    /// Counts a segment that is scanned.
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
