//! The states of a queue pair.

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// Not connected yet; receives may be posted.
    Idle = 0,
    /// Connected, in Full Operation.
    ReadyToSend = 1,
    /// This end has closed, or the peer has and this end follows. Sends posted before are still carried out,
    /// and the peer may still send into receives.
    Closing = 2,
    /// The stream has failed on this end or the peer's: a Terminate was sent or has come, and the
    /// connection closes. Requests posted now are flushed.
    Terminate = 3,
    /// The stream is over, or the queue pair is to have none. All requests are flushed, also those that are
    /// posted from now on, until the queue pair is destroyed or no thread polls its core any more: from then
    /// on requests are refused.
    Error = 4,
}

impl QpState {
    pub(super) const fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Idle,
            1 => Self::ReadyToSend,
            2 => Self::Closing,
            3 => Self::Terminate,
            _ => Self::Error,
        }
    }

    /// Whether the stream is over, or is being closed after a failure.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Terminate | Self::Error)
    }
}
