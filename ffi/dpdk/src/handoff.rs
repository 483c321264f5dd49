//! Frames from one thread to another over a ring of pointers, and nothing else done to them.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::Arc;

use dpdk_sys as sys;

use crate::mbuf::Mbuf;

/// The ring. Frame number `n` has the slot `n` modulo the number of slots, a power of two.
struct Ring {
    slots: Box<[AtomicPtr<sys::rte_mbuf>]>,
    /// Frames sent so far; written by the sender.
    sent: Line<AtomicUsize>,
    /// Frames received so far; written by the receiver.
    received: Line<AtomicUsize>,
}

/// Two cache lines of its own: processors fetch lines in pairs.
#[repr(align(128))]
struct Line<T>(T);

/// The end that sends. It remembers how far the receiver was, so that it reads the receiver's line only when
/// the ring looks full.
pub struct HandoffSender {
    ring: Arc<Ring>,
    sent: usize,
    received: usize,
}

/// The end that receives.
pub struct HandoffReceiver {
    ring: Arc<Ring>,
    received: usize,
    sent: usize,
}

/// Returns the ends of a ring for at least `frames` frames, rounded up to a power of two.
pub fn handoff(frames: usize) -> (HandoffSender, HandoffReceiver) {
    let slots = (0..frames.max(1).next_power_of_two()).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
    let counter = || Line(AtomicUsize::new(0));
    let ring = Arc::new(Ring { slots, sent: counter(), received: counter() });
    (
        HandoffSender { ring: Arc::clone(&ring), sent: 0, received: 0 },
        HandoffReceiver { ring, received: 0, sent: 0 },
    )
}

impl HandoffSender {
    /// Sends frames from the front of `frames`, as many as there is room for; returns how many.
    #[inline]
    pub fn send(&mut self, frames: &mut Vec<Mbuf>) -> usize {
        let slots = self.ring.slots.len();
        if self.sent.wrapping_sub(self.received) + frames.len() > slots {
            self.received = self.ring.received.0.load(Ordering::Acquire);
        }
        let count = frames.len().min(slots - self.sent.wrapping_sub(self.received));
        for frame in frames.drain(..count) {
            // Published by `sent` below. The slot is free: its frame was received.
            self.ring.slots[self.sent & (slots - 1)].store(frame.into_raw().as_ptr(), Ordering::Relaxed);
            self.sent = self.sent.wrapping_add(1);
        }
        self.ring.sent.0.store(self.sent, Ordering::Release);
        count
    }
}

impl HandoffReceiver {
    /// Takes up to `limit` frames and appends them to `frames`; returns how many.
    #[inline]
    pub fn receive(&mut self, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        if self.sent == self.received {
            self.sent = self.ring.sent.0.load(Ordering::Acquire);
        }
        let count = self.sent.wrapping_sub(self.received).min(limit);
        if count == 0 {
            return 0;
        }
        for _ in 0..count {
            frames.extend(self.ring.consume(self.received));
            self.received = self.received.wrapping_add(1);
        }
        self.ring.received.0.store(self.received, Ordering::Release);
        count
    }
}

impl Ring {
    /// Takes frame number `number`, which was sent.
    #[inline]
    fn consume(&self, number: usize) -> Option<Mbuf> {
        let raw = NonNull::new(self.slots[number & (self.slots.len() - 1)].load(Ordering::Relaxed))?;
        // SAFETY: the sender has given up its ownership of the frame, and the receiver takes each number
        // once: it counts up, and the slot is written again only when it has counted past it.
        Some(unsafe { Mbuf::from_raw(raw) })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let (sent, mut received) = (*self.sent.0.get_mut(), *self.received.0.get_mut());
        while received != sent {
            drop(self.consume(received));
            received = received.wrapping_add(1);
        }
    }
}
