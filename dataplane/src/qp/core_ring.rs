//! The rings of a completion queue, one for each core that fills it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crossbeam::utils::CachePadded;

use super::cqe::{self, CQE_WORDS};
use super::doorbells::Doorbells;
use super::slot::Slots;
use super::work::{Completion, Status};
use crate::sync::{AtomicU64, HandedOver, Ordering, fence};

/// The completions of one core: the core adds them, and one thread dequeues them. Each writes a counter that
/// nobody else writes. A completion is handed over by the turn of its slot.
#[derive(Debug)]
pub(super) struct CoreRing {
    slots: Slots<CQE_WORDS>,
    /// Beside each slot, the status of a completion that is not a success.
    failures: Box<[HandedOver<Status>]>,
    /// The position of the next completion. Only the core uses it.
    pushed: CachePadded<AtomicU64>,
    /// The position of the oldest completion. Only the thread that polls uses it.
    taken: CachePadded<AtomicU64>,
    /// The [address](Self::address) of the core that fills it; 0 before there is one.
    owner: AtomicU64,
    /// The doorbells of that core, whose memory is not used again while this is here. Locked only when a core
    /// gets the ring.
    core: Mutex<Weak<Doorbells>>,
    next: OnceLock<Arc<CoreRing>>,
}

/// Cache lines that follow one another.
#[cfg(all(test, not(loom)))]
pub(super) type Lines = core::ops::RangeInclusive<usize>;

/// The cache lines that a value lies in.
#[cfg(all(test, not(loom)))]
pub(super) fn lines_of<T: ?Sized>(value: &T) -> Lines {
    let address = core::ptr::from_ref(value).cast::<u8>() as usize;
    address / 64..=(address + size_of_val(value) - 1) / 64
}

impl CoreRing {
    fn new(capacity: usize) -> Self {
        let slots = Slots::new(capacity);
        Self {
            failures: (0..slots.len()).map(|_| HandedOver::new(Status::Success)).collect(),
            slots,
            pushed: CachePadded::new(AtomicU64::new(0)),
            taken: CachePadded::new(AtomicU64::new(0)),
            owner: AtomicU64::new(0),
            core: Mutex::new(Weak::new()),
            next: OnceLock::new(),
        }
    }

    /// Returns the number that stands for a core: the address of its doorbells.
    fn address(core: &Arc<Doorbells>) -> u64 {
        Arc::as_ptr(core) as usize as u64
    }

    /// Returns true if it is the ring of the core that has this address.
    fn is_of(&self, address: u64) -> bool {
        // Acquire: the core goes on from where the one before has ended.
        self.owner.load(Ordering::Acquire) == address
    }

    /// Makes it the ring of `core`, if it is, or if the core that it was of has ended. Returns true if it is.
    fn claim(&self, core: &Arc<Doorbells>) -> bool {
        let mut of = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = of.upgrade() {
            return Arc::ptr_eq(&of, core);
        }
        // All that the core before has done comes before the end of its doorbells, which `upgrade` has seen.
        fence(Ordering::Acquire);
        let before = core::mem::replace(&mut *of, Arc::downgrade(core));
        self.owner.store(Self::address(core), Ordering::Release);
        // Not before: from here on its address may be that of another core, which must not find it here.
        drop(before);
        true
    }

    /// The core that fills it.
    #[cfg(test)]
    pub(super) fn core(&self) -> *const Doorbells {
        self.core.lock().unwrap_or_else(PoisonError::into_inner).as_ptr()
    }

    /// The cache lines that threads write: the counters of the core and of the thread that polls, and the
    /// slots.
    #[cfg(all(test, not(loom)))]
    pub(super) fn written_lines(&self) -> [Lines; 3] {
        [lines_of(&*self.pushed), lines_of(&*self.taken), lines_of(self.slots.all())]
    }

