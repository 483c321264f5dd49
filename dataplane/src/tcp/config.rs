//! The configuration of a connection.

use core::num::NonZeroU32;

use super::congestion::Algorithm;
use super::ecn::EcnPolicy;

/// The parameters of a connection, from its path, its core and its user.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The largest segment that this end accepts, in octets of payload and options: the MTU less the IP and
    /// TCP headers.
    pub mss_octets: u16,
    /// The largest receive window in octets, at most
    /// [`limits::WINDOW_BYTES_MAX`](crate::limits::WINDOW_BYTES_MAX).
    pub window_octets: u32,
    /// The offset of the timestamp clock, different for each pair of addresses and ports (RFC 7323 §7.1).
    pub timestamp_offset: u32,
    /// The behaviour that the user has chosen.
    pub behaviour: Behaviour,
}

/// The behaviour that a user may choose for a connection, or for all connections of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// The congestion control algorithm.
    pub congestion: Algorithm,
    /// Whether to use ECN. DCTCP always requests it.
    pub ecn: EcnPolicy,
    /// Offer and accept selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offer and accept timestamps (RFC 7323). They take twelve bytes of each segment.
    pub timestamps: bool,
    /// Offer and accept the TCP RDMA option (draft-csapuntz-tcprdma-00). Experimental, and off by default.
    pub rdma_option: bool,
    /// The Nagle algorithm: a segment smaller than the EMSS waits until nothing is in flight (RFC 9293
    /// §3.7.4). Off by default, because an FPDU held back delays its message (RFC 5044 App. A.2).
    // Requirements: MPA-5.1-03, C00-7.3-04
    pub nagle: bool,
    /// Pace the segments of a window over the round trip.
    pub pacing: bool,
    /// How much the connection may send, in kilobytes (1000 bytes) of payload a second. Segments leave at
    /// that pace, retransmissions among them; after rest two milliseconds' worth leaves at once, a segment at
    /// least.
    pub rate_limit_kbps: Option<NonZeroU32>,
    /// Probe an idle peer (RFC 9293 §3.8.4).
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
            rdma_option: false,
            nagle: false,
            pacing: true,
            rate_limit_kbps: None,
            keepalive: None,
            user_timeout_ms: None,
        }
    }
}

impl Behaviour {
    /// Whether a SYN of this end requests ECN.
    pub(super) fn requests_ecn(&self) -> bool {
        self.ecn == EcnPolicy::Request || self.congestion == Algorithm::Dctcp
    }

    /// Whether this end accepts ECN if a SYN requests it.
    pub(super) fn accepts_ecn(&self) -> bool {
        self.ecn != EcnPolicy::Off || self.congestion == Algorithm::Dctcp
    }
}

/// When a connection gives its peer up, where that differs from its [`Behaviour`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTimeouts {
    /// As [`Behaviour::user_timeout_ms`]; `None` leaves it.
    pub user_timeout_ms: Option<u32>,
    /// As [`Behaviour::keepalive`]; `None` leaves it.
    pub keepalive: Option<Keepalive>,
}

/// When an idle peer is probed, and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe, in milliseconds.
    pub idle_ms: u32,
    /// Time between probes, in milliseconds.
    pub interval_ms: u32,
    /// Probes without an answer after which the connection has failed.
    pub probes: u8,
}

impl Keepalive {
    /// Returns probes that give a peer up after `silence_ms` milliseconds without a segment of it: half of
    /// the time is idle, then three probes share the rest.
    pub const fn within_ms(silence_ms: u32) -> Self {
        let idle_ms = silence_ms / 2;
        let interval_ms = (silence_ms - idle_ms) / 3;
        Self {
            idle_ms: if idle_ms == 0 { 1 } else { idle_ms },
            interval_ms: if interval_ms == 0 { 1 } else { interval_ms },
            probes: 3,
        }
    }
}

impl Default for Keepalive {
    /// Two hours (RFC 9293 §3.8.4), then nine probes, one every 75 seconds.
    fn default() -> Self {
        Self { idle_ms: 7_200_000, interval_ms: 75_000, probes: 9 }
    }
}
