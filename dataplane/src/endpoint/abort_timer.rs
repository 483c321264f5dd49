//! When a connection is reset if it is not closed by then.

use crate::tcp;
use crate::time::Instant;

/// The time at which a connection is reset if it is not open, or not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AbortTimer {
    /// That time; `NEVER` without one.
    at: Instant,
    /// The time in which a disconnect expects progress, in nanoseconds: [`at`](Self::at) is its end, and each
    /// sign of progress restarts it unless the stream has failed. 0 without a disconnect or a limit, and if
    /// the deadline of a failed stream is the earlier one.
    close_within_ns: u64,
}

impl AbortTimer {
    /// No deadline.
    pub const STOPPED: Self = Self { at: Instant::NEVER, close_within_ns: 0 };

    /// Returns the deadline; `NEVER` without one.
    #[inline]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// Returns true if there is a deadline.
    pub fn is_running(&self) -> bool {
        self.at != Instant::NEVER
    }

    /// Has the connection reset at `deadline`.
    pub const fn set(&mut self, deadline: Instant) {
        self.at = deadline;
    }

    /// Clears the deadline: the connection is open in time.
    pub const fn stop(&mut self) {
        self.at = Instant::NEVER;
    }

    /// Has the connection reset unless it closes, or something moves, within that time. An earlier deadline,
    /// of a stream that has failed, stays.
    pub fn close_within(&mut self, now: Instant, within_ns: Option<u64>) {
        let Some(within_ns) = within_ns.map(|within_ns| within_ns.max(1)) else { return };
        let deadline = now + within_ns;
        if deadline < self.at {
            (self.at, self.close_within_ns) = (deadline, within_ns);
        }
    }

    /// Has the connection reset `within_ns` from `now`, because its stream has failed. An earlier deadline,
    /// of a disconnect, stays. Nothing that moves until then changes the deadline.
    pub fn abort_within(&mut self, now: Instant, within_ns: u64) {
        let deadline = now + within_ns;
        if deadline <= self.at {
            (self.at, self.close_within_ns) = (deadline, 0);
        }
    }

    /// Returns true if a disconnect expects progress.
    #[inline]
    pub const fn awaits_progress(&self) -> bool {
        self.close_within_ns > 0
    }

    /// Restarts the time in which a disconnect expects progress; it ends at `latest` at the latest.
    #[inline]
    pub fn restart(&mut self, now: Instant, latest: Instant) {
        self.at = (now + self.close_within_ns).min(latest);
    }

    /// Ends the connection at its deadline: a disconnect times out unless both ends have closed by now, any
    /// other connection is reset. Returns what changes.
    pub fn expire(&mut self, tcp: &mut tcp::Connection) -> tcp::Changes {
        self.stop();
        match tcp.state() {
            tcp::State::Closed => return tcp::Changes::empty(),
            tcp::State::TimeWait if self.close_within_ns > 0 => return tcp::Changes::empty(),
            _ if self.close_within_ns > 0 => tcp.give_up(),
            _ => tcp.abort(),
        }
        tcp::Changes::CLOSED
    }
}
