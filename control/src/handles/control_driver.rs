//! Drives control without a thread of its own.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError};

use super::clock::now;
use super::control_loop::{ControlLoop, Round};
use crate::vocabulary::device::Stopped;

/// Control that has no thread: those drive it that poll it or the core, and those that wait for a reply.
pub(crate) struct PolledControl {
    /// `None` once the device serves no more.
    control: Mutex<Option<ControlLoop>>,
}

impl PolledControl {
    /// How long a thread waits for a reply before it looks itself whether there is an event.
    const LOOK: Duration = Duration::from_micros(50);

    pub(super) const fn new(control: ControlLoop) -> Self {
        Self { control: Mutex::new(Some(control)) }
    }

    /// Does everything that there is to do, unless another thread is at it, which then does this too. Returns
    /// true if there was anything.
    pub(super) fn drive(&self) -> bool {
        let mut busy = false;
        loop {
            let mut place = match self.control.try_lock() {
                Ok(place) => place,
                Err(TryLockError::Poisoned(place)) => {
                    // Control has panicked: nothing is served any more.
                    *place.into_inner() = None;
                    return false;
                }
                Err(TryLockError::WouldBlock) => return busy,
            };
            let Some(control) = &mut *place else { return busy };
            let round = control.go_round();
            if round == Round::Last {
                *place = None;
                return true;
            }
            busy |= round == Round::Busy;
            drop(place);
            // What came meanwhile found the lock taken.
            if !self.lock().as_ref().is_some_and(ControlLoop::has_news) {
                return busy;
            }
        }
    }

    /// Waits for a reply, and does what there is to do until it comes.
    pub(super) fn wait_for<T>(&self, reply: &Receiver<T>) -> Result<T, Stopped> {
        loop {
            self.drive();
            let is_over = self.is_over();
            match reply.recv_timeout(Self::LOOK) {
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Timeout) if !is_over => {}
                Err(_) => return Err(Stopped),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.lock().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, Option<ControlLoop>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PolledControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolledControl")
    }
}

/// The control engine of a device that has no thread for it
/// ([`Device::start_polled`](crate::Device::start_polled)).
///
/// A thread that polls the core and this, and connects through [`cm`](crate::cm), never waits for another:
/// what it asks for is carried out by the next poll, and what the core reports in the poll of the core.
/// Queue pairs and listeners are made at once. Calls that wait for the core, as registering memory does, are
/// for another thread, or for [`CoreDriver::run`](crate::CoreDriver::run). One that sleeps in
/// [`CoreDriver::wait`](crate::CoreDriver::wait) is woken by what other threads ask for.
///
/// Dropping it ends the device: what waits for it fails.
pub struct ControlDriver {
    control: Arc<PolledControl>,
}

impl ControlDriver {
    pub(super) const fn new(control: Arc<PolledControl>) -> Self {
        Self { control }
    }

    /// Does everything there is to do now. Returns true if there was anything. Call it from time to time,
    /// [`time_to_next_deadline`](Self::time_to_next_deadline) says when at the latest.
    pub fn poll_once(&mut self) -> bool {
        self.control.drive()
    }

    /// Returns the time until the next deadline: that of a startup, or of a connection that is being closed.
    pub fn time_to_next_deadline(&self) -> Duration {
        match &*self.control.lock() {
            Some(control) if control.has_news() => Duration::ZERO,
            Some(control) => Duration::from_nanos(control.next_deadline() - now()),
            None => Duration::MAX,
        }
    }

    /// Returns true if the device serves no more: the last handle is gone and its connections are closed, or
    /// the core is no longer polled.
    pub fn is_over(&self) -> bool {
        self.control.is_over()
    }
}

impl Drop for ControlDriver {
    fn drop(&mut self) {
        let control = self.control.lock().take();
        // Without the lock: callbacks that learn of the end may call the API.
        drop(control);
    }
}

impl fmt::Debug for ControlDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlDriver").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
