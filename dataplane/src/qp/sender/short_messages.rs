//! Short messages: RDMA Writes and Sends of few octets, from one range of memory, that are not fenced. Most
//! small messages are such, and many of them share a segment, so what each one takes counts.
//!
//! A short message is one FPDU, unless the segment has no room for all of it. Nothing answers it, its payload
//! is always copied, and its work request has no box. So it is taken, packed, built and completed by a few
//! steps without branches for other requests. All of these find it by
//! [`short_octets`](ActiveWqe::short_octets) of its entry. The entry is like any other beyond that: every
//! step that a short message does not fit, such as that of a part of it, is left to the general way, with the
//! same result.

use super::{ActiveWqe, FpduRun, Origin, Reads, SegmentRoom, Sender, SharedQp, Slice, StagTable, Stage};
use crate::limits;
use crate::memory::{Readable, STag};
use crate::mpa;
use crate::qp::cqe;
use crate::qp::lender::marked_id;
use crate::qp::work::CompletionKind;
use crate::rdmap::message;
use crate::wire::ddp::{Tagged, Untagged};
use crate::wire::rdmap::Opcode;
use crate::wire::tcp::SeqNumber;

/// Why no more short messages were taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TakenUntil {
    /// Nothing more is posted.
    Empty,
    /// The next request is to be taken another way, or there is no room for any.
    Other,
    /// The free entries in a row are filled.
    Full,
}

/// A short message that is whole in its FPDU.
pub struct ShortMessage<'s> {
    wqe: &'s ActiveWqe,
    version: u8,
}

impl ShortMessage<'_> {
    /// The octets of its FPDU, in a stream without Markers.
    #[inline]
    pub fn fpdu_octets(&self) -> usize {
        usize::from(self.wqe.short_octets)
    }

    /// Its payload.
    #[inline]
    pub const fn local(&self) -> Slice {
        self.wqe.request.compact().local()
    }

    /// Octets of the header of its FPDU.
    #[inline]
    pub fn header_len(&self) -> usize {
        if self.wqe.request.compact().is_write() { Tagged::LEN } else { Untagged::LEN }
    }

    /// Writes the header of its FPDU to `out`.
    #[inline]
    pub fn emit_header(&self, out: &mut [u8]) {
        if self.wqe.request.compact().is_write() {
            self.write_header().emit(out);
        } else {
            self.emit_send_header(out);
        }
    }

    // Not inlined: the loop over many Writes needs the registers.
    #[inline(never)]
    fn emit_send_header(&self, out: &mut [u8]) {
        let Self { wqe, version } = *self;
        let request = wqe.request.compact();
        let invalidate = request.invalidates();
        let opcode = Opcode::send(invalidate.is_some(), request.is_solicited());
        let message = message::send(version, opcode, invalidate.unwrap_or_default(), wqe.msn, wqe.octets);
        debug_assert_eq!(wqe.message(version), Some(message), "it is another message");
        message.segment(0, mpa::fpdu::MULPDU_MAX).0.emit(out);
    }

    /// The header of its FPDU, if it is a Write.
    #[inline]
    fn write_header(&self) -> Tagged {
        let Self { wqe, version } = *self;
        let (stag, to) = wqe.request.compact().remote();
        let message = message::write(version, stag, to, wqe.octets);
        debug_assert_eq!(wqe.message(version), Some(message), "it is another message");
        Tagged { last: true, version, rsvd_ulp: message.rsvd_ulp[0], stag, to }
    }
}

impl Sender {
    /// Takes the next posted requests as long as they are short messages that pass the check. Returns true if
    /// the next one may be another request, or there is no room for it.
    pub(super) fn take_short_messages(&mut self, shared: &SharedQp, stags: &mut StagTable) -> bool {
        // The free entries are in a row, or in two.
        loop {
            match self.take_short_messages_in_a_row(shared, stags) {
                TakenUntil::Full => {}
                until => return until == TakenUntil::Other,
            }
        }
    }

