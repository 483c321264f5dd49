//! How a connection runs in Full Operation.

use core::num::{NonZeroU8, NonZeroU32};

use crate::limits;
use crate::mpa::enhanced::{ReadDepths, ReadyToReceive};
use crate::tcp::PeerTimeouts;
use crate::wire::ddp::DDP_VERSION;

/// How a connection runs in Full Operation: DDP begins at both ends and in both directions together.
// DDP-6.1-01, RDMAP-6.1-01
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullOperation {
    /// Whether this end was the Initiator. The Responder sends nothing before it has an FPDU (MPA-7.1.2-15).
    pub initiator: bool,
    /// We insert Markers: the peer asked for them.
    pub markers_sent: bool,
    /// We expect Markers: we asked for them.
    pub markers_received: bool,
    /// CRCs are generated and checked: either end asked for them (MPA-7.1.1-08).
    pub crc: bool,
    /// Small FPDUs that wait at the same time share a segment (MPA-5.1-04).
    pub packing: bool,
    /// Times in a row that an FPDU with a wrong CRC is dropped in silence, for TCP to bring it again, before
    /// that is error 2 (MPA-8-08).
    pub crc_retries: u8,
    /// How long a Send without a receive waits for one, in nanoseconds; `None` if it is an error at once.
    /// Everything after it waits too, and the window closes.
    pub receive_wait_ns: Option<u64>,
    /// The version of DDP and RDMAP, in both directions: 1, or 0 with an RDMA Consortium peer (RDMAC-C.1-02).
    pub version: u8,
    /// What lets the Responder send.
    pub ready: ReadyToReceive,
    /// How many RDMA Reads may be outstanding.
    pub depths: ReadDepths,
    /// Whether an Initiator nudges a peer that stays silent after its first FPDU: one that negotiates
    /// indications (RFC 6581 §9.2), which are what a nudge looks like.
    pub nudges: bool,
    /// When TCP gives the peer up.
    pub peer_timeouts: PeerTimeouts,
    /// How much TCP may send, as [`Behaviour::rate_limit_kbps`](crate::tcp::Behaviour::rate_limit_kbps);
    /// `None` leaves that.
    pub rate_limit_kbps: Option<NonZeroU32>,
    /// Its weight among the connections of the core: with twice the weight it may send twice as much while
    /// several have much to send.
    pub weight: NonZeroU8,
    /// How many of the octets that control has a copy of, and has not consumed, come before Full Operation:
    /// those of the peer's startup frame. They are consumed as it begins.
    pub startup_octets: u32,
    /// How long the peer's first FPDU may take, in nanoseconds, where this end may send nothing before it;
    /// the stream fails then (MPA-7.1.2-26).
    pub first_fpdu_ns: Option<u64>,
}

impl FullOperation {
    /// Returns Full Operation between ends that negotiate no option: no Markers, CRCs, packing, version 1,
    /// and none of what only an enhanced setup brings.
    pub const fn new(initiator: bool) -> Self {
        Self {
            initiator,
            markers_sent: false,
            markers_received: false,
            crc: true,
            packing: true,
            crc_retries: limits::CRC_RETRIES,
            receive_wait_ns: None,
            version: DDP_VERSION,
            ready: ReadyToReceive::None,
            depths: ReadDepths { ird: 0, ord: 0 },
            nudges: false,
            peer_timeouts: PeerTimeouts { user_timeout_ms: None, keepalive: None },
            rate_limit_kbps: None,
            weight: limits::WEIGHT_USUAL,
            startup_octets: 0,
            first_fpdu_ns: None,
        }
    }

    /// Returns Full Operation as draft-culley-iwarp-mpa-00 has it, with nothing to negotiate: Markers and
    /// CRCs both ways (C00-7.1-01, C00-7.2-01), one FPDU to a segment (C00-7.3-02), either end sends when it
    /// likes (C00-8.1-06). As many Reads as the ULPs have agreed on (RFC 5040 §6.1), up to
    /// [`READ_DEPTH_MAX`](limits::READ_DEPTH_MAX).
    // Requirements: RDMAP-6.1-02
    pub fn unnegotiated(version: u8, depths: ReadDepths) -> Self {
        let bounded = |depth: u16| depth.min(limits::READ_DEPTH_MAX);
        let depths = ReadDepths { ird: bounded(depths.ird), ord: bounded(depths.ord) };
        let base = Self { packing: false, version, depths, ..Self::new(true) };
        Self { markers_sent: true, markers_received: true, ..base }
    }
}

/// The halves of a connection that change over to Full Operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What we send.
    Send,
    /// What we receive.
    Receive,
    /// Both at the same time.
    Both,
}

impl Direction {
    /// Returns true if it includes the octets that we send.
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }

    /// Returns true if it includes the octets that we receive.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }
}
