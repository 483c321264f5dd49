//! The reports of a core about its counters.

use crate::byte_stream::TransferCounters;
use crate::conn::Table;
use crate::device::Device;
use crate::endpoint::{Connection, Context, Endpoints, Report};
use crate::limits;
use crate::net::Host;
use crate::ring::Event;
use crate::statistics::{DropCause, Statistics};
use crate::tcp;

/// The reports of the counters that control waits for, besides the one that is made
/// ([`Context::report`]).
#[derive(Default)]
pub(super) struct Reports {
    wanted: usize,
}

impl Reports {
    /// Has a report made that begins after this call, for which [`go_on`](Self::go_on) is to be called.
    pub(super) const fn request(&mut self) {
        self.wanted += 1;
    }

    /// Goes on with the report of the counters that control waits for, if there is one. Returns true if it is
    /// complete, and no other is to be made.
    pub(super) fn go_on<D: Device>(&mut self, endpoints: &mut Endpoints<D::Frame>, host: &Host<D>) -> bool {
        let Endpoints { table, context, .. } = endpoints;
        if self.wanted > 0 && context.report.is_none() {
            let requests = core::mem::take(&mut self.wanted);
            context.report = Some(Report::begin(requests, context.statistics.tcp, context.transfers));
        }
        let Some(report) = &mut context.report else { return true };
        if !report.visit(table, limits::CONNECTIONS_VISITED_PER_POLL) {
            return false;
        }
        let (requests, tcp, transfers) = (report.requests(), report.tcp, report.transfers);
        context.report = None;
        let statistics = statistics_with(context, host, tcp, transfers);
        for _ in 0..requests {
            context.events.push(Event::Statistics(Box::new(statistics.clone())));
        }
        self.wanted == 0
    }
}

/// Returns the counters, with those of the connections there are. Visits every connection.
pub(super) fn statistics<D: Device>(endpoints: &Endpoints<D::Frame>, host: &Host<D>) -> Statistics {
    let Endpoints { table, context, .. } = endpoints;
    let mut tcp = context.statistics.tcp;
    for connection in table.iter() {
        tcp.add(&connection.tcp.counters());
    }
    statistics_with(context, host, tcp, transfers(context.transfers, table))
}

/// Returns the transfers of connections that are over, `ended`, with those of the connections there are.
/// Visits every connection.
pub(super) fn transfers(ended: TransferCounters, table: &Table<Connection>) -> TransferCounters {
    let mut counters = ended;
    for connection in table.iter() {
        counters.add(&connection.transfer_counters());
    }
    counters
}

/// Returns the counters, with those of all connections.
fn statistics_with<D: Device>(
    context: &Context<D::Frame>,
    host: &Host<D>,
    tcp: tcp::Counters,
    transfers: TransferCounters,
) -> Statistics {
    let mut statistics = context.statistics.clone();
    statistics.add_host(host.interface.counters());
    statistics.drops.add_many(DropCause::NotHandedOver, host.interface.frames_not_handed_over());
    statistics.drops.add_many(DropCause::StalledCore, host.interface.stalled_frames());
    statistics.drops.add_many(DropCause::Missed, host.interface.missed_frames());
    statistics.drops.add_many(DropCause::NotSent, host.interface.unsent_frames());
    (statistics.tcp, statistics.transfers) = (tcp, transfers);
    statistics.held_frames = context.pools.held.frames() as u64;
    statistics.held_frames_peak = context.pools.held.frames_peak() as u64;
    statistics.nodes_visited = context.pools.held.visits() + context.placed_sends.visits();
    statistics.searches_refused = context.pools.scan_budget.refused();
    statistics
}
