//! What all runs have in common: segments, addresses, how FPDUs lie in segments, and what a run results in.

use std::net::Ipv4Addr;

use serde::Serialize;
use warpline::STag;

/// Bytes of a segment's payload, as in the document's question: what TCP leaves of 1500 bytes beside its
/// timestamps.
pub const EMSS: usize = 1448;
/// Bytes of a frame around it: Ethernet, IPv4, TCP with timestamps.
pub const HEADERS: usize = 14 + 20 + 32;
/// The two hosts.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const SENDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The port that the receiver listens at.
pub const PORT: u16 = 7471;
/// The region that all connections write to.
pub const SINK: STag = STag::new(1, 0x4b);

/// How the sender's FPDUs lie in its segments.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Each segment is one FPDU, and Markers lead to it.
    AlignedMarkers,
    /// Each segment is one FPDU; without Markers the receiver learns that only when all earlier segments have
    /// come.
    Aligned,
    /// FPDUs are longer than segments, made for a path whose MTU has shrunk, or by a TCP that ignores FPDUs.
    Unaligned,
}

impl Framing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AlignedMarkers, Self::Aligned, Self::Unaligned];

    /// Returns true if Markers are in the stream.
    pub const fn markers(self) -> bool {
        matches!(self, Self::AlignedMarkers)
    }

    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AlignedMarkers => "aligned, Markers",
            Self::Aligned => "aligned, no Markers",
            Self::Unaligned => "not aligned",
        }
    }
}

/// The result of one run.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Outcome {
    pub connections: u32,
    pub framing: Framing,
    /// FPDUs placed and delivered: all that were sent.
    pub fpdus: u64,
    /// Segments that came beyond a gap.
    pub out_of_order_segments: u64,
    /// Segments sent again, because they had no room at the receiver or their acknowledgement was late.
    pub retransmitted_segments: u64,
    /// The most frames kept at one time, over all connections.
    pub held_frames_peak: usize,
    /// Their bytes.
    pub held_bytes_peak: usize,
    /// Bytes of user data copied for each byte delivered.
    pub copied_per_byte: f64,
}
