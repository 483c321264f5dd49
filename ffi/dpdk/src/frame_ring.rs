//! Frames from one thread to another over a ring whose slots say themselves whether they hold one.
//!
//! A slot is empty or holds a frame. The sender fills the next slot if it is empty, and the receiver empties
//! the next one if it is full; neither reads a counter of the other. So the first cache line that crosses to
//! a receiver that waits is that of the slot itself, and a look at an empty ring is one load.

use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::collections::TryReserveError;
use std::sync::Arc;

use dpdk_sys as sys;

use crate::mbuf::Mbuf;

/// Slots of a cache line.
const LINE_SLOTS: usize = 8;

/// The slots of one cache line.
#[repr(align(64))]
struct Line([AtomicPtr<sys::rte_mbuf>; LINE_SLOTS]);

const _: () = assert!(size_of::<Line>() == LINE_SLOTS * size_of::<AtomicPtr<sys::rte_mbuf>>());

/// The ring. Frames leave it in the order in which they came.
struct FrameRing {
    lines: Box<[Line]>,
    /// Slots in use: the last line may have more.
    slots: usize,
}

/// The end that sends. One thread at a time owns it.
pub(crate) struct FrameSender {
    ring: Arc<FrameRing>,
    /// The slot for the next frame.
    next: usize,
}

/// The end that receives. One thread at a time owns it.
pub(crate) struct FrameReceiver {
    ring: Arc<FrameRing>,
    /// The slot of the next frame.
    next: usize,
}

/// Returns the ends of a ring for `frames` frames, at least one.
///
/// # Errors
///
/// [`TryReserveError`] without memory for it.
pub(crate) fn frame_ring(frames: usize) -> Result<(FrameSender, FrameReceiver), TryReserveError> {
    let slots = frames.max(1);
    let count = slots.div_ceil(LINE_SLOTS);
    let mut lines = Vec::new();
    lines.try_reserve_exact(count)?;
    lines.extend((0..count).map(|_| Line([const { AtomicPtr::new(ptr::null_mut()) }; LINE_SLOTS])));
    let ring = Arc::new(FrameRing { lines: lines.into(), slots });
    Ok((FrameSender { ring: Arc::clone(&ring), next: 0 }, FrameReceiver { ring, next: 0 }))
}

impl FrameRing {
    /// Returns the slots in their order.
    #[inline]
    const fn slots(&self) -> &[AtomicPtr<sys::rte_mbuf>] {
        // SAFETY: a line is its slots and nothing else, so lines in a row are slots in a row, and there are
        // at least as many.
        unsafe { slice::from_raw_parts(self.lines.as_ptr().cast(), self.slots) }
    }

    /// Returns the slot `count` after `slot`; `count` is no more than there are slots.
    #[inline]
    const fn after(&self, slot: usize, count: usize) -> usize {
        let sum = slot + count;
        if sum >= self.slots { sum - self.slots } else { sum }
    }

    /// Takes the frame out of a slot, for the receiver.
    #[inline]
    fn empty(slot: &AtomicPtr<sys::rte_mbuf>) -> Option<Mbuf> {
        // With the sender's store: the frame's memory is as the sender left it.
        let raw = NonNull::new(slot.load(Ordering::Acquire))?;
        slot.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: the sender gave up its ownership of the frame when it filled the slot, and the slot is
        // empty now, so nothing else takes the frame.
        Some(unsafe { Mbuf::from_raw(raw) })
    }
}

impl FrameSender {
    /// Returns how many of `frames` frames there is room for.
    #[inline]
    pub(crate) fn room(&self, frames: usize) -> usize {
        let slots = self.ring.slots();
        let is_empty =
            |count: usize| slots[self.ring.after(self.next, count)].load(Ordering::Acquire).is_null();
        // The receiver empties the slots in their order: before one that is empty, all are.
        match frames.min(slots.len()) {
            0 => 0,
            most if is_empty(most - 1) => most,
            most => (0..most).take_while(|count| is_empty(*count)).count(),
        }
    }

    /// Sends the first `count` of `frames`, for which there is [`room`](Self::room), and removes them.
    #[inline]
    pub(crate) fn send(&mut self, frames: &mut Vec<Mbuf>, count: usize) {
        debug_assert!(self.room(count) == count, "{count} frames, and no room for them");
        let sent = &frames[..count];
        let slots = self.ring.slots();
        let (wrapped, first) = slots.split_at(self.next);
        let (before, after) = sent.split_at(count.min(first.len()));
        // The first slot last: the receiver, which waits for that, finds all of them together, and does not
        // take the line away while it is being written.
        let fill = |slots: &[AtomicPtr<sys::rte_mbuf>], frames: &[Mbuf]| {
            for (slot, frame) in slots.iter().zip(frames).rev() {
                slot.store(frame.as_ptr(), Ordering::Release);
            }
        };
        fill(wrapped, after);
        fill(&first[..before.len()], before);
        self.next = self.ring.after(self.next, count);
        // The receiver owns them now.
        Mbuf::forget_first(frames, count);
    }
}

impl FrameReceiver {
    /// Returns true if there is no frame. One is taken by [`receive`](Self::receive), with the order that it
    /// needs.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.slots()[self.next].load(Ordering::Relaxed).is_null()
    }

    /// Takes up to `limit` frames and appends them to `frames`; returns how many.
    #[inline]
    pub(crate) fn receive(&mut self, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        if self.is_empty() {
            return 0;
        }
        let before = frames.len();
        let (wrapped, first) = self.ring.slots().split_at(self.next);
        frames.extend(first.iter().take(limit).map_while(FrameRing::empty));
        let mut count = frames.len() - before;
        if count == first.len() {
            frames.extend(wrapped.iter().take(limit - count).map_while(FrameRing::empty));
            count = frames.len() - before;
        }
        self.next = self.ring.after(self.next, count);
        count
    }
}

impl Drop for FrameRing {
    fn drop(&mut self) {
        // Both ends have gone.
        self.lines.iter().flat_map(|line| &line.0).for_each(|slot| drop(Self::empty(slot)));
    }
}

impl core::fmt::Debug for FrameSender {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FrameSender")
    }
}

impl core::fmt::Debug for FrameReceiver {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FrameReceiver")
    }
}
