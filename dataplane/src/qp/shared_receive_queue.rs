//! Shared receive queues (SRQ): buffers for the Sends of many peers. A queue pair takes one when a message
//! begins, so that an application need not post buffers to each queue pair.

use core::fmt;
use std::sync::{Arc, OnceLock};

use super::async_event::{AsyncEvent, AsyncEvents};
use super::doorbells::Doorbells;
use super::post_error::{BadRequest, PostError};
use super::work::ReceiveRequest;
use crate::memory::ProtectionDomainId;
use crate::sync::{ArrayQueue, AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

pub use super::numbers::SrqNumber;

/// Receives that the queue pairs of a Protection Domain share. A receive leaves the queue when a queue pair
/// takes it, and counts at that queue pair until it is complete:
/// [`SharedQp::receives_taken`](super::shared::SharedQp::receives_taken) shows the use by its peer, which
/// cannot hold more receives at a time than the receive depth.
// Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
pub struct SharedReceiveQueue {
    /// Its number.
    pub number: SrqNumber,
    /// Its Protection Domain.
    pub pd: ProtectionDomainId,
    posted: ArrayQueue<ReceiveRequest>,
    /// The limit below which an event is reported; 0 for none.
    limit: AtomicU32,
    taken: AtomicU64,
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
            posted: ArrayQueue::new(depth.max(1)),
            limit: AtomicU32::new(0),
            taken: AtomicU64::new(0),
            awaited: AtomicBool::new(false),
            doorbells: OnceLock::new(),
            events,
        }
    }

    /// The most receives that it holds.
    pub fn depth(&self) -> usize {
        self.posted.capacity()
    }

    /// Receives that no queue pair has taken yet.
    pub fn len(&self) -> usize {
        self.posted.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Receives that queue pairs have taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Posts receives, in this order.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that had no room; those before it are posted.
    pub fn post(&self, requests: &[ReceiveRequest]) -> Result<(), BadRequest> {
        let full = requests.iter().position(|request| self.posted.push(*request).is_err());
        if !requests.is_empty() && full != Some(0) {
            // Of this fence and that of `await_post` one comes first: either the core finds the receive, or
            // the doorbell is rung.
            fence(Ordering::SeqCst);
            self.ring_if_awaited();
        }
        full.map_or(Ok(()), |posted| Err(BadRequest { posted, error: PostError::QueueFull }))
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
        // All of one order with what `take` does: either the receive is seen to be gone here, or the limit
        // there.
        self.limit.store(limit, Ordering::SeqCst);
        self.look_at_limit();
    }

    /// The limit that is armed; 0 once its event has come.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Acquire)
    }

    /// Takes the oldest receive, for a message that begins.
    pub(super) fn take(&self) -> Option<ReceiveRequest> {
        let request = self.posted.pop()?;
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.look_at_limit();
        Some(request)
    }

    fn look_at_limit(&self) {
        let limit = self.limit.load(Ordering::SeqCst);
        if limit == 0 || self.posted.len() >= limit as usize {
            return;
        }
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
            .field("receives", &self.posted.len())
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
            assert_eq!(srq.take().map(|request| request.id), Some(id));
        }
        assert!(srq.take().is_none());
        assert_eq!(srq.taken(), 4);
    }

    /// The event comes once, when the number falls below the limit, or at once when it is below already.
    #[test]
    fn the_limit_is_told_once() {
        let (srq, events) = queue(8);
        srq.post(&receives(0..4)).unwrap();
        srq.arm_limit(3);
        srq.take().unwrap();
        assert_eq!(events.take(), None, "three are not fewer than three");
        srq.take().unwrap();
        assert_eq!(events.take(), Some(AsyncEvent::SharedReceiveLimit { srq: SrqNumber(3) }));
        srq.take().unwrap();
        assert_eq!((events.take(), srq.limit()), (None, 0));
        srq.arm_limit(2);
        assert_eq!(events.take(), Some(AsyncEvent::SharedReceiveLimit { srq: SrqNumber(3) }));
        srq.arm_limit(0);
        srq.take().unwrap();
        assert_eq!(events.take(), None);
    }
}
