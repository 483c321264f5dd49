//! The context that all endpoints of a core share: memory, pools, budgets, and the events to control.

use std::collections::BTreeMap;

use crate::byte_stream::TransferCounters;
use crate::conn::{Listeners, Orphans};
use crate::memory::StagTable;
use crate::ordered::OrderedPool;
use crate::qp::receiver::PlacedSegment;
use crate::ring::Events;
use crate::statistics::Statistics;
use crate::tcp::Pools;

use super::chunk::Chunk;
use super::cut_runs::CutRunStore;
use super::queue_pairs::Unaccepted;
use super::receive_waiters::ReceiveWaiters;
use super::report::Report;

/// The context that all endpoints of a core share.
pub(crate) struct Context<F> {
    /// Received frames and send descriptors.
    pub pools: Pools<Chunk, F>,
    /// Segments placed out of order that await Delivery.
    pub placed_sends: OrderedPool<PlacedSegment>,
    /// The memory that peers and work requests reach.
    pub stags: StagTable,
    /// The listeners, which count the connections in their backlogs.
    pub listeners: Listeners,
    /// The connections that applications have left.
    pub orphans: Orphans,
    /// Connections that control opens and that are not open yet, by the token of the command: their slots.
    pub opening: BTreeMap<u64, u32>,
    /// Connections on which a message waits for a receive of a shared receive queue. Each is there once.
    pub receive_waiters: ReceiveWaiters,
    /// Queue pairs whose posted requests could not be accepted when their doorbell was served.
    pub unaccepted: Unaccepted,
    /// FPDUs that were sent in part.
    pub cut_runs: CutRunStore,
    /// Requests that put nothing on the wire that may still be carried out in this poll, besides one for each
    /// connection that is served.
    pub local_operations_left: usize,
    /// Octets kept for connections whose queue pairs are destroyed.
    pub lingering_octets: usize,
    /// Streaming octets stay in TCP's window until control has consumed them.
    pub holds_stream: bool,
    /// Events to control.
    pub events: Events,
    /// The counters of the core.
    pub statistics: Statistics,
    /// The transfers of connections that are over.
    pub transfers: TransferCounters,
    /// The report of all counters that is made.
    pub report: Option<Report>,
}
