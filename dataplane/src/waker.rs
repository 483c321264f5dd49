//! Wakes the thread that polls a core. A thread that has nothing to poll sleeps; a thread that then gives it
//! work wakes it. Giving work to a thread that is awake costs no system call.

use core::fmt;
use std::sync::Arc;

use crate::notify::Notify;
use crate::sync::{AtomicBool, Ordering, fence};

/// Wakes one thread, if it sleeps.
///
/// The thread calls [`arm`](Self::arm), polls everything once more, and sleeps if that found nothing. Others
/// put their work where the thread polls, and then call [`wake`](Self::wake). Both have a fence between what
/// they write and what they read: either the thread's last poll sees the work, or the other sees the flag and
/// notifies.
pub struct Waker {
    asleep: AtomicBool,
    notify: Arc<dyn Notify>,
}

impl Waker {
    /// Returns a waker that calls `notify`, which ends the thread's present sleep or the next one.
    pub fn new(notify: Arc<dyn Notify>) -> Self {
        Self { asleep: AtomicBool::new(false), notify }
    }

    /// Arms the waker before the polling thread sleeps: from now on the thread is notified. It must poll once
    /// more before it sleeps.
    pub fn arm(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Disarms the waker when the polling thread does not sleep, or no longer. A notification may still come.
    pub fn disarm(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Returns true if the thread sleeps, or is about to.
    pub fn is_armed(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Wakes the polling thread because another thread has work for it. Costs a fence and a load while the
    /// thread is awake, and a system call only if it sleeps.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        // Of several that find it asleep, one notifies.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.notify.notify();
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU32;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Notify for Count {
        fn notify(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_a_sleeping_thread_is_notified_and_once() {
        let count = Arc::new(Count::default());
        let waker = Waker::new(count.clone());
        waker.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "it is awake");
        waker.arm();
        waker.wake();
        waker.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        waker.arm();
        waker.disarm();
        waker.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
