//! Taking TCP connections in streaming mode.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError};
use warpline_dataplane::tcp::Behaviour;

use crate::device::{Shared, Stopped};
use crate::listener::ListenError;
use crate::tcp_stream::{StreamShared, TcpStream, TcpStreamError};
use crate::thread::request::Request;
use crate::thread::streaming::StreamRequest;

/// How connections are taken in streaming mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpListenConfig {
    /// Connections that wait for the application, at most, as in [`ListenConfig`](crate::ListenConfig::backlog). A peer beyond
    /// gets no answer and tries again.
    pub backlog: u32,
    /// How TCP behaves on them, if not as the device is set up.
    pub tcp: Option<Behaviour>,
}

impl Default for TcpListenConfig {
    /// A backlog of 128, TCP as on the device.
    fn default() -> Self {
        Self { backlog: 128, tcp: None }
    }
}

/// Takes connections to a port in streaming mode. Dropping it closes those that nobody has taken.
pub struct TcpListener {
    device: Arc<Shared>,
    port: u16,
    incoming: Receiver<Arc<StreamShared>>,
}

impl TcpListener {
    pub(crate) fn new(device: Arc<Shared>, port: u16, config: TcpListenConfig) -> Result<Self, ListenError> {
        if port == 0 {
            return Err(ListenError::NoPort);
        }
        let incoming =
            device.ask(|reply| Request::Stream(StreamRequest::Listen { port, config, reply }))??;
        Ok(Self { device, port, incoming })
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
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
        let _ = self.device.tell(Request::Unlisten { port: self.port });
    }
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpListener").field("port", &self.port).finish_non_exhaustive()
    }
}
