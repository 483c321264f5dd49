//! How connections are opened, between which addresses, and why not.

use std::net::SocketAddr;
use std::time::Duration;

use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::ring::FlowKey;
use warpline_dataplane::tcp::{Behaviour, CloseReason};

use super::device::Stopped;
use super::startup::{
    ENHANCED_PRIVATE_DATA_MAX_BYTES, PRIVATE_DATA_MAX_BYTES, Peer, PrivateDataTooLong, ReadDepths,
    StartupFault, Terms,
};

/// The addresses and ports of a TCP connection (RFC 9293 §4, "socket pair"), as this end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketPair {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl From<FlowKey> for SocketPair {
    fn from(flow: FlowKey) -> Self {
        Self { local: flow.local_end(), remote: flow.remote_end() }
    }
}

/// The time that MPA startup may take by default (RFC 5044 §7.1.2 rule 10).
pub const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The revision of MPA in our Request, and with it what can be negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Revision {
    /// Revision 0, as the RDMA Consortium's endpoints have it: Markers and CRCs in both directions, version 0
    /// of DDP and RDMAP. For peers that know nothing else; those that are not permissive close.
    Zero,
    /// Revision 1 (RFC 5044). The ULPs see to it that neither overruns the other with RDMA Reads. Linux siw
    /// then does not read from us.
    One,
    /// Revision 2 (RFC 6581): the [terms](ConnectConfig::terms) are negotiated. Peers of before 2012 close.
    Two,
    /// Revision 2, and revision 1 on a new TCP connection if the peer does not support it: if it closes or
    /// resets without a reply, or replies with a lower revision. With more Private Data than an enhanced
    /// Request holds, or terms that ask for nothing of revision 2, revision 1 at once.
    // Requirements: MPAv2-10-05
    #[default]
    TwoThenOne,
}

impl Revision {
    /// Returns the revision to try first.
    pub(crate) const fn first(self, terms: Terms, private_data_len: usize) -> u8 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
            Self::TwoThenOne if !terms.enhances() || private_data_len > ENHANCED_PRIVATE_DATA_MAX_BYTES => 1,
            Self::Two | Self::TwoThenOne => 2,
        }
    }
}

/// How a connection is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectConfig {
    /// What the peer's application gets to see before it decides, at most 512 bytes.
    pub private_data: Vec<u8>,
    /// Whether the peer is asked to insert Markers in what it sends, so that what arrives out of order can be
    /// placed at once (RFC 5044 §4.3). Linux siw refuses connections that ask for them.
    pub markers: bool,
    /// The revision of MPA.
    pub revision: Revision,
    /// What an enhanced Request asks for: depths of RDMA Reads, and with indications to choose from, the
    /// peer-to-peer model in which the Responder may send first. With depths that are not negotiated and no
    /// indication there is nothing to ask for, and the Request is not enhanced.
    // Requirements: MPAv2-5-02, MPAv2-10-03
    pub terms: Terms,
    /// Whether the peer may be one of the RDMA Consortium's: it answers in revision 0, and the connection
    /// then has version 0 of DDP and RDMAP, Markers and CRCs (RFC 5044 appendix C).
    pub permissive: bool,
    /// Whether a peer of MPA revision 2 that stays silent after our first message is sent up to
    /// [`NUDGES`](warpline_dataplane::limits::NUDGES) RDMA Writes without payload. Linux siw may overlook a
    /// first message that comes right after its Reply, and hangs until more bytes come. Such Writes are
    /// lawful between any two messages (RFC 5040 §5.1) and no application sees them.
    pub nudges: bool,
    /// The time that TCP's handshake and MPA startup may take together.
    pub timeout: Duration,
    /// How long a peer that refuses is asked again, every ten milliseconds: one that will listen in a moment.
    /// None by default: the first refusal counts.
    pub refused_patience: Duration,
    /// How TCP behaves, if not as the device is set up.
    pub tcp: Option<Behaviour>,
    /// The local address and port. The device chooses what is not given: an unspecified address, port 0.
    pub local: Option<SocketAddr>,
    /// The core that serves the connection; the device takes its cores in turn if none is given.
    pub core: Option<u8>,
}

impl Default for ConnectConfig {
    /// Returns no Private Data, no Markers, revision 2 or else 1, the client-server model, not permissive,
    /// nudges, ten seconds, TCP as on the device, any local address and port, any core.
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            markers: false,
            revision: Revision::TwoThenOne,
            terms: Terms::initiator(),
            permissive: false,
            nudges: true,
            timeout: STARTUP_TIMEOUT,
            refused_patience: Duration::ZERO,
            tcp: None,
            local: None,
            core: None,
        }
    }
}

/// What the peer said when it accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connected {
    /// Its Private Data.
    pub private_data: Box<[u8]>,
    /// What else its Reply said: the revision, and its IRD and ORD.
    // Requirements: MPAv2-9.1-08
    pub peer: Peer,
    /// The version of DDP and RDMAP: 1, or 0 with a peer of the RDMA Consortium's.
    // Requirements: RDMAC-C.2.5-02
    pub version: u8,
    /// Our IRD and ORD on this connection.
    pub depths: ReadDepths,
}

