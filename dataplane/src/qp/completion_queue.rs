//! Completion queues: queue pairs report completed work here. Any thread polls them. A thread that sleeps
//! arms the queue first, and gets one notification.

use core::fmt;
use std::sync::Arc;

use crossbeam::utils::CachePadded;

use super::async_event::{AsyncEvent, AsyncEvents};
use super::cqe::{self, CQE_WORDS};
use super::slot::Slots;
use super::work::{Completion, Status};
use crate::notify::Notify;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, HandedOver, Ordering, fence};

pub use super::numbers::CqNumber;

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
/// An entry is reserved when work is posted, so work posted to a queue pair cannot overflow the queue. A
/// receive from a shared receive queue has no entry yet; a queue pair that finds none fails, but no other one
/// does ([`AsyncEvent::CompletionQueueOverflow`]). A send work request that is not signaled reserves no
/// entry, because its success is not reported. If it fails or is flushed, its completion uses an entry that
/// is free and not reserved; without one it is left out, and the queue reports the overflow.
// Requirements: RDMAP-8.1.1-05
pub struct CompletionRing {
    number: CqNumber,
    capacity: u32,
    slots: Slots<CQE_WORDS>,
    /// Beside each slot, the status of a completion that is not a success.
    failures: Box<[HandedOver<Status>]>,
    /// Entries in use: those of completions in the queue, and those reserved for work under way.
    reserved: CachePadded<AtomicU32>,
    /// The position of the next completion, for the cores.
    pushed: CachePadded<AtomicU64>,
    /// The position of the oldest completion, for the threads that poll.
    polled: CachePadded<AtomicU64>,
    overflowed: AtomicBool,
    /// The [`Notice`] that the queue is armed for, if any.
    armed: AtomicU8,
    notify: Option<Arc<dyn Notify>>,
}

impl CompletionRing {
    /// A ring of `capacity` entries, at least one, for threads that only poll.
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
        let slots = Slots::new(capacity as usize);
        Self {
            number: CqNumber(NUMBERS.fetch_add(1, Ordering::Relaxed) as u32),
            capacity,
            failures: (0..slots.len()).map(|_| HandedOver::new(Status::Success)).collect(),
            slots,
            reserved: CachePadded::new(AtomicU32::new(0)),
            pushed: CachePadded::new(AtomicU64::new(0)),
            polled: CachePadded::new(AtomicU64::new(0)),
            overflowed: AtomicBool::new(false),
            armed: AtomicU8::new(Notice::NONE),
            notify,
        }
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

    /// Takes the oldest completion.
    #[inline]
    pub fn poll(&self) -> Option<Completion> {
        let completion = self.take_one();
        if completion.is_some() {
            self.unreserve(1);
        }
        completion
    }

    /// Moves the oldest completions to the front of `completions`, as many as fit. Returns how many. If other
    /// threads poll the queue too, the places after those may have been written to.
    #[inline]
    pub fn poll_many(&self, completions: &mut [Completion]) -> usize {
        loop {
            let first = self.first_unclaimed();
            let mut count = 0;
            for place in completions.iter_mut() {
                let Some(completion) = self.read(first + count) else { break };
                *place = completion;
                count += 1;
            }
            if self.take(first, count) {
                return count as usize;
            }
        }
    }

    /// Appends the oldest completions to `completions`, as many as it has room for without allocating.
    /// Returns how many.
    #[inline]
    pub fn poll_into(&self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        loop {
            let first = self.first_unclaimed();
            let mut position = first;
            while completions.len() < completions.capacity()
                && let Some(words) = self.slots.read(position)
            {
                // Each is put together where it stays.
                completions.push(cqe::plain_success(words));
                if cqe::has_flags(words)
                    && let Some(completion) = completions.last_mut()
                {
                    *completion = self.with_flags(words, position);
                }
                position += 1;
            }
            if self.take(first, position - first) {
                return (position - first) as usize;
            }
            completions.truncate(before);
        }
    }

