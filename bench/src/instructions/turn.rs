//! The two ends, and what they do in their turns.

use warpline::time::Instant;
use warpline::{Completion, CompletionKind, CoreDriver, ReceiveRequest, Statistics};

use super::bytes::{Receiver, Sender};
use super::case::DEPTH;
use super::counts::Counts;
use super::lane::{Lane, check};
use super::pings::Pings;
use crate::error::BenchError;

/// An end: the cores of its device.
pub struct End {
    pub cores: Vec<EndCore>,
}

/// A core, and the application on it.
pub struct EndCore {
    pub driver: CoreDriver,
    pub work: Work,
    /// The other end's queue pairs, if they are on this core.
    #[expect(dead_code, reason = "they serve as long as they are here")]
    pub other: Option<Lane>,
}

/// What the application of an end does.
pub enum Work {
    /// Posts as many requests as may be outstanding.
    Requests(Requests),
    /// Consumes what the other end sends, and posts receives again.
    Receives(Receives),
    /// Pings, or answers.
    Pings(Pings),
    /// Writes to a byte stream.
    Sends(Sender),
    /// Reads a byte stream.
    Reads(Receiver),
}

impl End {
    /// Does what is to be done at this end, and polls its cores. Returns true if there was anything to do.
    fn turn(&mut self, now: Instant, post: bool) -> Result<bool, BenchError> {
        let mut worked = false;
        for core in &mut self.cores {
            worked |= core.turn(now, post)?;
        }
        Ok(worked)
    }

    /// Returns true if nothing that it posted is outstanding.
    fn is_done(&self) -> bool {
        self.cores.iter().all(EndCore::is_done)
    }

    /// Returns what its cores have done so far.
    pub fn counts(&self) -> Counts {
        let mut sum = Statistics::default();
        for core in &self.cores {
            sum.add(&core.driver.statistics());
        }
        Counts::new(&sum, &self.cores.iter().map(EndCore::messages).collect::<Vec<_>>())
    }
}

impl EndCore {
    /// Does what is to be done, and polls the core. Returns true if there was anything to do.
    fn turn(&mut self, now: Instant, post: bool) -> Result<bool, BenchError> {
        let Self { driver, work, .. } = self;
        Ok(match work {
            Work::Requests(requests) => {
                requests.step(post)?;
                driver.poll_at(now)
            }
            Work::Receives(receives) => {
                let worked = driver.poll_at(now);
                receives.step()?;
                worked
            }
            Work::Pings(pings) => {
                // As between the arrival of a ping and the next wait.
                let worked = driver.poll_at(now) | pings.step(post)?;
                worked | driver.poll_at(now)
            }
            Work::Sends(sender) => {
                if post {
                    sender.step()?;
                }
                driver.poll_at(now)
            }
            Work::Reads(receiver) => {
                let worked = driver.poll_at(now);
                receiver.step()?;
                worked
            }
        })
    }

    /// Returns true if nothing that it posted is outstanding.
    fn is_done(&self) -> bool {
        match &self.work {
            Work::Requests(requests) => requests.completed == requests.posted,
            Work::Pings(pings) => pings.completed == pings.posted,
            Work::Sends(sender) => sender.is_done(),
            Work::Receives(_) | Work::Reads(_) => true,
        }
    }

    /// Returns how many messages have completed.
    fn messages(&self) -> u64 {
        match &self.work {
            Work::Requests(requests) => requests.completed,
            Work::Pings(pings) => pings.posted,
            Work::Sends(sender) => sender.acknowledged(),
            Work::Receives(_) | Work::Reads(_) => 0,
        }
    }
}

/// Requests of an end, as many as may be outstanding.
pub struct Requests {
    lane: Lane,
    /// Requests posted in a turn at most.
    batch: u64,
    /// Requests posted in all, at most.
    limit: u64,
    polled: Vec<Completion>,
    posted: u64,
    completed: u64,
}

impl Requests {
    /// Returns requests of `lane`, up to `batch` a turn, and `limit` altogether.
    pub fn new(lane: Lane, batch: u64, limit: u64) -> Self {
        let polled = Vec::with_capacity(2 * DEPTH as usize);
        Self { lane, batch, limit, polled, posted: 0, completed: 0 }
    }

    /// Consumes what has completed, and posts the next requests.
    fn step(&mut self, post: bool) -> Result<(), BenchError> {
        while self.lane.completions.poll_into(&mut self.polled) > 0 {
            for completion in self.polled.drain(..) {
                check(&completion)?;
                self.completed += 1;
            }
        }
        let count = (self.completed + DEPTH - self.posted).min(self.batch).min(self.limit - self.posted);
        if post && count > 0 {
            self.lane.post(self.posted, self.posted + count)?;
            self.posted += count;
        }
        Ok(())
    }
}

/// Receives of an end for what the other one sends.
pub struct Receives {
    lane: Lane,
    polled: Vec<Completion>,
    /// Receives to post again.
    returned: Vec<ReceiveRequest>,
}

impl Receives {
    /// Returns receives of `lane`, which are posted.
    pub fn new(lane: Lane) -> Self {
        let [polled, returned] = [2 * DEPTH as usize, DEPTH as usize];
        Self { lane, polled: Vec::with_capacity(polled), returned: Vec::with_capacity(returned) }
    }

    /// Consumes what has completed, and posts those receives again, in one list.
    fn step(&mut self) -> Result<(), BenchError> {
        while self.lane.completions.poll_into(&mut self.polled) > 0 {
            for completion in self.polled.drain(..) {
                check(&completion)?;
                if completion.kind == CompletionKind::Receive {
                    self.returned.push(self.lane.receive(completion.id));
                }
            }
        }
        if !self.returned.is_empty() {
            self.lane.post_receives(&self.returned)?;
            self.returned.clear();
        }
        Ok(())
    }
}

/// A turn that is not counted. Returns true if there was anything to do, or is anything outstanding.
///
/// # Errors
///
/// [`BenchError::Peer`] when a request fails, or the queue pair takes no more.
pub fn uncounted_turn(end: &mut End, now: Instant, post: bool) -> Result<bool, BenchError> {
    Ok(end.turn(now, post)? || !end.is_done())
}

/// A turn of the writer that is counted.
///
/// # Errors
///
/// As [`uncounted_turn`].
#[inline(never)]
pub fn writer_turn(end: &mut End, now: Instant, post: bool) -> Result<bool, BenchError> {
    // Two functions of the same code would be made one.
    std::hint::black_box("writer");
    end.turn(now, post)
}

/// A turn of the target that is counted.
///
/// # Errors
///
/// As [`uncounted_turn`].
#[inline(never)]
pub fn target_turn(end: &mut End, now: Instant, post: bool) -> Result<bool, BenchError> {
    std::hint::black_box("target");
    end.turn(now, post)
}
