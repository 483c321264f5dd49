//! Hooks of tests and fuzz targets: what the cores of a thread have done.

use crate::net;
use crate::qp::shared::BadRequest;
use crate::qp::shared_receive_queue::SharedReceiveQueue;
use crate::qp::work::ReceiveRequest;
use crate::tally;

/// Returns how often the cores of this thread have computed the checksum of a segment that has arrived.
#[doc(hidden)]
pub fn checksums_computed() -> u64 {
    net::testing::sums()
}

/// Posts receives as a thread does that is interrupted once it has claimed their positions, and goes on after
/// `meanwhile`.
///
/// # Errors
///
/// As [`SharedReceiveQueue::post`].
#[doc(hidden)]
pub fn post_interrupted(
    queue: &SharedReceiveQueue,
    requests: &[ReceiveRequest],
    meanwhile: impl FnOnce(),
) -> Result<(), BadRequest> {
    queue.post_interrupted(requests, meanwhile)
}

/// Returns how many connections, queue pairs, timers and STags the cores of this thread have looked at, each
/// as often as they did.
#[doc(hidden)]
pub fn visits() -> u64 {
    tally::visits()
}

/// Returns how often the cores of this thread have written to lines that other cores of a device use, queues
/// that an application shares among them left out.
#[doc(hidden)]
pub fn shared_writes() -> u64 {
    tally::shared_writes()
}
