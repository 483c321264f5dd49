//! A send work request from its posting to its completion. Most have one range of memory and few operands:
//! these are short enough to be handed on by value. Any other is written once, to a place of the queue
//! pair's, and handed on by that.

use core::num::NonZeroU32;
use core::slice;

use bitflags::bitflags;

use super::payload::{Payload, Slice, SliceList};
use super::work::{CompletionKind, Operation, SendRequest};
use crate::memory::STag;

/// A posted request.
#[derive(Debug)]
pub struct Wqe {
    /// What it is, if it is short.
    compact: CompactWqe,
    /// Any other, in a place that the queue pair wants [back](super::shared::SharedQp::recycle).
    full: Option<Box<SendRequest>>,
}

/// A request of at most one range, with few operands. It is moved from the poster to the queue, and from
/// there to where the core keeps it, each time a moment after it was written: whole words without variants
/// are what a processor then reads fastest.
#[derive(Clone, Copy, Debug)]
struct CompactWqe {
    id: u64,
    /// The Tagged Offset at the peer, or the Immediate Data.
    operand: u64,
    local: Slice,
    /// The STag at the peer.
    stag: STag,
    /// The [lender](super::lender) of the memory, or 0.
    lender: u32,
    flags: WqeFlags,
}

bitflags! {
    /// What a short request does, and how. Without a mark that names the operation it is a Send.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct WqeFlags: u64 {
        const WRITE = 1;
        const READ = 1 << 1;
        const IMMEDIATE = 1 << 2;
        const INVALIDATES = 1 << 3;
        const SOLICITED = 1 << 4;
        const SIGNALED = 1 << 5;
        const FENCED = 1 << 6;
        /// It has a range of memory.
        const LOCAL = 1 << 7;
        /// It was posted after this end had closed: it is flushed in its turn. Also of requests that are not
        /// short.
        const AFTER_CLOSE = 1 << 8;
    }
}

// What is handed on for each message: with the queue's own mark as much as a cache line.
const _: () = assert!(size_of::<Wqe>() <= 56);

impl CompactWqe {
    const NONE: Self = Self {
        id: 0,
        operand: 0,
        local: Slice { stag: STag(0), to: 0, octets: 0 },
        stag: STag(0),
        lender: 0,
        flags: WqeFlags::empty(),
    };

    /// `None` when `request` is not that short.
    #[inline]
    fn new(request: &SendRequest) -> Option<Self> {
        let (does, stag, operand) = match request.operation {
            Operation::Send { invalidate: None, solicited } => (solicits(solicited), STag(0), 0),
            Operation::Send { invalidate: Some(stag), solicited } => {
                (WqeFlags::INVALIDATES | solicits(solicited), stag, 0)
            }
            Operation::Write { stag, to } => (WqeFlags::WRITE, stag, to),
            Operation::Immediate { immediate, solicited } => {
                (WqeFlags::IMMEDIATE | solicits(solicited), STag(0), immediate)
            }
            Operation::Read { stag, to } => (WqeFlags::READ, stag, to),
            _ => return None,
        };
        let Payload::Gather(list) = &request.local else { return None };
        let (local, has_local) = match *list.as_slice() {
            [] => (Slice::default(), false),
            [slice] => (slice, true),
            _ => return None,
        };
        // It has none to send: whoever posts it is told so by what looks at the others.
        if has_local && does.contains(WqeFlags::IMMEDIATE) {
            return None;
        }
        let mut flags = does;
        flags.set(WqeFlags::SIGNALED, request.signaled);
        flags.set(WqeFlags::FENCED, request.fenced);
        flags.set(WqeFlags::LOCAL, has_local);
        let lender = list.lender.map_or(0, NonZeroU32::get);
        Some(Self { id: request.id, operand, local, stag, lender, flags })
    }

    #[inline]
    fn operation(&self) -> Operation {
        let (stag, solicited) = (self.stag, self.flags.contains(WqeFlags::SOLICITED));
        if self.flags.contains(WqeFlags::WRITE) {
            Operation::Write { stag, to: self.operand }
        } else if self.flags.contains(WqeFlags::READ) {
            Operation::Read { stag, to: self.operand }
        } else if self.flags.contains(WqeFlags::IMMEDIATE) {
            Operation::Immediate { immediate: self.operand, solicited }
        } else {
            let invalidate = self.flags.contains(WqeFlags::INVALIDATES).then_some(stag);
            Operation::Send { invalidate, solicited }
        }
    }

    #[inline]
    fn slices(&self) -> &[Slice] {
        let ranges = usize::from(self.flags.contains(WqeFlags::LOCAL));
        &slice::from_ref(&self.local)[..ranges]
    }
}

