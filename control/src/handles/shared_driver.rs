//! A core and its control engine under one lock: applications and a thread of warpline drive them in turns.
//!
//! The applications come first. Each turn of theirs leaves the time of its poll, and warpline's thread, when
//! something has woken it, keeps away if such a poll was just now (`shared_thread`). No thread ever waits for
//! the lock: one that finds it taken leaves the work to the thread that has it, or comes again.
//!
//! Nothing is lost between the two. The thread sleeps without a limit only after a poll with its waker armed
//! that has found nothing, and everything that gives the core or control work from then on wakes it:
//! doorbells, requests and commands by the waker, frames by the waker or the interrupt. A turn of an
//! application may take the frame of an interrupt before the thread has looked, which then sleeps on: so a
//! turn that had anything to do wakes a thread that sleeps, once. So no deadline becomes earlier than the one
//! that the thread sleeps until, and no work remains, without the thread being woken.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use warpline_dataplane::time::Instant;
use warpline_dataplane::waker::Waker;

use super::clock::now;
use super::control_loop::{ControlLoop, Round};
use super::driver::CoreDriver;
use super::event_fd::EventFd;
use super::turns::{TakeTurns, WithinTurn};
use super::wake_sources::{Armed, WakeSources};

/// What the lock is for: the thread that has it drives both.
pub(super) struct Driven {
    /// `None` once the device serves no more.
    control: Option<Box<ControlLoop>>,
    /// Control after its last round, which is dropped without the lock.
    ended_control: Option<Box<ControlLoop>>,
    pub(super) core: CoreDriver,
    /// Whether there was anything to do since the thread has armed what wakes it.
    busy_since_armed: bool,
    /// Whether there is work for control.
    control_has_work: Arc<AtomicBool>,
    /// When control has work even if nothing happens.
    pub(super) control_deadline: Instant,
}

/// Who takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnOf {
    /// A thread of the application: it answers between its turns.
    Application,
    /// Warpline's thread: what arrives is answered at once.
    Thread,
}

/// A turn that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnTaken {
    /// The time of its poll.
    pub(super) at: Instant,
    /// Whether there was anything to do, or is for the next.
    pub(super) busy: bool,
}

impl Driven {
    /// Polls the core, and has control do what there is to do before and after.
    #[inline]
    pub(super) fn take_turn(&mut self, of: TurnOf) -> TurnTaken {
        let at = self.core.read_clock();
        // Before the poll: the core carries out the commands that follow from a request.
        let mut busy = self.drive_control(at);
        busy |= match of {
            TurnOf::Application => self.core.poll_at(at),
            TurnOf::Thread => self.core.poll_alone_at(at),
        };
        busy |= self.drive_control(at);
        self.busy_since_armed |= busy;
        TurnTaken { at, busy }
    }

    /// Has work wake the thread that is about to sleep, which takes a turn before it does.
    pub(super) fn arm(&mut self) -> Armed {
        self.busy_since_armed = false;
        self.core.arm()
    }

    /// Ends what [`arm`](Self::arm) has begun, after a sleep that something has ended if `woken`.
    pub(super) fn wake(&mut self, armed: Armed, woken: bool) {
        self.core.wake(armed, woken, self.busy_since_armed);
    }

    /// Has control do what there is to do. Returns true if there was anything.
    #[inline]
    fn drive_control(&mut self, now: Instant) -> bool {
        (self.control_has_work.load(Ordering::Relaxed) || now >= self.control_deadline) && self.go_round()
    }

    fn go_round(&mut self) -> bool {
        let Some(control) = &mut self.control else { return false };
        // Before the round: work that comes during it is for the next.
        self.control_has_work.swap(false, Ordering::Acquire);
        let round = control.go_round();
        self.control_deadline = control.next_deadline();
        if round == Round::Last {
            self.ended_control = self.control.take();
        }
        round != Round::Idle
    }

    /// Returns the time until control has work even if nothing happens.
    pub(super) fn time_to_control_deadline(&self) -> Duration {
        Duration::from_nanos(self.control_deadline - now())
    }
}

/// Why a thread does not drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotDriven {
    /// Another thread has the lock, or this one does already.
    Taken,
    /// The device serves no more.
    Over,
}

/// A core and its control engine that applications and a thread of warpline drive in turns.
pub(super) struct SharedDriver {
    driven: Mutex<Option<Driven>>,
    /// The time of the last poll of an application, in nanoseconds; 0 if there was none since the turns were
    /// handed over.
    polled_at_ns: AtomicU64,
    /// An application has found the lock taken.
    turned_away: AtomicBool,
    /// This process is a child of the one that has the device.
    abandoned: AtomicBool,
    /// What the thread sleeps on while there is nothing to do.
    pub(super) wake_sources: Arc<WakeSources>,
    /// Armed while the thread keeps away.
    pub(super) away: Waker,
    /// What it sleeps on then.
    pub(super) recall: Arc<EventFd>,
}

