//! Work queue entries of the send queue: posted work requests, from the application to the core. A
//! request with at most one range of memory and few operands is written to a slot of the ring, one cache
//! line. Any other is written to a box beside the slot.

use core::num::NonZeroU32;
use core::{fmt, slice};

use bitflags::bitflags;
use crossbeam::atomic::AtomicCell;

use super::payload::{Payload, Slice};
use super::post_error::PostError;
use super::work::{CompletionKind, Operation, SendRequest};
use crate::memory::STag;

/// A posted send work request.
#[derive(Debug)]
pub struct Wqe {
    /// The request, if it is compact.
    compact: CompactWqe,
    /// The request in its box, if it is not compact. The box goes [back](super::shared::SharedQp::recycle) to
    /// the queue pair.
    full: Option<Box<SendRequest>>,
}

/// The words of a compact request.
pub(super) const WQE_WORDS: usize = 6;

/// A request of at most one range, with few operands: words without variants, which are fastest to pass
/// on.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompactWqe {
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
    /// The operation and the options of a compact request. Without a flag that names the operation it is a
    /// Send.
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
        /// It was posted after this end had closed, and is flushed in its turn. Set for requests of either
        /// form.
        const AFTER_CLOSE = 1 << 8;
        /// It is in a box: its operand is the index of that.
        const BOXED = 1 << 9;
    }
}

// With the turn of its slot, a WQE takes one cache line.
const _: () = assert!(WQE_WORDS <= 7);

impl CompactWqe {
    const NONE: Self = Self {
        id: 0,
        operand: 0,
        local: Slice { stag: STag(0), to: 0, len: 0 },
        stag: STag(0),
        lender: 0,
        flags: WqeFlags::empty(),
    };

    /// What stands for `request`, which is in the box at `index`: what its completion and its turn ask for
    /// lies here as well.
    pub(super) fn boxed(index: usize, request: &SendRequest) -> Self {
        let mut flags = WqeFlags::BOXED;
        flags.set(WqeFlags::SIGNALED, request.signaled);
        flags.set(WqeFlags::FENCED, request.fenced);
        let lender = request.local.lender().map_or(0, NonZeroU32::get);
        Self { id: request.id, operand: index as u64, lender, flags, ..Self::NONE }
    }

    /// The index of the box of the request, if it is in one.
    #[inline]
    pub(super) fn box_index(&self) -> Option<usize> {
        self.flags.contains(WqeFlags::BOXED).then_some(self.operand as usize)
    }

    /// Checks a compact request as [`check_shape`](super::request_check::check_shape) does. Its shape is
    /// always right, except for Reads where the ends have agreed on none.
    #[inline]
    pub(super) fn check_shape(&self, reads: bool) -> Result<(), PostError> {
        if self.flags.contains(WqeFlags::READ) && !reads { Err(PostError::NoReads) } else { Ok(()) }
    }

    /// Whether it is a Write or a Send of at least one octet from one range of memory, and is not fenced.
    #[inline]
    pub(super) fn sends_range(&self) -> bool {
        let options = WqeFlags::SIGNALED.union(WqeFlags::SOLICITED).union(WqeFlags::INVALIDATES);
        let free = options.union(WqeFlags::WRITE);
        self.flags.difference(free) == WqeFlags::LOCAL && self.local.len > 0
    }

    /// Whether a request that [sends a range](Self::sends_range) is a Write. If not, it is a Send.
    #[inline]
    pub(super) fn is_write(&self) -> bool {
        self.flags.contains(WqeFlags::WRITE)
    }

    /// Whether it asks for a solicited event.
    #[inline]
    pub(super) fn is_solicited(&self) -> bool {
        self.flags.contains(WqeFlags::SOLICITED)
    }

    /// The STag that a compact Send invalidates.
    #[inline]
    pub(super) fn invalidates(&self) -> Option<STag> {
        self.flags.contains(WqeFlags::INVALIDATES).then_some(self.stag)
    }

    /// The peer's STag and Tagged Offset that a Write writes to.
    #[inline]
    pub(super) const fn remote(&self) -> (STag, u64) {
        (self.stag, self.operand)
    }

    /// Its range of memory.
    #[inline]
    pub(super) const fn local(&self) -> Slice {
        self.local
    }

    /// Whether its success is reported.
    #[inline]
    pub(super) fn is_signaled(&self) -> bool {
        self.flags.contains(WqeFlags::SIGNALED)
    }

