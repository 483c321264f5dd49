//! Events of a core for control.

use std::net::SocketAddr;

use crate::conn::{ConnectionId, Scope};
use crate::limits;
use crate::memory::{ChangeId, ChangeResult, GrantChange, InsertError, RemoveError, STag};
use crate::net::flow::FlowKey;
use crate::net::notice::Notice;
use crate::qp::error::StreamError;
use crate::qp::work::QpNumber;
use crate::statistics::Statistics;
use crate::tcp::{CloseReason, Snapshot};

/// An event of a core for control.
///
/// It is small, because a ring of them lies between two processors: a place in it is one cache line.
/// Streaming octets are in a box for that, the only memory that a core allocates for what a peer sends before
/// Full Operation. What a peer can cause is bounded: no octet is copied while half of the ring is full, and
/// an event has at most [`STREAM_EVENT_BYTES`](crate::limits::STREAM_EVENT_BYTES), so that all of them hold
/// less than 1 MiB.
#[derive(Debug)]
pub enum Event {
    /// A peer has connected to a listening port.
    Accepted {
        /// The connection.
        connection: ConnectionId,
        /// Its addresses and ports.
        flow: FlowKey,
        /// How specifically the listener that accepted it names the local address: see
        /// [`ListenAddress::of`](crate::conn::ListenAddress::of).
        scope: Scope,
        /// The ends have agreed on the TCP RDMA option.
        rdma_option: bool,
    },
    /// A connection of [`Command::Connect`](super::Command::Connect) is open.
    Connected {
        /// From the command.
        token: u64,
        /// The connection.
        connection: ConnectionId,
        /// The local address.
        local: SocketAddr,
        /// The ends have agreed on the TCP RDMA option.
        rdma_option: bool,
    },
    /// A connection of [`Command::Connect`](super::Command::Connect) could not be opened.
    ConnectFailed {
        /// From the command.
        token: u64,
        /// Why.
        error: ConnectError,
    },
    /// Full Operation has begun, in one direction at least: what the queue pair's owner posts is sent. A
    /// command that begins it causes this, unless it is refused: then the connection closes.
    Operating {
        /// The connection.
        connection: ConnectionId,
    },
    /// A copy of octets received before Full Operation.
    Stream {
        /// The connection.
        connection: ConnectionId,
        /// The octets.
        octets: Box<[u8]>,
    },
    /// The peer has acknowledged streaming octets of [`Command::Stream`](super::Command::Stream), counted in
    /// whole commands. Only where the core's configuration holds streaming octets until control consumes
    /// them, and while this end sends streaming octets: once it sends FPDUs there is nothing to make room
    /// for.
    StreamAcknowledged {
        /// The connection.
        connection: ConnectionId,
        /// How many.
        octets: u32,
    },
    /// The peer sends nothing more.
    PeerFinished {
        /// The connection.
        connection: ConnectionId,
    },
    /// The queue pair's stream has failed. The connection closes by itself; [`Event::Closed`] follows.
    StreamFailed {
        /// The connection.
        connection: ConnectionId,
        /// The queue pair.
        qp: QpNumber,
        /// Why.
        error: StreamError,
    },
    /// The connection is closed. If this follows [`Command::Start`](super::Command::Start) without
    /// [`Event::Operating`] between them, the connection was closed before the core took the command, and the
    /// queue pair may serve another.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// The answer to [`Command::EndQp`](super::Command::EndQp): what was posted is flushed.
    QpEnded(QpNumber),
    /// The queue pair is destroyed; the core accesses its buffers no more.
    QpDestroyed(QpNumber),
    /// The answer to [`Command::Register`](super::Command::Register) and
    /// [`Command::AllocateWindow`](super::Command::AllocateWindow): work posted from now on finds the memory.
    Registered {
        /// Its name.
        stag: STag,
        /// `Ok` if it is there now.
        result: Result<(), InsertError>,
    },
    /// The answer to [`Command::Deregister`](super::Command::Deregister) and
    /// [`Command::Remove`](super::Command::Remove).
    Deregistered {
        /// Its first name.
        stag: STag,
        /// `Ok` if it is unreachable now; else it stays as it was.
        result: Result<(), RemoveError>,
    },
    /// The answer to [`Command::Probe`](super::Command::Probe).
    Probed {
        /// The first name of the memory.
        stag: STag,
        /// From the command.
        attempt: u32,
        /// `Ok` if nothing uses it.
        result: Result<(), RemoveError>,
    },
    /// A work request has changed what memory grants, and other cores that have it are to
    /// [follow](super::Command::Follow). Answered by [`Command::EndChange`](super::Command::EndChange).
    GrantChanged(GrantChange),
    /// The answer to [`Command::Follow`](super::Command::Follow).
    Followed {
        /// Names the change.
        id: ChangeId,
        /// `Ok` if the memory grants at this core now what it is to grant.
        result: ChangeResult,
    },
    /// Something about the link that only people can mend.
    Notice(Notice),
    /// The answer to [`Command::ReportStatistics`](super::Command::ReportStatistics).
    Statistics(Box<Statistics>),
    /// The answer to [`Command::ReportConnection`](super::Command::ReportConnection): its TCP at that moment,
    /// if there is such a connection. Answers come in the order of the commands.
    ConnectionReport(Option<Box<Snapshot>>),
}

// A place in the ring has a number of eight octets beside it.
const _: () = {
    assert!(size_of::<Event>() + size_of::<u64>() <= 64);
    assert!(limits::EVENTS / 2 * limits::STREAM_EVENT_BYTES < 1 << 20);
};

/// Why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The peer refused, reset, or did not answer.
    #[error("{0}")]
    Closed(CloseReason),
    /// The core serves as many connections as it can.
    #[error("no room for another connection")]
    NoRoom,
    /// The peer did not answer, and a router or the peer's host says that it cannot be reached (ICMP).
    #[error("the network says that the peer cannot be reached")]
    Unreachable,
    /// Every local port is in use towards this peer, or the requested one is.
    #[error("no local port is left for another connection to this peer")]
    NoPort,
    /// Segments from this peer to the requested local port go to another core of the device.
    #[error(
        "connections from this peer to this local port are those of core {owner}: ask it, or for no port"
    )]
    OtherCore {
        /// The core.
        owner: u8,
    },
    /// The requested local address is none of the core's.
    #[error("the local address is none of the device's")]
    NoAddress,
    /// The peer's address is neither on a local network nor reachable by a gateway.
    #[error("no route to the peer")]
    NoRoute,
}
