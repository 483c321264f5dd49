//! Work requests and completions: what an application and a core tell each other about data.

use core::fmt;

use super::error::StreamError;
use crate::memory::{Binding, FastRegistration, STag};

pub use super::payload::{InlineData, Payload, Slice, SliceList, TooLongForInline, TooManySlices};

/// Names a queue pair of a core.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNumber(pub u32);

impl fmt::Debug for QpNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {}", self.0)
    }
}

/// What a send work request does, with what its user has to say of it.
// Requirements: RDMAP-3.2-01
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// RDMAP Send: the octets arrive in the buffer of a receive work request of the peer (RFC 5040 §5.3).
    Send {
        /// An STag of the peer that it invalidates when the message is Delivered.
        invalidate: Option<STag>,
        /// Whether the message is to wake a peer that sleeps until such a one.
        solicited: bool,
    },
    /// RDMA Write: the octets arrive in the peer's memory (RFC 5040 §5.1).
    Write {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
    },
    /// RDMA Write, then Immediate Data: eight octets that complete a receive of the peer (RFC 7306 §6).
    WriteWithImmediate {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
        /// The eight octets, most significant first on the wire.
        immediate: u64,
        /// Whether it is to wake a peer that sleeps until such a message.
        solicited: bool,
    },
    /// Immediate Data alone.
    Immediate {
        /// The eight octets, most significant first on the wire.
        immediate: u64,
        /// Whether it is to wake a peer that sleeps until such a message.
        solicited: bool,
    },
    /// RDMA Read: octets of the peer's memory arrive in the one range of `local`, as many as it has (RFC 5040
    /// §5.2).
    Read {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
    },
    /// Adds to eight octets of the peer's memory, aligned to eight (RFC 7306 §5.1.1). Their value before
    /// comes to `local`. Values are integers of this end and of that one, whatever the order of their octets
    /// there.
    FetchAdd {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
        /// What is added.
        add: u64,
        /// The most significant bit of each field that is added to on its own; zero for one field of 64 bits.
        mask: u64,
    },
    /// Replaces bits of eight octets of the peer's memory if other bits are as expected (RFC 7306 §5.1.2). As
    /// above else.
    CompareSwap {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
        /// What is expected.
        compare: u64,
        /// The bits of it that matter.
        compare_mask: u64,
        /// What comes instead.
        swap: u64,
        /// The bits that are replaced.
        swap_mask: u64,
    },
    /// Replaces bits of eight octets of the peer's memory. As above else; on the wire it is a
    /// [`CompareSwap`](Self::CompareSwap) that compares nothing.
    Swap {
        /// The peer's registration.
        stag: STag,
        /// The Tagged Offset in it.
        to: u64,
        /// What comes instead.
        swap: u64,
        /// The bits that are replaced.
        mask: u64,
    },
    /// Takes a registration of this end out of the reach of peers, when all requests before it are complete.
    LocalInvalidate {
        /// The registration, or the window.
        stag: STag,
    },
    /// Gives a window on a part of a registration to the peer of this queue pair alone, when all requests
    /// before it are complete.
    Bind(Binding),
    /// Registers memory that is registered already anew, under another key, when all requests before it are
    /// complete.
    Register(FastRegistration),
}

impl Operation {
    /// Whether it waits for an answer of the peer.
    #[inline]
    pub const fn expects_response(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::FetchAdd { .. } | Self::CompareSwap { .. } | Self::Swap { .. }
        )
    }

    /// Whether the octets of the request's memory are what is sent.
    #[inline]
    pub const fn sends_local(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Write { .. })
    }

    /// The kind its completion names.
    pub const fn kind(&self) -> CompletionKind {
        match self {
            Self::Send { .. } | Self::Immediate { .. } => CompletionKind::Send,
            Self::Write { .. } | Self::WriteWithImmediate { .. } => CompletionKind::Write,
            Self::Read { .. } => CompletionKind::Read,
            Self::FetchAdd { .. } => CompletionKind::FetchAdd,
            Self::CompareSwap { .. } | Self::Swap { .. } => CompletionKind::CompareSwap,
            Self::LocalInvalidate { .. } => CompletionKind::LocalInvalidate,
            Self::Bind(_) => CompletionKind::Bind,
            Self::Register(_) => CompletionKind::Register,
        }
    }

    /// A Send and nothing more.
    pub const SEND: Self = Self::Send { invalidate: None, solicited: false };
}

