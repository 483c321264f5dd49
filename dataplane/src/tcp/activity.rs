//! When data was last sent and acknowledged on a connection, for its timers and timeouts.

use crate::time::Instant;

/// The last moments of one connection; [`Instant::ZERO`] before the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    /// When a SYN or new data was last sent.
    pub(super) data_sent_at: Instant,
    /// When data was last acknowledged, or data or a FIN first became outstanding after that, or data began
    /// to wait for the peer's window: the user timeout counts from here. Idle time is before it.
    pub(super) last_progress: Instant,
}

impl Activity {
    pub(super) const fn new() -> Self {
        Self { data_sent_at: Instant::ZERO, last_progress: Instant::ZERO }
    }
}
