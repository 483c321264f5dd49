//! Opening connections.

use std::net::SocketAddr;
use std::time::Duration;

use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::tcp::{Behaviour, CloseReason};

use crate::device::{Shared, Stopped};
use crate::startup::{PRIVATE_DATA_MAX_OCTETS, PrivateDataTooLong, StartupFault};
use crate::thread::request::Request;

/// The time that MPA startup may take unless told otherwise (RFC 5044 §7.1.2 rule 10).
pub const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How a connection is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectConfig {
    /// What the peer's application gets to see before it decides, at most 512 octets.
    pub private_data: Vec<u8>,
    /// Whether the peer is asked to insert Markers in what it sends, so that what arrives out of order can be placed at
    /// once (RFC 5044 §4.3). Linux siw refuses connections that ask for them.
    pub markers: bool,
    /// The time that TCP's handshake and MPA startup may take together.
    pub timeout: Duration,
    /// How TCP behaves, if not as the device is set up.
    pub tcp: Option<Behaviour>,
}

impl Default for ConnectConfig {
    /// No Private Data, no Markers, ten seconds, TCP as on the device.
    fn default() -> Self {
        Self { private_data: Vec::new(), markers: false, timeout: STARTUP_TIMEOUT, tcp: None }
    }
}

/// What the peer said when it accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Its Private Data.
    pub private_data: Box<[u8]>,
}

/// Why a connection could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there.
    #[error("connection refused: nobody listens at that address and port")]
    Refused,
    /// The peer did not answer in time.
    #[error("the peer did not answer in time: check the address and the network")]
    TimedOut,
    /// The peer's application does not want the connection.
    #[error("the peer's application rejected the connection, with {} octets of Private Data", private_data.len())]
    Rejected {
        /// The peer's reason, in words of its own.
        private_data: Box<[u8]>,
    },
    /// MPA startup failed: MPA error 4 (RFC 5044 §8).
    #[error("MPA startup failed: {0}")]
    Startup(StartupFault),
    /// TCP ended during startup.
    #[error("the connection ended during startup: {0}")]
    Closed(CloseReason),
    /// The address is on no network of the device, nor behind a gateway of its routes.
    #[error("no route: the address is on no network of the device, and no route leads to it")]
    NoRoute,
    /// The core serves as many connections as it can.
    #[error("the device has as many connections as it can: close some")]
    TooManyConnections,
    /// A router, or the peer's host, says so (ICMP).
    #[error("the network says that the peer cannot be reached: check the address, and firewalls on the way")]
    Unreachable,
    /// Every local port is in use towards the peer.
    #[error("no local port is left for another connection to this peer: close some")]
    NoPort,
    /// The queue pair has a connection, or had one.
    #[error("the queue pair has or had a connection: make a new one for each")]
    QueuePairInUse,
    /// More than a startup frame holds.
    #[error(transparent)]
    PrivateDataTooLong(#[from] PrivateDataTooLong),
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Refuses Private Data that no startup frame holds (MPA-7.1.1-18).
pub(crate) fn check_private_data(private_data: &[u8]) -> Result<(), PrivateDataTooLong> {
    let octets = private_data.len();
    if octets > PRIVATE_DATA_MAX_OCTETS { Err(PrivateDataTooLong { octets }) } else { Ok(()) }
}

pub(crate) fn connect(
    device: &Shared,
    qp: QpNumber,
    remote: SocketAddr,
    config: &ConnectConfig,
) -> Result<Connected, ConnectError> {
    check_private_data(&config.private_data)?;
    let config = config.clone();
    device.ask(|reply| Request::Connect { qp, remote, config, reply })?
}
