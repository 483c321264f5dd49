//! Queue pairs, from the request of the application until the core has forgotten them.

use std::num::{NonZeroU8, NonZeroU32, NonZeroU64};
use std::sync::Arc;

use warpline_dataplane::limits;
use warpline_dataplane::memory::ProtectionDomainId;
use warpline_dataplane::qp::async_event::AsyncEvents;
use warpline_dataplane::qp::shared::{CompletionRings, CoreDoorbells, QueueDepths, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{Command, ConnectionId, FlowKey, FullOperation};
use warpline_dataplane::tcp::{CloseReason, PeerTimeouts};
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

use super::deadlines::Deadlines;
use super::holdings::Holdings;
use super::interface::connection_status::ConnectionStatus;
use super::interface::reply::Reply;
use super::interface::request::NewQueuePair;
use super::names::{QpNumbers, Table};
use super::outbox::Outbox;
use crate::vocabulary::duration::nanos;
use crate::vocabulary::queue_pair::{CreateError, QpConfig, RnrPolicy};

/// How long a connection that this end has finished may take to close before it is reset.
pub(super) const LINGER_NS: u64 = 5 * SECOND;

/// How long what was posted may take to reach the peer where the owner of the queue pair waits for its end.
pub(super) const FENCE_NS: u64 = 50 * MILLISECOND;

/// How long no owner waits so after one has waited in vain: of many queue pairs with a peer that is gone, one
/// is waited for.
const FENCE_PAUSE_NS: u64 = SECOND;

/// How far the removal of a queue pair without an owner has come.
enum Removal {
    /// Its connection is being closed in an orderly way; at the time `by` the queue pair is removed anyway.
    AfterClose { by: Instant, reply: Option<Reply<()>> },
    /// The core has been asked to remove it.
    Requested(Option<Reply<()>>),
}

/// A queue pair as the engine sees it.
pub(super) struct QueuePair {
    pub(super) shared: Arc<SharedQp>,
    pub(super) status: Arc<ConnectionStatus>,
    pub(super) operation: OperationConfig,
    binding: Binding,
    /// It is to end, once the connection that is on the way is given up.
    is_aborted: bool,
    /// The core that has it, once a command has brought it there.
    core: Option<u8>,
}

/// What of a queue pair's configuration its connection uses: the rest counts when it is made.
#[derive(Clone, Copy)]
pub(super) struct OperationConfig {
    peer_timeouts: PeerTimeouts,
    rate_limit_kbps: Option<NonZeroU32>,
    weight: NonZeroU8,
    receive_wait_ns: Option<NonZeroU64>,
    disconnect_within_ns: Option<NonZeroU64>,
    pub(super) keep_open: bool,
    packing: bool,
    crc_retries: u8,
}

impl OperationConfig {
    fn of(config: &QpConfig) -> Self {
        Self {
            peer_timeouts: config.peer_timeouts(),
            rate_limit_kbps: config.rate_limit_kbps(),
            weight: config.weight,
            receive_wait_ns: match config.rnr {
                RnrPolicy::Terminate => None,
                RnrPolicy::Wait { timeout } => at_least_one(nanos(timeout)),
            },
            disconnect_within_ns: config.disconnect_timeout.map(nanos).and_then(at_least_one),
            keep_open: config.keep_open,
            packing: config.packing,
            crc_retries: config.crc_retries,
        }
    }
}

/// Returns a time that takes no more room when there is none.
const fn at_least_one(time_ns: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(if time_ns == 0 { 1 } else { time_ns })
}

/// How far a queue pair has come to its connection: it serves one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Binding {
    /// It has no connection.
    Free,
    /// A connection is being opened for it, by the token of the command.
    Opening(u64),
    /// This end is the Initiator on this connection, and waits for the Reply.
    Initiating(ConnectionId),
    /// It is taken for a connection whose opening or start follows, or is to have none any more: it has had
    /// one, or has ended.
    Reserved,
    /// The connection is in Full Operation, or on the way there.
    Connection(ConnectionId),
}

impl QueuePair {
    /// Returns how long a disconnect waits for progress, in nanoseconds; `None` without limit.
    pub(super) fn disconnect_within_ns(&self) -> Option<u64> {
        self.operation.disconnect_within_ns.map(NonZeroU64::get)
    }

    /// Has its core destroy it; any core if none has it. Returns false if its core is no longer polled.
    fn destroy(&mut self, out: &mut Outbox) -> bool {
        let core = *self.core.get_or_insert_with(|| out.any_core());
        out.command_core(core, Command::DestroyQp(self.shared.clone()));
        out.alive().contains(core)
    }

