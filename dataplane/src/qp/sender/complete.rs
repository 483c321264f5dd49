//! Entries leave the send queue: what TCP has acknowledged is complete, in the order of posting, and what
//! cannot complete any more is flushed.

use super::Sender;
use super::entry::{SendEntry, Traits};
use crate::memory::{STag, StagTable};
use crate::qp::error::StreamError;
use crate::qp::payload::Slice;
use crate::qp::reads::{OutboundReads, Reads};
use crate::qp::shared::SharedQp;
use crate::qp::work::Status;
use crate::qp::wqe::Wqe;
use crate::wire::tcp::SeqNumber;

impl Sender {
    /// Completes, in the order of posting, the requests that TCP has acknowledged up to `acknowledged` and
    /// whose responses have come.
    // Requirements: RDMAP-5.5-07, RDMAP-5.5-08, RDMAP-5.5-10
    pub fn complete(
        &mut self,
        shared: &SharedQp,
        stags: &mut StagTable,
        reads: &mut Reads,
        acknowledged: SeqNumber,
    ) {
        reads.inbound.complete(stags, acknowledged);
        while self.complete_in_a_row(shared, stags, &reads.outbound, acknowledged) {}
        if self.acknowledged < self.queued
            && self.entries.get(self.acknowledged).is_some_and(|entry| entry.end <= acknowledged)
        {
            self.count_acknowledged(acknowledged);
        }
        self.flush_after_close(shared);
    }

    /// Completes the oldest requests that TCP has acknowledged and that wait for no response. All of them
    /// have succeeded. Returns true if it may be called again for more.
    fn complete_in_a_row(
        &mut self,
        shared: &SharedQp,
        stags: &mut StagTable,
        outbound: &OutboundReads,
        acknowledged: SeqNumber,
    ) -> bool {
        let (queued, counted) = (self.queued, self.acknowledged);
        let in_a_row = self.entries.front_run();
        let most = in_a_row.len().min(queued);
        // The request is not done with the first of two messages.
        let (mut done, mut firsts, mut reported) = (0, 0, 0);
        for entry in &mut in_a_row[..most] {
            // TCP's numbers may have come round since an entry was counted.
            if entry.end > acknowledged && done >= counted {
                break;
            }
            if entry.traits.intersects(Traits::GATED.union(Traits::BOXED)) {
                if entry.response.is_some_and(|number| !outbound.is_answered(number)) {
                    break;
                }
                release(&mut entry.request, shared, stags);
                firsts += u64::from(!entry.traits.contains(Traits::LAST));
            }
            done += 1;
            reported += u32::from(entry.traits.contains(Traits::REPORTED));
        }
        if done == 0 {
            return false;
        }
        shared.retire_sends(done as u64 - firsts);
        let mut completions = shared.complete_sends(reported);
        // Most are from the same memory.
        let (mut stag, mut readers) = (STag::default(), 0);
        for entry in &in_a_row[..done] {
            let local = entry.request.compact().local();
            if local.len > 0 {
                if local.stag != stag && readers > 0 {
                    stags.release_many(stag, readers);
                    readers = 0;
                }
                stag = local.stag;
                readers += 1;
            }
            if entry.traits.contains(Traits::REPORTED) {
                completions.push_words(&entry.completion_words(shared.number));
            }
        }
        drop(completions);
        if readers > 0 {
            stags.release_many(stag, readers);
        }
        let may_have_more = done == in_a_row.len();
        self.forget_front(done);
        may_have_more && self.queued > 0
    }

