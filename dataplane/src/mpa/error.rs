//! The errors of MPA and their codes (RFC 5044 §8, RFC 6581 §8).

use thiserror::Error;

/// What ends a half connection, by its code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[repr(u8)]
pub enum MpaError {
    /// The TCP connection is closed, terminated or lost.
    // MPA-8-01
    #[error("TCP connection closed, terminated or lost")]
    TcpClosed = 1,
    /// The CRC of an FPDU is not that of its octets.
    // MPA-8-02
    #[error("CRC mismatch")]
    Crc = 2,
    /// The CRC is right, but a Marker and the ULPDU_Length disagree on where an FPDU begins; also a length that no sender
    /// may use (ambiguity A-05).
    // MPA-8-03
    #[error("Marker and ULPDU_Length disagree")]
    Marker = 3,
    /// A Request or Reply Frame is not valid; TCP is closed at once.
    // MPA-8-06, MPA-8-07
    #[error("invalid startup frame")]
    StartupFrame = 4,
    /// A failure of this end.
    // MPAv2-8-01
    #[error("local catastrophic error")]
    LocalCatastrophic = 5,
    /// The peer takes fewer RDMA Read Requests than this end must send.
    #[error("insufficient IRD resources")]
    InsufficientIrd = 6,
    /// No kind of ready-to-receive indication suits both ends.
    #[error("no matching RTR option")]
    NoMatchingRtr = 7,
}

impl MpaError {
    /// The code, which is also that of a Terminate message of the lower layer.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MPA-8-01, MPA-8-02, MPA-8-03, MPA-8-06, MPAv2-8-01
    #[test]
    fn codes_are_those_of_the_documents() {
        use MpaError::{
            Crc, InsufficientIrd, LocalCatastrophic, Marker, NoMatchingRtr, StartupFrame, TcpClosed,
        };
        let errors =
            [TcpClosed, Crc, Marker, StartupFrame, LocalCatastrophic, InsufficientIrd, NoMatchingRtr];
        assert_eq!(errors.map(MpaError::code), [1, 2, 3, 4, 5, 6, 7]);
    }
}
