//! Work requests and completions: what an application and a core tell each other about data.

use core::fmt;

use super::error::StreamError;
use crate::memory::STag;

/// Names a queue pair of a core.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNumber(pub u32);

impl fmt::Debug for QpNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {}", self.0)
    }
}

/// A range of registered memory of this end: the scatter/gather element of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slice {
    /// The registration.
    pub stag: STag,
    /// The Tagged Offset of the first octet.
    pub to: u64,
    /// Octets.
    pub octets: u32,
}

/// What a send work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// RDMAP Send: the octets arrive in the buffer of a receive work request of the peer (RFC 5040 §5.3).
    Send,
    /// RDMA Write: the octets arrive in the peer's memory (RFC 5040 §5.1).
    Write {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
    },
}

/// A work request on the send queue. The octets of `local` belong to the stack until the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The application's name for it.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// The octets to send.
    pub local: Slice,
    /// Whether success is reported. Failure always is.
    pub signaled: bool,
}

/// A work request on the receive queue: a buffer for one Send of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The application's name for it.
    pub id: u64,
    /// The buffer.
    pub local: Slice,
}

/// What kind of work a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// An RDMAP Send.
    Send,
    /// An RDMA Write.
    Write,
    /// A received Send.
    Receive,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done: for sends, TCP has the acknowledgement of the last octet; for receives, the message was Delivered.
    Success,
    /// The local range is not registered, not of this Protection Domain, lacks the right, or is out of bounds.
    LocalProtection,
    /// The stream failed while or before this request was worked on.
    Failed(StreamError),
    /// The queue pair was closed or failed earlier: the request was not worked on.
    Flushed,
}

/// One entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The work request's name.
    pub id: u64,
    /// The queue pair.
    pub qp: QpNumber,
    /// What kind of work.
    pub kind: CompletionKind,
    /// How it ended.
    pub status: Status,
    /// For receives, octets of the message (DDP-5.4-02); for sends, octets sent.
    pub octets: u32,
}
