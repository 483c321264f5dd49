//! The errors of MPA and their codes (RFC 5044 §8, RFC 6581 §8).

use thiserror::Error;

/// What ends a half connection, by its code: RFC 5044 §8 has 1 to 4, RFC 6581 §8 adds 5 to 7.
///
/// | Code | When here | Reported | To the peer | TCP |
/// |---|---|---|---|---|
/// | 1 | FIN or RST inside an FPDU, or the connection is lost | yes | a Terminate after FIN, if we may send | ends |
/// | 2 | a CRC is wrong, again, or where TCP cannot bring the FPDU again | yes | Terminate 2/0/2 | then FIN |
/// | 3 | Marker and length disagree; the length is none, by its CRC or again | yes | Terminate 2/0/3 | then FIN |
/// | 4 | a startup frame is not valid, or not in time | yes | nothing; revision 0 gets a Reply | FIN at once |
/// | 5 | the Initiator cannot serve a connection that was accepted | yes | Terminate 2/0/5 | then FIN |
/// | 6 | Initiator: the Reply's ORD is above our IRD | yes | Terminate 2/0/6 | then FIN |
/// | 6 | Responder: the Request's IRD is below the ORD needed | yes | a rejecting Reply with that ORD (A-07) | then FIN |
/// | 7 | Initiator: no indication that both have, or A not echoed | yes | Terminate 2/0/7 | then FIN |
///
/// After any of them nothing more is delivered, and nothing but the Terminate is sent. A Responder that has
/// received no FPDU sends none (ambiguity A-07). draft-culley-iwarp-mpa-00 knows 1 to 3 (C00-9-01).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Error)]
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
    /// The CRC is right, but a Marker and the ULPDU_Length disagree on where an FPDU begins; also a length
    /// that no sender may use (ambiguity A-05).
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
    /// The peer accepts fewer RDMA Read Requests than this end must send.
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

    /// The error that a Terminate of the lower layer names by `code`, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        let errors = [
            Self::TcpClosed,
            Self::Crc,
            Self::Marker,
            Self::StartupFrame,
            Self::LocalCatastrophic,
            Self::InsufficientIrd,
            Self::NoMatchingRtr,
        ];
        errors.into_iter().find(|error| error.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirements: MPA-8-01, MPA-8-02, MPA-8-03, MPA-8-06, MPAv2-8-01
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