    /// Returns true if there is no completion, for the thread that polls.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.written(self.taken.load(Ordering::Relaxed)).is_none()
    }

    /// Dequeues the oldest completion, for the thread that polls.
    #[inline]
    pub(super) fn dequeue(&self) -> Option<Completion> {
        let position = self.taken.load(Ordering::Relaxed);
        let words = self.slots.written(position)?.read();
        self.taken.store(position + 1, Ordering::Relaxed);
        Some(self.completion(words, position))
    }

    /// Appends the oldest completions to `completions`, as many as there is room for, for the thread that
    /// polls.
    #[inline]
    pub(super) fn dequeue_into(&self, completions: &mut Vec<Completion>) {
        let mut position = self.taken.load(Ordering::Relaxed);
        while completions.len() < completions.capacity()
            && let Some(slot) = self.slots.written(position)
        {
            let words = slot.read();
            // Each is put together where it stays.
            completions.push(cqe::success_completion(words));
            if cqe::has_flags(words)
                && let Some(completion) = completions.last_mut()
            {
                *completion = self.with_flags(words, position);
            }
            position += 1;
        }
        self.taken.store(position, Ordering::Relaxed);
    }

    #[inline]
    fn completion(&self, words: [u64; CQE_WORDS], position: u64) -> Completion {
        if cqe::has_flags(words) { self.with_flags(words, position) } else { cqe::success_completion(words) }
    }

    /// The completion at `position`, which has these words, some of them flags.
    #[cold]
    #[inline(never)]
    fn with_flags(&self, words: [u64; CQE_WORDS], position: u64) -> Completion {
        cqe::completion(words, || self.failures[self.slots.index(position)].load())
    }

    /// Returns a writer of the next `count` completions, for the core.
    #[inline]
    pub(super) fn batch(&self, count: u32) -> Batch<'_> {
        let next = self.pushed.load(Ordering::Relaxed);
        Batch { ring: self, next, end: next + u64::from(count) }
    }
}

/// A writer of completions of a core that come together.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    ring: &'a CoreRing,
    next: u64,
    end: u64,
}

impl Batch<'_> {
    /// Adds a completion.
    #[inline]
    pub(super) fn push(&mut self, completion: Completion) {
        if completion.status != Status::Success {
            self.ring.failures[self.ring.slots.index(self.next)].store(completion.status);
        }
        self.push_words(&cqe::words(&completion));
    }

    /// Adds the completion that has these words.
    #[inline]
    pub(super) fn push_words(&mut self, words: &[u64; CQE_WORDS]) {
        debug_assert!(self.next < self.end, "more completions than the batch is for");
        self.ring.slots.slot(self.next).write(self.next, words);
        self.next += 1;
    }
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        debug_assert!(self.next == self.end, "fewer completions than the batch is for");
        self.ring.pushed.store(self.next, Ordering::Relaxed);
    }
}

/// The rings of a completion queue. They are there for as long as the queue is; that of a core which has
/// ended serves the next.
#[derive(Debug)]
pub(super) struct CoreRings {
    first: Arc<CoreRing>,
    capacity: usize,
    /// How often the rings were polled, where there are several: the one to begin with. Only the thread that
    /// polls uses it.
    turn: CachePadded<AtomicU64>,
}

impl CoreRings {
    /// Rings of `capacity` entries.
    pub(super) fn new(capacity: usize) -> Self {
        Self { first: Arc::new(CoreRing::new(capacity)), capacity, turn: CachePadded::new(AtomicU64::new(0)) }
    }

    /// The ring of the core that has these doorbells. A ring that it has already is found without a lock.
    pub(super) fn of(&self, core: &Arc<Doorbells>) -> Arc<CoreRing> {
        let address = CoreRing::address(core);
        let own = core::iter::successors(Some(&self.first), |ring| ring.next.get());
        if let Some(own) = own.into_iter().find(|ring| ring.is_of(address)) {
            return own.clone();
        }
        let mut ring = &self.first;
        while !ring.claim(core) {
            ring = ring.next.get_or_init(|| Arc::new(CoreRing::new(self.capacity)));
        }
        ring.clone()
    }

    /// Returns true if there is no completion.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.iter().all(CoreRing::is_empty)
    }

    /// Dequeues a completion: the oldest of its core. Of completions of two cores neither is older than the
    /// other.
    #[inline]
    pub(super) fn dequeue(&self) -> Option<Completion> {
        match self.first.next.get() {
            None => self.first.dequeue(),
            Some(_) => self.dequeue_of_several(),
        }
    }

    #[inline(never)]
    fn dequeue_of_several(&self) -> Option<Completion> {
        self.in_turn().find_map(CoreRing::dequeue)
    }

    /// Calls `f` with each ring, [in turn](Self::in_turn).
    #[inline]
    pub(super) fn each_in_turn(&self, mut f: impl FnMut(&CoreRing)) {
        match self.first.next.get() {
            None => f(&self.first),
            Some(_) => self.each_of_several(&mut f),
        }
    }

    #[inline(never)]
    fn each_of_several(&self, f: &mut dyn FnMut(&CoreRing)) {
        self.in_turn().for_each(f);
    }

    /// The rings. Each call begins with another, so that a core which keeps its ring filled does not keep the
    /// thread that polls from those of others.
    fn in_turn(&self) -> impl Iterator<Item = &CoreRing> {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        let begin = turn as usize % self.iter().count();
        self.iter().skip(begin).chain(self.iter().take(begin))
    }

    /// The rings, in no particular order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &CoreRing> {
        core::iter::successors(Some(&*self.first), |ring| ring.next.get().map(Arc::as_ref))
    }
}