    /// Has a core end it without a connection; any core, as none has it.
    fn end(&mut self, out: &mut Outbox) {
        self.binding = Binding::Reserved;
        let core = *self.core.get_or_insert_with(|| out.any_core());
        self.shared.prepare_for(core);
        out.command_core(core, Command::EndQp(self.shared.clone()));
    }

    /// Returns its connection, if it is in Full Operation or on the way there.
    pub(super) const fn connection(&self) -> Option<ConnectionId> {
        match self.binding {
            Binding::Connection(id) => Some(id),
            Binding::Free | Binding::Opening(_) | Binding::Initiating(_) | Binding::Reserved => None,
        }
    }
}

/// All queue pairs of a device.
pub(super) struct QueuePairs {
    numbers: QpNumbers,
    entries: Table<QpNumber, QueuePair>,
    /// Queue pairs whose owners have dropped them.
    removals: Table<QpNumber, Removal>,
    /// When those are removed whose connections are being closed.
    deadlines: Deadlines<QpNumber>,
    /// Until then no owner waits for what it has posted.
    fences_from: Instant,
    /// How many each Protection Domain has.
    domains: Holdings<ProtectionDomainId>,
    /// What every queue pair shares with the cores and with applications.
    doorbells: CoreDoorbells,
    events: Arc<AsyncEvents>,
}

/// The parts of a queue pair to be made.
pub(super) struct QueuePairParts {
    pub(super) pd: ProtectionDomainId,
    pub(super) config: QpConfig,
    /// Of sends, and of receives.
    pub(super) completions: CompletionRings,
    /// Where its receives come from, if not from a queue of its own.
    pub(super) receives: Option<Arc<SharedReceiveQueue>>,
}

impl QueuePairs {
    pub(super) fn new(
        capacity: usize,
        per_domain: usize,
        doorbells: CoreDoorbells,
        events: Arc<AsyncEvents>,
    ) -> Self {
        Self {
            numbers: QpNumbers::new(capacity),
            entries: Table::default(),
            removals: Table::default(),
            deadlines: Deadlines::new(),
            fences_from: Instant::ZERO,
            domains: Holdings::new(per_domain),
            doorbells,
            events,
        }
    }

