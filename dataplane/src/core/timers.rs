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
        let first = self.endpoints.table.pop_due(now);
        if let Some(first) = first {
            self.expire_from(now, first);
        }
        first.is_some()
    }

    /// Handles the timer of the connection in the slot `first`, and others that are due.
    #[inline(never)]
    fn expire_from(&mut self, now: Instant, first: u32) {
        let mut due = Some(first);
        for left in (0..limits::TIMERS_PER_POLL).rev() {
            let Some(slot) = due else { return };
            if let Some(mut endpoint) = self.endpoints.at(now, slot) {
                let outcome = endpoint.on_timer();
                self.endpoints.apply(slot, outcome);
            }
            // A timer beyond those of a poll stays due until the next.
            due = if left > 0 { self.endpoints.table.pop_due(now) } else { None };
        }
    }
}
