//! How a connection behaves.

use super::congestion::Algorithm;
use super::ecn::EcnPolicy;

/// How a connection is set up: what its path and its core say, and how it is to behave.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest segment we can take, in octets of payload and options: the MTU less the IP and TCP headers.
    pub mss_octets: u16,
    /// Octets we let the peer have in flight, at most
    /// [`limits::WINDOW_OCTETS_MAX`](crate::limits::WINDOW_OCTETS_MAX).
    pub window_octets: u32,
    /// Added to the clock of the timestamps option, different for each pair of addresses and ports (RFC 7323
    /// §7.1).
    pub timestamp_offset: u32,
    /// What the user of the connection chose.
    pub behaviour: Behaviour,
}

/// What a user may choose for a connection, and for all connections of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Who decides how much may be in flight.
    pub congestion: Algorithm,
    /// Whether routers may mark instead of drop. DCTCP asks for it whatever this says.
    pub ecn: EcnPolicy,
    /// Selective acknowledgements are offered and taken (RFC 2018).
    pub sack: bool,
    /// Timestamps are offered and taken (RFC 7323). They cost twelve octets a segment.
    pub timestamps: bool,
    /// A segment smaller than the EMSS waits for what is in flight (RFC 9293 §3.7.4). Off unless asked for:
    /// an FPDU held back delays its message (RFC 5044 App. A.2).
    // Requirements: MPA-5.1-03, C00-7.3-04
    pub nagle: bool,
    /// Windows that open at once leave spread over the round trip.
    pub pacing: bool,
    /// Whether an idle peer is asked if it is still there (RFC 9293 §3.8.4).
    pub keepalive: Option<Keepalive>,
    /// How long data may go unacknowledged, in milliseconds (RFC 9293 §3.9.1, RFC 5482). `None`: as long as
    /// [`limits::RETRANSMIT_ATTEMPTS`](crate::limits::RETRANSMIT_ATTEMPTS) timeouts last.
    pub user_timeout_ms: Option<u32>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            congestion: Algorithm::default(),
            ecn: EcnPolicy::default(),
            sack: true,
            timestamps: true,
            nagle: false,
            pacing: true,
            keepalive: None,
            user_timeout_ms: None,
        }
    }
}

impl Behaviour {
    /// Whether a SYN of ours asks for ECN.
    pub(super) fn requests_ecn(&self) -> bool {
        self.ecn == EcnPolicy::Request || self.congestion == Algorithm::Dctcp
    }

    /// Whether a SYN that asks for ECN gets it.
    pub(super) fn accepts_ecn(&self) -> bool {
        self.ecn != EcnPolicy::Off || self.congestion == Algorithm::Dctcp
    }
}

/// When an idle peer is asked whether it is still there, and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe, in milliseconds.
    pub idle_ms: u32,
    /// Time between probes, in milliseconds.
    pub interval_ms: u32,
    /// Probes without an answer after which the connection has failed.
    pub probes: u8,
}

impl Default for Keepalive {
    /// Two hours (RFC 9293 §3.8.4), then nine probes, one every 75 seconds.
    fn default() -> Self {
        Self { idle_ms: 7_200_000, interval_ms: 75_000, probes: 9 }
    }
}
