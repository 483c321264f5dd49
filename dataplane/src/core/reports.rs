//! The reports of a core about itself.

use crate::byte_stream::TransferCounters;
use crate::device::Device;
use crate::statistics::Statistics;

use super::Core;
use super::tables::Usage;

impl<D: Device> Core<D> {
    /// Returns the counters, with those of the connections there are.
    pub fn statistics(&self) -> Statistics {
        let context = &self.endpoints.context;
        let mut statistics = context.statistics.clone();
        statistics.add_host(self.host.counters());
        for connection in self.endpoints.table.iter() {
            statistics.tcp.add(&connection.tcp.counters());
        }
        statistics.transfers = self.transfer_counters();
        statistics.held_frames = context.pools.held.frames() as u64;
        statistics.held_frames_peak = context.pools.held.frames_peak() as u64;
        statistics.nodes_visited = context.pools.held.visits() + context.placed_sends.visits();
        statistics.searches_refused = context.pools.scan_budget.refused();
        statistics
    }

    /// Returns what became of segments with the TCP RDMA option, summed over all connections so far.
    pub fn transfer_counters(&self) -> TransferCounters {
        let mut counters = self.endpoints.context.transfers;
        for connection in self.endpoints.table.iter() {
            counters.add(&connection.transfer_counters());
        }
        counters
    }

    /// Returns how much of its tables is in use. Visits every listener: for tests and tools.
    pub fn usage(&self) -> Usage {
        let context = &self.endpoints.context;
        Usage {
            connections: self.endpoints.table.len(),
            time_waits: self.time_waits.len(),
            half_open: context.listeners.in_backlogs(),
            orphans: context.orphans.len(),
            send_descriptors: context.pools.segments.used(),
            held_frames: context.pools.held.frames(),
            placed_runs: context.pools.held.placed_runs(),
            placed_sends: context.placed_sends.used(),
            queue_pairs: self.endpoints.queue_pairs.len(),
            awaiting_shared: context.shared_receive_waiters.len(),
            cut_octets: context.cut_runs.octets(),
            frames_to_send: self.host.frames_to_send(),
            events_waiting: context.events.waiting(),
        }
    }
}
