//! An endpoint in Full Operation: a connection, its FPDUs and its queue pair.

use crate::conn::ConnectionId;
use crate::tcp;
use crate::time::Instant;

use super::context::Context;
use super::operating::Operating;
use super::queue_pair::QueuePair;
use super::send_stream::SendStream;

/// A connection that carries the stream of a queue pair, whose users have no notice that it is closed.
pub(super) struct RdmapStream<'e, F> {
    pub(super) now: Instant,
    /// The name of the connection.
    pub(super) id: ConnectionId,
    pub(super) tcp: &'e mut tcp::Connection,
    pub(super) operating: &'e mut Operating,
    /// Streaming octets that go before the first FPDU.
    pub(super) stream: &'e mut SendStream,
    pub(super) qp: &'e mut QueuePair,
    /// The context that the endpoints of a core share.
    pub(super) context: &'e mut Context<F>,
}

impl<F> RdmapStream<'_, F> {
    /// Completes the requests whose octets TCP has acknowledged, and the Reads that are answered.
    pub(super) fn complete_sends(&mut self) {
        let acknowledged = self.tcp.acknowledged();
        let qp = &mut *self.qp;
        qp.sender.complete(&qp.shared, &mut self.context.stags, &mut qp.reads, acknowledged);
    }

    /// Returns true if Reads or Atomic Operations of this end are not answered, on a stream that has not
    /// failed.
    pub(super) fn has_unanswered_requests(&self) -> bool {
        self.operating.receives && !self.operating.failed && !self.qp.reads.outbound.is_empty()
    }
}
