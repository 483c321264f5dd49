//! What a step works with beside the connection it is about.

use std::sync::Arc;

use warpline_dataplane::mpa::enhanced::Outcome;
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, FlowKey, FullOperation};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::Instant;

use super::listeners::Listeners;
use super::openings::Openings;
use super::phase::{Operating, Phase, Starting, Waiter};
use crate::engine::interface::shared_stream::SharedStream;
use crate::engine::outbox::Outbox;
use crate::engine::queue_pairs::{LINGER_NS, QueuePairs};
use crate::engine::registrations::Registrations;
use crate::engine::startup::{Agreement, Setup};
use crate::vocabulary::device::CrcPolicy;

/// What a step works with beside the connection it is about: the parts of the engine that any phase may
/// change.
pub(super) struct Context<'a> {
    pub(super) id: ConnectionId,
    /// Its addresses, while it is open.
    pub(super) flow: Option<FlowKey>,
    pub(super) now: Instant,
    pub(super) crc: CrcPolicy,
    pub(super) out: &'a mut Outbox,
    pub(super) queue_pairs: &'a mut QueuePairs,
    pub(super) registrations: &'a mut Registrations,
    pub(super) listeners: &'a mut Listeners,
    pub(super) openings: &'a mut Openings,
}

impl Context<'_> {
    pub(super) fn command(&mut self, command: Command) {
        self.out.command(self.id, command);
    }

    /// Sends `octets` and a FIN after them.
    pub(super) fn close_after(&mut self, octets: Box<[u8]>) -> Phase {
        self.command(Command::Stream { connection: self.id, octets, then: AfterStream::Close });
        let abort_at = self.now + LINGER_NS;
        Phase::Closing { abort_at }
    }

    /// Sends a FIN.
    pub(super) fn close(&mut self) -> Phase {
        self.close_after(Box::default())
    }

    /// Has the core end a byte stream whose application has left: after all that was written, if everything
    /// was read.
    pub(super) fn abandon_bytes(&mut self) -> Phase {
        self.command(Command::Abandon { connection: self.id, within_ns: LINGER_NS });
        Phase::Closing { abort_at: Instant::NEVER }
    }

    /// Resets a connection that no application waits for.
    pub(super) fn reset(&mut self) -> Phase {
        self.command(Command::Abort { connection: self.id });
        Phase::Closing { abort_at: Instant::NEVER }
    }

    /// Notes that the engine has taken octets that the core lent.
    pub(super) fn consume_octets(&mut self, octets: usize) {
        if octets > 0 {
            self.command(Command::ConsumeStream { connection: self.id, octets: octets as u32 });
        }
    }

    /// Sends a startup frame, or a last streaming message, on a connection that was in streaming mode.
    pub(super) fn send(&mut self, stream: &SharedStream, octets: Box<[u8]>) {
        if octets.is_empty() {
            return;
        }
        stream.charge(octets.len());
        self.command(Command::Stream { connection: self.id, octets, then: AfterStream::Stay });
    }

    /// Gives the core of the connection the memory that `qp` may use. This comes before the command that
    /// begins Full Operation.
    pub(super) fn bring_memory(&mut self, qp: &SharedQp) {
        self.registrations.adopt(self.out, qp.pd, self.id.core());
    }

    /// Begins Full Operation: the octets from here on are FPDUs of `qp`.
    pub(super) fn operate(
        &mut self,
        qp: Arc<SharedQp>,
        waiter: Waiter,
        stream: Option<Arc<SharedStream>>,
    ) -> Phase {
        self.queue_pairs.set_connection(&qp, self.id, self.flow);
        let until = self.out.until(self.now);
        let starting = Some(Box::new(Starting { waiter, until }));
        Phase::Operating(Operating { qp, begun: false, finishing: false, starting, stream })
    }

    /// Leaves MPA with TCP open: the connection is the application's again.
    // Requirements: MPA-7.1.2-07, MPA-7.1.2-13, A-01
    pub(super) fn resume_streaming(&mut self, stream: Arc<SharedStream>) -> Phase {
        stream.give_back();
        if stream.is_abandoned() { self.abandon(&stream) } else { Phase::Streaming(stream) }
    }

    /// Closes a connection in streaming mode that the application has dropped.
    pub(super) fn abandon(&mut self, stream: &SharedStream) -> Phase {
        self.discard_pending(stream);
        self.close()
    }

    /// Takes the octets that wait for an application that has dropped its handle.
    pub(super) fn discard_pending(&mut self, stream: &SharedStream) {
        let pending = stream.dequeue_pending().len();
        self.consume_octets(pending);
    }
}

/// Ends the stream of a connection that was in streaming mode and whose startup has failed: it is closed.
// Requirements: MPA-8-07
pub(super) fn end_stream(stream: Option<&Arc<SharedStream>>) {
    if let Some(stream) = stream {
        stream.set_end(CloseReason::Aborted);
    }
}

/// Ends the stream of a connection that was in streaming mode and whose startup has succeeded: the octets do
/// not become the application's again.
pub(super) fn give_to_mpa(stream: Option<&Arc<SharedStream>>) {
    if let Some(stream) = stream {
        stream.set_given_to_mpa();
    }
}

/// Returns how the core runs a connection whose startup has come to `setup`.
pub(super) const fn full_operation(initiator: bool, setup: Setup) -> FullOperation {
    let Agreement { markers_sent, markers_received, crc, version } = setup.agreement;
    let Outcome { depths, ready } = setup.outcome;
    FullOperation {
        markers_sent,
        markers_received,
        crc,
        version,
        ready,
        depths,
        ..FullOperation::new(initiator)
    }
}
