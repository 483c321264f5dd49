//! Taking TCP connections in streaming mode.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError};
use warpline_dataplane::ring::ListenAddress;

use super::context::DeviceContext;
use super::tcp_stream::TcpStream;
use crate::engine::interface::request::{NewStreamListener, Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::device::Stopped;
use crate::vocabulary::listen::{ListenError, listen_address, socket_address};
use crate::vocabulary::stream::{TcpListenConfig, TcpStreamError};

/// Takes connections to a port in streaming mode. Dropping it closes those that the application has not
/// taken.
pub struct TcpListener {
    context: Arc<DeviceContext>,
    at: ListenAddress,
    streams: Receiver<Arc<SharedStream>>,
}

impl TcpListener {
    pub(crate) fn new(
        context: Arc<DeviceContext>,
        local: SocketAddr,
        config: TcpListenConfig,
    ) -> Result<Self, ListenError> {
        let at = listen_address(context.config(), local)?;
        let NewStreamListener { port, streams } =
            context.ask(|reply| Request::Stream(StreamRequest::Listen { at, config, reply }))??;
        Ok(Self { context, at: ListenAddress { port, ..at }, streams })
    }

    /// Returns the port: the one that was chosen if 0 was asked for.
    pub const fn port(&self) -> u16 {
        self.at.port
    }

    /// Returns the address and port, as [`Listener::local`](crate::Listener::local).
    pub fn local(&self) -> SocketAddr {
        socket_address(self.at)
    }

    /// Returns the next connection; waits for it for `timeout`.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError::TimedOut`] or [`TcpStreamError::Stopped`].
    pub fn accept(&self, timeout: Duration) -> Result<TcpStream, TcpStreamError> {
        let shared = self.streams.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => TcpStreamError::TimedOut,
            RecvTimeoutError::Disconnected => Stopped.into(),
        })?;
        let connection = shared.connection;
        let stream = TcpStream::new(self.context.clone(), shared);
        self.context.send(Request::Stream(StreamRequest::Admit { connection }))?;
        Ok(stream)
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        // A stopped device listens no more.
        let _ = self.context.send(Request::Unlisten { at: self.at });
    }
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpListener").field("local", &self.local()).finish_non_exhaustive()
    }
}
