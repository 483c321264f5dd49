//! The requests of handles to the engine, and what it offers to listeners: peers that ask for a connection,
//! and peers whose startup failed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{self, Receiver, Sender};
use warpline_dataplane::byte_stream::{ByteStreamConfig, SharedByteStream};
use warpline_dataplane::memory::{Access, ProtectionDomainId, Region, STag};
use warpline_dataplane::qp::shared::{CompletionRings, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{ConnectionId, Direction, ListenAddress};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::tcp::Snapshot;

use super::connection_status::ConnectionStatus;
use super::reply::Reply;
use super::shared_stream::SharedStream;
use super::sleeper::Sleeper;
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Connected, SocketPair};
use crate::vocabulary::core_set::CoreSet;
use crate::vocabulary::device::Usage;
use crate::vocabulary::listen::{Accepted, AnswerError, ListenConfig, ListenError, backlog};
use crate::vocabulary::memory::{Addressing, MemoryError};
use crate::vocabulary::queue_pair::{CreateError, QpConfig};
use crate::vocabulary::startup::{Peer, ReadsWanted, StartupFault};
use crate::vocabulary::stream::{StreamConfig, SwitchError, TcpListenConfig, UnnegotiatedConfig};

/// The content of a peer's Request that the application sees.
#[derive(Clone, Debug)]
pub(crate) struct PeerRequest {
    pub(crate) private_data: Box<[u8]>,
    pub(crate) peer: Peer,
    pub(crate) version: u8,
    /// Most octets of Private Data in the Reply.
    pub(crate) private_data_max_octets: usize,
}

/// From the engine to a listener.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A Request that waits for the decision of the application.
    Request { connection: ConnectionId, pair: SocketPair, request: PeerRequest },
    /// A peer whose startup failed.
    Fault { remote: SocketAddr, fault: StartupFault },
}

/// Both ends of the queue from the engine to a listener.
pub(crate) type ArrivalQueue = (Sender<Arrival>, Receiver<Arrival>);

/// Returns a queue for a listener with `config`: room for a backlog of Requests and as many faults.
pub(crate) fn arrival_queue(config: &ListenConfig) -> ArrivalQueue {
    channel::bounded(2 * backlog(config.backlog) as usize)
}

/// Counters by core; `None` for a core that has not answered.
pub(crate) type CoreStatistics = Vec<Option<Statistics>>;

/// How a deregistration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeregisterOutcome {
    /// No core reaches the memory any more.
    Done,
    /// Sends still read from it.
    InUse,
    /// Windows are bound to it.
    WindowsBound,
    /// These cores did not answer.
    Unanswered(CoreSet),
}

/// One request of the API.
///
/// A queue pair's number suffices in requests of its owner: [`DestroyQp`](Self::DestroyQp) comes after all of
/// that, and the number is another's only after it. A request that lasts longer, or comes from others, names
/// the queue pair itself.
pub(crate) enum Request {
    Register {
        region: Region,
        pd: ProtectionDomainId,
        stream: Option<QpNumber>,
        access: Access,
        addressing: Addressing,
        reply: Reply<Result<STag, MemoryError>>,
    },
    AllocateWindow {
        pd: ProtectionDomainId,
        reply: Reply<Result<STag, MemoryError>>,
    },
    /// Of a registration or a window.
    Deregister {
        /// The name it was given first.
        stag: STag,
        /// What it was called last.
        last: STag,
        /// How long to try again while sends read from the memory, or windows are bound to it; for as long as
        /// it takes without.
        patience: Option<Duration>,
        reply: Reply<DeregisterOutcome>,
    },
    /// Of a registration: as above, but the streams that still read from the memory after `patience` end.
    Revoke {
        stag: STag,
        last: STag,
        patience: Duration,
        reply: Reply<DeregisterOutcome>,
    },
    CreateQp {
        pd: ProtectionDomainId,
        config: QpConfig,
        completions: CompletionRings,
        /// Where its receives come from, if not from a queue of its own.
        receives: Option<Arc<SharedReceiveQueue>>,
        reply: Reply<Result<NewQueuePair, CreateError>>,
    },
    DestroyQp {
        qp: QpNumber,
        /// The reply comes once no work request uses memory, also if the connection ends in an orderly way.
        fence: bool,
        reply: Reply<()>,
    },
    Connect {
        qp: Arc<SharedQp>,
        remote: SocketAddr,
        config: ConnectConfig,
        reply: Reply<Result<Connected, ConnectError>>,
    },
    Listen {
        /// Port 0 for a free one.
        at: ListenAddress,
        config: ListenConfig,
        /// Both ends: when the listener goes, the engine takes back what the application has not received.
        arrivals: ArrivalQueue,
        /// Called by the thread of the engine after each arrival.
        notify: Option<Box<dyn Fn() + Send>>,
        /// The port.
        reply: Reply<Result<u16, ListenError>>,
    },
    Unlisten {
        at: ListenAddress,
    },
    /// Finds the port at which an id is to listen later.
    ReservePort {
        /// Port 0 for a free one.
        at: ListenAddress,
        reuse_address: bool,
        /// The port.
        reply: Reply<Result<u16, ListenError>>,
    },
    /// The id does not listen at the port that was found for it.
    ReleasePort {
        at: ListenAddress,
    },
    Accept {
        connection: ConnectionId,
        qp: Arc<SharedQp>,
        reads: ReadsWanted,
        private_data: Box<[u8]>,
        reply: Reply<Result<Accepted, AnswerError>>,
    },
    Reject {
        connection: ConnectionId,
        private_data: Box<[u8]>,
        reply: Reply<Result<(), AnswerError>>,
    },
    Disconnect {
        qp: Arc<SharedQp>,
    },
    Abort {
        qp: QpNumber,
    },
    /// About connections in streaming mode.
    Stream(StreamRequest),
    /// Of each core.
    Statistics {
        reply: Reply<CoreStatistics>,
    },
    ConnectionReport {
        qp: QpNumber,
        reply: Reply<Option<Snapshot>>,
    },
    /// Of a connection in streaming mode, or of a byte stream.
    StreamReport {
        connection: ConnectionId,
        reply: Reply<Option<Snapshot>>,
    },
    Usage {
        reply: Reply<Usage>,
    },
}

