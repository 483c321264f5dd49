//! The two ends, and what they do in their turns.

use serde::Serialize;
use warpline::time::Instant;
use warpline::{
    Advertisement, Completion, CompletionKind, CompletionQueue, CoreDriver, MemoryRegion, PostError,
    QueuePair, SendBatch, Statistics, Status,
};

use super::case::Pattern;
use super::pings::Pings;
use crate::device::BenchDevice;
use crate::error::BenchError;

/// Messages outstanding at most.
pub const DEPTH: u64 = 128;
/// Messages posted in a turn at most.
const BATCH: u64 = 16;
const _: () = assert!(BATCH as usize <= SendBatch::CAPACITY);

/// What an end did.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Counts {
    /// Times it was polled.
    pub polls: u64,
    /// Of these, those that found nothing to do.
    pub idle_polls: u64,
    /// Writes and Sends of the writer, and Reads of the target, that completed; answers of the target that
    /// were posted.
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
    /// What the ends do.
    pub pattern: Pattern,
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

    /// Posts messages `posted` to `end`.
    fn post(&self, posted: u64, end: u64) -> Result<(), BenchError> {
        let Self { source, exposed, sink, size, pattern, .. } = self;
        match pattern {
            Pattern::Stream | Pattern::Ping => self.post_with(posted, end, |batch, number, at| {
                batch.write(number, source.slice(at as usize, *size), sink, at)
            }),
            Pattern::Sends => self.post_with(posted, end, |batch, number, at| {
                batch.send(number, source.slice(at as usize, *size))
            }),
            Pattern::Reads => self.post_with(posted, end, |batch, number, at| {
                batch.read(number, exposed.slice(at as usize, *size), sink, at)
            }),
        }
    }

    /// Posts messages `posted` to `end`, each of which `add` adds to a batch by its number and its place.
    #[inline]
    fn post_with(
        &self,
        mut posted: u64,
        end: u64,
        add: impl Fn(&mut SendBatch<'_>, u64, u64) -> Result<(), PostError>,
    ) -> Result<(), BenchError> {
        let slots = u64::from(self.sink.len / self.size);
        while posted < end {
            let batch_end = end.min(posted.saturating_add(self.writes_in_a_row()));
            let mut batch = self.qp(posted).batch();
            for number in posted..batch_end {
                let at = number % slots * u64::from(self.size);
                add(&mut batch, number, at).map_err(|error| BenchError::Peer(error.to_string()))?;
            }
            batch.commit().map_err(|error| BenchError::Peer(error.to_string()))?;
            posted = batch_end;
        }
        Ok(())
    }

    /// Posts the receive of a message.
    pub fn post_receive(&self, number: u64) -> Result<(), BenchError> {
        let at = number % u64::from(self.sink.len / self.size) * u64::from(self.size);
        let posted = self.qp(number).post_receive(number, self.exposed.slice(at as usize, self.size));
        posted.map_err(|error| BenchError::Peer(error.to_string()))
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
        self.consume_completions();
        let mut count = (self.completed + DEPTH - self.posted).min(BATCH);
        if self.lane.pattern == Pattern::Reads {
            // The target may send once this end, the Initiator, has (RFC 5044 §7.1.2): one Read back.
            count = 1 - self.posted;
        }
        if post && count > 0 {
            self.lane.post(self.posted, self.posted + count)?;
            self.posted += count;
        }
        Ok(self.driver.poll_at(now))
    }

    /// Polls its core, posts a ping if the one before is answered, and polls again, as between the arrival of
    /// an answer and the next wait.
    fn ping(&mut self, now: Instant, post: bool) -> Result<bool, BenchError> {
        let mut worked = self.driver.poll_at(now);
        self.consume_completions();
        if let Some(pings) = &mut self.pings {
            worked |= pings.look(&self.lane);
            if post && pings.posted == pings.arrived {
                pings.post(&self.lane)?;
                self.posted += 1;
            }
        }
        Ok(worked | self.driver.poll_at(now))
    }

    fn consume_completions(&mut self) {
        while self.lane.completions.poll_into(&mut self.polled) > 0 {
            for completion in self.polled.drain(..) {
                self.completed += 1;
                if completion.status != Status::Success {
                    self.failed.get_or_insert(completion.status);
                }
            }
        }
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
    /// Its Reads.
    pub posted: u64,
    pub completed: u64,
    /// The first completion that was no success.
    pub failed: Option<Status>,
}

impl Target {
    /// Polls its core and looks for completions, as an application does, and answers a ping, or reads.
    /// Returns true if there was anything to do, or is anything outstanding.
    pub fn turn(&mut self, now: Instant, post: bool) -> bool {
        let reads = self.lane.pattern == Pattern::Reads;
        if reads && post {
            let count = (self.completed + DEPTH - self.posted).min(BATCH);
            let end = self.posted + count;
            let posted = self.lane.post(self.posted, end);
            self.record(&posted);
            self.posted = end;
        }
        let mut worked = self.driver.poll_at(now);
        self.consume_completions();
        if let Some(pings) = &mut self.pings {
            if pings.look(&self.lane) {
                let posted = pings.post(&self.lane);
                self.record(&posted);
            }
            worked |= self.driver.poll_at(now);
        }
        worked || reads && self.completed < self.posted
    }

    fn consume_completions(&mut self) {
        while let Some(completion) = self.lane.completions.poll() {
            self.completed += 1;
            if completion.status != Status::Success {
                self.failed.get_or_insert(completion.status);
            } else if completion.kind == CompletionKind::Receive {
                let posted = self.lane.post_receive(completion.id);
                self.record(&posted);
            }
        }
    }

    fn record(&mut self, posted: &Result<(), BenchError>) {
        if posted.is_err() {
            self.failed.get_or_insert(Status::Flushed);
        }
    }

    pub fn counts(&self) -> Result<Counts, BenchError> {
        let messages = match &self.pings {
            Some(pings) => pings.posted,
            None if self.lane.pattern == Pattern::Reads => self.completed,
            None => 0,
        };
        counts(self.failed, &self.driver, messages)
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
pub fn target_turn(target: &mut Target, now: Instant, post: bool) -> bool {
    target.turn(now, post)
}
