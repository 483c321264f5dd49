//! What the control thread and a core tell each other, over bounded lock-free rings.

mod events;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use crate::conn::{ConnectionId, ListenAddress};
use crate::limits;
use crate::memory::{Grant, InsertError, ProtectionDomainId, RemoveError, STag};
use crate::mpa::enhanced::{ReadDepths, ReadyToReceive};
use crate::qp::error::StreamError;
use crate::qp::shared::{Doorbells, SharedQp};
use crate::qp::work::QpNumber;
use crate::statistics::Statistics;
use crate::sync::ArrayQueue;
use crate::tcp::{Behaviour, CloseReason, Snapshot};
use crate::waker::Waker;
use crate::wire::ddp::DDP_VERSION;

pub use events::Events;

/// How a connection runs in Full Operation: DDP begins at both ends and in both directions together.
// DDP-6.1-01, RDMAP-6.1-01
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullOperation {
    /// The queue pair it serves.
    pub qp: QpNumber,
    /// Whether this end was the Initiator. The Responder sends nothing before it has an FPDU (MPA-7.1.2-15).
    pub initiator: bool,
    /// We insert Markers: the peer asked for them.
    pub markers_sent: bool,
    /// We expect Markers: we asked for them.
    pub markers_received: bool,
    /// CRCs are generated and checked: either end asked for them (MPA-7.1.1-08).
    pub crc: bool,
    /// Small FPDUs that wait at the same time share a segment (MPA-5.1-04).
    pub packing: bool,
    /// Times in a row that an FPDU with a wrong CRC is dropped in silence, for TCP to bring it again, before that is
    /// error 2 (MPA-8-08).
    pub crc_retries: u8,
    /// How long a Send that meets no receive waits for one, in nanoseconds; `None` if it is an error at once.
    /// All that comes behind it waits too, and the window closes.
    pub receive_wait_ns: Option<u64>,
    /// The version of DDP and RDMAP, in both directions: 1, or 0 with an RDMA Consortium peer (RDMAC-C.1-02).
    pub version: u8,
    /// What lets the Responder send.
    pub ready: ReadyToReceive,
    /// How many RDMA Reads may be outstanding.
    pub depths: ReadDepths,
    /// Whether an Initiator nudges a peer that stays silent after its first FPDU: one that negotiates indications (RFC 6581
    /// §9.2), which are what a nudge looks like.
    pub nudges: bool,
}

impl FullOperation {
    /// Full Operation of `qp` as it is between ends that ask for nothing: no Markers, CRCs, packing, version 1, and none
    /// of what only an enhanced setup brings.
    pub const fn new(qp: QpNumber, initiator: bool) -> Self {
        Self {
            qp,
            initiator,
            markers_sent: false,
            markers_received: false,
            crc: true,
            packing: true,
            crc_retries: limits::CRC_RETRIES,
            receive_wait_ns: None,
            version: DDP_VERSION,
            ready: ReadyToReceive::None,
            depths: ReadDepths { ird: 0, ord: 0 },
            nudges: false,
        }
    }

    /// Full Operation of `qp` as draft-culley-iwarp-mpa-00 has it, with nothing to negotiate: Markers and
    /// CRCs both ways (C00-7.1-01, C00-7.2-01), one FPDU to a segment (C00-7.3-02), either end sends when it
    /// likes (C00-8.1-06). As many Reads as the ULPs have agreed on (RFC 5040 §6.1), up to
    /// [`READ_DEPTH_MAX`](limits::READ_DEPTH_MAX).
    // Requirements: RDMAP-6.1-02
    pub fn unnegotiated(qp: QpNumber, version: u8, depths: ReadDepths) -> Self {
        let bounded = |depth: u16| depth.min(limits::READ_DEPTH_MAX);
        let depths = ReadDepths { ird: bounded(depths.ird), ord: bounded(depths.ord) };
        let base = Self { packing: false, version, depths, ..Self::new(qp, true) };
        Self { markers_sent: true, markers_received: true, ..base }
    }
}

/// The halves of a connection that change over to Full Operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What we send.
    Send,
    /// What we receive.
    Receive,
    /// Both at the same time.
    Both,
}

impl Direction {
    /// Whether it is about what we send.
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }

    /// Whether it is about what we receive.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }
}

/// What comes after streaming octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStream {
    /// More streaming octets may follow.
    Stay,
    /// The next octet sent, and the next one received, belong to Full Operation (MPA-7.1-01, A-20).
    FullOperation(FullOperation),
    /// FIN.
    Close,
}

