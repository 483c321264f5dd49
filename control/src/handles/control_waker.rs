//! Wakes the control thread.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};
use std::thread;

/// Wakes the control thread, which sleeps by parking itself.
#[derive(Debug, Default)]
pub(crate) struct ControlWaker {
    control: OnceLock<thread::Thread>,
    /// Its directory in /proc.
    #[cfg(test)]
    task: OnceLock<String>,
}

impl ControlWaker {
    /// Registers the calling thread as the control thread. Call it before that thread looks for work the
    /// first time.
    pub(crate) fn register(&self) {
        let _ = self.control.set(thread::current());
        #[cfg(test)]
        if let Ok(task) = std::fs::read_link("/proc/thread-self") {
            let _ = self.task.set(task.to_string_lossy().into_owned());
        }
        // Of this fence and that of `wake` one comes first: either control sees what there is, or the other
        // sees control.
        fence(Ordering::SeqCst);
    }

    /// Wakes control because it has work. Makes a system call only if control sleeps.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if let Some(control) = self.control.get() {
            control.unpark();
        }
    }
}

#[cfg(test)]
impl ControlWaker {
    pub(crate) fn task(&self) -> Option<String> {
        self.task.get().cloned()
    }
}
