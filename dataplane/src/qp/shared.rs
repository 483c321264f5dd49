//! The part of a queue pair that an application and a core share: bounded lock-free rings. One thread posts
//! work (`qp/poster_side.rs`), and one polls completions, while the core runs (`qp/core_side.rs`).

use core::mem::offset_of;
use std::sync::Arc;

use super::async_event::{AsyncEvent, AsyncEvents};
use super::completion_queue::CompletionTarget;
use super::error::StreamError;
use super::home::HomeCell;
use super::receive_slot::{MoreRanges, RECEIVE_WORDS};
use super::shared_receive_queue::SharedReceiveQueue;
use super::slot::Slots;
use super::work::QpNumber;
use super::work_queue::{BothQueues, CoreSide, Poster, WorkQueue};
use super::wqe::{Boxes, WQE_WORDS};
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
    pub(super) core: BothQueues<CoreSide>,
    // What every send needs.
    pub(super) send_slots: Slots<WQE_WORDS>,
    pub(super) send_completions: CompletionTarget,
    /// Its number.
    pub number: QpNumber,
    /// Its Protection Domain.
    pub pd: ProtectionDomainId,
    state: AtomicU8,
    /// No core reads the queues any more.
    abandoned: AtomicBool,
    /// How many Reads and Atomic Operations may be outstanding.
    pub(super) ord: AtomicU16,
    pub(super) last_receive_reported: AtomicBool,
    // What every receive needs.
    pub(super) receive_slots: Slots<RECEIVE_WORDS>,
    pub(super) receive_completions: CompletionTarget,
    /// The shared receive queue that its receives come from, if it uses one.
    pub(super) shared_receives: Option<Arc<SharedReceiveQueue>>,
    pub(super) events: Option<Arc<AsyncEvents>>,
    // The rest.
    pub(super) doorbells: CoreDoorbells,
    /// Its core, and its slot there, from the beginning of its stream on.
    home: HomeCell,
    /// Beside the slots of the send queue.
    pub(super) boxes: Boxes,
    /// Beside the slots of the receive queue.
    pub(super) more_ranges: MoreRanges,
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
    pub(super) fn sends(&self) -> WorkQueue<'_, WQE_WORDS> {
        WorkQueue::new(&self.send_slots, &self.poster.sends, &self.core.sends)
    }

    /// With a shared receive queue, it only counts.
    #[inline]
    pub(super) fn receives(&self) -> WorkQueue<'_, RECEIVE_WORDS> {
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

    /// Requests that were posted to its send queue and are not completed.
    pub fn sends_outstanding(&self) -> u32 {
        self.sends().outstanding()
    }

    /// Receives that were posted to it, or that it has dequeued from its shared receive queue, and that are
    /// not completed.
    pub fn receives_outstanding(&self) -> u32 {
        if self.shares_receives() { self.receives().held() } else { self.receives().outstanding() }
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

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Records the error that ended the stream, for the core. The first one stays.
    // Requirements: RDMAP-7.1-03
    pub fn set_error(&self, error: StreamError) {
        if self.error().is_none() {
            self.error.store(OneWord(Some(error)));
            if let Some(event) = self.failure_event() {
                self.report(event);
            }
        }
    }

    /// The event of its failure, if it has failed. The application that aborts a connection needs none.
    fn failure_event(&self) -> Option<AsyncEvent> {
        let error = self.error().filter(|error| *error != StreamError::Tcp(CloseReason::Aborted))?;
        Some(AsyncEvent::of_failure(self.number, error))
    }

    /// The events of its end that have come so far: of its failure, and that its last receive is complete.
    /// They may have been [lost](AsyncEvents::lost).
    pub fn end_events(&self) -> impl Iterator<Item = AsyncEvent> + use<> {
        let last = self.last_receive_reported.load(Ordering::Relaxed);
        let last = last.then_some(AsyncEvent::LastReceiveReached { qp: self.number });
        self.failure_event().into_iter().chain(last)
    }

    /// Reports an asynchronous event.
    pub fn report(&self, event: AsyncEvent) {
        if let Some(events) = &self.events {
            events.report(event);
        }
    }
}

#[cfg(test)]
mod tests;