/// From control to core.
pub enum Command {
    /// Connections to `port` at `address` are taken: at most `backlog` at once whose handshake is not
    /// complete, after which SYNs are answered by cookies. While as many are open and not yet in Full
    /// Operation, SYNs are not answered; those that were half-open then may still open, so that there are
    /// never more than twice as many. One address has another place only while it holds fewer than are left
    /// free, an IPv6 network of 64 bits fewer than four times as many: beyond that it gets cookies, and then
    /// no answer.
    Listen {
        /// The local address, as in [`ListenAddress`]; `None` for all.
        address: Option<IpAddr>,
        /// The local TCP port.
        port: u16,
        /// Half-open connections, and connections not yet in Full Operation, at most.
        backlog: u32,
        /// How TCP behaves on them, if not as the core is set up.
        tcp: Option<Behaviour>,
    },
    /// No more connections are taken where [`Listen`](Self::Listen) named the same address and port.
    Unlisten {
        /// The local address; `None` for all.
        address: Option<IpAddr>,
        /// The local TCP port.
        port: u16,
    },
    /// Open a connection.
    Connect {
        /// Comes back in the event that tells of it.
        token: u64,
        /// The local address and port; the core chooses what is not given, unspecified, or 0.
        local: Option<SocketAddr>,
        /// The peer.
        remote: SocketAddr,
        /// How long the handshake may take, in nanoseconds.
        timeout_ns: u64,
        /// How TCP behaves, if not as the core is set up.
        tcp: Option<Behaviour>,
    },
    /// A connection at a listening port no longer counts in its backlog: the application has taken it, in streaming mode.
    Admit {
        /// The connection.
        connection: ConnectionId,
    },
    /// Send streaming octets, MPA's startup frames among them, before Full Operation. At most
    /// [`STREAM_SEND_OCTETS`](limits::STREAM_SEND_OCTETS) may be unacknowledged: with more the connection is reset.
    Stream {
        /// The connection.
        connection: ConnectionId,
        /// The octets. Allocated by control; the core frees them when the peer has acknowledged them.
        octets: Box<[u8]>,
        /// What follows them.
        then: AfterStream,
    },
    /// Control has taken the first `octets` octets of those it was lent in [`Event::Stream`]. Only where the core lends
    /// them ([`super::Config::lends_stream`]).
    Take {
        /// The connection.
        connection: ConnectionId,
        /// How many.
        octets: u32,
    },
    /// The next octet in each direction belongs to Full Operation. Octets that came after those already taken
    /// are taken as FPDUs. Refused if [`Event::Closed`] of the connection has been sent: the queue pair then
    /// stays as it was. A queue pair that serves or has served a connection is not used for another: the
    /// connection is reset.
    Start {
        /// The connection.
        connection: ConnectionId,
        /// How it runs.
        operation: FullOperation,
    },
    /// Full Operation as in draft-culley-iwarp-mpa-00, without startup frames and with Markers and CRCs: the next octet in
    /// `direction` belongs to it (C00-8.1-01 to C00-8.1-06). The other direction may follow, or stay as it is.
    StartUnnegotiated {
        /// The connection.
        connection: ConnectionId,
        /// How it runs: [`FullOperation::unnegotiated`], the same for both directions.
        operation: FullOperation,
        /// What changes over.
        direction: Direction,
    },
    /// The stream fails unless an FPDU comes in time (MPA-7.1.2-26). For a Responder in Full Operation: until then it may
    /// send nothing.
    ExpectFpdu {
        /// The connection.
        connection: ConnectionId,
        /// The time it has, in nanoseconds.
        within_ns: u64,
    },
    /// FIN after everything posted.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// As [`Close`](Self::Close). The connection is reset when nothing moves for a time and it is not closed:
    /// no octet comes in order, and no acknowledgement of ours.
    Disconnect {
        /// The connection.
        connection: ConnectionId,
        /// The time, in nanoseconds; `None` without limit.
        within_ns: Option<u64>,
    },
    /// RST.
    Abort {
        /// The connection.
        connection: ConnectionId,
    },
    /// A queue pair to serve.
    CreateQp(Arc<SharedQp>),
    /// Forget a queue pair: its connection is aborted, its work flushed. Answered by [`Event::QpDestroyed`].
    /// A Terminate that the peer does not have yet still goes out, from octets of the connection's own.
    DestroyQp(QpNumber),
    /// Make memory reachable. Answered by [`Event::Registered`].
    Register {
        /// Its name.
        stag: STag,
        /// What it grants.
        grant: Grant,
    },
    /// Have a window to bind later. Answered by [`Event::Registered`].
    AllocateWindow {
        /// Its name until it is bound.
        stag: STag,
        /// Its Protection Domain.
        pd: ProtectionDomainId,
    },
    /// Make memory unreachable, or a window. Answered by [`Event::Deregistered`], after which the core touches it no more.
    Deregister {
        /// The name that it was given first.
        stag: STag,
    },
    /// Answered by [`Event::Statistics`].
    ReportStatistics,
    /// Answered by [`Event::ConnectionReport`].
    ReportConnection {
        /// The connection.
        connection: ConnectionId,
    },
}

