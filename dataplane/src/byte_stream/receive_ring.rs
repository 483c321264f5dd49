//! The ring in which octets go to the application, as its core sees it.

use super::octet_ring;
use super::shared::SharedByteStream;
use crate::memory::Region;
use crate::sync::Ordering;

/// The ring of what is received, which is replaced by longer ones.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    ring: Region,
    /// How many octets had been put into others when it replaced the last of them.
    from: u64,
    /// Octets of the longest ring that may replace it.
    longest_octets: usize,
    /// Octets in it and in those before so far, published or not.
    filled: u64,
    /// Those reported to the application.
    reported: u64,
    /// How far it may be filled, at least: the application, which makes more room, writes other cache lines,
    /// so it is asked only where this does not suffice.
    fill_to: u64,
}

impl ReceiveRing {
    /// Returns the first ring of a stream.
    pub(super) fn of(shared: &SharedByteStream) -> Self {
        let (ring, longest_octets) = (shared.receive_ring.clone(), shared.receive_bytes());
        Self { ring, from: 0, longest_octets, filled: 0, reported: 0, fill_to: 0 }
    }

    /// Octets that it holds.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Octets put into it and into those before so far.
    #[inline]
    pub(super) const fn filled(&self) -> u64 {
        self.filled
    }

    /// Returns true if a longer ring may replace it.
    #[inline]
    pub(super) fn may_grow(&self) -> bool {
        self.ring.len() < self.longest_octets
    }

    /// Puts what comes next into a longer ring. The reader, which has both, reads the rest of the one before
    /// and drops it.
    pub(super) fn replace(&mut self, longer: Region, shared: &SharedByteStream) {
        debug_assert!(longer.len() > self.ring.len(), "what was offered has room");
        self.ring = longer;
        self.from = self.filled;
        // The reader sees this before any octet of the new ring.
        shared.ring_from.store(self.from, Ordering::Release);
    }

    /// Octets that it has room for.
    pub(super) fn room(&self, shared: &SharedByteStream) -> usize {
        // What is not consumed of a ring before this one takes no room in this one.
        let used = self.filled - shared.consumed.load(Ordering::Acquire).max(self.from);
        self.ring.len() - used as usize
    }

    /// Returns how many of `wanted` octets it has room for.
    #[inline]
    pub(super) fn room_for(&mut self, wanted: usize, shared: &SharedByteStream) -> usize {
        if self.fill_to - self.filled < wanted as u64 {
            self.fill_to = self.filled + self.room(shared) as u64;
        }
        wanted.min((self.fill_to - self.filled) as usize)
    }

    /// Appends `octets` octets, for which there is room, in the slices for which `copy` calls its argument.
    #[inline]
    pub(super) fn append(&mut self, octets: usize, copy: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let (ring, mut at) = (&self.ring, self.filled);
        copy(&mut |slice| {
            let written = octet_ring::write(ring, at, slice);
            debug_assert!(written, "a ring takes what there is room for");
            at += slice.len() as u64;
        });
        self.filled += octets as u64;
    }

    /// Shows the application what was appended. Returns true if it was anything.
    #[inline]
    pub(super) fn publish(&mut self, shared: &SharedByteStream) -> bool {
        let has_octets = self.filled != self.reported;
        if has_octets {
            self.reported = self.filled;
            shared.filled.store(self.filled, Ordering::Release);
        }
        has_octets
    }
}
