//! How long a connection has held frames without progress.

use crate::limits;
use crate::wire::tcp::SeqNumber;

/// How long a connection has held frames without consuming an octet: the number of times in a row that it was
/// observed without progress. Connections are observed while frames are short.
#[derive(Clone, Copy, Debug)]
pub struct StallTracker {
    unread: SeqNumber,
    observations: u8,
}

impl StallTracker {
    /// Returns a tracker without observations.
    pub const fn new() -> Self {
        Self { unread: SeqNumber(0), observations: 0 }
    }

    /// Observes a connection that holds `frames` frames and has consumed all octets before `unread`.
    pub fn observe(&mut self, unread: SeqNumber, frames: usize) {
        let stands = frames > 0 && unread == self.unread;
        self.observations = if stands { self.observations.saturating_add(1) } else { 0 };
        self.unread = unread;
    }

    /// Returns true if the connection has made no progress for long.
    pub const fn is_stalled(self) -> bool {
        self.observations >= limits::HELD_LOOKS_WITHOUT_PROGRESS
    }
}
