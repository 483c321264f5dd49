//! The segments of one connection that follow each other in a burst of received frames.

use crate::tcp::{Changes, Refusal};
use crate::wire::segment::Segment;

/// The frames of a burst after the one that is handled.
pub(crate) trait Burst<F> {
    /// Returns true if there are no more.
    fn is_empty(&self) -> bool;

    /// Dequeues the next frame if its segment follows `segment`, the first of the burst or one that has
    /// followed it, and makes `segment` that one.
    fn next_after(&mut self, segment: &mut Segment) -> Option<F>;

    /// Recycles a frame that is of no more use.
    fn recycle(&mut self, frame: F);
}

/// What became of segments of a burst.
pub(crate) struct BurstOutcome<F> {
    /// What has changed in TCP.
    pub changes: Changes,
    /// Why TCP refused the last of them.
    pub refusal: Option<Refusal>,
    /// The frame of a segment that [`on_segment`](super::Endpoint::on_segment) has to handle.
    pub unexpected: Option<F>,
}
