//! The result of a run.

use serde::Serialize;

use super::scenario::Framing;

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
