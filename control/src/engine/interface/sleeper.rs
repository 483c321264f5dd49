//! An application that may sleep until control has something for it.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};

use warpline_dataplane::notify::Notify;

/// An application that sleeps on something of its own, once it has armed this and found nothing.
#[derive(Default)]
pub(crate) struct Sleeper {
    armed: AtomicBool,
    /// Nothing more will come.
    over: AtomicBool,
    notify: OnceLock<Arc<dyn Notify>>,
}

impl Sleeper {
    /// Has `notify` notified from now on, if nothing was before.
    pub(crate) fn notify_with(&self, notify: Arc<dyn Notify>) {
        let _ = self.notify.set(notify);
    }

    /// Has the next arrival notify. Returns true if the application may sleep, should it find nothing after
    /// this call: it may not, once nothing more will come.
    pub(crate) fn arm(&self) -> bool {
        self.armed.store(true, Ordering::SeqCst);
        // Of this fence and that of `wake` one comes first: either the application finds what has come, or
        // the engine finds it armed.
        fence(Ordering::SeqCst);
        !self.over.load(Ordering::Relaxed)
    }

    /// Notifies, once after [`arm`](Self::arm), that something has come.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed)
            && self.armed.swap(false, Ordering::AcqRel)
            && let Some(notify) = self.notify.get()
        {
            notify.notify();
        }
    }

    /// Notifies that nothing more will come.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Notify for Count {
        fn notify(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_is_notified_once_each_time_that_it_armed() {
        let (sleeper, count) = (Sleeper::default(), Arc::new(Count::default()));
        let notified = || count.0.load(Ordering::Relaxed);
        // Nobody to notify yet.
        assert!(sleeper.arm());
        sleeper.wake();
        sleeper.notify_with(count.clone());
        sleeper.wake();
        assert_eq!(notified(), 0, "it has not armed since");
        assert!(sleeper.arm());
        sleeper.wake();
        sleeper.wake();
        assert_eq!(notified(), 1);
        assert!(sleeper.arm());
        sleeper.end();
        assert_eq!((notified(), sleeper.arm()), (2, false), "there is nothing to sleep for");
    }
}
