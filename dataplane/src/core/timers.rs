//! Timers that are due.

use crate::device::Device;
use crate::limits;
use crate::time::Instant;

use super::Core;

impl<D: Device> Core<D> {
    /// Has the connections whose timers are due handle that, and ends what is over in TIME-WAIT. Returns true
    /// if any timer was due.
    #[inline]
    pub(super) fn expire_timers(&mut self, now: Instant) -> bool {
        self.time_waits.expire(now);
        let mut busy = false;
        for _ in 0..limits::TIMERS_PER_POLL {
            // A timer beyond that stays due until the next poll.
            let Some(slot) = self.endpoints.table.pop_due(now) else { break };
            busy = true;
            if let Some(mut endpoint) = self.endpoints.at(now, slot) {
                let outcome = endpoint.on_timer();
                self.apply(slot, outcome);
            }
        }
        busy
    }
}
