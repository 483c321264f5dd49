//! What the threads of an application share of a byte stream, beside its two halves.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::byte_stream::{SharedByteStream, TransferCounters};
use warpline_dataplane::ring::ConnectionId;
use warpline_dataplane::tcp::{CloseReason, Snapshot, State};

use super::super::context::DeviceContext;
use crate::engine::interface::request::{Request, StreamRequest};
use crate::vocabulary::byte_stream::ByteStreamError;
use crate::vocabulary::connect::SocketPair;
use crate::vocabulary::device::Stopped;

/// Resets and observes a byte stream while other threads read, write or wait on its halves, from
/// [`ByteStream::handle`](crate::ByteStream::handle). No method waits for another thread. A handle does not
/// keep the connection open.
#[derive(Clone)]
pub struct ByteStreamHandle {
    pub(super) context: Arc<DeviceContext>,
    pub(super) connection: ConnectionId,
    pub(super) pair: SocketPair,
    pub(super) shared: Arc<SharedByteStream>,
}

impl ByteStreamHandle {
    /// Resets the connection. Threads that wait on it return
    /// [`ByteStreamError::Closed`]. Does nothing if the connection has ended.
    pub fn abort(&self) {
        // A stopped device has closed everything.
        let _ = self.context.send(Request::Stream(StreamRequest::Abort { connection: self.connection }));
    }

    /// Returns true if the ends have agreed on the TCP RDMA option.
    pub fn has_rdma_option(&self) -> bool {
        self.shared.has_rdma_option()
    }

    /// Returns what became of the segments with the TCP RDMA option that this end has received: how many
    /// bytes were placed, and why others were not. Also of a connection that has ended.
    pub fn transfer_counters(&self) -> TransferCounters {
        self.shared.transfer_counters()
    }

    /// Returns the state of its TCP at this moment; `None` once it is closed, or if its core, one of several,
    /// does not answer within a second.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn tcp(&self) -> Result<Option<Snapshot>, Stopped> {
        let report =
            self.context.ask(|reply| Request::StreamReport { connection: self.connection, reply })?;
        // The core tells the application of the end a moment before it forgets the connection.
        Ok(report.filter(|tcp| tcp.state != State::Closed))
    }

    /// Returns the peer's address and port.
    pub const fn remote(&self) -> SocketAddr {
        self.pair.remote
    }

    /// Returns our address and port.
    pub const fn local(&self) -> SocketAddr {
        self.pair.local
    }

    /// Returns the error of a connection that has ended, if it is one.
    pub(super) fn end(&self) -> Option<ByteStreamError> {
        match self.shared.end() {
            Some(CloseReason::Finished) | None => None,
            Some(reason) => Some(ByteStreamError::Closed(reason)),
        }
    }
}

impl fmt::Debug for ByteStreamHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStreamHandle").field("pair", &self.pair).finish_non_exhaustive()
    }
}

/// What both halves of a byte stream hold: after the last of them the connection is closed.
pub(super) struct Link(ByteStreamHandle);

impl Link {
    pub(super) const fn new(handle: ByteStreamHandle) -> Self {
        Self(handle)
    }

    pub(super) const fn handle(&self) -> &ByteStreamHandle {
        &self.0
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let Self(ByteStreamHandle { context, connection, .. }) = self;
        // A stopped device has closed everything.
        let _ = context.send(Request::Stream(StreamRequest::Abandon { connection: *connection }));
    }
}
