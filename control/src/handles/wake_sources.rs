//! What wakes the thread that drives a core: the bell of its waker, and the receive interrupt of its device.

use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use warpline_dataplane::time::MICROSECOND;
use warpline_dataplane::waker::Waker;

use super::event_fd::EventFd;
use super::interrupt::InterruptFd;

/// How long a poll thread that sleeps polls on before it does: longer than a peer on the same network takes
/// to answer, so that work which comes answer upon answer never waits for a thread to wake. On a single CPU
/// polling gains nothing: a thread of this machine that has the answer waits for that CPU.
pub(super) static POLL_BEFORE_SLEEP_NS: LazyLock<u64> = LazyLock::new(|| {
    let single = thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
    if single { 0 } else { 50 * MICROSECOND }
});

/// What wakes the thread that drives a core.
#[derive(Debug)]
pub(super) struct WakeSources {
    /// Says whether that thread sleeps.
    pub(super) waker: Arc<Waker>,
    /// The descriptor by which the waker wakes it.
    bell: Arc<EventFd>,
    /// What frames raise at a device that interrupts.
    pub(super) interrupt: Option<InterruptFd>,
}

/// The sources are armed: work that comes now wakes the thread that sleeps on them.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Armed {
    /// Whether frames raise the interrupt.
    pub(super) interrupts: bool,
}

impl WakeSources {
    pub(super) const fn new(waker: Arc<Waker>, bell: Arc<EventFd>, interrupt: Option<InterruptFd>) -> Self {
        Self { waker, bell, interrupt }
    }

    /// Sleeps until one of the sources that are armed wakes this thread, at most for `at_most`. Returns false
    /// if none did. The waker is disarmed then, the interrupt is not.
    pub(super) fn sleep(&self, armed: Armed, at_most: Duration) -> bool {
        let interrupt = self.interrupt.as_ref().filter(|_| armed.interrupts).map(AsFd::as_fd);
        let woken = !at_most.is_zero() && self.bell.wait_beside(interrupt, at_most);
        self.waker.disarm();
        if woken {
            self.bell.clear();
        }
        woken
    }
}
