//! Doorbells: how applications announce new work to a core.
//!
//! Each queue pair has a bit, by the slot that it has at its core, and so has each byte stream, by the slot
//! of its connection. A thread that has posted sets the bit, by one atomic operation. The core collects the
//! bits of a word together, by one atomic operation too, and reads the queues of those that were set.
//!
//! Eight words are a group, which is a cache line. The core always looks at the first group. Every other one
//! has a bit in turn, which the thread sets too unless it is set: so an idle poll looks at one word with up
//! to 64 queue pairs, at the eight of the first group with up to 512, and at one more for each 32,768.
//!
//! Slots 7, 9 and 130 have bits 7 and 9 of word 0 and bit 2 of word 2, in group 0. Slot 600 has bit 24 of
//! word 9, which is in group 1.

use std::sync::Arc;

use crossbeam::utils::CachePadded;

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::waker::Waker;

/// Bits of a word.
const WORD_BITS: usize = u64::BITS as usize;
/// Words of a group.
const GROUP_WORDS: usize = 8;
/// Slots of a group.
const GROUP_SLOTS: usize = GROUP_WORDS * WORD_BITS;

/// The words of a group, in a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Group([AtomicU64; GROUP_WORDS]);

// All words each time, without a branch for each.
impl Group {
    /// Whether a bit is set.
    #[inline]
    fn is_rung(&self) -> bool {
        self.0.iter().fold(0, |bits, word| bits | word.load(Ordering::Relaxed)) != 0
    }

    /// Returns the words with bits that are set, a bit for each.
    #[inline]
    fn nonzero_words(&self) -> u32 {
        // SeqCst: once the bit of the group is cleared, each word is seen that was set by one who then found
        // that bit set.
        let is_rung = |word: &AtomicU64| u32::from(word.load(Ordering::SeqCst) != 0);
        self.0.iter().rev().fold(0, |words, word| words << 1 | is_rung(word))
    }
}

/// One bit for each slot, which any thread may set, and which the core collects.
#[derive(Debug)]
struct Bells {
    first: Group,
    /// The other groups.
    groups: Box<[Group]>,
    /// A bit for each group but the first: it may have bits that are set.
    rung_groups: Box<[AtomicU64]>,
    cursor: CachePadded<Cursor>,
}

/// How far the core has come. Only the core uses it.
#[derive(Debug)]
struct Cursor {
    /// The slots in use are below this.
    slots: AtomicU32,
    /// How many words of the first group have slots in use.
    first_words: AtomicU32,
    /// How many words of bits of groups have slots in use: none while there is one group.
    rung_words: AtomicU32,
    /// The group that it looks at.
    group: AtomicU32,
    /// The words of the group from which it has not collected bits, of those that had some when it came to
    /// the group: a bit for each.
    words_left: AtomicU32,
    /// The word from which it has collected bits, counted from the first of all groups.
    word: AtomicU32,
    /// The bits that it has collected from the word, and not served yet.
    bits: AtomicU64,
}

