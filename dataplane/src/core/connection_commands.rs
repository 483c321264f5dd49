//! Commands for one connection.

use std::sync::Arc;

use crate::byte_stream::SharedByteStream;
use crate::conn::ConnectionId;
use crate::device::Frame;
use crate::endpoint::{Endpoint, Endpoints, Outcome};
use crate::qp::shared::{Doorbells, SharedQp};
use crate::ring::{AfterStream, Direction, Event, FullOperation};
use crate::tcp::CloseReason;
use crate::time::Instant;

/// The connection that a command names, among the endpoints of the core. It may have ended.
pub(super) struct CommandedConnection<'c, F> {
    /// The time of the command.
    pub now: Instant,
    /// The name of the connection.
    pub id: ConnectionId,
    pub endpoints: &'c mut Endpoints<F>,
}

impl<F: Frame> CommandedConnection<'_, F> {
    /// Has the connection handle the command, if it has not ended.
    pub(super) fn handle(&mut self, handle: impl FnOnce(Endpoint<'_, F>) -> Outcome) {
        self.endpoints.with_named(self.now, self.id, handle);
    }

    /// Closes the connection, within a time if there is one.
    pub(super) fn close(&mut self, within_ns: Option<u64>) {
        self.handle(|mut endpoint| endpoint.close(within_ns));
    }

    /// Sends streaming octets, and does what follows them.
    pub(super) fn send_stream(&mut self, octets: Box<[u8]>, then: AfterStream) {
        let Some(mut endpoint) = self.endpoints.named(self.now, self.id) else { return };
        if endpoint.send_stream(octets) {
            match then {
                AfterStream::Stay => {}
                AfterStream::FullOperation { qp, operation } => self.start(qp, operation),
                AfterStream::Close => self.close(None),
            }
        }
        self.endpoints.apply(self.id.slot(), Outcome::SCHEDULE);
    }

    /// Gives the connection to a byte stream, which rings `doorbells`.
    pub(super) fn attach(&mut self, stream: Arc<SharedByteStream>, doorbells: &Doorbells) {
        match self.endpoints.named(self.now, self.id) {
            Some(mut endpoint) => {
                // The stream may have rung already.
                doorbells.use_byte_stream(self.id.slot());
                doorbells.leave_others();
                let outcome = endpoint.attach(stream);
                self.endpoints.apply(self.id.slot(), outcome);
            }
            None => stream.set_end(CloseReason::Aborted),
        }
    }

    /// Begins Full Operation with `qp`.
    pub(super) fn start(&mut self, qp: Arc<SharedQp>, operation: FullOperation) {
        match self.endpoints.bind(self.now, self.id, qp) {
            Some(mut endpoint) => {
                let weight = operation.weight;
                let outcome = endpoint.start(operation);
                self.endpoints.table.set_weight(self.id.slot(), weight);
                self.endpoints.apply(self.id.slot(), outcome);
            }
            None => self.refuse_start(),
        }
    }

    /// Begins Full Operation of draft-culley-iwarp-mpa-00 in `direction`.
    pub(super) fn start_unnegotiated(
        &mut self,
        qp: &Arc<SharedQp>,
        operation: FullOperation,
        direction: Direction,
    ) {
        match self.endpoints.bind(self.now, self.id, qp.clone()) {
            Some(mut endpoint) => {
                let weight = operation.weight;
                let outcome = endpoint.start_unnegotiated(qp, operation, direction);
                self.endpoints.table.set_weight(self.id.slot(), weight);
                self.endpoints.apply(self.id.slot(), outcome);
            }
            None => self.refuse_start(),
        }
    }

    /// Counts a command to begin Full Operation for a connection that is over. [`Event::Closed`] was already
    /// queued when control gave the command; [`Event::Operating`] does not follow it.
    const fn refuse_start(&mut self) {
        self.endpoints.context.statistics.starts_refused += 1;
    }

    /// Hands control a snapshot of TCP.
    pub(super) fn report(&mut self) {
        let open = self.endpoints.table.get(self.id);
        let report = open.map(|open| Box::new(open.tcp.snapshot()));
        self.endpoints.context.events.push(Event::ConnectionReport(report));
    }
}
