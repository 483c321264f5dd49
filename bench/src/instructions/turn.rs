//! The two ends, and what they do in their turns.

use serde::Serialize;
use warpline::time::Instant;
use warpline::{
    Advertisement, Completion, CompletionQueue, CoreDriver, MemoryRegion, QueuePair, SendBatch, Statistics,
    Status,
};

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
    /// Writes that completed.
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

/// The end that writes.
pub struct Writer {
    pub driver: CoreDriver<BenchDevice>,
    pub qp: QueuePair,
    pub completions: CompletionQueue,
    pub source: MemoryRegion,
    pub sink: Advertisement,
    pub polled: Vec<Completion>,
    /// Bytes of a message.
    pub size: u32,
    pub posted: u64,
    pub completed: u64,
    /// The first completion that was no success.
    pub failed: Option<Status>,
}

impl Writer {
    /// Posts Writes, takes what has completed, and polls its core. Returns true if there was anything to do.
    pub fn turn(&mut self, now: Instant, post: bool) -> Result<bool, BenchError> {
        while self.completions.poll_into(&mut self.polled) > 0 {
            for completion in self.polled.drain(..) {
                self.completed += 1;
                if completion.status != Status::Success {
                    self.failed.get_or_insert(completion.status);
                }
            }
        }
        let count = (self.completed + DEPTH - self.posted).min(BATCH);
        if post && count > 0 {
            self.post(count)?;
        }
        Ok(self.driver.poll_at(now))
    }

    fn post(&mut self, count: u64) -> Result<(), BenchError> {
        let slots = u64::from(self.sink.len / self.size);
        let mut batch = self.qp.batch();
        for number in self.posted..self.posted + count {
            let at = number % slots * u64::from(self.size);
            let local = self.source.slice(at as usize, self.size);
            batch
                .write(number, local, &self.sink, at)
                .map_err(|error| BenchError::Peer(error.to_string()))?;
        }
        batch.commit().map_err(|error| BenchError::Peer(error.to_string()))?;
        self.posted += count;
        Ok(())
    }

    pub fn counts(&self) -> Result<Counts, BenchError> {
        match self.failed {
            Some(status) => Err(BenchError::Peer(format!("a Write ended with {status:?}"))),
            None => Ok(Counts::new(&self.driver.statistics(), self.completed)),
        }
    }

    /// Returns true if nothing that it posted is outstanding.
    pub const fn is_done(&self) -> bool {
        self.completed == self.posted
    }
}

/// The end that is written to.
pub struct Target {
    pub driver: CoreDriver<BenchDevice>,
    pub completions: CompletionQueue,
    /// Kept for as long as the writer writes.
    pub _connection: (QueuePair, MemoryRegion),
}

impl Target {
    /// Polls its core and looks for completions, as an application does. Returns true if there was anything.
    pub fn turn(&mut self, now: Instant) -> bool {
        let worked = self.driver.poll_at(now);
        while self.completions.poll().is_some() {}
        worked
    }

    pub fn counts(&self) -> Counts {
        Counts::new(&self.driver.statistics(), 0)
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