/// Why a connection could not be opened.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no listener at that address and port.
    #[error("connection refused: there is no listener at that address and port")]
    Refused,
    /// The peer did not answer in time.
    #[error("the peer did not answer in time: check the address and the network")]
    TimedOut,
    /// The peer's application does not want the connection.
    #[error("the peer's application rejected the connection{}", reason(private_data))]
    Rejected {
        /// The peer's reason, in words of its own.
        private_data: Box<[u8]>,
        /// What else its Reply said. An ORD above our IRD may be the reason.
        // Requirements: MPAv2-9.1-04
        peer: Peer,
    },
    /// The peer accepted on terms that we cannot meet, and received a Terminate for it (RFC 6581 §8): more
    /// RDMA Reads than we take, or no ready-to-receive indication that both have.
    #[error("the peer accepted on terms that cannot be met: {error}")]
    Unmet {
        /// What is missing.
        error: MpaError,
        /// What the peer's Reply said.
        peer: Peer,
    },
    /// MPA startup failed: MPA error 4 (RFC 5044 §8).
    #[error("MPA startup failed: {0}")]
    Startup(StartupFault),
    /// TCP ended during startup.
    #[error("the connection ended during startup: {0}")]
    Closed(CloseReason),
    /// The address is on no network of the device, and no route leads to it.
    #[error("no route: the address is on no network of the device, and no route leads to it")]
    NoRoute,
    /// The core serves as many connections as it can.
    #[error("the device has as many connections as it can: close some")]
    TooManyConnections,
    /// A router, or the peer's host, says so (ICMP).
    #[error("the network says that the peer cannot be reached: check the address, and firewalls on the way")]
    Unreachable,
    /// Every local port is in use towards the peer, or the [one asked for](ConnectConfig::local) is.
    #[error("no local port is left for another connection to this peer: close some")]
    NoPort,
    /// The [local address](ConnectConfig::local) is none of the device's.
    #[error("the local address is none of the device's: choose one of those it was started with")]
    NoAddress,
    /// The device has no such [core](ConnectConfig::core), or it is no longer polled.
    #[error("the device has no core {core} that is polled: choose another, or none")]
    NoCore {
        /// The core.
        core: u8,
    },
    /// The core has not answered in time. If it is polled again, the connection ends. A queue pair whose MPA
    /// startup was complete ends with it; any other may try again.
    #[error("core {core} of the device has not answered in time: is it polled?")]
    Unanswered {
        /// The core.
        core: u8,
    },
    /// Segments to the local port that is given come to another core than the one asked for.
    #[error(
        "what the peer sends to that local port comes to core {owner}: choose that core, or another port"
    )]
    OtherCore {
        /// The core that they come to.
        owner: u8,
    },
    /// Streaming bytes of the peer wait to be read: read them, then start MPA.
    // Requirements: MPA-7.1.5-01
    #[error("{len} bytes of streaming data wait to be read: read them before MPA is started")]
    PendingStreamData {
        /// How many.
        len: usize,
    },
    /// MPA has started on the connection already, or it is closed.
    #[error("the connection is not in streaming mode: MPA has started on it, or it is closed")]
    NotStreaming,
    /// The queue pair belongs to another device.
    #[error("the queue pair belongs to another device: make one on the device of the connection")]
    OtherDevice,
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

/// Returns the reason for a rejection as far as it can be read: text is quoted, other Private Data counted
/// and its beginning shown.
fn reason(private_data: &[u8]) -> String {
    /// Bytes that are shown of what is no text.
    const SHOWN: usize = 16;
    if private_data.is_empty() {
        return " without a reason".into();
    }
    // A C program's string has its NUL.
    let text = private_data.strip_suffix(&[0]).unwrap_or(private_data);
    match str::from_utf8(text) {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => format!(": \"{text}\""),
        _ => {
            let octets = private_data.iter().take(SHOWN).map(|octet| format!(" {octet:02x}"));
            let more = if private_data.len() > SHOWN { " ..." } else { "" };
            let unit = if private_data.len() == 1 { "byte" } else { "bytes" };
            let octets = octets.collect::<String>();
            format!(" with {} {unit} of Private Data:{octets}{more}", private_data.len())
        }
    }
}

/// Refuses Private Data that a startup frame with room for `most_octets` does not hold.
// Requirements: MPA-7.1.1-18, MPAv2-9-02
pub(crate) fn check_private_data(private_data: &[u8], max_len: usize) -> Result<(), PrivateDataTooLong> {
    let len = private_data.len();
    if len > max_len { Err(PrivateDataTooLong { len, max_len }) } else { Ok(()) }
}

/// Refuses Private Data that a Request as `config` has it does not hold.
pub(crate) fn check(config: &ConnectConfig) -> Result<(), PrivateDataTooLong> {
    let max_len = match config.revision {
        Revision::Two if config.terms.enhances() => ENHANCED_PRIVATE_DATA_MAX_BYTES,
        Revision::Zero | Revision::One | Revision::Two | Revision::TwoThenOne => PRIVATE_DATA_MAX_BYTES,
    };
    check_private_data(&config.private_data, max_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the peer's application says is shown as it said it, if it is text that cannot harm a terminal.
    #[test]
    fn a_rejection_says_why() {
        let said = |private_data: &[u8]| {
            let peer = Peer { revision: 1, depths: None };
            ConnectError::Rejected { private_data: private_data.into(), peer }.to_string()
        };
        let rejected = "the peer's application rejected the connection";
        for (private_data, reason) in [
            (&b""[..], " without a reason"),
            (b"no room for 3 queue pairs", ": \"no room for 3 queue pairs\""),
            (b"busy\0", ": \"busy\""),
            ("f\u{fc}r dich nicht".as_bytes(), ": \"f\u{fc}r dich nicht\""),
            (b"\0", " with 1 byte of Private Data: 00"),
            (b"\x1b[2J", " with 4 bytes of Private Data: 1b 5b 32 4a"),
            (
                &[0xff; 17],
                " with 17 bytes of Private Data: ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ...",
            ),
        ] {
            assert_eq!(said(private_data), format!("{rejected}{reason}"));
        }
    }
}
