//! An endpoint in Full Operation: a connection, its FPDUs and its queue pair.

use crate::conn::ConnectionId;
use crate::tcp;
use crate::time::Instant;

use super::context::Context;
use super::fpdu_queueing::FpduQueueing;
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

    /// Returns true if the queue pair has FPDUs that may go before the FIN.
    pub(super) fn has_work(&self) -> bool {
        self.operating.may_send && self.qp.sender.has_work(&self.qp.shared, &self.qp.reads)
    }

    /// Accepts what is posted, and moves to TCP what can be sent at once, and one FPDU more, for a device
    /// that does or does not accept payload by reference.
    pub(super) fn queue_fpdus(&mut self, by_reference: bool) {
        let Self { tcp, operating, stream, qp, context, .. } = self;
        let Context { pools, stags, events, local_operations_left, .. } = &mut **context;
        qp.carry_out_posted(stags, events, local_operations_left);
        // Streaming octets go before the first FPDU.
        if !operating.may_send || !tcp.may_send() || stream.unqueued_octets() > 0 {
            return;
        }
        let QueuePair { sender, reads, .. } = &mut **qp;
        FpduQueueing { tcp, pools, operating, sender, reads, by_reference }.queue();
    }
}