    /// Returns how many requests are accepted and not complete.
    pub fn accepted(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if one of them has retained the slot of `stag`.
    pub fn reads_from(&self, stag: STag) -> bool {
        let mut retaining = self.entries.from(0).filter(|entry| entry.status == Status::Success);
        let is_there = |slice: &Slice| slice.len > 0 && slice.stag.index() == stag.index();
        retaining.any(|entry| entry.request.slices().iter().any(is_there))
    }

    /// Removes the oldest `count` entries.
    #[inline]
    fn forget_front(&mut self, count: usize) {
        self.entries.pop_front(count);
        self.completed = self.completed.wrapping_add(count as u32);
        self.acknowledged = self.acknowledged.saturating_sub(count);
        self.queued = self.queued.saturating_sub(count);
    }

    /// Counts the requests that are acknowledged and wait for their responses: one may wait until TCP's
    /// sequence numbers have come round.
    #[cold]
    fn count_acknowledged(&mut self, acknowledged: SeqNumber) {
        let waiting = self.entries.range_mut(self.acknowledged..self.queued);
        self.acknowledged += waiting.take_while(|entry| entry.end <= acknowledged).count();
    }

    /// Flushes requests posted after this end had closed or the stream had failed, once all before them are
    /// complete.
    #[inline]
    pub fn flush_after_close(&mut self, shared: &SharedQp) {
        if self.entries.is_empty() && (self.after_close.is_some() || shared.state().is_over()) {
            self.flush_posted(shared);
        }
    }

    /// Flushes requests that are not accepted yet. At most as many as the queue holds are flushed at once, so
    /// that an application that keeps posting cannot keep the core here, and rings the doorbell for the rest.
    #[cold]
    fn flush_posted(&mut self, shared: &SharedQp) {
        for _ in 0..=shared.send_depth() {
            let after_close = self.after_close.take().map(|request| *request);
            let Some(request) = after_close.or_else(|| shared.dequeue_send()) else { return };
            let mut entry = SendEntry::new(request);
            entry.checked(Status::Flushed, &mut self.numbers);
            let (completion, signaled) =
                (entry.completion(shared, Status::Flushed), entry.request.signaled());
            shared.recycle(entry.request);
            match completion {
                Some(completion) if signaled => shared.complete_send(completion),
                Some(completion) => shared.report_unsignaled(completion),
                None => {}
            }
        }
        if shared.has_posted_sends() {
            shared.ring();
        }
    }

    /// Completes everything accepted and posted: the oldest request with `error` if the stream failed, the
    /// others as flushed. A request that could not be done keeps its own status.
    pub fn flush(&mut self, shared: &SharedQp, stags: &mut StagTable, error: Option<StreamError>) {
        let mut status = error.map_or(Status::Flushed, Status::Failed);
        while !self.entries.is_empty() {
            // The first of two messages has no completion that could name the error.
            let named = self.entries.front().is_some_and(|entry| entry.traits.contains(Traits::LAST));
            self.finish_front(shared, stags, status);
            if named {
                status = Status::Flushed;
            }
        }
        self.flush_posted(shared);
        self.change = None;
        (self.acknowledged, self.queued, self.offset) = (0, 0, 0);
        self.provider_message = None;
    }

    /// Completes the oldest request with `outcome`, or with the reason why it cannot be done.
    pub(super) fn finish_front(&mut self, shared: &SharedQp, stags: &mut StagTable, outcome: Status) {
        let Some(entry) = self.entries.front_mut() else { return };
        let status = if entry.status == Status::Success {
            each_memory(&entry.request, |stag| stags.release(stag));
            outcome
        } else {
            entry.status
        };
        let completion = entry.completion(shared, status);
        let signaled = entry.request.signaled();
        shared.recycle_box(&mut entry.request);
        self.forget_front(1);
        match completion {
            // The first of two messages: the second has the completion.
            None => {}
            Some(completion) if signaled => shared.complete_send(completion),
            Some(_) if status == Status::Success => shared.retire_send(),
            // Verbs reports every failure, signaled or not.
            Some(completion) => shared.report_unsignaled(completion),
        }
    }
}

/// Releases the memory of a request that is complete, and returns its box, if it is in one.
#[inline(never)]
fn release(request: &mut Wqe, shared: &SharedQp, stags: &mut StagTable) {
    if request.full().is_some() {
        each_memory(request, |stag| stags.release(stag));
        shared.recycle_box(request);
    }
}

/// Calls `f` for each registration that the payload of a request lies in.
fn each_memory(request: &Wqe, f: impl FnMut(STag)) {
    request.slices().iter().filter(|slice| slice.len > 0).map(|slice| slice.stag).for_each(f);
}
