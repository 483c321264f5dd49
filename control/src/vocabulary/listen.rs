//! How connections are taken, and why not.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use warpline_dataplane::limits;
use warpline_dataplane::ring::ListenAddress;
use warpline_dataplane::tcp::{Behaviour, CloseReason};

use super::connect::STARTUP_TIMEOUT;
use super::device::{DeviceConfig, Stopped};
use super::startup::{PrivateDataTooLong, ReadDepths, StartupFault, Terms, Unacceptable};

/// The time that the first FPDU may take by default: an Initiator that connects has something to say.
pub const FIRST_FPDU_TIMEOUT: Duration = Duration::from_mins(1);

/// How connections are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenConfig {
    /// Connections that wait for their startup or for the application, at most: one at least, and no more
    /// than [`BACKLOG_MAX`](limits::BACKLOG_MAX); a larger number counts as that. A peer beyond the backlog
    /// gets no answer and tries again. One address holds no more places than it leaves free, all addresses of
    /// an IPv6 network of 64 bits no more than four times as many: of 128, an address alone has 64.
    pub backlog: u32,
    /// Whether the share of an address is bounded so. `false`: one may have as many places as `backlog` says,
    /// for listeners whose peers are known to be few; as many again are for others then.
    pub peer_shares: bool,
    /// Whether peers are asked to insert Markers in what they send (RFC 5044 §4.3). Linux siw refuses that.
    pub markers: bool,
    /// The terms of Replies to enhanced Requests (RFC 6581): at most these depths of RDMA Reads, and which
    /// ready-to-receive indications are taken. Requests of revision 1 are accepted in any case.
    pub terms: Terms,
    /// Whether Initiators of the RDMA Consortium's are taken: those of revision 0, with which the connection
    /// has version 0 of DDP and RDMAP, Markers and CRCs (RFC 5044 appendix C). Otherwise they receive our
    /// revision and are closed.
    pub permissive: bool,
    /// The time that a peer has for its Request (RFC 5044 §7.1.2 rule 10).
    pub startup_timeout: Duration,
    /// The time that the application has to answer a request, from when the request is complete; for ever
    /// without. After it the peer is rejected, its place in the backlog is free, and the application's answer
    /// fails with
    /// [`AnswerError::TimedOut`]. Not for requests on connections that the application has already, from
    /// [`TcpStream::respond`](crate::TcpStream::respond).
    pub decision_timeout: Option<Duration>,
    /// The time that a peer has for its first FPDU after our Reply; for ever without. Until it comes we may
    /// send nothing (RFC 5044 §7.1.2 rules 4 and 10).
    pub first_fpdu_timeout: Option<Duration>,
    /// How TCP behaves on its connections, if not as the device is set up.
    pub tcp: Option<Behaviour>,
    /// Whether other listeners that say the same may have the same port at addresses that this one has too
    /// (`SO_REUSEADDR`, `RDMA_OPTION_ID_REUSEADDR`): one at all addresses and others at some of them. A
    /// connection then belongs to the listener that names its local address most exactly.
    pub reuse_address: bool,
    /// The core that has all of its connections; without one, each connection is at the core that its
    /// addresses and ports lead to. With a core, the port is to be given, and below those of active opens
    /// (49152).
    pub core: Option<u8>,
}

impl Default for ListenConfig {
    /// Returns a backlog of 128 with shares of it, no Markers, any indication, not permissive, ten seconds
    /// for the Request, a minute for the application's answer and another for the first FPDU, TCP as on the
    /// device, no other listener on the same port of the same address, connections at all cores.
    fn default() -> Self {
        Self {
            backlog: 128,
            peer_shares: true,
            markers: false,
            terms: Terms::responder(),
            permissive: false,
            startup_timeout: STARTUP_TIMEOUT,
            decision_timeout: Some(Duration::from_nanos(limits::DECISION_NS)),
            first_fpdu_timeout: Some(FIRST_FPDU_TIMEOUT),
            tcp: None,
            reuse_address: false,
            core: None,
        }
    }
}

