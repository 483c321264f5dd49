//! Shared receive queues (SRQ): buffers for the Sends of many peers. A queue pair dequeues one when a message
//! begins, so that an application need not post buffers to each queue pair.
//!
//! Any number of threads post, and one core dequeues. A thread claims the positions of its list by one atomic
//! operation and then fills their slots; the core reads a receive in its slot, and frees the slot by counting
//! the receive as dequeued.

use core::fmt;
use std::sync::{Arc, OnceLock};

use crossbeam::utils::CachePadded;

use super::async_event::{AsyncEvent, AsyncEvents};
use super::doorbells::Doorbells;
use super::post_error::{BadRequest, PostError};
use super::receive_slot::{MoreRanges, RECEIVE_WORDS};
use super::slot::{Slot, Slots};
use super::work::ReceiveRequest;
use crate::memory::ProtectionDomainId;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

pub use super::work::SrqNumber;

/// Receives that the queue pairs of a Protection Domain share. A receive leaves the queue when a queue pair
/// dequeues it, and counts at that queue pair until it is complete:
/// [`SharedQp::receives_consumed`](super::shared::SharedQp::receives_consumed) shows the use by its peer,
/// which cannot hold more receives at a time than the receive depth.
// Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
pub struct SharedReceiveQueue {
    /// Its number.
    pub number: SrqNumber,
    /// Its Protection Domain.
    pub pd: ProtectionDomainId,
    slots: Slots<RECEIVE_WORDS>,
    more_ranges: MoreRanges,
    depth: u64,
    /// The positions that are claimed: that of the next receive.
    posted: CachePadded<AtomicU64>,
    /// The receives that queue pairs have dequeued, and the position of the oldest that is left. Only the
    /// core writes it.
    dequeued: CachePadded<AtomicU64>,
    /// The limit below which an event is reported; 0 for none.
    limit: AtomicU32,
    /// A queue pair waits for the next receive: posting one rings the doorbell.
    awaited: AtomicBool,
    /// The doorbells of the core that serves its queue pairs, once one has waited.
    doorbells: OnceLock<Arc<Doorbells>>,
    events: Option<Arc<AsyncEvents>>,
}

impl SharedReceiveQueue {
    /// A queue of `depth` receives, at least one, that reports to `events`.
    pub fn new(
        number: SrqNumber,
        pd: ProtectionDomainId,
        depth: usize,
        events: Option<Arc<AsyncEvents>>,
    ) -> Self {
        Self {
            number,
            pd,
            slots: Slots::new(depth),
            more_ranges: MoreRanges::default(),
            depth: depth.max(1) as u64,
            posted: CachePadded::new(AtomicU64::new(0)),
            dequeued: CachePadded::new(AtomicU64::new(0)),
            limit: AtomicU32::new(0),
            awaited: AtomicBool::new(false),
            doorbells: OnceLock::new(),
            events,
        }
    }

    /// The most receives that it holds.
    pub fn depth(&self) -> usize {
        self.depth as usize
    }

    /// Receives that no queue pair has dequeued yet.
    pub fn len(&self) -> usize {
        // In this order, so that no receive seems dequeued before it is posted. SeqCst: see `arm_limit`.
        let dequeued = self.dequeued.load(Ordering::SeqCst);
        let posted = self.posted.load(Ordering::SeqCst);
        posted.saturating_sub(dequeued).min(self.depth) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    /// Receives that queue pairs have dequeued so far.
    pub fn dequeued(&self) -> u64 {
        self.dequeued.load(Ordering::Relaxed)
    }

    /// Posts receives, in this order.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that had no room; those before it are posted.
    pub fn post(&self, requests: &[ReceiveRequest]) -> Result<(), BadRequest> {
        let (position, posted) = self.claim(requests.len());
        for (position, request) in (position..).zip(&requests[..posted]) {
            request.write_to(&self.slots, position, &self.more_ranges);
        }
        if posted > 0 {
            // Of this fence and that of `await_post` one comes first: either the core finds the receive, or
            // the doorbell is rung.
            fence(Ordering::SeqCst);
            self.ring_if_awaited();
        }
        if posted < requests.len() { Err(BadRequest { posted, error: PostError::QueueFull }) } else { Ok(()) }
    }

    /// Claims up to `wanted` positions that follow one another. Returns the first and their number.
    fn claim(&self, wanted: usize) -> (u64, usize) {
        let mut posted = self.posted.load(Ordering::Relaxed);
        loop {
            // Acquire: the core has read what is written over. It may have dequeued more meanwhile than was
            // posted at the time of the load above; the exchange fails then.
            let dequeued = self.dequeued.load(Ordering::Acquire);
            let room = self.depth.saturating_sub(posted.saturating_sub(dequeued));
            let claimed = room.min(wanted as u64);
            if claimed == 0 {
                return (posted, 0);
            }
            let next = posted + claimed;
            match self.posted.compare_exchange_weak(posted, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (posted, claimed as usize),
                Err(now) => posted = now,
            }
        }
    }

    /// Rings `doorbells` when the next receive is posted, or at once if there is one. They belong to the core
    /// of all queue pairs that share the queue.
    pub fn await_post(&self, doorbells: &Arc<Doorbells>) {
        let known = self.doorbells.get_or_init(|| doorbells.clone());
        debug_assert!(Arc::ptr_eq(known, doorbells), "a queue is shared by the queue pairs of one core");
        self.awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !self.is_empty() {
            self.ring_if_awaited();
        }
    }

    fn ring_if_awaited(&self) {
        if self.awaited.load(Ordering::Relaxed)
            && self.awaited.swap(false, Ordering::AcqRel)
            && let Some(doorbells) = self.doorbells.get()
        {
            doorbells.ring_shared_receives();
        }
    }

    /// Arms the limit: reports one event when fewer than `limit` receives are left, or at once if they are; 0
    /// disarms it.
    pub fn arm_limit(&self, limit: u32) {
        // All of one order with what `advance` does: either the receive is seen to be gone here, or the limit
        // there.
        self.limit.store(limit, Ordering::SeqCst);
        self.look_at_limit();
    }

    /// The limit that is armed; 0 once its event has come.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Acquire)
    }

