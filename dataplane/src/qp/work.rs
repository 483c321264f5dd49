//! Work requests and completions.

use core::fmt;

use super::error::StreamError;
use crate::memory::{Binding, FastRegistration, STag};

pub use super::payload::{InlineData, Payload, Slice, SliceList, TooLongForInline, TooManySlices};

/// Identifies a queue pair of a core.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNumber(pub u32);

/// Identifies a completion queue of the process in asynchronous events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqNumber(pub u32);

/// Identifies a shared receive queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SrqNumber(pub u32);

impl fmt::Debug for QpNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {}", self.0)
    }
}

/// The operation of a send work request, with its parameters.
// Requirements: RDMAP-3.2-01
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// RDMAP Send: the bytes arrive in the buffer of a receive work request of the peer (RFC 5040 §5.3).
    Send {
        /// An STag of the peer that it invalidates when the message is Delivered.
        invalidate: Option<STag>,
        /// Whether the message is to wake a peer that waits for a solicited event.
        solicited: bool,
    },
    /// RDMA Write: the bytes arrive in the peer's memory (RFC 5040 §5.1).
    Write {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
    },
    /// RDMA Write, then Immediate Data: eight bytes that complete a receive of the peer (RFC 7306 §6).
    WriteWithImmediate {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
        /// The eight bytes, most significant first on the wire.
        immediate: u64,
        /// Whether it is to wake a peer that sleeps until such a message.
        solicited: bool,
    },
    /// Immediate Data without a Write.
    Immediate {
        /// The eight bytes, most significant first on the wire.
        immediate: u64,
        /// Whether it is to wake a peer that sleeps until such a message.
        solicited: bool,
    },
    /// RDMA Read: bytes of the peer's memory arrive in the one range of `local`, as many as it has (RFC 5040
    /// §5.2).
    Read {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
    },
    /// Adds to eight bytes of the peer's memory, aligned to eight (RFC 7306 §5.1.1). The value before is
    /// placed in `local`. Values are integers in the byte order of each machine.
    FetchAdd {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
        /// The value that is added.
        add: u64,
        /// The most significant bit of each field that is added to on its own; zero for one field of 64 bits.
        mask: u64,
    },
    /// Replaces bits of eight bytes of the peer's memory if other bits are as expected (RFC 7306 §5.1.2).
    /// Otherwise as [`FetchAdd`](Self::FetchAdd).
    CompareSwap {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
        /// The expected value.
        compare: u64,
        /// The bits of it that are compared.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits that are replaced.
        swap_mask: u64,
    },
    /// Replaces bits of eight bytes of the peer's memory. On the wire it is a
    /// [`CompareSwap`](Self::CompareSwap) that compares no bits.
    Swap {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
        /// The new value.
        swap: u64,
        /// The bits that are replaced.
        mask: u64,
    },
    /// Invalidates an STag of this end, when all requests before it are complete.
    LocalInvalidate {
        /// The registration, or the window.
        stag: STag,
    },
    /// Binds a memory window to a part of a registration, for the peer of this queue pair only, when all
    /// requests before it are complete.
    Bind(Binding),
    /// Binds a memory window as [`Bind`](Self::Bind) does, whether it is bound or not: what it opened before
    /// is closed first.
    Rebind(Binding),
    /// Closes a memory window, when all requests before it are complete. One that is not bound stays so.
    Unbind {
        /// The window: its slot, with any key.
        window: STag,
    },
    /// Registers memory again that is registered already, with another key, when all requests before it are
    /// complete (fast registration). For all streams of a device with several cores it fails if one of these
    /// that has the memory is not polled for five seconds.
    Register(FastRegistration),
}

impl Operation {
    /// Whether the peer answers it: RDMA Reads and Atomic Operations.
    #[inline]
    pub const fn expects_response(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::FetchAdd { .. } | Self::CompareSwap { .. } | Self::Swap { .. }
        )
    }

    /// Whether the payload of the message is the request's memory.
    #[inline]
    pub const fn sends_local(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Write { .. })
    }

    /// The kind that its completion names.
    pub const fn kind(&self) -> CompletionKind {
        match self {
            Self::Send { .. } | Self::Immediate { .. } => CompletionKind::Send,
            Self::Write { .. } | Self::WriteWithImmediate { .. } => CompletionKind::Write,
            Self::Read { .. } => CompletionKind::Read,
            Self::FetchAdd { .. } => CompletionKind::FetchAdd,
            Self::CompareSwap { .. } | Self::Swap { .. } => CompletionKind::CompareSwap,
            Self::LocalInvalidate { .. } => CompletionKind::LocalInvalidate,
            Self::Bind(_) | Self::Rebind(_) | Self::Unbind { .. } => CompletionKind::Bind,
            Self::Register(_) => CompletionKind::Register,
        }
    }

    /// A Send without options.
    pub const SEND: Self = Self::Send { invalidate: None, solicited: false };
}

