//! Doorbells: how applications announce new work to a core.
//!
//! Each queue pair has a bit: bit `n % 64` of word `n / 64` for the one with number `n`. A thread that has
//! posted sets it, by one atomic operation, which is all that ringing costs. The core collects the bits of a
//! word together, by one atomic operation too, and reads the queues of those that were set.
//!
//! Numbers 7, 9 and 130 have bits 7 and 9 of word 0, and bit 2 of word 2. While there are no others, the core
//! looks at words 0 and 2 only.

use std::sync::{Arc, Mutex, PoisonError};

use crossbeam::utils::CachePadded;

use super::work::QpNumber;
use crate::limits;
use crate::sync::{ArrayQueue, AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::waker::Waker;

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

// A bit for each word says whether the word has queue pairs.
const _: () = assert!(limits::QPS_PER_CORE <= BITS * BITS);

/// The doorbells of a core: one bit for each queue pair, whether receives were posted to a shared receive
/// queue that queue pairs wait for, and the names of byte streams with work.
#[derive(Debug)]
pub struct Doorbells {
    /// The bits that are set.
    words: Box<[AtomicU64]>,
    /// The words that have queue pairs: bit `w` for word `w`.
    used: CachePadded<AtomicU64>,
    /// How many queue pairs each word has. Locked only when a queue pair is made or ends.
    members: Mutex<Box<[u32]>>,
    taken: CachePadded<TakenBits>,
    /// Whether receives were posted to a shared receive queue that queue pairs wait for.
    shared_receives: AtomicBool,
    byte_streams: ArrayQueue<u64>,
    /// Whether there is anything but numbers of queue pairs, or was just now.
    others: AtomicBool,
    /// Wakes the thread that polls the core, if that thread may sleep.
    waker: Option<Arc<Waker>>,
}

/// The bits that the core has collected from a word, and has not served yet. Only the core uses them.
#[derive(Debug)]
struct TakenBits {
    word: AtomicU32,
    bits: AtomicU64,
}

impl Doorbells {
    /// Doorbells for queue pairs with numbers below `queue_pairs`, of which there are at most
    /// [`QPS_PER_CORE`](limits::QPS_PER_CORE).
    pub fn new(queue_pairs: usize) -> Self {
        let words = queue_pairs.clamp(1, limits::QPS_PER_CORE).div_ceil(BITS);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            used: CachePadded::new(AtomicU64::new(0)),
            members: Mutex::new((0..words).map(|_| 0).collect()),
            taken: CachePadded::new(TakenBits { word: AtomicU32::new(0), bits: AtomicU64::new(0) }),
            shared_receives: AtomicBool::new(false),
            byte_streams: ArrayQueue::new(1),
            others: AtomicBool::new(false),
            waker: None,
        }
    }

    /// The same, also for `byte_streams` byte streams.
    #[must_use]
    pub fn with_byte_streams(self, byte_streams: usize) -> Self {
        Self { byte_streams: ArrayQueue::new(byte_streams.max(1)), ..self }
    }

    /// The same, for a core whose thread may sleep.
    #[must_use]
    pub fn with_waker(self, waker: Arc<Waker>) -> Self {
        Self { waker: Some(waker), ..self }
    }

    /// Wakes the core's thread if it sleeps, for work outside of the doorbells, such as a command.
    #[inline]
    pub fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Adds or removes the queue pair of a doorbell.
    fn count_members(&self, word: usize, count: impl FnOnce(&mut u32)) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(members) = members.get_mut(word) else { return };
        count(members);
        // SeqCst: a core that looks at all words before it sleeps looks at this one, see `Waker`.
        if *members > 0 {
            self.used.fetch_or(1 << word, Ordering::SeqCst);
        } else {
            self.used.fetch_and(!(1 << word), Ordering::SeqCst);
        }
    }

    /// Sets the bit of a queue pair, and wakes the core's thread if it sleeps.
    #[inline]
    fn ring(&self, number: QpNumber) {
        let Some(word) = self.words.get(word_of(number)) else { return };
        // Release: the core, which collects the bit by an acquiring operation, sees what was posted before.
        // SeqCst: it comes before the waker's look at whether the thread sleeps, without a fence.
        word.fetch_or(1 << (number.0 as usize % BITS), Ordering::SeqCst);
        if let Some(waker) = &self.waker {
            waker.wake_after_exchange();
        }
    }

    /// Rings for receives in a shared receive queue that queue pairs wait for.
    pub(crate) fn ring_shared_receives(&self) {
        self.shared_receives.store(true, Ordering::Release);
        self.others.store(true, Ordering::Release);
        self.wake();
    }

    /// Rings the bell of the byte stream `name`, which is not ringing yet.
    pub(crate) fn ring_byte_stream(&self, name: u64) {
        // There is an entry for every connection, and each is in the queue at most once.
        let rung = self.byte_streams.push(name);
        debug_assert!(rung.is_ok(), "more byte streams than bells");
        self.others.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns true if shared receive queues or byte streams may ring, and looks anew from now on.
    #[inline]
    pub fn clear_others(&self) -> bool {
        self.others.load(Ordering::Relaxed) && self.others.swap(false, Ordering::AcqRel)
    }

    /// Records that byte streams are left that ring.
    pub fn leave_others(&self) {
        self.others.store(true, Ordering::Release);
    }

    /// Dequeues the name of the next byte stream that has work.
    pub fn dequeue_byte_stream(&self) -> Option<u64> {
        if self.byte_streams.is_empty() { None } else { self.byte_streams.pop() }
    }

    /// Returns true if the doorbell of shared receive queues rings, and clears it.
    pub fn clear_shared_receives(&self) -> bool {
        self.shared_receives.load(Ordering::Relaxed) && self.shared_receives.swap(false, Ordering::AcqRel)
    }

    /// Dequeues the next queue pair that has new work, for the core, which reads its queues after this: a
    /// request is read then, or the bit is set once more.
    #[inline]
    pub fn dequeue(&self) -> Option<QpNumber> {
        let taken = &self.taken;
        let mut bits = taken.bits.load(Ordering::Relaxed);
        if bits == 0 {
            let word = self.next_rung()?;
            // The swap reads from the last of all that have set a bit, and so comes after each of them.
            bits = self.words[word].swap(0, Ordering::Acquire);
            taken.word.store(word as u32, Ordering::Relaxed);
        }
        taken.bits.store(bits & bits.wrapping_sub(1), Ordering::Relaxed);
        (bits != 0).then(|| QpNumber(taken.word.load(Ordering::Relaxed) * u64::BITS + bits.trailing_zeros()))
    }

    /// Returns a word with bits that are set: the first one after that which the core collected last, so that
    /// none waits for ever.
    #[inline]
    fn next_rung(&self) -> Option<usize> {
        let used = self.used.load(Ordering::Relaxed);
        let next = self.taken.word.load(Ordering::Relaxed) as usize + 1;
        // In a turned map, the words come in the order in which they are looked at.
        let mut turned = used.rotate_right(next as u32);
        while turned != 0 {
            let word = (next + turned.trailing_zeros() as usize) % BITS;
            if self.words[word].load(Ordering::Relaxed) != 0 {
                return Some(word);
            }
            turned &= turned - 1;
        }
        None
    }

    /// Whether a bit is set: what every poll asks.
    #[inline]
    fn is_any_rung(&self) -> bool {
        let mut used = self.used.load(Ordering::Relaxed);
        while used != 0 {
            if self.words[used.trailing_zeros() as usize].load(Ordering::Relaxed) != 0 {
                return true;
            }
            used &= used - 1;
        }
        false
    }

    /// Whether no doorbell rings.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.taken.bits.load(Ordering::Relaxed) == 0
            && !self.is_any_rung()
            && !self.others.load(Ordering::Acquire)
    }
}

