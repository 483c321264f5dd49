//! Inputs of endpoints: each is handed to one connection, and its outcome is applied to the table.

use crate::conn::ConnectionId;
use crate::endpoint::{Endpoint, Endpoints, Outcome};
use crate::time::Instant;

impl<F> Endpoints<F> {
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
}
