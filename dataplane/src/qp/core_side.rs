//! The side of a queue pair where a core takes what is posted, and reports what is complete.

use super::async_event::AsyncEvent;
use super::completion_queue::{CompletionBatch, CompletionProducer};
use super::cqe::{ReceivedMessage, received_words};
use super::error::StreamError;
use super::lender::marked_id;
use super::payload::SliceList;
use super::shared::SharedQp;
use super::shared_receive_queue::SharedReceiveQueue;
use super::work::{Completion, ReceiveRequest, Status};
use super::work_queue::Posted;
use super::wqe::{CompactWqe, WQE_WORDS, Wqe};
use crate::sync::Ordering;

impl SharedQp {
    /// The end of the completion queue of sends, for the core.
    #[inline]
    fn send_producer(&self) -> CompletionProducer<'_> {
        self.send_completions.producer(&self.doorbells, self.events.as_deref())
    }

    /// The end of the completion queue of receives, for the core.
    #[inline]
    fn receive_producer(&self) -> CompletionProducer<'_> {
        self.receive_completions.producer(&self.doorbells, self.events.as_deref())
    }

    /// Dequeues the next posted send, for the core.
    #[inline]
    pub fn dequeue_send(&self) -> Option<Wqe> {
        let slot = self.sends().front()?;
        let request = Wqe::from_words(slot.read(), |index| self.boxes.take(index));
        self.sends().advance();
        Some(request)
    }

    /// Returns the posted sends, for the core, which dequeues the first of them.
    #[inline]
    pub(super) fn posted_sends(&self) -> PostedSends<'_> {
        PostedSends(self.sends().posted())
    }

    /// Returns the box of a request, for the core. This comes before the completion, after which another
    /// request may be posted.
    #[inline]
    pub fn recycle(&self, mut request: Wqe) {
        self.recycle_box(&mut request);
    }

    /// Returns the box of a request, which is done with, as [`recycle`](Self::recycle) does.
    #[inline]
    pub(super) fn recycle_box(&self, request: &mut Wqe) {
        if let Some((index, full)) = request.detach_box() {
            self.boxes.put(index, full);
        }
    }

    /// Whether a posted send waits to be dequeued, for the core.
    #[inline]
    pub fn has_posted_sends(&self) -> bool {
        !self.sends().is_empty()
    }

    /// Whether a posted receive waits to be dequeued, for the core.
    pub fn has_posted_receives(&self) -> bool {
        !self.receives().is_empty()
    }

    /// Dequeues the next posted receive, for the core.
    pub fn dequeue_receive(&self) -> Option<ReceiveRequest> {
        let request = self.posted_receive(0)?;
        self.receives().advance();
        Some(request)
    }

    /// Returns the posted receive after `index` others that are not dequeued, for the core.
    pub(super) fn posted_receive(&self, index: usize) -> Option<ReceiveRequest> {
        Some(ReceiveRequest::read(self.receives().posted_at(index)?, &self.more_ranges))
    }

    /// Whether it may dequeue another receive from its shared receive queue, for the core.
    #[inline]
    fn may_hold_another(&self) -> bool {
        (self.receives().held() as usize) < self.receive_slots.capacity()
    }

    /// Copies the receive for the next message that begins from the receive queue to `request`, for the core.
    /// Returns false if there is none.
    #[inline]
    pub(super) fn read_front_receive(&self, request: &mut ReceiveRequest) -> bool {
        let front = self.receives().front();
        if let Some(slot) = front {
            request.read_from(slot, &self.more_ranges);
        }
        front.is_some()
    }

    /// Consumes the receive that was [read](Self::read_front_receive), for the core.
    #[inline]
    pub(super) fn consume_front_receive(&self) {
        self.receives().advance();
    }

    /// Dequeues a receive from the shared receive queue for a message that begins, for the core. Returns
    /// `None` if there is none, or if the queue pair holds as many as it may.
    ///
    /// # Errors
    ///
    /// [`StreamError::CompletionQueueOverflow`] if the completion queue has no free entry for it. The receive
    /// stays in the shared receive queue; if another thread reserves the last entry meanwhile, it may become
    /// the last one there.
    pub fn dequeue_shared_receive(&self) -> Result<Option<ReceiveRequest>, StreamError> {
        let mut request = ReceiveRequest::new(0, SliceList::default());
        Ok(self.dequeue_shared_receive_to(&mut request)?.then_some(request))
    }

    /// [`dequeue_shared_receive`](Self::dequeue_shared_receive) to `request`. Returns false if there is none;
    /// `request` is then undefined.
    #[inline]
    pub(super) fn dequeue_shared_receive_to(
        &self,
        request: &mut ReceiveRequest,
    ) -> Result<bool, StreamError> {
        let Some(queue) = &self.shared_receives else { return Ok(false) };
        if !self.may_hold_another() {
            return Ok(false);
        }
        // The receive comes first, then the entry: a core that reserved the last entry, and found then that
        // another had dequeued the last receive, would have kept the entry from that one.
        let completions = self.receive_completions.queue();
        let reserves = completions.reserves_for_receives();
        if !queue.dequeue(request, || !reserves || completions.has_entry())? {
            return Ok(false);
        }
        if reserves && completions.reserve(1) == 0 {
            self.put_back(queue, request);
            return Err(StreamError::CompletionQueueOverflow);
        }
        self.receives().advance();
        Ok(true)
    }

    /// Posts a receive to its shared receive queue again, as the last one there: another thread has reserved
    /// the last entry since this core saw it free. If threads have filled the queue since it was dequeued, it
    /// is flushed; without an entry for that its completion is left out, and the completion queue reports an
    /// overflow.
    #[cold]
    fn put_back(&self, queue: &SharedReceiveQueue, request: &ReceiveRequest) {
        if queue.post(core::slice::from_ref(request)).is_err() {
            self.receive_producer().push_if_free(request.completion(self.number, Status::Flushed, 0));
        }
    }

    /// Has its shared receive queue ring for its core when the next receive is posted, or at once if there is
    /// one; for the core.
    pub(crate) fn await_shared_receive(&self) {
        if let (Some(queue), Some(home)) = (&self.shared_receives, self.home()) {
            queue.await_post(home.core, &self.doorbells);
        }
    }

    /// Whether a receive that a message lacks is being posted to its shared receive queue, or just was.
    pub(crate) fn awaits_poster(&self) -> bool {
        self.shared_receives.as_ref().is_some_and(|queue| queue.has_claimed()) && self.may_hold_another()
    }

    /// Reports that a message found no free entry for its completion, for the core.
    pub fn completions_overflow(&self) {
        self.receive_completions.queue().overflow(self.events.as_deref());
    }

    /// Every receive is completed and no more will be dequeued, for the core.
    pub fn receives_are_flushed(&self) {
        if self.shares_receives() && !self.last_receive_reported.swap(true, Ordering::Relaxed) {
            self.report(AsyncEvent::LastReceiveReached { qp: self.number });
        }
    }

    /// Returns a writer of the next `completions` completions of sends that were signaled, for the core. Each
    /// is counted as ended [beforehand](Self::retire_send).
    #[inline]
    pub(super) fn complete_sends(&self, completions: u32) -> CompletionBatch<'_> {
        self.send_producer().batch(completions)
    }

    /// Reports a completed send that was signaled, in the entry reserved for it, for the core.
    #[inline]
    pub fn complete_send(&self, completion: Completion) {
        self.sends().finish_one();
        self.send_producer().push(completion);
    }

    /// Counts a send as ended, for the core: it was not signaled, or its completion comes next.
    #[inline]
    pub fn retire_send(&self) {
        self.sends().finish_one();
    }

    /// Counts `sends` sends as ended, as [`retire_send`](Self::retire_send) does.
    #[inline]
    pub(super) fn retire_sends(&self, sends: u64) {
        self.sends().finish(sends);
    }

    /// Reports a send that was not signaled and has failed or is flushed, for the core. No entry is reserved
    /// for its completion: without a free one the completion is left out, and the completion queue reports an
    /// overflow.
    pub fn report_unsignaled(&self, completion: Completion) {
        self.sends().finish_one();
        self.send_producer().push_if_free(completion);
    }

    /// Reports that `request` is complete by a message that was Delivered, for the core.
    #[inline]
    pub(super) fn complete_message(&self, request: &ReceiveRequest, message: &ReceivedMessage) {
        let id = marked_id(request.id, request.local.lender);
        self.receives().finish_one();
        let producer = self.receive_producer();
        if producer.admits_receive() {
            producer.push_words(&received_words(self.number, id, message), message.solicited);
        }
    }

    /// Reports a receive that has failed or is flushed, for the core.
    pub fn complete_receive(&self, completion: Completion) {
        self.receives().finish_one();
        let producer = self.receive_producer();
        if producer.admits_receive() {
            producer.push(completion);
        }
    }

    /// Releases the entries of its completion queues that are reserved for unfinished work: other queue pairs
    /// report to them, and this work never completes. For a thread that knows that the core has ended, whose
    /// side it then has; it has [abandoned](Self::abandon) the queue pair before. A thread that posts at the
    /// same moment may still reserve entries: calling this again, once nobody posts, releases them.
    pub fn release_entries(&self) {
        let sends = self.sends();
        let unfinished = sends.unfinished();
        let is_signaled = |position: &u64| {
            let slot = sends.slot_of(*position);
            slot.is_some_and(|slot| CompactWqe::from_words(slot.read()).is_signaled())
        };
        // The slots are read before they count as free.
        let signaled = unfinished.clone().filter(is_signaled).count() as u32;
        sends.finish(unfinished.end - unfinished.start);
        self.send_completions.queue().unreserve(signaled);
        let unfinished = self.receives().unfinished();
        let receives = unfinished.end - unfinished.start;
        self.receives().finish(receives);
        let completions = self.receive_completions.queue();
        if completions.reserves_for_receives() {
            completions.unreserve(receives as u32);
        }
    }
}

/// Posted sends that a core dequeues together.
#[derive(Debug)]
pub(super) struct PostedSends<'q>(Posted<'q, WQE_WORDS>);

impl PostedSends<'_> {
    /// The next one, if it is compact.
    #[inline]
    pub(super) fn front(&self) -> Option<CompactWqe> {
        Some(CompactWqe::from_words(self.0.front()?.read()))
    }

    /// Goes on to the next one.
    #[inline]
    pub(super) const fn advance(&mut self) {
        self.0.advance();
    }
}
