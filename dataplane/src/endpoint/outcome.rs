//! The outcome of an input: one connection handles a command, a timer or another input, and what it asks for
//! is applied to the table.

use crate::conn::ConnectionId;
use crate::device::Frame;
use crate::limits;
use crate::tcp::{Changes, Refusal};
use crate::time::Instant;

use super::Endpoint;
use super::endpoints::Endpoints;

/// The changes that an input causes for the core.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The connection is to be scheduled.
    pub schedule: bool,
    /// The changes in TCP.
    pub changes: Changes,
    /// The connection gave octets back for want of frames: connections that hold many keep them from it.
    pub dropped_surplus: bool,
    /// The segment is answered with a RST: it is of an older connection between the same ports.
    pub reset: bool,
    /// Why TCP refused the segment, or a part of it.
    pub refusal: Option<Refusal>,
}

impl Outcome {
    /// Nothing changes.
    pub(crate) const NONE: Self = Self {
        schedule: false,
        changes: Changes::empty(),
        dropped_surplus: false,
        reset: false,
        refusal: None,
    };
    /// The connection is to be scheduled.
    pub(crate) const SCHEDULE: Self = Self { schedule: true, ..Self::NONE };

    /// Returns true if more follows from it than that the connection is scheduled.
    #[inline]
    pub(crate) const fn is_rare(self) -> bool {
        self.refusal.is_some() || self.dropped_surplus || self.changes.contains(Changes::ESTABLISHED)
    }
}

impl<F: Frame> Endpoints<F> {
    /// Has the connection that `id` names handle an input. A connection that has ended handles none: control
    /// has been notified of its end, or will be.
    pub(crate) fn with_named(
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
    pub(crate) fn expire_timers(&mut self, now: Instant) -> bool {
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
    pub(crate) fn apply(&mut self, slot: u32, outcome: Outcome) {
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
    pub(crate) fn schedule_if_due(&mut self, slot: u32, outcome: Outcome) {
        if outcome.schedule {
            self.table.schedule(slot);
        }
    }

    /// Removes the connection in `slot`, which is over.
    pub(crate) fn remove(&mut self, now: Instant, slot: u32) {
        if let Some(mut endpoint) = self.at(now, slot) {
            endpoint.release();
        }
        let removed = self.table.remove(slot);
        debug_assert!(removed.is_some(), "a connection is removed once");
    }
}
