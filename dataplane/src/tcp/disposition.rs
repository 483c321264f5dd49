//! The result of a segment.

use bitflags::bitflags;

use crate::wire::tcp::SeqRange;

bitflags! {
    /// What a segment or a timer has changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Changes: u8 {
        /// The handshake is complete.
        const ESTABLISHED = 1;
        /// More received octets are in order.
        const DATA = 2;
        /// Octets sent were acknowledged.
        const ACKNOWLEDGED = 4;
        /// The peer has closed, and everything it sent is in order.
        // Requirements: C00-5.1-06
        const PEER_FINISHED = 8;
        /// The connection is closed; [`Connection::close_reason`](super::Connection::close_reason) says why.
        const CLOSED = 16;
    }
}

/// Why a segment was refused, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Outside the window.
    OutsideWindow,
    /// Nothing in it is new.
    Duplicate,
    /// It acknowledges octets that were never sent.
    BadAck,
    /// A RST or SYN that may be forged (RFC 5961): answered by an acknowledgement.
    Challenged,
    /// A bound on held frames is reached.
    NoRoom,
    /// Not valid in the state of the connection.
    WrongState,
    /// Not acceptable, and not answered: the limit on answers is reached (RFC 5961 §7).
    RateLimited,
    /// Text for a user who accepts none any more: the connection is reset (RFC 9293 §3.6.1).
    AfterClose,
    /// A timestamp older than one already seen, or none although the ends have agreed on timestamps (RFC 7323
    /// §3.2, §5.3).
    OldTimestamp,
}

/// The result of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// What it has changed.
    pub changes: Changes,
    /// The first run of its octets that are kept beyond a gap.
    // Requirements: MPA-A.3-01, MPA-A.3-03
    pub beyond_gap: Option<SeqRange>,
    /// Why its payload, or all of it, was refused.
    pub refusal: Option<Refusal>,
}

impl Disposition {
    pub(super) const fn changed(changes: Changes) -> Self {
        Self { changes, beyond_gap: None, refusal: None }
    }

    pub(super) const fn refused(refusal: Refusal) -> Self {
        Self { changes: Changes::empty(), beyond_gap: None, refusal: Some(refusal) }
    }
}
