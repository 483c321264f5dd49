//! Commands of control.

use std::sync::Arc;

use crate::byte_stream::SharedByteStream;
use crate::conn::{ConnectionId, ListenAddress};
use crate::device::Device;
use crate::endpoint::{Outcome, QueuePair};
use crate::limits;
use crate::memory::{RemoveError, STag};
use crate::qp::shared::{QpState, SharedQp};
use crate::ring::{AfterStream, Command, Direction, Event, FullOperation};
use crate::tcp::CloseReason;
use crate::time::Instant;

use super::Core;

impl<D: Device> Core<D> {
    /// Carries out the commands in the ring. Returns true if there were any.
    #[inline]
    pub(super) fn receive_commands(&mut self, now: Instant) -> bool {
        // The pop of an empty queue costs a fence.
        !self.rings.commands.is_empty() && self.carry_out_commands(now)
    }

    #[inline(never)]
    fn carry_out_commands(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for _ in 0..limits::COMMANDS_PER_POLL {
            let Some(command) = self.rings.commands.pop() else { break };
            busy = true;
            self.on_command(now, command);
        }
        if busy {
            // There is room for other commands.
            self.endpoints.context.events.record_change();
        }
        busy
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Listen { address, port, backlog, tcp } => {
                let behaviour = tcp.unwrap_or(self.behaviour);
                let at = ListenAddress { address, port };
                self.endpoints.context.listeners.listen(at, backlog, behaviour);
            }
            Command::Unlisten { address, port } => {
                self.endpoints.context.listeners.unlisten(ListenAddress { address, port });
            }
            Command::Connect { token, local, remote, timeout_ns, tcp, octets } => {
                match self.connect(now, token, local, remote, timeout_ns, tcp) {
                    Ok(slot) => {
                        if let Some(mut endpoint) = self.endpoints.at(now, slot) {
                            endpoint.send_first(octets);
                        }
                    }
                    Err(error) => self.push_event(Event::ConnectFailed { token, error }),
                }
            }
            Command::GiveUp { token } => self.give_up(now, token),
            Command::Admit { connection } => self.with_endpoint(now, connection, |mut endpoint| {
                endpoint.leave_backlog();
                Outcome::NONE
            }),
            Command::Stream { connection, octets, then } => self.send_stream(now, connection, octets, then),
            Command::ConsumeStream { connection, octets } => {
                self.with_endpoint(now, connection, |mut endpoint| endpoint.consume_stream(octets));
            }
            Command::Start { connection, qp, operation } => self.start(now, connection, qp, operation),
            Command::StartUnnegotiated { connection, qp, operation, direction } => {
                self.start_unnegotiated(now, connection, &qp, operation, direction);
            }
            Command::AttachByteStream { connection, stream } => self.attach(now, connection, stream),
            Command::Close { connection } => {
                self.with_endpoint(now, connection, |mut endpoint| endpoint.close(None));
            }
            Command::Disconnect { connection, within_ns } => {
                self.with_endpoint(now, connection, |mut endpoint| endpoint.close(within_ns));
            }
            Command::Abandon { connection, within_ns } => {
                self.with_endpoint(now, connection, |mut endpoint| endpoint.abandon(within_ns));
            }
            Command::Abort { connection } => {
                self.with_endpoint(now, connection, |mut endpoint| endpoint.abort());
            }
            Command::DestroyQp(qp) => self.destroy_qp(now, qp),
            Command::Register { stag, grant } => {
                let result = self.endpoints.context.stags.insert(stag, grant);
                self.push_event(Event::Registered { stag, result });
            }
            Command::AllocateWindow { stag, pd } => {
                let result = self.endpoints.context.stags.allocate_window(stag, pd);
                self.push_event(Event::Registered { stag, result });
            }
            Command::Deregister { stag } => self.deregister(stag),
            Command::ReportStatistics => self.push_event(Event::Statistics(Box::new(self.statistics()))),
            Command::ReportConnection { connection } => {
                let open = self.endpoints.table.get(connection);
                let report = open.map(|open| Box::new(open.tcp.snapshot()));
                self.push_event(Event::ConnectionReport(report));
            }
        }
    }

    fn push_event(&mut self, event: Event) {
        self.endpoints.context.events.push(event);
    }

    fn send_stream(&mut self, now: Instant, id: ConnectionId, octets: Box<[u8]>, then: AfterStream) {
        let Some(mut endpoint) = self.endpoints.named(now, id) else { return };
        if endpoint.send_stream(octets) {
            match then {
                AfterStream::Stay => {}
                AfterStream::FullOperation { qp, operation } => self.start(now, id, qp, operation),
                AfterStream::Close => self.with_endpoint(now, id, |mut endpoint| endpoint.close(None)),
            }
        }
        self.apply(id.slot(), Outcome::SCHEDULE);
    }

    fn attach(&mut self, now: Instant, id: ConnectionId, stream: Arc<SharedByteStream>) {
        match self.endpoints.named(now, id) {
            Some(mut endpoint) => {
                // The stream may have rung already.
                self.rings.doorbells.use_byte_stream(id.slot());
                self.rings.doorbells.leave_others();
                let outcome = endpoint.attach(stream);
                self.apply(id.slot(), outcome);
            }
            None => stream.set_end(CloseReason::Aborted),
        }
    }

    fn start(&mut self, now: Instant, id: ConnectionId, qp: Arc<SharedQp>, operation: FullOperation) {
        match self.endpoints.bind(now, id, qp) {
            Some(mut endpoint) => {
                let outcome = endpoint.start(operation);
                self.apply(id.slot(), outcome);
            }
            None => self.refuse_start(),
        }
    }

    fn start_unnegotiated(
        &mut self,
        now: Instant,
        id: ConnectionId,
        qp: &Arc<SharedQp>,
        operation: FullOperation,
        direction: Direction,
    ) {
        match self.endpoints.bind(now, id, qp.clone()) {
            Some(mut endpoint) => {
                let outcome = endpoint.start_unnegotiated(qp, operation, direction);
                self.apply(id.slot(), outcome);
            }
            None => self.refuse_start(),
        }
    }

    /// Counts a command to begin Full Operation for a connection that is over. [`Event::Closed`] was already
    /// queued when control gave the command; [`Event::Operating`] does not follow it.
    const fn refuse_start(&mut self) {
        self.endpoints.context.statistics.starts_refused += 1;
    }

    fn destroy_qp(&mut self, now: Instant, shared: Arc<SharedQp>) {
        let number = shared.number;
        let at_core = shared.home().and_then(|slot| self.endpoints.queue_pairs.at_mut(slot));
        if let Some(id) = at_core.and_then(|qp| qp.connection) {
            self.with_endpoint(now, id, |mut endpoint| endpoint.lose_queue_pair());
        }
        let context = &mut self.endpoints.context;
        // One without a stream has receives to flush.
        let at_core = self.endpoints.queue_pairs.remove(&shared);
        let mut qp = at_core.unwrap_or_else(|| QueuePair::new(shared));
        debug_assert!(qp.connection.is_none(), "its connection has lost it");
        // No doorbell leads to it any more: work posted now would never be flushed.
        qp.shared.refuse_posts();
        qp.shared.set_state(QpState::Error);
        qp.flush(&mut context.stags, &mut context.placed_sends, None);
        // Another queue pair will have its number.
        context.stags.end_stream(number.0);
        context.events.push(Event::QpDestroyed(number));
    }

    fn deregister(&mut self, stag: STag) {
        // Sends that were posted before read from the memory too, even if their doorbell is not served yet.
        // Those that cannot be accepted yet may do so as well.
        let stags = &mut self.endpoints.context.stags;
        let owner = stags.owner(stag);
        let mut may_be_used = false;
        for qp in self.endpoints.queue_pairs.iter_mut().filter(|qp| !qp.shared.state().is_over()) {
            qp.sender.accept_posted(&qp.shared, stags);
            may_be_used |= Some(qp.shared.accessor().pd) == owner && qp.sender.may_be_posted(&qp.shared);
        }
        let result = if may_be_used { Err(RemoveError::InUse) } else { stags.remove(stag) };
        self.push_event(Event::Deregistered { stag, result });
    }
}
