//! The status codes of verbs for [`Status`] and stream errors, for programs that use verbs.

use super::error::StreamError;
use super::work::Status;
use crate::ddp::DdpError;
use crate::mpa::MpaError;
use crate::rdmap::{RdmapError, layer};
use crate::tcp::CloseReason;

/// The status of a work completion. The numbers are those of `enum ibv_wc_status`; those that have no meaning
/// on iWARP are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum WcStatus {
    /// Success.
    Success = 0,
    /// The local buffers are too short or too long for the message.
    LocalLengthError = 1,
    /// The queue pair could not do what was asked of it.
    LocalQpOperation = 2,
    /// A local buffer is not registered, or not for this.
    LocalProtection = 4,
    /// The queue pair was in Error before this request's turn came.
    WorkRequestFlushed = 5,
    /// A memory window could not be bound.
    MemoryWindowBind = 6,
    /// The peer's response is invalid.
    BadResponse = 7,
    /// The peer tried to access memory of this end that was not granted.
    LocalAccess = 8,
    /// The peer has found a request of this end invalid.
    RemoteInvalidRequest = 9,
    /// The peer has not granted the access to its memory.
    RemoteAccess = 10,
    /// The peer could not carry out the operation.
    RemoteOperation = 11,
    /// TCP gave up retransmitting.
    RetryExceeded = 12,
    /// The peer had no receive posted for the message.
    RnrRetryExceeded = 13,
    /// The peer has ended the connection.
    RemoteAborted = 16,
    /// The stream cannot go on.
    Fatal = 19,
    /// An expected message did not come in time.
    ResponseTimeout = 20,
    /// Anything else.
    General = 21,
}

impl Status {
    /// The status of verbs for it.
    pub fn wc_status(self) -> WcStatus {
        match self {
            Self::Success => WcStatus::Success,
            Self::LocalLength => WcStatus::LocalLengthError,
            Self::LocalOperation => WcStatus::LocalQpOperation,
            Self::LocalProtection => WcStatus::LocalProtection,
            Self::Bind => WcStatus::MemoryWindowBind,
            Self::Flushed => WcStatus::WorkRequestFlushed,
            Self::Failed(error) => of_stream(error),
        }
    }
}

fn of_stream(error: StreamError) -> WcStatus {
    match error {
        StreamError::Tcp(reason) => match reason {
            CloseReason::Finished | CloseReason::Aborted => WcStatus::WorkRequestFlushed,
            CloseReason::Refused | CloseReason::Reset => WcStatus::RemoteAborted,
            CloseReason::TimedOut => WcStatus::RetryExceeded,
        },
        StreamError::NoFpdu => WcStatus::ResponseTimeout,
        StreamError::CompletionQueueOverflow => WcStatus::LocalQpOperation,
        StreamError::Mpa(error) => match error {
            MpaError::TcpClosed => WcStatus::RemoteAborted,
            MpaError::LocalCatastrophic => WcStatus::Fatal,
            MpaError::Crc
            | MpaError::Marker
            | MpaError::StartupFrame
            | MpaError::InsufficientIrd
            | MpaError::NoMatchingRtr => WcStatus::General,
        },
        StreamError::Ddp(error) => of_local_ddp(error),
        StreamError::Rdmap(error) => of_local_rdmap(error),
        StreamError::Terminated { layer, error_type, code } => of_terminate(layer, error_type, code),
    }
}

/// DDP of this end refused a segment of the peer.
const fn of_local_ddp(error: DdpError) -> WcStatus {
    match error {
        DdpError::InvalidStag
        | DdpError::BaseOrBounds
        | DdpError::NotAssociated
        | DdpError::ToWrap
        | DdpError::AccessRights => WcStatus::LocalAccess,
        // The message is longer than the buffer that was posted for it.
        DdpError::TooLong => WcStatus::LocalLengthError,
        DdpError::NoBuffer => WcStatus::LocalQpOperation,
        DdpError::TaggedVersion
        | DdpError::InvalidQueue
        | DdpError::MsnRange
        | DdpError::InvalidOffset
        | DdpError::UntaggedVersion => WcStatus::BadResponse,
        DdpError::LocalCatastrophic => WcStatus::Fatal,
    }
}

/// RDMAP of this end refused a message of the peer.
const fn of_local_rdmap(error: RdmapError) -> WcStatus {
    match error {
        RdmapError::InvalidStag
        | RdmapError::BaseOrBounds
        | RdmapError::AccessRights
        | RdmapError::NotAssociated
        | RdmapError::ToWrap
        | RdmapError::CannotInvalidate
        | RdmapError::CannotInvalidateOperation
        | RdmapError::UnspecifiedProtection => WcStatus::LocalAccess,
        RdmapError::InvalidVersion | RdmapError::UnexpectedOpcode | RdmapError::UnspecifiedOperation => {
            WcStatus::BadResponse
        }
        RdmapError::LocalCatastrophic | RdmapError::CatastrophicStream | RdmapError::CatastrophicGlobal => {
            WcStatus::Fatal
        }
    }
}

