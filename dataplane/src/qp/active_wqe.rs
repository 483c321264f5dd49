//! A work queue entry that the core works on: the message that it puts on the wire, and its progress.

use super::cqe::{self, CQE_WORDS};
use super::lender::marked_id;
use super::payload::{self, Payload, Slice};
use super::post_error::PostError;
use super::reads::OutboundRequest;
use super::run::{FpduDescriptor, Source};
use super::shared::SharedQp;
use super::work::{Completion, CompletionKind, Operation, SendRequest, Status};
use super::wqe::{CompactWqe, Wqe};
use crate::ddp::segmentation::Message;
use crate::limits;
use crate::memory::{Access, StagTable};
use crate::mpa::fpdu;
use crate::rdmap::message;
use crate::wire::atomic::{AtomicRequest, Masked, VALUE_OCTETS};
use crate::wire::ddp::{Tagged, Untagged};
use crate::wire::rdmap::{Opcode, ReadRequest};
use crate::wire::tcp::SeqNumber;

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not all of it is queued.
    Waiting,
    /// All of it is queued, in segments that end at this sequence number.
    Queued(SeqNumber),
    /// All of it is acknowledged.
    Acknowledged,
}

impl Stage {
    /// Whether all of it is queued, in segments that TCP has acknowledged up to `acknowledged`.
    #[inline]
    pub fn is_acknowledged(self, acknowledged: SeqNumber) -> bool {
        match self {
            Self::Waiting => false,
            Self::Queued(end) => end <= acknowledged,
            Self::Acknowledged => true,
        }
    }
}

/// What a request makes this end do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It sends a [message](ActiveWqe::message).
    Message,
    /// It sends nothing: it changes what this end grants.
    Local,
}

/// A work queue entry under way.
#[derive(Debug)]
pub struct ActiveWqe {
    /// The request. An RDMA Write with Immediate Data becomes two entries, one per message.
    pub request: Wqe,
    /// What it makes this end do.
    pub effect: Effect,
    /// The number of its message on the queue of the peer that it goes to, if it goes to one.
    pub msn: u32,
    /// `Success`, or why it cannot be done.
    pub status: Status,
    /// Its progress.
    pub stage: Stage,
    /// The number of the response it waits for, once it was sent.
    pub response: Option<u32>,
    /// The kind its completion names; `None` for the first message of two, which has no completion of its
    /// own.
    pub kind: Option<CompletionKind>,
    /// Octets that its completion names.
    pub octets: u32,
    /// Frames can refer to its payload in place.
    pub refers: bool,
    /// Octets of its FPDU without Markers, if it is a [short message](super::sender), otherwise 0.
    pub short_octets: u16,
}

/// The sequence numbers (MSNs) of the next messages on the queues of the peer.
// Requirements: DDP-4.3-07, DDP-4.3-08
#[derive(Clone, Copy, Debug)]
pub struct MessageNumbers {
    /// The version of DDP and RDMAP.
    pub version: u8,
    /// Of Sends.
    pub send: u32,
    /// Of Read Requests and Atomic Requests.
    pub read: u32,
}

/// Returns the number and advances it; it wraps to zero.
// Requirements: DDP-4.3-09
pub fn take_number(number: &mut u32) -> u32 {
    let taken = *number;
    *number = number.wrapping_add(1);
    taken
}

impl ActiveWqe {
    /// A request that is not checked yet.
    #[inline]
    pub fn new(request: Wqe) -> Self {
        let (effect, status, stage) = (Effect::Local, Status::Success, Stage::Waiting);
        Self {
            request,
            effect,
            msn: 0,
            status,
            stage,
            response: None,
            kind: None,
            octets: 0,
            refers: false,
            short_octets: 0,
        }
    }

    /// Makes this entry that of `request`, which is not checked yet.
    // Each field is written in place. A struct that was just put together elsewhere would be slow to read.
    #[inline]
    pub fn take(&mut self, request: Wqe) {
        self.request = request;
        self.effect = Effect::Local;
        self.stage = Stage::Waiting;
        self.response = None;
        self.refers = false;
        self.short_octets = 0;
    }