    /// Returns `None` if `request` does not fit this form.
    #[inline]
    pub(super) fn new(request: &SendRequest) -> Option<Self> {
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
        // Immediate Data has no payload. `check_shape` refuses the request later.
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

    /// The words of its slot. `after_close` says whether it was posted after this end had closed.
    #[inline]
    pub(super) const fn words(&self, after_close: bool) -> [u64; WQE_WORDS] {
        let Self { id, operand, local, stag, lender, flags } = *self;
        let flags = if after_close { flags.union(WqeFlags::AFTER_CLOSE) } else { flags };
        let local_stag_len = local.stag.0 as u64 | (local.len as u64) << 32;
        let stag_lender = stag.0 as u64 | (lender as u64) << 32;
        [id, operand, local.to, local_stag_len, stag_lender, flags.bits()]
    }

    /// The request that has these words.
    #[inline]
    pub(super) const fn from_words(words: [u64; WQE_WORDS]) -> Self {
        let [id, operand, to, local_stag_len, stag_lender, flags] = words;
        Self {
            id,
            operand,
            local: Slice { stag: STag(local_stag_len as u32), to, len: (local_stag_len >> 32) as u32 },
            stag: STag(stag_lender as u32),
            lender: (stag_lender >> 32) as u32,
            flags: WqeFlags::from_bits_retain(flags),
        }
    }

    #[inline]
    fn operation(&self) -> Operation {
        let (stag, solicited) = (self.stag, self.is_solicited());
        if self.flags.contains(WqeFlags::WRITE) {
            Operation::Write { stag, to: self.operand }
        } else if self.flags.contains(WqeFlags::READ) {
            Operation::Read { stag, to: self.operand }
        } else if self.flags.contains(WqeFlags::IMMEDIATE) {
            Operation::Immediate { immediate: self.operand, solicited }
        } else {
            Operation::Send { invalidate: self.invalidates(), solicited }
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
    /// No request: what an entry holds before its first.
    pub(super) const fn none() -> Self {
        Self { compact: CompactWqe::NONE, full: None }
    }

    /// Makes this a request that is compact.
    #[inline]
    pub(super) fn set_compact(&mut self, compact: CompactWqe) {
        debug_assert!(self.full.is_none(), "the box of the last request was not returned");
        self.compact = compact;
    }

    /// What it is if it is compact.
    #[inline]
    pub(super) const fn compact(&self) -> &CompactWqe {
        &self.compact
    }

    /// Whether it was posted after this end had closed.
    #[inline]
    pub(super) const fn posted_after_close(&self) -> bool {
        self.compact.flags.contains(WqeFlags::AFTER_CLOSE)
    }

    /// The request that has these words. `detach_box` is called with the index of its box if it is not
    /// compact.
    #[inline]
    pub(super) fn from_words(
        words: [u64; WQE_WORDS],
        detach_box: impl FnOnce(usize) -> Option<Box<SendRequest>>,
    ) -> Self {
        let compact = CompactWqe::from_words(words);
        let full = compact.box_index().and_then(detach_box);
        debug_assert_eq!(full.is_some(), compact.box_index().is_some(), "a request without its box");
        Self { compact, full }
    }

    /// Its box and the index of that, if it is not compact.
    #[inline]
    pub(super) fn detach_box(&mut self) -> Option<(usize, Box<SendRequest>)> {
        Some((self.compact.box_index()?, self.full.take()?))
    }

    /// Divides an RDMA Write with Immediate Data into its two messages (RFC 7306 §6): this one becomes the
    /// Write. Returns the Immediate Data, or `None` if this is another operation.
    pub(super) fn split_immediate(&mut self) -> Option<Self> {
        let request = self.full.as_mut()?;
        let Operation::WriteWithImmediate { stag, to, immediate, solicited } = request.operation else {
            return None;
        };
        request.operation = Operation::Write { stag, to };
        let mut flags = WqeFlags::IMMEDIATE | solicits(solicited);
        flags.set(WqeFlags::SIGNALED, request.signaled);
        let (id, lender) = (request.id, self.compact.lender);
        let compact = CompactWqe { id, operand: immediate, lender, flags, ..CompactWqe::NONE };
        Some(Self { compact, full: None })
    }

    /// The request in its box, if it is not compact. The shape of a compact request is always right, except
    /// for Reads where the ends have agreed on none.
    #[inline]
    pub fn full(&self) -> Option<&SendRequest> {
        self.full.as_deref()
    }

    /// The application's `wr_id`.
    #[inline]
    pub const fn id(&self) -> u64 {
        self.compact.id
    }

    /// The operation.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.full().map_or_else(|| self.compact.operation(), |request| request.operation)
    }

    /// Whether the peer answers it: RDMA Reads and Atomic Operations.
    #[inline]
    pub fn expects_response(&self) -> bool {
        self.full().map_or_else(
            || self.compact.flags.contains(WqeFlags::READ),
            |request| request.operation.expects_response(),
        )
    }

    /// The kind that its completion names.
    #[inline]
    pub fn kind(&self) -> CompletionKind {
        self.operation().kind()
    }

    /// The ranges of memory; none if the data is inline.
    #[inline]
    pub fn slices(&self) -> &[Slice] {
        self.full().map_or_else(|| self.compact.slices(), |request| request.local.slices())
    }

    /// The range of memory of a compact request; it may be empty. `None` if the request is not compact.
    #[inline]
    pub(super) const fn compact_range(&self) -> Option<Slice> {
        // Without a range, `local` has no octets.
        if self.full.is_none() { Some(self.compact.local) } else { None }
    }

    /// The one range of memory that is the payload of its message; `None` if that is anything else.
    #[inline]
    pub(super) fn payload_range(&self) -> Option<Slice> {
        let Some(request) = self.full() else {
            let Self { compact: CompactWqe { local, flags, .. }, .. } = self;
            let other = WqeFlags::READ.union(WqeFlags::IMMEDIATE);
            return (flags.contains(WqeFlags::LOCAL) && !flags.intersects(other)).then_some(*local);
        };
        match request.local.slices() {
            [local] if request.operation.sends_local() => Some(*local),
            _ => None,
        }
    }

    /// The peer's STag and Tagged Offset, if it is a compact Write.
    #[inline]
    pub(super) fn compact_write(&self) -> Option<(STag, u64)> {
        (self.full.is_none() && self.compact.is_write()).then(|| self.compact.remote())
    }

    /// The inline data, if there is any.
    pub fn inline_octets(&self) -> Option<&[u8]> {
        match &self.full()?.local {
            Payload::Inline(data) => Some(data.as_slice()),
            Payload::Gather(_) => None,
        }
    }

    /// The length in octets, at most 2^32 - 1, the longest message.
    #[inline]
    pub fn octets(&self) -> u32 {
        // Without a range, `local` has no octets.
        self.full()
            .map_or(self.compact.local.len, |request| u32::try_from(request.local.len()).unwrap_or(u32::MAX))
    }

    /// The lender of the memory, if it is lent.
    #[inline]
    pub(super) const fn lender(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.compact.lender)
    }

    /// Whether success is reported.
    #[inline]
    pub fn signaled(&self) -> bool {
        self.compact.is_signaled()
    }

    /// Whether it waits for the answers to the requests before it.
    #[inline]
    pub fn fenced(&self) -> bool {
        self.compact.flags.contains(WqeFlags::FENCED)
    }
}

/// The boxes beside the slots of a send queue, for requests that are not compact. While the core works on
/// such a request, it has the box. A slot has none until such a request is first posted to it.
pub(super) struct Boxes(Box<[AtomicCell<Option<Box<SendRequest>>>]>);

impl Boxes {
    /// Room for as many boxes.
    pub(super) fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicCell::new(None)).collect())
    }

    /// Removes the box at `index`.
    #[inline]
    pub(super) fn take(&self, index: usize) -> Option<Box<SendRequest>> {
        self.0.get(index)?.take()
    }

    /// The words of `request` for the slot with this index. If it does not fit them, it is written to the box
    /// at `index`.
    #[inline]
    pub(super) fn words(&self, index: usize, request: &SendRequest, after_close: bool) -> [u64; WQE_WORDS] {
        let wqe = CompactWqe::new(request).unwrap_or_else(|| self.fill(index, request));
        wqe.words(after_close)
    }

    /// Writes `request` to the box at `index`. Returns what stands for it.
    #[cold]
    pub(super) fn fill(&self, index: usize, request: &SendRequest) -> CompactWqe {
        // Unless this is its first use, the box is there: a request returns its own before its place in the
        // ring becomes free.
        let mut full = self.take(index).unwrap_or_else(|| Box::new(*request));
        *full = *request;
        self.put(index, full);
        CompactWqe::boxed(index, request)
    }

    /// Puts a box back to `index`.
    #[inline]
    pub(super) fn put(&self, index: usize, full: Box<SendRequest>) {
        if let Some(place) = self.0.get(index) {
            place.store(Some(full));
        }
    }
}

