//! A core on a thread of its own, or two cores on one thread, with work of the benchmark between their polls.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use warpline::open::Eal;
use warpline::{CoreDriver, Statistics};
use warpline_tools::interrupt;

use crate::error::BenchError;
use crate::placement::pin_to;

/// The work of the other end between the polls of its core; breaks when the core is not needed any more.
type Step = Box<dyn FnMut(&mut Driver) -> ControlFlow<()> + Send>;

/// The core of an endpoint, polled by the thread that works with it, and the other end's core where one CPU
/// polls both.
pub struct Driver {
    /// `None` once it is [given up](Self::give_up).
    core: Option<CoreDriver>,
    other: Option<Box<OtherEnd>>,
    /// The thread sleeps while there is nothing to do.
    sleeps: bool,
    /// Connections are being set up, by other threads, which share the CPUs with those that poll.
    setting_up: bool,
    /// Other threads poll on the same CPU.
    gives_way: bool,
}

/// The pause of a thread that polls while nothing is measured: the threads that set up get the CPU.
pub const NAP: Duration = Duration::from_micros(20);

/// How long a benchmark waits for what must happen, before it gives the run up.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The other end: a thread that polls this end polls the other, too.
struct OtherEnd {
    driver: Driver,
    step: Step,
    ended: bool,
}

impl OtherEnd {
    fn poll_once(&mut self) -> bool {
        let worked = self.driver.poll_once();
        if !self.ended && (self.step)(&mut self.driver).is_break() {
            self.ended = true;
        }
        worked
    }
}

impl Driver {
    /// Drives `core` alone.
    pub fn new(core: CoreDriver) -> Self {
        Self { core: Some(core), other: None, sleeps: false, setting_up: false, gives_way: false }
    }

    /// Returns the same driver; its thread sleeps while there is nothing to do if `sleeps`.
    pub fn sleeping(self, sleeps: bool) -> Self {
        Self { sleeps, ..self }
    }

    /// Returns the same driver; if it `gives_way`, other threads that poll on its CPU go on while there is
    /// nothing to do.
    pub fn giving_way(self, gives_way: bool) -> Self {
        Self { gives_way, ..self }
    }

    /// Returns true if its thread sleeps while there is nothing to do.
    #[inline]
    pub const fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// Says whether connections are being set up: nothing is measured then.
    #[inline]
    pub const fn set_up(&mut self, goes_on: bool) {
        self.setting_up = goes_on;
    }

    /// Passes the time after a poll that found nothing to do.
    #[inline]
    pub fn pause(&mut self) {
        // A pause of the processor takes longer than a poll on recent ones, and a frame waits for its end.
        if self.sleeps {
            self.sleep();
        } else if self.is_setting_up() {
            thread::sleep(NAP);
        } else if self.gives_way {
            thread::yield_now();
        }
    }

    /// Returns true if connections are being set up at all ends that it drives.
    fn is_setting_up(&self) -> bool {
        self.setting_up && self.other.as_ref().is_none_or(|other| other.driver.setting_up)
    }

    #[cold]
    fn sleep(&mut self) {
        /// Other threads hand work over without waking this one.
        const LONGEST: Duration = Duration::from_millis(1);
        // Frames for the other end come from this one alone: only its timers can be due.
        let other = self.other.as_ref().map(|other| other.driver.time_to_next_deadline());
        if let Some(core) = &mut self.core {
            core.wait(other.map_or(LONGEST, |deadline| deadline.min(LONGEST)));
        }
    }

    /// Drives `other` after each poll of this core, too, and calls `step` after each poll of `other` until it
    /// breaks.
    pub fn with_other_end<F>(self, other: Self, step: F) -> Self
    where
        F: FnMut(&mut Self) -> ControlFlow<()> + Send + 'static,
    {
        Self { other: Some(Box::new(OtherEnd { driver: other, step: Box::new(step), ended: false })), ..self }
    }

    /// Does everything there is to do now at the ends it drives. Returns true if it did any work.
    pub fn poll_once(&mut self) -> bool {
        let worked = self.core.as_mut().is_some_and(CoreDriver::poll_once);
        match &mut self.other {
            Some(other) => other.poll_once() | worked,
            None => worked,
        }
    }

    /// Stops polling this core: its device has stopped, and what waits for it fails.
    pub fn give_up(&mut self) {
        self.core = None;
    }

    fn time_to_next_deadline(&self) -> Duration {
        self.core.as_ref().map_or(Duration::MAX, CoreDriver::time_to_next_deadline)
    }

    fn statistics(&self) -> Statistics {
        self.core.as_ref().map(CoreDriver::statistics).unwrap_or_default()
    }

    /// Makes `call` as [`run`](Self::run) does, unless the command [is to end](interrupt): the core is then
    /// [given up](Self::give_up).
    pub fn run_unless_interrupted<T: Send>(&mut self, call: impl FnOnce() -> T + Send) -> T {
        self.run_until(call, interrupt::is_requested)
    }

    /// Makes `call`, which waits for this core, on another thread, and polls until it returns.
    pub fn run<T: Send>(&mut self, call: impl FnOnce() -> T + Send) -> T {
        self.run_until(call, || false)
    }

    /// Polls until `flag` is set by another thread. Other cores may measure meanwhile, and this one may
    /// receive and send for them.
    pub fn poll_until(&mut self, flag: &AtomicBool) {
        while !flag.load(Ordering::Acquire) {
            if !self.poll_once() {
                self.pause();
            }
        }
    }

    fn run_until<T: Send>(&mut self, call: impl FnOnce() -> T + Send, gives_up: impl Fn() -> bool) -> T {
        thread::scope(|scope| {
            let call = scope.spawn(call);
            while !call.is_finished() {
                if gives_up() {
                    self.give_up();
                }
                if !self.poll_once() {
                    thread::sleep(NAP);
                }
            }
            call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Polls until the other end's work is done, if there is one here. Returns the counters of both ends.
    pub fn finish(mut self) -> Counters {
        while self.other.as_ref().is_some_and(|other| !other.ended) {
            self.poll_once();
        }
        let own = self.statistics();
        Counters { own, other: self.other.map(|other| other.driver.statistics()) }
    }
}

/// The counters of the ends that one thread has polled.
#[derive(Debug)]
pub struct Counters {
    /// The end that it works with.
    pub own: Statistics,
    /// The other end, if it was polled by the same thread.
    pub other: Option<Statistics>,
}

/// A core that a thread polls until its work breaks.
pub struct Endpoint<'s> {
    thread: ScopedJoinHandle<'s, Result<Counters, BenchError>>,
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
            let _lcore = Eal::current().and_then(|eal| eal.register_thread().ok());
            loop {
                let worked = driver.poll_once();
                if step(&mut driver).is_break() {
                    return Ok(driver.finish());
                }
                if !worked {
                    driver.pause();
                }
            }
        });
        Self { thread }
    }

    /// Waits for the end of the polling; returns the counters.
    ///
    /// # Errors
    ///
    /// The error that ended it early.
    pub fn join(self) -> Result<Counters, BenchError> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Takes what came over `channel`; breaks when its other end is dropped.
pub fn received<T>(channel: &mpsc::Receiver<T>) -> ControlFlow<(), Option<T>> {
    match channel.try_recv() {
        Ok(value) => ControlFlow::Continue(Some(value)),
        Err(mpsc::TryRecvError::Empty) => ControlFlow::Continue(None),
        Err(mpsc::TryRecvError::Disconnected) => ControlFlow::Break(()),
    }
}