    /// Makes this entry that of a short message, which is checked, with the next message number if it takes
    /// one.
    #[inline]
    pub(super) fn take_short_message(&mut self, request: CompactWqe, numbers: &mut MessageNumbers) {
        debug_assert!(request.is_short_message(), "another request");
        let octets = request.local().len;
        self.request.set_compact(request);
        let header_len = if request.is_write() {
            self.kind = Some(CompletionKind::Write);
            Tagged::LEN
        } else {
            self.kind = Some(CompletionKind::Send);
            self.msn = take_number(&mut numbers.send);
            Untagged::LEN
        };
        self.effect = Effect::Message;
        self.short_octets = fpdu::unmarked_len(header_len + octets as usize) as u16;
        self.status = Status::Success;
        self.stage = Stage::Waiting;
        self.response = None;
        self.octets = octets;
        self.refers = false;
    }

    /// Notes the result of the request's check. A request that failed it takes no message number.
    #[inline]
    pub fn checked(&mut self, status: Status, numbers: &mut MessageNumbers) {
        self.kind = Some(self.request.kind());
        self.octets = self.request.octets();
        self.status = status;
        if status == Status::Success {
            self.number(numbers);
        }
    }

    /// Notes what the request does, with the next message number if it takes one.
    // Requirements: RDMAP-4.1-06
    #[inline]
    fn number(&mut self, numbers: &mut MessageNumbers) {
        self.effect = Effect::Message;
        match self.request.operation() {
            Operation::Write { .. } => {}
            // The Write is an entry of its own by now.
            Operation::Send { .. } | Operation::Immediate { .. } | Operation::WriteWithImmediate { .. } => {
                self.msn = take_number(&mut numbers.send);
            }
            Operation::Read { .. }
            | Operation::FetchAdd { .. }
            | Operation::CompareSwap { .. }
            | Operation::Swap { .. } => self.msn = take_number(&mut numbers.read),
            Operation::LocalInvalidate { .. } | Operation::Bind(_) | Operation::Register(_) => {
                self.effect = Effect::Local;
            }
        }
    }

    /// Leaves the completion to `second`, the second message of the same request. It names the octets of
    /// both.
    pub const fn complete_with(&mut self, second: &mut Self) {
        (second.kind, second.octets) = (self.kind.take(), self.octets);
    }

