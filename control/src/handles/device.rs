//! A device: cores on a NIC, their control, and what applications make from it.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpline_dataplane::memory::RegionPoolReport as StreamMemory;
use warpline_dataplane::qp::async_event::AsyncEvent;
use warpline_dataplane::statistics::Statistics;

use super::context::DeviceContext;
use super::event_fd::EventFd;
use super::listener::Listener;
use super::protection_domain::ProtectionDomain;
use super::tcp_listener::TcpListener;
use super::tcp_stream::TcpStream;
use crate::engine::interface::request::{Request, StreamRequest};
use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::device::{DeviceConfig, Stopped, Usage};
use crate::vocabulary::listen::{ListenConfig, ListenError};
use crate::vocabulary::stream::{StreamConfig, TcpListenConfig};

/// The cores on a NIC, one or several, and their control. Clones are the same device.
///
/// It stops when the last clone and everything made from it are dropped; connections that are being closed by
/// then get two seconds for it.
#[derive(Clone)]
pub struct Device {
    pub(crate) context: Arc<DeviceContext>,
}

impl Device {
    /// Returns a new Protection Domain: queue pairs of it reach only memory of it (RFC 5041 §8.2).
    pub fn protection_domain(&self) -> ProtectionDomain {
        let id = self.context.next_domain();
        ProtectionDomain::new(self.context.clone(), id)
    }

    /// Takes connections to `port` at every address of the device. For port 0 a free one is chosen:
    /// [`Listener::port`] returns it.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen(&self, port: u16, config: &ListenConfig) -> Result<Listener, ListenError> {
        self.listen_at((Ipv6Addr::UNSPECIFIED, port).into(), config)
    }

    /// Takes connections to the port and address of `local`; at every IPv4 address for `0.0.0.0`, at every
    /// address of either family for `::`. For port 0 a free one is chosen.
    ///
    /// The same port may be listened on at several addresses; at all of them and at some only with
    /// [`ListenConfig::reuse_address`].
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen_at(&self, local: SocketAddr, config: &ListenConfig) -> Result<Listener, ListenError> {
        Listener::new(self.context.clone(), local, *config)
    }

    /// Opens a TCP connection to `remote`, in streaming mode.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    pub fn connect_stream(
        &self,
        remote: SocketAddr,
        config: &StreamConfig,
    ) -> Result<TcpStream, ConnectError> {
        let config = *config;
        let opened =
            self.context.ask(|reply| Request::Stream(StreamRequest::Connect { remote, config, reply }))??;
        Ok(TcpStream::new(self.context.clone(), opened))
    }

    /// Takes connections to `port` in streaming mode, as [`listen`](Self::listen) does for MPA.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen_streams(&self, port: u16, config: &TcpListenConfig) -> Result<TcpListener, ListenError> {
        self.listen_streams_at((Ipv6Addr::UNSPECIFIED, port).into(), config)
    }

    /// Takes connections to `local` in streaming mode, as [`listen_at`](Self::listen_at) does for MPA.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen_streams_at(
        &self,
        local: SocketAddr,
        config: &TcpListenConfig,
    ) -> Result<TcpListener, ListenError> {
        TcpListener::new(self.context.clone(), local, *config)
    }

    /// Returns how the device was set up.
    pub fn config(&self) -> &DeviceConfig {
        self.context.config()
    }

    /// Returns the oldest asynchronous event that was not taken yet. Does not wait.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.context.events.dequeue()
    }

    /// Returns the oldest asynchronous event; sleeps until there is one, at most for `timeout`. For one
    /// thread; with an epoll set, [`event_fd`](Self::event_fd).
    pub fn wait_event(&self, timeout: Duration) -> Option<AsyncEvent> {
        let start = Instant::now();
        loop {
            // Before the poll: an event that comes after it wakes again.
            self.context.event_fd().clear();
            let event = self.poll_event();
            let left = timeout.saturating_sub(start.elapsed());
            if event.is_some() || left.is_zero() {
                return event;
            }
            self.context.event_fd().wait(left);
        }
    }

    /// Returns the file descriptor that becomes readable with each asynchronous event, until it is cleared.
    pub fn event_fd(&self) -> &EventFd {
        self.context.event_fd()
    }

    /// Asynchronous events that were lost because those before them were not taken. Queue pairs
    /// [say the same](crate::QueuePairControl::end_events) of their ends.
    pub fn events_lost(&self) -> u64 {
        self.context.events.lost()
    }

    /// Returns how many cores the device has, those that are no longer polled included.
    pub fn cores(&self) -> u8 {
        self.context.cores
    }

    /// Returns the counters, summed over the cores that [answer](Self::statistics_by_core).
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn statistics(&self) -> Result<Statistics, Stopped> {
        let mut sum = Statistics::default();
        for statistics in self.statistics_by_core()?.iter().flatten() {
            sum.add(statistics);
        }
        Ok(sum)
    }

    /// Returns the counters of each core; `None` for one that has not answered for a second, or not yet what
    /// it was asked before, or is no longer polled. The only core of a device is waited for.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn statistics_by_core(&self) -> Result<Vec<Option<Statistics>>, Stopped> {
        self.context.ask(|reply| Request::Statistics { reply })
    }

    /// Counts of regions, queue pairs, listeners and connections.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn usage(&self) -> Result<Usage, Stopped> {
        self.context.ask(|reply| Request::Usage { reply })
    }

    /// Returns how many bytes the buffers of byte streams have, of how many they may have
    /// ([`Capacity::stream_bytes`](crate::Capacity::stream_bytes)), and how often none were left.
    pub fn stream_memory(&self) -> StreamMemory {
        self.context.stream_memory.report()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("config", self.context.config()).finish_non_exhaustive()
    }
}
