//! The timers of a connection, in a fixed table.

use crate::time::Instant;

/// A timer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Segments overtaken by later ones count as lost when it expires (RFC 8985 §6.2).
    Reorder,
    /// A tail loss probe is sent (RFC 8985 §7).
    Probe,
    /// Unacknowledged data, SYN or FIN is sent again.
    Retransmit,
    /// A closed window is probed, a small one is used.
    Persist,
    /// A delayed acknowledgement is sent.
    DelayedAck,
    /// Pacing allows the next segment.
    Pace,
    /// A silent peer is probed.
    Keepalive,
    /// Larger segments are tried again on a path that turned out narrower.
    PathMtu,
    /// TIME-WAIT ends.
    Linger,
}

/// Slots for timers. Timers that exclude each other share a slot, so that an idle connection stays small.
const SLOTS: usize = 6;

impl Timer {
    const fn slot(self) -> usize {
        match self {
            // A probe is armed only while no segment is known to have been overtaken.
            Self::Reorder | Self::Probe => 0,
            // A window is probed only while nothing is outstanding, and TIME-WAIT comes after everything is
            // acknowledged.
            Self::Retransmit | Self::Persist | Self::Linger => 1,
            Self::DelayedAck => 2,
            Self::Pace => 3,
            Self::Keepalive => 4,
            Self::PathMtu => 5,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    at: [Instant; SLOTS],
    /// The timer that is set in each slot.
    which: [Timer; SLOTS],
}

impl Timers {
    pub(super) const fn new() -> Self {
        Self { at: [Instant::NEVER; SLOTS], which: [Timer::Linger; SLOTS] }
    }

    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        let slot = timer.slot();
        self.at[slot] = at;
        self.which[slot] = timer;
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        if self.is_set(timer) {
            self.at[timer.slot()] = Instant::NEVER;
        }
    }

    pub(super) fn clear_all(&mut self) {
        *self = Self::new();
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.at(timer) != Instant::NEVER
    }

    pub(super) fn at(&self, timer: Timer) -> Instant {
        let slot = timer.slot();
        if self.which[slot] == timer { self.at[slot] } else { Instant::NEVER }
    }

    /// Whether a timer of loss recovery is set.
    #[inline]
    pub(super) const fn repairs(&self) -> bool {
        const NEVER: u64 = Instant::NEVER.as_nanos();
        self.at[Timer::Probe.slot()].as_nanos() != NEVER
            || self.at[Timer::Retransmit.slot()].as_nanos() != NEVER
                && matches!(self.which[Timer::Retransmit.slot()], Timer::Retransmit)
    }

    pub(super) fn earliest(&self) -> Instant {
        self.at.into_iter().min().unwrap_or(Instant::NEVER)
    }

    pub(super) fn clear_if_due(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.at(timer) <= now;
        if due {
            self.clear(timer);
        }
        due
    }
}