    /// The slot of the oldest receive, for the core.
    #[inline]
    pub(super) fn front(&self) -> Option<&Slot<RECEIVE_WORDS>> {
        self.slots.written(self.dequeued.load(Ordering::Relaxed))
    }

    /// The ranges beside its slots.
    #[inline]
    pub(super) const fn more_ranges(&self) -> &MoreRanges {
        &self.more_ranges
    }

    /// Dequeues the oldest receive, for a message that begins. The core has read its slot.
    #[inline]
    pub(super) fn advance(&self) {
        // SeqCst: see `arm_limit`.
        self.dequeued.fetch_add(1, Ordering::SeqCst);
        self.look_at_limit();
    }

    #[inline]
    fn look_at_limit(&self) {
        let limit = self.limit.load(Ordering::SeqCst);
        if limit > 0 && self.len() < limit as usize {
            self.report_limit(limit);
        }
    }

    #[cold]
    fn report_limit(&self, limit: u32) {
        // Of several threads that see it, one reports the event.
        let disarmed = self.limit.compare_exchange(limit, 0, Ordering::AcqRel, Ordering::Relaxed);
        if let (Ok(_), Some(events)) = (disarmed, &self.events) {
            events.report(AsyncEvent::SharedReceiveLimit { srq: self.number });
        }
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("number", &self.number)
            .field("receives", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::Slice;
    use super::*;

    fn receives(ids: core::ops::Range<u64>) -> Vec<ReceiveRequest> {
        ids.map(|id| ReceiveRequest::new(id, Slice::default())).collect()
    }

    fn take(srq: &SharedReceiveQueue) -> Option<ReceiveRequest> {
        let request = ReceiveRequest::read(srq.front()?, srq.more_ranges());
        srq.advance();
        Some(request)
    }

    fn queue(depth: usize) -> (SharedReceiveQueue, Arc<AsyncEvents>) {
        let events = Arc::new(AsyncEvents::new(None));
        let srq = SharedReceiveQueue::new(SrqNumber(3), ProtectionDomainId(1), depth, Some(events.clone()));
        (srq, events)
    }

    #[test]
    fn a_full_queue_names_the_first_that_had_no_room() {
        let (srq, _) = queue(4);
        let refused = srq.post(&receives(0..6));
        assert_eq!(refused, Err(BadRequest { posted: 4, error: PostError::QueueFull }));
        for id in 0..4 {
            assert_eq!(take(&srq).map(|request| request.id), Some(id));
        }
        assert!(take(&srq).is_none());
        assert_eq!(srq.dequeued(), 4);
    }

    /// The event comes once, when the number falls below the limit, or at once when it is below already.
    #[test]
    fn the_limit_is_told_once() {
        let (srq, events) = queue(8);
        srq.post(&receives(0..4)).unwrap();
        srq.arm_limit(3);
        take(&srq).unwrap();
        assert_eq!(events.dequeue(), None, "three are not fewer than three");
        take(&srq).unwrap();
        assert_eq!(events.dequeue(), Some(AsyncEvent::SharedReceiveLimit { srq: SrqNumber(3) }));
        take(&srq).unwrap();
        assert_eq!((events.dequeue(), srq.limit()), (None, 0));
        srq.arm_limit(2);
        assert_eq!(events.dequeue(), Some(AsyncEvent::SharedReceiveLimit { srq: SrqNumber(3) }));
        srq.arm_limit(0);
        take(&srq).unwrap();
        assert_eq!(events.dequeue(), None);
    }
}
