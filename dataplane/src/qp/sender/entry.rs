//! An entry of the send queue: a request that the core has accepted, the message that it puts on the wire,
//! and its progress. All that packing and queueing ask for is computed once, when the request is accepted.
//!
//! The entry has a copy of the request, six words. Its slot is not written again before the request is
//! complete, so that it could be read there. But then what was checked is what is sent only as long as no
//! program posts from two threads at once, which the interface for C cannot refuse; and each step would look
//! for the slot again, which takes more instructions than the copy does once.

use bitflags::bitflags;

use crate::ddp::segmentation::Message;
use crate::limits;
use crate::memory::StagTable;
use crate::mpa::fpdu;
use crate::qp::cqe::{self, CQE_WORDS};
use crate::qp::lender::{MarkedId, marked_id};
use crate::qp::payload::{self, Slice};
use crate::qp::reads::{OutboundReads, OutboundRequest};
use crate::qp::run::{FpduDescriptor, Source};
use crate::qp::shared::SharedQp;
use crate::qp::work::{Completion, CompletionKind, Operation, QpNumber, Status};
use crate::qp::wqe::{CompactWqe, Wqe};
use crate::rdmap::message;
use crate::wire::atomic::{AtomicRequest, Masked};
use crate::wire::ddp::{Tagged, Untagged};
use crate::wire::rdmap::{Opcode, ReadRequest};
use crate::wire::tcp::SeqNumber;

bitflags! {
    /// The properties of a request that the steps of its entry need, beside its message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Traits: u8 {
        /// It may have to wait for others although it is next, waits for a response, or sends no message.
        /// Only entries with this bit are asked for any of that.
        const GATED = 1;
        /// Its message is of few octets, and it is not gated.
        const SMALL = 1 << 1;
        /// Frames can refer to its payload in place.
        const REFERS = 1 << 2;
        /// Its request is in a box.
        const BOXED = 1 << 3;
        /// Its end is that of its request: it is not the first of two messages.
        const LAST = 1 << 4;
        /// Its success is reported.
        const REPORTED = 1 << 5;
        /// It was [accepted](SendEntry::accept_range) as a request that sends one range of memory.
        const RANGE = 1 << 6;
    }
}

/// An entry of the send queue. Of all entries, the first are [queued](super::Sender), and of these the first
/// are acknowledged: an entry need not say it.
#[derive(Debug)]
pub(super) struct SendEntry {
    /// The request. An RDMA Write with Immediate Data becomes two entries, one per message.
    pub request: Wqe,
    /// Octets of its message.
    pub message_octets: u32,
    /// Octets of the message as one FPDU without Markers, if an FPDU could be so long.
    pub fpdu_octets: u32,
    /// Octets of the DDP header of each of its segments; 0 if it sends no message: it failed its check, or
    /// changes what this end grants.
    pub header_len: u8,
    pub traits: Traits,
    /// The kind its completion names.
    pub kind: CompletionKind,
    /// The number of its message on the queue of the peer that it goes to, if it goes to one.
    pub msn: u32,
    /// Where the last segment that has a part of it ends, once all of it is queued.
    pub end: SeqNumber,
    /// Octets that its completion names.
    pub octets: u32,
    /// `Success`, or why it cannot be done.
    pub status: Status,
    /// The number of the response it waits for, once it was sent. Only a gated entry has one.
    pub response: Option<u32>,
}

/// Far longer than any FPDU; the sum with all others of a segment does not wrap.
pub(super) const NO_FPDU: u32 = u32::MAX / 2;

/// The sequence numbers (MSNs) of the next messages on the queues of the peer.
// Requirements: DDP-4.3-07, DDP-4.3-08
#[derive(Clone, Copy, Debug)]
pub(in crate::qp) struct MessageNumbers {
    /// The version of DDP and RDMAP.
    pub version: u8,
    /// Of Sends.
    pub send: u32,
    /// Of Read Requests and Atomic Requests.
    pub read: u32,
}

/// Returns the number and advances it; it wraps to zero.
// Requirements: DDP-4.3-09
pub(super) fn advance_number(number: &mut u32) -> u32 {
    let current = *number;
    *number = number.wrapping_add(1);
    current
}

impl SendEntry {
    /// A request that is not checked yet.
    #[inline]
    pub(super) fn new(request: Wqe) -> Self {
        let mut traits = Traits::GATED | Traits::LAST;
        traits.set(Traits::BOXED, request.full().is_some());
        traits.set(Traits::REPORTED, request.signaled());
        Self {
            kind: request.kind(),
            octets: request.octets(),
            request,
            message_octets: 0,
            fpdu_octets: NO_FPDU,
            header_len: 0,
            traits,
            msn: 0,
            end: SeqNumber(0),
            status: Status::Success,
            response: None,
        }
    }

