//! The meaning of a connection's octets.

use crate::time::Instant;

use super::operating::Operating;
use super::stream_halves::StreamHalves;

/// The meaning of a connection's octets.
#[derive(Debug)]
pub enum Mode {
    /// Streaming octets, which control sends and receives.
    Streaming,
    /// FPDUs of a queue pair, in one direction at least.
    FullOperation(Operating),
    /// Octets of an application's byte stream.
    Bytes(Box<StreamHalves>),
    /// The queue pair is destroyed. Octets that arrive are dropped; those still to be sent are in
    /// [`Connection::stream`](super::Connection::stream).
    Lingering {
        /// Octets that were kept at first.
        kept_octets: usize,
    },
}

impl Mode {
    /// Returns when the connection is reset, whatever moves, because the application of its byte stream has
    /// left.
    pub(super) const fn orphan_until(&self) -> Instant {
        match self {
            Self::Bytes(stream) => stream.orphan_until,
            Self::Streaming | Self::FullOperation(_) | Self::Lingering { .. } => Instant::NEVER,
        }
    }

    /// Returns true if the application of its byte stream has left, and it is still counted.
    pub(super) fn is_orphan(&self) -> bool {
        self.orphan_until() != Instant::NEVER
    }

    /// Returns true if the connection is only open for the Terminate of a stream that has failed, or for the
    /// end of one whose queue pair is destroyed.
    pub(super) const fn has_fixed_deadline(&self) -> bool {
        match self {
            Self::Streaming | Self::Bytes(_) => false,
            Self::FullOperation(operating) => operating.failed && operating.sends,
            Self::Lingering { .. } => true,
        }
    }

    /// Returns true if what we send are streaming octets.
    pub const fn sends_stream(&self) -> bool {
        match self {
            Self::Streaming | Self::Lingering { .. } => true,
            Self::FullOperation(operating) => !operating.sends,
            Self::Bytes(_) => false,
        }
    }

    /// Returns true if what we receive are streaming octets.
    pub const fn receives_stream(&self) -> bool {
        match self {
            Self::Streaming => true,
            Self::FullOperation(operating) => !operating.receives,
            Self::Bytes(_) | Self::Lingering { .. } => false,
        }
    }

    /// Returns true if its octets are those of an application's byte stream.
    pub const fn carries_bytes(&self) -> bool {
        matches!(self, Self::Bytes(_))
    }

    /// Returns true if a message waits for a receive.
    pub const fn awaits_receive(&self) -> bool {
        match self {
            Self::FullOperation(operating) => operating.awaits_receive && !operating.failed,
            Self::Streaming | Self::Bytes(_) | Self::Lingering { .. } => false,
        }
    }
}