/// A queue pair that the engine has made.
pub(crate) struct NewQueuePair {
    /// What the application shares with the core.
    pub(crate) shared: Arc<SharedQp>,
    /// What the application shares with the engine.
    pub(crate) status: Arc<ConnectionStatus>,
}

/// A listener in streaming mode that the engine has made.
pub(crate) struct NewStreamListener {
    /// The port: the one that was chosen if 0 was asked for.
    pub(crate) port: u16,
    /// Connections that no application has taken.
    pub(crate) streams: Receiver<Arc<SharedStream>>,
    /// The application that waits for one.
    pub(crate) sleeper: Arc<Sleeper>,
}

/// What the API asks of connections in streaming mode.
pub(crate) enum StreamRequest {
    Connect {
        remote: SocketAddr,
        config: StreamConfig,
        reply: Reply<Result<Arc<SharedStream>, ConnectError>>,
    },
    Listen {
        /// Port 0 for a free one.
        at: ListenAddress,
        config: TcpListenConfig,
        reply: Reply<Result<NewStreamListener, ListenError>>,
    },
    /// The application has taken a connection from its listener.
    Admit { connection: ConnectionId },
    /// Octets that are charged to the connection already.
    Write { connection: ConnectionId, octets: Box<[u8]> },
    /// The application has read octets.
    Take { connection: ConnectionId, octets: u32 },
    /// FIN after everything written.
    Finish { connection: ConnectionId },
    /// RST.
    Abort { connection: ConnectionId },
    /// The application has dropped the connection.
    Abandon { connection: ConnectionId },
    Initiate {
        connection: ConnectionId,
        qp: Arc<SharedQp>,
        remote: SocketAddr,
        config: ConnectConfig,
        reply: Reply<Result<Connected, ConnectError>>,
    },
    Respond {
        connection: ConnectionId,
        last_message: Box<[u8]>,
        config: ListenConfig,
        reply: Reply<Result<PeerRequest, SwitchError>>,
    },
    Start {
        connection: ConnectionId,
        qp: Arc<SharedQp>,
        direction: Direction,
        config: UnnegotiatedConfig,
        reply: Reply<Result<(), SwitchError>>,
    },
    /// The application takes the octets from the core, and gives them to it, directly.
    Attach {
        connection: ConnectionId,
        config: ByteStreamConfig,
        reply: Reply<Result<Arc<SharedByteStream>, SwitchError>>,
    },
    /// A rejection that leaves the connection to the application.
    RejectToStream {
        connection: ConnectionId,
        pair: SocketPair,
        private_data: Box<[u8]>,
        reply: Reply<Result<Arc<SharedStream>, AnswerError>>,
    },
}
