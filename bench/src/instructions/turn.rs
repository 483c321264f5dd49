//! The two ends, and what they do in their turns.

use serde::Serialize;
use warpline::time::Instant;
use warpline::{
    Advertisement, Completion, CompletionQueue, CoreDriver, MemoryRegion, QueuePair, SendBatch, Statistics,
    Status,
};

use super::pings::Pings;
use crate::device::BenchDevice;
use crate::error::BenchError;

/// Writes outstanding at most.
pub const DEPTH: u64 = 128;
/// Writes posted in a turn at most.
const BATCH: u64 = 16;
const _: () = assert!(BATCH as usize <= SendBatch::CAPACITY);

/// What an end did.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Counts {
    /// Times it was polled.
    pub polls: u64,
    /// Of these, those that found nothing to do.
    pub idle_polls: u64,
    /// Writes of the writer that completed; answers of the target that were posted.
    pub messages: u64,
    /// FPDUs sent by the writer, received by the target.
    pub fpdus: u64,
    /// Frames it received and sent.
    pub frames_received: u64,
    pub frames_sent: u64,
    /// Segments with data that it sent.
    pub data_segments_sent: u64,
    /// Of these, those sent before.
    pub retransmitted_segments: u64,
}

impl Counts {
    fn new(statistics: &Statistics, messages: u64) -> Self {
        Self {
            polls: statistics.polls,
            idle_polls: statistics.idle_polls,
            messages,
            fpdus: statistics.fpdus_sent + statistics.fpdus_received,
            frames_received: statistics.frames_received,
            frames_sent: statistics.frames_sent,
            data_segments_sent: statistics.tcp.data_segments_sent,
            retransmitted_segments: statistics.tcp.retransmitted_segments,
        }
    }

    /// Returns what was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            polls: self.polls - before.polls,
            idle_polls: self.idle_polls - before.idle_polls,
            messages: self.messages - before.messages,
            fpdus: self.fpdus - before.fpdus,
            frames_received: self.frames_received - before.frames_received,
            frames_sent: self.frames_sent - before.frames_sent,
            data_segments_sent: self.data_segments_sent - before.data_segments_sent,
            retransmitted_segments: self.retransmitted_segments - before.retransmitted_segments,
        }
    }
}

/// The queue pairs of an end, and the memory of both ends.
pub struct Lane {
    /// At least one; they take turns.
    pub qps: Vec<QueuePair>,
    pub completions: CompletionQueue,
    /// The memory that Writes come from.
    pub source: MemoryRegion,
    /// The memory that the other end writes to.
    pub exposed: MemoryRegion,
    /// The other end's memory.
    pub sink: Advertisement,
    /// Bytes of a message.
    pub size: u32,
}

impl Lane {
    /// Returns the queue pair of Write `number`.
    pub fn qp(&self, number: u64) -> &QueuePair {
        &self.qps[number as usize % self.qps.len()]
    }

    /// Returns how many Writes one queue pair has posted before the next one's turn.
    fn writes_in_a_row(&self) -> u64 {
        if self.qps.len() == 1 { u64::MAX } else { 1 }
    }
}

/// The end that writes.
pub struct Writer {
    pub driver: CoreDriver<BenchDevice>,
    pub lane: Lane,
    /// Its pings, if it does not stream.
    pub pings: Option<Pings>,
    pub polled: Vec<Completion>,
    pub posted: u64,
    pub completed: u64,
    /// The first completion that was no success.
    pub failed: Option<Status>,
}

impl Writer {
    /// Does what is to be done at this end, and polls its core. Returns true if there was anything to do.
    pub fn turn(&mut self, now: Instant, post: bool) -> Result<bool, BenchError> {
        if self.pings.is_some() { self.ping(now, post) } else { self.stream(now, post) }
    }

    /// Takes what has completed, posts Writes, and polls its core.
    fn stream(&mut self, now: Instant, post: bool) -> Result<bool, BenchError> {
        self.take_completions();
        let count = (self.completed + DEPTH - self.posted).min(BATCH);
        if post && count > 0 {
            self.post(self.posted + count)?;
        }
        Ok(self.driver.poll_at(now))
    }

