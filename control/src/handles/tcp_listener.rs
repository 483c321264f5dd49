//! Taking TCP connections in streaming mode.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError};
use warpline_dataplane::ring::ListenAddress;

use super::context::DeviceContext;
use super::event_fd::EventFd;
use super::listener::next_of;
use super::tcp_stream::TcpStream;
use crate::engine::interface::request::{NewStreamListener, Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::engine::interface::sleeper::Sleeper;
use crate::vocabulary::device::Stopped;
use crate::vocabulary::listen::{ListenError, listen_address, socket_address};
use crate::vocabulary::stream::{TcpListenConfig, TcpStreamError};

/// Takes connections to a port in streaming mode. Dropping it closes those that the application has not
/// taken.
///
/// A thread that also does something else asks with no time to wait, and sleeps on
/// [`event_fd`](Self::event_fd), in an epoll set beside what else it waits for, once [`arm`](Self::arm) has
/// returned true.
pub struct TcpListener {
    context: Arc<DeviceContext>,
    at: ListenAddress,
    streams: Receiver<Arc<SharedStream>>,
    sleeper: Arc<Sleeper>,
    event: OnceLock<Arc<EventFd>>,
}

impl TcpListener {
    pub(crate) fn new(
        context: Arc<DeviceContext>,
        local: SocketAddr,
        config: TcpListenConfig,
    ) -> Result<Self, ListenError> {
        let at = listen_address(context.config(), local)?;
        let NewStreamListener { port, streams, sleeper } =
            context.ask(|reply| Request::Stream(StreamRequest::Listen { at, config, reply }))??;
        Ok(Self { context, at: ListenAddress { port, ..at }, streams, sleeper, event: OnceLock::new() })
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
        let shared = next_of(&self.streams, timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => TcpStreamError::TimedOut,
            RecvTimeoutError::Disconnected => Stopped.into(),
        })?;
        let connection = shared.connection;
        let stream = TcpStream::new(self.context.clone(), shared);
        self.context.send(Request::Stream(StreamRequest::Admit { connection }))?;
        Ok(stream)
    }

    /// Returns the file descriptor that becomes readable when there is a connection to
    /// [`accept`](Self::accept), or when the device has stopped, after [`arm`](Self::arm). The first call
    /// makes it.
    ///
    /// # Errors
    ///
    /// When the system has no file descriptor left.
    pub fn event_fd(&self) -> io::Result<&EventFd> {
        if let Some(event) = self.event.get() {
            return Ok(event);
        }
        let event = Arc::new(EventFd::new()?);
        // Another thread may have made one meanwhile.
        let event = self.event.get_or_init(|| event);
        self.sleeper.notify_with(event.clone());
        Ok(event)
    }

    /// Has the file descriptor become readable when the next connection comes. Returns true if there is none:
    /// only then may the thread sleep.
    pub fn arm(&self) -> bool {
        self.sleeper.arm() && self.streams.is_empty()
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
