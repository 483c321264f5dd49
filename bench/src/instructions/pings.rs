//! Pings: an RDMA Write, and the Write that answers it. Each end finds the other's in its own memory.

use super::lane::{Lane, check};
use crate::error::BenchError;

/// The end of a ping that begins, or the one that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Begins,
    Answers,
}

/// The pings of an end.
pub struct Pings {
    lane: Lane,
    side: Side,
    /// Writes that this end has posted.
    pub posted: u64,
    /// Of these, those that are complete.
    pub completed: u64,
    /// Writes of the other end that have arrived.
    arrived: u64,
}

impl Pings {
    pub const fn new(lane: Lane, side: Side) -> Self {
        Self { lane, side, posted: 0, completed: 0, arrived: 0 }
    }

    /// Looks whether the other end's Write has arrived, and posts the next one if it has, or if this end
    /// begins. Returns true if one has arrived.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when a Write has failed, or the queue pair takes no more.
    pub fn step(&mut self, post: bool) -> Result<bool, BenchError> {
        while let Some(completion) = self.lane.completions.poll() {
            check(&completion)?;
            self.completed += 1;
        }
        let arrived = self.look();
        let is_due = match self.side {
            Side::Begins => post && self.posted == self.arrived,
            Side::Answers => arrived,
        };
        if is_due {
            self.post()?;
        }
        Ok(arrived)
    }

    fn post(&mut self) -> Result<(), BenchError> {
        let Self { lane, posted, .. } = self;
        let at = place(lane, *posted);
        let inside = lane.source.write(at + lane.size as usize - 1, &[mark(lane, *posted)]);
        debug_assert!(inside, "the source is as large as the sink");
        let local = lane.source.slice(at, lane.size);
        let result = lane.qp(*posted).post_write(*posted, local, &lane.sink, at as u64);
        result.map_err(|error| BenchError::Peer(error.to_string()))?;
        *posted += 1;
        Ok(())
    }

    /// Looks whether the other end's next Write has arrived; returns true if it has.
    fn look(&mut self) -> bool {
        let Self { lane, arrived, .. } = self;
        let mut last = [0];
        let inside = lane.exposed.read(place(lane, *arrived) + lane.size as usize - 1, &mut last);
        let is_there = inside && last[0] == mark(lane, *arrived);
        *arrived += u64::from(is_there);
        is_there
    }
}

const fn places(lane: &Lane) -> u64 {
    (lane.sink.len / lane.size) as u64
}

/// Returns where Write `number` lies, at both ends.
const fn place(lane: &Lane, number: u64) -> usize {
    (number % places(lane) * lane.size as u64) as usize
}

/// Returns the last byte of Write `number`, which that of the Write to the same place before is not.
const fn mark(lane: &Lane, number: u64) -> u8 {
    ((number / places(lane) + 1) & 0xff) as u8
}
