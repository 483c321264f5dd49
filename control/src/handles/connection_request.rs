//! A peer that wants to connect, and the application's decision.

use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::ring::ConnectionId;

use super::context::DeviceContext;
use super::queue_pair::QueuePairControl;
use super::tcp_stream::TcpStream;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{PeerRequest, Request, StreamRequest};
use crate::vocabulary::connect::{SocketPair, check_private_data};
use crate::vocabulary::device::Stopped;
use crate::vocabulary::listen::{Accepted, AnswerError};
use crate::vocabulary::startup::{PrivateDataTooLong, ReadDepths, ReadsWanted};

/// A peer that wants to connect and waits for the answer. Dropping it rejects it.
pub struct ConnectionRequest {
    /// `None` once it is answered.
    context: Option<Arc<DeviceContext>>,
    connection: ConnectionId,
    pair: SocketPair,
    request: PeerRequest,
}

impl ConnectionRequest {
    pub(crate) const fn new(
        context: Arc<DeviceContext>,
        connection: ConnectionId,
        pair: SocketPair,
        request: PeerRequest,
    ) -> Self {
        Self { context: Some(context), connection, pair, request }
    }

    /// Returns the peer's address and port.
    pub const fn remote(&self) -> SocketAddr {
        self.pair.remote
    }

    /// Returns our address and port that the peer connected to.
    pub const fn local(&self) -> SocketAddr {
        self.pair.local
    }

    /// Returns the core that serves the connection.
    pub const fn core(&self) -> u8 {
        self.connection.core()
    }

    /// Returns the peer's Private Data.
    // Requirements: MPA-7.1.1-19
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Returns the peer's MPA revision.
    // Requirements: MPA-7.1.1-15
    pub const fn revision(&self) -> u8 {
        self.request.peer.revision
    }

    /// Returns the peer's IRD and ORD as they came; `None` when its Request was not enhanced.
    // Requirements: MPAv2-9.1-01
    pub const fn peer_depths(&self) -> Option<ReadDepths> {
        self.request.peer.depths
    }

    /// Returns the version of DDP and RDMAP that the connection would have: 1, or 0 with a peer of the RDMA
    /// Consortium's.
    // Requirements: RDMAC-C.2.4-03
    pub const fn version(&self) -> u8 {
        self.request.version
    }

    /// Refuses Private Data that the Reply does not hold.
    pub(crate) fn check_private_data(&self, private_data: &[u8]) -> Result<(), PrivateDataTooLong> {
        check_private_data(private_data, self.request.private_data_max_octets)
    }

    /// Accepts without waiting: `reply` gets the answer. `qp` is of the device.
    pub(crate) fn begin_accept(
        mut self,
        qp: &QueuePairControl,
        reads: ReadsWanted,
        private_data: &[u8],
        reply: Reply<Result<Accepted, AnswerError>>,
    ) -> Result<(), Stopped> {
        let context = self.context.take().ok_or(Stopped)?;
        let (connection, qp, private_data) = (self.connection, qp.shared.clone(), private_data.into());
        context.send(Request::Accept { connection, qp, reads, private_data, reply })
    }

    /// Rejects without waiting. A peer that has closed meanwhile is no error.
    pub(crate) fn begin_reject(mut self, private_data: &[u8]) -> Result<(), Stopped> {
        let context = self.context.take().ok_or(Stopped)?;
        let (connection, private_data) = (self.connection, private_data.into());
        context.begin(|reply| Request::Reject { connection, private_data, reply }).map(drop)
    }

    /// Accepts: `qp` serves the connection from now on. Its sends leave after the peer's first message.
    ///
    /// # Errors
    ///
    /// [`AnswerError`]; the connection is closed then.
    // Requirements: MPA-7.1.2-15
    pub fn accept(self, qp: &QueuePairControl, private_data: &[u8]) -> Result<Accepted, AnswerError> {
        self.accept_with(qp, ReadsWanted::default(), private_data)
    }

    /// Accepts, and says what is wanted of RDMA Reads.
    ///
    /// # Errors
    ///
    /// [`AnswerError`]; the connection is closed then.
    pub fn accept_with(
        mut self,
        qp: &QueuePairControl,
        reads: ReadsWanted,
        private_data: &[u8],
    ) -> Result<Accepted, AnswerError> {
        check_private_data(private_data, self.request.private_data_max_octets)?;
        match self.context.take() {
            Some(context) if qp.is_of(&context) => {
                let (connection, qp) = (self.connection, qp.shared.clone());
                let private_data = private_data.into();
                context.ask(|reply| Request::Accept { connection, qp, reads, private_data, reply })?
            }
            Some(context) => {
                self.context = Some(context);
                Err(AnswerError::OtherDevice)
            }
            None => Err(AnswerError::Stopped),
        }
    }

    /// Rejects: the peer gets `private_data`, at most 512 bytes (508 if its Request was enhanced). The
    /// connection is closed, unless it came from [`TcpStream::respond`]: then it is in streaming mode again.
    ///
    /// # Errors
    ///
    /// [`AnswerError`]; the connection is closed then.
    // Requirements: MPA-7.1.2-18, A-01
    pub fn reject(mut self, private_data: &[u8]) -> Result<(), AnswerError> {
        check_private_data(private_data, self.request.private_data_max_octets)?;
        let context = self.context.take().ok_or(AnswerError::Stopped)?;
        let (connection, private_data) = (self.connection, private_data.into());
        context.ask(|reply| Request::Reject { connection, private_data, reply })?
    }

    /// Rejects, and keeps the connection: it is in streaming mode from then on. Not for a request from
    /// [`TcpStream::respond`], whose connection the application already has: that is
    /// [`reject`](Self::reject).
    ///
    /// # Errors
    ///
    /// [`AnswerError`]; the connection is closed then.
    // Requirements: MPA-7.1.2-07
    pub fn reject_to_stream(mut self, private_data: &[u8]) -> Result<TcpStream, AnswerError> {
        check_private_data(private_data, self.request.private_data_max_octets)?;
        let context = self.context.take().ok_or(AnswerError::Stopped)?;
        let (connection, pair, private_data) = (self.connection, self.pair, private_data.into());
        let shared = context.ask(|reply| {
            Request::Stream(StreamRequest::RejectToStream { connection, pair, private_data, reply })
        })??;
        Ok(TcpStream::new(context, shared))
    }
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            let connection = self.connection;
            // There is no handle left that an error could be reported to.
            let _ =
                context.begin(|reply| Request::Reject { connection, private_data: Box::default(), reply });
        }
    }
}

impl std::fmt::Debug for ConnectionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionRequest")
            .field("pair", &self.pair)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
