//! Items that a listener receives from the engine: peers that ask for a connection, and peers whose startup
//! failed.

use std::net::SocketAddr;

use crossbeam::channel::{self, Receiver, Sender};
use warpline_dataplane::ring::ConnectionId;

use crate::vocabulary::listen::{ListenConfig, backlog};
use crate::vocabulary::socket_pair::SocketPair;
use crate::vocabulary::startup::{Peer, StartupFault};

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
