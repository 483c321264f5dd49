//! How connections in streaming mode are opened and taken, and how MPA starts on them.

use std::net::SocketAddr;
use std::time::Duration;

use warpline_dataplane::limits;
use warpline_dataplane::tcp::{Behaviour, CloseReason};

use super::connect::STARTUP_TIMEOUT;
use super::device::Stopped;
use super::startup::{ReadDepths, StartupFault};

/// How a TCP connection is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// The time that TCP's handshake may take.
    pub timeout: Duration,
    /// How TCP behaves, if not as the device is set up.
    pub tcp: Option<Behaviour>,
    /// The local address and port. The device chooses what is not given: an unspecified address, port 0.
    pub local: Option<SocketAddr>,
    /// The core that serves the connection; the device takes its cores in turn if none is given.
    pub core: Option<u8>,
}

impl Default for StreamConfig {
    /// Returns ten seconds, TCP as on the device, any local address and port, any core.
    fn default() -> Self {
        Self { timeout: STARTUP_TIMEOUT, tcp: None, local: None, core: None }
    }
}

/// The parameters of Full Operation without startup frames, which those frames would settle. The peer must
/// learn them by other means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnnegotiatedConfig {
    /// The version of DDP and RDMAP, 0 or 1.
    pub version: u8,
    /// The RDMA Reads that the peer may have outstanding here, and this end there (RFC 5040 §6.1): the peer's
    /// ORD and IRD. Up to [`READ_DEPTH_MAX`](limits::READ_DEPTH_MAX) each.
    pub depths: ReadDepths,
}

impl Default for UnnegotiatedConfig {
    /// Returns version 1, and [`READ_DEPTH_USUAL`](limits::READ_DEPTH_USUAL) Reads either way.
    fn default() -> Self {
        let depths = ReadDepths { ird: limits::READ_DEPTH_USUAL, ord: limits::READ_DEPTH_USUAL };
        Self { version: 1, depths }
    }
}

/// Why bytes were not read or written.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TcpStreamError {
    /// Nothing came, or nothing could be queued, in time.
    #[error("nothing could be read or written in time")]
    TimedOut,
    /// The connection ended, not in an orderly way.
    #[error("the connection ended: {0}")]
    Closed(CloseReason),
    /// This end has finished: it sends nothing more.
    #[error("this end of the connection has finished: nothing more can be sent")]
    Finished,
    /// The bytes are MPA's: its startup is under way, or it is in Full Operation.
    #[error("the connection is not in streaming mode: MPA has started on it")]
    NotStreaming,
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why MPA did not start on a connection in streaming mode.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// Streaming bytes wait to be read. Nothing has changed: read them, then start.
    // Requirements: MPA-7.1.5-01
    #[error("{len} bytes of streaming data wait to be read: read them before MPA is started")]
    PendingStreamData {
        /// How many.
        len: usize,
    },
    /// The last streaming message does not fit after the bytes that are queued. Nothing has changed.
    #[error(
        "{len} bytes do not fit after the bytes that are queued: write less, or wait until it is \
        acknowledged"
    )]
    NoRoom {
        /// Bytes of the message.
        len: usize,
    },
    /// MPA has started already, or this end has finished.
    #[error("the connection is not in streaming mode: MPA has started on it, or it is closed")]
    NotStreaming,
    /// The core of the connection has not answered in time. If it is polled again, the connection ends.
    #[error("core {core} of the device has not answered in time: is it polled?")]
    Unanswered {
        /// The core.
        core: u8,
    },
    /// The queue pair has a connection, or had one. Nothing has changed.
    #[error("the queue pair has or had a connection: make a new one for each")]
    QueuePairInUse,
    /// The queue pair belongs to another device. Nothing has changed.
    #[error("the queue pair belongs to another device: make one on the device of the connection")]
    OtherDevice,
    /// MPA startup failed: MPA error 4 (RFC 5044 §8). The connection is closed.
    #[error("MPA startup failed: {0}")]
    Startup(StartupFault),
    /// The connection ended meanwhile.
    #[error("the connection ended: {0}")]
    Closed(CloseReason),
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// How connections are taken in streaming mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpListenConfig {
    /// Connections that wait for the application, at most, as in
    /// [`ListenConfig`](crate::ListenConfig::backlog). A peer beyond the backlog gets no answer and tries
    /// again.
    pub backlog: u32,
    /// How TCP behaves on them, if not as the device is set up.
    pub tcp: Option<Behaviour>,
    /// Whether listeners share a port, as in [`ListenConfig`](crate::ListenConfig::reuse_address).
    pub reuse_address: bool,
    /// The core that has all of its connections, as in [`ListenConfig`](crate::ListenConfig::core).
    pub core: Option<u8>,
}

impl Default for TcpListenConfig {
    /// Returns a backlog of 128, TCP as on the device, connections at all cores.
    fn default() -> Self {
        Self { backlog: 128, tcp: None, reuse_address: false, core: None }
    }
}