    /// Polls its core, posts a ping if the one before is answered, and polls again, as between the arrival of
    /// an answer and the next wait.
    fn ping(&mut self, now: Instant, post: bool) -> Result<bool, BenchError> {
        let mut worked = self.driver.poll_at(now);
        self.take_completions();
        if let Some(pings) = &mut self.pings {
            worked |= pings.look(&self.lane);
            if post && pings.posted == pings.arrived {
                pings.post(&self.lane)?;
                self.posted += 1;
            }
        }
        Ok(worked | self.driver.poll_at(now))
    }

    fn take_completions(&mut self) {
        while self.lane.completions.poll_into(&mut self.polled) > 0 {
            for completion in self.polled.drain(..) {
                self.completed += 1;
                if completion.status != Status::Success {
                    self.failed.get_or_insert(completion.status);
                }
            }
        }
    }

    /// Posts Writes up to `end`.
    fn post(&mut self, end: u64) -> Result<(), BenchError> {
        let Lane { source, sink, size, .. } = &self.lane;
        let slots = u64::from(sink.len / size);
        while self.posted < end {
            let batch_end = end.min(self.posted.saturating_add(self.lane.writes_in_a_row()));
            let mut batch = self.lane.qp(self.posted).batch();
            for number in self.posted..batch_end {
                let at = number % slots * u64::from(*size);
                let local = source.slice(at as usize, *size);
                batch.write(number, local, sink, at).map_err(|error| BenchError::Peer(error.to_string()))?;
            }
            batch.commit().map_err(|error| BenchError::Peer(error.to_string()))?;
            self.posted = batch_end;
        }
        Ok(())
    }

    pub fn counts(&self) -> Result<Counts, BenchError> {
        counts(self.failed, &self.driver, self.completed)
    }

    /// Returns true if nothing that it posted is outstanding.
    pub const fn is_done(&self) -> bool {
        self.completed == self.posted
    }
}

fn counts(
    failed: Option<Status>,
    driver: &CoreDriver<BenchDevice>,
    messages: u64,
) -> Result<Counts, BenchError> {
    match failed {
        Some(status) => Err(BenchError::Peer(format!("a Write ended with {status:?}"))),
        None => Ok(Counts::new(&driver.statistics(), messages)),
    }
}

/// The end that is written to.
pub struct Target {
    pub driver: CoreDriver<BenchDevice>,
    pub lane: Lane,
    /// Its answers, if the writer pings it.
    pub pings: Option<Pings>,
    /// The first completion that was no success.
    pub failed: Option<Status>,
}

impl Target {
    /// Polls its core and looks for completions, as an application does, and answers a ping. Returns true if
    /// there was anything.
    pub fn turn(&mut self, now: Instant) -> bool {
        let mut worked = self.driver.poll_at(now);
        while let Some(completion) = self.lane.completions.poll() {
            if completion.status != Status::Success {
                self.failed.get_or_insert(completion.status);
            }
        }
        if let Some(pings) = &mut self.pings {
            if pings.look(&self.lane) && pings.post(&self.lane).is_err() {
                self.failed.get_or_insert(Status::Flushed);
            }
            worked |= self.driver.poll_at(now);
        }
        worked
    }

    pub fn counts(&self) -> Result<Counts, BenchError> {
        counts(self.failed, &self.driver, self.pings.as_ref().map_or(0, |pings| pings.posted))
    }
}

/// A turn of the writer that is counted.
///
/// # Errors
///
/// [`BenchError::Peer`] when the queue pair takes no more work.
#[inline(never)]
pub fn writer_turn(writer: &mut Writer, now: Instant, post: bool) -> Result<bool, BenchError> {
    writer.turn(now, post)
}

/// A turn of the target that is counted.
#[inline(never)]
pub fn target_turn(target: &mut Target, now: Instant) -> bool {
    target.turn(now)
}
