//! Shared receive queues (SRQ): buffers for the Sends of many peers. A queue pair dequeues one when a message
//! begins, so that an application need not post buffers to each queue pair.
//!
//! Any number of threads post, and the cores of a device dequeue. A thread claims the positions of its list
//! by one atomic operation and then fills their slots. A core copies the oldest receive and then counts it as
//! dequeued by a compare-and-swap, which frees its slot too. If that fails, another core was first, and the
//! copy is discarded: it may have been written over meanwhile. So no slot waits for a core that was stopped
//! while it read, and receives are dequeued in the order of their positions.
//!
//! Receives can be posted before those of another thread that has claimed earlier positions and is
//! interrupted: then cores find no receive though some are posted, and a message waits for that thread.
//!
//! With receives at positions 6 and 7, two cores copy that of position 6. One advances the counter from 6 to
//! 7 and has it; the other fails, and copies that of position 7.

use core::fmt;
use std::sync::Arc;

use crossbeam::utils::CachePadded;

use super::async_event::{AsyncEvent, AsyncEvents};
use super::doorbells::CoreDoorbells;
use super::error::StreamError;
use super::post_error::{BadRequest, PostError};
use super::receive_slot::{MoreRanges, RECEIVE_WORDS};
use super::slot::{Slot, Slots};
use super::waiting_cores::WaitingCores;
use super::work::ReceiveRequest;
use crate::memory::ProtectionDomainId;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

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
    /// The receives that queue pairs have dequeued, and the position of the oldest that is left. Cores
    /// advance it.
    dequeued: CachePadded<AtomicU64>,
    /// The limit below which an event is reported; 0 for none.
    limit: AtomicU32,
    /// The cores with queue pairs that wait for the next receive: posting one rings their doorbells.
    waiting: WaitingCores,
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
            waiting: WaitingCores::new(),
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

    /// Whether there is a receive, or a thread that has claimed the position of one and is to write it.
    pub(super) fn has_claimed(&self) -> bool {
        let dequeued = self.dequeued.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire) > dequeued
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
        self.post_interrupted(requests, || {})
    }

    /// Posts receives as a thread does that is interrupted once it has claimed their positions, and goes on
    /// after `meanwhile`.
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post).
    #[inline]
    pub(crate) fn post_interrupted(
        &self,
        requests: &[ReceiveRequest],
        meanwhile: impl FnOnce(),
    ) -> Result<(), BadRequest> {
        let (position, posted) = self.claim(requests.len());
        meanwhile();
        for (position, request) in (position..).zip(&requests[..posted]) {
            request.write_to(&self.slots, position, &self.more_ranges);
        }
        if posted > 0 {
            // Of this fence and that of `await_post` one comes first: either the core finds the receive, or
            // its doorbell is rung.
            fence(Ordering::SeqCst);
            self.waiting.ring_all();
        }
        if posted < requests.len() { Err(BadRequest { posted, error: PostError::QueueFull }) } else { Ok(()) }
    }

    /// Claims up to `wanted` positions that follow one another. Returns the first and their number.
    fn claim(&self, wanted: usize) -> (u64, usize) {
        let mut posted = self.posted.load(Ordering::Relaxed);
        loop {
            // Acquire: the cores have read what is written over. It may have dequeued more meanwhile than was
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

    /// Rings the doorbells of `core`, which are among those of its device, when the next receive is posted,
    /// or at once if there is one. All cores that wait are rung for: the one that finds no receive waits
    /// again.
    pub fn await_post(&self, core: u8, doorbells: &CoreDoorbells) {
        self.waiting.add(core, doorbells);
        fence(Ordering::SeqCst);
        if !self.is_empty() {
            self.waiting.ring_for(core);
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

    /// The position of the oldest receive, and its slot.
    #[inline]
    fn front(&self) -> Option<(u64, &Slot<RECEIVE_WORDS>)> {
        loop {
            let position = self.dequeued.load(Ordering::Acquire);
            if let Some(slot) = self.slots.written(position) {
                return Some((position, slot));
            }
            // If another core has dequeued it since the load, its slot may have been used again.
            if !self.slots.is_written_over(position) {
                return None;
            }
        }
    }

    /// Dequeues the oldest receive to `request`, for a message that begins. Returns false if there is none;
    /// `request` is then undefined. `has_entry` returns whether a completion would find an entry now.
    ///
    /// # Errors
    ///
    /// [`StreamError::CompletionQueueOverflow`] if `has_entry` returned false while there was a receive,
    /// which stays.
    #[inline]
    pub(super) fn dequeue(
        &self,
        request: &mut ReceiveRequest,
        has_entry: impl Fn() -> bool,
    ) -> Result<bool, StreamError> {
        // Each turn but the last finds that another core has dequeued a receive.
        while let Some((position, slot)) = self.front() {
            if !has_entry() {
                // A core reserves an entry after it has dequeued the receive. So if the last entry went to
                // the receive that is seen here, the count has moved.
                if self.dequeued.load(Ordering::Acquire) != position {
                    continue;
                }
                return Err(StreamError::CompletionQueueOverflow);
            }
            request.read_from(slot, &self.more_ranges);
            // No slot is written again before this counts its receive. So if the count has not moved since
            // the position was loaded, the copy is that of the receive. SeqCst: see `arm_limit`.
            let (next, failed) = (position + 1, Ordering::Relaxed);
            if self.dequeued.compare_exchange(position, next, Ordering::SeqCst, failed).is_ok() {
                self.look_at_limit();
                return Ok(true);
            }
        }
        Ok(false)
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

    fn dequeue(srq: &SharedReceiveQueue) -> Option<ReceiveRequest> {
        let mut request = ReceiveRequest::new(u64::MAX, Slice::default());
        srq.dequeue(&mut request, || true).expect("there are entries").then_some(request)
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
            assert_eq!(dequeue(&srq).map(|request| request.id), Some(id));
        }
        assert!(dequeue(&srq).is_none());
        assert_eq!(srq.dequeued(), 4);
    }

    /// The event comes once, when the number falls below the limit, or at once when it is below already.
    #[test]
    fn the_limit_is_told_once() {
        let (srq, events) = queue(8);
        srq.post(&receives(0..4)).unwrap();
        srq.arm_limit(3);
        dequeue(&srq).unwrap();
        assert_eq!(events.dequeue(), None, "three are not fewer than three");
        dequeue(&srq).unwrap();
        assert_eq!(events.dequeue(), Some(AsyncEvent::SharedReceiveLimit { srq: SrqNumber(3) }));
        dequeue(&srq).unwrap();
        assert_eq!((events.dequeue(), srq.limit()), (None, 0));
        srq.arm_limit(2);
        assert_eq!(events.dequeue(), Some(AsyncEvent::SharedReceiveLimit { srq: SrqNumber(3) }));
        srq.arm_limit(0);
        dequeue(&srq).unwrap();
        assert_eq!(events.dequeue(), None);
    }

    /// Cores that dequeue while threads post: each receive is dequeued by one core, as it was posted, and the
    /// counts come out.
    #[cfg(not(loom))]
    #[test]
    fn cores_dequeue_each_receive_once() {
        use crate::qp::payload::SliceList;

        const RECEIVES: u64 = 20_000;
        let (srq, _) = queue(8);
        let request = |id: u64| {
            let ranges: Vec<Slice> =
                (0..id % 5).map(|n| Slice { to: id << 3 | n, len: id as u32, ..Slice::default() }).collect();
            ReceiveRequest::new(id, SliceList::try_from(&ranges[..]).expect("at most four ranges"))
        };
        let serve = || {
            let mut ids = Vec::new();
            while srq.dequeued() < RECEIVES {
                match dequeue(&srq) {
                    Some(taken) => {
                        let posted = request(taken.id);
                        assert_eq!(taken.local.as_slice(), posted.local.as_slice());
                        ids.push(taken.id);
                    }
                    None => std::thread::yield_now(),
                }
            }
            ids
        };
        let mut taken: Vec<u64> = std::thread::scope(|scope| {
            let cores = [(); 3].map(|()| scope.spawn(serve));
            for id in 0..RECEIVES {
                while srq.post(&[request(id)]).is_err() {
                    std::thread::yield_now();
                }
            }
            cores.into_iter().flat_map(|core| core.join().expect("no panic")).collect()
        });
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..RECEIVES));
        assert_eq!((srq.dequeued(), srq.len()), (RECEIVES, 0));
    }
}
