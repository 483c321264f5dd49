//! Probes of a peer that sends nothing: zero-window probes (RFC 9293 §3.8.6.1) and keepalives (§3.8.4).

use core::num::NonZeroU32;

use crate::limits;
use crate::time::{Instant, MILLISECOND};

use super::timers::Timer;
use super::{CloseReason, Connection, PeerTimeouts};

impl Connection {
    /// The user timeout in nanoseconds, if there is one (RFC 9293 §3.9.1).
    pub(super) fn user_timeout_ns(&self) -> Option<u64> {
        self.config.behaviour.user_timeout_ms.map(|limit_ms| u64::from(limit_ms) * MILLISECOND)
    }

    /// Sends no more than `limit_kbps` kilobytes of payload a second, from now on.
    pub const fn set_rate_limit(&mut self, limit_kbps: Option<NonZeroU32>) {
        self.config.behaviour.rate_limit_kbps = limit_kbps;
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
        let interval_ns = self.rtt.base_rto_ns() << self.probe.persist_backoff.min(16);
        let mut at = now + interval_ns.min(limits::MAX_RTO_NS);
        if let Some(limit_ns) = self.user_timeout_ns().filter(|_| self.probe.unanswered > 0) {
            at = at.min((self.silent_since() + limit_ns).max(now + limits::MIN_RTO_NS));
        }
        self.timers.set(Timer::Persist, at);
    }

    /// Since when probes of the window are unanswered: the peer's last segment, or later, when data began to
    /// wait for the window.
    fn silent_since(&self) -> Instant {
        self.receive.last_arrival.max(self.activity.last_progress)
    }

    /// RFC 9293 §3.8.6.1: a closed window is probed for ever, as long as the peer answers.
    pub(super) fn on_persist_timeout(&mut self, now: Instant) {
        let silent = self.probe.unanswered >= limits::RETRANSMIT_ATTEMPTS;
        let overdue = self.probe.unanswered > 0
            && self.user_timeout_ns().is_some_and(|limit_ns| now - self.silent_since() >= limit_ns);
        if silent || overdue {
            return self.reset(CloseReason::TimedOut);
        }
        self.probe.persist_backoff = self.probe.persist_backoff.saturating_add(1);
        self.probe.unanswered += 1;
        self.probe.owed = true;
        self.counters.window_probes += 1;
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
