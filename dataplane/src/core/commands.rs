//! Commands of control: each is carried out, or goes on in the next poll.

use std::sync::Arc;

use crate::byte_stream::SharedByteStream;
use crate::conn::{ConnectionId, ListenAddress};
use crate::device::Device;
use crate::endpoint::Outcome;
use crate::limits;
use crate::memory::STag;
use crate::ring::{Command, Event};
use crate::time::Instant;

use super::Core;
use super::active_open::OpenRequest;
use super::connection_commands::CommandedConnection;
use super::deregistration::{Deregistration, Manner};
use super::revocation::Revocation;

/// A command that takes several polls. Those after it wait.
pub(super) enum Unfinished {
    /// A local port is sought.
    Connect(OpenRequest),
    Deregister(Deregistration),
    Revoke(Revocation),
}

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
            if self.unfinished.is_some() {
                break;
            }
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

    /// Goes on with the command that was not carried out in the poll before, if there is one.
    pub(super) fn go_on_with_command(&mut self, now: Instant) {
        if let Some(unfinished) = self.unfinished.take() {
            self.go_on_with(now, unfinished);
        }
    }

    /// Carries out the part of a command that one poll has time for. The rest stays unfinished.
    fn go_on_with(&mut self, now: Instant, mut command: Unfinished) {
        let is_done = match &mut command {
            Unfinished::Connect(request) => self.connect(now, request),
            Unfinished::Deregister(deregistration) => {
                deregistration.go_on(&mut self.endpoints, &self.rings.doorbells)
            }
            Unfinished::Revoke(revocation) => revocation.go_on(now, &mut self.endpoints),
        };
        if !is_done {
            self.leave_unfinished(command);
        }
    }

    #[cold]
    fn leave_unfinished(&mut self, command: Unfinished) {
        self.unfinished = Some(command);
        self.walks_on = true;
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Listen { address, port, backlog, tcp } => {
                self.opener(now).listen(ListenAddress { address, port }, backlog, tcp);
                self.handle_held_syns(now);
            }
            Command::Unlisten { address, port } => self.opener(now).unlisten(ListenAddress { address, port }),
            Command::Connect { token, local, remote, timeout_ns, tcp, octets } => {
                self.host.neighbourhood.answer_for(local.map_or(0, |local| local.port()));
                let request = OpenRequest { token, local, remote, timeout_ns, tcp, octets, ports_tried: 0 };
                self.go_on_with(now, Unfinished::Connect(request));
            }
            Command::GiveUp { token } => self.opener(now).give_up(token),
            Command::Admit { connection } => self.commanded(now, connection).handle(|mut endpoint| {
                endpoint.leave_backlog();
                Outcome::NONE
            }),
            Command::Stream { connection, octets, then } => {
                self.commanded(now, connection).send_stream(octets, then);
            }
            Command::ConsumeStream { connection, octets } => {
                self.commanded(now, connection).handle(|mut endpoint| endpoint.consume_stream(octets));
            }
            Command::Start { connection, qp, operation } => {
                self.commanded(now, connection).start(qp, operation);
            }
            Command::StartUnnegotiated { connection, qp, operation, direction } => {
                self.commanded(now, connection).start_unnegotiated(&qp, operation, direction);
            }
            Command::AttachByteStream { connection, stream } => self.attach(now, connection, stream),
            Command::Close { connection } => self.commanded(now, connection).close(None),
            Command::Disconnect { connection, within_ns } => self.commanded(now, connection).close(within_ns),
            Command::Abandon { connection, within_ns } => {
                self.commanded(now, connection).handle(|mut endpoint| endpoint.abandon(within_ns));
            }
            Command::Abort { connection } => {
                self.commanded(now, connection).handle(|mut endpoint| endpoint.abort());
            }
            Command::EndQp(qp) => self.endpoints.end_queue_pair(&qp),
            Command::DestroyQp(qp) => self.endpoints.destroy_queue_pair(now, qp),
            Command::Register { stag, grant } => {
                let result = self.endpoints.context.stags.insert(stag, grant);
                self.push_event(Event::Registered { stag, result });
            }
            Command::AllocateWindow { stag, pd } => {
                let result = self.endpoints.context.stags.allocate_window(stag, pd);
                self.push_event(Event::Registered { stag, result });
            }
            Command::Deregister { stag } => self.deregister(now, stag, Manner::IfUnused),
            Command::Probe { stag, attempt } => self.deregister(now, stag, Manner::Probe(attempt)),
            Command::Remove { stag } => {
                self.endpoints.context.stags.revoke(stag);
                self.deregister(now, stag, Manner::IfUnused);
            }
            Command::Revoke { stag } => self.revoke(now, stag),
            Command::Follow(change) => {
                let result = self.endpoints.context.stags.follow(&change);
                self.push_event(Event::Followed { id: change.id, result });
            }
            Command::EndChange { id, result } => self.endpoints.end_change(id, result),
            Command::ReportStatistics => {
                self.reports.request();
                self.walks_on = true;
            }
            Command::ReportConnection { connection } => self.commanded(now, connection).report(),
        }
    }

    /// Returns the connection that a command names.
    fn commanded(&mut self, now: Instant, id: ConnectionId) -> CommandedConnection<'_, D::Frame> {
        CommandedConnection { now, id, endpoints: &mut self.endpoints }
    }

    fn push_event(&mut self, event: Event) {
        self.endpoints.context.events.push(event);
    }

    /// Opens a connection. Returns false if the next poll is to go on.
    fn connect(&mut self, now: Instant, request: &mut OpenRequest) -> bool {
        self.opener(now).connect(request).unwrap_or_else(|error| {
            self.push_event(Event::ConnectFailed { token: request.token, error });
            true
        })
    }

    fn attach(&mut self, now: Instant, id: ConnectionId, stream: Arc<SharedByteStream>) {
        let Self { endpoints, rings, .. } = self;
        CommandedConnection { now, id, endpoints }.attach(stream, &rings.doorbells);
    }

    fn deregister(&mut self, now: Instant, stag: STag, manner: Manner) {
        if let Some(begun) = Deregistration::begin(&mut self.endpoints.context, stag, manner) {
            self.go_on_with(now, Unfinished::Deregister(begun));
        }
    }

    fn revoke(&mut self, now: Instant, stag: STag) {
        if let Some(begun) = Revocation::begin(&mut self.endpoints.context, stag) {
            self.go_on_with(now, Unfinished::Revoke(begun));
        }
    }
}
