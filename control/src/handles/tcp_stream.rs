//! TCP connections in streaming mode (RFC 5044 §7.1): bytes both ways, and MPA from there, whichever end
//! opened them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::byte_stream as dataplane;
use warpline_dataplane::notify::Notify;
use warpline_dataplane::ring::Direction;
use warpline_dataplane::tcp::{CloseReason, Snapshot};

use super::byte_stream::{self, ByteStream};
use super::connection_request::ConnectionRequest;
use super::context::DeviceContext;
use super::queue_pair::QueuePairControl;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::byte_stream::{ByteStreamConfig, ByteStreamError};
use crate::vocabulary::connect::{self, ConnectConfig, ConnectError, Connected};
use crate::vocabulary::device::Stopped;
use crate::vocabulary::listen::ListenConfig;
use crate::vocabulary::stream::{SwitchError, TcpStreamError, UnnegotiatedConfig};

/// A TCP connection in streaming mode, from [`Device::connect_stream`](crate::Device::connect_stream),
/// [`TcpListener::accept`](crate::TcpListener::accept) or [`ConnectionRequest::reject_to_stream`].
///
/// Octets go both ways until MPA is started, at once or later: as Initiator by [`initiate`](Self::initiate),
/// as Responder by [`respond`](Self::respond), whichever end opened the connection, or without startup frames
/// by [`start_unnegotiated`](Self::start_unnegotiated). When startup ends in a rejection, the connection is
/// in streaming mode again.
///
/// Unread octets close TCP's window; written octets wait in a queue of about 64 KiB. Dropping it in streaming
/// mode closes the connection in an orderly way; once MPA has started, the queue pair decides.
// Requirements: MPA-7.1-06, MPA-7.1.2-07, MPA-7.1.2-13
pub struct TcpStream {
    context: Arc<DeviceContext>,
    shared: Arc<SharedStream>,
    /// The connection is that of a byte stream now.
    given_away: bool,
}

impl TcpStream {
    pub(crate) const fn new(context: Arc<DeviceContext>, shared: Arc<SharedStream>) -> Self {
        Self { context, shared, given_away: false }
    }

    /// Returns the peer's address and port.
    pub fn remote(&self) -> SocketAddr {
        self.shared.pair.remote
    }

    /// Returns our address and port.
    pub fn local(&self) -> SocketAddr {
        self.shared.pair.local
    }

    /// Returns the number of octets that can be read at once.
    pub fn available(&self) -> usize {
        self.shared.pending_octets()
    }

    /// Reads what there is, at least one byte; waits for it for `timeout`. 0 when the peer has finished and
    /// all was read.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError`].
    pub fn read(&self, out: &mut [u8], timeout: Duration) -> Result<usize, TcpStreamError> {
        let connection = self.shared.connection;
        self.shared.read(out, timeout, |len| self.send(StreamRequest::Take { connection, octets: len }))
    }

