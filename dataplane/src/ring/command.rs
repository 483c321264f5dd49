//! Commands of control to a core.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::byte_stream::SharedByteStream;
use crate::conn::ConnectionId;
use crate::memory::{ChangeId, ChangeResult, Grant, GrantChange, ProtectionDomainId, STag};
use crate::qp::shared::SharedQp;
use crate::tcp::Behaviour;

use super::operation::{Direction, FullOperation};

/// What follows streaming octets.
#[derive(Clone, Debug)]
pub enum AfterStream {
    /// More streaming octets may follow.
    Stay,
    /// The next octet sent, and the next one received, belong to Full Operation (MPA-7.1-01, A-20), as after
    /// [`Start`](Command::Start).
    FullOperation {
        /// The queue pair.
        qp: Arc<SharedQp>,
        /// How it runs.
        operation: FullOperation,
    },
    /// FIN.
    Close,
}

/// A command of control to a core.
pub enum Command {
    /// Accepts connections to `port` at `address`: at most `backlog` at once whose handshake is not
    /// complete, after which SYNs are answered with cookies. While as many are open and not yet in Full
    /// Operation, SYNs are not answered; those that were half-open then may still open, so that there are
    /// never more than twice as many. One address has another place only while it holds fewer than are left
    /// free, an IPv6 network of 64 bits fewer than four times as many: beyond that it gets cookies, and then
    /// no answer.
    Listen {
        /// The local address, as in [`ListenAddress`](crate::conn::ListenAddress); `None` for all.
        address: Option<IpAddr>,
        /// The local TCP port.
        port: u16,
        /// Half-open connections, and connections not yet in Full Operation, at most.
        backlog: u32,
        /// How TCP behaves on them, if not as the core is set up.
        tcp: Option<Behaviour>,
    },
    /// Accepts no more connections where [`Listen`](Self::Listen) named the same address and port.
    Unlisten {
        /// The local address; `None` for all.
        address: Option<IpAddr>,
        /// The local TCP port.
        port: u16,
    },
    /// Opens a connection.
    Connect {
        /// The event that reports the result carries it.
        token: u64,
        /// The local address and port; the core chooses what is not given, unspecified, or 0.
        local: Option<SocketAddr>,
        /// The peer.
        remote: SocketAddr,
        /// How long the handshake may take, in nanoseconds.
        timeout_ns: u64,
        /// How TCP behaves, if not as the core is set up.
        tcp: Option<Behaviour>,
        /// What is sent as soon as the connection is open: a startup frame. Its acknowledgement is not
        /// reported, because the peer answers it.
        octets: Box<[u8]>,
    },
    /// Takes a connection out of the backlog of its listener: the application has accepted it, in streaming
    /// mode.
    Admit {
        /// The connection.
        connection: ConnectionId,
    },
    /// Sends streaming octets, MPA's startup frames among them, before Full Operation. At most
    /// [`STREAM_SEND_BYTES`](crate::limits::STREAM_SEND_BYTES) may be unacknowledged: with more the
    /// connection is reset.
    Stream {
        /// The connection.
        connection: ConnectionId,
        /// The octets. Allocated by control; the core frees them when the peer has acknowledged them.
        octets: Box<[u8]>,
        /// What follows them.
        then: AfterStream,
    },
    /// Opens the window by `octets`: control has consumed the first of those that it has a copy of
    /// ([`Event::Stream`](super::Event::Stream)). Only where the core's configuration holds streaming octets
    /// until then.
    ConsumeStream {
        /// The connection.
        connection: ConnectionId,
        /// How many.
        octets: u32,
    },
    /// Begins Full Operation: the next octet in each direction belongs to it, and the core serves the queue
    /// pair from now on. Octets that arrived after those already consumed, and
    /// [those of the startup](FullOperation::startup_octets), are FPDUs. Refused if
    /// [`Event::Closed`](super::Event::Closed) of the connection has been sent: the queue pair then stays as
    /// it was. A queue pair that serves or has served a connection is not used for another: the connection is
    /// reset.
    Start {
        /// The connection.
        connection: ConnectionId,
        /// The queue pair.
        qp: Arc<SharedQp>,
        /// How it runs.
        operation: FullOperation,
    },
    /// Begins Full Operation of draft-culley-iwarp-mpa-00, without startup frames and with Markers and CRCs:
    /// the next octet in `direction` belongs to it (C00-8.1-01 to C00-8.1-06). The other direction may
    /// follow, or stay as it is.
    StartUnnegotiated {
        /// The connection.
        connection: ConnectionId,
        /// The queue pair, the same for both directions.
        qp: Arc<SharedQp>,
        /// How it runs: [`FullOperation::unnegotiated`], the same for both directions.
        operation: FullOperation,
        /// The direction that begins.
        direction: Direction,
    },
    /// Gives the octets of a connection in streaming mode to an application: those that control has not
    /// consumed, and all after them; and sends what the application writes after what control has sent. The
    /// connection carries no FPDUs then. Refused, which the stream says as its end, if the connection is
    /// closed or no more in streaming mode.
    AttachByteStream {
        /// The connection.
        connection: ConnectionId,
        /// The stream, made with the [slot](ConnectionId::slot) of the connection.
        stream: Arc<SharedByteStream>,
    },
    /// Closes a connection: sends the FIN after everything posted.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// As [`Close`](Self::Close), and resets the connection if for a time no octet of the peer arrives in
    /// order, nor its FIN, and no octet of ours is acknowledged. A stream that fails has
    /// [its own deadline](crate::limits::TERMINATE_LINGER_NS): the earlier of both counts then, and nothing
    /// that arrives restarts it.
    Disconnect {
        /// The connection.
        connection: ConnectionId,
        /// The time, in nanoseconds; `None` without limit.
        within_ns: Option<u64>,
    },
    /// Gives up a connection that [`Connect`](Self::Connect) with this token opens: it is freed at once, and
    /// [`Event::ConnectFailed`](super::Event::ConnectFailed) follows. Ignored if the connection is open or
    /// has failed, which an event has said.
    GiveUp {
        /// The token.
        token: u64,
    },
    /// The application of a byte stream has left: it reads and writes no more. A connection with octets that
    /// it has not read is reset, and so is one on which octets arrive after this (RFC 9293 §3.6.1, RFC 2525
    /// §2.17). Any other one sends what was written, and closes as after [`Disconnect`](Self::Disconnect),
    /// but has [a deadline](crate::limits::ORPHAN_NS) besides. A connection is reset at once too if its peer,
    /// or all peers, have too many such connections.
    Abandon {
        /// The connection.
        connection: ConnectionId,
        /// The time in which something has to move, in nanoseconds.
        within_ns: u64,
    },
    /// Resets a connection.
    Abort {
        /// The connection.
        connection: ConnectionId,
    },
    /// Ends a queue pair that has no connection and is to have none: what is posted to it is flushed, now and
    /// until it is destroyed. Answered by [`Event::QpEnded`](super::Event::QpEnded).
    EndQp(Arc<SharedQp>),
    /// Destroys a queue pair, whether its stream has begun or not: its connection is reset, its work flushed.
    /// Answered by [`Event::QpDestroyed`](super::Event::QpDestroyed). A Terminate that the peer does not have
    /// yet still goes out, from octets of the connection's own.
    DestroyQp(Arc<SharedQp>),
    /// Makes memory reachable. Answered by [`Event::Registered`](super::Event::Registered).
    Register {
        /// Its name.
        stag: STag,
        /// What it grants.
        grant: Grant,
    },
    /// Allocates a window to bind later. Answered by [`Event::Registered`](super::Event::Registered).
    AllocateWindow {
        /// Its name until it is bound.
        stag: STag,
        /// Its Protection Domain.
        pd: ProtectionDomainId,
    },
    /// Makes memory or a window unreachable. Answered by [`Event::Deregistered`](super::Event::Deregistered),
    /// after which the core accesses it no more.
    Deregister {
        /// Its first name.
        stag: STag,
    },
    /// Asks whether anything uses memory or a window, as [`Deregister`](Self::Deregister) would find. Nothing
    /// changes. Answered by [`Event::Probed`](super::Event::Probed).
    Probe {
        /// Its first name.
        stag: STag,
        /// The answer carries it.
        attempt: u32,
    },
    /// Makes memory or a window unusable for anything new at once, and removes it if nothing uses it.
    /// Answered by [`Event::Deregistered`](super::Event::Deregistered): if something does, this is to be
    /// tried again.
    Remove {
        /// Its first name.
        stag: STag,
    },
    /// As [`Remove`](Self::Remove), but what uses the memory ends: the connections of queue pairs that read
    /// from it are reset, and requests that name it and have not begun fail. If windows are bound to it,
    /// nothing changes.
    Revoke {
        /// Its first name.
        stag: STag,
    },
    /// Changes what memory grants, as a work request at another core has changed it. Answered by
    /// [`Event::Followed`](super::Event::Followed).
    Follow(GrantChange),
    /// Ends the change of [`Event::GrantChanged`](super::Event::GrantChanged): its work request completes, or
    /// fails.
    EndChange {
        /// Names the change.
        id: ChangeId,
        /// `Ok` if all cores that have the memory have followed.
        result: ChangeResult,
    },
    /// Reports the counters. Answered by [`Event::Statistics`](super::Event::Statistics).
    ReportStatistics,
    /// Reports the state of a connection. Answered by
    /// [`Event::ConnectionReport`](super::Event::ConnectionReport).
    ReportConnection {
        /// The connection.
        connection: ConnectionId,
    },
}
