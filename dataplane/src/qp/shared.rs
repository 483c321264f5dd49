//! The part of a queue pair that an application and a core share: bounded lock-free rings. One thread posts
//! work, and one polls completions, while the core runs.

use core::mem::offset_of;
use std::sync::Arc;

use super::async_event::{AsyncEvent, AsyncEvents};
use super::completion_queue::{CompletionBatch, CompletionProducer, CompletionTarget};
use super::cqe::{ReceivedMessage, received_words};
use super::error::StreamError;
use super::home::HomeCell;
use super::lender::marked_id;
use super::payload::SliceList;
use super::receive_slot::{MoreRanges, RECEIVE_WORDS};
use super::request_check::check_shape;
use super::shared_receive_queue::SharedReceiveQueue;
use super::slot::Slots;
use super::work::{Completion, QpNumber, ReceiveRequest, SendRequest, Status};
use super::work_queue::{BothQueues, CoreSide, Portion, Posted, Poster, WorkQueue};
use super::wqe::{Boxes, CompactWqe, WQE_WORDS, Wqe};
use crate::memory::{Accessor, ProtectionDomainId, prefetch};
use crate::sync::{AtomicBool, AtomicCell, AtomicU8, AtomicU16, OneWord, Ordering, fence};
use crate::tcp::CloseReason;

pub use super::completion_queue::CompletionRing;
pub use super::doorbells::{CoreDoorbells, Doorbells};
pub use super::home::Home;
pub use super::post_error::{BadRequest, PostError};
pub use super::send_list::SendList;
pub use super::state::QpState;

/// How many work requests the queues of a queue pair hold.
#[derive(Clone, Copy, Debug)]
pub struct QueueDepths {
    /// The send queue.
    pub send: usize,
    /// The receive queue.
    pub receive: usize,
}

/// The completion queues that a queue pair reports to.
#[derive(Clone, Debug)]
pub struct CompletionRings {
    /// For sends.
    pub send: Arc<CompletionRing>,
    /// For receives.
    pub receive: Arc<CompletionRing>,
}

impl CompletionRings {
    /// One completion queue for sends and receives.
    pub fn shared(completions: Arc<CompletionRing>) -> Self {
        Self { send: completions.clone(), receive: completions }
    }
}

/// The part of a queue pair that an application and a core share.
///
/// One thread at a time posts to it: the methods that post are for that thread only. If two threads call
/// them at the same time, a request may be lost, or carried out twice. The handles of the API see to it.
///
/// The fields lie in cache lines by their use.
#[derive(Debug)]
#[repr(C)]
pub struct SharedQp {
    // A line that the core writes.
    core: BothQueues<CoreSide>,
    // What every send needs.
    send_slots: Slots<WQE_WORDS>,
    send_completions: CompletionTarget,
    /// Its number.
    pub number: QpNumber,
    /// Its Protection Domain.
    pub pd: ProtectionDomainId,
    state: AtomicU8,
    /// No core reads the queues any more.
    abandoned: AtomicBool,
    /// How many Reads and Atomic Operations may be outstanding.
    ord: AtomicU16,
    last_receive_reported: AtomicBool,
    // What every receive needs.
    receive_slots: Slots<RECEIVE_WORDS>,
    receive_completions: CompletionTarget,
    /// The shared receive queue that its receives come from, if it uses one.
    shared_receives: Option<Arc<SharedReceiveQueue>>,
    events: Option<Arc<AsyncEvents>>,
    // The rest.
    doorbells: CoreDoorbells,
    /// Its core, and its slot there, from the beginning of its stream on.
    home: HomeCell,
    /// Beside the slots of the send queue.
    boxes: Boxes,
    /// Beside the slots of the receive queue.
    more_ranges: MoreRanges,
    error: AtomicCell<OneWord<Option<StreamError>>>,
    // A line that the thread that posts writes.
    poster: BothQueues<Poster>,
}

// What the core writes and what the thread that posts writes is never in the same 128 bytes, which a
// processor may fetch together.
const _: () = assert!(offset_of!(SharedQp, poster) - offset_of!(SharedQp, core) >= 128);

// Each queue pair costs this, and the line of its reference counts.
#[cfg(not(loom))]
const _: () = assert!(size_of::<SharedQp>() <= 320);

