//! What a thread sleeps on until there is something to take: a file descriptor (eventfd(2)) that also goes
//! into an epoll set, beside sockets and timers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use warpline_dataplane::notify::Notify;

/// A file descriptor that is readable from a notification until it is [cleared](Self::clear).
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Sleeps until there is a notification, at most for `timeout`. Returns true if there is one. It stays
    /// until it is [cleared](Self::clear).
    pub fn wait(&self, timeout: Duration) -> bool {
        self.wait_beside(None, timeout)
    }

    /// Waits as [`wait`](Self::wait) does, but also ends when `other` becomes readable.
    pub(crate) fn wait_beside(&self, other: Option<BorrowedFd<'_>>, timeout: Duration) -> bool {
        // One of them twice does no harm.
        let (own, other) = (self.as_fd(), other.unwrap_or(self.as_fd()));
        let start = Instant::now();
        loop {
            let left = Timespec::try_from(timeout.saturating_sub(start.elapsed())).ok();
            let mut fds = [&own, &other].map(|fd| PollFd::new(fd, PollFlags::IN));
            match poll(&mut fds, left.as_ref()) {
                Ok(ready) => return ready > 0,
                // A signal: sleep on.
                Err(Errno::INTR) => {}
                // Out of memory for the moment. A thread that waits polls its queue again.
                Err(_) => return true,
            }
        }
    }

    /// Takes the notifications there are. Do so before you look at what they are about: one that comes later
    /// then wakes again. `false` when there was none.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl Notify for EventFd {
    fn notify(&self) {
        // It fails only when 2^64 - 2 notifications wait: then it is readable too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_notifications_are_cleared_at_once() {
        let event = EventFd::new().unwrap();
        assert!(!event.wait(Duration::ZERO));
        assert!(!event.clear());
        event.notify();
        event.notify();
        assert!(event.wait(Duration::ZERO));
        assert!(event.wait(Duration::from_hours(1)), "it stays until it is cleared");
        assert!(event.clear());
        assert!(!event.wait(Duration::from_millis(1)));
    }
}
