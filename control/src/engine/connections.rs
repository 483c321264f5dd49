//! Connections at the control thread, from the handshake of TCP to its end.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use warpline_dataplane::core::listeners::ListenAddress;
use warpline_dataplane::core::ring::{AfterStream, Command, ConnectionId, FullOperation};
use warpline_dataplane::mpa::enhanced::Outcome;
use warpline_dataplane::net::addresses::network_of;
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::tcp::{CloseReason, Snapshot};
use warpline_dataplane::time::Instant;

use super::initiating::{Initiating, Opening};
use super::request::Reply;
use super::responding::{Asker, Deciding, Listening, Times};
use super::{Alarm, Control, LINGER_NS};
use crate::engine::quota::{Holdings, Quotas};
use crate::engine::startup::{Agreement, Responder, Setup, StartupFault};
use crate::handles::driver::nanos;
use crate::handles::listener::{Accepted, AnswerError};
use crate::handles::tcp_stream::{StreamShared, SwitchError};
use crate::vocabulary::connect::{ConnectError, Connected};
use crate::vocabulary::socket_pair::SocketPair;

/// Who waits for a connection to come to Full Operation.
pub(super) enum Waiter {
    /// The Initiator's application.
    Connect(Reply<Result<Connected, ConnectError>>, Connected),
    /// The Responder's application.
    Accept(Reply<Result<Accepted, AnswerError>>, Accepted),
    /// The application of a connection that starts without startup frames.
    Start(Reply<Result<(), SwitchError>>),
}

impl Waiter {
    /// The queue pair takes sends.
    fn ready(self) {
        match self {
            Self::Connect(reply, connected) => reply.send(Ok(connected)),
            Self::Accept(reply, accepted) => reply.send(Ok(accepted)),
            Self::Start(reply) => reply.send(Ok(())),
        }
    }

    fn closed(self, reason: CloseReason) {
        match self {
            Self::Connect(reply, _) => reply.send(Err(ConnectError::Closed(reason))),
            Self::Accept(reply, _) => reply.send(Err(AnswerError::Closed(reason))),
            Self::Start(reply) => reply.send(Err(SwitchError::Closed(reason))),
        }
    }

    fn fault(self, fault: StartupFault) {
        match self {
            Self::Connect(reply, _) => reply.send(Err(ConnectError::Startup(fault))),
            Self::Accept(reply, _) => reply.send(Err(AnswerError::Startup(fault))),
            Self::Start(reply) => reply.send(Err(SwitchError::Startup(fault))),
        }
    }
}

/// What a connection is about.
pub(super) enum Phase {
    /// Streaming mode: the octets are the application's.
    Streaming(Arc<StreamShared>),
    /// We are the Responder, and the Request is not complete.
    AwaitingRequest { responder: Responder, times: Times, asker: Asker },
    /// The application decides about a Request.
    Deciding(Deciding),
    /// We are the Initiator, and the Reply is not complete.
    AwaitingReply(Initiating),
    /// Full Operation was commanded.
    Operating {
        qp: Arc<SharedQp>,
        /// Our FIN was asked for, or follows by itself.
        finishing: bool,
        /// Until the core has switched.
        waiter: Option<Waiter>,
        /// One direction may still be in streaming mode: there were no startup frames.
        stream: Option<Arc<StreamShared>>,
    },
    /// Of no use to anybody: reset if it is not closed by then.
    Leaving { abort_at: Instant },
}

/// All connections, listeners and openings of a device.
pub(super) struct Connections {
    pub(super) table: HashMap<ConnectionId, Phase>,
    /// Connections being opened, by token.
    pub(super) opening: HashMap<u64, Opening>,
    pub(super) next_token: u64,
    pub(super) listeners: HashMap<ListenAddress, Listening>,
    /// Where the search for a free port to listen at begins.
    pub(super) next_port: u16,
    /// The addresses of connections that are open.
    pub(super) pairs: HashMap<ConnectionId, SocketPair>,
    /// Connections in [`Phase::Operating`] with somebody waiting.
    pub(super) starting: Vec<ConnectionId>,
    /// Whose the connections are that peers have opened: of which address, and of which network.
    pub(super) peers: Holdings<IpAddr, ConnectionId>,
    pub(super) networks: Holdings<u64, ConnectionId>,
}