#[inline]
fn solicits(solicited: bool) -> WqeFlags {
    if solicited { WqeFlags::SOLICITED } else { WqeFlags::empty() }
}

impl Wqe {
    /// `request`, in a `place` of its own if it needs one.
    #[inline]
    pub(super) fn new(request: &SendRequest, slot: impl FnOnce() -> Option<Box<SendRequest>>) -> Self {
        if let Some(compact) = CompactWqe::new(request) {
            return Self { compact, full: None };
        }
        // There is one: a request whose place in the queue is free has given its own back before.
        let mut slot = slot().unwrap_or_else(self::slot);
        *slot = *request;
        Self { compact: CompactWqe::NONE, full: Some(slot) }
    }

    /// The same request, posted after this end had closed if `late`.
    #[inline]
    pub(super) fn mark_posted_after_close(mut self, after_close: bool) -> Self {
        self.compact.flags.set(WqeFlags::AFTER_CLOSE, after_close);
        self
    }

    /// Whether it was posted after this end had closed.
    #[inline]
    pub(super) const fn posted_after_close(&self) -> bool {
        self.compact.flags.contains(WqeFlags::AFTER_CLOSE)
    }

    /// The place where it lies, if it is not short.
    pub(super) fn into_slot(self) -> Option<Box<SendRequest>> {
        self.full
    }

    /// Divides an RDMA Write with Immediate Data into its two messages (RFC 7306 §6): this is the Write from
    /// now on. Gives the other, whose memory is the Write's; `None` when it is no such request.
    pub(super) fn split_immediate(&mut self) -> Option<Self> {
        let request = self.full.as_mut()?;
        let Operation::WriteWithImmediate { stag, to, immediate, solicited } = request.operation else {
            return None;
        };
        request.operation = Operation::Write { stag, to };
        let mut flags = WqeFlags::IMMEDIATE | solicits(solicited);
        flags.set(WqeFlags::SIGNALED, request.signaled);
        let compact = CompactWqe { id: request.id, operand: immediate, flags, ..CompactWqe::NONE };
        Some(Self { compact, full: None })
    }

    /// The request itself, if it is not short. Whatever is short is of a right shape, but for Reads that the
    /// ends do not allow.
    #[inline]
    pub fn full(&self) -> Option<&SendRequest> {
        self.full.as_deref()
    }

    /// The application's name for it.
    #[inline]
    pub fn id(&self) -> u64 {
        self.full().map_or(self.compact.id, |request| request.id)
    }

    /// What to do.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.full().map_or_else(|| self.compact.operation(), |request| request.operation)
    }

    /// Whether it waits for an answer of the peer.
    #[inline]
    pub fn expects_response(&self) -> bool {
        self.full().map_or_else(
            || self.compact.flags.contains(WqeFlags::READ),
            |request| request.operation.expects_response(),
        )
    }

    /// The kind its completion names.
    #[inline]
    pub fn kind(&self) -> CompletionKind {
        self.operation().kind()
    }

    /// The ranges of memory of its octets; none when they are inline.
    #[inline]
    pub fn slices(&self) -> &[Slice] {
        self.full().map_or_else(|| self.compact.slices(), |request| request.local.slices())
    }

    /// The octets that it holds itself, if any.
    pub fn inline_octets(&self) -> Option<&[u8]> {
        match &self.full()?.local {
            Payload::Inline(data) => Some(data.as_slice()),
            Payload::Gather(_) => None,
        }
    }

    /// How many octets there are; no message has more than can be told.
    #[inline]
    pub fn octets(&self) -> u32 {
        // A short one without a range has none there either.
        self.full().map_or(self.compact.local.octets, |request| {
            u32::try_from(request.local.octets()).unwrap_or(u32::MAX)
        })
    }

    /// The lender of its memory, if one has lent it.
    #[inline]
    pub(super) fn lender(&self) -> Option<NonZeroU32> {
        self.full().map_or_else(|| NonZeroU32::new(self.compact.lender), |request| request.local.lender())
    }

    /// Whether success is reported.
    #[inline]
    pub fn signaled(&self) -> bool {
        self.full().map_or(self.compact.flags.contains(WqeFlags::SIGNALED), |request| request.signaled)
    }

    /// Whether it waits for the answers to those before it.
    #[inline]
    pub fn fenced(&self) -> bool {
        self.full().map_or(self.compact.flags.contains(WqeFlags::FENCED), |request| request.fenced)
    }
}

