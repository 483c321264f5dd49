//! The control engine of a device: the Privileged Resource Manager. It owns names (listeners, STags, queue
//! pair numbers), turns requests of handles into commands for the core, and runs MPA startup on the octets
//! that the core hands up.
//!
//! The core gives control a copy of the streaming octets of a connection that is not yet in Full Operation.
//! The octets stay in TCP's window until control has consumed them: when the application reads them in
//! streaming mode, as Full Operation begins for a startup frame. Full Operation begins after the last octet
//! that was consumed, whatever has arrived by then. One command both sends the Reply, or the last streaming
//! octets, and switches the connection to FPDUs, so no octet is read in the wrong mode. Each half of a
//! connection switches on its own where there are no startup frames (draft-culley-iwarp-mpa-00). Control
//! keeps at most 64 KiB of each connection that is not read, and the core 64 KiB that its peer has not
//! acknowledged.
//!
//! # How it is driven
//!
//! The engine reads no clock, starts no thread and waits for nothing. `on_request(now, ..)` takes a request
//! of a handle, `on_event(now, ..)` an event of a core, `on_time(now)` does what is due, and
//! `next_deadline()` says when that must be called again. Commands for each core and replies for handles
//! collect in an outbox. The loop around the engine delivers the commands there is room for, and then the
//! replies: when an application has its reply, the core has the command, so a queue pair that was just
//! created can be posted to. In a program that loop (`handles::control_loop`) is the control thread's, or
//! that of an application which polls control itself (`handles::control_driver`); it alone reads the clock.
//! In the tests it is a simulation.
//!
//! The parts of the engine know each other in one direction. `registrations` and `queue_pairs` are tables
//! with their own rules. `connections` has a table of connections, each in one phase (`Streaming`,
//! `AwaitingRequest`, `PendingAccept`, `AwaitingReply`, `Operating`, `Closing`). A step looks a connection up
//! once, takes its phase, and puts back the phase that a function of `initiating`, `responding`, `streaming`
//! or `events` returns; such a function reaches the outbox, the queue pairs, the listeners and the openings
//! through a `Context`, and no other connection. A phase that can take too long has a deadline: the Request,
//! the Reply, the application's decision, the close.

mod changes;
mod connections;
mod deadlines;
mod deregistration;
mod holdings;
pub(crate) mod interface;
pub(crate) mod names;
mod outbox;
pub(crate) mod placement;
mod queue_pairs;
mod registrations;
mod reports;
#[cfg(test)]
mod simulation;
pub mod startup;
#[cfg(test)]
mod swarm;

use std::mem;
use std::sync::Arc;

use warpline_dataplane::memory::{Claims, Grant};
use warpline_dataplane::net::notice::Notice;
use warpline_dataplane::qp::async_event::{AsyncEvent, AsyncEvents};
use warpline_dataplane::qp::shared::CoreDoorbells;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{Command, ConnectionId, Event, ListenAddress};
use warpline_dataplane::tcp::Snapshot;
use warpline_dataplane::time::Instant;

use crate::vocabulary::capacity::Capacity;
use crate::vocabulary::device::{CrcPolicy, Usage};
use crate::vocabulary::listen::ListenError;
use crate::vocabulary::quota::Quotas;
pub(crate) use connections::LocalPeer;
use connections::{Acceptance, ConnectAttempt, Connections, MpaListener, Step};
use deregistration::Readers;
use interface::reply::Reply;
use interface::request::Request;
use names::KeyedSequence;
use outbox::{Delivery, Outbox};
use placement::Placement;
use queue_pairs::{QueuePairParts, QueuePairs};
use registrations::{DeregisterRequest, ProbeAnswer, Registrations};
use reports::Reports;

/// How an engine is set up.
pub(crate) struct EngineConfig {
    pub(crate) crc: CrcPolicy,
    pub(crate) capacity: Capacity,
    pub(crate) quotas: Quotas,
    /// What queue pairs share with each core.
    pub(crate) doorbells: CoreDoorbells,
    /// The cores, and where connections go.
    pub(crate) placement: Placement,
    /// What the cores may grant, if there are several.
    pub(crate) claims: Option<Arc<Claims>>,
    /// Where asynchronous events are reported.
    pub(crate) events: Arc<AsyncEvents>,
    /// Where names come from.
    pub(crate) random: KeyedSequence,
}

