//! Why work requests are refused when they are posted.

use super::state::QpState;

/// Why a work request was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue holds as many requests as it was made for: poll completions first.
    #[error("the queue is full: poll completions first")]
    QueueFull,
    /// The completion queue has no place reserved for another completion: poll it first.
    #[error("the completion queue is full: poll it first")]
    CompletionQueueFull,
    /// The queue pair accepts no such work: it is not connected yet (sends), it is destroyed, or no thread
    /// polls its core any more.
    #[error("the queue pair is {0:?}: no work is taken")]
    WrongState(QpState),
    /// The payload is longer than a message can be (2^32 - 1 bytes).
    #[error("the bytes are more than a message can have")]
    TooLong,
    /// A Read or an Atomic Operation on a connection on which the ends agreed on none.
    #[error("the ends agreed on no RDMA Reads and Atomic Operations: set the read depths when connecting")]
    NoReads,
    /// The memory does not fit the operation: a Read needs exactly one range, an Atomic Operation one of
    /// eight bytes, and some operations have no payload.
    #[error(
        "the operation does not go with this memory: a Read has one range, an Atomic Operation one of \
        eight bytes"
    )]
    LocalShape,
    /// The batch holds as many requests as it can.
    #[error("the batch is full: commit it, and begin another")]
    BatchFull,
    /// The queue pair has its receives from a shared receive queue.
    #[error("the queue pair takes its receives from a shared receive queue: post them there")]
    SharedReceives,
    /// The range at the peer is not inside the memory that it has advertised.
    #[error("the range is not inside the {advertised} bytes that the peer has advertised")]
    OutsideAdvertisement {
        /// Bytes advertised.
        advertised: u32,
    },
}

/// The first work request of a list that was refused. Those before it are posted, those after it are not
/// examined.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("work request {posted} of the list was not taken: {error}")]
pub struct BadRequest {
    /// How many requests were posted: the index of the one that was refused.
    pub posted: usize,
    /// Why not.
    pub error: PostError,
}
