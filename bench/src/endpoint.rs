//! A core on a thread of its own, with work of ours between its polls.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};

use warpline::{CoreDriver, Statistics};

use crate::BenchError;
use crate::device::BenchDevice;
use crate::floor::pin_to;

/// The driver of an endpoint's core.
pub type Driver = CoreDriver<BenchDevice>;

/// A core that is polled until it is told to stop.
pub struct Endpoint<'s> {
    thread: ScopedJoinHandle<'s, Result<Statistics, BenchError>>,
}

impl<'s> Endpoint<'s> {
    /// Polls `driver` on CPU `cpu`, calling `step` after each poll until it breaks.
    pub fn start<'e, F>(scope: &'s Scope<'s, 'e>, mut driver: Driver, cpu: usize, mut step: F) -> Self
    where
        F: FnMut(&mut Driver) -> ControlFlow<()> + Send + 's,
    {
        let thread = scope.spawn(move || {
            pin_to(cpu)?;
            // Without it, packet buffers come without this CPU's cache: slower, not wrong.
            let _lcore = dpdk::Eal::current().and_then(|eal| eal.register_thread().ok());
            loop {
                if !driver.poll_once() {
                    // Leaves the execution units to a CPU that shares this one's core.
                    std::hint::spin_loop();
                }
                if step(&mut driver).is_break() {
                    return Ok(driver.statistics());
                }
            }
        });
        Self { thread }
    }

    /// Waits for the end of the polling; gives the core's counters.
    ///
    /// # Errors
    ///
    /// What ended it early.
    pub fn join(self) -> Result<Statistics, BenchError> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Takes what came over `channel`; breaks when its other end is gone.
pub fn received<T>(channel: &mpsc::Receiver<T>) -> ControlFlow<(), Option<T>> {
    match channel.try_recv() {
        Ok(value) => ControlFlow::Continue(Some(value)),
        Err(mpsc::TryRecvError::Empty) => ControlFlow::Continue(None),
        Err(mpsc::TryRecvError::Disconnected) => ControlFlow::Break(()),
    }
}
