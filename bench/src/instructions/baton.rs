//! The turns of the two ends: one thread runs at a time, and time passes with the turns.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use warpline::now;
use warpline::open::Eal;
use warpline::time::{Instant, MICROSECOND};

use super::turn::{Counts, Target, Writer, target_turn, writer_turn};
use crate::error::BenchError;

/// Virtual time from one turn of the two ends to the next: about what 32 segments take.
const TURN_NS: u64 = 20 * MICROSECOND;
/// Turns in which neither end may find anything before both are idle.
const IDLE_TURNS: u32 = 64;
/// Turns after which the ends must be warm, or idle.
const TURNS_MAX: u32 = 100_000;

/// The kinds of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The writer posts; nothing is counted.
    Unmeasured,
    /// The writer posts, and instructions are counted.
    Measured,
    /// The writer does not post, and instructions are counted.
    Idle,
}

/// What the target's thread has to do.
enum Order {
    /// Take a turn at this time, counted or not, and post or not. The answer says whether there was
    /// anything to do.
    Turn { now: Instant, counted: bool, post: bool },
    /// Return the counts.
    Counts,
    /// A phase has ended.
    EndPhase,
}

enum Reply {
    Turned(bool),
    Counts(Result<Counts, BenchError>),
    PhaseEnded,
}

/// The writer, and the channel to the target's thread.
pub struct Baton {
    writer: Writer,
    orders: mpsc::Sender<Order>,
    replies: mpsc::Receiver<Reply>,
    now: Instant,
}

/// Has `work` pass the baton between the two ends.
///
/// # Errors
///
/// The error of `work`.
pub fn pass<T>(
    eal: Eal,
    (writer, target): (Writer, Target),
    work: impl FnOnce(&mut Baton) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let (orders, ordered) = mpsc::channel();
    let (replying, replies) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || serve(eal, target, &ordered, &replying));
        // A cache of packet buffers for this thread, where the EAL has a number left for it.
        let _lcore = eal.register_thread().ok();
        work(&mut Baton { writer, orders, replies, now: now() })
    })
}

/// Does the target's turns until the baton is dropped.
fn serve(eal: Eal, mut target: Target, orders: &mpsc::Receiver<Order>, replies: &mpsc::Sender<Reply>) {
    let _lcore = eal.register_thread().ok();
    while let Ok(order) = orders.recv() {
        let reply = match order {
            Order::Turn { now, counted: true, post } => Reply::Turned(target_turn(&mut target, now, post)),
            Order::Turn { now, counted: false, post } => Reply::Turned(target.turn(now, post)),
            Order::Counts => Reply::Counts(target.counts()),
            Order::EndPhase => {
                end_of_phase();
                Reply::PhaseEnded
            }
        };
        if replies.send(reply).is_err() {
            return;
        }
    }
}

/// Callgrind writes out and clears the counts of a thread when this returns (`--dump-after`).
#[inline(never)]
fn end_of_phase() {
    black_box(());
}

impl Baton {
    /// Gives each end `turns` turns that are counted. Returns what the writer and the target did in them.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when Writes fail.
    pub fn count(&mut self, phase: Phase, turns: u32) -> Result<[Counts; 2], BenchError> {
        let before = self.counts()?;
        for _ in 0..turns {
            self.turns(phase)?;
        }
        let after = self.counts()?;
        end_of_phase();
        self.ask(Order::EndPhase)?;
        Ok([after[0].since(&before[0]), after[1].since(&before[1])])
    }

    /// Gives both ends turns until `messages` messages have completed: the windows are open then, and the
    /// caches of packet buffers are filled.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when Writes fail or do not complete.
    pub fn warm_up(&mut self, messages: u64) -> Result<(), BenchError> {
        for _ in 0..TURNS_MAX {
            if self.counts()?.iter().any(|counts| counts.messages >= messages) {
                return Ok(());
            }
            self.turns(Phase::Unmeasured)?;
        }
        Err(BenchError::Peer("Writes do not complete".into()))
    }

    /// Gives both ends turns until nothing is left to do.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when Writes fail or do not complete.
    pub fn drain(&mut self) -> Result<(), BenchError> {
        let mut idle = 0;
        for _ in 0..TURNS_MAX {
            let writer = self.writer.turn(self.now, false)?;
            let target = self.target(false, false)?;
            idle = if writer || target || !self.writer.is_done() { 0 } else { idle + 1 };
            if idle == IDLE_TURNS {
                return Ok(());
            }
        }
        Err(BenchError::Peer("Writes do not complete".into()))
    }

    fn turns(&mut self, phase: Phase) -> Result<(), BenchError> {
        let counted = phase != Phase::Unmeasured;
        let post = phase != Phase::Idle;
        if counted {
            writer_turn(&mut self.writer, self.now, post)?;
        } else {
            self.writer.turn(self.now, post)?;
        }
        self.target(counted, post).map(|_| ())
    }

    /// Gives the target a turn, and lets time pass.
    fn target(&mut self, counted: bool, post: bool) -> Result<bool, BenchError> {
        let turned = self.ask(Order::Turn { now: self.now, counted, post })?;
        self.now += TURN_NS;
        Ok(matches!(turned, Reply::Turned(true)))
    }

    fn counts(&self) -> Result<[Counts; 2], BenchError> {
        let writer = self.writer.counts()?;
        match self.ask(Order::Counts)? {
            Reply::Counts(target) => Ok([writer, target?]),
            Reply::Turned(_) | Reply::PhaseEnded => {
                Err(BenchError::Setup("the target's thread has lost its place".into()))
            }
        }
    }

    fn ask(&self, order: Order) -> Result<Reply, BenchError> {
        // The thread ends early only by a panic, which it has reported.
        let ended = || BenchError::Setup("the target's thread has ended".into());
        self.orders.send(order).map_err(|_| ended())?;
        self.replies.recv().map_err(|_| ended())
    }
}
