//! Drives a core: by a thread of its own, or by the application.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam::channel;
use warpline_dataplane::core::PollLoop;
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::time::{Instant, MICROSECOND, MILLISECOND};
use warpline_dataplane::waker::Waker;

use super::clock::{PollClock, now};
use super::control_loop::DeviceFlags;
use super::control_waker::ControlWaker;
use super::event_fd::EventFd;
use super::interrupt::InterruptFd;
use super::wake_sources::{Armed, POLL_BEFORE_SLEEP_NS, WakeSources};
use crate::vocabulary::poll_thread::{Idle, PollThread, PollThreadError};

/// The first sleep of a thread that is not woken when frames arrive. It doubles with each that finds nothing
/// to do.
const SHORTEST_PAUSE_NS: u64 = 50 * MICROSECOND;
/// The longest such sleep: what a frame may wait for at an idle device, for a hundredth of a CPU.
const LONGEST_PAUSE_NS: u64 = MILLISECOND;

/// Held while the core is polled; dropping it clears the flag.
struct DrivenGuard {
    core: u8,
    flags: Arc<DeviceFlags>,
    control: Arc<ControlWaker>,
}

impl Drop for DrivenGuard {
    fn drop(&mut self) {
        self.flags.clear_driven(self.core);
        self.control.handle_events();
    }
}

/// A core that the application polls itself, run to completion: no other thread touches its frames and
/// connections.
///
/// It may be moved to the thread that will poll it. Calls of the API that wait (registering, connecting,
/// accepting) need a thread that polls meanwhile: make them from another thread, or through
/// [`run`](Self::run).
pub struct CoreDriver {
    core: Box<dyn PollLoop>,
    clock: PollClock,
    driven: DrivenGuard,
    /// What this thread sleeps on.
    wake_sources: Arc<WakeSources>,
    /// Whether frames ring the bell.
    announced: bool,
    /// The interrupt was raised, but no poll has found anything since. The driver may yet have to see the
    /// frame: `net_tap` looks at its queue only after a signal, which another thread may be about to handle.
    interrupt_unexplained: bool,
    /// The next sleep if frames do neither.
    pause_ns: u64,
}

impl CoreDriver {
    /// Returns a driver of `core`, the one with number `number`, whose rings wake by `waker`, and that by
    /// `bell`.
    pub(crate) fn new(
        number: u8,
        mut core: Box<dyn PollLoop>,
        waker: Arc<Waker>,
        bell: Arc<EventFd>,
        flags: Arc<DeviceFlags>,
        control: Arc<ControlWaker>,
    ) -> Self {
        let announced = core.wake_on_arrival(&waker);
        // Without a descriptor left for it, this thread looks for frames from time to time.
        let interrupt = core.rx_interrupt().and_then(|interrupt| InterruptFd::new(interrupt).ok());
        let (interrupt_unexplained, pause_ns) = (false, SHORTEST_PAUSE_NS);
        let driven = DrivenGuard { core: number, flags, control };
        let clock = PollClock::new();
        let wake_sources = Arc::new(WakeSources::new(waker, bell, interrupt));
        Self { core, clock, driven, wake_sources, announced, interrupt_unexplained, pause_ns }
    }

    /// Returns what a thread sleeps on that drives the core.
    pub(super) fn wake_sources(&self) -> Arc<WakeSources> {
        self.wake_sources.clone()
    }

    #[cfg(test)]
    pub(crate) fn waker(&self) -> Arc<Waker> {
        self.wake_sources.waker.clone()
    }

    /// Sends what was posted, then takes what has arrived. Returns true if there was anything to do, or there
    /// is for the next poll. Call it again and again.
    ///
    /// Data that arrive in a poll are acknowledged by the next one. An application that answers between the
    /// two has its answer carry the acknowledgement.
    pub fn poll_once(&mut self) -> bool {
        let now = self.clock.now();
        self.poll_at(now)
    }

    /// Polls at `now`, as [`poll_once`](Self::poll_once) does at the time of the
    /// clock ([`now`](crate::now)). For programs that have read the clock already, or have a time of their
    /// own. Time must not go back, so a driver is polled by one clock only.
    pub fn poll_at(&mut self, now: Instant) -> bool {
        let busy = self.core.poll_run_to_completion(now);
        self.after_poll(busy)
    }