/// Why there is no listener.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// There is a listener at that port of that address, or of all addresses, or of one of them, and not both
    /// [share](ListenConfig::reuse_address) it.
    #[error("port {0} has a listener: choose another, or drop that one")]
    PortInUse(u16),
    /// A program has the port from the kernel, whose address the device shares.
    #[error("port {0} is in use in the kernel, whose address this is: choose another")]
    PortOfKernel(u16),
    /// The kernel does not leave the port to the device, which shares its address.
    #[error("the kernel does not leave port {port} to the device: error {errno}")]
    NotHeld {
        /// The port; 0 if a free one was asked for.
        port: u16,
        /// The error of the kernel (errno(3)).
        errno: i32,
    },
    /// The address is none of the device's.
    #[error("{0} is no address of the device: choose one of those it was started with")]
    NoAddress(IpAddr),
    /// The device has no such [core](ListenConfig::core), or it is no longer polled.
    #[error("the device has no core {core} that is polled: choose another, or none")]
    NoCore {
        /// The core.
        core: u8,
    },
    /// The port had a listener at other cores than those that the listener asks for, or this end has a
    /// connection that it has opened from the port.
    #[error("port {0} is or was used at other cores: choose another port, or the same cores as before")]
    OtherCore(u16),
    /// A port of active opens cannot be one core's.
    #[error("port {0} may be that of a connection this end opens: with a core, choose a port below 49152")]
    NoPortOfCore(u16),
    /// The device has as many listeners as it can.
    #[error("the device has as many listeners as it can: drop some")]
    TooManyListeners,
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why there is no connection request.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// No peer connected in time.
    #[error("no peer connected in time")]
    TimedOut,
    /// A peer connected and failed at MPA startup, with MPA error 4. It is that peer's fault alone: go on
    /// accepting.
    // Requirements: MPA-7.1.1-02, MPA-8-06
    #[error("MPA startup with {remote} failed: {fault}")]
    Startup {
        /// The peer.
        remote: SocketAddr,
        /// What was wrong.
        fault: StartupFault,
    },
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a connection request could not be answered.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The peer broke the rules of MPA startup while it waited for the answer, or gave up.
    #[error("MPA startup failed: {0}")]
    Startup(StartupFault),
    /// The answer came after the listener's [`decision_timeout`](ListenConfig::decision_timeout): the peer
    /// was rejected.
    #[error("the answer came too late: the peer was rejected after the listener's decision_timeout")]
    TimedOut,
    /// The connection ended meanwhile.
    #[error("the connection ended while it waited for the answer: {0}")]
    Closed(CloseReason),
    /// The core of the connection has not answered in time. If it is polled again, the connection ends, and
    /// the queue pair with it.
    #[error("core {core} of the device has not answered in time: is it polled?")]
    Unanswered {
        /// The core.
        core: u8,
    },
    /// The queue pair has a connection, or had one. The request is rejected.
    #[error("the queue pair has or had a connection: make a new one for each")]
    QueuePairInUse,
    /// The queue pair belongs to another device. The request is rejected.
    #[error("the queue pair belongs to another device: make one on the device that listens")]
    OtherDevice,
    /// More than a startup frame holds. The request is rejected.
    #[error(transparent)]
    PrivateDataTooLong(#[from] PrivateDataTooLong),
    /// The peer takes fewer RDMA Reads at a time than this end needs. The request is rejected, and the Reply
    /// states how many that are (RFC 6581 §9.1).
    #[error("the peer takes {offered} RDMA Reads at a time, fewer than the {needed} needed")]
    InsufficientIrd {
        /// The peer's IRD.
        offered: u16,
        /// Our [`ord_needed`](crate::ReadsWanted::ord_needed).
        needed: u16,
    },
    /// The device has stopped.
    #[error("the device has stopped")]
    Stopped,
}

impl From<Stopped> for AnswerError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<Unacceptable> for AnswerError {
    fn from(why: Unacceptable) -> Self {
        match why {
            Unacceptable::PrivateData(error) => error.into(),
            Unacceptable::InsufficientIrd { offered, needed } => Self::InsufficientIrd { offered, needed },
        }
    }
}

/// How the connection that was accepted runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// The version of DDP and RDMAP: 1, or 0 with a peer of the RDMA Consortium's.
    // Requirements: RDMAC-C.2.4-03
    pub version: u8,
    /// Our IRD and ORD on this connection.
    pub depths: ReadDepths,
}

/// Returns the backlog of a listener that asks for `wanted`: one at least, and
/// [`BACKLOG_MAX`](limits::BACKLOG_MAX) at most.
pub(crate) fn backlog(wanted: u32) -> u32 {
    wanted.clamp(1, limits::BACKLOG_MAX)
}

/// Returns the addresses at which a listener of `device` for `local` listens: at one address; at all IPv4
/// addresses for `0.0.0.0`; at all addresses of either family for `::`.
pub(crate) fn listen_address(device: &DeviceConfig, local: SocketAddr) -> Result<ListenAddress, ListenError> {
    let (address, port) = (local.ip().to_canonical(), local.port());
    let known = address.is_unspecified() || device.addresses.iter().any(|own| own.address == address);
    if !known {
        return Err(ListenError::NoAddress(address));
    }
    let everywhere = address == IpAddr::from(Ipv6Addr::UNSPECIFIED);
    Ok(ListenAddress { address: (!everywhere).then_some(address), port })
}

/// Returns the address that a listener was made with, and the port that it has.
pub(crate) fn socket_address(at: ListenAddress) -> SocketAddr {
    SocketAddr::new(at.address.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), at.port)
}
