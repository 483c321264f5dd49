//! The queue pairs between one core of the near device and one of the far device, and the RDMA Writes on
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use warpline::{Advertisement, Completion, CompletionQueue, MemoryRegion, QueuePair, SendBatch, Status};

use crate::error::BenchError;

/// Steps of a lane that is paced between two readings of the clock.
const STEPS: u32 = 64;

/// Writes that have completed, by queue pair, where one thread polls the completions of all of them.
pub type Credits = Arc<[CachePadded<AtomicU64>]>;

/// Where a lane learns of completions.
pub enum Completions {
    /// From a queue of its own.
    Own(CompletionQueue),
    /// From the thread that polls the queue of all lanes.
    Credited(Credits),
}

/// The memory of a lane: that of its Writes, and where they go to. Other lanes may have the same regions, and
/// other parts of them.
pub struct Memory {
    /// At the near device.
    pub source: Arc<MemoryRegion>,
    /// At the far device.
    #[expect(dead_code, reason = "it is registered as long as it is here")]
    pub sink: Arc<MemoryRegion>,
    /// The first byte of the lane's part of both.
    pub start: usize,
    /// The lane's part of the sink.
    pub advertisement: Advertisement,
}

/// The queue pairs between two cores.
pub struct Lane {
    pub qps: Vec<QueuePair>,
    /// Their other ends.
    #[expect(dead_code, reason = "they are connected as long as they are here")]
    pub far_qps: Vec<QueuePair>,
    pub memory: Memory,
    pub completions: Completions,
    /// The number of the first queue pair among those of all lanes: completions name queue pairs by these.
    pub first_qp: usize,
    /// Bytes of a Write, and Writes that a queue pair may have outstanding.
    pub size: u32,
    pub depth: u64,
    /// The least time between two Writes, if they are paced.
    pub pace: Option<Pace>,
    /// By queue pair.
    pub posted: Vec<u64>,
    pub completed: Vec<u64>,
    pub polled: Vec<Completion>,
}

/// What keeps a lane from more than a Write in `interval`.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    interval: Duration,
    next: Instant,
    steps: u32,
}

impl Pace {
    /// Returns the pace of a Write in `interval`.
    pub fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now(), steps: 0 }
    }

    /// Returns true if a Write is due, and takes it as posted.
    fn takes_turn(&mut self) -> bool {
        self.steps = (self.steps + 1) % STEPS;
        if self.steps != 0 {
            return false;
        }
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + self.interval;
        }
        is_due
    }
}

impl Lane {
    /// Takes what has completed, and posts as many Writes as may be outstanding, if it is to `post`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when a Write has failed, or a queue pair takes no more.
    #[inline]
    pub fn step(&mut self, post: bool) -> Result<(), BenchError> {
        self.take_completions()?;
        if !post {
            return Ok(());
        }
        let most = match &mut self.pace {
            None => u64::MAX,
            Some(pace) => u64::from(pace.takes_turn()),
        };
        for index in 0..self.qps.len() {
            let outstanding = self.posted[index] - self.completed[index];
            let count = (self.depth - outstanding).min(most);
            if count > 0 {
                self.post(index, count)?;
            }
        }
        Ok(())
    }

    /// Posts a Write of the first bytes of its memory to `sink`, which does not count.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when the first queue pair takes no more.
    pub fn write_once(&self, sink: &Advertisement) -> Result<(), BenchError> {
        let refused = |error: &dyn std::fmt::Display| BenchError::Peer(error.to_string());
        let mut batch = self.qps[0].batch();
        let local = self.memory.source.slice(self.memory.start, self.size);
        batch.write(self.first_qp as u64, local, sink, 0).map_err(|error| refused(&error))?;
        batch.commit().map_err(|error| refused(&error))
    }

    /// Returns how many Writes have completed.
    pub fn messages(&self) -> u64 {
        self.completed.iter().sum()
    }

    /// Returns true if no Write is outstanding.
    pub fn is_done(&self) -> bool {
        self.posted == self.completed
    }

    fn take_completions(&mut self) -> Result<(), BenchError> {
        match &self.completions {
            Completions::Own(queue) => {
                while queue.poll_into(&mut self.polled) > 0 {
                    for completion in self.polled.drain(..) {
                        check(&completion)?;
                        self.completed[completion.id as usize - self.first_qp] += 1;
                    }
                }
            }
            Completions::Credited(credits) => {
                for (completed, credit) in self.completed.iter_mut().zip(&credits[self.first_qp..]) {
                    *completed = credit.load(Ordering::Acquire);
                }
            }
        }
        Ok(())
    }

    /// Posts so many Writes on a queue pair that has room for them.
    fn post(&mut self, index: usize, count: u64) -> Result<(), BenchError> {
        let end = self.posted[index] + count;
        while self.posted[index] < end {
            let batch_end = end.min(self.posted[index] + SendBatch::CAPACITY as u64);
            self.post_batch(index, batch_end)?;
        }
        Ok(())
    }

    fn post_batch(&mut self, index: usize, end: u64) -> Result<(), BenchError> {
        let Self { memory, size, depth, first_qp, .. } = self;
        let refused = |error: &dyn std::fmt::Display| BenchError::Peer(error.to_string());
        let mut batch = self.qps[index].batch();
        for number in self.posted[index]..end {
            let at = number % *depth * u64::from(*size);
            let local = memory.source.slice(memory.start + at as usize, *size);
            let id = (*first_qp + index) as u64;
            batch.write(id, local, &memory.advertisement, at).map_err(|error| refused(&error))?;
        }
        batch.commit().map_err(|error| refused(&error))?;
        self.posted[index] = end;
        Ok(())
    }
}

fn check(completion: &Completion) -> Result<(), BenchError> {
    if completion.status == Status::Success {
        return Ok(());
    }
    Err(BenchError::Peer(format!("a Write ended with {:?}", completion.status)))
}

/// The poller of a completion queue that all lanes share. It credits each lane with what has completed.
pub struct Collector {
    queue: CompletionQueue,
    credits: Credits,
    /// The credits, which this thread alone writes.
    completed: Vec<u64>,
    polled: Vec<Completion>,
}

impl Collector {
    /// Returns a poller of `queue`, which has the completions of `qps` queue pairs.
    pub fn new(queue: CompletionQueue, qps: usize) -> Self {
        let credits = (0..qps).map(|_| CachePadded::default()).collect();
        let polled = Vec::with_capacity(queue.capacity());
        Self { queue, credits, completed: vec![0; qps], polled }
    }

    /// Returns the credits of all queue pairs.
    pub fn credits(&self) -> Credits {
        self.credits.clone()
    }

    /// Returns the queue.
    pub const fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Takes what has completed.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when a Write has failed.
    pub fn step(&mut self) -> Result<(), BenchError> {
        while self.queue.poll_into(&mut self.polled) > 0 {
            for completion in self.polled.drain(..) {
                check(&completion)?;
                self.completed[completion.id as usize] += 1;
            }
            for (credit, completed) in self.credits.iter().zip(&self.completed) {
                // A line that does not change stays with the thread that reads it.
                if credit.load(Ordering::Relaxed) != *completed {
                    credit.store(*completed, Ordering::Release);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paced_lane_posts_at_most_once_an_interval() {
        let turns = |pace: &mut Pace| (0..10 * STEPS).filter(|_| pace.takes_turn()).count();
        assert_eq!(turns(&mut Pace::new(Duration::from_hours(1))), 1);
        assert_eq!(turns(&mut Pace::new(Duration::ZERO)), 10, "once for each look at the clock");
    }
}
