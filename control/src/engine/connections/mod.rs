//! The connections of a device, from TCP's handshake to its end: MPA startup, streaming mode, Full Operation,
//! teardown.
//!
//! A step looks its connection up once. It takes the phase, changes it with a [`Context`], and puts the next
//! one back.

mod attempt;
mod context;
mod events;
mod initiating;
mod listeners;
mod openings;
mod phase;
mod responding;
mod streaming;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::sync::Arc;

use warpline_dataplane::net::addresses::network_of;
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{self, AfterStream, Command, ConnectionId, FlowKey, ListenAddress};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::Instant;

pub(super) use attempt::ConnectAttempt;
pub(super) use listeners::MpaListener;
pub(super) use responding::Acceptance;

use super::deadlines::Deadlines;
use super::holdings::Holdings;
use super::interface::reply::Reply;
use super::interface::request::StreamRequest;
use super::interface::shared_stream::SharedStream;
use super::names::Table;
use super::outbox::Outbox;
use super::placement::Placement;
use super::queue_pairs::QueuePairs;
use super::registrations::Registrations;
use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::core_set::CoreSet;
use crate::vocabulary::device::CrcPolicy;
use crate::vocabulary::listen::{AnswerError, ListenError};
use crate::vocabulary::quota::Quotas;
use crate::vocabulary::stream::SwitchError;
use context::Context;
use listeners::{Accept, Listeners, Orphans};
use openings::{Opening, Openings, Purpose};
use phase::{AwaitingReply, Operating, Phase};

/// The parts of the engine that a step works with beside the connections.
pub(super) struct Step<'a> {
    pub(super) now: Instant,
    pub(super) out: &'a mut Outbox,
    pub(super) queue_pairs: &'a mut QueuePairs,
    pub(super) registrations: &'a mut Registrations,
}

/// The other end of a connection, and the connection's [number](ConnectionId::to_bits).
pub(crate) type LocalPeer = (SocketAddr, u64);

/// A connection.
struct Connection {
    /// Its addresses, while it is open.
    flow: Option<FlowKey>,
    /// It counts among those of its peer.
    is_counted: bool,
    phase: Phase,
}

/// All connections, listeners and openings of a device.
pub(super) struct Connections {
    crc: CrcPolicy,
    table: Table<ConnectionId, Connection>,
    /// Those of phases, by the connection's [number](ConnectionId::to_bits).
    deadlines: Deadlines<u64>,
    openings: Openings,
    listeners: Listeners,
    /// Those that are open to addresses of this end.
    local_peers: BTreeSet<LocalPeer>,
    /// Connections that peers have opened, by address and by network.
    peers: Holdings<IpAddr>,
    networks: Holdings<u64>,
}

impl Connections {
    pub(super) fn new(
        crc: CrcPolicy,
        listeners: usize,
        quotas: &Quotas,
        placement: Placement,
        next_port: u16,
    ) -> Self {
        Self {
            crc,
            table: Table::default(),
            deadlines: Deadlines::new(),
            openings: Openings::new(placement),
            listeners: Listeners::new(listeners, next_port),
            local_peers: BTreeSet::new(),
            peers: Holdings::new(quotas.connections_per_peer),
            networks: Holdings::new(quotas.connections_per_network),
        }
    }