    /// Takes completions, oldest first, until none is left. Their entries become free all at once when the
    /// iterator is dropped.
    pub fn drain(&self) -> Drain<'_> {
        Drain { ring: self, taken: 0 }
    }

    /// Takes the oldest completion, whose entry the caller frees.
    #[inline]
    fn take_one(&self) -> Option<Completion> {
        loop {
            let first = self.first_unclaimed();
            let completion = self.read(first);
            if self.claim(first, u64::from(completion.is_some())) {
                return completion;
            }
        }
    }

    /// The position of the oldest completion that no thread has claimed.
    #[inline]
    fn first_unclaimed(&self) -> u64 {
        self.polled.load(Ordering::Relaxed)
    }

    /// Claims the `count` completions from position `first` on, which this thread has read. Returns false if
    /// another thread has claimed the first of them meanwhile: then what was read is worth nothing, because
    /// its slots may have been written over.
    ///
    /// A thread reads before it claims, so nothing that it still has to do stands between a core and a slot.
    /// Example: in a ring of four, one thread claims positions 0 to 2 and is not scheduled for long, and
    /// another takes position 3. That frees an entry, and the core writes position 4 to the slot of position
    /// 0 at once.
    #[inline]
    fn claim(&self, first: u64, count: u64) -> bool {
        if count == 0 {
            return self.first_unclaimed() == first;
        }
        // Release and Acquire: what was read before any of these exchanges was read before the entry of a
        // later one is free.
        let (done, otherwise) = (Ordering::AcqRel, Ordering::Relaxed);
        self.polled.compare_exchange(first, first + count, done, otherwise).is_ok()
    }

    /// Claims them, and frees their entries.
    #[inline]
    fn take(&self, first: u64, count: u64) -> bool {
        let claimed = self.claim(first, count);
        if claimed && count > 0 {
            self.unreserve(count as u32);
        }
        claimed
    }

    /// The completion at `position`, which has these words, some of them flags.
    #[cold]
    #[inline(never)]
    fn with_flags(&self, words: [u64; CQE_WORDS], position: u64) -> Completion {
        cqe::completion(words, || self.failures[self.slots.index(position)].load_unclaimed())
    }

    /// The completion at `position`, if it is there; it is valid once it is [claimed](Self::claim).
    #[inline]
    fn read(&self, position: u64) -> Option<Completion> {
        let words = self.slots.read(position)?;
        Some(if cqe::has_flags(words) { self.with_flags(words, position) } else { cqe::plain_success(words) })
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
        // One that a core is only about to write counts: those after it may be there, and were announced.
        self.pushed.load(Ordering::Relaxed) != self.polled.load(Ordering::Relaxed)
    }

    /// Reserves entries for future completions, up to `wanted`. Returns how many.
    #[inline]
    pub(super) fn reserve(&self, wanted: u32) -> u32 {
        if wanted == 0 {
            return 0;
        }
        // Acquire, and Release at the other end: the slot of an entry that is used again was freed before.
        let before = self.reserved.fetch_add(wanted, Ordering::Acquire);
        let granted = wanted.min(self.capacity.saturating_sub(before));
        if granted < wanted {
            self.unreserve(wanted - granted);
        }
        granted
    }

    /// Releases entries.
    #[inline]
    pub(super) fn unreserve(&self, places: u32) {
        self.reserved.fetch_sub(places, Ordering::Release);
    }

    /// Notes that a completion found no entry. The first time it reports an event.
    pub(super) fn overflow(&self, events: Option<&AsyncEvents>) {
        if !self.overflowed.swap(true, Ordering::AcqRel)
            && let Some(events) = events
        {
            events.report(AsyncEvent::CompletionQueueOverflow { cq: self.number });
        }
    }

    /// Adds a completion for which no entry was reserved. Returns false and leaves it out if no entry is
    /// free.
    pub(super) fn push_if_free(&self, completion: Completion) -> bool {
        let free = self.reserve(1) == 1;
        if free {
            self.push(completion);
        }
        free
    }

    /// Adds a completion to the entry that was reserved for it.
    #[inline]
    pub(super) fn push(&self, completion: Completion) {
        self.batch(1).push(completion);
    }

    /// Returns what takes the next `count` completions, in entries that were reserved for them.
    #[inline]
    pub(super) fn batch(&self, count: u32) -> CompletionBatch<'_> {
        let next = if count > 0 { self.pushed.fetch_add(u64::from(count), Ordering::AcqRel) } else { 0 };
        CompletionBatch { ring: self, next, end: next + u64::from(count), notice: None }
    }

    /// Sends the notification that completions are due, of which `notice` covers one.
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

