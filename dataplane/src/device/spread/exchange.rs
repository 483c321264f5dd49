//! The rings of received frames between a core and the others of its device.

use std::sync::Arc;

use crossbeam::utils::CachePadded;

use super::inbox::{Inbox, Inboxes};
use super::ring::{RingConsumer, RingProducer, ring};
use crate::device::Frame;
use crate::limits;

/// The rings between a core and another.
struct Pair<F> {
    to: RingProducer<F>,
    from: RingConsumer<F>,
    /// Frames of the burst that is sorted that go to the other core.
    sorted: Vec<F>,
}

/// The rings of a core, and what it has taken out of its inbox.
pub(super) struct Exchange<F> {
    core: u8,
    /// The core's own.
    inbox: Arc<CachePadded<Inbox>>,
    /// Those of all cores.
    inboxes: Inboxes,
    /// By the number of the other core; none where the two have nothing to hand over.
    pairs: Vec<Option<Pair<F>>>,
    /// The cores that have frames of the burst that is sorted, a bit for each.
    touched: u64,
    /// The cores whose rings may have frames.
    senders: u64,
    /// Frames that found a ring full.
    dropped: u64,
}

impl<F: Frame> Exchange<F> {
    /// Returns those of all cores, core 0 first, each with a ring of as many frames as `ring_frames` names to
    /// each core that it has frames for by `has_ring`, and from it.
    pub(super) fn all(
        inboxes: &Inboxes,
        ring_frames: &[usize],
        has_ring: impl Fn(usize, usize) -> bool,
    ) -> Vec<Self> {
        let cores = inboxes.len();
        let mut all: Vec<Self> = (0..cores)
            .map(|core| Self {
                core: core as u8,
                inbox: inboxes[core].clone(),
                inboxes: inboxes.clone(),
                pairs: (0..cores).map(|_| None).collect(),
                touched: 0,
                senders: 0,
                dropped: 0,
            })
            .collect();
        for one in 0..cores {
            for other in (0..one).filter(|other| has_ring(one, *other)) {
                let (to_other, from_one) = ring(ring_frames[one]);
                let (to_one, from_other) = ring(ring_frames[other]);
                let pair = |to, from| {
                    Some(Pair { to, from, sorted: Vec::with_capacity(limits::RECEIVE_BURST_FRAMES) })
                };
                all[one].pairs[other] = pair(to_other, from_other);
                all[other].pairs[one] = pair(to_one, from_one);
            }
        }
        all
    }

    /// Returns the core's own inbox.
    #[inline]
    pub(super) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Returns true if another core may have sent received frames.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.senders != 0 || self.inbox().received.any()
    }

    /// Returns the cores whose rings may have frames, a bit for each.
    #[inline]
    pub(super) fn senders(&mut self) -> u64 {
        self.senders |= self.inbox().received.take();
        self.senders
    }

    /// Dequeues up to `limit` frames of `sender` to the end of `frames`.
    pub(super) fn dequeue(&mut self, sender: u8, frames: &mut Vec<F>, limit: usize) {
        let count = self.pair(sender).map_or(0, |pair| pair.from.pop_burst(frames, limit));
        if count < limit {
            // What is pushed from now on is announced.
            self.senders &= !(1 << sender);
        }
    }

    /// Adds a frame to those that go to `core`.
    #[inline]
    pub(super) fn sort(&mut self, core: u8, frame: F) {
        if let Some(pair) = self.pair(core) {
            pair.sorted.push(frame);
            self.touched |= 1 << core;
        } else {
            self.dropped += 1;
        }
    }

    /// Hands the frames that were sorted over. Those that find no room are dropped and counted.
    pub(super) fn send_sorted(&mut self) {
        while self.touched != 0 {
            let core = self.touched.trailing_zeros() as usize;
            self.touched &= self.touched - 1;
            let Some(pair) = &mut self.pairs[core] else { continue };
            let sent = pair.to.push_burst(&mut pair.sorted);
            if !pair.sorted.is_empty() {
                self.dropped += pair.sorted.len() as u64;
                F::free_all(&mut pair.sorted);
            }
            if sent > 0 {
                self.inboxes[core].announce_received(self.core);
            }
        }
    }

    /// Hands one frame over.
    ///
    /// # Errors
    ///
    /// `frame`, if there is no room, or no ring to that core.
    pub(super) fn send(&mut self, core: u8, frame: F) -> Result<(), F> {
        let Some(pair) = self.pair(core) else { return Err(frame) };
        pair.to.push(frame)?;
        self.inboxes[usize::from(core)].announce_received(self.core);
        Ok(())
    }

    /// Drops frames that find no room for good. Returns how many.
    #[cold]
    pub(super) fn drop_all(&mut self, frames: &mut Vec<F>) -> usize {
        let count = frames.len();
        self.dropped += count as u64;
        F::free_all(frames);
        count
    }

    /// Returns how many frames found no room.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    #[inline]
    fn pair(&mut self, core: u8) -> Option<&mut Pair<F>> {
        self.pairs.get_mut(usize::from(core))?.as_mut()
    }
}