/// A place for a request that is not short.
pub(super) fn slot() -> Box<SendRequest> {
    Box::new(SendRequest::new(0, Operation::SEND, SliceList::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Access, Binding, FastRegistration};
    use crate::qp::payload::InlineData;

    const STAG: STag = STag(0x0102_0304);

    fn operations() -> Vec<Operation> {
        let (stag, to) = (STAG, u64::MAX - 5);
        let mut operations = vec![
            Operation::Write { stag, to },
            Operation::Read { stag, to },
            Operation::FetchAdd { stag, to, add: 1, mask: 2 },
            Operation::CompareSwap { stag, to, compare: 1, compare_mask: 2, swap: 3, swap_mask: 4 },
            Operation::Swap { stag, to, swap: 5, mask: 6 },
            Operation::LocalInvalidate { stag },
            Operation::Bind(Binding {
                window: stag,
                registration: STag(9),
                to: 1,
                octets: 2,
                access: Access::all(),
                zero_based: true,
            }),
            Operation::Register(FastRegistration {
                stag,
                offset: 1,
                octets: 2,
                base_to: 3,
                access: Access::empty(),
                all_streams: true,
            }),
        ];
        for solicited in [false, true] {
            let immediate = u64::MAX - 7;
            operations.extend([
                Operation::Send { invalidate: None, solicited },
                Operation::Send { invalidate: Some(stag), solicited },
                // A name that no registration has is one all the same.
                Operation::Send { invalidate: Some(STag(0)), solicited },
                Operation::Immediate { immediate, solicited },
                Operation::WriteWithImmediate { stag, to, immediate, solicited },
            ]);
        }
        operations
    }

    fn payloads() -> Vec<Payload> {
        let slice = |octets| Slice { stag: STag(7), to: 1 << 40, octets };
        vec![
            Payload::EMPTY,
            slice(0).into(),
            slice(u32::MAX).into(),
            SliceList::try_from(&[slice(1), slice(2)][..]).unwrap().into(),
            InlineData::try_from(&[1, 2, 3][..]).unwrap().into(),
        ]
    }

    /// Whatever form it takes on its way, the core reads what the application has posted.
    #[test]
    fn every_request_arrives_as_it_was_posted() {
        let (mut compact, mut full) = (0, 0);
        for operation in operations() {
            let both = |local| [(local, (false, true)), (local, (true, false))];
            for (local, (signaled, fenced)) in payloads().into_iter().flat_map(both) {
                let request = SendRequest { id: u64::MAX - 1, operation, local, signaled, fenced };
                let posted = Wqe::new(&request, || None);
                assert_eq!((posted.id(), posted.operation()), (request.id, operation));
                assert_eq!(
                    (posted.kind(), posted.expects_response()),
                    (operation.kind(), operation.expects_response())
                );
                assert_eq!((posted.signaled(), posted.fenced()), (signaled, fenced));
                assert!(!posted.posted_after_close());
                assert_eq!(posted.slices(), local.slices());
                assert_eq!(u64::from(posted.octets()), local.octets());
                match local {
                    Payload::Inline(data) => assert_eq!(posted.inline_octets(), Some(data.as_slice())),
                    Payload::Gather(_) => assert_eq!(posted.inline_octets(), None),
                }
                *(if posted.full().is_some() { &mut full } else { &mut compact }) += 1;
                let late = posted.mark_posted_after_close(true);
                assert!(late.posted_after_close());
                assert_eq!(
                    (late.id(), late.operation(), late.slices()),
                    (request.id, operation, local.slices())
                );
            }
        }
        // Eight operations of eighteen are short with three payloads of five, two with one, in two ways each.
        let short = (8 * 3 + 2) * 2;
        assert_eq!((compact, full), (short, 18 * 5 * 2 - short));
    }

    /// The Write keeps the memory and its fence, the Immediate Data the eight octets.
    // Requirements: RDMAPX-6-01
    #[test]
    fn a_write_with_immediate_is_two() {
        let operation = Operation::WriteWithImmediate { stag: STAG, to: 3, immediate: 4, solicited: true };
        let local = Slice { stag: STag(7), to: 1, octets: 2 };
        let request = SendRequest { fenced: true, ..SendRequest::new(5, operation, local) };
        let mut write = Wqe::new(&request, || None);
        let immediate = write.split_immediate().unwrap();
        assert_eq!((write.id(), write.operation()), (5, Operation::Write { stag: STAG, to: 3 }));
        assert_eq!((write.slices(), write.fenced()), (&[local][..], true));
        let rest = Operation::Immediate { immediate: 4, solicited: true };
        assert_eq!((immediate.id(), immediate.operation()), (5, rest));
        assert_eq!((immediate.slices(), immediate.fenced()), (&[][..], false));
        assert!(write.split_immediate().is_none());
        assert!(Wqe::new(&SendRequest::new(1, Operation::SEND, local), || None).split_immediate().is_none());
    }
}
