//! Complete messages that are handed to the application before the octets in front of them have come, for
//! example while a lost segment is sent again (draft-csapuntz-tcprdma-00, abstract).
//!
//! They are copies: each octet comes again in its turn, so the stream is the truth here as well, and a reader
//! that does not ask for messages misses nothing. A reader that got a message early is notified when its turn
//! comes, and passes over its octets.

use std::collections::VecDeque;

use crossbeam::utils::CachePadded;

use super::octet_ring;
use crate::limits;
use crate::memory::Region;
use crate::sync::{ArrayQueue, AtomicU64, Ordering};

// The model of memory follows every place of a queue: a few do there.
const MESSAGES: usize = if cfg!(loom) { 2 } else { limits::EARLY_MESSAGES_PER_STREAM };

/// A message that has come completely, or several between two known beginnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlyMessage {
    /// The position of its first octet in the stream.
    pub(super) position: u64,
    pub(super) octets: u32,
}

/// Messages from the core to the application: their octets in a ring, one after another.
pub(super) struct EarlyRing {
    ring: Region,
    messages: ArrayQueue<EarlyMessage>,
    /// Octets of the ring that are free again, since the beginning.
    released: CachePadded<AtomicU64>,
}

impl EarlyRing {
    pub(super) fn new(ring: Region) -> Self {
        let released = CachePadded::new(AtomicU64::new(0));
        Self { ring, messages: ArrayQueue::new(MESSAGES), released }
    }

    /// Appends a message; the core calls this, which has filled `filled` octets so far. `copy` is called with
    /// a function for the slices that make it up. Returns false if there is no room for it.
    pub(super) fn push(
        &self,
        filled: &mut u64,
        message: EarlyMessage,
        copy: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) -> bool {
        let used = *filled - self.released.load(Ordering::Acquire);
        let free = self.ring.len() as u64 - used;
        if u64::from(message.octets) > free || self.messages.len() == self.messages.capacity() {
            return false;
        }
        let mut at = *filled;
        copy(&mut |slice| {
            let written = octet_ring::write(&self.ring, at, slice);
            debug_assert!(written, "a ring takes what there is room for");
            at += slice.len() as u64;
        });
        *filled += u64::from(message.octets);
        debug_assert_eq!(at, *filled, "a complete message");
        let pushed = self.messages.push(message);
        debug_assert!(pushed.is_ok(), "room was seen, and nobody else pushes");
        true
    }
}

/// The application's end of an [`EarlyRing`].
#[derive(Debug, Default)]
pub(super) struct EarlyReader {
    /// Octets of the ring that were read, or passed over.
    released: u64,
    /// The next message that was not reported to the application.
    next: Option<EarlyMessage>,
    /// Octets of the message reported last that the application has not read.
    left: u32,
    /// Messages reported to it whose turn has not come, in stream order.
    reported: VecDeque<EarlyMessage>,
}

impl EarlyReader {
    /// Whether there is something to tell or to read, where the application has come to `position`. Messages
    /// whose turn has come are dropped: they are read in their turn.
    pub(super) fn is_readable(&mut self, ring: &EarlyRing, position: u64) -> bool {
        while self.left == 0 {
            self.next = self.next.or_else(|| ring.messages.pop());
            let Some(next) = self.next else { return false };
            if next.position > position {
                break;
            }
            self.next = None;
            self.release(ring, next.octets);
        }
        true
    }

    /// Dequeues the next message. All octets of the one before were read.
    pub(super) fn dequeue_message(&mut self) -> Option<EarlyMessage> {
        let message = self.next.take()?;
        self.left = message.octets;
        let at = self.reported.partition_point(|reported| reported.position < message.position);
        self.reported.insert(at, message);
        Some(message)
    }

    /// Copies the next octets of the message to `out`, as many as fit. Returns how many; 0 if all were read.
    pub(super) fn read(&mut self, ring: &EarlyRing, out: &mut [u8]) -> usize {
        let octets = out.len().min(self.left as usize);
        let read = octet_ring::read(&ring.ring, self.released, &mut out[..octets]);
        debug_assert!(read, "a ring has its own octets");
        self.left -= octets as u32;
        self.release(ring, octets as u32);
        octets
    }

    /// Whether a message that was reported early begins at `position`, where the application has come to.
    /// Those before it were read in their turn.
    pub(super) fn has_reported(&mut self, position: u64) -> bool {
        while self.reported.front().is_some_and(|reported| reported.position < position) {
            self.reported.pop_front();
        }
        self.reported.front().is_some_and(|reported| reported.position == position)
    }

    /// Dequeues the message that begins at `position`, where the application has come to, if it was reported
    /// early.
    pub(super) fn dequeue_reported(&mut self, position: u64) -> Option<EarlyMessage> {
        if self.has_reported(position) { self.reported.pop_front() } else { None }
    }

    fn release(&mut self, ring: &EarlyRing, octets: u32) {
        self.released += u64::from(octets);
        ring.released.store(self.released, Ordering::Release);
    }
}