/// A work request on the send queue. The registered memory of `local` belongs to the stack until the
/// completion.
///
/// What is sent is read from there whenever a segment is built, also to be sent again. If somebody writes to
/// it meanwhile, the application, a peer with the right to, or another request, what arrives is old or new
/// octets, in a mixture of whole FPDUs, and nothing else suffers (RFC 5040 §5.5): each FPDU has a CRC over
/// the octets that it carries. After the completion nothing is read from there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The application's name for it.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// The octets to send.
    pub local: Payload,
    /// Whether success is reported. Failure always is, but a request that is not signaled reserves no place
    /// in the completion queue: one that finds none free when it fails or is flushed is left out
    /// ([`CompletionQueueOverflow`](super::async_event::AsyncEvent::CompletionQueueOverflow)). A signaled one
    /// behind it tells of both.
    pub signaled: bool,
    /// Whether it waits until the peer has answered all Reads and Atomic Operations posted before it (RFC
    /// 5040 §5.5): for what depends on what they bring.
    pub fenced: bool,
}

impl SendRequest {
    /// A request whose success is reported, and that waits for no other.
    pub fn new(id: u64, operation: Operation, local: impl Into<Payload>) -> Self {
        Self { id, operation, local: local.into(), signaled: true, fenced: false }
    }
}

/// A work request on the receive queue: a buffer for one Send of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The application's name for it.
    pub id: u64,
    /// The buffer.
    pub local: SliceList,
}

impl ReceiveRequest {
    /// A buffer for one Send of the peer.
    pub fn new(id: u64, local: impl Into<SliceList>) -> Self {
        Self { id, local: local.into() }
    }

    /// Octets of the longest message that the buffer takes. A message has no more than 2^32 - 1, however
    /// large the buffer.
    // Requirements: DDP-5.2-02
    pub(super) fn longest_message(&self) -> u64 {
        self.local.octets().min(u64::from(u32::MAX))
    }

    /// Its completion.
    pub(super) fn completion(&self, qp: QpNumber, status: Status, octets: u32) -> Completion {
        Completion::new(qp, self.id, CompletionKind::Receive, status, octets).marked(self.local.lender)
    }
}

/// What kind of work a completion is of.
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
    /// The binding of a window.
    Bind,
    /// A registration by a work request.
    Register,
    /// A received Send, or Immediate Data.
    Receive,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done: for sends, TCP has the acknowledgement of the last octet, which says nothing of what the peer
    /// made of it; for receives, the message was Delivered.
    // Requirements: DDP-5.4-04
    Success,
    /// The octets are more than a message can have (2^32 - 1).
    LocalLength,
    /// The request is none that this queue pair can do: a Read or Atomic Operation where the ends agreed on
    /// none, or without just one range of memory to come to (of eight octets for an Atomic Operation); octets
    /// where none belong.
    LocalOperation,
    /// A local range is not registered, not of this Protection Domain or stream, lacks the right, or is out
    /// of bounds.
    LocalProtection,
    /// A window was not bound, for the reason that [`BindError`](crate::memory::BindError) would name.
    Bind,
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
    /// For receives, octets of the message; for sends, octets sent.
    // Requirements: DDP-5.4-02
    pub octets: u32,
    /// Of received Immediate Data, its eight octets; nothing of it is in the buffer.
    pub immediate: Option<u64>,
    /// Of a received message, the STag that it has invalidated.
    // Requirements: RDMAP-5.3-08
    pub invalidated: Option<STag>,
    /// Of a received message, whether its sender asked for an Event.
    pub solicited: bool,
    /// Whether the name is that of a [lender](super::lender): its number, and what it called the request.
    pub(super) lent: bool,
}

impl Completion {
    /// An end without anything special to it.
    pub const fn new(qp: QpNumber, id: u64, kind: CompletionKind, status: Status, octets: u32) -> Self {
        let (immediate, invalidated) = (None, None);
        Self { id, qp, kind, status, octets, immediate, invalidated, solicited: false, lent: false }
    }
}