/// Takes completions of a core that come together: one step claims their entries, and one notification covers
/// them.
#[derive(Debug)]
pub(super) struct CompletionBatch<'a> {
    ring: &'a CompletionRing,
    next: u64,
    end: u64,
    /// The least notice that covers one of them; `None` before the first.
    notice: Option<Notice>,
}

impl CompletionBatch<'_> {
    /// Adds a completion. There are as many as the batch is for.
    #[inline]
    pub(super) fn push(&mut self, completion: Completion) {
        if completion.status != Status::Success {
            let ring = self.ring;
            ring.failures[ring.slots.index(self.next)].store(completion.status);
        }
        if Notice::Solicited.is_due(&completion) {
            self.notice = Some(Notice::Solicited);
        }
        self.push_words(&cqe::words(&completion));
    }

    /// Adds the completion of a success that is not solicited, which has these [words](cqe::plain_words).
    #[inline]
    pub(super) fn push_words(&mut self, words: &[u64; CQE_WORDS]) {
        debug_assert!(self.next < self.end, "more completions than the batch is for");
        self.ring.slots.slot(self.next).write(self.next, words);
        self.next += 1;
        self.notice = Some(self.notice.unwrap_or(Notice::Next));
    }
}

impl Drop for CompletionBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        debug_assert!(self.next == self.end, "fewer completions than the batch is for");
        // No thread sleeps on a ring without `notify`, so polling costs nothing more.
        if let (Some(notify), Some(notice)) = (&self.ring.notify, self.notice) {
            self.ring.announce(notify.as_ref(), notice);
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

/// Takes completions from a queue. See [`CompletionRing::drain`].
#[derive(Debug)]
pub struct Drain<'a> {
    ring: &'a CompletionRing,
    taken: u32,
}

