//! An endpoint in Full Operation: a connection, its FPDUs and its queue pair.

use crate::conn::ConnectionId;
use crate::drops::DropCause;
use crate::mpa::MpaError;
use crate::qp::error::StreamError;
use crate::qp::receiver::{Fault, Placed, Received};
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
    pub(super) stream: &'e SendStream,
    pub(super) qp: &'e mut QueuePair,
    /// The context that the endpoints of a core share.
    pub(super) context: &'e mut Context<F>,
}

/// FPDUs that were placed, and segments that were consumed, which are not counted yet.
#[derive(Default)]
pub(super) struct FpduCounts {
    pub(super) segments: u64,
    pub(super) fpdus: u64,
    pub(super) wire_octets: usize,
    pub(super) payload_octets: usize,
}

/// The result of one FPDU.
pub(super) enum Step {
    /// It is placed; there may be another.
    Next,
    /// There is nothing more to consume for now.
    Wait,
    /// The stream has failed.
    Failed(StreamError, Option<Fault>),
    /// The peer has terminated the stream.
    Terminated(StreamError),
}

impl<F> RdmapStream<'_, F> {
    /// Counts FPDUs that are valid for MPA, and the segments whose last they are. They let us send, whether
    /// or not they are valid for DDP.
    #[inline]
    pub(super) fn account(&mut self, counts: &FpduCounts) {
        let statistics = &mut self.context.statistics;
        statistics.segments_predicted += counts.segments;
        if counts.fpdus == 0 {
            return;
        }
        statistics.bytes_verified += counts.wire_octets as u64;
        statistics.fpdus_received += counts.fpdus;
        statistics.bytes_copied_rx += counts.payload_octets as u64;
        self.operating.crc_retries = 0;
        self.operating.on_fpdu(&self.qp.shared);
        self.qp.receive_wait.end();
    }

    /// Returns what the result of an FPDU means for the stream.
    pub(super) fn step(&mut self, received: Result<Received, Fault>) -> Step {
        // It may be a request of the peer, which is to be answered.
        self.operating.may_have_work = true;
        match received {
            Ok(Received::First(Placed { octets, answers_read })) => {
                self.context.statistics.bytes_copied_rx += octets as u64;
                if answers_read {
                    self.complete_sends();
                }
                Step::Next
            }
            Ok(Received::RtrReceived | Received::RequestAccepted) => Step::Next,
            Ok(Received::RtrReadReceived { stag, to }) => {
                self.qp.sender.respond(stag, to);
                Step::Next
            }
            Ok(Received::AtomicAnswered { octets }) => {
                self.context.statistics.bytes_copied_rx += octets as u64;
                self.complete_sends();
                Step::Next
            }
            Ok(Received::Terminated(error)) => Step::Terminated(error),
            Err(fault) => Step::Failed(fault.error, Some(fault)),
        }
    }

    /// Handles an FPDU that is wrong, of which `bad_octets` octets have arrived. While TCP has not
    /// acknowledged the FPDU, it is dropped like a lost segment.
    // Requirements: MPA-8-08, C00-9-04
    pub(super) fn drop_or_fail(&mut self, bad_octets: usize, error: MpaError) -> Step {
        if self.operating.crc_retries < self.operating.crc_retries_max
            && self.tcp.forget(&mut self.context.pools, 0, bad_octets)
        {
            self.operating.crc_retries += 1;
            self.context.statistics.count(DropCause::FpduCrc);
            return Step::Wait;
        }
        Step::Failed(StreamError::Mpa(error), None)
    }

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

    /// Handles that no FPDU arrives any more: a request that waits for the answer to the indication, which
    /// does not come either, takes its place, and fails as one that has been sent.
    pub(super) fn on_peer_finished(&mut self) {
        if self.operating.receives {
            self.qp.reads.outbound.on_indication_answered();
            self.operating.may_have_work = true;
        }
    }

    /// Sends a nudge, which is due.
    pub(super) fn nudge(&mut self) {
        self.operating.spend_nudge(self.now);
        self.operating.may_have_work = true;
        if self.qp.sender.nudge() {
            self.context.statistics.nudges_sent += 1;
        }
    }

    /// Returns true if the queue pair has FPDUs that may be sent, and are not queued.
    pub(super) fn has_unqueued(&self) -> bool {
        self.operating.may_send && self.qp.sender.has_unqueued(&self.qp.shared, &self.qp.reads)
    }

    /// Returns true if the queue pair has FPDUs that go before the FIN: now, or after the peer's first FPDU,
    /// as long as one may come.
    // Requirements: DDP-6.2.1-01
    pub(super) fn has_work(&self) -> bool {
        let may_send = self.operating.may_send || self.operating.awaits_peer() && !self.tcp.peer_finished();
        may_send && self.qp.sender.has_work(&self.qp.shared, &self.qp.reads)
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
