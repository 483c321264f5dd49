//! Completion queues: queue pairs report completed work here. One thread polls a queue. A thread that sleeps
//! arms the queue first, and gets one notification.
//!
//! A queue has a ring for each core that fills it, so each ring has one producer and one consumer. Neither a
//! core that adds a completion nor the thread that polls it needs a locked operation. The threads that post
//! share one: the counter of entries that are reserved.

use core::fmt;
use std::sync::{Arc, OnceLock};

use crossbeam::utils::CachePadded;

use super::async_event::{AsyncEvent, AsyncEvents};
use super::core_ring::{Batch, CoreRing, CoreRings};
use super::cqe::CQE_WORDS;
use super::doorbells::{CoreDoorbells, Doorbells};
use super::work::{Completion, Status};
use crate::notify::Notify;
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};

pub use super::work::CqNumber;

/// The completions that an armed queue notifies of, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Notice {
    /// The next completion for which the peer has requested an Event ("with Solicited Event", RFC 5040 §5.3),
    /// or that is not a success.
    // Requirements: RDMAP-5.3-04
    Solicited = 1,
    /// The next completion.
    Next = 2,
}

impl Notice {
    const NONE: u8 = 0;

    fn is_due(self, completion: &Completion) -> bool {
        self == Self::Next || completion.solicited || completion.status != Status::Success
    }
}

/// A bounded queue of completions, of any number of queue pairs.
///
/// One thread at a time polls it: the methods that dequeue completions are for that thread only. If two
/// threads call them at the same time, both may get a completion, or neither.
///
/// An entry is reserved when work is posted, so work posted to a queue pair cannot overflow the queue. A
/// receive from a shared receive queue has no entry yet; a queue pair that finds none fails, but no other one
/// does ([`AsyncEvent::CompletionQueueOverflow`]). A send work request that is not signaled reserves no
/// entry, because its success is not reported. If it fails or is flushed, its completion uses an entry that
/// is free and not reserved; without one it is left out, and the queue reports the overflow.
///
/// A queue that [may overflow](Self::set_may_overflow) reserves none when receives are posted, as those of
/// verbs, and half of its entries at most when sends are. A receive that is complete and finds no entry is
/// left out, and reported as above.
// Requirements: RDMAP-8.1.1-05
pub struct CompletionRing {
    number: CqNumber,
    capacity: u32,
    rings: CoreRings,
    /// Entries reserved so far: of completions that were polled, of those in the queue, and of work that is
    /// posted.
    reserved: CachePadded<AtomicU64>,
    /// Completions polled so far, whose entries are free. Only the thread that polls writes it.
    polled: CachePadded<AtomicU64>,
    overflowed: AtomicBool,
    /// Receives take an entry as they complete.
    may_overflow: bool,
    /// The [`Notice`] that the queue is armed for, if any.
    armed: AtomicU8,
    notify: Option<Arc<dyn Notify>>,
}

impl CompletionRing {
    /// A queue of `capacity` entries, at least one, for threads that only poll.
    pub fn new(capacity: usize) -> Self {
        Self::with(capacity, None)
    }

    /// The same, for threads that sleep: `notify` is called once after each [`arm`](Self::arm).
    pub fn with_notify(capacity: usize, notify: Arc<dyn Notify>) -> Self {
        Self::with(capacity, Some(notify))
    }

    fn with(capacity: usize, notify: Option<Arc<dyn Notify>>) -> Self {
        /// Numbers given out in this process.
        static NUMBERS: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        let capacity = u32::try_from(capacity.max(1)).unwrap_or(u32::MAX);
        Self {
            number: CqNumber(NUMBERS.fetch_add(1, Ordering::Relaxed) as u32),
            capacity,
            rings: CoreRings::new(capacity as usize),
            reserved: CachePadded::new(AtomicU64::new(0)),
            polled: CachePadded::new(AtomicU64::new(0)),
            overflowed: AtomicBool::new(false),
            may_overflow: false,
            armed: AtomicU8::new(Notice::NONE),
            notify,
        }
    }

    /// Has the queue take any number of receives, and overflow if more complete than there are entries. For
    /// these half of the entries are kept from the sends that are posted.
    pub const fn set_may_overflow(&mut self) {
        self.may_overflow = true;
    }

    /// Its number.
    pub const fn number(&self) -> CqNumber {
        self.number
    }

    /// The number of entries.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Whether work has failed for want of an entry: the queue is too small, or polled too seldom.
    pub fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Dequeues the oldest completion.
    #[inline]
    pub fn poll(&self) -> Option<Completion> {
        let completion = self.rings.dequeue();
        if completion.is_some() {
            self.free(1);
        }
        completion
    }

