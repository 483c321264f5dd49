//! Why an operation on the STag table was refused.

use crate::memory::claims::ClaimError;

/// Why an STag could not be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// The slot does not exist or is taken.
    #[error("the slot of the STag is taken, or there is none")]
    NoSlot,
    /// The Tagged Offset after the last octet would be 2^64 or more (ambiguity A-14): no peer could name all
    /// of the memory.
    #[error("the Tagged Offsets of the memory would wrap at 2^64")]
    Wrap,
    /// The memory is [constant](crate::memory::Region::freeze), and the rights include writing.
    #[error("the memory is constant: nobody can be given a right to write to it")]
    Constant,
}

/// Why an STag was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// There is no such STag.
    #[error("there is no such STag")]
    Unknown,
    /// Sends or Read Responses still read from the memory.
    #[error("sends still read from the memory")]
    InUse,
    /// Windows are bound to the registration.
    #[error("windows are bound to the memory")]
    WindowsBound,
}

/// Why a window was not bound, or a registration not registered anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// There is no such window or registration, or the registration that a window is for is not valid.
    #[error("there is no such window or registration, or the registration is not valid")]
    InvalidStag,
    /// It belongs to another Protection Domain, or the registration to another stream.
    #[error("the memory belongs to another Protection Domain or stream")]
    NotAssociated,
    /// It is still valid under another key, at this core or another.
    #[error("the STag is still valid under another key: invalidate it first")]
    StillValid,
    /// Another core of the device, which has the memory too, has not answered in time.
    #[error("another core of the device has not answered in time: is each of them polled?")]
    Unanswered,
    /// Sends or Read Responses still read by its last STag.
    #[error("sends still read from the memory by the STag's last name")]
    InUse,
    /// Windows are bound to the registration.
    #[error("windows are bound to the memory: invalidate them first")]
    WindowsBound,
    /// The key is the one that it had before, which a peer may still use.
    #[error("the key is the one that the STag had before: choose another")]
    KeyReused,
    /// The rights exceed those of the registration, or the kind of STag cannot grant them.
    #[error("more access than the memory was registered for")]
    Rights,
    /// The Tagged Offset after the last octet would be 2^64 or more.
    #[error("the Tagged Offsets would wrap at 2^64")]
    Wrap,
    /// The range is empty, or not inside the registration.
    #[error("the range is empty, or not inside the registration")]
    Bounds,
}

impl From<ClaimError> for BindError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Held => Self::StillValid,
            ClaimError::KeyReused => Self::KeyReused,
            ClaimError::WindowsBound => Self::WindowsBound,
            ClaimError::InUse => Self::InUse,
            ClaimError::Ended => Self::InvalidStag,
        }
    }
}

/// Why an STag was not invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidationError {
    /// There is no such STag, or it is not valid any more.
    #[error("there is no such STag, or it is not valid any more")]
    InvalidStag,
    /// It belongs to another Protection Domain, or (to a peer) to another stream.
    #[error("the STag belongs to another Protection Domain or stream")]
    NotAssociated,
    /// Other streams may use it too, so a peer may not invalidate it.
    // Requirements: RDMAP-8.1.1-02
    #[error("the STag is for several streams: their peers cannot invalidate it")]
    Shared,
    /// It grants no remote access.
    #[error("the STag grants no remote access: peers cannot invalidate it")]
    Rights,
    /// Windows are bound to the registration, and must be invalidated first.
    #[error("windows are bound to the memory: invalidate them first")]
    WindowsBound,
}