/// The state of the control engine.
// Requirements: DDP-8.3-06, DDP-8.3.2-01 to DDP-8.3.2-03, RDMAP-8.1.2-01
pub(crate) struct Engine {
    out: Outbox,
    events: Arc<AsyncEvents>,
    /// A core has reported that its adapter differs, which others do as well.
    adapter_differs: bool,
    registrations: Registrations,
    queue_pairs: QueuePairs,
    connections: Connections,
    /// Reports of cores that applications wait for.
    reports: Reports,
}

impl Engine {
    pub(crate) fn new(config: EngineConfig) -> Self {
        let EngineConfig { crc, capacity, quotas, doorbells, placement, claims, events, mut random } = config;
        let next_port = random.next() as u16;
        let cores = placement.cores();
        Self {
            out: Outbox::new(cores),
            registrations: Registrations::new(
                random,
                capacity.registrations,
                quotas.regions_per_domain,
                claims,
            ),
            queue_pairs: QueuePairs::new(
                capacity.queue_pairs,
                quotas.queue_pairs_per_domain,
                doorbells,
                events.clone(),
            ),
            events,
            adapter_differs: false,
            connections: Connections::new(crc, capacity.listeners, &quotas, placement, next_port),
            reports: Reports::new(cores),
        }
    }

    /// Carries out a request of a handle.
    pub(crate) fn on_request(&mut self, now: Instant, request: Request) {
        let Self { out, registrations, queue_pairs, connections, .. } = self;
        let mut step = Step { now, out, queue_pairs, registrations };
        match request {
            Request::Register { region, pd, stream, access, addressing, reply } => {
                let (base_to, stream) = (addressing.base_to(region.address()), stream.map(|qp| qp.0));
                let grant = Grant { region, pd, stream, base_to, access };
                step.registrations.register(now, step.out, grant, reply);
            }
            Request::AllocateWindow { pd, reply } => {
                step.registrations.allocate_window(now, step.out, pd, reply);
            }
            Request::Deregister { stag, last, patience, reply } => {
                let readers = Readers::Stay;
                let request = DeregisterRequest { stag, last, patience, readers, reply };
                step.registrations.deregister(now, step.out, request);
            }
            Request::Revoke { stag, last, patience, reply } => {
                let (patience, readers) = (Some(patience), Readers::End);
                let request = DeregisterRequest { stag, last, patience, readers, reply };
                step.registrations.deregister(now, step.out, request);
            }
            Request::CreateQp { pd, config, completions, receives, reply } => {
                let parts = QueuePairParts { pd, config, completions, receives };
                let created = step.queue_pairs.create(parts);
                step.out.reply(reply, created);
            }
            Request::DestroyQp { qp, fence, reply } => {
                connections.give_up(&mut step, qp);
                let connection = step.queue_pairs.connection_of(qp);
                let closing = connection.is_some_and(|id| connections.is_finishing(id));
                if !step.queue_pairs.destroy(now, step.out, qp, closing, fence, reply) {
                    on_destroyed(&mut step, qp);
                }
            }
            Request::Connect { qp, remote, config, reply } => {
                connections.connect(&mut step, ConnectAttempt::new(qp, remote, config, reply));
            }
            Request::Listen { at, config, arrivals, notify, reply } => {
                let port = connections.listen(&mut step, at, MpaListener { config, arrivals, notify });
                step.out.reply(reply, port);
            }
            Request::Unlisten { at } => connections.unlisten(&mut step, at),
            Request::ReservePort { at, reuse_address, reply } => {
                let port = connections.free_port(at, reuse_address);
                step.out.reply(reply, port);
            }
            // Nothing keeps other listeners of this device from it.
            Request::ReleasePort { .. } => {}
            Request::Accept { connection, qp, reads, private_data, reply } => {
                connections.accept(&mut step, connection, Acceptance { qp, reads, private_data, reply });
            }
            Request::Reject { connection, private_data, reply } => {
                connections.reject(&mut step, connection, &private_data, reply);
            }
            Request::Stream(request) => connections.on_stream_request(&mut step, request),
            Request::Disconnect { qp } => connections.disconnect(&mut step, &qp),
            Request::Abort { qp } => {
                step.queue_pairs.abort(step.out, qp);
                connections.give_up(&mut step, qp);
                connections.abort_startup(&mut step, qp);
            }
            Request::Statistics { reply } => {
                self.reports.statistics(now, &mut self.out, reply);
            }
            Request::ConnectionReport { qp, reply } => match self.queue_pairs.connection_of(qp) {
                Some(connection) => self.report_connection(now, connection, reply),
                None => self.out.reply(reply, None),
            },
            Request::StreamReport { connection, reply } => self.report_connection(now, connection, reply),
            Request::Usage { reply } => {
                let usage = self.usage();
                self.out.reply(reply, usage);
            }
        }
    }