    /// Makes this entry that of a checked request that [sends a range](CompactWqe::sends_range), with the
    /// next message number if it has one. `refers` says whether frames can refer to the range in place.
    // Each field is written in place. A struct that was just put together elsewhere would be slow to read.
    // Requirements: RDMAP-4.1-06
    #[inline]
    pub(super) fn accept_range(&mut self, request: CompactWqe, refers: bool, numbers: &mut MessageNumbers) {
        debug_assert!(request.sends_range(), "another request");
        let octets = request.local().len;
        self.request.set_compact(request);
        let header_len = if request.is_write() {
            self.kind = CompletionKind::Write;
            Tagged::LEN
        } else {
            self.kind = CompletionKind::Send;
            self.msn = advance_number(&mut numbers.send);
            Untagged::LEN
        };
        self.set_lengths(header_len, octets);
        let mut traits = Traits::LAST.union(Traits::RANGE);
        traits.set(Traits::SMALL, octets < limits::SMALL_MESSAGE_BYTES);
        traits.set(Traits::REFERS, refers);
        traits.set(Traits::REPORTED, request.is_signaled());
        self.traits = traits;
        self.status = Status::Success;
        self.octets = octets;
    }

    /// Records the length of its message.
    #[inline]
    fn set_lengths(&mut self, header_len: usize, octets: u32) {
        self.header_len = header_len as u8;
        self.message_octets = octets;
        self.fpdu_octets = fpdu::unmarked_len(header_len + octets.min(NO_FPDU) as usize) as u32;
    }

    /// Records the result of the request's check, and the next message number if it has one. A request that
    /// failed the check has none.
    // Requirements: RDMAP-4.1-06
    pub(super) fn checked(&mut self, status: Status, numbers: &mut MessageNumbers) {
        self.status = status;
        if status != Status::Success {
            return;
        }
        match self.request.operation() {
            Operation::Write { .. } => {}
            // The Write is an entry of its own by now.
            Operation::Send { .. } | Operation::Immediate { .. } | Operation::WriteWithImmediate { .. } => {
                self.msn = advance_number(&mut numbers.send);
            }
            Operation::Read { .. }
            | Operation::FetchAdd { .. }
            | Operation::CompareSwap { .. }
            | Operation::Swap { .. } => self.msn = advance_number(&mut numbers.read),
            Operation::LocalInvalidate { .. }
            | Operation::Bind(_)
            | Operation::Rebind(_)
            | Operation::Unbind { .. }
            | Operation::Register(_) => return,
        }
        if let Some(message) = self.message_by(numbers.version) {
            self.set_lengths(message.header_len(), message.octets);
            let is_gated = self.request.fenced() || self.expects_response();
            self.traits.set(Traits::GATED, is_gated);
            self.traits.set(Traits::SMALL, !is_gated && message.octets < limits::SMALL_MESSAGE_BYTES);
        }
    }

    /// Whether it puts a message on the wire.
    #[inline]
    pub(super) const fn sends_message(&self) -> bool {
        self.header_len > 0
    }

    /// Whether it closes a window and binds it.
    pub(super) fn rebinds(&self) -> bool {
        matches!(self.request.operation(), Operation::Rebind(_))
    }

    /// Whether its message fits one FPDU.
    #[inline]
    pub(super) const fn is_one_fpdu(&self) -> bool {
        self.fpdu_octets <= fpdu::unmarked_len(fpdu::MULPDU_MAX) as u32
    }

    /// Whether all of its message is in an FPDU that has `octets` octets of payload.
    #[inline]
    pub(super) const fn is_all_in(&self, octets: u32) -> bool {
        self.message_octets == octets
    }

    /// Whether it may have to wait for others although it is next, or sends no message.
    #[inline]
    pub(super) const fn is_gated(&self) -> bool {
        self.traits.contains(Traits::GATED)
    }

    /// Whether frames can refer to its payload in place.
    #[inline]
    pub(super) const fn refers(&self) -> bool {
        self.traits.contains(Traits::REFERS)
    }

    /// Leaves the completion to `second`, the second message of the same request. It names the octets of
    /// both.
    pub(super) const fn complete_with(&mut self, second: &mut Self) {
        self.traits = self.traits.difference(Traits::LAST.union(Traits::REPORTED));
        (second.kind, second.octets) = (self.kind, self.octets);
    }