    /// The message, if there is one to send, by `version` of DDP and RDMAP.
    #[inline]
    pub fn message(&self, version: u8) -> Option<Message> {
        let (msn, octets) = (self.msn, self.octets);
        if self.status != Status::Success || self.effect == Effect::Local {
            return None;
        }
        if let Some((stag, to)) = self.request.short_write() {
            return Some(message::write(version, stag, to, octets));
        }
        Some(match self.request.operation() {
            Operation::Write { stag, to } => message::write(version, stag, to, octets),
            Operation::Send { invalidate, solicited } => {
                let opcode = Opcode::send(invalidate.is_some(), solicited);
                message::send(version, opcode, invalidate.unwrap_or_default(), msn, octets)
            }
            Operation::Immediate { solicited, .. } | Operation::WriteWithImmediate { solicited, .. } => {
                message::immediate(version, solicited, msn)
            }
            Operation::Read { .. } => message::read_request(version, msn),
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } | Operation::Swap { .. } => {
                message::atomic_request(version, msn)
            }
            Operation::LocalInvalidate { .. } | Operation::Bind(_) | Operation::Register(_) => return None,
        })
    }

    /// Whether the peer answers it.
    #[inline]
    pub fn expects_response(&self) -> bool {
        self.request.expects_response()
    }

    /// Notes whether frames can refer to the payload in place. A short payload is copied anyway.
    #[inline]
    pub fn note_memory(&mut self, stags: &StagTable) {
        if let [local] = self.request.slices()
            && local.len >= limits::BY_REFERENCE_MIN_BYTES
            && self.request.operation().sends_local()
        {
            let target = stags.retained(local.stag, local.to, local.len as usize);
            self.refers = target.is_some_and(|target| !target.region().0.is_copied());
        }
    }

    /// The request that the peer has to answer once it is sent; `number` is that of this entry.
    pub fn outbound_request(&self, number: u32) -> Option<OutboundRequest> {
        let local = self.request.slices().first().copied().unwrap_or_default();
        match self.request.operation() {
            Operation::Read { .. } => Some(OutboundRequest::Read { sink: local, delivered: 0 }),
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } | Operation::Swap { .. } => {
                Some(OutboundRequest::Atomic { identifier: number, target: local })
            }
            _ => None,
        }
    }

    /// The FPDU that begins `offset` octets into the message and whose ULPDU fits `mulpdu`. `number` is that
    /// of this entry.
    #[inline]
    pub fn fpdu(&self, message: &Message, number: u32, offset: u32, mulpdu: usize) -> FpduDescriptor {
        let (header, octets) = message.segment(offset, mulpdu);
        let source = match self.request.payload_range() {
            // The usual case: the FPDU is built without the request.
            Some(local) => Source::Memory(Slice {
                stag: local.stag,
                to: local.to.wrapping_add(u64::from(offset)),
                len: octets,
            }),
            None => Source::Request { number, offset },
        };
        FpduDescriptor { header, octets, source }
    }

    /// Copies the octets of the message from `offset` on to `out`. Returns false if they are not available.
    // Requirements: DDP-5.2-03
    #[must_use]
    pub fn copy(&self, number: u32, stags: &StagTable, offset: u64, out: &mut [u8]) -> bool {
        let mut header = [0; AtomicRequest::LEN];
        let len = match self.request.operation() {
            Operation::Send { .. } | Operation::Write { .. } => {
                return self.copy_local(stags, offset, out);
            }
            Operation::Immediate { immediate, .. } => {
                return copy_part(&immediate.to_be_bytes(), offset, out);
            }
            Operation::Read { stag, to } => {
                let sink = self.request.slices().first().copied().unwrap_or_default();
                ReadRequest {
                    sink_stag: sink.stag,
                    sink_to: sink.to,
                    size: sink.len,
                    source_stag: stag,
                    source_to: to,
                }
                .emit(&mut header)
            }
            operation => match atomic_request(operation, number) {
                Some(request) => request.emit(&mut header),
                None => return false,
            },
        };
        copy_part(&header[..len], offset, out)
    }

    /// Copies from the memory of the request, or from its inline data.
    fn copy_local(&self, stags: &StagTable, offset: u64, out: &mut [u8]) -> bool {
        if let Some(data) = self.request.inline_octets() {
            return copy_part(data, offset, out);
        }
        payload::parts(self.request.slices(), offset, out.len()).all(|(at, part)| {
            let octets = part.len as usize;
            let source = stags.retained(part.stag, part.to, octets);
            let place = out.get_mut(at..at + octets);
            source.zip(place).is_some_and(|(source, place)| source.read(0, place))
        })
    }

    /// The words of the completion of a success; `None` for the first of two messages.
    #[inline]
    pub(super) fn cqe_words(&self, shared: &SharedQp) -> Option<[u64; CQE_WORDS]> {
        let id = marked_id(self.request.id(), self.request.lender());
        Some(cqe::plain_words(shared.number, self.kind?, self.octets, id))
    }

    /// The completion, with `status`; `None` for the first of two messages.
    pub fn completion(&self, shared: &SharedQp, status: Status) -> Option<Completion> {
        let completion = Completion::new(shared.number, self.request.id(), self.kind?, status, self.octets);
        Some(completion.marked(self.request.lender()))
    }
}

fn copy_part(octets: &[u8], offset: u64, out: &mut [u8]) -> bool {
    let part = usize::try_from(offset).ok().and_then(|at| octets.get(at..at.checked_add(out.len())?));
    part.is_some_and(|part| {
        out.copy_from_slice(part);
        true
    })
}