/// A work request on the send queue. The registered memory of `local` belongs to the stack until the
/// completion.
///
/// The memory is read whenever a segment is built, also for a retransmission. If the application, a peer with
/// the right, or another request writes to it meanwhile, each FPDU carries either old or new bytes, and
/// nothing else is affected (RFC 5040 §5.5): the CRC of each FPDU covers the bytes that it carries. After
/// the completion the memory is not read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The application's `wr_id`.
    pub id: u64,
    /// The operation.
    pub operation: Operation,
    /// The local memory, or the inline data.
    pub local: Payload,
    /// Whether success is reported. Failure always is, but a request that is not signaled reserves no entry
    /// in the completion queue: if it fails or is flushed and no entry is free, its completion is left out
    /// ([`CompletionQueueOverflow`](super::async_event::AsyncEvent::CompletionQueueOverflow)). The completion
    /// of a signaled request after it covers both.
    pub signaled: bool,
    /// Whether it waits until the peer has answered all Reads and Atomic Operations posted before it (RFC
    /// 5040 §5.5), for requests that depend on their results.
    pub fenced: bool,
}

impl SendRequest {
    /// A request that is signaled and not fenced.
    pub fn new(id: u64, operation: Operation, local: impl Into<Payload>) -> Self {
        Self { id, operation, local: local.into(), signaled: true, fenced: false }
    }
}

/// A work request on the receive queue: a buffer for one Send of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The application's `wr_id`.
    pub id: u64,
    /// The buffer.
    pub local: SliceList,
}

impl ReceiveRequest {
    /// A buffer for one Send of the peer.
    pub fn new(id: u64, local: impl Into<SliceList>) -> Self {
        Self { id, local: local.into() }
    }

    /// Bytes of the longest message that fits the buffer. A message has at most 2^32 - 1, however large the
    /// buffer is.
    // Requirements: DDP-5.2-02
    pub(super) fn longest_message(&self) -> u64 {
        self.local.byte_len().min(u64::from(u32::MAX))
    }

    /// Its completion.
    #[inline]
    pub(super) fn completion(&self, qp: QpNumber, status: Status, octets: u32) -> Completion {
        Completion::new(qp, self.id, CompletionKind::Receive, status, octets).marked(self.local.lender)
    }
}

/// The kind of work that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// An RDMAP Send.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// An atomic addition.
    FetchAdd,
    /// An atomic exchange.
    CompareSwap,
    /// The invalidation of an STag of this end.
    LocalInvalidate,
    /// The binding of a window, or the end of one.
    Bind,
    /// A registration by a work request.
    Register,
    /// A received Send, or Immediate Data.
    Receive,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Success. For sends, TCP has the acknowledgement of the last byte, which does not mean that the peer
    /// has accepted the message; for receives, the message was Delivered.
    // Requirements: DDP-5.4-04
    Success,
    /// The payload is longer than a message can be (2^32 - 1 bytes).
    LocalLength,
    /// The queue pair cannot carry out the request: a Read or Atomic Operation although the ends agreed on
    /// none, or without exactly one local range (of eight bytes for an Atomic Operation); or a payload for an
    /// operation that has none.
    LocalOperation,
    /// A local range is not registered, not of this Protection Domain or stream, lacks the right, or is out
    /// of bounds; or memory was not registered anew or an STag not invalidated, for a reason of
    /// [`BindError`](crate::memory::BindError) or [`InvalidationError`](crate::memory::InvalidationError).
    LocalProtection,
    /// A window was not bound or closed, for a reason of [`BindError`](crate::memory::BindError) or
    /// [`InvalidationError`](crate::memory::InvalidationError).
    Bind,
    /// The stream failed before this request was complete.
    Failed(StreamError),
    /// The queue pair was closed or had failed: the request was not carried out.
    Flushed,
}

/// One entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The `wr_id` of the work request.
    pub id: u64,
    /// The queue pair.
    pub qp: QpNumber,
    /// The kind of work.
    pub kind: CompletionKind,
    /// How it ended.
    pub status: Status,
    /// For receives, bytes of the message; for sends, bytes sent.
    // Requirements: DDP-5.4-02
    pub byte_len: u32,
    /// The eight bytes of received Immediate Data; the buffer is not touched.
    pub immediate: Option<u64>,
    /// The STag that a received message has invalidated.
    // Requirements: RDMAP-5.3-08
    pub invalidated: Option<STag>,
    /// Whether the sender of a received message has requested a solicited event.
    pub solicited: bool,
    /// Whether `id` is marked by a [lender](super::lender): its number, and its own 32 bits.
    pub(super) lent: bool,
}

impl Completion {
    /// A completion without Immediate Data, invalidation or solicited event.
    pub const fn new(qp: QpNumber, id: u64, kind: CompletionKind, status: Status, byte_len: u32) -> Self {
        let (immediate, invalidated) = (None, None);
        Self { id, qp, kind, status, byte_len, immediate, invalidated, solicited: false, lent: false }
    }
}
