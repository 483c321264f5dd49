//! The slots of the rings that applications and a core share. Position `p` of a ring of `n` slots is in slot
//! `p % n`; `n` is a power of two.
//!
//! A slot says by its turn what it holds: `p + 1` from the moment that position `p` is written. So a reader
//! finds out by one load whether there is anything, and the thread that has written it needs no atomic
//! read-modify-write to hand it over. In a ring of four, the thread that writes position 6 fills slot 2 and
//! sets its turn to 7; the reader that waits for position 6 sees 3 before, and 7 after.

use crate::sync::{AtomicU64, Ordering, Words};

/// One slot, of `N` words, on cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot<const N: usize> {
    turn: AtomicU64,
    words: Words<N>,
}

impl<const N: usize> Slot<N> {
    /// The first `M` words of what was written.
    #[inline]
    pub(super) fn read<const M: usize>(&self) -> [u64; M] {
        self.words.read()
    }

    /// Copies the first `M` words, while another reader may have them and the next be written over them:
    /// the caller finds out later whether that was so, and discards the copy then.
    #[inline]
    pub(super) fn copy<const M: usize>(&self) -> [u64; M] {
        self.words.copy()
    }

    /// The position of what was written, for its reader.
    pub(super) fn position(&self) -> u64 {
        self.turn.load(Ordering::Relaxed).wrapping_sub(1)
    }

    /// Writes the first words of `position`, which its reader gets. The reader of what it held has finished
    /// with that.
    #[inline]
    pub(super) fn write(&self, position: u64, words: &[u64]) {
        self.words.write(words);
        self.turn.store(position + 1, Ordering::Release);
    }
}

/// The slots of a ring.
#[derive(Debug)]
pub(super) struct Slots<const N: usize> {
    ring: Box<[Slot<N>]>,
    mask: u32,
    capacity: u32,
}

impl<const N: usize> Slots<N> {
    /// At least `capacity` slots, and at least one.
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { capacity: as_u32(capacity), ..Self::with_len(capacity.next_power_of_two()) }
    }

    /// One slot that is not used, of a ring that only counts `capacity` positions.
    pub(super) fn counted(capacity: usize) -> Self {
        Self { capacity: as_u32(capacity), ..Self::with_len(1) }
    }

    fn with_len(len: usize) -> Self {
        let slot = |_| Slot { turn: AtomicU64::new(0), words: Words::new() };
        Self { ring: (0..len).map(slot).collect(), mask: as_u32(len - 1), capacity: 0 }
    }

    /// The number of positions that the ring was made for.
    #[inline]
    pub(super) const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// The number of slots.
    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    /// All slots.
    #[cfg(all(test, not(loom)))]
    pub(super) fn all(&self) -> &[Slot<N>] {
        &self.ring
    }

    /// The index of the slot of `position`.
    #[inline]
    pub(super) const fn index(&self, position: u64) -> usize {
        (position as u32 & self.mask) as usize
    }

    /// The slot of `position`.
    #[inline]
    pub(super) fn slot(&self, position: u64) -> &Slot<N> {
        &self.ring[self.index(position)]
    }

    /// The slot of `position`, if it is written, and not written over.
    #[inline]
    pub(super) fn written(&self, position: u64) -> Option<&Slot<N>> {
        let slot = self.slot(position);
        (slot.turn.load(Ordering::Acquire) == position + 1).then_some(slot)
    }

    /// Whether the slot of `position` is written over already.
    pub(super) fn is_written_over(&self, position: u64) -> bool {
        self.slot(position).turn.load(Ordering::Acquire) > position + 1
    }
}

fn as_u32(slots: usize) -> u32 {
    debug_assert!(u32::try_from(slots).is_ok(), "more slots than any ring has");
    slots as u32
}
