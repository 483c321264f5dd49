//! The states of a connection, and why it ends.

/// The states of RFC 9293 §3.3.2. LISTEN is not among them: a listener is not a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and answered.
    SynReceived,
    /// Both directions are open.
    Established,
    /// This end has closed; its FIN is not acknowledged.
    FinWait1,
    /// The FIN of this end is acknowledged; the peer has not closed.
    FinWait2,
    /// The peer has closed; this end has not.
    CloseWait,
    /// Both ends have closed; the FIN of this end is not acknowledged.
    Closing,
    /// The peer has closed first, then this end; its FIN is not acknowledged.
    LastAck,
    /// Both FINs are acknowledged; the connection waits until old segments have left the network.
    TimeWait,
    /// The connection is over.
    Closed,
}

/// Why a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// Both ends closed, and all data was acknowledged.
    #[error("closed by both ends")]
    Finished,
    /// The peer refused the connection.
    #[error("connection refused by the peer")]
    Refused,
    /// The peer reset the connection.
    #[error("connection reset by the peer")]
    Reset,
    /// The peer does not acknowledge, or has not closed its half in the time that a disconnect allows.
    #[error("connection timed out: the peer does not acknowledge, or does not close")]
    TimedOut,
    /// Aborted from this end.
    #[error("connection aborted by this end")]
    Aborted,
}
