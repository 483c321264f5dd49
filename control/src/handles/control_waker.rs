//! Tells control that it has work.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use warpline_dataplane::qp::shared::Doorbells;

use super::control_driver::PolledControl;

/// Who goes round in the loop of control.
#[derive(Debug)]
enum Control {
    /// A thread, which sleeps by parking itself.
    Thread(thread::Thread),
    /// Applications, which sleep while the core has nothing to do.
    Polled { control: Weak<PolledControl>, core: Arc<Doorbells> },
}

/// Tells control that it has work.
#[derive(Debug, Default)]
pub(crate) struct ControlWaker {
    control: OnceLock<Control>,
    /// The directory of the thread in /proc.
    #[cfg(test)]
    task: OnceLock<String>,
}

impl ControlWaker {
    /// Registers the calling thread as the control thread. Call it before that thread looks for work the
    /// first time.
    pub(super) fn register_thread(&self) {
        let _ = self.control.set(Control::Thread(thread::current()));
        #[cfg(test)]
        if let Ok(task) = std::fs::read_link("/proc/thread-self") {
            let _ = self.task.set(task.to_string_lossy().into_owned());
        }
        // Of this fence and that of `wake` one comes first: either control sees what there is, or the other
        // sees control.
        fence(Ordering::SeqCst);
    }

    /// Registers control that has no thread, before there is work for it. A thread that sleeps until there is
    /// work for the `core` is the one that polls control too.
    pub(super) fn register_polled(&self, control: &Arc<PolledControl>, core: Arc<Doorbells>) {
        let _ = self.control.set(Control::Polled { control: Arc::downgrade(control), core });
    }

    /// Returns control that has no thread.
    pub(super) fn polled(&self) -> Option<Arc<PolledControl>> {
        match self.control.get()? {
            Control::Thread(_) => None,
            Control::Polled { control, .. } => control.upgrade(),
        }
    }

    /// Returns true if control has no thread.
    pub(super) fn is_polled(&self) -> bool {
        matches!(self.control.get(), Some(Control::Polled { .. }))
    }

    /// Wakes the thread that goes round in the loop, because there is a request. Makes a system call only if
    /// that thread sleeps.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        match self.control.get() {
            Some(Control::Thread(control)) => control.unpark(),
            Some(Control::Polled { core, .. }) => core.wake(),
            None => {}
        }
    }

    /// Has the events of the core handled, by the control thread or else by this one. Not for a caller that
    /// holds a lock.
    pub(crate) fn handle_events(&self) {
        match self.polled() {
            Some(control) => _ = control.drive(),
            None => self.wake(),
        }
    }
}

#[cfg(test)]
impl ControlWaker {
    pub(crate) fn task(&self) -> Option<String> {
        self.task.get().cloned()
    }
}
