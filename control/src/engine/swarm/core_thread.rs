//! A core and the thread that polls it. The thread polls all the time, or sleeps as that of a device does
//! while a poll finds nothing: what the core waits for has to wake it.

use std::sync::Arc;

use warpline_dataplane::core::PollLoop;
use warpline_dataplane::limits;
use warpline_dataplane::qp::shared::Doorbells;
use warpline_dataplane::ring::Rings;
use warpline_dataplane::time::Instant;
use warpline_dataplane::waker::Waker;

use super::stream_oracle::bell::Bell;

/// How a thread sleeps.
struct Sleep {
    waker: Arc<Waker>,
    bell: Bell,
    /// When it wakes at the latest; in the past if it is awake.
    until: Instant,
}

/// What wakes a thread that sleeps.
pub(super) struct Alarm {
    waker: Arc<Waker>,
    bell: Bell,
}

impl Alarm {
    pub(super) fn new() -> Self {
        let bell = Bell::default();
        Self { waker: Arc::new(Waker::new(bell.notify())), bell }
    }
}

/// A core, the rings between it and control, and the thread that polls it.
pub(super) struct CoreThread {
    pub(super) core: Box<dyn PollLoop>,
    pub(super) rings: Rings,
    /// Until then it does nothing.
    pub(super) stalls_until: Instant,
    sleep: Option<Sleep>,
}

/// Returns empty rings for a core whose thread `alarm` wakes, if it sleeps at times.
pub(super) fn rings(alarm: Option<&Alarm>) -> Rings {
    let doorbells = Doorbells::new(limits::QPS_PER_CORE).with_byte_streams(limits::CONNECTIONS_PER_CORE);
    Rings::with(match alarm {
        Some(alarm) => doorbells.with_waker(alarm.waker.clone()),
        None => doorbells,
    })
}

impl CoreThread {
    /// Returns a thread that polls `core` and has the `alarm` of its `rings`.
    pub(super) fn new(mut core: Box<dyn PollLoop>, rings: Rings, alarm: Option<Alarm>) -> Self {
        let sleep = alarm.map(|Alarm { waker, bell }| {
            assert!(core.wake_on_arrival(&waker), "frames of a simulated link wake");
            Sleep { waker, bell, until: Instant::ZERO }
        });
        Self { core, rings, stalls_until: Instant::ZERO, sleep }
    }

    /// Polls the core at `now`, unless the thread sleeps or stalls. Returns true if it did any work.
    pub(super) fn poll(&mut self, now: Instant, run_to_completion: bool) -> bool {
        let sleeps = self.sleep.as_ref().is_some_and(|sleep| now < sleep.until && !sleep.bell.has_rung());
        if sleeps || now < self.stalls_until {
            return false;
        }
        if let Some(Sleep { waker, bell, .. }) = &self.sleep {
            bell.wait();
            waker.arm();
        }
        let core = &mut self.core;
        let busy = if run_to_completion { core.poll_run_to_completion(now) } else { core.poll_once(now) };
        let stays_awake = busy || core.has_scheduled() || core.has_waiting_events();
        if let Some(sleep) = &mut self.sleep {
            sleep.until = if stays_awake { Instant::ZERO } else { core.next_deadline() };
        }
        busy
    }

    /// Returns when the thread has work, if nothing wakes it before.
    pub(super) fn next_deadline(&self) -> Instant {
        let sleep = self.sleep.as_ref().filter(|sleep| sleep.until > Instant::ZERO && !sleep.bell.has_rung());
        let due = sleep.map_or_else(|| self.core.next_deadline(), |sleep| sleep.until);
        due.max(self.stalls_until)
    }
}
