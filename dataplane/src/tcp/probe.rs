//! The state of the probes that a connection sends to a silent peer.

use crate::limits;

/// The probes of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeState {
    /// Zero-window probes in a row: each doubles the interval.
    pub(super) persist_backoff: u8,
    /// Zero-window probes in a row without any acknowledgement.
    pub(super) unanswered: u8,
    /// Keepalive probes in a row.
    pub(super) keepalives: u8,
    /// A probe of either kind is to be sent now.
    pub(super) owed: bool,
}

impl ProbeState {
    pub(super) const fn new() -> Self {
        Self { persist_backoff: 0, unanswered: 0, keepalives: 0, owed: false }
    }

    /// The peer has acknowledged something: it answers.
    pub(super) const fn on_ack(&mut self) {
        self.unanswered = 0;
    }

    /// The peer's window has grown.
    pub(super) const fn on_window_grown(&mut self) {
        self.persist_backoff = 0;
    }

    /// Whether a small window has stayed small for so many probes that it is to be used as it is.
    pub(super) const fn window_stays_small(self) -> bool {
        self.persist_backoff >= limits::SMALL_WINDOW_PROBES
    }
}