/// The index of the word with the bit of queue pair `number`.
#[inline]
const fn word_of(number: QpNumber) -> usize {
    number.0 as usize / BITS
}

/// The doorbell of one queue pair.
#[derive(Debug)]
pub(super) struct Doorbell {
    number: QpNumber,
    doorbells: Arc<Doorbells>,
}

impl Doorbell {
    /// The doorbell of queue pair `number` among those of its core. Another queue pair that has had the
    /// number before may still ring it: the core then looks once in vain.
    pub(super) fn new(number: QpNumber, doorbells: Arc<Doorbells>) -> Self {
        debug_assert!(word_of(number) < doorbells.words.len(), "more queue pairs than doorbells");
        doorbells.count_members(word_of(number), |members| *members += 1);
        Self { number, doorbells }
    }

    /// Rings for work that waits.
    #[inline]
    pub(super) fn ring(&self) {
        self.doorbells.ring(self.number);
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.doorbells.count_members(word_of(self.number), |members| *members -= 1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn bells(queue_pairs: usize, numbers: &[u32]) -> (Arc<Doorbells>, Vec<Doorbell>) {
        let doorbells = Arc::new(Doorbells::new(queue_pairs));
        let bells =
            numbers.iter().map(|number| Doorbell::new(QpNumber(*number), doorbells.clone())).collect();
        (doorbells, bells)
    }

    fn dequeue_all(doorbells: &Doorbells) -> Vec<u32> {
        core::iter::from_fn(|| doorbells.dequeue()).map(|number| number.0).collect()
    }

    /// Every queue pair that rings is dequeued once, however often it has rung.
    #[test]
    fn every_bell_is_dequeued_once() {
        let numbers = [0, 63, 64, 127, 128, 2000, limits::QPS_PER_CORE as u32 - 1];
        let (doorbells, bells) = bells(limits::QPS_PER_CORE, &numbers);
        assert!(doorbells.is_empty());
        for _ in 0..3 {
            bells.iter().for_each(Doorbell::ring);
            bells.iter().for_each(Doorbell::ring);
            assert!(!doorbells.is_empty());
            let mut numbers_rung = dequeue_all(&doorbells);
            numbers_rung.sort_unstable();
            assert_eq!(numbers_rung, numbers);
            assert!(doorbells.is_empty());
        }
    }

    /// A queue pair that rings whenever the core looks does not keep it from the others.
    #[test]
    fn no_bell_waits_for_one_that_rings_on() {
        let (doorbells, bells) = bells(256, &[1, 2, 70, 200]);
        bells.iter().for_each(Doorbell::ring);
        let order: Vec<u32> = (0..4)
            .map(|_| {
                let number = doorbells.dequeue().unwrap();
                bells[0].ring();
                number.0
            })
            .collect();
        assert_eq!(order, [70, 200, 1, 2], "from word 1 on, round to word 0");
        assert_eq!(doorbells.dequeue(), Some(QpNumber(1)));
        assert!(doorbells.is_empty());
    }

    /// The core looks only at words that have queue pairs.
    #[test]
    fn words_without_queue_pairs_are_not_looked_at() {
        let (doorbells, mut bells) = bells(256, &[7, 9, 130]);
        assert_eq!(doorbells.used.load(Ordering::Relaxed), 0b101);
        bells.remove(0);
        assert_eq!(doorbells.used.load(Ordering::Relaxed), 0b101, "there is another in its word");
        bells.remove(0);
        assert_eq!(doorbells.used.load(Ordering::Relaxed), 0b100);
        bells[0].ring();
        assert_eq!(dequeue_all(&doorbells), [130]);
        drop(bells);
        assert_eq!(doorbells.used.load(Ordering::Relaxed), 0);
    }
}
