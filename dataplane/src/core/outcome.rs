//! The outcome of an input: one connection handles a command, a timer or another input, and what it asks for
//! is applied to the table.

use crate::conn::ConnectionId;
use crate::device::Frame;
use crate::endpoint::{Endpoint, Endpoints, Outcome};
use crate::limits;
use crate::time::Instant;

impl<F: Frame> Endpoints<F> {
    /// Has the connection that `id` names handle an input. A connection that has ended handles none: control
    /// has been notified of its end, or will be.
    pub(super) fn with_named(
        &mut self,
        now: Instant,
        id: ConnectionId,
        handle: impl FnOnce(Endpoint<'_, F>) -> Outcome,
    ) {
        if let Some(endpoint) = self.named(now, id) {
            let outcome = handle(endpoint);
            self.apply(id.slot(), outcome);
        }
    }

    /// Has the connections whose timers are due handle that. Returns true if any timer was due.
    #[inline]
    pub(super) fn expire_timers(&mut self, now: Instant) -> bool {
        let first = self.table.pop_due(now);
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
            if let Some(mut endpoint) = self.at(now, slot) {
                let outcome = endpoint.on_timer();
                self.apply(slot, outcome);
            }
            // A timer beyond those of a poll stays due until the next.
            due = if left > 0 { self.table.pop_due(now) } else { None };
        }
    }

    /// Reviews the rare conditions of the connection in `slot`, which an input may have begun or ended, and
    /// schedules it, if its input asks for that.
    #[inline(never)]
    pub(super) fn apply(&mut self, slot: u32, outcome: Outcome) {
        self.review(slot);
        self.schedule_if_due(slot, outcome);
    }

    /// Reviews the rare conditions of the connection in `slot`.
    fn review(&mut self, slot: u32) {
        if let Some((_, connection)) = self.table.at_mut(slot) {
            connection.review();
        }
    }

    /// Schedules the connection in `slot`, if its input asks for that.
    #[inline]
    pub(super) fn schedule_if_due(&mut self, slot: u32, outcome: Outcome) {
        if outcome.schedule {
            self.table.schedule(slot);
        }
    }

    /// Removes the connection in `slot`, which is over.
    pub(super) fn remove(&mut self, now: Instant, slot: u32) {
        if let Some(mut endpoint) = self.at(now, slot) {
            endpoint.release();
        }
        let removed = self.table.remove(slot);
        debug_assert!(removed.is_some(), "a connection is removed once");
    }
}
