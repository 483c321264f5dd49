//! Look-ahead: while one connection is handled, the processor fetches what the next ones need.
//!
//! Where many connections take turns, what each one needs has left the caches when its turn comes: some
//! dozens of lines, of which each says where the next ones lie, from the connection to its queue pair and to
//! the queue pair's queues. One after the other they cost more than the work they are for. A burst of frames,
//! the schedule and the doorbells say early whose turn comes next, so the lines of several connections are
//! fetched at the same time. A look ahead changes nothing: what it fetches in vain costs some time.

use arrayvec::ArrayVec;

use crate::conn::Table;
use crate::device::Device;
use crate::endpoint::{Connection, Depth, Endpoints};
use crate::limits;
use crate::net::Host;
use crate::net::input::Ingress;

use super::demultiplexing;

/// Returns true if there are so many connections that the caches do not hold all of them.
#[inline]
pub(super) fn is_useful(table: &Table<Connection>) -> bool {
    table.len() > limits::CONNECTIONS_IN_CACHE
}

/// Fetches the endpoints that the segments in the frames of a burst are for.
#[inline(never)]
pub(super) fn fetch_receivers<D: Device>(
    endpoints: &mut Endpoints<D::Frame>,
    host: &Host<D>,
    burst: &[D::Frame],
    ingress: Ingress,
) {
    let mut slots = ArrayVec::<u32, { limits::RECEIVE_BURST_FRAMES }>::new();
    let mut before = None;
    for frame in burst.iter().take(limits::RECEIVE_BURST_FRAMES) {
        let flow = host.interface.flow_of(frame);
        if flow == before {
            continue;
        }
        before = flow;
        let Some(flow) = flow else { continue };
        if let Some(slot) = demultiplexing::find(&mut endpoints.table, host, &flow, ingress) {
            endpoints.prefetch(slot, Depth::Connection);
            slots.push(slot);
        }
    }
    for depth in [Depth::QueuePair, Depth::Queues] {
        for slot in &slots {
            endpoints.prefetch(*slot, depth);
        }
    }
}

/// Fetches parts of the endpoints that are served next: the nearer one is, the more of it is there.
#[inline(never)]
pub(super) fn fetch_scheduled<F>(endpoints: &Endpoints<F>) {
    for (served_before, depth) in [(2, Depth::Connection), (1, Depth::QueuePair), (0, Depth::Queues)] {
        if let Some(slot) = endpoints.table.scheduled_after(served_before) {
            endpoints.prefetch_to_serve(slot, depth);
        }
    }
}

/// Fetches the endpoints of the queue pairs in `slots`, which have rung.
#[inline(never)]
pub(super) fn fetch_rung<F>(endpoints: &Endpoints<F>, slots: &[u32]) {
    let queue_pairs = &endpoints.queue_pairs;
    for slot in slots {
        queue_pairs.prefetch(*slot);
    }
    for qp in slots.iter().filter_map(|slot| queue_pairs.peek(*slot)) {
        if let Some(id) = qp.connection {
            endpoints.prefetch(id.slot(), Depth::Connection);
        }
        qp.prefetch_queues();
    }
    for qp in slots.iter().filter_map(|slot| queue_pairs.peek(*slot)) {
        qp.shared.prefetch_posted();
    }
}
