//! The queue pairs of an end, and how messages are posted to them.

use warpline::{
    Advertisement, Completion, CompletionQueue, MemoryRegion, Operation, Payload, PostError, QueuePair,
    ReceiveRequest, STag, SendBatch, SendRequest, SharedReceiveQueue, SliceList, Status,
};

use super::case::{Pattern, Receives};
use crate::error::BenchError;

/// The queue pairs of an end, and the memory of both ends.
pub struct Lane {
    /// At least one; they take turns.
    pub qps: Vec<QueuePair>,
    /// More, to which nothing is posted.
    #[expect(dead_code, reason = "they are connected as long as they are here")]
    pub idle_qps: Vec<QueuePair>,
    pub completions: CompletionQueue,
    /// Where receives are posted that are not the queue pair's.
    pub shared_receives: Option<SharedReceiveQueue>,
    /// What a receive is.
    pub receives: Receives,
    /// The memory that Writes come from.
    pub source: MemoryRegion,
    /// The memory that the other end writes to.
    pub exposed: MemoryRegion,
    /// The other end's memory.
    pub sink: Advertisement,
    /// The other end's STags that are invalidated, each once, and the first message that invalidates one.
    pub stags: Vec<STag>,
    pub first_invalidation: u64,
    /// This end's memory that the other may invalidate.
    #[expect(dead_code, reason = "it is registered as long as it is here")]
    pub invalidated: Vec<MemoryRegion>,
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
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when the queue pair takes no more work.
    pub fn post(&self, posted: u64, end: u64) -> Result<(), BenchError> {
        let Self { source, exposed, sink, stags, size, pattern, .. } = self;
        match pattern {
            // Byte streams have no lane.
            Pattern::Stream | Pattern::Ping | Pattern::Bytes | Pattern::Transfers => {
                self.post_with(posted, end, |batch, number, at| {
                    batch.write(number, source.slice(at as usize, *size), sink, at)
                })
            }
            Pattern::Sends => self.post_with(posted, end, |batch, number, at| {
                batch.send(number, source.slice(at as usize, *size))
            }),
            Pattern::Invalidations => self.post_with(posted, end, |batch, number, at| {
                let index = number.checked_sub(self.first_invalidation);
                let invalidate = index.map(|index| stags[index as usize]);
                let operation = Operation::Send { invalidate, solicited: false };
                batch.push(SendRequest::new(number, operation, source.slice(at as usize, *size)))
            }),
            Pattern::Immediates => self.post_with(posted, end, |batch, number, _| {
                let operation = Operation::Immediate { immediate: number, solicited: false };
                batch.push(SendRequest::new(number, operation, Payload::default()))
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

    /// Returns the receive of a message.
    pub fn receive(&self, number: u64) -> ReceiveRequest {
        let at = number % u64::from(self.sink.len / self.size) * u64::from(self.size);
        match self.receives {
            Receives::TwoRanges => ReceiveRequest::new(number, self.halves(at as usize)),
            Receives::Own | Receives::Shared => {
                ReceiveRequest::new(number, self.exposed.slice(at as usize, self.size))
            }
        }
    }

    /// Posts receives: to the shared receive queue, or to the queue pair, which is the only one then.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when the queue takes no more.
    pub fn post_receives(&self, receives: &[ReceiveRequest]) -> Result<(), BenchError> {
        let posted = match &self.shared_receives {
            Some(shared) => shared.post_many(receives),
            None => self.qp(0).post_receives(receives),
        };
        posted.map_err(|error| BenchError::Peer(error.to_string()))
    }

    /// Returns the two halves of the place of a message, the second one first.
    fn halves(&self, at: usize) -> SliceList {
        let half = self.size / 2;
        let slices = [self.exposed.slice(at + half as usize, half), self.exposed.slice(at, half)];
        SliceList::try_from(&slices[..]).unwrap_or_default()
    }
}

/// Checks that a request has succeeded.
///
/// # Errors
///
/// [`BenchError::Peer`].
#[inline]
pub fn check(completion: &Completion) -> Result<(), BenchError> {
    if completion.status == Status::Success {
        return Ok(());
    }
    Err(BenchError::Peer(format!("a request ended with {:?}", completion.status)))
}