    /// The message, if there is one to send, by `version` of DDP and RDMAP.
    #[inline]
    pub(super) fn message(&self, version: u8) -> Option<Message> {
        let message = if self.sends_message() { self.message_by(version) } else { None };
        debug_assert!(
            message.is_none_or(|message| (message.header_len(), message.octets)
                == (usize::from(self.header_len), self.message_octets)),
            "another message than the one that was accepted"
        );
        message
    }

    /// The message that its operation stands for, if it does for one.
    #[inline]
    fn message_by(&self, version: u8) -> Option<Message> {
        let (msn, octets) = (self.msn, self.octets);
        if let Some((stag, to)) = self.request.compact_write() {
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
            Operation::LocalInvalidate { .. }
            | Operation::Bind(_)
            | Operation::Rebind(_)
            | Operation::Unbind { .. }
            | Operation::Register(_) => return None,
        })
    }

    /// Records whether frames can refer to the payload in place. A small payload is copied on any device.
    pub(super) fn record_memory(&mut self, stags: &StagTable) {
        if let [local] = self.request.slices()
            && local.len >= limits::BY_REFERENCE_MIN_BYTES
            && self.request.operation().sends_local()
        {
            let target = stags.retained(local.stag, local.to, local.len as usize);
            self.traits.set(Traits::REFERS, target.is_some_and(|target| !target.region().0.is_copied()));
        }
    }

    /// Whether the peer answers it.
    #[inline]
    pub(super) fn expects_response(&self) -> bool {
        self.request.expects_response()
    }

    /// Has it wait for the response of the peer, if there is to be one. All of its message is queued;
    /// `number` is that of this entry.
    #[inline(never)]
    pub(super) fn await_response(&mut self, number: u32, outbound: &mut OutboundReads) {
        self.response = self.outbound_request(number).map(|awaited| outbound.push(awaited));
    }

    /// The request that the peer has to answer once it is sent; `number` is that of this entry.
    fn outbound_request(&self, number: u32) -> Option<OutboundRequest> {
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
    pub(super) fn fpdu(&self, message: &Message, number: u32, offset: u32, mulpdu: usize) -> FpduDescriptor {
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
    #[inline]
    #[must_use]
    pub(super) fn copy(&self, number: u32, stags: &StagTable, offset: u64, out: &mut [u8]) -> bool {
        match self.request.operation() {
            Operation::Send { .. } | Operation::Write { .. } => self.copy_local(stags, offset, out),
            Operation::Immediate { immediate, .. } => copy_range(&immediate.to_be_bytes(), offset, out),
            operation => self.copy_request(operation, number, offset, out),
        }
    }

    /// [`copy`](Self::copy) of a message that asks for a response.
    #[inline(never)]
    fn copy_request(&self, operation: Operation, number: u32, offset: u64, out: &mut [u8]) -> bool {
        let mut header = [0; AtomicRequest::LEN];
        let len = match operation {
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
        copy_range(&header[..len], offset, out)
    }

    /// Copies from the memory of the request, or from its inline data.
    #[inline(never)]
    fn copy_local(&self, stags: &StagTable, offset: u64, out: &mut [u8]) -> bool {
        if let Some(data) = self.request.inline_octets() {
            return copy_range(data, offset, out);
        }
        payload::pieces(self.request.slices(), offset, out.len()).all(|(at, part)| {
            let octets = part.len as usize;
            let source = stags.retained(part.stag, part.to, octets);
            let place = out.get_mut(at..at + octets);
            source.zip(place).is_some_and(|(source, place)| source.read(0, place))
        })
    }

    /// The words of the completion of a success.
    #[inline]
    pub(super) fn completion_words(&self, qp: QpNumber) -> [u64; CQE_WORDS] {
        let words = |id| cqe::success_words(qp, self.kind, self.octets, id);
        match self.request.lender() {
            None => words(MarkedId { id: self.request.id(), lent: false }),
            Some(lender) => words(marked_id(self.request.id(), Some(lender))),
        }
    }

    /// The completion, with `status`; `None` for the first of two messages.
    pub(super) fn completion(&self, shared: &SharedQp, status: Status) -> Option<Completion> {
        let completion = Completion::new(shared.number, self.request.id(), self.kind, status, self.octets);
        self.traits.contains(Traits::LAST).then(|| completion.marked(self.request.lender()))
    }
}

fn copy_range(octets: &[u8], offset: u64, out: &mut [u8]) -> bool {
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
        // A comparison of no bits always succeeds. Figure 5 has no opcode for a Swap without a comparison.
        Operation::Swap { stag, to, swap, mask } => {
            AtomicRequest::compare_swap(identifier, stag, to, Masked::NOTHING, Masked { value: swap, mask })
        }
        _ => return None,
    })
}