/// Octets received before Full Operation, at most one segment's worth.
pub type StreamOctets = arrayvec::ArrayVec<u8, { limits::STREAM_EVENT_OCTETS }>;

/// From core to control.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "streaming octets are carried inline: the core allocates nothing for them"
)]
pub enum Event {
    /// A peer has connected to a listening port.
    Accepted {
        /// The connection.
        connection: ConnectionId,
        /// The listener that took it.
        listener: ListenAddress,
        /// The local address and port.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// A connection that was asked for is open.
    Connected {
        /// From the command.
        token: u64,
        /// The connection.
        connection: ConnectionId,
        /// The local address.
        local: SocketAddr,
    },
    /// A connection that was asked for could not be opened.
    ConnectFailed {
        /// From the command.
        token: u64,
        /// Why.
        error: ConnectError,
    },
    /// Octets before Full Operation.
    Stream {
        /// The connection.
        connection: ConnectionId,
        /// The octets.
        octets: StreamOctets,
    },
    /// The peer has acknowledged streaming octets of [`Command::Stream`], counted in whole commands. Only where the core
    /// lends streaming octets ([`super::Config::lends_stream`]).
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
    /// The connection is no more. If it comes after [`Command::Start`] and the queue pair is still idle, the
    /// connection was over before the command was taken, and the queue pair may serve another.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// The queue pair is forgotten; nothing touches its buffers any more.
    QpDestroyed(QpNumber),
    /// The answer to [`Command::Register`] and [`Command::AllocateWindow`]: work posted from now on finds the memory.
    Registered {
        /// Its name.
        stag: STag,
        /// Whether it is there now.
        result: Result<(), InsertError>,
    },
    /// The answer to [`Command::Deregister`].
    Deregistered {
        /// The name that it was given first.
        stag: STag,
        /// Whether it has gone; if not, it stays as it was.
        result: Result<(), RemoveError>,
    },
    /// The answer to [`Command::ReportStatistics`].
    Statistics(Box<Statistics>),
    /// The answer to [`Command::ReportConnection`]: its TCP at that moment, if there is such a connection. Answers come in
    /// the order of the commands.
    ConnectionReport(Option<Box<Snapshot>>),
}

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
    /// Every local port is in use towards this peer, or the one that was asked for is.
    #[error("no local port is left for another connection to this peer")]
    NoPort,
    /// The local address that was asked for is none of the core's.
    #[error("the local address is none of the device's")]
    NoAddress,
    /// The peer's address is neither on the local network nor behind a gateway.
    #[error("no route to the peer")]
    NoRoute,
}

/// The rings between control and one core, and the bells that applications ring.
#[derive(Clone)]
pub struct Rings {
    /// Control to core.
    pub commands: Arc<ArrayQueue<Command>>,
    /// Core to control.
    pub events: Arc<ArrayQueue<Event>>,
    /// Applications to core.
    pub doorbells: Arc<Doorbells>,
}

impl Rings {
    /// Empty rings, for a core that is always polled.
    pub fn new() -> Self {
        Self::with(Doorbells::new(limits::QPS_PER_CORE))
    }

    /// Empty rings, for a core whose thread may sleep and is woken by `waker`. Whoever pushes a command then
    /// calls
    /// [`Doorbells::wake`].
    pub fn with_waker(waker: Arc<Waker>) -> Self {
        Self::with(Doorbells::new(limits::QPS_PER_CORE).with_waker(waker))
    }

    fn with(doorbells: Doorbells) -> Self {
        Self {
            commands: Arc::new(ArrayQueue::new(limits::COMMANDS)),
            events: Arc::new(ArrayQueue::new(limits::EVENTS)),
            doorbells: Arc::new(doorbells),
        }
    }
}

impl Default for Rings {
    fn default() -> Self {
        Self::new()
    }
}
