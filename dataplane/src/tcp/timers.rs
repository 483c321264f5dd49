//! The timers of a connection, in a fixed table.

use crate::limits;
use crate::pool::Pool;
use crate::time::Instant;

use super::send_queue::Segment;
use super::{CloseReason, Connection, Pools, Progress, State};

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Unacknowledged data, SYN or FIN is sent again.
    Retransmit,
    /// A closed window is probed, a small one is used.
    Persist,
    /// An acknowledgement held back is sent.
    DelayedAck,
    /// TIME-WAIT or FIN-WAIT-2 ends.
    Linger,
}

const TIMERS: [Timer; 4] = [Timer::Retransmit, Timer::Persist, Timer::DelayedAck, Timer::Linger];

#[derive(Clone, Copy, Debug)]
pub(super) struct Timers([Instant; TIMERS.len()]);

impl Timers {
    pub(super) const fn new() -> Self {
        Self([Instant::NEVER; TIMERS.len()])
    }

    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        self.0[timer as usize] = Instant::NEVER;
    }

    pub(super) fn clear_all(&mut self) {
        *self = Self::new();
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize] != Instant::NEVER
    }

    pub(super) fn earliest(&self) -> Instant {
        self.0.into_iter().min().unwrap_or(Instant::NEVER)
    }

    fn take_due(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.0[timer as usize] <= now;
        if due {
            self.clear(timer);
        }
        due
    }
}

impl Connection {
    /// Does what is due at `now`. [`poll_transmit`](Self::poll_transmit) then gives what is to be sent.
    pub fn on_timer<P: Copy, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> Progress {
        let before = self.state;
        for timer in TIMERS {
            if !self.timers.take_due(timer, now) {
                continue;
            }
            match timer {
                Timer::Retransmit => self.on_retransmit_timeout(&pools.segments),
                Timer::Persist => self.on_persist_timeout(now),
                Timer::DelayedAck => self.acks_owed = self.acks_owed.max(1),
                Timer::Linger => self.enter_closed(CloseReason::Finished),
            }
        }
        if self.state == State::Closed && before != State::Closed {
            Progress::CLOSED
        } else {
            Progress::empty()
        }
    }

    fn on_retransmit_timeout<P>(&mut self, segments: &Pool<Segment<P>>) {
        let attempts = if matches!(self.state, State::SynSent | State::SynReceived) {
            limits::SYN_ATTEMPTS
        } else {
            limits::RETRANSMIT_ATTEMPTS
        };
        if self.rtt.timeouts_in_a_row() + 1 >= attempts {
            self.reset_owed = !matches!(self.state, State::SynSent);
            self.enter_closed(CloseReason::TimedOut);
            return;
        }
        let first = self.rtt.timeouts_in_a_row() == 0;
        self.rtt.back_off();
        self.counters.timeouts += 1;
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.syn_owed = true;
            return;
        }
        self.congestion.on_timeout(self.flight_octets(), first);
        self.duplicate_acks = 0;
        self.resend_owed = false;
        self.send.rewind(segments);
        self.fin_sent = false;
    }

    fn on_persist_timeout(&mut self, now: Instant) {
        self.rtt.back_off();
        self.probe_owed = true;
        self.timers.set(Timer::Persist, now + self.rtt.rto_ns());
    }
}