    /// Reads until `out` is full; waits `timeout` each time there is nothing to read.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError`]; [`Closed`](TcpStreamError::Closed) when the peer finishes before.
    pub fn read_exact(&self, out: &mut [u8], timeout: Duration) -> Result<(), TcpStreamError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read(&mut out[filled..], timeout)? {
                0 => return Err(TcpStreamError::Closed(CloseReason::Finished)),
                len => filled += len,
            }
        }
        Ok(())
    }

    /// Queues as much of `bytes` as there is room for, at least one byte; waits for room for `timeout`.
    /// Returns how many it took.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError`].
    pub fn write(&self, bytes: &[u8], timeout: Duration) -> Result<usize, TcpStreamError> {
        let connection = self.shared.connection;
        self.shared
            .write(bytes, timeout, |piece| self.send(StreamRequest::Write { connection, octets: piece }))
    }

    /// Queues all of `bytes`; waits `timeout` each time there is no room.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError`]; some bytes may be queued then.
    pub fn write_all(&self, mut bytes: &[u8], timeout: Duration) -> Result<(), TcpStreamError> {
        while !bytes.is_empty() {
            let written = self.write(bytes, timeout)?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Closes our half of the connection after everything written. The peer's half stays open.
    pub fn finish(&self) {
        let connection = self.shared.connection;
        // A stopped device has closed everything.
        self.shared.finish(|| _ = self.send(StreamRequest::Finish { connection }));
    }

    /// Resets the connection.
    pub fn abort(&self) {
        // As above.
        let _ = self.send(StreamRequest::Abort { connection: self.shared.connection });
    }

    /// Waits until both ends have finished.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError::Closed`] when the connection ended otherwise, [`TcpStreamError::TimedOut`] after
    /// `timeout`, [`TcpStreamError::NotStreaming`] when MPA has started with startup frames: the queue pair
    /// has the end of the connection then.
    pub fn wait_closed(&self, timeout: Duration) -> Result<(), TcpStreamError> {
        self.shared.wait_closed(timeout)
    }

    /// Returns the state of its TCP at this moment: round-trip time, windows, what is in flight, what was
    /// sent again and why. `None` once it is closed, or if its core, one of several, does not answer within a
    /// second.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn tcp(&self) -> Result<Option<Snapshot>, Stopped> {
        self.context.ask(|reply| Request::StreamReport { connection: self.shared.connection, reply })
    }

    /// Makes the connection a [`ByteStream`]: its octets go between the application and the core directly, at
    /// the speed of the data plane, and with the TCP RDMA option if the ends have agreed on it. Octets that
    /// were not read are the first that it reads. MPA does not start on it any more.
    ///
    /// # Errors
    ///
    /// [`ByteStreamError`].
    pub fn into_byte_stream(self, config: &ByteStreamConfig) -> Result<ByteStream, ByteStreamError> {
        let rings = byte_stream::prepare(&self.context, config, self.shared.rdma_option)?;
        let (rings, events) = byte_stream::with_events(rings, config.events)?;
        self.attach(rings, events)
    }

    /// Makes the connection a byte stream as [`into_byte_stream`](Self::into_byte_stream) does, for
    /// applications that wake their threads in a way of their own, as one for many streams: `notify` is
    /// called, by the thread that polls the core, when its reader or its writer was armed and something has
    /// changed for it. There are no file descriptors: calls that are to wait poll.
    ///
    /// # Errors
    ///
    /// [`ByteStreamError`].
    pub fn into_byte_stream_with_notify(
        self,
        config: &ByteStreamConfig,
        notify: &Arc<dyn Notify>,
    ) -> Result<ByteStream, ByteStreamError> {
        let mut rings = byte_stream::prepare(&self.context, config, self.shared.rdma_option)?;
        rings.reader = Some(notify.clone());
        rings.writer = Some(notify.clone());
        self.attach(rings, None)
    }

    fn attach(
        mut self,
        config: dataplane::ByteStreamConfig,
        events: byte_stream::Events,
    ) -> Result<ByteStream, ByteStreamError> {
        let connection = self.shared.connection;
        let shared = self.ask(|reply| StreamRequest::Attach { connection, config, reply })??;
        self.given_away = true;
        Ok(ByteStream::new(self.context.clone(), connection, self.shared.pair, shared, events))
    }

    /// Starts MPA as its Initiator, at once or after streaming bytes: our last one is followed by the
    /// Request, and the next one of the peer belongs to its Reply. Returns when sends may be posted. The
    /// address and TCP part of `config` are ignored; [`Revision::TwoThenOne`](crate::Revision::TwoThenOne) is
    /// revision 2, there being one connection only.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]. After [`Rejected`](ConnectError::Rejected) the connection is in streaming mode
    /// again, with all bytes after the Reply; with [`PendingStreamData`](ConnectError::PendingStreamData) it
    /// still is.
    // Requirements: MPA-7.1-05
    pub fn initiate(&self, qp: &QueuePairControl, config: &ConnectConfig) -> Result<Connected, ConnectError> {
        if !qp.is_of(&self.context) {
            return Err(ConnectError::OtherDevice);
        }
        connect::check(config)?;
        let (connection, qp, remote, config) =
            (self.shared.connection, qp.shared.clone(), self.shared.pair.remote, config.clone());
        self.ask(|reply| StreamRequest::Initiate { connection, qp, remote, config, reply })?
    }

    /// Starts MPA as its Responder: `last_message`, which may be empty, is our last streaming bytes before
    /// the Reply, and the peer's next byte belongs to its Request, however soon that comes. Waits for the
    /// Request. The backlog and TCP part of `config` are ignored.
    ///
    /// Bytes that wait to be read are the beginning of the Request, unless there is a last message: then
    /// nothing can have followed it, and they are streaming data that was forgotten.
    ///
    /// # Errors
    ///
    /// [`SwitchError`].
    // Requirements: MPA-7.1.5-02, MPA-7.1.5-01
    pub fn respond(
        &self,
        last_message: &[u8],
        config: &ListenConfig,
    ) -> Result<ConnectionRequest, SwitchError> {
        let (connection, last_message, config) = (self.shared.connection, last_message.into(), *config);
        let request =
            self.ask(|reply| StreamRequest::Respond { connection, last_message, config, reply })??;
        Ok(ConnectionRequest::new(self.context.clone(), connection, self.shared.pair, request))
    }

    /// Starts Full Operation without startup frames, as draft-culley-iwarp-mpa-00 has it: Markers and CRCs
    /// always, and no waiting for the other end. In `direction`, the bytes after those written and read so
    /// far belong to it; the other direction stays in streaming mode until it is started too, with the same
    /// queue pair. Both ends must know where that is, and what `config` says; that of the second call counts
    /// no more.
    ///
    /// # Errors
    ///
    /// [`SwitchError`].
    // Requirements: C00-8.1-01 to C00-8.1-06
    pub fn start_unnegotiated(
        &self,
        qp: &QueuePairControl,
        direction: Direction,
        config: &UnnegotiatedConfig,
    ) -> Result<(), SwitchError> {
        if !qp.is_of(&self.context) {
            return Err(SwitchError::OtherDevice);
        }
        let (connection, qp, config) = (self.shared.connection, qp.shared.clone(), *config);
        self.ask(|reply| StreamRequest::Start { connection, qp, direction, config, reply })?
    }

    fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> StreamRequest) -> Result<T, Stopped> {
        self.context.ask(|reply| Request::Stream(request(reply)))
    }

    fn send(&self, request: StreamRequest) -> Result<(), Stopped> {
        self.context.send(Request::Stream(request))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        if self.given_away {
            return;
        }
        self.shared.abandon();
        // A stopped device has closed everything.
        let _ = self.send(StreamRequest::Abandon { connection: self.shared.connection });
    }
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpStream").field("pair", &self.shared.pair).finish_non_exhaustive()
    }
}