    /// Moves the oldest completions to the front of `completions`, as many as fit. Returns how many.
    #[inline]
    pub fn poll_many(&self, completions: &mut [Completion]) -> usize {
        let mut count = 0;
        if self.rings.is_empty() {
            return count;
        }
        self.rings.each_in_turn(|ring| {
            while let Some(place) = completions.get_mut(count)
                && let Some(completion) = ring.dequeue()
            {
                *place = completion;
                count += 1;
            }
        });
        self.free(count);
        count
    }

    /// Appends the oldest completions to `completions`, as many as it has room for without allocating.
    /// Returns how many.
    #[inline]
    pub fn poll_into(&self, completions: &mut Vec<Completion>) -> usize {
        if self.rings.is_empty() {
            return 0;
        }
        let before = completions.len();
        self.rings.each_in_turn(|ring| ring.dequeue_into(completions));
        let count = completions.len() - before;
        self.free(count);
        count
    }

    /// Dequeues completions, oldest first, until none is left. Their entries become free all at once when the
    /// iterator is dropped.
    pub fn drain(&self) -> Drain<'_> {
        Drain { queue: self, taken: 0 }
    }

    /// Frees the entries of completions that were polled.
    #[inline]
    fn free(&self, polled: usize) {
        if polled > 0 {
            let before = self.polled.load(Ordering::Relaxed);
            // Release: who reserves an entry that is free sees that its slot was read.
            self.polled.store(before + polled as u64, Ordering::Release);
        }
    }

    /// Arms the queue: the next completion that `notice` covers calls `notify`, once. Arming for
    /// [`Notice::Next`] extends [`Notice::Solicited`]; arming for less changes nothing. Completions that are
    /// there already cause no notification: returns true if there are any, so that the thread polls before it
    /// sleeps.
    pub fn arm(&self, notice: Notice) -> bool {
        self.armed.fetch_max(notice as u8, Ordering::SeqCst);
        // Of this fence and that of `announce` one comes first: either the completion is seen here, or the
        // armed queue is seen there.
        fence(Ordering::SeqCst);
        !self.rings.is_empty()
    }

    /// Reserves entries for the completions of work that is posted, up to `wanted`. Returns how many.
    #[inline]
    pub(super) fn reserve(&self, wanted: u32) -> u32 {
        if wanted == 0 {
            return 0;
        }
        if self.may_overflow {
            return self.reserve_within(1, wanted, self.send_limit());
        }
        // Acquire: the slot of an entry that is used again was read before. It may have been freed after this
        // load, which is safe.
        let polled = self.polled.load(Ordering::Acquire);
        // Release, acquire: who reserves after another sees what that one knew to be polled.
        let before = self.reserved.fetch_add(u64::from(wanted), Ordering::AcqRel);
        let granted = self.granted(wanted, before, polled);
        if granted < wanted { self.reserve_some(wanted, before) } else { granted }
    }

    /// Reserves `wanted` entries, or none if there are fewer. Returns how many.
    #[inline]
    pub(super) fn reserve_all(&self, wanted: u32) -> u32 {
        if wanted == 0 {
            return 0;
        }
        let limit = if self.may_overflow { self.send_limit() } else { self.capacity };
        self.reserve_within(wanted, wanted, limit)
    }

    /// How many entries may be in use when one is reserved for a send that is posted, where receives reserve
    /// none.
    const fn send_limit(&self) -> u32 {
        self.capacity.div_ceil(2)
    }

    /// Returns true if entries are reserved when receives are posted.
    #[inline]
    pub(super) const fn reserves_for_receives(&self) -> bool {
        !self.may_overflow
    }

    /// Reserves up to `wanted` entries, of `limit` that may be in use, or none if there are fewer than
    /// `least`. Returns how many. At no time do more seem to be in use than are: a receive that is complete
    /// would be lost.
    fn reserve_within(&self, least: u32, wanted: u32, limit: u32) -> u32 {
        let mut granted = 0;
        // In either order, as in `reserve`.
        let _ = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, |reserved| {
            let in_use = reserved.saturating_sub(self.polled.load(Ordering::Acquire));
            let most = u64::from(wanted).min(u64::from(limit).saturating_sub(in_use)) as u32;
            granted = if most < least { 0 } else { most };
            (granted > 0).then_some(reserved + u64::from(granted))
        });
        granted
    }

    /// Returns true if there seems to be an entry to reserve. False means that all were reserved at some time
    /// since the caller last looked at what it needs one for.
    #[inline]
    pub(super) fn has_entry(&self) -> bool {
        // In this order, so that no more seem to be reserved than were at a time. Acquire: the caller sees
        // what each thread did before it reserved an entry.
        let reserved = self.reserved.load(Ordering::Acquire);
        self.granted(1, reserved, self.polled.load(Ordering::Acquire)) == 1
    }

    /// Returns how many of the entries after `before` reserved ones there are, up to `wanted`, where `polled`
    /// are free again.
    #[inline]
    fn granted(&self, wanted: u32, before: u64, polled: u64) -> u32 {
        let in_use = before.saturating_sub(polled);
        u64::from(wanted).min(u64::from(self.capacity).saturating_sub(in_use)) as u32
    }

    /// Reserves as many of `wanted` entries as there are, all of which are reserved after `before` others.
    /// What another thread has reserved since this one looked may be what was polled since.
    #[cold]
    fn reserve_some(&self, wanted: u32, before: u64) -> u32 {
        let granted = self.granted(wanted, before, self.polled.load(Ordering::Acquire));
        if granted < wanted {
            self.unreserve(wanted - granted);
        }
        granted
    }

    /// Releases entries that were [reserved](Self::reserve) and are not used.
    #[inline]
    pub(super) fn unreserve(&self, places: u32) {
        self.reserved.fetch_sub(u64::from(places), Ordering::Relaxed);
    }

    /// Records that a completion found no entry. The first time it reports an event.
    #[cold]
    pub(super) fn overflow(&self, events: Option<&AsyncEvents>) {
        if !self.overflowed.swap(true, Ordering::AcqRel)
            && let Some(events) = events
        {
            events.report(AsyncEvent::CompletionQueueOverflow { cq: self.number });
        }
    }

    /// Sends the notification that completions are due, of which `notice` covers one.
    #[inline(never)]
    fn announce(&self, notify: &dyn Notify, notice: Notice) {
        fence(Ordering::SeqCst);
        let armed = self.armed.load(Ordering::Relaxed);
        let due = armed != Notice::NONE && (armed != Notice::Solicited as u8 || notice == Notice::Solicited);
        // Of several threads that find the notification due, one sends it.
        if due && self.armed.swap(Notice::NONE, Ordering::AcqRel) != Notice::NONE {
            notify.notify();
        }
    }
}

