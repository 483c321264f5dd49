//! What a connection does when a timer expires.

use crate::limits;
use crate::time::Instant;

use super::congestion::CongestionControl;
use super::recovery::Phase;
use super::send_queue::SendPayload;
use super::timers::Timer;
use super::{Changes, CloseReason, Connection, Pools, State};

/// The timers, in the order in which they are handled.
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

impl Connection {
    /// Handles the timers that are due at `now`. [`poll_transmit`](Self::poll_transmit) then returns the
    /// segments to send.
    pub fn on_timer<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) -> Changes {
        let before = self.state;
        for timer in TIMERS {
            let due_at = self.timers.at(timer);
            if !self.timers.clear_if_due(timer, now) {
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
                Timer::Keepalive => self.on_keepalive_timeout(now, due_at),
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

    fn on_reorder_timeout<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
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

    /// Whether nothing but the FIN is unacknowledged, and the peer has sent its own: it has all data, has no
    /// more, and may have ended when its acknowledgement was lost.
    fn awaits_last_acknowledgement(&self) -> bool {
        let both_have_closed = matches!(self.state, State::Closing | State::LastAck);
        both_have_closed && self.send.fin.is_sent() && !self.send.queue.is_outstanding()
    }

    /// Whether the peer has sent nothing since what times out now was sent.
    fn peer_is_silent(&self, now: Instant) -> bool {
        now - self.receive.last_arrival >= self.rtt.rto_ns()
    }

    fn on_retransmit_timeout<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        let opening = self.is_opening();
        let (attempts, reason) = if opening {
            (limits::SYN_ATTEMPTS, CloseReason::TimedOut)
        } else if self.awaits_last_acknowledgement() && self.peer_is_silent(now) {
            (limits::LAST_FIN_ATTEMPTS, CloseReason::Finished)
        } else {
            (limits::RETRANSMIT_ATTEMPTS, CloseReason::TimedOut)
        };
        if self.rtt.timeouts_in_a_row() + 1 >= attempts || self.user_timeout_passed(now) {
            return self.reset(reason);
        }
        let first = self.rtt.timeouts_in_a_row() == 0;
        self.rtt.back_off();
        self.counters.timeouts += 1;
        if opening {
            self.send.handshake.syn_owed = true;
            return;
        }
        if self.send.queue.is_outstanding() {
            self.suspect_black_hole(now, pools);
            self.begin_timeout_recovery(now, first, pools);
        }
        self.send.fin.on_timeout();
        self.arm_retransmit(now);
    }
}
