//! The timers of a connection, in a fixed table, and the moments and probes that its timeouts count.

use crate::limits;
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

/// The last moments of one connection; [`Instant::ZERO`] before the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    /// When a SYN or new data was last sent.
    pub(super) data_sent_at: Instant,
    /// When data was last acknowledged, or data or a FIN first became outstanding after that, or data began
    /// to wait for the peer's window: the user timeout counts from here. Idle time is before it.
    pub(super) last_progress: Instant,
}

impl Activity {
    pub(super) const fn new() -> Self {
        Self { data_sent_at: Instant::ZERO, last_progress: Instant::ZERO }
    }
}

/// The probes of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeState {
    /// Zero-window probes in a row: each doubles the interval.
    pub(super) persist_backoff: u8,
    /// Zero-window probes in a row without any acknowledgement.
    pub(super) unanswered: u8,
    /// Keepalive probes in a row.
    pub(super) keepalives: u8,
    /// A probe of either kind is to be sent now.
    pub(super) owed: bool,
}

impl ProbeState {
    pub(super) const fn new() -> Self {
        Self { persist_backoff: 0, unanswered: 0, keepalives: 0, owed: false }
    }

    /// The peer has acknowledged something: it answers.
    pub(super) const fn on_ack(&mut self) {
        self.unanswered = 0;
    }

    /// The peer's window has grown.
    pub(super) const fn on_window_grown(&mut self) {
        self.persist_backoff = 0;
    }

    /// A small window was used as it is, and the next one is used as soon (RFC 9293 §3.8.6.2.1).
    pub(super) fn on_small_window_used(&mut self) {
        self.persist_backoff = self.persist_backoff.min(limits::SMALL_WINDOW_PROBES - 1);
    }

    /// Whether a small window has stayed small for so many probes that it is to be used as it is.
    pub(super) const fn window_stays_small(self) -> bool {
        self.persist_backoff >= limits::SMALL_WINDOW_PROBES
    }
}
