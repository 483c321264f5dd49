//! The rare conditions of a connection as one word of bits: zero means that the straight steps do for a
//! segment in, and when it is served.
//!
//! A bit is set where its condition begins. It may stay after the condition has ended, until the connection
//! is reviewed: the steps that look at rare conditions at all end with a review, which computes the word
//! anew. Straight steps begin no condition but by a function that sets its bit. So a word of zero needs
//! no further question, and a bit too many costs one look. Debug builds compute the word whenever it is
//! served, and compare.
//!
//! Example: a segment is lost. Its sender's word has [`RECOVERING`](Unusual::RECOVERING) and
//! [`LOST`](Unusual::LOST), so every step asks what is to be sent again. The acknowledgement that ends the
//! recovery is handled with all questions too, the review after it finds no condition, and the next segments
//! leave without any.

use bitflags::bitflags;

use super::timers::Timer;
use super::{Connection, State};

bitflags! {
    /// The rare conditions of a connection. Those of TCP come first; those from bit 16 on are of the user of
    /// TCP.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Unusual: u32 {
        /// TCP is in any state but ESTABLISHED: it opens, closes, or owes a RST.
        const NOT_ESTABLISHED = 1;
        /// A loss is suspected or repaired: the connection is in recovery, or duplicate acknowledgements are
        /// counted.
        const RECOVERING = 1 << 1;
        /// A segment is lost, and not sent again.
        const LOST = 1 << 2;
        /// A probe is to be sent: of the tail, of a closed window, or of a silent peer.
        const PROBE_OWED = 1 << 3;
        /// An acknowledgement with the ECN echo of before the last change of marks is to be sent.
        const ECHO_OWED = 1 << 4;
        /// The next segment of new data reports that the congestion window was reduced.
        const REDUCTION_OWED = 1 << 5;
        /// A segment is selectively acknowledged.
        const SACKED = 1 << 6;
        /// What was done about a loss could still be undone, a tail probe is outstanding, or a segment counts
        /// as lost if it does not arrive in time.
        const UNSETTLED = 1 << 7;
        /// What is to be sent [waits for a path](Connection::await_path) to the peer. This bit stands for
        /// nothing else.
        const AWAITS_PATH = 1 << 8;
        /// Octets are streaming octets, in one direction at least, or some of these wait for TCP.
        const STREAMING = 1 << 16;
        /// The stream has failed, or its connection is closed for its users.
        const FAILED = 1 << 17;
        /// The connection is to close, or to be reset at some time.
        const CLOSING = 1 << 18;
        /// No FPDU of the peer has come, and ours wait for it, or have not been followed by any.
        const SILENT_PEER = 1 << 19;
        /// A message waits for a receive.
        const AWAITS_RECEIVE = 1 << 20;
    }
}

impl Unusual {
    /// What may make a connection send other segments before new data, or no new data.
    pub const SEND: Self = Self::NOT_ESTABLISHED
        .union(Self::RECOVERING)
        .union(Self::LOST)
        .union(Self::PROBE_OWED)
        .union(Self::ECHO_OWED)
        .union(Self::REDUCTION_OWED)
        .union(Self::AWAITS_PATH)
        .union(Self::STREAMING)
        .union(Self::FAILED);

    /// What a segment in order needs more than the straight step for, whatever it carries.
    pub const RECEIVE: Self = Self::NOT_ESTABLISHED
        .union(Self::RECOVERING)
        .union(Self::LOST)
        .union(Self::SACKED)
        .union(Self::UNSETTLED)
        .union(Self::STREAMING)
        .union(Self::FAILED)
        .union(Self::AWAITS_RECEIVE);

    /// Computes the rare conditions of TCP on a connection.
    pub fn of(connection: &Connection) -> Self {
        let bit = |bit: Self, holds: bool| if holds { bit } else { Self::empty() };
        let Connection { state, recovery, ack, send, timers, probe, ecn, unusual, .. } = connection;
        bit(Self::NOT_ESTABLISHED, *state != State::Established)
            | bit(Self::RECOVERING, !recovery.is_open() || recovery.duplicate_acks > 0)
            | bit(Self::LOST, send.queue.lost_octets() > 0)
            | bit(Self::SACKED, send.queue.sacked_segments() > 0)
            | bit(Self::UNSETTLED, recovery.may_be_undone() || timers.is_set(Timer::Reorder))
            | bit(Self::PROBE_OWED, recovery.tail_probe_owed || probe.owed)
            | bit(Self::ECHO_OWED, ack.has_ce_change())
            | bit(Self::REDUCTION_OWED, ecn.owes_cwr())
            | *unusual & Self::AWAITS_PATH
    }
}