/// The peer refused a message of this end with a Terminate.
fn of_terminate(layer: u8, error_type: u8, code: u8) -> WcStatus {
    match layer {
        layer::RDMAP => RdmapError::from_number(error_type, code).map_or(WcStatus::General, of_remote_rdmap),
        layer::DDP => DdpError::from_number(error_type, code).map_or(WcStatus::General, of_remote_ddp),
        layer::LLP if error_type == 0 => match MpaError::from_code(code) {
            Some(MpaError::LocalCatastrophic) => WcStatus::RemoteOperation,
            Some(MpaError::InsufficientIrd | MpaError::NoMatchingRtr) => WcStatus::RemoteInvalidRequest,
            Some(MpaError::TcpClosed | MpaError::Crc | MpaError::Marker | MpaError::StartupFrame) | None => {
                WcStatus::General
            }
        },
        _ => WcStatus::General,
    }
}

const fn of_remote_rdmap(error: RdmapError) -> WcStatus {
    match error {
        RdmapError::InvalidStag
        | RdmapError::BaseOrBounds
        | RdmapError::AccessRights
        | RdmapError::NotAssociated
        | RdmapError::ToWrap
        | RdmapError::CannotInvalidate
        | RdmapError::CannotInvalidateOperation
        | RdmapError::UnspecifiedProtection => WcStatus::RemoteAccess,
        RdmapError::InvalidVersion | RdmapError::UnexpectedOpcode => WcStatus::RemoteInvalidRequest,
        RdmapError::LocalCatastrophic
        | RdmapError::CatastrophicStream
        | RdmapError::CatastrophicGlobal
        | RdmapError::UnspecifiedOperation => WcStatus::RemoteOperation,
    }
}

const fn of_remote_ddp(error: DdpError) -> WcStatus {
    match error {
        DdpError::InvalidStag
        | DdpError::BaseOrBounds
        | DdpError::NotAssociated
        | DdpError::ToWrap
        | DdpError::AccessRights => WcStatus::RemoteAccess,
        DdpError::NoBuffer => WcStatus::RnrRetryExceeded,
        DdpError::TaggedVersion
        | DdpError::InvalidQueue
        | DdpError::MsnRange
        | DdpError::InvalidOffset
        | DdpError::TooLong
        | DdpError::UntaggedVersion => WcStatus::RemoteInvalidRequest,
        DdpError::LocalCatastrophic => WcStatus::RemoteOperation,
    }
}

/// The class of a stream failure, as the asynchronous events of verbs distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// An access to memory that was not granted.
    Access,
    /// An invalid request.
    Request,
    /// A failure of this end, of the peer or of the network.
    Fatal,
}

