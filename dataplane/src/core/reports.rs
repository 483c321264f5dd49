//! The reports of a core about itself.

use crate::byte_stream::TransferCounters;
use crate::device::Device;
use crate::endpoint::{Endpoints, Report};
use crate::limits;
use crate::ring::Event;
use crate::statistics::{DropCause, Statistics};
use crate::tcp;

use super::Core;
use super::tables::Usage;

impl<D: Device> Core<D> {
    /// Returns the counters, with those of the connections there are. Visits every connection: for tests and
    /// tools. Control gets a report that takes several polls.
    pub fn statistics(&self) -> Statistics {
        let mut tcp = self.endpoints.context.statistics.tcp;
        for connection in self.endpoints.table.iter() {
            tcp.add(&connection.tcp.counters());
        }
        self.statistics_with(tcp, self.transfer_counters())
    }

    /// Goes on with the report of the counters that control waits for, if there is one. Returns true if it is
    /// complete, and no other is to be made.
    pub(super) fn go_on_reporting(&mut self) -> bool {
        let Self { endpoints: Endpoints { table, context, .. }, reports_wanted, .. } = self;
        if *reports_wanted > 0 && context.report.is_none() {
            let requests = core::mem::take(reports_wanted);
            context.report = Some(Report::begin(requests, context.statistics.tcp, context.transfers));
        }
        let Some(report) = &mut context.report else { return true };
        if !report.visit(table, limits::CONNECTIONS_VISITED_PER_POLL) {
            return false;
        }
        let (requests, tcp, transfers) = (report.requests(), report.tcp, report.transfers);
        context.report = None;
        let statistics = self.statistics_with(tcp, transfers);
        for _ in 0..requests {
            self.endpoints.context.events.push(Event::Statistics(Box::new(statistics.clone())));
        }
        self.reports_wanted == 0
    }

    /// Returns the counters, with those of all connections.
    fn statistics_with(&self, tcp: tcp::Counters, transfers: TransferCounters) -> Statistics {
        let context = &self.endpoints.context;
        let mut statistics = context.statistics.clone();
        statistics.add_host(self.host.counters());
        statistics.drops.add_many(DropCause::NotHandedOver, self.host.frames_not_handed_over());
        statistics.drops.add_many(DropCause::StalledCore, self.host.stalled_frames());
        statistics.drops.add_many(DropCause::Missed, self.host.missed_frames());
        statistics.drops.add_many(DropCause::NotSent, self.host.unsent_frames());
        (statistics.tcp, statistics.transfers) = (tcp, transfers);
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
            awaiting_shared: context.receive_waiters.len(),
            cut_octets: context.cut_runs.octets(),
            frames_to_send: self.host.frames_to_send(),
            events_waiting: context.events.waiting(),
        }
    }
}
