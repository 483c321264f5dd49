//! The message that is being received.

use crate::qp::work::ReceiveRequest;

/// A message being received into a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub request: ReceiveRequest,
    /// Octets placed: the offset at which the next segment must begin.
    pub placed: u32,
}