    /// Checks that `port`, which was chosen, can be that of a new listener of `core`, or of all cores
    /// without.
    pub(crate) fn check_port(&self, port: u16, core: Option<u8>) -> Result<(), ListenError> {
        self.connections.check_port(self.out.alive(), port, core)
    }

    /// Asks the core for the state of a TCP connection.
    fn report_connection(&mut self, now: Instant, connection: ConnectionId, reply: Reply<Option<Snapshot>>) {
        self.reports.connection(now, &mut self.out, connection, reply);
    }

    /// Takes in an event of a core.
    pub(crate) fn on_event(&mut self, now: Instant, core: u8, event: Event) {
        let Self { out, registrations, queue_pairs, connections, .. } = self;
        let mut step = Step { now, out, queue_pairs, registrations };
        match event {
            Event::Accepted { connection, flow, scope, rdma_option } => {
                let at = ListenAddress::of(scope, flow.local, flow.local_port);
                connections.on_accepted(&mut step, connection, at, flow, rdma_option);
            }
            Event::Connected { token, connection, local, rdma_option } => {
                connections.on_connected(&mut step, token, connection, local, rdma_option);
            }
            Event::ConnectFailed { token, error } => connections.on_connect_failed(&mut step, token, error),
            Event::Operating { connection } => connections.on_operating(&mut step, connection),
            Event::Stream { connection, octets } => connections.on_stream(&mut step, connection, &octets),
            Event::StreamAcknowledged { connection, octets } => {
                connections.on_stream_acknowledged(connection, octets as usize);
            }
            Event::PeerFinished { connection } => connections.on_peer_finished(&mut step, connection),
            Event::StreamFailed { connection, .. } => connections.on_stream_failed(connection),
            Event::Closed { connection, reason } => connections.on_closed(&mut step, connection, reason),
            Event::QpEnded(qp) => step.queue_pairs.on_ended(qp),
            Event::QpDestroyed(qp) => on_destroyed(&mut step, qp),
            Event::Registered { stag, result } => {
                step.registrations.on_registered(step.out, core, stag, result);
            }
            Event::Deregistered { stag, result } => {
                step.registrations.on_deregistered(now, step.out, core, stag, result);
            }
            Event::Probed { stag, attempt, result } => {
                let answer = ProbeAnswer { core, stag, attempt, result };
                step.registrations.on_probed(now, step.out, answer);
            }
            Event::GrantChanged(change) => {
                step.registrations.on_grant_changed(now, step.out, core, change);
            }
            Event::Followed { id, result } => step.registrations.on_followed(step.out, core, id, result),
            Event::Notice(Notice::AdapterDiffers) if mem::replace(&mut self.adapter_differs, true) => {}
            Event::Notice(notice) => self.events.report(async_event(notice)),
            Event::Statistics(statistics) => self.reports.on_statistics(&mut self.out, core, *statistics),
            Event::ConnectionReport(report) => {
                self.reports.on_connection(&mut self.out, core, report.map(|report| *report));
            }
        }
    }

    /// Does what is due at `now`. Call it at the [deadline](Self::next_deadline).
    pub(crate) fn on_time(&mut self, now: Instant) {
        let Self { out, registrations, queue_pairs, connections, .. } = self;
        let mut step = Step { now, out, queue_pairs, registrations };
        connections.on_time(&mut step);
        step.queue_pairs.on_time(now, step.out);
        step.registrations.on_time(now, step.out);
        self.reports.on_time(now, &mut self.out);
    }

    /// Handles the end of a core: it is no longer polled. Its queue pairs and streams fail, and those of the
    /// others go on.
    pub(crate) fn on_core_ended(&mut self, now: Instant, core: u8) {
        let Self { out, registrations, queue_pairs, connections, .. } = self;
        out.remove_core(core);
        let mut step = Step { now, out, queue_pairs, registrations };
        connections.on_core_ended(&mut step, core);
        for qp in step.queue_pairs.on_core_ended(core) {
            on_destroyed(&mut step, qp);
        }
        step.registrations.on_core_ended(now, step.out, core);
        self.reports.on_core_ended(&mut self.out, core);
        self.events.report(AsyncEvent::CoreEnded { core });
    }