/// The header of an Atomic Request (RFC 7306 §5.2.1).
// Requirements: RDMAPX-5-03
fn atomic_request(operation: Operation, identifier: u32) -> Option<AtomicRequest> {
    Some(match operation {
        Operation::FetchAdd { stag, to, add, mask } => {
            AtomicRequest::fetch_add(identifier, stag, to, add, mask)
        }
        Operation::CompareSwap { stag, to, compare, compare_mask, swap, swap_mask } => {
            let compare = Masked { value: compare, mask: compare_mask };
            let swap = Masked { value: swap, mask: swap_mask };
            AtomicRequest::compare_swap(identifier, stag, to, compare, swap)
        }
        // A comparison of no bits always succeeds. Figure 5 has no opcode for a Swap alone.
        Operation::Swap { stag, to, swap, mask } => {
            AtomicRequest::compare_swap(identifier, stag, to, Masked::NOTHING, Masked { value: swap, mask })
        }
        _ => return None,
    })
}

/// Checks a request as far as possible without its memory. `reads` says whether the ends agreed on Reads.
///
/// # Errors
///
/// [`PostError`] names what is wrong.
// Requirements: DDP-5.2-02
pub fn check_shape(request: &SendRequest, reads: bool) -> Result<(), PostError> {
    let local = &request.local;
    if local.len() > u64::from(u32::MAX) {
        return Err(PostError::TooLong);
    }
    if request.operation.expects_response() && !reads {
        return Err(PostError::NoReads);
    }
    let fits = match request.operation {
        Operation::Send { .. } | Operation::Write { .. } | Operation::WriteWithImmediate { .. } => true,
        // One Read Response writes one buffer.
        Operation::Read { .. } => matches!(local, Payload::Gather(list) if list.as_slice().len() <= 1),
        Operation::FetchAdd { .. } | Operation::CompareSwap { .. } | Operation::Swap { .. } => {
            matches!(local.slices(), [slice] if slice.len as usize == VALUE_OCTETS)
        }
        Operation::Immediate { .. }
        | Operation::LocalInvalidate { .. }
        | Operation::Bind(_)
        | Operation::Register(_) => local.is_empty(),
    };
    if fits { Ok(()) } else { Err(PostError::LocalShape) }
}

/// Checks the local side of a request: its shape, and the rights to its ranges of memory. If they are all
/// right, it counts as a reader of that memory.
// Requirements: DDP-5.2-02, RDMAP-5.2.2-06, RDMAP-7.1-01
#[inline]
pub fn check(request: &Wqe, shared: &SharedQp, stags: &mut StagTable, reads: bool) -> Status {
    let Some(local) = request.short_range() else {
        return request.full().map_or(Status::LocalOperation, |full| check_full(full, shared, stags, reads));
    };
    let responds = request.expects_response();
    if responds && !reads {
        return Status::LocalOperation;
    }
    if local.len == 0 {
        return Status::Success;
    }
    let (octets, accessor) = (local.len as usize, shared.accessor());
    let reachable = stags.check_retained(local.stag, accessor, rights(responds), local.to, octets);
    if reachable.is_ok() { Status::Success } else { Status::LocalProtection }
}

/// The rights that a request needs to its memory.
#[inline]
fn rights(expects_response: bool) -> Access {
    if expects_response { Access::LOCAL_WRITE } else { Access::empty() }
}

/// Checks a request that is not short as [`check`] does.
fn check_full(request: &SendRequest, shared: &SharedQp, stags: &mut StagTable, reads: bool) -> Status {
    match check_shape(request, reads) {
        Ok(()) => {}
        Err(PostError::TooLong) => return Status::LocalLength,
        Err(_) => return Status::LocalOperation,
    }
    let rights = rights(request.operation.expects_response());
    let in_use = || request.local.slices().iter().filter(|slice| slice.len > 0);
    let reachable = |slice: &Slice| {
        stags.check(slice.stag, shared.accessor(), rights, slice.to, slice.len as usize).is_ok()
    };
    if !in_use().all(reachable) {
        return Status::LocalProtection;
    }
    in_use().for_each(|slice| stags.retain(slice.stag));
    Status::Success
}