    /// Returns the doorbells of the cores.
    pub(super) const fn doorbells(&self) -> &CoreDoorbells {
        &self.doorbells
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// # Panics
    ///
    /// When anything is left of a queue pair.
    #[cfg(test)]
    pub(super) fn assert_unused(&self) {
        assert!(self.entries.is_empty() && self.removals.is_empty(), "queue pairs");
        assert!(self.deadlines.is_empty(), "deadlines of queue pairs");
        assert!(self.domains.is_empty(), "quotas of queue pairs");
        assert!(self.numbers.are_all_free(), "queue pair numbers");
    }

    /// Returns how many were refused because their domain had its quota.
    pub(super) const fn refused(&self) -> u64 {
        self.domains.refused()
    }

    /// Returns the connection of the queue pair `number`, if it has one.
    pub(super) fn connection_of(&self, number: QpNumber) -> Option<ConnectionId> {
        self.entries.get(&number)?.connection()
    }

    /// Returns the token of the connection that is being opened for the queue pair `number`.
    pub(super) fn opening_of(&self, number: QpNumber) -> Option<u64> {
        match self.entries.get(&number)?.binding {
            Binding::Opening(token) => Some(token),
            _ => None,
        }
    }

    /// Returns the connection on which the queue pair `number` is the Initiator and waits for the Reply.
    pub(super) fn initiating_of(&self, number: QpNumber) -> Option<ConnectionId> {
        match self.entries.get(&number)?.binding {
            Binding::Initiating(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the entry of `qp`, and not of another queue pair that has its number by now.
    // Requirements: DDP-8.2-01
    pub(super) fn of(&self, qp: &Arc<SharedQp>) -> Option<&QueuePair> {
        self.entries.get(&qp.number).filter(|entry| Arc::ptr_eq(&entry.shared, qp))
    }

    pub(super) fn of_mut(&mut self, qp: &Arc<SharedQp>) -> Option<&mut QueuePair> {
        self.entries.get_mut(&qp.number).filter(|entry| Arc::ptr_eq(&entry.shared, qp))
    }

    /// Reserves a queue pair for a connection. Returns false if it has or had one.
    pub(super) fn bind(&mut self, qp: &Arc<SharedQp>) -> bool {
        let entry = self.of_mut(qp).filter(|entry| entry.binding == Binding::Free);
        entry.map(|entry| entry.binding = Binding::Reserved).is_some()
    }

    /// Records that a connection is being opened for a queue pair that is [reserved](Self::bind).
    pub(super) fn set_opening(&mut self, qp: &Arc<SharedQp>, token: u64) {
        if let Some(entry) = self.of_mut(qp) {
            entry.binding = Binding::Opening(token);
        }
    }

    /// Records that this end is the Initiator on the connection `id`.
    pub(super) fn set_initiating(&mut self, qp: &Arc<SharedQp>, id: ConnectionId) {
        if let Some(entry) = self.of_mut(qp) {
            entry.binding = Binding::Initiating(id);
        }
    }

    /// Records that a queue pair serves the connection `id` between the addresses `flow`.
    pub(super) fn set_connection(&mut self, qp: &Arc<SharedQp>, id: ConnectionId, flow: Option<FlowKey>) {
        if let Some(entry) = self.of_mut(qp) {
            qp.prepare_for(id.core());
            entry.binding = Binding::Connection(id);
            entry.core = Some(id.core());
            entry.status.set_flow(flow);
        }
    }

    /// Returns true if the queue pair exists and its owner has not destroyed it.
    pub(super) fn is_live(&self, qp: &Arc<SharedQp>) -> bool {
        self.of(qp).is_some() && !self.removals.contains_key(&qp.number)
    }

    /// Takes [`bind`](Self::bind) back: the connection did not come to Full Operation. A queue pair that is
    /// to end does so now.
    pub(super) fn unbind(&mut self, out: &mut Outbox, qp: &Arc<SharedQp>) {
        let is_live = self.is_live(qp);
        let Some(entry) = self.of_mut(qp) else { return };
        if !is_live {
            // Its owner has dropped it: the core has been asked to destroy it, or was to be after an orderly
            // close, which does not come.
            return self.remove_after_close(out, qp.number);
        }
        (entry.binding, entry.core) = (Binding::Free, None);
        entry.status.set_free();
        if entry.is_aborted {
            entry.end(out);
        }
    }

    /// Resets the connection of the queue pair `number`. One without a connection ends; one whose connection
    /// is on the way does when that is [given up](Self::unbind).
    pub(super) fn abort(&mut self, out: &mut Outbox, number: QpNumber) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.is_aborted = true;
        match entry.binding {
            Binding::Free => entry.end(out),
            Binding::Opening(_) | Binding::Initiating(_) | Binding::Reserved => {}
            Binding::Connection(connection) => out.command(connection, Command::Abort { connection }),
        }
    }

    /// Handles a queue pair that its core has ended without a connection.
    pub(super) fn on_ended(&mut self, number: QpNumber) {
        if let Some(entry) = self.entries.get(&number) {
            entry.status.set_closed(CloseReason::Aborted);
        }
    }

    /// Returns `operation` with the choices of the configuration of `qp`.
    pub(super) fn configure(&self, qp: &Arc<SharedQp>, operation: FullOperation) -> FullOperation {
        match self.of(qp).map(|entry| entry.operation) {
            // An operation may rule packing out.
            // Requirements: C00-7.3-02
            Some(config) => FullOperation {
                packing: operation.packing && config.packing,
                crc_retries: config.crc_retries,
                peer_timeouts: config.peer_timeouts,
                rate_limit_kbps: config.rate_limit_kbps,
                weight: config.weight,
                receive_wait_ns: config.receive_wait_ns.map(NonZeroU64::get),
                ..operation
            },
            None => operation,
        }
    }

    /// Fails all queue pairs: the core is no longer polled, and nothing that was posted will complete.
    pub(super) fn fail_all(&mut self) {
        for qp in self.entries.values() {
            qp.shared.abandon();
            qp.status.set_closed(CloseReason::Aborted);
        }
    }

    pub(super) fn create(&mut self, parts: QueuePairParts) -> Result<NewQueuePair, CreateError> {
        let QueuePairParts { pd, config, completions, receives } = parts;
        // Before anything is allocated: one careless value must not cost others their device.
        let (depth, most) = (config.send_depth.max(config.receive_depth), limits::WORK_REQUESTS_PER_QUEUE);
        if depth > most {
            return Err(CreateError::TooDeep { depth, most });
        }
        // Requirements: DDP-8.3.2-03, DDP-8.3.2-06, RDMAP-8.1.2-01, RDMAP-8.1.2-03
        if !self.domains.has_room(pd) {
            return Err(CreateError::Quota);
        }
        let number = self.numbers.allocate().ok_or(CreateError::TooManyQueuePairs)?;
        self.domains.add(pd);
        let depths = QueueDepths { send: config.send_depth, receive: config.receive_depth };
        let mut shared = SharedQp::new(number, pd, depths, completions, self.doorbells.clone())
            .with_events(self.events.clone());
        if let Some(receives) = receives {
            shared = shared.with_shared_receives(receives);
        }
        let (shared, status) = (Arc::new(shared), Arc::new(ConnectionStatus::default()));
        let created = NewQueuePair { shared: shared.clone(), status: status.clone() };
        self.entries.insert(
            number,
            QueuePair {
                shared,
                status,
                operation: OperationConfig::of(&config),
                binding: Binding::Free,
                is_aborted: false,
                core: None,
            },
        );
        Ok(created)
    }

    /// Removes a queue pair whose owner has dropped it. `closing` says that its connection ends by itself in
    /// an orderly way: what was posted before the FIN is then still delivered, and the buffers stay
    /// registered as long. With `fence` no work request uses memory once the owner has the reply: it waits a
    /// little for what it has posted, and the connection ends by itself. Returns false if it is gone at once:
    /// its core is no longer polled.
    pub(super) fn destroy(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        number: QpNumber,
        closing: bool,
        fence: bool,
        reply: Reply<()>,
    ) -> bool {
        let Some(qp) = self.entries.get_mut(&number) else { return true };
        let mut is_left = true;
        // The core sends the Terminate of a stream that has failed, and needs nothing of the queue pair for
        // that.
        let waits = !fence || qp.shared.sends_outstanding() > 0 && now >= self.fences_from;
        let removal = if closing && waits && !qp.shared.state().is_over() {
            let by = now + if fence { FENCE_NS } else { LINGER_NS };
            self.deadlines.change(number, Instant::NEVER, by);
            if fence {
                Removal::AfterClose { by, reply: Some(reply) }
            } else {
                out.reply(reply, ());
                Removal::AfterClose { by, reply: None }
            }
        } else {
            is_left = qp.destroy(out);
            if !is_left {
                // A thread may have posted while the core ended.
                qp.shared.release_entries();
            }
            Removal::Requested(Some(reply))
        };
        self.removals.insert(number, removal);
        is_left
    }

    /// Handles a queue pair that the core has destroyed: its number may be assigned again. Returns its
    /// Protection Domain if that has no other.
    pub(super) fn on_destroyed(&mut self, out: &mut Outbox, number: QpNumber) -> Option<ProtectionDomainId> {
        let mut without = None;
        if let Some(entry) = self.entries.remove(&number) {
            self.numbers.give_back(number);
            let pd = entry.shared.pd;
            without = self.domains.give_back(pd).then_some(pd);
        }
        if let Some(Removal::Requested(Some(reply))) = self.removals.remove(&number) {
            out.reply(reply, ());
        }
        without
    }

    /// Fails the queue pairs of a core that is no longer polled. Returns those that it was to destroy.
    pub(super) fn on_core_ended(&mut self, core: u8) -> Vec<QpNumber> {
        let mut gone = Vec::new();
        for (number, qp) in self.entries.iter().filter(|(_, qp)| qp.core == Some(core)) {
            qp.shared.abandon();
            // Other queue pairs may report to its completion queues.
            qp.shared.release_entries();
            qp.status.set_closed(CloseReason::Aborted);
            if matches!(self.removals.get(number), Some(Removal::Requested(_))) {
                gone.push(*number);
            }
        }
        gone.sort_unstable_by_key(|number| number.0);
        gone
    }

    /// Handles the end of the queue pair's connection.
    pub(super) fn on_closed(&mut self, out: &mut Outbox, qp: &Arc<SharedQp>, reason: CloseReason) {
        let Some(entry) = self.of_mut(qp) else { return };
        entry.binding = Binding::Reserved;
        entry.status.set_closed(reason);
        self.remove_after_close(out, qp.number);
    }

    /// Has the core remove a queue pair whose connection is closed, or has taken too long to close, if its
    /// owner has dropped it.
    fn remove_after_close(&mut self, out: &mut Outbox, number: QpNumber) {
        let Some(removal) = self.removals.get_mut(&number) else { return };
        if let Removal::AfterClose { by, reply } = removal {
            let by = *by;
            *removal = Removal::Requested(reply.take());
            self.deadlines.change(number, by, Instant::NEVER);
            if let Some(qp) = self.entries.get_mut(&number) {
                qp.destroy(out);
            }
        }
    }

    /// Returns when the next queue pair is removed though its connection is not closed.
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadlines.next()
    }

    /// Removes the queue pairs whose connections have taken too long to close.
    pub(super) fn on_time(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(number) = self.deadlines.pop_due(now) {
            if matches!(self.removals.get(&number), Some(Removal::AfterClose { reply: Some(_), .. })) {
                self.fences_from = now + FENCE_PAUSE_NS;
            }
            self.remove_after_close(out, number);
        }
    }
}