/// A completion queue that a queue pair reports to.
#[derive(Clone, Debug)]
pub(super) struct CompletionTarget {
    queue: Arc<CompletionRing>,
    /// The ring of the core of the queue pair, from when the core begins to serve it.
    ring: OnceLock<Arc<CoreRing>>,
}

impl CompletionTarget {
    /// Returns `queue`, for a queue pair that is at no core yet.
    pub(super) const fn new(queue: Arc<CompletionRing>) -> Self {
        Self { queue, ring: OnceLock::new() }
    }

    /// The queue.
    #[inline]
    pub(super) const fn queue(&self) -> &Arc<CompletionRing> {
        &self.queue
    }

    /// Has the queue make a ring for `core` unless there is one, so that the core need not.
    pub(super) fn prepare_for(&self, core: &Arc<Doorbells>) {
        drop(self.queue.rings.of(core));
    }

    /// Has `core` fill the queue. The ring is the core's for as long as its doorbells are there, which are
    /// those of the queue pair.
    pub(super) fn set_core(&self, core: &Arc<Doorbells>) {
        let ring = self.ring.get_or_init(|| self.queue.rings.of(core));
        debug_assert!(Arc::ptr_eq(ring, &self.queue.rings.of(core)), "a queue pair is at one core");
    }

    /// The end at which the core of the queue pair adds completions, for this core.
    #[inline]
    pub(super) fn producer<'a>(
        &'a self,
        doorbells: &CoreDoorbells,
        events: Option<&'a AsyncEvents>,
    ) -> CompletionProducer<'a> {
        let ring = match self.ring.get() {
            Some(ring) => ring,
            None => self.without_home(doorbells),
        };
        CompletionProducer { queue: &self.queue, ring, events }
    }

    /// The core that fills the queue, if there is one.
    #[cfg(test)]
    pub(super) fn core(&self) -> Option<*const Doorbells> {
        self.ring.get().map(|ring| ring.core())
    }

    /// The ring of core 0, for a queue pair whose core nobody has said.
    #[cold]
    fn without_home(&self, doorbells: &CoreDoorbells) -> &CoreRing {
        self.ring.get_or_init(|| self.queue.rings.of(doorbells.of(0)))
    }
}

