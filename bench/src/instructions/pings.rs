//! Pings: an RDMA Write, and the Write that answers it. Each end finds the other's in its own memory.

use super::turn::Lane;
use crate::error::BenchError;

/// The pings of an end.
#[derive(Default)]
pub struct Pings {
    /// Writes that this end has posted.
    pub posted: u64,
    /// Writes of the other end that have arrived.
    pub arrived: u64,
}

impl Pings {
    /// Posts the next Write.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when the queue pair takes no more work.
    pub fn post(&mut self, lane: &Lane) -> Result<(), BenchError> {
        let at = place(lane, self.posted);
        let inside = lane.source.write(at + lane.size as usize - 1, &[mark(lane, self.posted)]);
        debug_assert!(inside, "the source is as large as the sink");
        let local = lane.source.slice(at, lane.size);
        let posted = lane.qp(self.posted).post_write(self.posted, local, &lane.sink, at as u64);
        posted.map_err(|error| BenchError::Peer(error.to_string()))?;
        self.posted += 1;
        Ok(())
    }

    /// Looks whether the other end's next Write has arrived; returns true if it has.
    pub fn look(&mut self, lane: &Lane) -> bool {
        let mut last = [0];
        let inside = lane.exposed.read(place(lane, self.arrived) + lane.size as usize - 1, &mut last);
        let arrived = inside && last[0] == mark(lane, self.arrived);
        self.arrived += u64::from(arrived);
        arrived
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
