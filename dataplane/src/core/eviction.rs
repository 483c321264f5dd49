//! Connections that hold frames without progress are failed while others find none.

use crate::device::Device;
use crate::limits;
use crate::time::Instant;

use super::Core;

impl<D: Device> Core<D> {
    /// Makes room after a segment found none among the frames held. Now and then, observes all connections
    /// and fails those that have made no progress for long, of these the ones that hold the most, until
    /// others have room again.
    pub(super) fn evict_stalled(&mut self, now: Instant) {
        if now < self.evict_at || !self.endpoints.context.pools.held.is_crowded() {
            return;
        }
        self.evict_at = now + limits::HELD_LOOK_NS;
        let mut most = 0;
        for connection in self.endpoints.table.iter_mut() {
            let received = connection.tcp.received();
            let frames = received.frames();
            connection.stall.observe(received.unread(), frames);
            if connection.stall.is_stalled() {
                most = most.max(frames);
            }
        }
        let mut evicted = 0;
        for slot in 0..self.endpoints.table.slots() {
            if evicted >= limits::HELD_FAILURES_PER_LOOK || !self.endpoints.context.pools.held.is_crowded() {
                return;
            }
            let Some(connection) = self.endpoints.table.at(slot) else { continue };
            let frames = connection.tcp.received().frames();
            if frames > 0
                && connection.stall.is_stalled()
                && 2 * frames >= most
                && let Some(mut endpoint) = self.endpoints.at(now, slot)
            {
                let outcome = endpoint.evict();
                self.apply(slot, outcome);
                evicted += 1;
            }
        }
    }
}