impl Bells {
    /// Returns bells for slots below `slots`, none of which is in use.
    fn new(slots: usize) -> Self {
        let group = || Group(core::array::from_fn(|_| AtomicU64::new(0)));
        let groups = slots.div_ceil(GROUP_SLOTS).max(1);
        let cursor = Cursor {
            slots: AtomicU32::new(0),
            first_words: AtomicU32::new(0),
            rung_words: AtomicU32::new(0),
            group: AtomicU32::new(0),
            words_left: AtomicU32::new(0),
            word: AtomicU32::new(0),
            bits: AtomicU64::new(0),
        };
        Self {
            first: group(),
            groups: (1..groups).map(|_| group()).collect(),
            rung_groups: (0..groups.div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect(),
            cursor: CachePadded::new(cursor),
        }
    }

    /// Has the core look at the bells of all slots up to `slot`. For the core.
    fn use_slot(&self, slot: u32) {
        let cursor = &self.cursor;
        let slots = cursor.slots.load(Ordering::Relaxed).max(slot + 1);
        cursor.slots.store(slots, Ordering::Relaxed);
        let slots = slots as usize;
        let first_words = slots.min(GROUP_SLOTS).div_ceil(WORD_BITS);
        let rung_words = if slots <= GROUP_SLOTS { 0 } else { slots.div_ceil(GROUP_SLOTS * WORD_BITS) };
        cursor.first_words.store(first_words as u32, Ordering::Relaxed);
        cursor.rung_words.store(rung_words as u32, Ordering::Relaxed);
    }

    /// Returns a group.
    #[inline]
    fn group(&self, index: usize) -> Option<&Group> {
        if index == 0 { Some(&self.first) } else { self.groups.get(index - 1) }
    }

    /// Sets the bit of a slot.
    #[inline]
    fn ring(&self, slot: u32) {
        let slot = slot as usize;
        let Some(group) = self.group(slot / GROUP_SLOTS) else { return };
        // Release: the core, which collects the bit by an acquiring operation, sees what was posted before.
        // SeqCst: it comes before the waker's look at whether the thread sleeps, without a fence.
        group.0[slot / WORD_BITS % GROUP_WORDS].fetch_or(1 << (slot % WORD_BITS), Ordering::SeqCst);
        if slot >= GROUP_SLOTS {
            self.ring_group(slot / GROUP_SLOTS);
        }
    }

    /// Sets the bit of a group, unless it is set. The core clears it before it looks at the words of the
    /// group: if the bit is still set here, the core finds the word that was set before.
    fn ring_group(&self, group: usize) {
        let (rung, bit) = (&self.rung_groups[group / WORD_BITS], 1 << (group % WORD_BITS));
        // The model has one order of all for fences only.
        #[cfg(loom)]
        crate::sync::fence(Ordering::SeqCst);
        if rung.load(Ordering::SeqCst) & bit == 0 {
            rung.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Dequeues the next slot whose bit is set, for the core, which reads its queues after this: a request is
    /// read then, or the bit is set once more.
    #[inline]
    fn dequeue(&self) -> Option<u32> {
        let cursor = &self.cursor;
        let mut bits = cursor.bits.load(Ordering::Relaxed);
        if bits == 0 {
            let (index, word) = self.next_rung()?;
            // The swap reads from the last of all that have set a bit, and so comes after each of them.
            bits = word.swap(0, Ordering::Acquire);
            cursor.word.store(index, Ordering::Relaxed);
        }
        cursor.bits.store(bits & bits.wrapping_sub(1), Ordering::Relaxed);
        (bits != 0).then(|| cursor.word.load(Ordering::Relaxed) * u64::BITS + bits.trailing_zeros())
    }

    /// Returns the next word with bits that are set, and its index: all others have their turn before it has
    /// another, so that no bell waits for one that rings on.
    #[inline]
    fn next_rung(&self) -> Option<(u32, &AtomicU64)> {
        if self.rung_words() > 0 {
            return self.next_of_groups();
        }
        let words = self.first_words();
        let next = self.cursor.word.load(Ordering::Relaxed) as usize + 1;
        let mut index = if next < words { next } else { 0 };
        for _ in 0..words {
            let word = &self.first.0[index % GROUP_WORDS];
            if word.load(Ordering::Relaxed) != 0 {
                return Some((index as u32, word));
            }
            index = if index + 1 < words { index + 1 } else { 0 };
        }
        None
    }

    /// Returns the next word with bits that are set where there are several groups.
    #[inline(never)]
    fn next_of_groups(&self) -> Option<(u32, &AtomicU64)> {
        let cursor = &self.cursor;
        loop {
            let group = cursor.group.load(Ordering::Relaxed);
            let left = cursor.words_left.load(Ordering::Relaxed);
            if left != 0 {
                cursor.words_left.store(left & (left - 1), Ordering::Relaxed);
                let word = left.trailing_zeros();
                let at = &self.group(group as usize)?.0[word as usize];
                return Some((group * GROUP_WORDS as u32 + word, at));
            }
            let next = self.next_group(group)?;
            cursor.group.store(next, Ordering::Relaxed);
            cursor.words_left.store(self.group(next as usize)?.nonzero_words(), Ordering::Relaxed);
        }
    }

    /// Returns the group to look at after `group`, if one may have bits that are set.
    #[inline]
    fn next_group(&self, group: u32) -> Option<u32> {
        let after = self.dequeue_group(group + 1);
        after.or_else(|| self.first.is_rung().then_some(0)).or_else(|| self.dequeue_group(1))
    }

    /// Returns the first group from `first` on whose bit is set, and clears the bit.
    fn dequeue_group(&self, first: u32) -> Option<u32> {
        let mut others = u64::MAX << (first as usize % WORD_BITS);
        for index in first as usize / WORD_BITS..self.rung_words() {
            let rung = &self.rung_groups[index];
            let bits = rung.load(Ordering::Relaxed) & others;
            if bits != 0 {
                // SeqCst: one who finds the bit set has set that of the slot before the core looks at it.
                rung.fetch_and(!(bits & bits.wrapping_neg()), Ordering::SeqCst);
                #[cfg(loom)]
                crate::sync::fence(Ordering::SeqCst);
                return Some((index * WORD_BITS) as u32 + bits.trailing_zeros());
            }
            others = u64::MAX;
        }
        None
    }

    /// Returns how many words have slots in use.
    fn words(&self) -> usize {
        (self.cursor.slots.load(Ordering::Relaxed) as usize).div_ceil(WORD_BITS)
    }

    /// Returns the bits of a word that are set, and leaves them so, for the core: bit `n` for slot
    /// `64 * word + n`.
    fn rung(&self, word: usize) -> u64 {
        let is_collected = self.cursor.word.load(Ordering::Relaxed) as usize == word;
        let collected = if is_collected { self.cursor.bits.load(Ordering::Relaxed) } else { 0 };
        let group = self.group(word / GROUP_WORDS);
        collected | group.map_or(0, |group| group.0[word % GROUP_WORDS].load(Ordering::Acquire))
    }

    /// How many words of the first group have slots in use.
    #[inline]
    fn first_words(&self) -> usize {
        self.cursor.first_words.load(Ordering::Relaxed) as usize
    }

    /// How many words of bits of groups have slots in use: none while there is one group.
    #[inline]
    fn rung_words(&self) -> usize {
        self.cursor.rung_words.load(Ordering::Relaxed) as usize
    }

    /// Whether a bit is set: what every poll asks.
    #[inline]
    fn is_any_rung(&self) -> bool {
        let bits = self.cursor.bits.load(Ordering::Relaxed) | self.first.0[0].load(Ordering::Relaxed);
        bits != 0 || (self.first_words() > 1 && self.is_later_rung())
    }

    /// Whether a bit of a later word may be set.
    #[inline(never)]
    fn is_later_rung(&self) -> bool {
        let mut rung = self.rung_groups.iter().take(self.rung_words());
        self.first.is_rung()
            || self.cursor.words_left.load(Ordering::Relaxed) != 0
            || rung.any(|rung| rung.load(Ordering::Acquire) != 0)
    }
}

/// The doorbells of a core: those of queue pairs and of byte streams, and whether receives were posted to a
/// shared receive queue that queue pairs wait for.
#[derive(Debug)]
pub struct Doorbells {
    queue_pairs: Bells,
    byte_streams: Bells,
    /// Whether receives were posted to a shared receive queue that queue pairs wait for.
    shared_receives: AtomicBool,
    /// Whether there is anything but queue pairs, or was just now.
    others: AtomicBool,
    /// Wakes the thread that polls the core, if that thread may sleep.
    waker: Option<Arc<Waker>>,
}

impl Doorbells {
    /// Doorbells for a core with room for `queue_pairs` queue pairs.
    pub fn new(queue_pairs: usize) -> Self {
        Self {
            queue_pairs: Bells::new(queue_pairs),
            byte_streams: Bells::new(0),
            shared_receives: AtomicBool::new(false),
            others: AtomicBool::new(false),
            waker: None,
        }
    }

    /// The same, for a core with room for `connections` connections that may be byte streams.
    #[must_use]
    pub fn with_byte_streams(self, connections: usize) -> Self {
        Self { byte_streams: Bells::new(connections), ..self }
    }

    /// The same, for a core whose thread may sleep.
    #[must_use]
    pub fn with_waker(self, waker: Arc<Waker>) -> Self {
        Self { waker: Some(waker), ..self }
    }

    /// Returns what wakes the core's thread, if it sleeps at times.
    pub(crate) const fn waker(&self) -> Option<&Arc<Waker>> {
        self.waker.as_ref()
    }

    /// Wakes the core's thread if it sleeps, for work outside of the doorbells, such as a command.
    #[inline]
    pub fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Has the core look at the bell of the queue pair in `slot`. For the core, before the queue pair rings.
    pub(super) fn use_queue_pair(&self, slot: u32) {
        self.queue_pairs.use_slot(slot);
    }

    /// Sets the bit of the queue pair in `slot`, and wakes the core's thread if it sleeps. Another queue pair
    /// that has had the slot before may still do so: the core then looks once in vain.
    #[inline]
    pub(super) fn ring_queue_pair(&self, slot: u32) {
        self.queue_pairs.ring(slot);
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

    /// Has the core look at the bell of the byte stream in `slot`. For the core, before the stream rings.
    pub(crate) fn use_byte_stream(&self, slot: u32) {
        self.byte_streams.use_slot(slot);
    }

    /// Rings the bell of the byte stream whose connection is in `slot`.
    pub(crate) fn ring_byte_stream(&self, slot: u32) {
        self.byte_streams.ring(slot);
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

    /// Dequeues the slot of the connection of the next byte stream that has work.
    pub fn dequeue_byte_stream(&self) -> Option<u32> {
        self.byte_streams.dequeue()
    }

    /// Returns true if the doorbell of shared receive queues rings, and clears it.
    pub fn clear_shared_receives(&self) -> bool {
        self.shared_receives.load(Ordering::Relaxed) && self.shared_receives.swap(false, Ordering::AcqRel)
    }

    /// Dequeues the slot of the next queue pair that has new work, for the core, which reads its queues after
    /// this: a request is read then, or the bit is set once more.
    #[inline]
    pub fn dequeue(&self) -> Option<u32> {
        self.queue_pairs.dequeue()
    }

    /// Returns how many words have the bits of queue pairs.
    pub(crate) fn words(&self) -> usize {
        self.queue_pairs.words()
    }

    /// Returns the slots of queue pairs of a word whose doorbells ring, and leaves them so, for the core: bit
    /// `n` for slot `64 * word + n`.
    pub(crate) fn rung(&self, word: usize) -> u64 {
        self.queue_pairs.rung(word)
    }

    /// Whether no doorbell rings.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.queue_pairs.is_any_rung() && !self.others.load(Ordering::Acquire)
    }
}

/// The doorbells of all cores of a device, by the number of the core.
#[derive(Clone, Debug)]
pub struct CoreDoorbells(Arc<AllDoorbells>);

#[derive(Debug)]
struct AllDoorbells {
    /// Those of core 0.
    first: Arc<Doorbells>,
    /// Those of cores 1, 2, ...
    others: Box<[Arc<Doorbells>]>,
}

impl CoreDoorbells {
    /// Returns the doorbells of a core.
    ///
    /// # Panics
    ///
    /// If the device has no core of this number.
    pub fn of(&self, core: u8) -> &Arc<Doorbells> {
        self.get(core).unwrap_or_else(|| panic!("the device has no core {core}"))
    }

    /// Returns the doorbells of a core, if the device has it.
    #[inline]
    pub fn get(&self, core: u8) -> Option<&Arc<Doorbells>> {
        let AllDoorbells { first, others } = &*self.0;
        if core == 0 { Some(first) } else { others.get(usize::from(core) - 1) }
    }

    /// Returns the doorbells of each core, from core 0 on.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Doorbells>> {
        core::iter::once(&self.0.first).chain(&self.0.others)
    }
}

impl From<Arc<Doorbells>> for CoreDoorbells {
    /// Returns the doorbells of a device of one core.
    fn from(first: Arc<Doorbells>) -> Self {
        Self(Arc::new(AllDoorbells { first, others: Box::default() }))
    }
}

impl FromIterator<Arc<Doorbells>> for CoreDoorbells {
    /// Returns the doorbells of the cores of a device, from core 0 on.
    ///
    /// # Panics
    ///
    /// If they are those of no core, or of more than 256.
    fn from_iter<I: IntoIterator<Item = Arc<Doorbells>>>(doorbells: I) -> Self {
        let mut doorbells = doorbells.into_iter();
        let first = doorbells.next().expect("a device has at least one core");
        let others: Box<[Arc<Doorbells>]> = doorbells.collect();
        assert!(others.len() < 256, "a device has at most 256 cores");
        Self(Arc::new(AllDoorbells { first, others }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SLOTS: usize = 1 << 16;

    fn bells(slots: &[u32]) -> Bells {
        let bells = Bells::new(SLOTS);
        for slot in slots {
            bells.use_slot(*slot);
        }
        bells
    }

    fn dequeue_all(bells: &Bells) -> Vec<u32> {
        core::iter::from_fn(|| bells.dequeue()).collect()
    }

    /// Every bell that rings is dequeued once, however often it has rung.
    #[test]
    fn every_bell_is_dequeued_once() {
        let slots = [0, 63, 64, 127, 128, 511, 512, 600, 2000, 32_767, 32_768, SLOTS as u32 - 1];
        let bells = bells(&slots);
        assert!(!bells.is_any_rung());
        for _ in 0..3 {
            for slot in slots {
                bells.ring(slot);
            }
            for slot in slots {
                bells.ring(slot);
            }
            assert!(bells.is_any_rung());
            let mut rung = dequeue_all(&bells);
            rung.sort_unstable();
            assert_eq!(rung, slots);
            assert!(!bells.is_any_rung());
        }
    }

    /// A bell that rings whenever the core looks does not keep it from the others, in its group or elsewhere.
    #[test]
    fn no_bell_waits_for_one_that_rings_on() {
        for busy in [1, 70, 600, 40_000] {
            let slots = [1, 2, 70, 200, 600, 1100, 40_000];
            let bells = bells(&slots);
            for slot in slots {
                bells.ring(slot);
            }
            let mut rung = Vec::new();
            for _ in 0..2 * slots.len() {
                rung.extend(bells.dequeue());
                bells.ring(busy);
            }
            for slot in slots {
                assert!(rung.contains(&slot), "{slot} waits for {busy}: {rung:?}");
            }
            assert_eq!(dequeue_all(&bells), [busy]);
        }
    }

    /// Bells against a set, in random order.
    #[test]
    fn they_are_a_set() {
        let mut rng = fastrand::Rng::with_seed(5);
        let bells = bells(&[SLOTS as u32 - 1]);
        let mut model = std::collections::BTreeSet::new();
        for _ in 0..100_000 {
            if rng.u32(..100) < 55 {
                let slot = if rng.bool() { rng.u32(..SLOTS as u32) } else { 512 * rng.u32(..4) };
                bells.ring(slot);
                model.insert(slot);
            } else if let Some(slot) = bells.dequeue() {
                assert!(model.remove(&slot), "{slot} did not ring");
            } else {
                assert!(model.is_empty() && !bells.is_any_rung());
            }
            // A word or a group that the core has emptied still counts until it has looked.
            assert!(bells.is_any_rung() || model.is_empty());
        }
    }

    /// A core with one group collects from words with slots in use only, and one with several asks only for
    /// groups among them.
    #[test]
    fn words_and_groups_are_counted_up_to_the_last_slot_in_use() {
        for (slot, words, rung_words) in [(0, 1, 0), (63, 1, 0), (64, 2, 0), (511, 8, 0), (512, 8, 1)] {
            let bells = bells(&[slot]);
            assert_eq!((bells.first_words(), bells.rung_words()), (words, rung_words), "{slot}");
        }
        let bells = bells(&[32_768]);
        assert_eq!(bells.rung_words(), 2);
    }
}
