//! Parameters, results and errors of MPA startup (RFC 5044 §7.1, RFC 6581).

use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::wire::mpa::{EnhancedData, StartupError, StartupFrame};

pub use warpline_dataplane::mpa::enhanced::{ReadDepths, RtrKinds, Terms};

/// Most bytes of Private Data in a startup frame.
// Requirements: MPA-7.1.1-18
pub const PRIVATE_DATA_MAX_BYTES: usize = StartupFrame::PRIVATE_DATA_MAX;

/// Most of them that are the ULP's when the frame is enhanced.
// Requirements: MPAv2-9-02, A-19
pub const ENHANCED_PRIVATE_DATA_MAX_BYTES: usize = PRIVATE_DATA_MAX_BYTES - EnhancedData::LEN;

/// More Private Data than a startup frame holds.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{len} bytes of Private Data: this startup frame holds at most {max_len}, send the rest after \
    the connection is up"
)]
pub struct PrivateDataTooLong {
    /// Bytes given.
    pub len: usize,
    /// Bytes there is room for: 512, or 508 in an enhanced frame.
    pub max_len: usize,
}

/// Why a Request cannot be accepted as the application wants it.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unacceptable {
    /// Its Private Data has no room.
    #[error(transparent)]
    PrivateData(#[from] PrivateDataTooLong),
    /// The peer takes fewer RDMA Reads at a time than the application needs.
    // Requirements: MPAv2-9.1-05
    #[error("the peer takes {offered} RDMA Reads at a time, fewer than the {needed} needed")]
    InsufficientIrd {
        /// The peer's IRD.
        offered: u16,
        /// The ORD that the application needs.
        needed: u16,
    },
}

/// Why MPA startup failed at this end: MPA error 4 (RFC 5044 §8). The TCP connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartupFault {
    /// The received octets are not the startup frame that belongs here, or contradict themselves.
    #[error("{0}")]
    Frame(#[from] StartupError),
    /// Octets after a frame that nothing may follow yet: the length of its Private Data is wrong, or the peer
    /// does not wait for its turn.
    // Requirements: A-03
    #[error("bytes follow the startup frame that its PD_Length does not count")]
    ExtraBytes,
    /// An unenhanced Reply that accepts an enhanced Request: the peer may have given the enhanced data to its
    /// ULP.
    // Requirements: MPAv2-10-01
    #[error(
        "the peer accepted an enhanced Request (RFC 6581) by an unenhanced Reply: connect with MPA revision 1"
    )]
    NotEnhanced,
    /// An enhanced Reply to a Request that was not.
    // Requirements: MPAv2-10-02
    #[error("the peer answered an unenhanced Request by an enhanced Reply (RFC 6581)")]
    Enhanced,
    /// The peer closed before its startup frame was complete.
    #[error("the peer closed the connection during MPA startup")]
    Closed,
    /// The peer's startup frame did not come in time (RFC 5044 §7.1.2 rule 10).
    #[error("no complete startup frame in time: the peer may not speak MPA, or waits for one itself")]
    TimedOut,
}

impl StartupFault {
    /// Returns MPA's error for all of these.
    // Requirements: MPA-8-06
    pub const fn mpa_error(self) -> MpaError {
        MpaError::StartupFrame
    }

    /// Returns a word that names the fault, for programs.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Frame(StartupError::WrongKey | StartupError::OtherInitiator) => "key",
            Self::Frame(StartupError::Revision(_)) => "revision",
            Self::Frame(StartupError::PrivateDataLength) => "private-data-length",
            Self::ExtraBytes => "private-data-extra",
            Self::NotEnhanced => "not-enhanced",
            Self::Enhanced => "enhanced",
            Self::Closed => "closed",
            Self::TimedOut => "timeout",
        }
    }
}

/// What the peer's frame said of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Peer {
    /// The revision of MPA in its frame.
    // Requirements: MPA-7.1.1-15
    pub revision: u8,
    /// Its IRD and ORD as they came, if its frame was enhanced.
    // Requirements: MPAv2-9.1-01, MPAv2-9.1-08
    pub depths: Option<ReadDepths>,
}

/// An application's terms for RDMA Reads when it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadsWanted {
    /// The most either way, if not as the listener is set up.
    pub depths: Option<ReadDepths>,
    /// The least ORD that will do; a Request that offers less is rejected, and the Reply states this ORD.
    // Requirements: MPAv2-9.1-04
    pub ord_needed: u16,
}