impl Blame {
    /// The class of `error`.
    pub fn of(error: StreamError) -> Self {
        if let StreamError::Tcp(_) = error {
            return Self::Fatal;
        }
        match of_stream(error) {
            WcStatus::LocalAccess | WcStatus::RemoteAccess => Self::Access,
            WcStatus::LocalLengthError
            | WcStatus::BadResponse
            | WcStatus::RemoteInvalidRequest
            | WcStatus::RnrRetryExceeded => Self::Request,
            // Of what the peer sent: it had no buffer here.
            WcStatus::LocalQpOperation if error != StreamError::CompletionQueueOverflow => Self::Request,
            _ => Self::Fatal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [WcStatus; 17] = [
        WcStatus::Success,
        WcStatus::LocalLengthError,
        WcStatus::LocalQpOperation,
        WcStatus::LocalProtection,
        WcStatus::WorkRequestFlushed,
        WcStatus::MemoryWindowBind,
        WcStatus::BadResponse,
        WcStatus::LocalAccess,
        WcStatus::RemoteInvalidRequest,
        WcStatus::RemoteAccess,
        WcStatus::RemoteOperation,
        WcStatus::RetryExceeded,
        WcStatus::RnrRetryExceeded,
        WcStatus::RemoteAborted,
        WcStatus::Fatal,
        WcStatus::ResponseTimeout,
        WcStatus::General,
    ];

    /// The numbers of libibverbs' `enum ibv_wc_status`, from `IBV_WC_SUCCESS` on.
    #[test]
    fn numbers_are_those_of_verbs() {
        assert_eq!(WORDS.map(|word| word as u8), [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 19, 20, 21]);
    }

    fn terminated(layer: u8, error_type: u8, code: u8) -> WcStatus {
        Status::Failed(StreamError::Terminated { layer, error_type, code }).wc_status()
    }

    /// Every possible Terminate maps to the end at fault. The tables are those of RFC 5040 §4.8 and RFC 5041
    /// §7.2, written a second time.
    // Requirements: RDMAP-6.2.1-02
    #[test]
    fn every_terminate_has_its_word() {
        for layer in 0..=u8::MAX {
            for error_type in 0..=15 {
                for code in 0..=u8::MAX {
                    let expected = match (layer, error_type, code) {
                        (0, 1, 0x00..=0x04 | 0x09 | 0xff) | (0, 2, 0x09) | (1, 1, 0x00..=0x03) => {
                            WcStatus::RemoteAccess
                        }
                        (1, 2, 0x02) => WcStatus::RnrRetryExceeded,
                        (0, 2, 0x05 | 0x06) | (1, 1, 0x04) | (1, 2, 0x01 | 0x03..=0x06) | (2, 0, 6 | 7) => {
                            WcStatus::RemoteInvalidRequest
                        }
                        (0 | 1, 0, _) | (0, 2, 0x07 | 0x08 | 0xff) | (2, 0, 5) => WcStatus::RemoteOperation,
                        _ => WcStatus::General,
                    };
                    assert_eq!(terminated(layer, error_type, code), expected, "{layer}/{error_type}/{code}");
                }
            }
        }
    }

    /// An error found by this end never maps to a refusal by the peer, and an error found by the peer never
    /// to one found here.
    #[test]
    fn errors_found_here_are_local() {
        let numbers = |from: fn(u8, u8) -> Option<StreamError>| {
            (0..3).flat_map(move |error_type| (0..=u8::MAX).filter_map(move |code| from(error_type, code)))
        };
        let ddp = numbers(|error_type, code| DdpError::from_number(error_type, code).map(StreamError::Ddp));
        let rdmap =
            numbers(|error_type, code| RdmapError::from_number(error_type, code).map(StreamError::Rdmap));
        let mut seen = 0;
        for error in ddp.chain(rdmap) {
            let word = Status::Failed(error).wc_status();
            let local = [
                WcStatus::LocalAccess,
                WcStatus::LocalLengthError,
                WcStatus::LocalQpOperation,
                WcStatus::BadResponse,
                WcStatus::Fatal,
            ];
            assert!(local.contains(&word), "{error}: {word:?}");
            seen += 1;
        }
        assert!(seen > 26, "every error was looked at");
        let word = |error| Status::Failed(error).wc_status();
        assert_eq!(word(StreamError::Ddp(DdpError::TooLong)), WcStatus::LocalLengthError);
        assert_eq!(word(StreamError::Ddp(DdpError::BaseOrBounds)), WcStatus::LocalAccess);
        assert_eq!(word(StreamError::Rdmap(RdmapError::AccessRights)), WcStatus::LocalAccess);
        assert_eq!(word(StreamError::Rdmap(RdmapError::UnexpectedOpcode)), WcStatus::BadResponse);
        assert_eq!(word(StreamError::Rdmap(RdmapError::CatastrophicStream)), WcStatus::Fatal);
    }

    #[test]
    fn what_is_no_error_of_a_message_has_its_word_too() {
        let word = |error| Status::Failed(error).wc_status();
        assert_eq!(Status::Success.wc_status(), WcStatus::Success);
        assert_eq!(Status::LocalLength.wc_status(), WcStatus::LocalLengthError);
        assert_eq!(Status::LocalOperation.wc_status(), WcStatus::LocalQpOperation);
        assert_eq!(Status::LocalProtection.wc_status(), WcStatus::LocalProtection);
        assert_eq!(Status::Flushed.wc_status(), WcStatus::WorkRequestFlushed);
        assert_eq!(word(StreamError::Tcp(CloseReason::TimedOut)), WcStatus::RetryExceeded);
        assert_eq!(word(StreamError::Tcp(CloseReason::Reset)), WcStatus::RemoteAborted);
        assert_eq!(word(StreamError::Tcp(CloseReason::Aborted)), WcStatus::WorkRequestFlushed);
        assert_eq!(word(StreamError::NoFpdu), WcStatus::ResponseTimeout);
        assert_eq!(word(StreamError::CompletionQueueOverflow), WcStatus::LocalQpOperation);
        for code in 1..=7 {
            let expected = match code {
                1 => WcStatus::RemoteAborted,
                5 => WcStatus::Fatal,
                _ => WcStatus::General,
            };
            assert_eq!(
                word(StreamError::Mpa(MpaError::from_code(code).unwrap())),
                expected,
                "MPA error {code}"
            );
        }
    }

    #[test]
    fn blame_is_sorted_as_verbs_sorts_events() {
        let terminated = |layer, error_type, code| StreamError::Terminated { layer, error_type, code };
        for (error, blame) in [
            (StreamError::Ddp(DdpError::BaseOrBounds), Blame::Access),
            (StreamError::Rdmap(RdmapError::AccessRights), Blame::Access),
            (terminated(1, 1, 1), Blame::Access),
            (StreamError::Ddp(DdpError::NoBuffer), Blame::Request),
            (StreamError::Ddp(DdpError::TooLong), Blame::Request),
            (StreamError::Rdmap(RdmapError::UnexpectedOpcode), Blame::Request),
            (terminated(1, 2, 2), Blame::Request),
            (terminated(0, 2, 6), Blame::Request),
            (terminated(0, 0, 0), Blame::Fatal),
            (StreamError::Tcp(CloseReason::Reset), Blame::Fatal),
            (StreamError::Mpa(MpaError::Crc), Blame::Fatal),
            (StreamError::CompletionQueueOverflow, Blame::Fatal),
        ] {
            assert_eq!(Blame::of(error), blame, "{error}");
        }
    }
}
