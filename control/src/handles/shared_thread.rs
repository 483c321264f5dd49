//! The thread of warpline at a device that applications drive too, in turns.
//!
//! While an application polls, the thread keeps away: it sleeps on a descriptor of its own, for 50 µs, then
//! for twice as long, up to a millisecond, and neither the core's bell nor the receive interrupt is armed. So
//! a program that polls in a loop makes no system calls on account of the thread, and pays for a wake-up a
//! millisecond. Once no application polls, be it that it computes, waits for memory to change, or sleeps, the
//! thread polls until 50 µs were idle, then arms bell and interrupt, and sleeps until there is work.

use core::hint;
use std::time::Duration;

use warpline_dataplane::time::{Instant, MICROSECOND, MILLISECOND};

use super::clock::now;
use super::shared_driver::{NotDriven, SharedDriver, TurnOf, TurnTaken};
use super::turns::WithinTurn;
use super::wake_sources::{Armed, POLL_BEFORE_SLEEP_NS};
use crate::vocabulary::duration::nanos;
use crate::vocabulary::poll_thread::Idle;

/// How long before the thread looks the last poll of an application that polls in a loop may be. Such a loop
/// takes less than a microsecond, and some more where it posts; a program that waits for memory to change has
/// longer gaps, those of a peer's answer.
const POLLED_LATELY_NS: u64 = 5 * MICROSECOND;
/// How often the thread tries to get the lock for what does no harm if it is done later.
const TRIES: u32 = 100;

/// How long the thread keeps away from a device that an application polls.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwayTimes {
    /// At first. It doubles each time that an application still polls.
    pub(super) shortest_ns: u64,
    /// At most: what a frame may wait for after the last poll of an application that has not handed over.
    pub(super) longest_ns: u64,
}

impl Default for AwayTimes {
    fn default() -> Self {
        Self { shortest_ns: 50 * MICROSECOND, longest_ns: MILLISECOND }
    }
}

/// Takes turns at `driver` until control is over.
pub(super) fn run(driver: &SharedDriver, idle: Idle, away_times: AwayTimes) {
    // Callbacks that this thread runs do not wait for it.
    let _within_turn = WithinTurn::enter();
    match idle {
        Idle::Spin => {
            while !matches!(take_turn(driver), Err(NotDriven::Over)) {
                hint::spin_loop();
            }
        }
        Idle::Sleep => {
            SharedThread { driver, away_times, away_ns: away_times.shortest_ns, armed: None }.run();
        }
    }
    driver.end();
}

fn take_turn(driver: &SharedDriver) -> Result<TurnTaken, NotDriven> {
    driver.try_drive(|driven| driven.take_turn(TurnOf::Thread))
}

/// The thread of a device that sleeps when there is nothing to do.
struct SharedThread<'a> {
    driver: &'a SharedDriver,
    away_times: AwayTimes,
    /// How long the thread keeps away next.
    away_ns: u64,
    /// What is still armed of the last sleep, and whether something has ended that.
    armed: Option<(Armed, bool)>,
}

/// Why the thread polls no longer.
enum Served {
    /// There is nothing to do.
    Idle,
    /// An application polls.
    ByApplication,
    /// The device serves no more.
    Over,
}

impl SharedThread<'_> {
    fn run(&mut self) {
        loop {
            let mut woken_at = match self.serve() {
                Served::Over => return,
                Served::Idle => self.sleep(),
                Served::ByApplication => self.keep_away(),
            };
            while self.driver.was_polled_since(lately(woken_at)) {
                self.disarm();
                woken_at = self.keep_away();
            }
            self.away_ns = self.away_times.shortest_ns;
        }
    }

    /// Takes turns until nothing was to do for a while, or applications have polled all that while.
    fn serve(&mut self) -> Served {
        let mut idle_since = None;
        // When the thread was last alone.
        let mut alone_at = now();
        loop {
            self.disarm();
            let turn = take_turn(self.driver);
            let at = match turn {
                Ok(turn) => turn.at,
                Err(NotDriven::Taken) => now(),
                Err(NotDriven::Over) => return Served::Over,
            };
            let is_contended = turn.is_err() | self.driver.was_turned_away();
            if !is_contended && !self.driver.was_polled_since(lately(at)) {
                alone_at = at;
            } else if at >= alone_at + *POLL_BEFORE_SLEEP_NS {
                return Served::ByApplication;
            }
            if turn.is_ok_and(|turn| turn.busy) {
                idle_since = None;
                continue;
            }
            if at >= *idle_since.get_or_insert(at) + *POLL_BEFORE_SLEEP_NS {
                return Served::Idle;
            }
            hint::spin_loop();
        }
    }

    /// Sleeps until there is work, or a timer is due. Returns when the thread has woken, or was to wake if
    /// that is earlier.
    fn sleep(&mut self) -> Instant {
        let at_most = self.driver.try_drive(|driven| {
            let armed = driven.arm();
            if driven.take_turn(TurnOf::Thread).busy {
                driven.core.stay_awake(armed);
                return None;
            }
            let at_most = driven.core.time_to_sleep(armed);
            Some((armed, at_most.min(driven.time_to_control_deadline())))
        });
        let Ok(Some((armed, at_most))) = at_most else { return now() };
        let until = now() + nanos(at_most);
        let woken = self.driver.wake_sources.sleep(armed, at_most);
        self.armed = Some((armed, woken));
        // An application that polls may have the lock.
        for _ in 0..TRIES {
            if self.disarm() {
                break;
            }
            hint::spin_loop();
        }
        now().min(until)
    }

    /// Ends what was armed for the last sleep, if anything is, unless an application has the lock. Then the
    /// interrupt is raised for nobody. Returns true if nothing is armed any more.
    fn disarm(&mut self) -> bool {
        let Some((armed, woken)) = self.armed else { return true };
        let disarmed = self.driver.try_drive(|driven| driven.wake(armed, woken));
        if disarmed != Err(NotDriven::Taken) {
            self.armed = None;
        }
        self.armed.is_none()
    }

    /// Sleeps while applications poll, until one hands its turns over, at most for the time for that. Returns
    /// when the thread has woken, or was to wake if that is earlier: an application on the same CPU has not
    /// polled since.
    fn keep_away(&mut self) -> Instant {
        let until = now() + self.away_ns;
        self.driver.away.arm();
        if !self.driver.is_handed_over() && self.driver.recall.wait(Duration::from_nanos(self.away_ns)) {
            self.driver.recall.clear();
        }
        self.driver.away.disarm();
        self.away_ns = (2 * self.away_ns).min(self.away_times.longest_ns);
        now().min(until)
    }
}

/// Returns the earliest time of a poll that makes an application one that polls at `time`.
fn lately(time: Instant) -> Instant {
    Instant::from_nanos(time.as_nanos().saturating_sub(POLLED_LATELY_NS))
}