    /// Connections, those being opened or closed included.
    pub(super) fn len(&self) -> usize {
        self.table.len() + self.openings.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    /// # Panics
    ///
    /// When anything is left of a connection or a listener.
    #[cfg(test)]
    pub(super) fn assert_unused(&self) {
        assert!(self.is_empty(), "connections");
        assert_eq!(self.next_deadline(), Instant::NEVER, "deadlines of connections");
        assert_eq!(self.listeners.len(), 0, "listeners");
        assert!(self.peers.is_empty() && self.networks.is_empty(), "quotas of peers");
    }

    /// Returns how many connections were refused because their peer had its quota.
    pub(super) const fn refused(&self) -> u64 {
        self.peers.refused() + self.networks.refused()
    }

    /// Returns true if the connection ends by itself, in an orderly way.
    pub(super) fn is_finishing(&self, id: ConnectionId) -> bool {
        let phase = self.table.get(&id).map(|connection| &connection.phase);
        matches!(phase, Some(Phase::Operating(Operating { finishing: true, .. })))
    }

    /// Returns true if there are connections to addresses of this end.
    pub(super) fn has_local_peers(&self) -> bool {
        !self.local_peers.is_empty()
    }

    /// Returns connections to addresses of this end, with their other ends: those that come after `last`.
    pub(super) fn local_peers_after(&self, last: LocalPeer) -> impl Iterator<Item = LocalPeer> {
        self.local_peers.range((Bound::Excluded(last), Bound::Unbounded)).copied()
    }

    /// Stops all streams: the core is no longer polled.
    pub(super) fn stop_streams(&mut self) {
        for stream in self.table.values().filter_map(|connection| connection.phase.stream()) {
            stream.set_stopped();
        }
        for connection in self.table.values() {
            if let Phase::Bytes(stream) = &connection.phase {
                stream.set_end(CloseReason::Aborted);
            }
        }
    }

    fn stream_of(&self, id: ConnectionId) -> Option<&Arc<SharedStream>> {
        self.table.get(&id)?.phase.stream()
    }

    /// Returns the connection `id`, and what a step works with beside it.
    fn find<'a>(
        &'a mut self,
        step: &'a mut Step<'_>,
        id: ConnectionId,
    ) -> Option<(Context<'a>, &'a mut Phase)> {
        let Self { crc, table, openings, listeners, .. } = self;
        let Connection { flow, phase, .. } = table.get_mut(&id)?;
        let Step { now, out, queue_pairs, registrations } = step;
        let (crc, now, flow) = (*crc, *now, *flow);
        let cx = Context { id, flow, now, crc, out, queue_pairs, registrations, listeners, openings };
        Some((cx, phase))
    }

