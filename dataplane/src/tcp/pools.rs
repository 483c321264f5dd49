//! The memory and the limits that all connections of a core share.

use crate::rate_limit::RateLimit;

use super::receive_queue::HeldPool;
use super::scan_budget::ScanBudget;
use super::send_queue::SegmentPool;

/// The frames and descriptors of all connections of a core.
pub struct Pools<P, F> {
    /// Descriptors of data to send.
    pub segments: SegmentPool<P>,
    /// Frames received and not consumed.
    pub held: HeldPool<F>,
    /// The limit on answers to segments that are not acceptable.
    pub challenges: RateLimit,
    /// The limit on segments of send queues that are looked at.
    pub scan_budget: ScanBudget,
}
