//! Who polls the core: a thread of its own, or the application.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use crossbeam::channel;
use warpline_dataplane::core::Core;
use warpline_dataplane::core::statistics::Statistics;
use warpline_dataplane::device::Device;
use warpline_dataplane::time::Instant;

/// The origin of all [`Instant`]s of this process, so that devices on different cores agree on the time.
static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// The time as all devices of this process see it, from an origin of their own.
pub fn now() -> Instant {
    Instant::from_nanos(nanos(ORIGIN.elapsed()))
}

/// A duration as the data plane counts it; what does not fit is as long as can be.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What a poll thread does when there was nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Idle {
    /// Polls again at once: least latency, for an lcore of its own.
    Spin,
    /// Lets other threads run first, so that a machine with few cores stays usable.
    #[default]
    Yield,
}

/// A thread that polls a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PollThread {
    /// The CPU it is pinned to; the scheduler's choice without.
    pub lcore: Option<usize>,
    /// What it does when there was nothing to do.
    pub idle: Idle,
}

/// Why a poll thread could not be started.
#[derive(Debug, thiserror::Error)]
pub enum PollThreadError {
    /// The system started no thread.
    #[error("no thread for the core: {0}; check the limit on threads (ulimit -u)")]
    Spawn(#[from] std::io::Error),
    /// The thread could not be pinned.
    #[error(
        "CPU {lcore} cannot be used: choose one that is online and allowed for this process (taskset -p)"
    )]
    Pin {
        /// The CPU asked for.
        lcore: usize,
    },
}

/// Says that somebody polls the core; dropping it says that nobody does any more.
struct Alive(Arc<AtomicBool>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A core that the application polls itself, run to completion: no other thread touches its frames and connections.
///
/// It may be moved to the thread that will poll it. Calls of the API that wait (registering, connecting, accepting) need
/// somebody to poll meanwhile: make them from another thread, or through [`run`](Self::run).
pub struct CoreDriver<D: Device> {
    core: Core<D>,
    _alive: Alive,
}

impl<D: Device> CoreDriver<D> {
    pub(crate) fn new(core: Core<D>, alive: Arc<AtomicBool>) -> Self {
        Self { core, _alive: Alive(alive) }
    }

    /// Does everything there is to do now; gives whether there was anything. Call it again and again.
    pub fn poll_once(&mut self) -> bool {
        self.core.poll_once(now())
    }

    /// How long nothing needs to be done if nothing arrives and nothing is posted.
    pub fn time_to_next_deadline(&self) -> Duration {
        Duration::from_nanos(self.core.next_deadline() - now())
    }

    /// The core's counters.
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    /// Makes `call`, which may wait for this core, on another thread, and polls until it returns.
    ///
    /// # Panics
    ///
    /// When `call` does.
    pub fn run<T: Send>(&mut self, call: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let call = scope.spawn(call);
            while !call.is_finished() {
                if !self.poll_once() {
                    thread::yield_now();
                }
            }
            call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Starts a thread that polls `driver` until `stop` is set.
pub(crate) fn spawn<D: Device + Send>(
    driver: CoreDriver<D>,
    how: PollThread,
    stop: Arc<AtomicBool>,
) -> Result<thread::JoinHandle<()>, PollThreadError> {
    let (pinned, is_pinned) = channel::bounded(1);
    let thread = thread::Builder::new().name("warpline-core".into()).spawn(move || {
        let ok = how.lcore.is_none_or(pin);
        // Unheard only when the starter has gone.
        let _ = pinned.send(ok);
        if ok {
            let _lcore = known_to_eal();
            poll(driver, how.idle, &stop);
        }
    })?;
    if is_pinned.recv() == Ok(true) {
        return Ok(thread);
    }
    // A panic before the answer has been reported by the thread itself.
    let _ = thread.join();
    Err(PollThreadError::Pin { lcore: how.lcore.unwrap_or_default() })
}

/// Pins this thread; `false` when the CPU is not there or not allowed.
fn pin(lcore: usize) -> bool {
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    allowed.into_iter().find(|cpu| cpu.id == lcore).is_some_and(core_affinity::set_for_current)
}

fn poll<D: Device>(mut driver: CoreDriver<D>, idle: Idle, stop: &AtomicBool) {
    /// Polls after the last command, so that what it caused leaves: a FIN, a RST, an acknowledgement.
    const LAST_POLLS: usize = 64;
    while !stop.load(Ordering::Relaxed) {
        if !driver.poll_once() {
            match idle {
                Idle::Spin => core::hint::spin_loop(),
                Idle::Yield => thread::yield_now(),
            }
        }
    }
    for _ in 0..LAST_POLLS {
        driver.poll_once();
    }
}

/// Threads that the EAL knows have a cache of packet buffers.
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
