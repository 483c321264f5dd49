//! The tables of a core: how large they are made, and how much of each is in use.

use crate::conn::{Table, TimeWaitTable};
use crate::endpoint::{Chunk, Connection, QueuePairs};
use crate::limits;
use crate::tcp::send_queue::SegmentPool;

/// How many of each thing a core has room for. Address space for all of it is reserved when the core is
/// created; memory is used as the tables fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Connections, half-open ones included.
    pub connections: usize,
    /// Connections in TIME-WAIT.
    pub time_waits: usize,
    /// Descriptors of data sent or queued, over all connections.
    pub send_descriptors: usize,
    /// Frames kept of octets not consumed yet, over all connections. Never more than half of the device's
    /// frames.
    pub held_frames: usize,
    /// Records of octets placed beyond gaps, over all connections.
    pub placed_runs: usize,
    /// Segments of Sends placed beyond gaps, over all connections.
    pub placed_sends: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Listeners.
    pub listeners: usize,
    /// Registered regions.
    pub regions: usize,
    /// Octets kept of FPDUs that are cut, besides one run of them of each connection. Allocated when
    /// needed, which is rare.
    pub cut_octets: usize,
}

impl Tables {
    /// Returns the address space that those of them take which grow with connections, in bytes.
    pub const fn bytes(&self) -> usize {
        Table::<Connection>::bytes(self.connections)
            + TimeWaitTable::bytes(self.time_waits)
            + QueuePairs::bytes(self.queue_pairs)
            + SegmentPool::<Chunk>::bytes(self.send_descriptors)
    }
}

impl Default for Tables {
    /// Returns the sizes that [`limits`] names.
    fn default() -> Self {
        Self {
            connections: limits::CONNECTIONS_PER_CORE,
            time_waits: limits::CONNECTIONS_PER_CORE * limits::TIME_WAITS_PER_CONNECTION,
            send_descriptors: limits::SEND_DESCRIPTORS_PER_CORE,
            held_frames: limits::HELD_FRAMES_PER_CORE,
            placed_runs: limits::PLACED_RUNS_PER_CORE,
            placed_sends: limits::PLACED_SENDS_PER_CORE,
            queue_pairs: limits::QPS_PER_CORE,
            listeners: limits::LISTENERS_PER_CORE,
            regions: limits::REGIONS_PER_CORE,
            cut_octets: limits::CUT_BYTES_PER_CORE,
        }
    }
}

/// How much of a core's tables is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Connections, half-open ones included.
    pub connections: usize,
    /// Connections in TIME-WAIT.
    pub time_waits: usize,
    /// Connections that count in the backlog of a listening port: not open, or not yet in Full Operation.
    pub half_open: usize,
    /// Connections that applications have left.
    pub orphans: usize,
    /// Descriptors of data sent or queued.
    pub send_descriptors: usize,
    /// Frames kept of octets not consumed yet.
    pub held_frames: usize,
    /// Records of octets placed beyond gaps.
    pub placed_runs: usize,
    /// Segments of Sends placed beyond gaps.
    pub placed_sends: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Connections in the list of those that wait for a shared receive queue.
    pub awaiting_shared: usize,
    /// Octets kept of FPDUs that are cut.
    pub cut_octets: usize,
    /// Frames built that the device has no room for yet.
    pub frames_to_send: usize,
    /// Events that the ring to control has no room for yet.
    pub events_waiting: usize,
}
