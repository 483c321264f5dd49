//! Taking TCP connections in streaming mode.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError};
use warpline_dataplane::core::listeners::ListenAddress;
use warpline_dataplane::tcp::Behaviour;

use crate::engine::request::Request;
use crate::engine::streaming::StreamRequest;
use crate::handles::device::{Shared, Stopped};
use crate::handles::listener::{ListenError, listen_address, socket_address};
use crate::handles::tcp_stream::{StreamShared, TcpStream, TcpStreamError};

/// How connections are taken in streaming mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpListenConfig {
    /// Connections that wait for the application, at most, as in [`ListenConfig`](crate::ListenConfig::backlog). A peer beyond
    /// gets no answer and tries again.
    pub backlog: u32,
    /// How TCP behaves on them, if not as the device is set up.
    pub tcp: Option<Behaviour>,
    /// Whether listeners share a port, as in [`ListenConfig`](crate::ListenConfig::reuse_address).
    pub reuse_address: bool,
}

impl Default for TcpListenConfig {
    /// A backlog of 128, TCP as on the device.
    fn default() -> Self {
        Self { backlog: 128, tcp: None, reuse_address: false }
    }
}

/// Takes connections to a port in streaming mode. Dropping it closes those that nobody has taken.
pub struct TcpListener {
    device: Arc<Shared>,
    at: ListenAddress,
    incoming: Receiver<Arc<StreamShared>>,
}

impl TcpListener {
    pub(crate) fn new(
        device: Arc<Shared>,
        local: SocketAddr,
        config: TcpListenConfig,
    ) -> Result<Self, ListenError> {
        let at = listen_address(device.config(), local)?;
        let (port, incoming) =
            device.ask(|reply| Request::Stream(StreamRequest::Listen { at, config, reply }))??;
        Ok(Self { device, at: ListenAddress { port, ..at }, incoming })
    }

    /// The port: the one that was chosen if 0 was asked for.
    pub const fn port(&self) -> u16 {
        self.at.port
    }

    /// The address and port, as [`Listener::local`](crate::Listener::local).
    pub fn local(&self) -> SocketAddr {
        socket_address(self.at)
    }

    /// The next connection; waits for it for `timeout`.
    ///
    /// # Errors
    ///
    /// [`TcpStreamError::TimedOut`] or [`TcpStreamError::Stopped`].
    pub fn accept(&self, timeout: Duration) -> Result<TcpStream, TcpStreamError> {
        let shared = self.incoming.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => TcpStreamError::TimedOut,
            RecvTimeoutError::Disconnected => Stopped.into(),
        })?;
        let connection = shared.connection;
        let stream = TcpStream::new(self.device.clone(), shared);
        self.device.tell(Request::Stream(StreamRequest::Admit { connection }))?;
        Ok(stream)
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        // A stopped device listens no more.
        let _ = self.device.tell(Request::Unlisten { at: self.at });
    }
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpListener").field("local", &self.local()).finish_non_exhaustive()
    }
}
