//! Why a stream failed, in the words of the layer that noticed.

use crate::ddp::DdpError;
use crate::mpa::MpaError;
use crate::rdmap::RdmapError;
use crate::tcp::CloseReason;

/// The error that ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// TCP lost the connection, or it closed in the middle of an FPDU (MPA error 1, RFC 5044 §8).
    #[error("TCP: {0}")]
    Tcp(CloseReason),
    /// The Initiator has sent no FPDU in the time it had for the first one after MPA's startup (RFC 5044 §7.1.2 rule 10).
    #[error("no FPDU came in time after MPA startup: the peer has stalled, or speaks another protocol")]
    NoFpdu,
    /// MPA refused what arrived.
    #[error("MPA: {0}")]
    Mpa(MpaError),
    /// DDP refused what arrived.
    #[error("DDP: {0}")]
    Ddp(DdpError),
    /// RDMAP refused what arrived.
    #[error("RDMAP: {0}")]
    Rdmap(RdmapError),
    /// The peer sent a Terminate Message.
    #[error("the peer terminated the stream: layer {layer}, error type {error_type}, code {code:#04x}")]
    Terminated {
        /// 0 RDMAP, 1 DDP, 2 MPA.
        layer: u8,
        /// The layer's error type.
        error_type: u8,
        /// The error code.
        code: u8,
    },
}
