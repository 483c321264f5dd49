//! The timers of a connection, in a fixed table.

use crate::limits;
use crate::time::Instant;

use super::congestion::CongestionControl;
use super::recovery::Phase;
use super::{Changes, CloseReason, Connection, Pools, State};

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

const TIMERS: [Timer; 9] = [
    Timer::Reorder,
    // Before the timeout: if both are due, the probe postpones the timeout (RFC 8985 §7.2).
    Timer::Probe,
    Timer::Retransmit,
    Timer::Persist,
    Timer::DelayedAck,
    Timer::Pace,
    Timer::Keepalive,
    Timer::PathMtu,
    Timer::Linger,
];

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

    pub(super) fn earliest(&self) -> Instant {
        self.at.into_iter().min().unwrap_or(Instant::NEVER)
    }

    fn take_due(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.at(timer) <= now;
        if due {
            self.clear(timer);
        }
        due
    }
}

impl Connection {
    /// Handles the timers that are due at `now`. [`poll_transmit`](Self::poll_transmit) then returns the
    /// segments to send.
    pub fn on_timer<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> Changes {
        let before = self.state;
        for timer in TIMERS {
            if !self.timers.take_due(timer, now) {
                continue;
            }
            match timer {
                Timer::Reorder => self.on_reorder_timeout(now, pools),
                Timer::Probe => self.on_probe_timeout(now),
                Timer::Retransmit => self.on_retransmit_timeout(now, pools),
                Timer::Persist => self.on_persist_timeout(now),
                Timer::DelayedAck => self.ack.owe_one(),
                // The caller polls for segments after this.
                Timer::Pace => {}
                Timer::Keepalive => self.on_keepalive_timeout(now),
                Timer::PathMtu => self.try_larger_segments(),
                Timer::Linger => self.enter_closed(CloseReason::Finished),
            }
        }
        if self.state == State::Closed && before != State::Closed {
            Changes::CLOSED
        } else {
            Changes::empty()
        }
    }

    fn on_reorder_timeout<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        let found = self.detect_losses(now, pools);
        let (emss, pipe) = (self.path.emss_octets(), self.pipe_octets());
        if let Phase::Fast(prr) = &mut self.recovery.phase {
            let window = prr.window_octets(0, pipe, self.congestion.threshold_octets(), emss, !found);
            self.congestion.set_window(window);
        }
    }

    /// RFC 8985 §7.3.
    fn on_probe_timeout(&mut self, now: Instant) {
        self.recovery.tail_probe_owed = true;
        self.arm_retransmit(now);
    }

    /// RFC 8985 §7.2: a probe is due after two round trips without an acknowledgement, but not later than the
    /// timeout.
    pub(super) fn arm_probe(&mut self, now: Instant) {
        self.timers.clear(Timer::Probe);
        let waits = self.ack.sack
            && self.recovery.is_open()
            && self.recovery.tail_probe.is_none()
            && self.send.queue.sacked_segments() == 0
            && self.send.queue.in_flight_octets() > 0;
        let Some(smoothed_ns) = self.rtt.smoothed_ns().filter(|_| waits) else { return };
        let mut probe_ns = (2 * smoothed_ns).max(limits::MIN_PROBE_NS);
        if self.send.queue.in_flight_octets() <= self.path.emss_octets() {
            // The peer may delay the acknowledgement of a single segment.
            probe_ns += limits::PEER_DELAYED_ACK_NS;
        }
        let at = (now + probe_ns).min(self.timers.at(Timer::Retransmit));
        self.timers.set(Timer::Probe, at);
    }

    /// Whether data has been unacknowledged for longer than the user timeout.
    fn user_timeout_passed(&self, now: Instant) -> bool {
        self.user_timeout_ns().is_some_and(|limit_ns| now - self.activity.last_progress >= limit_ns)
    }

    fn on_retransmit_timeout<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        let attempts = if opening { limits::SYN_ATTEMPTS } else { limits::RETRANSMIT_ATTEMPTS };
        if self.rtt.timeouts_in_a_row() + 1 >= attempts || self.user_timeout_passed(now) {
            self.reset_owed = !matches!(self.state, State::SynSent);
            self.enter_closed(CloseReason::TimedOut);
            return;
        }
        let first = self.rtt.timeouts_in_a_row() == 0;
        self.rtt.back_off();
        self.counters.timeouts += 1;
        if opening {
            self.send.handshake.syn_owed = true;
            return;
        }
        if self.send.queue.outstanding_octets() > 0 || self.send.queue.sacked_octets() > 0 {
            self.suspect_black_hole(now, pools);
            self.begin_timeout_recovery(now, first, pools);
        }
        self.send.fin.on_timeout();
        self.arm_retransmit(now);
    }
}
