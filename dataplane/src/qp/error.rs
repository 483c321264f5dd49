//! Why a stream failed, in the words of the layer that noticed.

use crate::ddp::DdpError;
use crate::mpa::MpaError;
use crate::rdmap::{RdmapError, layer};
use crate::tcp::CloseReason;

/// The error that ended a stream.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// TCP lost the connection, or it closed in the middle of an FPDU (MPA error 1, RFC 5044 §8).
    #[error("TCP: {0}")]
    Tcp(CloseReason),
    /// The Initiator has sent no FPDU in the time it had for the first one after MPA's startup (RFC 5044
    /// §7.1.2 rule 10).
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
    /// A message of the peer dequeued a buffer of a shared receive queue, and its completion had no place.
    /// The queue pair fails, those beside it do not.
    // Requirements: RDMAP-8.1.1-05
    #[error(
        "the completion queue has no place for a message from the shared receive queue: make it larger, or \
        poll more often"
    )]
    CompletionQueueOverflow,
    /// The peer sent a Terminate Message.
    #[error("the peer terminated the stream: {}", said(*layer, *error_type, *code))]
    Terminated {
        /// 0 RDMAP, 1 DDP, 2 MPA.
        layer: u8,
        /// The layer's error type.
        error_type: u8,
        /// The error code.
        code: u8,
    },
}

/// What a Terminate says, in the words of the layer it names, and its three numbers.
// Requirements: MPAv2-8-01
fn said(layer: u8, error_type: u8, code: u8) -> String {
    let words = match layer {
        layer::RDMAP => RdmapError::from_number(error_type, code).map(|error| format!("RDMAP: {error}")),
        layer::DDP => DdpError::from_number(error_type, code).map(|error| format!("DDP: {error}")),
        layer::LLP if error_type == 0 => MpaError::from_code(code).map(|error| format!("MPA: {error}")),
        _ => None,
    };
    let words = words.unwrap_or_else(|| "an error of no known number".into());
    format!("{words} (layer {layer}, error type {error_type}, code {code:#04x})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every error of MPA has its words, and those of the other layers theirs.
    // Requirements: MPAv2-8-01
    #[test]
    fn terminates_are_put_in_words() {
        let words = |layer, error_type, code| StreamError::Terminated { layer, error_type, code }.to_string();
        for (code, expected) in [
            (1, "MPA: TCP connection closed, terminated or lost"),
            (2, "MPA: CRC mismatch"),
            (3, "MPA: Marker and ULPDU_Length disagree"),
            (4, "MPA: invalid startup frame"),
            (5, "MPA: local catastrophic error"),
            (6, "MPA: insufficient IRD resources"),
            (7, "MPA: no matching RTR option"),
            (8, "an error of no known number"),
        ] {
            let expected =
                format!("the peer terminated the stream: {expected} (layer 2, error type 0, code 0x0{code})");
            assert_eq!(words(2, 0, code), expected);
        }
        assert!(
            words(1, 2, 2)
                .contains("DDP: invalid MSN: no buffer available (layer 1, error type 2, code 0x02)")
        );
        assert!(words(0, 1, 2).contains("RDMAP: access rights violation"));
        for (layer, error_type, code) in [(2, 1, 1), (1, 4, 0), (0, 3, 0), (9, 0, 0)] {
            assert!(words(layer, error_type, code).contains("no known number"));
        }
    }
}
