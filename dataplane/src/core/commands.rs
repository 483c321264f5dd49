//! Commands of control.

use std::sync::Arc;

use crate::byte_stream::SharedByteStream;
use crate::conn::{ConnectionId, ListenAddress};
use crate::device::Device;
use crate::endpoint::{Endpoints, Outcome, QueuePair};
use crate::limits;
use crate::memory::{ProtectionDomainId, RemoveError, STag};
use crate::qp::shared::{QpState, SharedQp};
use crate::ring::{AfterStream, Command, Direction, Event, FullOperation};
use crate::tcp::CloseReason;
use crate::time::Instant;

use super::Core;
use super::active_open::OpenRequest;

/// A command that takes several polls. Those after it wait.
pub(super) enum Unfinished {
    /// A local port is sought.
    Connect(OpenRequest),
    /// Posted requests are accepted that may use the memory.
    Deregister(Deregistration),
    /// Queue pairs are looked through for those that read from the memory.
    Revoke(Revocation),
}

/// How memory is to be deregistered.
#[derive(Clone, Copy)]
pub(super) enum Manner {
    /// If nothing uses it.
    IfUnused,
    /// Not yet: control asks whether anything uses it, by an attempt of this number.
    Probe(u32),
}

/// A deregistration.
pub(super) struct Deregistration {
    stag: STag,
    manner: Manner,
    /// The Protection Domain of the memory.
    owner: ProtectionDomainId,
    /// The next [word](crate::qp::shared::Doorbells::rung) of doorbells to look at.
    word: usize,
    /// A queue pair of the domain has posted requests that cannot be accepted yet, and may use the memory.
    is_used: bool,
}

