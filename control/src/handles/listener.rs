//! Listeners: they take connections as the Responder of MPA.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, TryRecvError};
use warpline_dataplane::ring::ListenAddress;

use super::connection_request::ConnectionRequest;
use super::context::DeviceContext;
use crate::engine::interface::request::{Arrival, Request, arrival_queue};
use crate::vocabulary::device::Stopped;
use crate::vocabulary::listen::{AcceptError, ListenConfig, ListenError, listen_address, socket_address};

/// Takes connections to a port, as MPA's Responder. Dropping it closes those that the application has not
/// taken.
pub struct Listener {
    context: Arc<DeviceContext>,
    at: ListenAddress,
    arrivals: Receiver<Arrival>,
}

impl Listener {
    pub(crate) fn new(
        context: Arc<DeviceContext>,
        local: SocketAddr,
        config: ListenConfig,
    ) -> Result<Self, ListenError> {
        let at = listen_address(context.config(), local)?;
        let arrivals = arrival_queue(&config);
        let receiver = arrivals.1.clone();
        let port = context.ask(|reply| Request::Listen { at, config, arrivals, notify: None, reply })??;
        Ok(Self { context, at: ListenAddress { port, ..at }, arrivals: receiver })
    }

    /// Returns the port: the one that was chosen if 0 was asked for.
    pub const fn port(&self) -> u16 {
        self.at.port
    }

    /// Returns the address and port. `0.0.0.0` means all IPv4 addresses of the device, `::` for all addresses
    /// of either family.
    pub fn local(&self) -> SocketAddr {
        socket_address(self.at)
    }

    /// Returns the next connection request; waits for it for `timeout`.
    ///
    /// # Errors
    ///
    /// [`AcceptError`].
    pub fn accept(&self, timeout: Duration) -> Result<ConnectionRequest, AcceptError> {
        match next_of(&self.arrivals, timeout) {
            Ok(Arrival::Request { connection, pair, request }) => {
                Ok(ConnectionRequest::new(self.context.clone(), connection, pair, request))
            }
            Ok(Arrival::Fault { remote, fault }) => Err(AcceptError::Startup { remote, fault }),
            Err(RecvTimeoutError::Timeout) => Err(AcceptError::TimedOut),
            Err(RecvTimeoutError::Disconnected) => Err(AcceptError::Stopped(Stopped)),
        }
    }
}

/// Returns the next of what comes; waits for it for `timeout`.
pub(super) fn next_of<T>(arrivals: &Receiver<T>, timeout: Duration) -> Result<T, RecvTimeoutError> {
    match arrivals.try_recv() {
        Ok(next) => Ok(next),
        Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
        // The channel would yield the CPU a few times before it looks at the time.
        Err(TryRecvError::Empty) if timeout.is_zero() => Err(RecvTimeoutError::Timeout),
        Err(TryRecvError::Empty) => arrivals.recv_timeout(timeout),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A stopped device listens no more.
        let _ = self.context.send(Request::Unlisten { at: self.at });
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("local", &self.local()).finish_non_exhaustive()
    }
}