    /// Takes short messages to free entries that are in a row in memory. Returns why it has ended.
    fn take_short_messages_in_a_row(&mut self, shared: &SharedQp, stags: &mut StagTable) -> TakenUntil {
        let free = shared.send_depth().saturating_sub(self.active.len());
        let numbers = &mut self.numbers;
        let places = self.active.next_run();
        let most = free.min(places.len());
        let mut taken = 0;
        let mut until = if most == 0 { TakenUntil::Other } else { TakenUntil::Full };
        // Most are from the same memory.
        let mut last: Option<(STag, Readable<'_>)> = None;
        let mut posted = shared.posted_sends();
        for place in places.iter_mut().take(most) {
            let Some(request) = posted.front() else {
                until = TakenUntil::Empty;
                break;
            };
            let local = request.local();
            if !request.is_short_message() {
                until = TakenUntil::Other;
                break;
            }
            if last.as_ref().is_none_or(|(stag, _)| *stag != local.stag) {
                last = stags.readable(local.stag, shared.accessor()).map(|memory| (local.stag, memory));
            }
            let retained =
                last.as_mut().is_some_and(|(_, memory)| memory.retain(local.to, local.len as usize));
            if !retained {
                until = TakenUntil::Other;
                break;
            }
            place.take_short_message(request, numbers);
            posted.advance();
            taken += 1;
        }
        self.active.push_many(taken);
        until
    }

    /// Extends `run` by the requests from index `next` on as long as they are short messages that fit a
    /// segment of `emss_octets` without Markers, as [`pack`](Self::pack) does. Returns how many.
    #[inline]
    pub(super) fn pack_short_messages(&self, run: &mut FpduRun, next: usize, emss_octets: usize) -> usize {
        let (mut octets, mut last_octets, mut count) = (run.octets, run.last_octets, 0);
        let most = limits::FPDUS_PER_SEGMENT.saturating_sub(run.fpdus());
        'fits: for part in self.active.in_a_row(next..next + most) {
            for wqe in part {
                let end = octets + u32::from(wqe.short_octets);
                if wqe.short_octets == 0 || end as usize > emss_octets {
                    break 'fits;
                }
                (octets, last_octets) = (end, wqe.octets);
                count += 1;
            }
        }
        (run.octets, run.last_octets, run.more) = (octets, last_octets, run.more + count);
        usize::from(count)
    }

    /// The FPDU of the next request, as [`peek`](Self::peek) returns it, if that is a short message which
    /// fits the segment whole, and nothing else may go before it.
    #[inline]
    pub(super) fn peek_short_message(&self, room: &SegmentRoom, reads: &Reads) -> Option<FpduRun> {
        let next = self.active.get(self.queued).filter(|wqe| wqe.short_octets > 0)?;
        let request = next.request.compact();
        let is_first = self.provider_message.is_none() && self.terminate.is_none() && self.offset == 0;
        let header_len = if request.is_write() { Tagged::LEN } else { Untagged::LEN };
        let first_octets = request.local().len;
        let fits = !room.markers && header_len + first_octets as usize <= room.mulpdu();
        if !is_first || !fits || reads.inbound.next().is_some() {
            return None;
        }
        Some(FpduRun {
            origin: Origin::Requests(self.number(self.queued)),
            offset: 0,
            first_octets,
            octets: u32::from(next.short_octets),
            last_octets: 0,
            more: 0,
            header_len: header_len as u8,
            by_request: true,
        })
    }

    /// Returns how many of the next requests are short messages that are as long as that of `run`, the last
    /// one queued, and go into segments of their own after it: nothing goes between them.
    #[inline]
    pub(super) fn messages_alike(&self, run: &FpduRun, segment: &SegmentRoom, reads: &Reads) -> u32 {
        let alone = !segment.packing && !segment.markers && run.more == 0;
        if !alone || self.queued == self.active.len() || reads.inbound.next().is_some() {
            return 0;
        }
        // Those with headers of another length have another length of all.
        let is_like =
            |wqe: &&ActiveWqe| u32::from(wqe.short_octets) == run.octets && wqe.octets == run.first_octets;
        self.active.from(self.queued).take_while(is_like).count() as u32
    }

    /// Notes that the next `count` requests, which are [alike](Self::messages_alike), are queued, each in a
    /// segment of its own after `end`, where `run` ends.
    #[inline]
    pub(super) fn advance_messages(&mut self, run: &FpduRun, count: u32, end: SeqNumber) {
        let queued = self.queued..self.queued + count as usize;
        let mut end = end;
        for wqe in self.active.range_mut(queued) {
            end += run.octets;
            wqe.stage = Stage::Queued(end);
        }
        self.queued += count as usize;
    }