impl Connections {
    pub(super) fn new(quotas: &Quotas, next_port: u16) -> Self {
        Self {
            table: HashMap::new(),
            opening: HashMap::new(),
            next_token: 0,
            listeners: HashMap::new(),
            next_port,
            pairs: HashMap::new(),
            starting: Vec::new(),
            peers: Holdings::new(quotas.connections_per_peer),
            networks: Holdings::new(quotas.connections_per_network),
        }
    }

    /// Counts a connection among its peer's; `false` when the peer, or its network, has its share.
    pub(super) fn take_share(&mut self, id: ConnectionId, peer: IpAddr) -> bool {
        let network = network_of(peer);
        let room = self.peers.has_room(peer) && network.is_none_or(|network| self.networks.has_room(network));
        if room {
            self.peers.take(peer, id);
            if let Some(network) = network {
                self.networks.take(network, id);
            }
        }
        room
    }

    /// How many connections were refused for want of a share.
    pub(super) const fn refused(&self) -> u64 {
        self.peers.refused() + self.networks.refused()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len() + self.opening.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the connection ends by itself, in an orderly way.
    pub(super) fn is_finishing(&self, id: ConnectionId) -> bool {
        matches!(self.table.get(&id), Some(Phase::Operating { finishing: true, .. }))
    }
}

impl Control {
    /// Sends `octets`, FIN after them, and sees that the connection ends.
    pub(super) fn leave(&mut self, now: Instant, id: ConnectionId, octets: Box<[u8]>) {
        self.commands.push(Command::Stream { connection: id, octets, then: AfterStream::Close });
        let abort_at = now + LINGER_NS;
        self.alarm.set(abort_at);
        self.connections.table.insert(id, Phase::Leaving { abort_at });
    }

    /// Resets a connection nobody waits for.
    pub(super) fn reset(&mut self, id: ConnectionId) {
        self.commands.push(Command::Abort { connection: id });
        self.connections.table.insert(id, Phase::Leaving { abort_at: Instant::NEVER });
    }

    /// Octets from here on are FPDUs: of `qp`, as agreed.
    pub(super) fn operate(
        &mut self,
        id: ConnectionId,
        qp: Arc<SharedQp>,
        waiter: Waiter,
        stream: Option<Arc<StreamShared>>,
    ) {
        if let Some(entry) = self.queue_pairs.of_mut(&qp) {
            entry.connection = Some(id);
            entry.ending.set_pair(self.connections.pairs.get(&id).copied());
        }
        let operating = Phase::Operating { qp, finishing: false, waiter: Some(waiter), stream };
        self.connections.table.insert(id, operating);
        self.connections.starting.push(id);
    }

    /// Octets that the core has lent. What startup frames are made of is taken at once; the others when the application
    /// reads them.
    pub(super) fn on_stream(&mut self, now: Instant, id: ConnectionId, octets: &[u8]) {
        match self.connections.table.get_mut(&id) {
            Some(Phase::Streaming(shared)) => shared.lend(octets),
            Some(Phase::AwaitingRequest { responder, .. }) => {
                let result = responder.on_octets(octets);
                self.take_octets(id, octets.len());
                self.on_request_octets(now, id, result);
            }
            Some(Phase::Deciding(deciding)) => {
                if let Err(refusal) = deciding.responder.on_octets(octets) {
                    deciding.failure.get_or_insert(AnswerError::Startup(refusal.fault));
                    self.commands.push(Command::Close { connection: id });
                }
                self.take_octets(id, octets.len());
            }
            Some(Phase::AwaitingReply(initiating)) => {
                let result = initiating.initiator.on_octets(octets);
                let taken = octets.len() - initiating.initiator.octets_behind();
                // Before anything follows from them: the next octet belongs to what comes then.
                self.take_octets(id, taken);
                self.on_reply_octets(now, id, result, &octets[taken..]);
            }
            Some(Phase::Operating { stream: Some(shared), .. }) if shared.receives() => {
                if shared.is_abandoned() {
                    self.take_octets(id, octets.len());
                } else {
                    shared.lend(octets);
                }
            }
            Some(Phase::Operating { stream: None, waiter, .. }) => {
                // They came before the core had switched: before our Reply, or before our first FPDU.
                if let Some(waiter) = waiter.take() {
                    waiter.fault(StartupFault::ExtraOctets);
                }
                self.commands.push(Command::Abort { connection: id });
            }
            Some(Phase::Leaving { .. }) => self.take_octets(id, octets.len()),
            // The core takes those of a stream in Full Operation for what they are: FPDUs.
            Some(Phase::Operating { stream: Some(_), .. }) | None => {}
        }
    }