impl fmt::Debug for Boxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Boxes").field("count", &self.0.len()).finish()
    }
}

#[cfg(test)]
impl Wqe {
    /// The WQE that `request` arrives as.
    pub(super) fn posted(request: &SendRequest, after_close: bool) -> Self {
        let boxes = Boxes::new(1);
        let words = boxes.words(0, request, after_close);
        Self::from_words(words, |index| boxes.take(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Access, Binding, FastRegistration};
    use crate::qp::lender::LenderNumber;
    use crate::qp::payload::{InlineData, SliceList};

    const STAG: STag = STag(0x0102_0304);

    fn operations() -> Vec<Operation> {
        let (stag, to) = (STAG, u64::MAX - 5);
        let (registration, access) = (STag(9), Access::all());
        let binding = Binding { window: stag, registration, to: 1, len: 2, access, zero_based: true };
        let mut operations = vec![
            Operation::Write { stag, to },
            Operation::Read { stag, to },
            Operation::FetchAdd { stag, to, add: 1, mask: 2 },
            Operation::CompareSwap { stag, to, compare: 1, compare_mask: 2, swap: 3, swap_mask: 4 },
            Operation::Swap { stag, to, swap: 5, mask: 6 },
            Operation::LocalInvalidate { stag },
            Operation::Unbind { window: stag },
            Operation::Bind(binding),
            Operation::Rebind(binding),
            Operation::Register(FastRegistration {
                stag,
                offset: 1,
                len: 2,
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
                // An STag of zero is an STag too.
                Operation::Send { invalidate: Some(STag(0)), solicited },
                Operation::Immediate { immediate, solicited },
                Operation::WriteWithImmediate { stag, to, immediate, solicited },
            ]);
        }
        operations
    }

    fn payloads() -> Vec<Payload> {
        let slice = |octets| Slice { stag: STag(7), to: 1 << 40, len: octets };
        vec![
            Payload::EMPTY,
            slice(0).into(),
            slice(u32::MAX).into(),
            SliceList::try_from(&[slice(1), slice(2)][..]).unwrap().into(),
            InlineData::try_from(&[1, 2, 3][..]).unwrap().into(),
        ]
    }

    /// The core reads each request as the application posted it, in either form.
    #[test]
    fn every_request_arrives_as_it_was_posted() {
        let (mut compact, mut full) = (0, 0);
        for operation in operations() {
            let both = |local| [(local, (false, true)), (local, (true, false))];
            for (local, (signaled, fenced)) in payloads().into_iter().flat_map(both) {
                let request = SendRequest { id: u64::MAX - 1, operation, local, signaled, fenced };
                let posted = Wqe::posted(&request, false);
                assert_eq!((posted.id(), posted.operation()), (request.id, operation));
                assert_eq!(
                    (posted.kind(), posted.expects_response()),
                    (operation.kind(), operation.expects_response())
                );
                assert_eq!((posted.signaled(), posted.fenced()), (signaled, fenced));
                assert!(!posted.posted_after_close());
                assert_eq!(posted.slices(), local.slices());
                assert_eq!(u64::from(posted.octets()), local.len());
                match local {
                    Payload::Inline(data) => assert_eq!(posted.inline_octets(), Some(data.as_slice())),
                    Payload::Gather(_) => assert_eq!(posted.inline_octets(), None),
                }
                *(if posted.full().is_some() { &mut full } else { &mut compact }) += 1;
                let late = Wqe::posted(&request, true);
                assert!(late.posted_after_close());
                assert_eq!(
                    (late.id(), late.operation(), late.slices()),
                    (request.id, operation, local.slices())
                );
            }
        }
        // Eight operations of twenty are compact with three payloads of five, two with one, each signaled
        // or not.
        let expected = (8 * 3 + 2) * 2;
        assert_eq!((compact, full), (expected, 20 * 5 * 2 - expected));
    }

    /// The Write keeps the memory and the fence, the Immediate Data its eight octets.
    // Requirements: RDMAPX-6-01
    #[test]
    fn a_write_with_immediate_is_two() {
        let operation = Operation::WriteWithImmediate { stag: STAG, to: 3, immediate: 4, solicited: true };
        let local = Slice { stag: STag(7), to: 1, len: 2 };
        let request = SendRequest { fenced: true, ..SendRequest::new(5, operation, local) };
        let mut write = Wqe::posted(&request, false);
        let immediate = write.split_immediate().unwrap();
        assert_eq!((write.id(), write.operation()), (5, Operation::Write { stag: STAG, to: 3 }));
        assert_eq!((write.slices(), write.fenced()), (&[local][..], true));
        let rest = Operation::Immediate { immediate: 4, solicited: true };
        assert_eq!((immediate.id(), immediate.operation()), (5, rest));
        assert_eq!((immediate.slices(), immediate.fenced()), (&[][..], false));
        assert!(write.split_immediate().is_none());
        // The second completes for both: the memory of the first goes back to its lender then.
        let number = LenderNumber::unused().unwrap();
        let request = SendRequest::new(6, operation, SliceList::lent(local, &number));
        let mut write = Wqe::posted(&request, false);
        let immediate = write.split_immediate().unwrap();
        assert!(immediate.lender().is_some() && immediate.lender() == write.lender());
        let send = SendRequest::new(1, Operation::SEND, local);
        assert!(Wqe::posted(&send, false).split_immediate().is_none());
    }
}
