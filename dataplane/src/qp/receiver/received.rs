//! The result of a ULPDU.

use crate::memory::STag;
use crate::qp::error::StreamError;

/// The result of a ULPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Its payload is placed; `octets` were copied.
    Placed {
        /// Octets of payload.
        octets: usize,
    },
    /// It is the last segment of a response to a Read or an Atomic Operation of this end; `octets` were
    /// copied.
    ResponseCompleted {
        /// Octets of payload.
        octets: usize,
    },
    /// It is a request; this end now owes a response.
    RequestAccepted,
    /// It is a ready-to-receive indication, or the response to ours: nothing for the ULP.
    RtrReceived,
    /// It is a ready-to-receive indication that requires a response: an RDMA Read Response without payload.
    RtrReadReceived {
        /// The buffer of the peer.
        stag: STag,
        /// The Tagged Offset in that buffer.
        to: u64,
    },
    /// The peer has terminated the stream.
    Terminated(StreamError),
}