    /// MPA-7.2-02: the peer sends nothing more. Our half closes too (DDP-6.2.1-05), unless its owner keeps it open.
    pub(super) fn on_peer_finished(&mut self, now: Instant, id: ConnectionId) {
        if let Some(shared) = self.stream_of(id) {
            shared.set_peer_finished();
        }
        match self.connections.table.get_mut(&id) {
            Some(Phase::AwaitingRequest { .. }) => self.refuse(now, id, StartupFault::Closed, None),
            Some(Phase::Deciding(deciding)) => {
                // It can never send the FPDU that lets us send.
                deciding.failure.get_or_insert(AnswerError::Startup(StartupFault::Closed));
                self.commands.push(Command::Close { connection: id });
            }
            Some(Phase::AwaitingReply(_)) => self.fail_startup(now, id, StartupFault::Closed),
            Some(Phase::Operating { stream: Some(shared), .. })
                if shared.receives() && !shared.is_abandoned() => {}
            Some(Phase::Operating { qp, finishing, .. }) => {
                let Some(qp) = self.queue_pairs.of(qp) else { return };
                qp.ending.set_peer_closed();
                if !*finishing && !qp.config.keep_open {
                    *finishing = true;
                    let within_ns = qp.config.disconnect_timeout.map(nanos);
                    self.commands.push(Command::Disconnect { connection: id, within_ns });
                }
            }
            Some(Phase::Streaming(_) | Phase::Leaving { .. }) | None => {}
        }
    }

    pub(super) fn on_stream_failed(&mut self, id: ConnectionId) {
        if let Some(Phase::Operating { finishing, stream, .. }) = self.connections.table.get_mut(&id) {
            // The core sends its Terminate, if it may, and closes, unless the application still sends streaming octets.
            *finishing = !stream.as_ref().is_some_and(|shared| shared.sends());
        }
    }

    pub(super) fn on_closed(&mut self, now: Instant, id: ConnectionId, reason: CloseReason) {
        self.connections.peers.give_back(&id);
        self.connections.networks.give_back(&id);
        self.connections.pairs.remove(&id);
        if let Some(shared) = self.stream_of(id) {
            shared.set_end(reason);
        }
        match self.connections.table.remove(&id) {
            Some(Phase::AwaitingRequest { asker, .. }) => self.report(asker, id, StartupFault::Closed),
            Some(Phase::Deciding(mut deciding)) => {
                // The application is told when it decides.
                deciding.failure.get_or_insert(AnswerError::Closed(reason));
                deciding.gone = true;
                deciding.due = Instant::NEVER;
                self.connections.table.insert(id, Phase::Deciding(deciding));
            }
            Some(Phase::AwaitingReply(initiating)) => self.on_closed_without_reply(now, initiating, reason),
            Some(Phase::Operating { qp, waiter, .. }) => {
                let switched = self.queue_pairs.has_switched(&qp);
                match waiter {
                    // Short as it was, it was in Full Operation: how it ended is for the queue pair to tell.
                    Some(waiter) if switched => waiter.ready(),
                    Some(waiter) => waiter.closed(reason),
                    None => {}
                }
                if switched {
                    self.qp_closed(&qp, reason);
                } else {
                    self.queue_pairs.unbind(&qp);
                }
            }
            Some(Phase::Streaming(_) | Phase::Leaving { .. }) | None => {}
        }
    }