/// The end of a completion queue at which one core adds completions. Only that core uses it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompletionProducer<'a> {
    queue: &'a CompletionRing,
    ring: &'a CoreRing,
    /// Where an overflow is reported.
    events: Option<&'a AsyncEvents>,
}

impl<'a> CompletionProducer<'a> {
    /// Adds a completion for which no entry was reserved. Leaves it out and reports that if no entry is free.
    pub(super) fn push_if_free(self, completion: Completion) {
        // What sends leave to receives is for requests that are posted.
        if self.queue.reserve_within(1, 1, self.queue.capacity) == 1 {
            self.push(completion);
        } else {
            self.queue.overflow(self.events);
        }
    }

    /// Adds a completion to the entry that was reserved for it.
    #[inline]
    pub(super) fn push(self, completion: Completion) {
        self.batch(1).push(completion);
    }

    /// Returns true if there is an entry for a receive that is complete: one was reserved for it, or it takes
    /// one now. Otherwise the completion is left out, which is reported.
    #[inline]
    pub(super) fn admits_receive(self) -> bool {
        let admits =
            self.queue.reserves_for_receives() || self.queue.reserve_within(1, 1, self.queue.capacity) == 1;
        if !admits {
            self.queue.overflow(self.events);
        }
        admits
    }

    /// Adds the completion of a success, which has these words, to the entry that was reserved for it.
    #[inline]
    pub(super) fn push_words(self, words: &[u64; CQE_WORDS], solicited: bool) {
        self.ring.batch(1).push_words(words);
        if let Some(notify) = &self.queue.notify {
            self.queue.announce(notify.as_ref(), if solicited { Notice::Solicited } else { Notice::Next });
        }
    }

    /// Returns a writer of the next `count` completions, in entries that were reserved for them.
    #[inline]
    pub(super) fn batch(self, count: u32) -> CompletionBatch<'a> {
        let notice = if count > 0 { Some(Notice::Next) } else { None };
        CompletionBatch { queue: self.queue, batch: self.ring.batch(count), notice }
    }
}

/// A writer of completions of a core that come together: one notification covers them.
#[derive(Debug)]
pub(super) struct CompletionBatch<'a> {
    queue: &'a CompletionRing,
    batch: Batch<'a>,
    /// The notice that covers all of them; `None` if there are none.
    notice: Option<Notice>,
}

impl CompletionBatch<'_> {
    /// Adds a completion. There are as many as the batch is for.
    #[inline]
    pub(super) fn push(&mut self, completion: Completion) {
        if Notice::Solicited.is_due(&completion) {
            self.notice = Some(Notice::Solicited);
        }
        self.batch.push(completion);
    }

    /// Adds the completion of a success that is not solicited, which has these
    /// [words](super::cqe::success_words).
    #[inline]
    pub(super) fn push_words(&mut self, words: &[u64; CQE_WORDS]) {
        self.batch.push_words(words);
    }
}

impl Drop for CompletionBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        // No thread sleeps on a queue without `notify`, so polling costs nothing more.
        if let (Some(notify), Some(notice)) = (&self.queue.notify, self.notice) {
            self.queue.announce(notify.as_ref(), notice);
        }
    }
}

impl fmt::Debug for CompletionRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionRing")
            .field("number", &self.number)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// Dequeues completions from a queue. See [`CompletionRing::drain`].
#[derive(Debug)]
pub struct Drain<'a> {
    queue: &'a CompletionRing,
    taken: usize,
}

impl Iterator for Drain<'_> {
    type Item = Completion;

    fn next(&mut self) -> Option<Completion> {
        let completion = self.queue.rings.dequeue()?;
        self.taken += 1;
        Some(completion)
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.queue.free(self.taken);
    }
}

/// A core that fills a queue, for tests.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct CoreEnd {
    target: CompletionTarget,
    doorbells: CoreDoorbells,
}

#[cfg(test)]
impl CoreEnd {
    /// The core that has these doorbells.
    pub(super) fn new(queue: Arc<CompletionRing>, core: &Arc<Doorbells>) -> Self {
        let end = Self { target: CompletionTarget::new(queue), doorbells: core.clone().into() };
        end.target.set_core(core);
        end
    }

    pub(super) fn push(&self, completion: Completion) {
        self.target.producer(&self.doorbells, None).push(completion);
    }

    #[cfg(loom)]
    pub(super) fn batch(&self, count: u32) -> CompletionBatch<'_> {
        self.target.producer(&self.doorbells, None).batch(count)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