    /// Returns the time at which [`on_time`](Self::on_time) has work, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> Instant {
        let connections = self.connections.next_deadline();
        let others = self.registrations.next_deadline().min(self.reports.next_deadline());
        connections.min(self.queue_pairs.next_deadline()).min(others)
    }

    /// Returns the next command for a core. Deliver all commands there is room for before the replies.
    pub(crate) fn next_command(&mut self, core: u8) -> Option<Command> {
        self.out.next_command(core)
    }

    /// Takes back the last command for a core, which has no room for it.
    pub(crate) fn return_command(&mut self, core: u8, command: Command) {
        self.out.return_command(core, command);
    }

    /// Returns the next reply.
    pub(crate) fn next_reply(&mut self) -> Option<Delivery> {
        self.out.next_reply()
    }

    /// Returns true if there are connections to addresses of this device.
    pub(crate) fn has_local_peers(&self) -> bool {
        self.connections.has_local_peers()
    }

    /// Returns connections to addresses of this device, with their other ends: those that come after `last`.
    pub(crate) fn local_peers_after(&self, last: LocalPeer) -> impl Iterator<Item = LocalPeer> {
        self.connections.local_peers_after(last)
    }

    /// Resets the connection of a local peer.
    pub(crate) fn abort(&mut self, (_, connection): LocalPeer) {
        let connection = ConnectionId::from_bits(connection);
        self.out.command(connection, Command::Abort { connection });
    }

    /// Returns true if work remains after the last handle was dropped.
    pub(crate) fn has_business(&self) -> bool {
        self.out.has_commands()
            || self.registrations.is_pending()
            || !self.queue_pairs.is_empty()
            || !self.connections.is_empty()
    }

    /// Stops the engine when the core is no longer polled: queue pairs and streams fail, so that no
    /// application waits for them.
    pub(crate) fn stop(&mut self) {
        self.events.report(AsyncEvent::DeviceFatal);
        self.queue_pairs.fail_all();
        self.connections.stop_streams();
    }

    /// Returns true if an application waits for what cores report of themselves.
    #[cfg(test)]
    fn awaits_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Returns how often a quota has refused something.
    ///
    /// # Panics
    ///
    /// When anything is left after everything was given back.
    #[cfg(test)]
    fn assert_unused(&mut self) -> u64 {
        assert!(!self.has_business());
        self.connections.assert_unused();
        self.queue_pairs.assert_unused();
        assert_eq!(self.registrations.len(), 0, "registrations");
        assert!(!self.awaits_reports(), "reports");
        assert!(self.next_reply().is_none(), "a reply was not delivered");
        let Usage { regions, queue_pairs, listeners, connections, refused_by_quota } = self.usage();
        assert_eq!((regions, queue_pairs, listeners, connections), (0, 0, 0, 0));
        refused_by_quota
    }

    fn usage(&self) -> Usage {
        Usage {
            regions: self.registrations.len(),
            queue_pairs: self.queue_pairs.len(),
            listeners: self.connections.listeners(),
            connections: self.connections.len(),
            refused_by_quota: self.registrations.refused()
                + self.queue_pairs.refused()
                + self.connections.refused(),
        }
    }
}

/// Handles a queue pair that its core has destroyed.
fn on_destroyed(step: &mut Step<'_>, qp: QpNumber) {
    // Another queue pair will have its number.
    step.registrations.end_stream(qp);
    if let Some(pd) = step.queue_pairs.on_destroyed(step.out, qp) {
        step.registrations.forget_presence(pd);
    }
}

/// Returns the asynchronous event for a notice of the core's host.
const fn async_event(notice: Notice) -> AsyncEvent {
    match notice {
        Notice::AddressConflict { address, mac, abandoned } => {
            AsyncEvent::AddressConflict { address, mac, abandoned }
        }
        Notice::PartialChecksum { peer } => AsyncEvent::PartialChecksum { peer },
        Notice::OversizedPacket { peer } => AsyncEvent::OversizedPacket { peer },
        Notice::AdapterDiffers => AsyncEvent::AdapterDiffers,
    }
}