    /// Notes that the FPDUs of `run` after the first `before` are queued, as long as they are whole
    /// short messages, as [`advance`](Self::advance) does. Returns how many.
    #[inline]
    pub(super) fn advance_short_messages(&mut self, run: &FpduRun, before: usize, end: SeqNumber) -> usize {
        if self.offset > 0 {
            return 0;
        }
        if run.fpdus() == 1 {
            let next = self.active.get_mut(self.queued);
            let Some(wqe) = next.filter(|wqe| wqe.short_octets > 0 && wqe.octets == run.first_octets) else {
                return 0;
            };
            wqe.stage = Stage::Queued(end);
            self.queued += 1;
            return 1;
        }
        // Only the first and the last may be a part of their message.
        let is_whole = |index, octets| self.active.get(index).is_some_and(|wqe| wqe.octets == octets);
        let mut queued = self.queued..self.queued + (run.fpdus() - before);
        if before == 0 && !is_whole(queued.start, run.first_octets) {
            return 0;
        }
        if run.more > 0 && !is_whole(queued.end - 1, run.last_octets) {
            queued.end -= 1;
        }
        let mut count = 0;
        'short: for part in self.active.in_a_row_mut(queued) {
            for wqe in part {
                if wqe.short_octets == 0 {
                    break 'short;
                }
                wqe.stage = Stage::Queued(end);
                count += 1;
            }
        }
        self.queued += count;
        count
    }

    /// The message of a run of one FPDU that is not yet acknowledged, if that is a whole short message.
    #[inline]
    pub fn short_message(&self, run: &FpduRun) -> Option<ShortMessage<'_>> {
        let Origin::Requests(number) = run.origin else { return None };
        let wqe = self.active.get(number.wrapping_sub(self.completed) as usize)?;
        let is_whole = run.offset == 0 && wqe.octets == run.first_octets;
        let found = run.more == 0 && wqe.short_octets > 0 && is_whole;
        found.then_some(ShortMessage { wqe, version: self.numbers.version })
    }

    /// Calls `f` for the first FPDUs of a run that is not yet acknowledged, as long as each is a whole short
    /// message and `f` returns true. Returns how often it did.
    #[inline]
    pub fn each_short_message(&self, run: &FpduRun, mut f: impl FnMut(ShortMessage<'_>) -> bool) -> usize {
        let Origin::Requests(number) = run.origin else { return 0 };
        let first = number.wrapping_sub(self.completed) as usize;
        // Only the first and the last may be a part of their message.
        let is_whole = |index, octets| self.active.get(index).is_some_and(|wqe| wqe.octets == octets);
        if run.offset > 0 || !is_whole(first, run.first_octets) {
            return 0;
        }
        let is_last_cut = run.more > 0 && !is_whole(first + usize::from(run.more), run.last_octets);
        let mut whole = 0;
        for part in self.active.in_a_row(first..first + run.fpdus() - usize::from(is_last_cut)) {
            for wqe in part {
                if wqe.short_octets == 0 {
                    return whole;
                }
                if !f(ShortMessage { wqe, version: self.numbers.version }) {
                    return whole;
                }
                whole += 1;
            }
        }
        whole
    }

    /// Completes the oldest requests as long as they are short messages that TCP has acknowledged. Returns
    /// true if it may be called again for more.
    // Requirements: RDMAP-5.5-07
    pub(super) fn finish_short_messages(
        &mut self,
        shared: &SharedQp,
        stags: &mut StagTable,
        acknowledged: SeqNumber,
    ) -> bool {
        let run = self.active.front_run();
        let (mut done, mut reported) = (0, 0);
        // Most are from the same memory.
        let (mut stag, mut readers) = (STag::default(), 0);
        for wqe in &*run {
            if wqe.short_octets == 0 || !wqe.stage.is_acknowledged(acknowledged) {
                break;
            }
            let request = wqe.request.compact();
            if request.local().stag != stag {
                if readers > 0 {
                    stags.release_many(stag, readers);
                }
                (stag, readers) = (request.local().stag, 0);
            }
            readers += 1;
            done += 1;
            reported += u32::from(request.is_signaled());
        }
        if done == 0 {
            return false;
        }
        stags.release_many(stag, readers);
        let is_all = done == run.len();
        let mut completions = shared.complete_sends(reported);
        shared.retire_sends(done as u64);
        for wqe in run.iter().take(done) {
            let request = wqe.request.compact();
            if request.is_signaled() {
                let (id, lender) = request.id_and_lender();
                let id = marked_id(id, lender);
                let kind = if request.is_write() { CompletionKind::Write } else { CompletionKind::Send };
                let words = cqe::plain_words(shared.number, kind, wqe.octets, id);
                completions.push_words(&words);
            }
        }
        drop(completions);
        self.active.pop_front(done);
        self.completed = self.completed.wrapping_add(done as u32);
        self.acknowledged = self.acknowledged.saturating_sub(done);
        self.queued = self.queued.saturating_sub(done);
        is_all && !self.active.is_empty()
    }
}