impl Iterator for Drain<'_> {
    type Item = Completion;

    fn next(&mut self) -> Option<Completion> {
        let completion = self.ring.take_one()?;
        self.taken += 1;
        Some(completion)
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.ring.unreserve(self.taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicUsize;
    use std::thread;

    use super::super::work::{CompletionKind, QpNumber};
    use super::*;

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Notify for Bell {
        fn notify(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Bell {
        fn rung(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn ring(capacity: usize) -> (CompletionRing, Arc<Bell>) {
        let bell = Arc::new(Bell::default());
        (CompletionRing::with_notify(capacity, bell.clone()), bell)
    }

    fn completion(id: u64) -> Completion {
        Completion::new(QpNumber(7), id, CompletionKind::Receive, Status::Success, 0)
    }

    fn push(ring: &CompletionRing, completion: Completion) {
        assert_eq!(ring.reserve(1), 1);
        ring.push(completion);
    }

    /// A thread that polls has claimed a completion, and is not scheduled for long. The core goes on: an
    /// entry that others have freed has a slot to write to.
    #[test]
    fn a_core_does_not_wait_for_a_poller() {
        let ring = CompletionRing::new(4);
        assert_eq!(ring.reserve(4), 4);
        (0..4).for_each(|id| ring.push(completion(id)));
        assert!(ring.read(0).is_some() && ring.claim(0, 1));
        let rest: Vec<u64> = ring.drain().map(|completion| completion.id).collect();
        assert_eq!(rest, [1, 2, 3]);
        for id in 4..40 {
            push(&ring, completion(id));
            assert_eq!(ring.poll().map(|completion| completion.id), Some(id));
        }
        assert_eq!(ring.reserve(4), 3, "its entry is not free yet");
        ring.unreserve(1);
    }

    #[test]
    fn many_are_polled_at_once() {
        let ring = CompletionRing::new(8);
        assert_eq!(ring.reserve(20), 8);
        assert_eq!(ring.reserve(1), 0);
        (0..8).for_each(|id| ring.push(completion(id)));
        let mut some = [completion(99); 5];
        assert_eq!(ring.poll_many(&mut some), 5);
        assert_eq!(some.map(|completion| completion.id), [0, 1, 2, 3, 4]);
        assert_eq!(ring.reserve(20), 5, "the places of those that were polled, and no other");
        assert_eq!(ring.poll_many(&mut some), 3);
        assert_eq!(some.map(|completion| completion.id), [5, 6, 7, 3, 4], "the rest is as it was");
        assert_eq!(ring.poll_many(&mut some), 0);
        assert_eq!(ring.drain().count(), 0);
    }

    /// Verbs' `req_notify_cq`: one notification for each time the queue is armed, none for completions that
    /// are already there.
    #[test]
    fn an_armed_queue_tells_once() {
        let (ring, bell) = ring(8);
        push(&ring, completion(1));
        assert_eq!(bell.rung(), 0, "nobody has asked");
        assert!(ring.arm(Notice::Next), "there is one already");
        assert_eq!(bell.rung(), 0);
        ring.poll().unwrap();
        assert!(!ring.arm(Notice::Next));
        push(&ring, completion(2));
        push(&ring, completion(3));
        assert_eq!(bell.rung(), 1);
        assert_eq!(ring.drain().count(), 2);
    }

    /// A Solicited Event wakes, and so does an error; a common success does not.
    // Requirements: RDMAP-5.3-04
    #[test]
    fn who_waits_for_solicited_events_sleeps_through_others() {
        let (ring, bell) = ring(16);
        assert!(!ring.arm(Notice::Solicited));
        push(&ring, completion(1));
        assert_eq!(bell.rung(), 0);
        push(&ring, Completion { solicited: true, ..completion(2) });
        push(&ring, Completion { solicited: true, ..completion(3) });
        assert_eq!(bell.rung(), 1);
        assert!(ring.arm(Notice::Solicited));
        push(&ring, Completion { status: Status::Flushed, ..completion(4) });
        assert_eq!(bell.rung(), 2);
        // Arming for more extends the notice; arming for less then changes nothing.
        ring.arm(Notice::Next);
        ring.arm(Notice::Solicited);
        push(&ring, completion(5));
        assert_eq!(bell.rung(), 3);
    }

    /// The race that the verbs documentation describes: a completion that arrives while the queue is armed is
    /// either found by `arm` or notified.
    #[test]
    fn no_completion_slips_past_arming() {
        const COMPLETIONS: u64 = 200_000;
        let (ring, bell) = ring(64);
        thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..COMPLETIONS {
                    while ring.reserve(1) == 0 {
                        thread::yield_now();
                    }
                    ring.push(completion(id));
                }
            });
            let (mut heard, mut next) = (0, 0);
            while next < COMPLETIONS {
                for completion in ring.drain() {
                    assert_eq!(completion.id, next);
                    next += 1;
                }
                if next < COMPLETIONS && !ring.arm(Notice::Next) {
                    // A sleeper: nothing but the bell wakes it. Were one lost, this would never end.
                    while bell.rung() == heard {
                        thread::yield_now();
                    }
                }
                heard = bell.rung();
            }
        });
        assert!(ring.poll().is_none());
    }

    #[test]
    fn overflow_is_told_once_and_remembered() {
        let ring = CompletionRing::new(1);
        let events = AsyncEvents::new(None);
        assert!(!ring.has_overflowed());
        ring.overflow(Some(&events));
        ring.overflow(Some(&events));
        assert!(ring.has_overflowed());
        assert_eq!(events.take(), Some(AsyncEvent::CompletionQueueOverflow { cq: ring.number() }));
        assert_eq!(events.take(), None);
        assert_ne!(CompletionRing::new(1).number(), ring.number());
    }
}