/// A revocation of memory that grants nothing new any more.
pub(super) struct Revocation {
    stag: STag,
    /// The Protection Domain of the memory.
    owner: ProtectionDomainId,
    /// The slot of the next queue pair to look at.
    slot: u32,
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
    fn go_on_with(&mut self, now: Instant, unfinished: Unfinished) {
        match unfinished {
            Unfinished::Connect(mut request) => match self.opener(now).connect(&mut request) {
                Ok(true) => {}
                Ok(false) => self.leave_unfinished(Unfinished::Connect(request)),
                Err(error) => self.push_event(Event::ConnectFailed { token: request.token, error }),
            },
            Unfinished::Deregister(mut deregistration) => {
                if self.accept_for(&mut deregistration) {
                    self.end_deregistration(&deregistration);
                } else {
                    self.leave_unfinished(Unfinished::Deregister(deregistration));
                }
            }
            Unfinished::Revoke(mut revocation) => {
                if self.end_readers(now, &mut revocation) {
                    let result = self.endpoints.context.stags.remove(revocation.stag);
                    self.answer_deregistration(revocation.stag, Manner::IfUnused, result);
                } else {
                    self.leave_unfinished(Unfinished::Revoke(revocation));
                }
            }
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
                self.take_held_syns(now);
            }
            Command::Unlisten { address, port } => {
                self.opener(now).unlisten(ListenAddress { address, port });
            }
            Command::Connect { token, local, remote, timeout_ns, tcp, octets } => {
                self.opener(now).answer_for(local.map_or(0, |local| local.port()));
                let request = OpenRequest { token, local, remote, timeout_ns, tcp, octets, ports_tried: 0 };
                self.go_on_with(now, Unfinished::Connect(request));
            }
            Command::GiveUp { token } => self.opener(now).give_up(token),
            Command::Admit { connection } => self.endpoints.with_named(now, connection, |mut endpoint| {
                endpoint.leave_backlog();
                Outcome::NONE
            }),
            Command::Stream { connection, octets, then } => self.send_stream(now, connection, octets, then),
            Command::ConsumeStream { connection, octets } => {
                self.endpoints.with_named(now, connection, |mut endpoint| endpoint.consume_stream(octets));
            }
            Command::Start { connection, qp, operation } => self.start(now, connection, qp, operation),
            Command::StartUnnegotiated { connection, qp, operation, direction } => {
                self.start_unnegotiated(now, connection, &qp, operation, direction);
            }
            Command::AttachByteStream { connection, stream } => self.attach(now, connection, stream),
            Command::Close { connection } => {
                self.endpoints.with_named(now, connection, |mut endpoint| endpoint.close(None));
            }
            Command::Disconnect { connection, within_ns } => {
                self.endpoints.with_named(now, connection, |mut endpoint| endpoint.close(within_ns));
            }
            Command::Abandon { connection, within_ns } => {
                self.endpoints.with_named(now, connection, |mut endpoint| endpoint.abandon(within_ns));
            }
            Command::Abort { connection } => {
                self.endpoints.with_named(now, connection, |mut endpoint| endpoint.abort());
            }
            Command::EndQp(qp) => self.end_qp(&qp),
            Command::DestroyQp(qp) => self.destroy_qp(now, qp),
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
            Command::EndChange { id, result } => {
                if let Some(qp) = self.endpoints.queue_pairs.at_mut(id.slot()) {
                    qp.sender.end_change(id, result, &qp.shared, &mut self.endpoints.context.stags);
                    qp.shared.ring();
                }
            }
            Command::ReportStatistics => {
                self.reports.request();
                self.walks_on = true;
            }
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
                AfterStream::Close => self.endpoints.with_named(now, id, |mut endpoint| endpoint.close(None)),
            }
        }
        self.endpoints.apply(id.slot(), Outcome::SCHEDULE);
    }

    fn attach(&mut self, now: Instant, id: ConnectionId, stream: Arc<SharedByteStream>) {
        match self.endpoints.named(now, id) {
            Some(mut endpoint) => {
                // The stream may have rung already.
                self.rings.doorbells.use_byte_stream(id.slot());
                self.rings.doorbells.leave_others();
                let outcome = endpoint.attach(stream);
                self.endpoints.apply(id.slot(), outcome);
            }
            None => stream.set_end(CloseReason::Aborted),
        }
    }

    fn start(&mut self, now: Instant, id: ConnectionId, qp: Arc<SharedQp>, operation: FullOperation) {
        match self.endpoints.bind(now, id, qp) {
            Some(mut endpoint) => {
                let weight = operation.weight;
                let outcome = endpoint.start(operation);
                self.endpoints.table.set_weight(id.slot(), weight);
                self.endpoints.apply(id.slot(), outcome);
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
                let weight = operation.weight;
                let outcome = endpoint.start_unnegotiated(qp, operation, direction);
                self.endpoints.table.set_weight(id.slot(), weight);
                self.endpoints.apply(id.slot(), outcome);
            }
            None => self.refuse_start(),
        }
    }

    /// Counts a command to begin Full Operation for a connection that is over. [`Event::Closed`] was already
    /// queued when control gave the command; [`Event::Operating`] does not follow it.
    const fn refuse_start(&mut self) {
        self.endpoints.context.statistics.starts_refused += 1;
    }

    /// Ends a queue pair that never had a connection.
    fn end_qp(&mut self, shared: &Arc<SharedQp>) {
        let core = self.endpoints.table.core();
        let Endpoints { queue_pairs, context, .. } = &mut self.endpoints;
        let (stags, placed) = (&mut context.stags, &mut context.placed_sends);
        match queue_pairs.add(shared.clone(), core) {
            Some(qp) => qp.end(stags, placed, CloseReason::Aborted),
            // There is no slot, so no doorbell would lead to what is posted later.
            None if shared.home().is_none() => {
                shared.set_last_core(core);
                shared.refuse_posts();
                QueuePair::new(shared.clone()).end(stags, placed, CloseReason::Aborted);
            }
            None => debug_assert!(false, "{:?} has begun", shared.number),
        }
        self.push_event(Event::QpEnded(shared.number));
    }

    fn destroy_qp(&mut self, now: Instant, shared: Arc<SharedQp>) {
        let number = shared.number;
        let home = shared.home();
        // Nobody but its own core may touch its queues; of one that was never at a core, the core that
        // control asks.
        let core = self.endpoints.table.core();
        if home.is_some_and(|home| home.core != core) {
            debug_assert!(false, "core {core} destroys the queue pair at {home:?}");
            return;
        }
        if home.is_none() {
            shared.set_last_core(core);
        }
        let at_core = home.and_then(|home| self.endpoints.queue_pairs.at_mut(home.slot));
        if let Some(id) = at_core.and_then(|qp| qp.connection) {
            self.endpoints.with_named(now, id, |mut endpoint| endpoint.lose_queue_pair());
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

    fn deregister(&mut self, now: Instant, stag: STag, manner: Manner) {
        match self.endpoints.context.stags.owner(stag) {
            Some(owner) => {
                let deregistration = Deregistration { stag, manner, owner, word: 0, is_used: false };
                self.go_on_with(now, Unfinished::Deregister(deregistration));
            }
            None => self.answer_deregistration(stag, manner, Err(RemoveError::Unknown)),
        }
    }

    /// Accepts requests that were posted before a deregistration: they read from the memory too. Returns
    /// false if the next poll is to go on.
    ///
    /// A posted request is accepted already, or the doorbell of its queue pair rings, or it was found then
    /// that it has to wait ([`Unaccepted`](crate::endpoint::Unaccepted)): no other queue pair is looked at.
    fn accept_for(&mut self, deregistration: &mut Deregistration) -> bool {
        let doorbells = &self.rings.doorbells;
        let Endpoints { queue_pairs, context, .. } = &mut self.endpoints;
        let mut left = limits::QUEUE_PAIRS_VISITED_TOGETHER;
        while deregistration.word < doorbells.words() {
            let word = deregistration.word;
            let mut bits = doorbells.rung(word) | context.unaccepted.word(word);
            if bits != 0 && left == 0 {
                return false;
            }
            left = left.saturating_sub(bits.count_ones());
            deregistration.word += 1;
            while bits != 0 {
                let slot = word as u32 * u64::BITS + bits.trailing_zeros();
                bits &= bits - 1;
                let found = queue_pairs.at_mut(slot);
                match found.filter(|qp| !qp.shared.state().is_over()) {
                    Some(qp) if qp.shared.pd == deregistration.owner => {
                        context.unaccepted.remove(slot);
                        qp.accept_posted(&mut context.stags, &mut context.unaccepted);
                        deregistration.is_used |= qp.sender.may_be_posted(&qp.shared);
                    }
                    Some(_) => {}
                    None => context.unaccepted.remove(slot),
                }
            }
        }
        true
    }

    fn revoke(&mut self, now: Instant, stag: STag) {
        let stags = &mut self.endpoints.context.stags;
        let result = match stags.owner(stag) {
            Some(owner) if !stags.has_windows(stag) => {
                // Requests that are accepted later find that it is not registered.
                stags.revoke(stag);
                return self.go_on_with(now, Unfinished::Revoke(Revocation { stag, owner, slot: 0 }));
            }
            Some(_) => Err(RemoveError::WindowsBound),
            None => Err(RemoveError::Unknown),
        };
        self.answer_deregistration(stag, Manner::IfUnused, result);
    }

    /// Resets the connections of queue pairs that read from memory, until none does. Returns false if the
    /// next poll is to go on.
    ///
    /// Nothing new reads from it, so a queue pair that does not read from it now never will.
    fn end_readers(&mut self, now: Instant, revocation: &mut Revocation) -> bool {
        let mut left = limits::REQUESTS_VISITED_PER_POLL;
        while self.endpoints.context.stags.check_unused(revocation.stag) == Err(RemoveError::InUse) {
            if left == 0 {
                return false;
            }
            let queue_pairs = &self.endpoints.queue_pairs;
            if revocation.slot as usize >= queue_pairs.slots() {
                debug_assert!(false, "the queue pairs that read from memory are here");
                return true;
            }
            let qp = queue_pairs.peek(revocation.slot);
            revocation.slot += 1;
            left -= 1;
            let Some(qp) = qp.filter(|qp| qp.shared.pd == revocation.owner) else { continue };
            left = left.saturating_sub(qp.requests());
            if let Some(id) = qp.connection.filter(|_| qp.reads_from(revocation.stag)) {
                self.endpoints.with_named(now, id, |mut endpoint| endpoint.abort());
            }
        }
        true
    }

    fn end_deregistration(&mut self, deregistration: &Deregistration) {
        let &Deregistration { stag, manner, is_used, .. } = deregistration;
        let stags = &mut self.endpoints.context.stags;
        let result = match manner {
            _ if is_used => Err(RemoveError::InUse),
            Manner::IfUnused => stags.remove(stag),
            Manner::Probe(_) => stags.check_unused(stag),
        };
        self.answer_deregistration(stag, manner, result);
    }

    fn answer_deregistration(&mut self, stag: STag, manner: Manner, result: Result<(), RemoveError>) {
        self.push_event(match manner {
            Manner::IfUnused => Event::Deregistered { stag, result },
            Manner::Probe(attempt) => Event::Probed { stag, attempt, result },
        });
    }
}
