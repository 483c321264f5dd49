//! The turns of the two ends: one thread runs at a time, and time passes with the turns.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use warpline::now;
use warpline::open::Eal;
use warpline::time::{Instant, MICROSECOND};

use super::counts::Counts;
use super::turn::{End, target_turn, uncounted_turn, writer_turn};
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
    Turned(Result<bool, BenchError>),
    Counts(Option<Counts>),
    PhaseEnded,
}

/// The writer, and the channel to the target's thread.
pub struct Baton {
    writer: End,
    orders: mpsc::Sender<Order>,
    replies: mpsc::Receiver<Reply>,
    now: Instant,
}

/// Has `work` pass the baton between the two ends. Without a target, the writer's core is both.
///
/// # Errors
///
/// The error of `work`.
pub fn pass<T>(
    eal: Eal,
    writer: End,
    target: Option<End>,
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
fn serve(eal: Eal, mut target: Option<End>, orders: &mpsc::Receiver<Order>, replies: &mpsc::Sender<Reply>) {
    let _lcore = eal.register_thread().ok();
    while let Ok(order) = orders.recv() {
        let reply = match order {
            Order::Turn { now, counted, post } => Reply::Turned(match &mut target {
                Some(target) if counted => target_turn(target, now, post),
                Some(target) => uncounted_turn(target, now, post),
                None => Ok(false),
            }),
            Order::Counts => Reply::Counts(target.as_ref().map(End::counts)),
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
    /// Gives each end `turns` turns that are counted. Returns what the writer and the target, if there is
    /// one, did in them.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when messages fail.
    pub fn count(&mut self, phase: Phase, turns: u32) -> Result<(Counts, Option<Counts>), BenchError> {
        let before = self.counts()?;
        for _ in 0..turns {
            self.turns(phase)?;
        }
        let after = self.counts()?;
        end_of_phase();
        self.ask(Order::EndPhase)?;
        let target = after.1.zip(before.1).map(|(after, before)| after.since(&before));
        Ok((after.0.since(&before.0), target))
    }

    /// Gives both ends turns until `messages` messages have completed at each core: the windows are open
    /// then, and the caches of packet buffers are filled.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when messages fail or do not complete.
    pub fn warm_up(&mut self, messages: u64) -> Result<(), BenchError> {
        for _ in 0..TURNS_MAX {
            let (writer, target) = self.counts()?;
            if writer.least_messages.max(target.map_or(0, |target| target.least_messages)) >= messages {
                return Ok(());
            }
            self.turns(Phase::Unmeasured)?;
        }
        Err(BenchError::Peer("messages do not complete".into()))
    }

    /// Gives both ends turns until nothing is left to do.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when messages fail or do not complete.
    pub fn drain(&mut self) -> Result<(), BenchError> {
        let mut idle = 0;
        for _ in 0..TURNS_MAX {
            let writer = uncounted_turn(&mut self.writer, self.now, false)?;
            let target = self.target(false, false)?;
            idle = if writer || target { 0 } else { idle + 1 };
            if idle == IDLE_TURNS {
                return Ok(());
            }
        }
        Err(BenchError::Peer("messages do not complete".into()))
    }

    fn turns(&mut self, phase: Phase) -> Result<(), BenchError> {
        let counted = phase != Phase::Unmeasured;
        let post = phase != Phase::Idle;
        let turn = if counted { writer_turn } else { uncounted_turn };
        turn(&mut self.writer, self.now, post)?;
        self.target(counted, post).map(|_| ())
    }

    /// Gives the target a turn, and lets time pass.
    fn target(&mut self, counted: bool, post: bool) -> Result<bool, BenchError> {
        let reply = self.ask(Order::Turn { now: self.now, counted, post })?;
        self.now += TURN_NS;
        match reply {
            Reply::Turned(turned) => turned,
            Reply::Counts(_) | Reply::PhaseEnded => Err(out_of_step()),
        }
    }

    fn counts(&self) -> Result<(Counts, Option<Counts>), BenchError> {
        match self.ask(Order::Counts)? {
            Reply::Counts(target) => Ok((self.writer.counts(), target)),
            Reply::Turned(_) | Reply::PhaseEnded => Err(out_of_step()),
        }
    }

    fn ask(&self, order: Order) -> Result<Reply, BenchError> {
        // The thread ends early only by a panic, which it has reported.
        let ended = || BenchError::Setup("the target's thread has ended".into());
        self.orders.send(order).map_err(|_| ended())?;
        self.replies.recv().map_err(|_| ended())
    }
}

fn out_of_step() -> BenchError {
    BenchError::Setup("the target's thread is out of step".into())
}