impl SharedQp {
    /// Creates a queue pair with queues of `depths` work requests, at least one each, that reports to
    /// `completions`, of a device whose cores have these doorbells.
    pub fn new(
        number: QpNumber,
        pd: ProtectionDomainId,
        depths: QueueDepths,
        completions: CompletionRings,
        doorbells: impl Into<CoreDoorbells>,
    ) -> Self {
        let (send_slots, receive_slots) = (Slots::new(depths.send), Slots::new(depths.receive));
        Self {
            number,
            pd,
            core: BothQueues::default(),
            poster: BothQueues::default(),
            boxes: Boxes::new(send_slots.len()),
            send_slots,
            more_ranges: MoreRanges::default(),
            receive_slots,
            shared_receives: None,
            send_completions: CompletionTarget::new(completions.send),
            receive_completions: CompletionTarget::new(completions.receive),
            doorbells: doorbells.into(),
            home: HomeCell::new(),
            state: AtomicU8::new(QpState::Idle as u8),
            abandoned: AtomicBool::new(false),
            ord: AtomicU16::new(0),
            error: OneWord::cell(None),
            events: None,
            last_receive_reported: AtomicBool::new(false),
        }
    }

    /// The same, with its asynchronous events reported to `events`.
    #[must_use]
    pub fn with_events(self, events: Arc<AsyncEvents>) -> Self {
        Self { events: Some(events), ..self }
    }

    /// The same, with its receives from `receives`. Its receive depth then is how many it may hold at a
    /// time.
    #[must_use]
    pub fn with_shared_receives(self, receives: Arc<SharedReceiveQueue>) -> Self {
        let receive_slots = Slots::counted(self.receive_depth());
        Self { shared_receives: Some(receives), receive_slots, ..self }
    }

