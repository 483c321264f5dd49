//! Frames to send of cores without a queue, at the core that has it.

use super::ring::RingConsumer;
use super::turns::Turns;
use crate::device::Device;
use crate::inbox::Senders;
use crate::limits;
use crate::time::Instant;

/// Bursts handed to the device in one call.
const BURSTS: usize = 4;

/// The rings from the cores without a queue.
pub(super) struct Forwarder<F> {
    /// By the number of the core, less one.
    from: Vec<RingConsumer<F>>,
    /// The cores whose rings may have frames.
    senders: u64,
    turns: Turns,
    /// Frames taken from rings that the device had no room for, a burst at most.
    waiting: Vec<F>,
    /// The device had no room for all of the core's own frames.
    own_wait: bool,
    /// Calls since the core's own frames had the first of what room there was.
    calls: usize,
}

impl<F> Forwarder<F> {
    pub(super) fn new(from: Vec<RingConsumer<F>>) -> Self {
        let waiting = Vec::with_capacity(limits::RECEIVE_BURST_FRAMES);
        Self { from, senders: 0, turns: Turns::default(), waiting, own_wait: false, calls: 0 }
    }

    /// Returns true if there are frames to send, or may be.
    #[inline]
    pub(super) fn has_frames(&self, announced: &Senders) -> bool {
        self.senders != 0 || !self.waiting.is_empty() || announced.any()
    }

    /// Records whether the device had room for all of the core's own frames.
    pub(super) const fn end_own(&mut self, own_wait: bool) {
        self.own_wait = own_wait;
    }

    /// Hands the device frames of the other cores, as many as it has room for and some bursts at most.
    pub(super) fn forward<D: Device<Frame = F>>(
        &mut self,
        now: Instant,
        announced: &Senders,
        device: &mut D,
    ) {
        self.senders |= announced.take();
        if self.waiting.is_empty() && self.senders == 0 || self.yields() {
            return;
        }
        for _ in 0..BURSTS {
            self.refill();
            if self.waiting.is_empty() {
                return;
            }
            device.transmit(now, &mut self.waiting);
            if !self.waiting.is_empty() {
                return;
            }
        }
    }

    /// Returns true in one of so many calls as there are cores if the core's own frames wait: at a full
    /// device they have their turn as those of any other core.
    fn yields(&mut self) -> bool {
        self.calls = if self.own_wait { self.calls + 1 } else { 0 };
        let is_turn_of_own = self.calls > self.from.len();
        if is_turn_of_own {
            self.calls = 0;
        }
        is_turn_of_own
    }

    /// Takes frames from the rings in turn, until a burst waits.
    fn refill(&mut self) {
        if self.waiting.len() == limits::RECEIVE_BURST_FRAMES {
            return;
        }
        for sender in self.turns.of(self.senders) {
            let room = limits::RECEIVE_BURST_FRAMES - self.waiting.len();
            let ring = self.from.get_mut(usize::from(sender).wrapping_sub(1));
            let taken = ring.map_or(0, |ring| ring.pop_burst(&mut self.waiting, room));
            if taken == room {
                self.turns.end_at(sender);
                return;
            }
            // What is pushed from now on is announced.
            self.senders &= !(1 << sender);
        }
    }
}
