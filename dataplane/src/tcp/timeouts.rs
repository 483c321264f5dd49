//! What a connection does when a timer expires, with the probes of a peer that sends nothing: of a closed
//! window (RFC 9293 §3.8.6.1), and keepalives (§3.8.4).

use crate::limits;
use crate::time::{Instant, MILLISECOND};

use super::losses::LossRepair;
use super::path_mtu::PathMtu;
use super::send_queue::{SendPayload, Verdict};
use super::timers::Timer;
use super::unusual::Unusual;
use super::{Changes, CloseReason, Connection, PeerTimeouts, Pools, State};

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
                Timer::Reorder => LossRepair::of(self).on_reorder_timeout(now, pools),
                Timer::Probe => self.on_probe_timeout(now),
                Timer::Retransmit => self.on_retransmit_timeout(now, pools),
                Timer::Persist => self.on_persist_timeout(now),
                Timer::DelayedAck => self.ack.owe_one(),
                // The caller polls for segments after this.
                Timer::Pace => {}
                Timer::Keepalive => self.on_keepalive_timeout(now, due_at),
                Timer::PathMtu => PathMtu::of(self).try_larger_segments(),
                Timer::Linger => self.enter_closed(CloseReason::Finished),
            }
        }
        if self.state == State::Closed && before != State::Closed {
            Changes::CLOSED
        } else {
            Changes::empty()
        }
    }

    /// There is something to send, and no path to the peer. It is timed as if it had been sent: a peer that
    /// was forgotten as a neighbour does not answer either (RFC 9293 §3.8.3). A connection that opens has a
    /// limit of its own.
    pub fn await_path(&mut self, now: Instant) {
        let is_timed = self.unusual.contains(Unusual::AWAITS_PATH);
        if self.is_opening() || self.state == State::Closed || is_timed {
            return;
        }
        self.unusual |= Unusual::AWAITS_PATH;
        if self.send.flight_octets() == 0 {
            self.activity.last_progress = now;
        }
        if !self.timers.is_set(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
    }

    /// There is a path again: what was not sent is timed from when it is. Timeouts meanwhile count no more,
    /// for nothing was lost.
    pub(super) fn end_await_path(&mut self) {
        self.unusual.remove(Unusual::AWAITS_PATH);
        if self.send.flight_octets() == 0 {
            self.timers.clear(Timer::Retransmit);
            self.rtt.forget_timeouts();
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
        if self.overruns_window(pools) {
            return self.probe_window_with_data(now, pools);
        }
        let last_is_lost = self.awaits_last_acknowledgement() && self.peer_is_silent(now);
        if self.fin_overruns_window() && !last_is_lost {
            return self.probe_window_with_fin(now);
        }
        let opening = self.is_opening();
        let (attempts, reason) = if opening {
            (limits::SYN_ATTEMPTS, CloseReason::TimedOut)
        } else if last_is_lost {
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
            PathMtu::of(self).suspect_black_hole(now, pools);
            LossRepair::of(self).begin_after_timeout(now, first, pools);
        }
        self.send.fin.on_timeout();
        self.arm_retransmit(now);
    }

    /// Whether the oldest segment in flight ends beyond the peer's window: the peer has taken back the window
    /// that the segment was sent in.
    fn overruns_window<P, F>(&self, pools: &Pools<P, F>) -> bool {
        let oldest = self.send.queue.oldest(&pools.segments);
        oldest.is_some_and(|oldest| oldest.end() > self.send.window_end())
    }

    /// RFC 9293 §3.8.6: data beyond the peer's window that is not acknowledged does not end the connection,
    /// and says nothing of the path. The window is probed as a closed one is, for as long as the peer
    /// answers. The probe is the oldest segment: a peer whose window was only rounded down accepts it (RFC
    /// 7323 §2.4).
    fn probe_window_with_data<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        if self.is_probing_in_vain(now) {
            return self.reset(CloseReason::TimedOut);
        }
        let first = self.rtt.timeouts_in_a_row() == 0 && self.probe.persist_backoff == 0;
        self.count_window_probe();
        LossRepair::of(self).begin_after_timeout(now, first, pools);
        self.timers.set(Timer::Retransmit, self.next_window_probe(now));
    }

    /// Whether all but the FIN is acknowledged, and that lies beyond the peer's window: the peer need not
    /// accept it (RFC 9293 §3.10.7.4).
    fn fin_overruns_window(&self) -> bool {
        let is_alone = self.send.fin.is_sent() && !self.send.queue.is_outstanding();
        is_alone && self.send.next() > self.send.window_end()
    }

    /// As [`probe_window_with_data`](Self::probe_window_with_data): the FIN is the probe.
    fn probe_window_with_fin(&mut self, now: Instant) {
        if self.is_probing_in_vain(now) {
            return self.reset(CloseReason::TimedOut);
        }
        self.count_window_probe();
        self.send.fin.on_timeout();
        self.timers.set(Timer::Retransmit, self.next_window_probe(now));
    }

    /// The window has grown again that was closed over octets in flight. The peer has dropped these, so all
    /// of them are sent again, and the user timeout counts from now on.
    pub(super) fn resend_refused<P: SendPayload, F>(&mut self, now: Instant, pools: &mut Pools<P, F>) {
        let (segments, budget) = (&mut pools.segments, &mut pools.scan_budget);
        self.send.queue.mark_lost(segments, budget, |_| Verdict::Lost);
        self.recovery.duplicate_acks = 0;
        self.send.fin.on_timeout();
        self.activity.last_progress = now;
        self.arm_retransmit(now);
    }

    /// The user timeout in nanoseconds, if there is one (RFC 9293 §3.9.1).
    pub(super) fn user_timeout_ns(&self) -> Option<u64> {
        self.config.behaviour.user_timeout_ms.map(|limit_ms| u64::from(limit_ms) * MILLISECOND)
    }

    /// Gives the peer up as `timeouts` has it, from now on (RFC 9293 §3.8.4, §3.9.1: both may change while a
    /// connection is open).
    pub fn set_peer_timeouts(&mut self, now: Instant, timeouts: PeerTimeouts) {
        if let Some(limit_ms) = timeouts.user_timeout_ms {
            self.config.behaviour.user_timeout_ms = Some(limit_ms);
            // A timer that is set was set by the old timeout.
            let due = self.activity.last_progress + u64::from(limit_ms) * MILLISECOND;
            let retransmit = self.timers.at(Timer::Retransmit);
            if retransmit != Instant::NEVER {
                self.timers.set(Timer::Retransmit, retransmit.min(due.max(now)));
            }
        }
        if timeouts.keepalive.is_some() {
            self.config.behaviour.keepalive = timeouts.keepalive;
            self.probe.keepalives = 0;
            self.arm_keepalive(now);
        }
    }

    pub(super) fn arm_persist(&mut self, now: Instant) {
        self.timers.set(Timer::Persist, self.next_window_probe(now));
    }

    /// When the window is to be probed next.
    fn next_window_probe(&self, now: Instant) -> Instant {
        let interval_ns = self.rtt.base_rto_ns() << self.probe.persist_backoff.min(16);
        let mut at = now + interval_ns.min(limits::MAX_RTO_NS);
        if let Some(limit_ns) = self.user_timeout_ns().filter(|_| self.probe.unanswered > 0) {
            at = at.min((self.silent_since() + limit_ns).max(now + limits::MIN_RTO_NS));
        }
        at
    }

    /// Since when probes of the window are unanswered: the peer's last segment, or later, when data began to
    /// wait for the window.
    fn silent_since(&self) -> Instant {
        self.receive.last_arrival.max(self.activity.last_progress)
    }

    /// Whether the peer does not answer probes of its window any more. As long as it answers, a closed window
    /// is probed for ever (RFC 9293 §3.8.6.1).
    fn is_probing_in_vain(&self, now: Instant) -> bool {
        let silent = self.probe.unanswered >= limits::RETRANSMIT_ATTEMPTS;
        let overdue = self.probe.unanswered > 0
            && self.user_timeout_ns().is_some_and(|limit_ns| now - self.silent_since() >= limit_ns);
        silent || overdue
    }

    fn count_window_probe(&mut self) {
        self.probe.persist_backoff = self.probe.persist_backoff.saturating_add(1);
        self.probe.unanswered += 1;
        self.counters.window_probes += 1;
    }

    /// Nothing is in flight, and the window is too small for what waits: it is probed.
    pub(super) fn on_persist_timeout(&mut self, now: Instant) {
        if self.is_probing_in_vain(now) {
            return self.reset(CloseReason::TimedOut);
        }
        self.count_window_probe();
        self.probe.owed = true;
        self.arm_persist(now);
    }

    pub(super) fn arm_keepalive(&mut self, now: Instant) {
        if let Some(keepalive) = self.config.behaviour.keepalive {
            self.timers.set(Timer::Keepalive, now + u64::from(keepalive.idle_ms) * MILLISECOND);
        }
    }

    /// RFC 9293 §3.8.4: a peer that was silent for long is probed; one that never answers is given up.
    /// The timer was due at `due_at`, which may be some time ago.
    pub(super) fn on_keepalive_timeout(&mut self, now: Instant, due_at: Instant) {
        let Some(keepalive) = self.config.behaviour.keepalive else { return };
        let idle_ns = u64::from(keepalive.idle_ms) * MILLISECOND;
        let interval_ns = u64::from(keepalive.interval_ms) * MILLISECOND;
        let in_flight = self.send.flight_octets() > 0;
        // The last probe was sent an interval before the timer was due. Its answer may be older than
        // `idle_ns`, where that is shorter.
        let last_arrival = self.receive.last_arrival;
        let is_answered = self.probe.keepalives > 0 && last_arrival + interval_ns > due_at;
        if now - last_arrival < idle_ns || in_flight || is_answered {
            // The peer has sent something meanwhile, or the retransmission timer watches over it.
            self.probe.keepalives = 0;
            let from = if in_flight { now } else { last_arrival };
            self.timers.set(Timer::Keepalive, (from + idle_ns).max(now));
            return;
        }
        if self.probe.keepalives >= keepalive.probes {
            return self.reset(CloseReason::TimedOut);
        }
        self.probe.keepalives += 1;
        self.probe.owed = true;
        self.counters.keepalive_probes += 1;
        self.timers.set(Timer::Keepalive, now + interval_ns);
    }
}