    #[inline]
    fn sends(&self) -> WorkQueue<'_, WQE_WORDS> {
        WorkQueue::new(&self.send_slots, &self.poster.sends, &self.core.sends)
    }

    /// With a shared receive queue, it only counts.
    #[inline]
    fn receives(&self) -> WorkQueue<'_, RECEIVE_WORDS> {
        WorkQueue::new(&self.receive_slots, &self.poster.receives, &self.core.receives)
    }

    /// Has the processor fetch the next send request, if one is posted.
    #[inline]
    pub fn prefetch_posted(&self) {
        prefetch(self.send_slots.slot(self.sends().dequeued()));
    }

    /// The identity that the access checks of memory see.
    #[inline]
    pub const fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, stream: self.number.0 }
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> QpState {
        QpState::from_u8(self.state.load(Ordering::Acquire))
    }

    /// The error that ended the stream, if one did.
    pub fn error(&self) -> Option<StreamError> {
        self.error.load().0
    }

    /// Send work requests the queue was made for.
    #[inline]
    pub fn send_depth(&self) -> usize {
        self.send_slots.capacity()
    }

    /// Receive work requests the queue was made for.
    pub fn receive_depth(&self) -> usize {
        self.receive_slots.capacity()
    }

    /// Whether its sends are reported to `ring`.
    pub fn reports_sends_to(&self, ring: &Arc<CompletionRing>) -> bool {
        Arc::ptr_eq(self.send_completions.queue(), ring)
    }

    /// Whether its receives are reported to `ring`.
    pub fn reports_receives_to(&self, ring: &Arc<CompletionRing>) -> bool {
        Arc::ptr_eq(self.receive_completions.queue(), ring)
    }

    /// Whether its receives come from a shared receive queue.
    #[inline]
    pub const fn shares_receives(&self) -> bool {
        self.shared_receives.is_some()
    }

    /// The shared receive queue that its receives come from, if one is.
    pub const fn shared_receives(&self) -> Option<&Arc<SharedReceiveQueue>> {
        self.shared_receives.as_ref()
    }

    /// Receives dequeued from its shared receive queue so far: the peer's use of it.
    // Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
    pub fn receives_consumed(&self) -> u64 {
        if self.shares_receives() { self.receives().dequeued() } else { 0 }
    }

    /// Receives that were posted to it, or that it has dequeued from its shared receive queue, and that are
    /// not completed.
    pub fn receives_outstanding(&self) -> u32 {
        if self.shares_receives() { self.receives().held() } else { self.receives().outstanding() }
    }

    /// Posts a send work request. Takes effect when the core next polls. After this end has closed, or once
    /// the stream has failed, the request is flushed when all requests before it are complete, as in verbs:
    /// its completion shows that the queue is drained.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing is posted then.
    // Inlined: a request that is built for it is not built then, only its compact form.
    #[inline]
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError> {
        let posted = match CompactWqe::new(&request) {
            Some(wqe) => self.post_compact(&wqe),
            None => self.post_sends(core::slice::from_ref(&request)),
        };
        posted.map_err(|bad| bad.error)
    }

    /// Posts a compact request.
    #[inline(never)]
    fn post_compact(&self, wqe: &CompactWqe) -> Result<(), BadRequest> {
        self.post_each(
            core::slice::from_ref(wqe),
            Portion::Prefix,
            |reads| wqe.check_shape(reads).err().map(|error| (0, error)),
            |wqes| wqes.iter().filter(|wqe| wqe.is_signaled()).count() as u32,
            |wqe, _, after_close| wqe.words(after_close),
        )
    }

    /// Posts send work requests in this order, with one doorbell for all.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that was not accepted; those before it are posted.
    pub fn post_sends(&self, requests: &[SendRequest]) -> Result<(), BadRequest> {
        self.post_requests(requests, Portion::Prefix)
    }

    #[inline]
    fn post_requests(&self, requests: &[SendRequest], extent: Portion) -> Result<(), BadRequest> {
        self.post_each(
            requests,
            extent,
            |reads| {
                let bad = |request| check_shape(request, reads).err();
                requests.iter().enumerate().find_map(|(index, request)| Some((index, bad(request)?)))
            },
            |requests| requests.iter().filter(|request| request.signaled).count() as u32,
            |request, index, after_close| self.boxes.words(index, request, after_close),
        )
    }

    /// Posts the send work requests of `list` in this order, with one doorbell for all.
    ///
    /// # Errors
    ///
    /// As [`post_sends`](Self::post_sends).
    #[inline]
    pub fn post_list(&self, list: &SendList) -> Result<(), BadRequest> {
        self.post_each(
            list.wqes(),
            Portion::Prefix,
            |reads| list.first_bad(reads),
            |wqes| list.signaled(wqes),
            |wqe, index, after_close| list.words(wqe, &self.boxes, index, after_close),
        )
    }

    /// Posts `requests` in this order. `first_bad` returns the first that cannot be posted, when it is called
    /// with whether the ends agreed on Reads; `signaled`, how many of the first requests are. `words` is
    /// called with a request, the index of its slot, and whether it is posted after this end has closed.
    #[inline]
    fn post_each<R>(
        &self,
        requests: &[R],
        extent: Portion,
        first_bad: impl FnOnce(bool) -> Option<(usize, PostError)>,
        signaled: impl Fn(&[R]) -> u32,
        words: impl Fn(&R, usize, bool) -> [u64; WQE_WORDS],
    ) -> Result<(), BadRequest> {
        let after_close = match self.state() {
            QpState::ReadyToSend => false,
            QpState::Closing | QpState::Terminate | QpState::Error if !self.is_abandoned() => true,
            state => return Err(BadRequest { posted: 0, error: PostError::WrongState(state) }),
        };
        let reads = self.ord.load(Ordering::Acquire) > 0;
        let first_bad = first_bad(reads);
        let good = match first_bad {
            Some(_) if extent == Portion::Whole => &[],
            Some((index, _)) => &requests[..index],
            None => requests,
        };
        let write = |request: &R, slots: &Slots<WQE_WORDS>, position: u64| {
            slots.slot(position).write(position, &words(request, slots.index(position), after_close));
        };
        let (posted, refused) =
            self.sends().post(good, extent, self.send_completions.queue(), signaled, write);
        if posted > 0 {
            self.ring();
        }
        match refused.or(first_bad.map(|(_, error)| error)) {
            Some(error) => Err(BadRequest { posted, error }),
            None => Ok(()),
        }
    }

    /// Posts all of `requests`, in this order and with one doorbell for all, or none.
    ///
    /// # Errors
    ///
    /// See [`PostError`], of the first that was not accepted; nothing is posted then.
    pub fn post_all(&self, requests: &[SendRequest]) -> Result<(), PostError> {
        self.post_requests(requests, Portion::Whole).map_err(|bad| bad.error)
    }

    /// Returns how many send work requests fit now. For the thread that posts, which finds no fewer until it
    /// does.
    pub fn sends_free(&self) -> usize {
        self.sends().free()
    }

    /// Posts a receive work request. It may be posted before the connection exists, and after this end has
    /// closed: the peer may still send. Once the stream has failed it is flushed.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing is posted then.
    // Requirements: DDP-6.2.1-06
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError> {
        self.post_receives(core::slice::from_ref(&request)).map_err(|bad| bad.error)
    }

    /// Posts receive work requests in this order, with one doorbell for all.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that was not accepted; those before it are posted.
    pub fn post_receives(&self, requests: &[ReceiveRequest]) -> Result<(), BadRequest> {
        let bad = |error| BadRequest { posted: 0, error };
        if self.shares_receives() {
            return Err(bad(PostError::SharedReceives));
        }
        if self.is_abandoned() {
            return Err(bad(PostError::WrongState(self.state())));
        }
        let completions = self.receive_completions.queue();
        let reserves = completions.reserves_for_receives();
        let places = |requests: &[ReceiveRequest]| if reserves { requests.len() as u32 } else { 0 };
        let write = |request: &ReceiveRequest, slots: &Slots<RECEIVE_WORDS>, position| {
            request.write_to(slots, position, &self.more_ranges);
        };
        let (posted, refused) = self.receives().post(requests, Portion::Prefix, completions, places, write);
        if posted > 0 && self.has_begun() {
            self.ring();
        }
        refused.map_or(Ok(()), |error| Err(BadRequest { posted, error }))
    }

    /// Whether the stream has begun, for the thread that has just posted: without one there is nothing to
    /// ring for. A request posted while the core ends an idle queue pair is flushed, when the core flushes or
    /// when it serves the doorbell; the fence is the other one of [`set_state`](Self::set_state).
    #[inline]
    fn has_begun(&self) -> bool {
        let has_begun = || self.state() != QpState::Idle;
        has_begun() || {
            fence(Ordering::SeqCst);
            has_begun()
        }
    }

    /// Returns its core and its slot there, from the beginning of its stream on.
    #[inline]
    pub fn home(&self) -> Option<Home> {
        self.home.get()
    }

    /// Has its completion queues make what the core `core` needs to fill them, so that this core allocates
    /// nothing when it begins the stream. For control, before it commands that.
    pub fn prepare_for(&self, core: u8) {
        if let Some(doorbells) = self.doorbells.get(core) {
            self.send_completions.prepare_for(doorbells);
            self.receive_completions.prepare_for(doorbells);
        }
    }

    /// Gives it its home, for the core that this is. The state leaves [`QpState::Idle`] after that: a thread
    /// that sees the new state sees the home.
    pub(crate) fn set_home(&self, home: Home) {
        let doorbells = self.doorbells.of(home.core);
        doorbells.use_queue_pair(home.slot);
        self.send_completions.set_core(doorbells);
        self.receive_completions.set_core(doorbells);
        self.home.set(home);
    }

    /// Has the core `core` report the flush of a queue pair that never had a home.
    pub(crate) fn set_last_core(&self, core: u8) {
        let doorbells = self.doorbells.of(core);
        self.send_completions.set_core(doorbells);
        self.receive_completions.set_core(doorbells);
    }

    /// Rings the doorbell at its core for work that waits, posted by an application or left by the core for
    /// its next poll.
    #[inline]
    pub(crate) fn ring(&self) {
        if let Some(home) = self.home()
            && let Some(doorbells) = self.doorbells.get(home.core)
        {
            doorbells.ring_queue_pair(home.slot);
        }
    }

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
        Ok(self.take_shared_receive(&mut request)?.then_some(request))
    }

    /// [`dequeue_shared_receive`](Self::dequeue_shared_receive) to `request`. Returns false if there is none;
    /// `request` is then undefined.
    #[inline]
    pub(super) fn take_shared_receive(&self, request: &mut ReceiveRequest) -> Result<bool, StreamError> {
        let Some(queue) = &self.shared_receives else { return Ok(false) };
        if !self.may_hold_another() {
            return Ok(false);
        }
        // The receive comes first, then the entry: a core that reserved the last entry, and found then that
        // another had dequeued the last receive, would have kept the entry from that one.
        let completions = self.receive_completions.queue();
        let reserves = completions.reserves_for_receives();
        if !queue.take(request, || !reserves || completions.has_entry())? {
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

    /// Reports that a message found no free entry for its completion, for the core.
    pub fn completions_overflow(&self) {
        self.receive_completions.queue().overflow(self.events.as_deref());
    }

    /// Sets how many Reads and Atomic Operations may be outstanding on the stream that begins, for the core.
    pub fn set_ord(&self, ord: u16) {
        self.ord.store(ord, Ordering::Release);
    }

    /// Changes the state, for the core.
    pub fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
        // If the state ends the queue pair, the core flushes next. Of this fence and that of `has_begun`
        // one comes first: either the flush finds the request, or the poster sees the state and rings.
        fence(Ordering::SeqCst);
    }

    /// Refuses receives posted from now on, and sends once the state is no longer
    /// [`QpState::ReadyToSend`], which the caller changes next: the core reads the queues for the last time.
    /// A thread that posts at the same moment may still add a request; it never completes if the last flush
    /// does not find it.
    pub fn refuse_posts(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Ends the queue pair because no core reads its queues any more: posted requests do not complete, and
    /// none can be posted.
    pub fn abandon(&self) {
        self.refuse_posts();
        self.set_error(StreamError::Tcp(CloseReason::Aborted));
        self.set_state(QpState::Error);
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Records the error that ended the stream, for the core. The first one stays.
    // Requirements: RDMAP-7.1-03
    pub fn set_error(&self, error: StreamError) {
        if self.error().is_none() {
            self.error.store(OneWord(Some(error)));
            // The application that aborts a connection needs no event.
            if error != StreamError::Tcp(CloseReason::Aborted) {
                self.report(AsyncEvent::of_failure(self.number, error));
            }
        }
    }

    /// Reports an asynchronous event.
    pub fn report(&self, event: AsyncEvent) {
        if let Some(events) = &self.events {
            events.report(event);
        }
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

#[cfg(test)]
mod tests;