    /// Moves the connection `id` to the phase that `transition` returns. A connection that is unknown is
    /// ignored.
    fn advance(
        &mut self,
        step: &mut Step<'_>,
        id: ConnectionId,
        transition: impl FnOnce(&mut Context<'_>, Phase) -> Phase,
    ) {
        self.advance_or_remove(step, id, |cx, phase| Some(transition(cx, phase)));
    }

    /// Does the same as [`advance`](Self::advance), for a transition after which the connection may be gone.
    fn advance_or_remove(
        &mut self,
        step: &mut Step<'_>,
        id: ConnectionId,
        transition: impl FnOnce(&mut Context<'_>, Phase) -> Option<Phase>,
    ) {
        let Some((mut cx, phase)) = self.find(step, id) else { return };
        let before = phase.deadline();
        let next = transition(&mut cx, mem::replace(phase, PLACEHOLDER));
        let after = next.as_ref().map_or(Instant::NEVER, Phase::deadline);
        match next {
            Some(next) => *phase = next,
            None => _ = self.table.remove(&id),
        }
        self.deadlines.change(id.to_bits(), before, after);
    }

    /// Adds a connection that the core has opened or accepted, in the phase that `begin` returns.
    fn insert(
        &mut self,
        step: &mut Step<'_>,
        id: ConnectionId,
        flow: Option<FlowKey>,
        begin: impl FnOnce(&mut Context<'_>) -> Phase,
    ) {
        if let Some(local_peer) = flow.and_then(|flow| self.local_peer(id, &flow)) {
            self.local_peers.insert(local_peer);
        }
        let before = self.table.insert(id, Connection { flow, is_counted: false, phase: PLACEHOLDER });
        debug_assert!(before.is_none(), "the core names a connection twice");
        self.advance(step, id, |cx, _| begin(cx));
    }

    // What handles request.

    /// Opens a connection.
    pub(super) fn connect(&mut self, step: &mut Step<'_>, attempt: ConnectAttempt) {
        if !step.queue_pairs.bind(&attempt.qp) {
            return step.out.reply(attempt.reply, Err(ConnectError::QueuePairInUse));
        }
        let deadline = step.now + attempt.timeout_ns();
        match initiating::begin(self.crc, &attempt, deadline) {
            Ok((initiator, request)) => {
                let awaiting = AwaitingReply::new(initiator, attempt);
                self.openings.open(step.now, step.out, step.queue_pairs, awaiting, request);
            }
            Err(error) => {
                step.queue_pairs.unbind(step.out, &attempt.qp);
                step.out.reply(attempt.reply, Err(error.into()));
            }
        }
    }

    /// Gives up the connection that is being opened for the queue pair `qp`, if there is one.
    pub(super) fn give_up(&mut self, step: &mut Step<'_>, qp: QpNumber) {
        self.openings.give_up(step.out, step.queue_pairs, qp);
    }

    /// Resets the connection on which the queue pair `qp` waits for the Reply, if there is one.
    pub(super) fn abort_startup(&mut self, step: &mut Step<'_>, qp: QpNumber) {
        if let Some(id) = step.queue_pairs.initiating_of(qp) {
            self.advance(step, id, initiating::abort);
        }
    }

    pub(super) fn listen(
        &mut self,
        step: &mut Step<'_>,
        at: ListenAddress,
        listener: MpaListener,
    ) -> Result<u16, ListenError> {
        self.listeners.listen(step.out, self.openings.placement_mut(), at, listener)
    }

    /// Checks that `port`, which was chosen, can be that of a new listener of `core`, or of all cores
    /// without.
    pub(super) fn check_port(&self, polled: CoreSet, port: u16, core: Option<u8>) -> Result<(), ListenError> {
        if self.listeners.has_port(port) {
            return Err(ListenError::PortInUse(port));
        }
        self.openings.placement().check_port(polled, port, core).map(|_| ())
    }

    /// Returns the port of `at` if there can be a listener, or one that no listener has if it names none.
    pub(super) fn free_port(&mut self, at: ListenAddress, reuse_address: bool) -> Result<u16, ListenError> {
        self.listeners.free_port(at, reuse_address)
    }

    /// Closes the connections of a listener that no application has taken.
    pub(super) fn unlisten(&mut self, step: &mut Step<'_>, at: ListenAddress) {
        let Orphans { awaited, undecided, streaming } = self.listeners.unlisten(step.out, at);
        for id in awaited {
            self.advance(step, id, |cx, _| cx.close());
        }
        for id in undecided {
            // There is no handle left that an error could be reported to.
            self.advance_or_remove(step, id, |cx, phase| responding::reject(cx, phase, &[]).0);
        }
        for id in streaming {
            self.advance(step, id, streaming::abandon);
        }
    }

    pub(super) fn accept(&mut self, step: &mut Step<'_>, id: ConnectionId, acceptance: Acceptance) {
        if self.table.contains_key(&id) {
            self.advance_or_remove(step, id, |cx, phase| responding::accept(cx, phase, acceptance));
        } else {
            step.out.reply(acceptance.reply, Err(AnswerError::Stopped));
        }
    }

    pub(super) fn reject(
        &mut self,
        step: &mut Step<'_>,
        id: ConnectionId,
        private_data: &[u8],
        reply: Reply<Result<(), AnswerError>>,
    ) {
        let mut result = Err(AnswerError::Stopped);
        self.advance_or_remove(step, id, |cx, phase| {
            let (next, rejected) = responding::reject(cx, phase, private_data);
            result = rejected;
            next
        });
        step.out.reply(reply, result);
    }

    /// Has the core send a FIN after everything posted.
    pub(super) fn disconnect(&mut self, step: &mut Step<'_>, qp: &Arc<SharedQp>) {
        let Some(qp) = step.queue_pairs.of(qp) else { return };
        let (Some(id), within_ns) = (qp.connection(), qp.disconnect_within_ns()) else { return };
        let phase = self.table.get_mut(&id).map(|connection| &mut connection.phase);
        if let Some(Phase::Operating(Operating { finishing, .. })) = phase {
            *finishing = true;
            step.out.command(id, Command::Disconnect { connection: id, within_ns });
        }
    }

    pub(super) fn on_stream_request(&mut self, step: &mut Step<'_>, request: StreamRequest) {
        match request {
            StreamRequest::Connect { remote, config, reply } => {
                self.openings.open_stream(step.now, step.out, remote, config, reply);
            }
            StreamRequest::Listen { at, config, reply } => {
                let placement = self.openings.placement_mut();
                let listener = self.listeners.listen_streams(step.out, placement, at, config);
                step.out.reply(reply, listener);
            }
            StreamRequest::Admit { connection } => {
                step.out.command(connection, Command::Admit { connection });
            }
            StreamRequest::Write { connection, octets } => {
                // What was written before MPA began is sent before it: requests come in order.
                if self.stream_of(connection).is_some_and(|stream| stream.sends()) {
                    let then = AfterStream::Stay;
                    step.out.command(connection, Command::Stream { connection, octets, then });
                }
            }
            StreamRequest::Take { connection, octets } => {
                step.out.command(connection, Command::ConsumeStream { connection, octets });
            }
            StreamRequest::Finish { connection } => {
                step.out.command(connection, Command::Close { connection });
            }
            StreamRequest::Abort { connection } => {
                let phase = self.table.get(&connection).map(|connection| &connection.phase);
                if matches!(phase, Some(Phase::Bytes(_))) || self.stream_of(connection).is_some() {
                    step.out.command(connection, Command::Abort { connection });
                }
            }
            StreamRequest::Abandon { connection } => self.advance(step, connection, streaming::abandon),
            StreamRequest::Attach { connection, config, reply } => {
                if !self.table.contains_key(&connection) {
                    return step.out.reply(reply, Err(SwitchError::NotStreaming));
                }
                self.advance(step, connection, |cx, phase| streaming::attach(cx, phase, config, reply));
            }
            StreamRequest::Initiate { connection, qp, remote, config, reply } => {
                if !self.table.contains_key(&connection) {
                    return step.out.reply(reply, Err(ConnectError::NotStreaming));
                }
                let attempt = ConnectAttempt::new(qp, remote, config, reply);
                self.advance(step, connection, |cx, phase| streaming::initiate(cx, phase, attempt));
            }
            StreamRequest::Respond { connection, last_message, config, reply } => {
                if !self.table.contains_key(&connection) {
                    return step.out.reply(reply, Err(SwitchError::NotStreaming));
                }
                self.advance(step, connection, |cx, phase| {
                    streaming::respond(cx, phase, last_message, &config, reply)
                });
            }
            StreamRequest::Start { connection, qp, direction, config, reply } => {
                if !self.table.contains_key(&connection) {
                    return step.out.reply(reply, Err(SwitchError::NotStreaming));
                }
                self.advance(step, connection, |cx, phase| {
                    streaming::start_unnegotiated(cx, phase, &qp, direction, config, reply)
                });
            }
            StreamRequest::RejectToStream { connection, pair, private_data, reply } => {
                if !self.table.contains_key(&connection) {
                    return step.out.reply(reply, Err(AnswerError::Stopped));
                }
                self.advance_or_remove(step, connection, |cx, phase| {
                    streaming::reject_to_stream(cx, phase, pair, &private_data, reply)
                });
            }
        }
    }

    // What the core reports.

    /// Handles a peer that has connected to a listening port.
    pub(super) fn on_accepted(
        &mut self,
        step: &mut Step<'_>,
        id: ConnectionId,
        at: ListenAddress,
        flow: FlowKey,
        rdma_option: bool,
    ) {
        // The connections of one peer leave room for those of others.
        // Requirements: DDP-8.3.2-06
        if !self.take_share(flow.remote) {
            return self.insert(step, id, None, refuse);
        }
        self.insert(step, id, Some(flow), |cx| match cx.listeners.accept(at, id, flow.into(), rdma_option) {
            Accept::AwaitRequest(config) => responding::on_accepted(cx, at, &config),
            Accept::Streaming(stream) => Phase::Streaming(stream),
            Accept::Refuse => refuse(cx),
        });
        if let Some(connection) = self.table.get_mut(&id) {
            connection.is_counted = true;
        }
    }

    /// Counts a connection among those of its peer. Returns false if the peer, or its network, has its quota.
    fn take_share(&mut self, peer: IpAddr) -> bool {
        let network = network_of(peer);
        let room = self.peers.has_room(peer) && network.is_none_or(|network| self.networks.has_room(network));
        if room {
            self.peers.add(peer);
            if let Some(network) = network {
                self.networks.add(network);
            }
        }
        room
    }

    /// Returns a connection with its other end, if that is at an address of this end.
    fn local_peer(&mut self, id: ConnectionId, flow: &FlowKey) -> Option<LocalPeer> {
        let is_own = self.openings.placement().has_address(flow.remote);
        is_own.then(|| (SocketAddr::new(flow.remote, flow.remote_port), id.to_bits()))
    }

    /// Counts a connection that is closed no more: among those of its peer, or of its port.
    fn end_share(&mut self, id: ConnectionId) {
        let Some(connection) = self.table.get_mut(&id) else { return };
        let Some(flow) = connection.flow.take() else { return };
        let is_counted = mem::take(&mut connection.is_counted);
        if let Some(local_peer) = self.local_peer(id, &flow) {
            self.local_peers.remove(&local_peer);
        }
        if is_counted {
            self.peers.give_back(flow.remote);
            if let Some(network) = network_of(flow.remote) {
                self.networks.give_back(network);
            }
        } else {
            self.openings.placement_mut().release(flow.local_port);
        }
    }

    /// Handles an established connection that this end has opened.
    pub(super) fn on_connected(
        &mut self,
        step: &mut Step<'_>,
        token: u64,
        id: ConnectionId,
        local: SocketAddr,
        rdma_option: bool,
    ) {
        let Some(Opening { purpose: Some(purpose), .. }) = self.openings.take(token) else {
            return self.insert(step, id, None, refuse);
        };
        self.openings.placement_mut().hold(local.port());
        // An IPv4-mapped IPv6 address represents an IPv4 address (RFC 4291 §2.5.5.2).
        let flow = |remote: SocketAddr| FlowKey {
            local: local.ip(),
            remote: remote.ip().to_canonical(),
            remote_port: remote.port(),
            local_port: local.port(),
        };
        match purpose {
            Purpose::Mpa(awaiting) => {
                let flow = Some(flow(awaiting.attempt.remote));
                self.insert(step, id, flow, |cx| initiating::await_reply(cx, awaiting));
            }
            Purpose::Stream { remote, reply } => {
                let flow = flow(remote);
                let stream = SharedStream::new(id, flow.into(), rdma_option);
                self.insert(step, id, Some(flow), |_| Phase::Streaming(stream.clone()));
                step.out.reply(reply, Ok(stream));
            }
        }
    }

    pub(super) fn on_connect_failed(&mut self, step: &mut Step<'_>, token: u64, error: ring::ConnectError) {
        self.openings.on_failed(step.now, step.out, step.queue_pairs, token, error);
    }

    /// Replies to the application whose connection the core has brought to Full Operation.
    pub(super) fn on_operating(&mut self, step: &mut Step<'_>, id: ConnectionId) {
        let phase = self.table.get_mut(&id).map(|connection| &mut connection.phase);
        if let Some(Phase::Operating(Operating { begun, starting, .. })) = phase {
            *begun = true;
            if let Some(starting) = starting.take() {
                self.deadlines.change(id.to_bits(), starting.until, Instant::NEVER);
                starting.waiter.ready(step.out);
            }
        }
    }

    pub(super) fn on_stream(&mut self, step: &mut Step<'_>, id: ConnectionId, octets: &[u8]) {
        self.advance(step, id, |cx, phase| events::on_stream(cx, phase, octets));
    }

    /// Notes that the peer has acknowledged streaming octets.
    pub(super) fn on_stream_acknowledged(&mut self, id: ConnectionId, octets: usize) {
        if let Some(stream) = self.stream_of(id) {
            stream.acknowledged(octets);
        }
    }

    pub(super) fn on_peer_finished(&mut self, step: &mut Step<'_>, id: ConnectionId) {
        self.advance(step, id, events::on_peer_finished);
    }

    pub(super) fn on_stream_failed(&mut self, id: ConnectionId) {
        if let Some(connection) = self.table.get_mut(&id) {
            events::on_stream_failed(&mut connection.phase);
        }
    }

    pub(super) fn on_closed(&mut self, step: &mut Step<'_>, id: ConnectionId, reason: CloseReason) {
        self.end_share(id);
        self.advance_or_remove(step, id, |cx, phase| events::on_closed(cx, phase, reason));
    }

    /// Ends the connections of a core that is no longer polled, and those that it was opening.
    pub(super) fn on_core_ended(&mut self, step: &mut Step<'_>, core: u8) {
        self.openings.on_core_ended(step.out, step.queue_pairs, core);
        let mut ids: Vec<u64> =
            self.table.keys().filter(|id| id.core() == core).map(|id| id.to_bits()).collect();
        ids.sort_unstable();
        for id in ids {
            self.on_closed(step, ConnectionId::from_bits(id), CloseReason::Aborted);
        }
    }

    // What time brings.

    /// Returns when the next phase or opening has taken too long.
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadlines.next().min(self.openings.next_deadline())
    }

    /// Ends the phases and openings that have taken too long.
    pub(super) fn on_time(&mut self, step: &mut Step<'_>) {
        while let Some(id) = self.deadlines.pop_due(step.now) {
            self.advance(step, ConnectionId::from_bits(id), events::on_deadline);
        }
        self.openings.on_time(step.now, step.out, step.queue_pairs);
    }
}

/// Closes a connection that no application accepts, and returns its first phase.
fn refuse(cx: &mut Context<'_>) -> Phase {
    cx.reset()
}

/// Stands for the phase of a connection during a step.
const PLACEHOLDER: Phase = Phase::Closing { abort_at: Instant::NEVER };
