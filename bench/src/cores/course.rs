//! The course of a measurement: which of two variants is measured, and when, for all threads that poll.
//!
//! Slices of both take turns, so that a change of the machine's speed meets both. In each the threads first
//! settle, which is not counted; at its end they post nothing more, and poll until nothing is outstanding, so
//! that the variant rests without a timer of TCP's that is due.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use warpline_tools::interrupt;

use crate::endpoint::PATIENCE;
use crate::error::BenchError;

/// How long a slice is measured.
pub const SLICE: Duration = Duration::from_millis(50);
/// How long threads settle before that.
const SETTLE: Duration = Duration::from_millis(10);
/// How often the threads are asked whether they are through.
const LOOK: Duration = Duration::from_micros(200);

/// One of the two that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// What the measurement is about.
    Measured,
    /// What it is held beside.
    Reference,
}

impl Variant {
    /// Returns its place among what a thread has for either.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// They poll for those who open connections.
    SetUp,
    /// They post and poll, and nothing is counted.
    Settle(Variant),
    /// They post and poll, and messages are counted.
    Measure(Variant),
    /// They poll until nothing is outstanding, and on.
    Drain(Variant),
    /// They end.
    End,
}

impl Stage {
    const ALL: [Self; 8] = [
        Self::SetUp,
        Self::Settle(Variant::Measured),
        Self::Settle(Variant::Reference),
        Self::Measure(Variant::Measured),
        Self::Measure(Variant::Reference),
        Self::Drain(Variant::Measured),
        Self::Drain(Variant::Reference),
        Self::End,
    ];
}

/// The stage of a measurement, which one thread sets and others follow.
pub struct Course {
    /// The stage's place among all, and above it how many stages there have been.
    stage: CachePadded<AtomicU32>,
    /// By thread: the last stage that it is through with.
    through: Vec<CachePadded<AtomicU32>>,
    /// A thread has ended early, by an error that it returns.
    failed: AtomicBool,
}

/// A stage, and its number among those that there have been.
pub type Numbered = (u32, Stage);

impl Course {
    /// The stage that a course begins with.
    pub const FIRST: Numbered = (0, Stage::SetUp);

    /// Returns the course of so many threads, which begin to set up.
    pub fn new(threads: usize) -> Self {
        let through = (0..threads).map(|_| CachePadded::default()).collect();
        Self { stage: CachePadded::default(), through, failed: AtomicBool::new(false) }
    }

    /// Returns the stage.
    #[inline]
    pub fn stage(&self) -> Numbered {
        let stages = Stage::ALL.len() as u32;
        let stage = self.stage.load(Ordering::Acquire);
        (stage / stages, Stage::ALL[(stage % stages) as usize])
    }

    /// Begins another stage. For one thread.
    pub fn enter(&self, stage: Stage) {
        let place = Stage::ALL.iter().position(|other| *other == stage).unwrap_or_default() as u32;
        self.stage.store((self.stage().0 + 1) * Stage::ALL.len() as u32 + place, Ordering::Release);
    }

    /// Says that a thread is through with the stage with this number: while messages are counted it has
    /// counted one, and while they drain, none is outstanding.
    #[inline]
    pub fn set_through(&self, thread: usize, number: u32) {
        if self.through[thread].load(Ordering::Relaxed) != number {
            self.through[thread].store(number, Ordering::Release);
        }
    }

    /// Says that a thread ends early.
    pub fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns true if threads need not go on: one has failed, or the command is to end.
    pub fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || interrupt::is_requested()
    }

    /// Has the threads go through pairs of slices; breaks early if a thread has failed, or the command is to
    /// end. A slice goes on until each thread has counted a message in it: one without a CPU may be late.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] if no message is transferred, or messages do not complete.
    pub fn run_pairs(&self, pairs: u32) -> Result<ControlFlow<()>, BenchError> {
        for _ in 0..pairs {
            for variant in [Variant::Measured, Variant::Reference] {
                self.enter(Stage::Settle(variant));
                thread::sleep(SETTLE);
                self.enter(Stage::Measure(variant));
                thread::sleep(SLICE);
                let transferred = self.wait("no message was transferred in a slice")?;
                if transferred.is_break() || self.drain(variant)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Has the threads poll until nothing of `variant` is outstanding.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] if messages do not complete.
    pub fn drain(&self, variant: Variant) -> Result<ControlFlow<()>, BenchError> {
        self.enter(Stage::Drain(variant));
        self.wait("messages do not complete")
    }

    /// Waits until all threads are through with the stage. If they never are, `missing` says what that means.
    fn wait(&self, missing: &str) -> Result<ControlFlow<()>, BenchError> {
        let (number, _) = self.stage();
        let deadline = Instant::now() + PATIENCE;
        while self.through.iter().any(|through| through.load(Ordering::Acquire) != number) {
            if self.is_over() {
                return Ok(ControlFlow::Break(()));
            }
            if Instant::now() > deadline {
                return Err(BenchError::Peer(missing.into()));
            }
            thread::sleep(LOOK);
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_read_as_it_was_entered() {
        let course = Course::new(1);
        assert_eq!(course.stage(), Course::FIRST);
        for (number, stage) in (1..).zip(Stage::ALL) {
            course.enter(stage);
            assert_eq!(course.stage(), (number, stage));
        }
    }

    /// Threads that have drained an earlier stage have not drained this one.
    #[test]
    fn a_course_waits_for_every_thread() {
        let course = Course::new(2);
        let waits = |course: &Course| {
            thread::scope(|scope| {
                let drained = scope.spawn(|| course.drain(Variant::Reference));
                while !matches!(course.stage(), (_, Stage::Drain(_))) {
                    thread::yield_now();
                }
                let (number, _) = course.stage();
                course.set_through(0, number);
                course.set_through(1, number - 1);
                thread::sleep(5 * LOOK);
                let waited = !drained.is_finished();
                course.set_through(1, number);
                let flow = drained.join().unwrap().unwrap();
                course.enter(Stage::SetUp);
                (waited, flow)
            })
        };
        assert_eq!(waits(&course), (true, ControlFlow::Continue(())));
        assert_eq!(waits(&course), (true, ControlFlow::Continue(())));
        course.set_failed();
        assert_eq!(course.drain(Variant::Measured).unwrap(), ControlFlow::Break(()));
    }
}
