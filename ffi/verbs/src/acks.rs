//! Events that a program has taken and not acknowledged yet: what they are about is not destroyed meanwhile.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Counts of events taken and acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// Taken and not acknowledged.
    owed: Mutex<i64>,
    changed: Condvar,
}

impl Acks {
    fn lock(&self) -> MutexGuard<'_, i64> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an event that the program takes.
    pub(crate) fn taken(&self) {
        *self.lock() += 1;
    }

    /// Counts so many acknowledgements.
    pub(crate) fn acknowledged(&self, events: u32) {
        *self.lock() -= i64::from(events);
        self.changed.notify_all();
    }

    /// Returns the events that are taken and not acknowledged.
    #[cfg(test)]
    pub(crate) fn owed(&self) -> i64 {
        *self.lock()
    }

    /// Waits until every event is acknowledged: for ever if the program does not, as the manual pages say.
    pub(crate) fn wait(&self) {
        let mut owed = self.lock();
        while *owed > 0 {
            owed = self.changed.wait(owed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