impl SharedDriver {
    /// Returns a driver of `core` and `control`; `control_has_work` says when control must go round. The
    /// thread is called back by `recall` where it keeps away.
    pub(super) fn new(
        core: CoreDriver,
        control: ControlLoop,
        control_has_work: Arc<AtomicBool>,
        recall: EventFd,
    ) -> Self {
        let wake_sources = core.wake_sources();
        let recall = Arc::new(recall);
        let driven = Driven {
            control: Some(Box::new(control)),
            ended_control: None,
            core,
            busy_since_armed: false,
            control_has_work,
            // Its first round finds out.
            control_deadline: Instant::ZERO,
        };
        Self {
            driven: Mutex::new(Some(driven)),
            polled_at_ns: AtomicU64::new(0),
            turned_away: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            wake_sources,
            away: Waker::new(recall.clone()),
            recall,
        }
    }

    /// Does `drive` under the lock, unless another thread has it.
    #[inline]
    pub(super) fn try_drive<R>(&self, drive: impl FnOnce(&mut Driven) -> R) -> Result<R, NotDriven> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(NotDriven::Over);
        }
        let _within_turn = WithinTurn::enter();
        // Dropped after the guard of the lock.
        let _end_after_panic = EndAfterPanic(self);
        let mut place = match self.driven.try_lock() {
            Ok(place) => place,
            Err(TryLockError::WouldBlock) => return Err(NotDriven::Taken),
            Err(TryLockError::Poisoned(_)) => return Err(NotDriven::Over),
        };
        let driven = place.as_mut().filter(|driven| driven.control.is_some()).ok_or(NotDriven::Over)?;
        let result = drive(driven);
        if let Some(control) = driven.ended_control.take() {
            drop(place);
            self.end_control(control);
        }
        Ok(result)
    }

    /// Drops control after its last round, without the lock: callbacks that learn of the end may call the
    /// API. The thread then ends.
    #[cold]
    fn end_control(&self, control: Box<ControlLoop>) {
        drop(control);
        self.away.wake();
    }

    /// Polls what control has caused last, and drops the core. For the thread, when control is over.
    pub(super) fn end(&self) {
        let _within_turn = WithinTurn::enter();
        let mut place = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driven) = &mut *place {
            driven.core.poll_last();
        }
        let driven = place.take();
        drop(place);
        drop(driven);
    }

    /// Returns true if an application has polled a moment before `time`, or since.
    pub(super) fn was_polled_since(&self, time: Instant) -> bool {
        let polled_at_ns = self.polled_at_ns.load(Ordering::Relaxed);
        polled_at_ns != 0 && polled_at_ns >= time.as_nanos()
    }

    /// Returns true if an application has found the lock taken since the last call.
    pub(super) fn was_turned_away(&self) -> bool {
        self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::Relaxed)
    }

    /// Returns true if an application has handed its turns over, and none has polled since.
    pub(super) fn is_handed_over(&self) -> bool {
        self.polled_at_ns.load(Ordering::Relaxed) == 0
    }
}

impl TakeTurns for SharedDriver {
    fn turn(&self) -> bool {
        match self.try_drive(|driven| driven.take_turn(TurnOf::Application)) {
            Ok(turn) => {
                self.polled_at_ns.store(turn.at.as_nanos(), Ordering::Relaxed);
                if turn.busy {
                    self.wake_sources.waker.wake();
                }
                turn.busy
            }
            Err(NotDriven::Taken) => {
                if !self.turned_away.load(Ordering::Relaxed) {
                    self.turned_away.store(true, Ordering::Relaxed);
                }
                false
            }
            Err(NotDriven::Over) => false,
        }
    }

    fn hand_over(&self) {
        // Before the thread is looked at, which looks at this after it has armed its waker.
        self.polled_at_ns.store(0, Ordering::Relaxed);
        self.away.wake();
    }

    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    fn thread_is_away(&self) -> bool {
        self.away.is_armed()
    }

    #[cfg(test)]
    fn thread_is_asleep(&self) -> bool {
        self.wake_sources.waker.is_armed()
    }
}

impl fmt::Debug for SharedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedDriver").finish_non_exhaustive()
    }
}

/// Ends the device after a panic under the lock: nobody waits for a core that is in no order.
struct EndAfterPanic<'a>(&'a SharedDriver);

impl Drop for EndAfterPanic<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.driven.is_poisoned() {
            self.0.end_after_panic();
        }
    }
}

impl SharedDriver {
    #[cold]
    fn end_after_panic(&self) {
        let driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Control first, which wakes the thread.
        drop(driven);
        self.away.wake();
    }
}

#[cfg(test)]
mod tests;
