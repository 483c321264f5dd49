//! The endpoints of a core: its connections, its queue pairs, and what they share.

use std::sync::Arc;

use crate::conn::{ConnectionId, Table};
use crate::qp::shared::SharedQp;
use crate::time::Instant;

use super::Endpoint;
use super::connection::Connection;
use super::context::Context;
use super::mode::Mode;
use super::queue_pairs::QueuePairs;

/// What is fetched of an endpoint ahead of its use: each part says where the next one lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Depth {
    /// The connection.
    Connection,
    /// Its queue pair, and its segments in the pool.
    QueuePair,
    /// The queues of the queue pair.
    Queues,
}

/// The endpoints of a core.
pub(crate) struct Endpoints<F> {
    /// The connections.
    pub table: Table<Connection>,
    /// The queue pairs.
    pub queue_pairs: QueuePairs,
    /// Their shared context.
    pub context: Context<F>,
}

impl<F> Endpoints<F> {
    /// Returns the endpoint of the connection in `slot`, which is there.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant, slot: u32) -> Option<Endpoint<'_, F>> {
        let found = self.table.at_mut(slot);
        debug_assert!(found.is_some(), "slot {slot} has no connection");
        let (id, connection) = found?;
        Some(Self::endpoint(now, id, connection, &mut self.queue_pairs, &mut self.context))
    }

    /// Returns the endpoint of the connection that `id` names; `None` if it has ended.
    pub(crate) fn named(&mut self, now: Instant, id: ConnectionId) -> Option<Endpoint<'_, F>> {
        let connection = self.table.get_mut(id)?;
        Some(Self::endpoint(now, id, connection, &mut self.queue_pairs, &mut self.context))
    }

    /// Returns the endpoint of the connection that `id` names, and binds the queue pair with `shared` to it
    /// if that is possible: then the endpoint has a queue pair while its mode is still [`Mode::Streaming`]. A
    /// connection and a queue pair are bound once, and to nothing else before. Returns `None` if the
    /// connection has ended, or is closed for its users.
    pub(crate) fn bind(
        &mut self,
        now: Instant,
        id: ConnectionId,
        shared: Arc<SharedQp>,
    ) -> Option<Endpoint<'_, F>> {
        let connection = self.table.get_mut(id).filter(|connection| !connection.close_notified)?;
        if !matches!(connection.mode, Mode::Streaming) {
            return Some(Self::endpoint(now, id, connection, &mut self.queue_pairs, &mut self.context));
        }
        self.context.stags.begin_stream(shared.number.0);
        let queue_pair = self.queue_pairs.bind(shared, id);
        Some(Endpoint { now, id, connection, queue_pair, context: &mut self.context })
    }

    /// Has the processor fetch the part `depth` of the endpoint of the connection in `slot`.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32, depth: Depth) {
        if matches!(depth, Depth::Connection) {
            return self.table.prefetch(slot);
        }
        let Some(Connection { mode: Mode::FullOperation(operating), tcp, .. }) = self.table.peek(slot) else {
            return;
        };
        if matches!(depth, Depth::QueuePair) {
            self.queue_pairs.prefetch(operating.qp_slot);
            tcp.prefetch_segments(&self.context.pools);
        } else if let Some(qp) = self.queue_pairs.peek(operating.qp_slot) {
            qp.prefetch_queues();
        }
    }

    /// Has the processor fetch the part `depth` of the endpoint of the connection in `slot` that it takes to
    /// serve it.
    #[inline]
    pub(crate) fn prefetch_to_serve(&self, slot: u32, depth: Depth) {
        let takes_it = || self.table.peek(slot).is_some_and(Connection::may_have_work);
        if matches!(depth, Depth::Connection) || takes_it() {
            self.prefetch(slot, depth);
        }
    }

    #[inline]
    fn endpoint<'c>(
        now: Instant,
        id: ConnectionId,
        connection: &'c mut Connection,
        queue_pairs: &'c mut QueuePairs,
        context: &'c mut Context<F>,
    ) -> Endpoint<'c, F> {
        let queue_pair = match &connection.mode {
            Mode::FullOperation(operating) => queue_pairs.bound_to(id, operating.qp_slot),
            Mode::Streaming | Mode::Bytes(_) | Mode::Lingering { .. } => None,
        };
        debug_assert_eq!(
            queue_pair.is_some(),
            matches!(connection.mode, Mode::FullOperation(_)) && !connection.close_notified,
            "a connection has its queue pair from the beginning of Full Operation until it is closed"
        );
        Endpoint { now, id, connection, queue_pair, context }
    }
}