    /// Returns the time of the next poll.
    #[inline]
    pub(super) fn read_clock(&mut self) -> Instant {
        self.clock.now()
    }

    /// Polls for applications on other threads, which need not be waited for: what arrives is answered at
    /// once.
    fn poll_alone(&mut self) -> bool {
        let now = self.clock.now();
        self.poll_alone_at(now)
    }

    /// Polls at `now` as [`poll_alone`](Self::poll_alone) does.
    pub(super) fn poll_alone_at(&mut self, now: Instant) -> bool {
        let busy = self.core.poll_once(now);
        self.after_poll(busy)
    }

    /// Polls after control has ended, so that what it caused leaves: a FIN, a RST, an acknowledgement.
    pub(super) fn poll_last(&mut self) {
        const LAST_POLLS: usize = 64;
        for _ in 0..LAST_POLLS {
            self.poll_alone();
        }
    }

    #[inline]
    fn after_poll(&mut self, busy: bool) -> bool {
        self.interrupt_unexplained &= !busy;
        if self.core.clear_news() {
            self.driven.control.handle_events();
        }
        busy
    }

    /// Sleeps until there may be something to do, at most for `timeout`: posted work, a request of the API, a
    /// timer that is due, or frames. Polls once before it sleeps. Returns false if nothing happened.
    ///
    /// Where the device does not report frames (see [`Idle::Sleep`]), it returns after a millisecond at most.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        self.sleep(timeout, || false)
    }

    /// Sleeps as [`wait`](Self::wait) does, unless `ended` holds. The thread that makes it hold rings the
    /// waker afterwards.
    fn sleep(&mut self, timeout: Duration, ended: impl Fn() -> bool) -> bool {
        let armed = self.arm();
        if ended() || self.poll_once() {
            self.stay_awake(armed);
            return true;
        }
        let at_most = self.time_to_sleep(armed).min(timeout);
        let woken = self.wake_sources.sleep(armed, at_most);
        self.wake(armed, woken, false);
        woken
    }

    /// Has work wake the thread that is about to sleep, which polls once more before it does.
    pub(super) fn arm(&mut self) -> Armed {
        self.wake_sources.waker.arm();
        // Before the last poll: a frame that comes too late for that poll raises the interrupt.
        Armed { interrupts: self.enable_interrupt() }
    }

    /// Ends what [`arm`](Self::arm) has begun, because the last poll has found something.
    pub(super) fn stay_awake(&mut self, armed: Armed) {
        self.wake_sources.waker.disarm();
        if armed.interrupts {
            // One that was raised meanwhile can be ignored: frames are polled for before the next sleep too.
            self.disable_interrupt();
        }
        self.pause_ns = SHORTEST_PAUSE_NS;
    }

    /// Returns how long a thread may sleep after a last poll that has found nothing.
    pub(super) fn time_to_sleep(&mut self, armed: Armed) -> Duration {
        let sleep = self.time_to_next_deadline();
        // Nothing reports room for events either.
        if (self.announced || armed.interrupts) && !self.core.has_waiting_events() {
            return sleep;
        }
        let pause = Duration::from_nanos(self.pause_ns);
        self.pause_ns = (2 * self.pause_ns).min(LONGEST_PAUSE_NS);
        sleep.min(pause)
    }

    /// Ends what [`arm`](Self::arm) has begun, after a sleep that something has ended if `woken`. An
    /// interrupt is `explained` if other threads have polled meanwhile and found something.
    pub(super) fn wake(&mut self, armed: Armed, woken: bool, explained: bool) {
        if armed.interrupts {
            self.interrupt_unexplained = self.disable_interrupt() && !explained;
        } else if self.pause_ns == LONGEST_PAUSE_NS {
            // Nothing has come of it: it was for something else.
            self.interrupt_unexplained = false;
        }
        if woken {
            self.pause_ns = SHORTEST_PAUSE_NS;
        }
    }

    /// Has frames raise the interrupt; returns false if frames cannot wake this thread. A descriptor that
    /// stays readable without a frame, as that of a tap whose interface is removed, is not waited for all the
    /// time: it would keep the CPU busy.
    fn enable_interrupt(&mut self) -> bool {
        self.wake_sources.interrupt.is_some()
            && !self.interrupt_unexplained
            && self.core.enable_rx_interrupt()
    }

    /// Has frames raise no interrupt any more; returns true if one was raised.
    fn disable_interrupt(&mut self) -> bool {
        let Some(interrupt) = &self.wake_sources.interrupt else { return false };
        self.core.disable_rx_interrupt();
        interrupt.take()
    }

    /// Returns the time until the next deadline if nothing arrives and nothing is posted: none if the last
    /// poll has left something for the next.
    pub fn time_to_next_deadline(&self) -> Duration {
        if self.core.has_scheduled() {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.core.next_deadline() - now())
    }

    /// Returns the core's counters.
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    /// Polls until `ended` holds. The thread that makes it hold rings the waker afterwards.
    fn poll_until(&mut self, idle: Idle, ended: impl Fn() -> bool) {
        let mut idle_since = None;
        while !ended() {
            if self.poll_alone() {
                (idle_since, self.pause_ns) = (None, SHORTEST_PAUSE_NS);
                continue;
            }
            match idle {
                Idle::Spin => core::hint::spin_loop(),
                Idle::Sleep => {
                    let now = self.clock.now();
                    if now < *idle_since.get_or_insert(now) + *POLL_BEFORE_SLEEP_NS {
                        core::hint::spin_loop();
                    } else if self.sleep(Duration::MAX, &ended) {
                        idle_since = None;
                    }
                }
            }
        }
    }

    /// Makes `call`, which may wait for this core, on another thread, and polls until it returns.
    ///
    /// # Panics
    ///
    /// When `call` does.
    pub fn run<T: Send>(&mut self, call: impl FnOnce() -> T + Send) -> T {
        let returned = AtomicBool::new(false);
        let returning = Returning { returned: &returned, waker: self.wake_sources.waker.clone() };
        thread::scope(|scope| {
            let call = scope.spawn(move || {
                // Dropped at last, even by a panic.
                let _returning = returning;
                call()
            });
            self.poll_until(Idle::Sleep, || returned.load(Ordering::Acquire));
            call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Says that a call has returned, and wakes the thread that polls meanwhile.
struct Returning<'a> {
    returned: &'a AtomicBool,
    waker: Arc<Waker>,
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.returned.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// Starts a thread that polls `driver` until control has ended.
pub(crate) fn spawn(
    driver: CoreDriver,
    how: PollThread,
    flags: Arc<DeviceFlags>,
) -> Result<thread::JoinHandle<()>, PollThreadError> {
    spawn_at(how.lcore, move || poll(driver, how.idle, || flags.has_ended()))
}

/// Starts a thread that drives a core by `drive`, on the CPU `lcore` if that is given.
pub(super) fn spawn_at(
    lcore: Option<usize>,
    drive: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, PollThreadError> {
    let (pinned, is_pinned) = channel::bounded(1);
    let thread = thread::Builder::new().name("warpline-core".into()).spawn(move || {
        let ok = lcore.is_none_or(pin);
        // It fails only when the thread that waits for it has ended.
        let _ = pinned.send(ok);
        if ok {
            let _lcore = known_to_eal();
            drive();
        }
    })?;
    if is_pinned.recv() == Ok(true) {
        return Ok(thread);
    }
    // A panic before the answer has been reported by the thread itself.
    let _ = thread.join();
    Err(PollThreadError::Pin { lcore: lcore.unwrap_or_default() })
}

/// Pins this thread; `false` when the CPU is not there or not allowed.
fn pin(lcore: usize) -> bool {
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    allowed.into_iter().find(|cpu| cpu.id == lcore).is_some_and(core_affinity::set_for_current)
}

/// Polls until `ended` holds. The thread that makes it hold rings the waker afterwards.
pub(crate) fn poll(mut driver: CoreDriver, idle: Idle, ended: impl Fn() -> bool) {
    driver.poll_until(idle, ended);
    driver.poll_last();
}

/// Threads that are registered at the EAL have a cache of packet buffers.
#[cfg(feature = "dpdk")]
fn known_to_eal() -> Option<Box<dyn Any>> {
    // Without an lcore number the thread works too, only slower.
    let registered = dpdk::Eal::current()?.register_thread().ok()?;
    Some(Box::new(registered))
}

#[cfg(not(feature = "dpdk"))]
fn known_to_eal() -> Option<Box<dyn Any>> {
    None
}

#[cfg(test)]
pub(super) mod tests;
