//! Critical sections that begin with one call of the program and end with another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A section that one thread at a time is in. The contract of the ABI says that the thread leaves what it has
/// entered.
#[derive(Debug, Default)]
pub(crate) struct Section(AtomicBool);

impl Section {
    /// Waits until no thread is in the section, and enters it.
    pub(crate) fn enter(&self) {
        while self.0.swap(true, Ordering::Acquire) {
            thread::yield_now();
        }
    }

    /// Leaves the section.
    pub(crate) fn leave(&self) {
        self.0.store(false, Ordering::Release);
    }
}
