//! Polls that find nothing, as most do where a core waits for its peer.
//!
//! A poll that has found nothing knows until when the next ones find nothing either, unless something comes:
//! a command, a doorbell, a frame, a note of another core. So the next ones ask for these alone.

use crate::cold;
use crate::device::Device;
use crate::time::Instant;

use super::Core;

impl<D: Device> Core<D> {
    /// Makes a poll that finds nothing, if the last one has found nothing, nothing has come since, and
    /// nothing is due at `now`; returns false otherwise, and the poll is still to be made. Frames that have
    /// come are those that it begins with.
    #[inline]
    pub(super) fn poll_idly(&mut self, now: Instant) -> bool {
        let is_idle = now < self.idle_until
            && self.rings.commands.is_empty()
            && self.rings.doorbells.is_empty()
            && !self.host.may_have_input_of_cores()
            && !cold::is_forced()
            && !self.host.look_for_frames(now);
        if is_idle {
            self.polled_at = now;
            let statistics = &mut self.endpoints.context.statistics;
            statistics.polls += 1;
            statistics.idle_polls += 1;
        }
        is_idle
    }

    /// Ends a poll at `now` that has found nothing.
    pub(super) fn end_idle_poll(&mut self, now: Instant) {
        self.endpoints.context.statistics.idle_polls += 1;
        // Each poll moves events that wait, as soon as control has made room for them.
        let goes_on = self.has_scheduled() || self.endpoints.context.events.waiting() > 0;
        self.idle_until = if goes_on { Instant::ZERO } else { self.next_due(now) };
    }

    /// Returns a time no later than that at which the next of what a core does by the clock is due.
    fn next_due(&self, now: Instant) -> Instant {
        let of_connections = self.endpoints.table.next_look(now).min(self.left_ports.next_deadline());
        self.host.next_deadline().min(of_connections).min(self.time_waits.next_expiry())
    }
}