    /// FIN after everything posted.
    pub(super) fn disconnect(&mut self, qp: &Arc<SharedQp>) {
        let Some(qp) = self.queue_pairs.of(qp) else { return };
        let (Some(id), within_ns) = (qp.connection, qp.config.disconnect_timeout.map(nanos)) else { return };
        if let Some(Phase::Operating { finishing, .. }) = self.connections.table.get_mut(&id) {
            *finishing = true;
            self.commands.push(Command::Disconnect { connection: id, within_ns });
        }
    }

    /// RST.
    pub(super) fn abort(&mut self, number: QpNumber) {
        if let Some(connection) = self.queue_pairs.entries.get(&number).and_then(|qp| qp.connection) {
            self.commands.push(Command::Abort { connection });
        }
    }

    /// Asks the core how the connection of a queue pair fares.
    pub(super) fn report_connection(&mut self, number: QpNumber, reply: Reply<Option<Snapshot>>) {
        match self.queue_pairs.entries.get(&number).and_then(|qp| qp.connection) {
            Some(connection) => {
                self.reports.push_back(reply);
                self.commands.push(Command::ReportConnection { connection });
            }
            None => reply.send(None),
        }
    }

    /// Tells who waits for a switch that the core has made it.
    pub(super) fn look_at_starting(&mut self) {
        let Self { connections: Connections { starting, table, .. }, queue_pairs, .. } = self;
        starting.retain(|id| {
            let Some(Phase::Operating { qp, waiter, .. }) = table.get_mut(id) else { return false };
            if !queue_pairs.has_switched(qp) {
                return waiter.is_some();
            }
            if let Some(waiter) = waiter.take() {
                waiter.ready();
            }
            false
        });
    }

    /// Ends what has taken too long.
    pub(super) fn look_at_connections(&mut self, now: Instant) {
        let Self { connections, alarm, .. } = self;
        let due: Vec<ConnectionId> = connections
            .table
            .iter()
            .filter(|(_, phase)| is_due(phase, now, alarm))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            match self.connections.table.remove(&id) {
                Some(Phase::AwaitingRequest { asker, .. }) => {
                    self.report(asker, id, StartupFault::TimedOut);
                    self.reset(id);
                }
                Some(phase @ Phase::AwaitingReply(_)) => {
                    self.connections.table.insert(id, phase);
                    self.fail_startup(now, id, StartupFault::TimedOut);
                }
                Some(Phase::Deciding(deciding)) => self.decide_late(now, id, deciding),
                _ => self.reset(id),
            }
        }
        self.look_at_openings(now);
    }
}

/// Whether a phase has come to its deadline; sets the alarm when it has not.
fn is_due(phase: &Phase, now: Instant, alarm: &mut Alarm) -> bool {
    let at = match phase {
        Phase::AwaitingRequest { responder, .. } => responder.deadline(),
        Phase::AwaitingReply(initiating) => initiating.initiator.deadline(),
        Phase::Leaving { abort_at } => *abort_at,
        Phase::Deciding(deciding) => deciding.due,
        Phase::Streaming(_) | Phase::Operating { .. } => return false,
    };
    if now < at {
        alarm.set(at);
    }
    now >= at
}

/// How the core is to run a connection.
pub(super) const fn full_operation(qp: QpNumber, initiator: bool, setup: Setup) -> FullOperation {
    let Agreement { markers_sent, markers_received, crc, version } = setup.agreement;
    let Outcome { depths, ready } = setup.outcome;
    FullOperation {
        markers_sent,
        markers_received,
        crc,
        version,
        ready,
        depths,
        ..FullOperation::new(qp, initiator)
    }
}
