//! Tells control that it has work.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use warpline_dataplane::qp::shared::Doorbells;

use super::control_driver::PolledControl;
use super::turns::{TakeTurns, Turns};

/// Who goes round in the loop of control.
enum Control {
    /// A thread, which sleeps by parking itself.
    Thread(thread::Thread),
    /// Applications, which sleep while the core has nothing to do.
    Polled { control: Weak<PolledControl>, core: Arc<Doorbells> },
    /// Threads that take turns.
    InTurns(ControlInTurns),
}

/// Control that threads drive which take turns at it and the core.
pub(super) struct ControlInTurns {
    /// What they drive.
    pub(super) driver: Weak<dyn TakeTurns>,
    /// Whether there is work for control: the next turn goes round in its loop.
    pub(super) has_work: Arc<AtomicBool>,
    /// Wakes the one of these threads that sleeps while the core has nothing to do.
    pub(super) core: Arc<Doorbells>,
}

/// Who carries out requests, for a thread that waits for the reply.
pub(super) enum ServedBy {
    /// Another thread, or nobody any more.
    Other,
    /// The thread that waits, or the one that polls the core.
    Polled(Arc<PolledControl>),
    /// The thread that waits, or another one that takes a turn.
    Turns(Turns),
}

/// Tells control that it has work.
#[derive(Default)]
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
        self.register_task();
        // Of this fence and that of `wake` one comes first: either control sees what there is, or the other
        // sees control.
        fence(Ordering::SeqCst);
    }

    /// Registers control that has no thread, before there is work for it. A thread that sleeps until there is
    /// work for the `core` is the one that polls control too.
    pub(super) fn register_polled(&self, control: &Arc<PolledControl>, core: Arc<Doorbells>) {
        let _ = self.control.set(Control::Polled { control: Arc::downgrade(control), core });
    }

    /// Registers control that threads drive in turns, before there is work for it.
    pub(super) fn register_in_turns(&self, control: ControlInTurns) {
        let _ = self.control.set(Control::InTurns(control));
    }

    /// Returns who carries out requests.
    pub(super) fn served_by(&self) -> ServedBy {
        let served_by = match self.control.get() {
            Some(Control::Polled { control, .. }) => control.upgrade().map(ServedBy::Polled),
            Some(Control::InTurns(control)) => control.driver.upgrade().map(Turns::new).map(ServedBy::Turns),
            Some(Control::Thread(_)) | None => None,
        };
        served_by.unwrap_or(ServedBy::Other)
    }

    /// Wakes the thread that goes round in the loop, because there is a request. Makes a system call only if
    /// that thread sleeps.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        match self.control.get() {
            Some(Control::Thread(control)) => control.unpark(),
            Some(Control::Polled { core, .. }) => core.wake(),
            Some(Control::InTurns(ControlInTurns { has_work, core, .. })) => {
                // Before the thread is looked at, which looks at this after it has armed its waker.
                has_work.store(true, Ordering::Release);
                core.wake();
            }
            None => {}
        }
    }

    /// Has the events of the core handled, by the control thread or else by this one. Not for a caller that
    /// holds a lock.
    pub(crate) fn handle_events(&self) {
        match self.control.get() {
            // This thread goes round after its poll, in the same turn.
            Some(Control::InTurns(control)) => control.has_work.store(true, Ordering::Release),
            _ => match self.served_by() {
                ServedBy::Polled(control) => _ = control.drive(),
                _ => self.wake(),
            },
        }
    }
}

impl fmt::Debug for ControlWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlWaker").finish_non_exhaustive()
    }
}

#[cfg(test)]
impl ControlWaker {
    /// Registers the directory in /proc of the calling thread.
    pub(super) fn register_task(&self) {
        if let Ok(task) = std::fs::read_link("/proc/thread-self") {
            let _ = self.task.set(task.to_string_lossy().into_owned());
        }
    }

    pub(crate) fn task(&self) -> Option<String> {
        self.task.get().cloned()
    }
}
