//! Connections in streaming mode at the control thread, and how MPA starts on them and leaves them again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam::channel::{self, Receiver, Sender};
use warpline_dataplane::core::listeners::ListenAddress;
use warpline_dataplane::core::ring::{self, AfterStream, Command, ConnectionId, Direction, FullOperation};
use warpline_dataplane::limits;
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::Instant;

use super::connections::{Phase, Waiter};
use super::initiating::{UNANSWERED_NS, Wish, canonical, connect_error};
use super::request::Reply;
use super::responding::Asker;
use super::{Alarm, Control};
use crate::handles::driver;
use crate::handles::listener::{AnswerError, Asked, ListenConfig, ListenError, backlog};
use crate::handles::tcp_listener::TcpListenConfig;
use crate::handles::tcp_stream::{StreamConfig, StreamShared, SwitchError, UnnegotiatedConfig};
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Connected};
use crate::vocabulary::socket_pair::SocketPair;

/// The port of a listener, and where its connections arrive.
type Listened = Result<(u16, Receiver<Arc<StreamShared>>), ListenError>;

/// What the API asks of connections in streaming mode.
pub(crate) enum StreamRequest {
    Connect {
        remote: SocketAddr,
        config: StreamConfig,
        reply: Reply<Result<Arc<StreamShared>, ConnectError>>,
    },
    Listen {
        /// Port 0 for a free one.
        at: ListenAddress,
        config: TcpListenConfig,
        reply: Reply<Listened>,
    },
    /// The application has taken a connection from its listener.
    Admit { connection: ConnectionId },
    /// Octets that are charged to the connection already.
    Write { connection: ConnectionId, octets: Box<[u8]> },
    /// The application has read octets.
    Take { connection: ConnectionId, octets: u32 },
    /// FIN after everything written.
    Finish { connection: ConnectionId },
    /// RST.
    Abort { connection: ConnectionId },
    /// The application has dropped the connection.
    Abandon { connection: ConnectionId },
    Initiate {
        connection: ConnectionId,
        qp: Arc<SharedQp>,
        remote: SocketAddr,
        config: ConnectConfig,
        reply: Reply<Result<Connected, ConnectError>>,
    },
    Respond {
        connection: ConnectionId,
        last_message: Box<[u8]>,
        config: ListenConfig,
        reply: Reply<Result<Asked, SwitchError>>,
    },
    Start {
        connection: ConnectionId,
        qp: Arc<SharedQp>,
        direction: Direction,
        config: UnnegotiatedConfig,
        reply: Reply<Result<(), SwitchError>>,
    },
    /// A rejection that leaves the connection to the application.
    RejectToStream {
        connection: ConnectionId,
        pair: SocketPair,
        private_data: Box<[u8]>,
        reply: Reply<Result<Arc<StreamShared>, AnswerError>>,
    },
}

/// A connection that the core is opening.
struct Opening {
    deadline: Instant,
    remote: SocketAddr,
    /// Gone once nobody waits any more.
    reply: Option<Reply<Result<Arc<StreamShared>, ConnectError>>>,
}

/// A listener for connections in streaming mode.
struct StreamListening {
    /// To the application, and back when it has gone.
    incoming: (Sender<Arc<StreamShared>>, Receiver<Arc<StreamShared>>),
    /// Its port may be shared.
    reuse_address: bool,
}

/// Openings and listeners of connections in streaming mode. The connections themselves are with all others.
#[derive(Default)]
pub(super) struct Streams {
    /// By token.
    opening: HashMap<u64, Opening>,
    listeners: HashMap<ListenAddress, StreamListening>,
}

impl Streams {
    pub(super) fn opening(&self) -> usize {
        self.opening.len()
    }

    pub(super) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    /// Where there are listeners, and whether each shares its port.
    pub(super) fn listen_addresses(&self) -> impl Iterator<Item = (ListenAddress, bool)> {
        self.listeners.iter().map(|(at, listening)| (*at, listening.reuse_address))
    }

    /// Answers for a core that does not: nobody polls it.
    pub(super) fn look_at_openings(&mut self, now: Instant, alarm: &mut Alarm) {
        for opening in self.opening.values_mut() {
            let at = opening.deadline + UNANSWERED_NS;
            if now < at {
                alarm.set(at);
            } else if let Some(reply) = opening.reply.take() {
                reply.send(Err(ConnectError::TimedOut));
            }
        }
    }
}

impl Control {
    pub(super) fn on_stream_request(&mut self, now: Instant, request: StreamRequest) {
        match request {
            StreamRequest::Connect { remote, config, reply } => {
                self.connect_stream(now, remote, config, reply);
            }
            StreamRequest::Listen { at, config, reply } => {
                reply.send(self.listen_streams(at, config));
            }
            StreamRequest::Admit { connection } => self.commands.push(Command::Admit { connection }),
            StreamRequest::Write { connection, octets } => self.write_stream(connection, octets),
            StreamRequest::Take { connection, octets } => {
                self.commands.push(Command::Take { connection, octets });
            }
            StreamRequest::Finish { connection } => self.commands.push(Command::Close { connection }),
            StreamRequest::Abort { connection } => self.abort_stream(connection),
            StreamRequest::Abandon { connection } => self.abandon_stream(now, connection),
            StreamRequest::Initiate { connection, qp, remote, config, reply } => {
                self.initiate(now, connection, Wish::new(qp, remote, config, reply));
            }
            StreamRequest::Respond { connection, last_message, config, reply } => {
                self.respond(now, connection, last_message, config, reply);
            }
            StreamRequest::Start { connection, qp, direction, config, reply } => {
                self.start_unnegotiated(connection, &qp, (direction, config), reply);
            }
            StreamRequest::RejectToStream { connection, pair, private_data, reply } => {
                reply.send(self.reject_to_stream(now, connection, pair, &private_data));
            }
        }
    }

    fn connect_stream(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        config: StreamConfig,
        reply: Reply<Result<Arc<StreamShared>, ConnectError>>,
    ) {
        let token = self.connections.next_token;
        self.connections.next_token += 1;
        let timeout_ns = driver::nanos(config.timeout);
        let deadline = now + timeout_ns;
        self.streams.opening.insert(token, Opening { deadline, remote, reply: Some(reply) });
        self.alarm.set(deadline + UNANSWERED_NS);
        self.commands.push(Command::Connect {
            token,
            local: config.local,
            remote,
            timeout_ns,
            tcp: config.tcp,
        });
    }

    /// A connection is open; `false` when it was not to be in streaming mode.
    pub(super) fn on_stream_connected(&mut self, token: u64, id: ConnectionId, local: SocketAddr) -> bool {
        let Some(Opening { remote, reply, .. }) = self.streams.opening.remove(&token) else { return false };
        match reply {
            Some(reply) => {
                let pair = SocketPair { local, remote: canonical(remote) };
                let shared = StreamShared::new(id, pair);
                self.connections.pairs.insert(id, pair);
                self.connections.table.insert(id, Phase::Streaming(shared.clone()));
                reply.send(Ok(shared));
            }
            None => self.reset(id),
        }
        true
    }

    /// A connection could not be opened; `false` when it was not to be in streaming mode.
    pub(super) fn on_stream_connect_failed(&mut self, token: u64, error: ring::ConnectError) -> bool {
        let Some(opening) = self.streams.opening.remove(&token) else { return false };
        if let Some(reply) = opening.reply {
            reply.send(Err(connect_error(error)));
        }
        true
    }

    fn listen_streams(&mut self, at: ListenAddress, config: TcpListenConfig) -> Listened {
        let at = self.free_listen_address(at, config.reuse_address)?;
        let backlog = backlog(config.backlog);
        // Those that wait and those whose handshake is complete meanwhile.
        let incoming = channel::bounded(2 * backlog as usize);
        let receiver = incoming.1.clone();
        let reuse_address = config.reuse_address;
        self.streams.listeners.insert(at, StreamListening { incoming, reuse_address });
        let ListenAddress { address, port } = at;
        self.commands.push(Command::Listen { address, port, backlog, tcp: config.tcp });
        Ok((port, receiver))
    }

    /// Connections that the application has not taken are closed; `false` when the port was not for streaming mode.
    pub(super) fn unlisten_streams(&mut self, now: Instant, at: ListenAddress) -> bool {
        let Some(listening) = self.streams.listeners.remove(&at) else { return false };
        self.commands.push(Command::Unlisten { address: at.address, port: at.port });
        while let Ok(shared) = listening.incoming.1.try_recv() {
            self.abandon_stream(now, shared.connection);
        }
        true
    }

    /// A peer has connected; `false` when the port is not for streaming mode.
    pub(super) fn on_stream_accepted(
        &mut self,
        id: ConnectionId,
        at: ListenAddress,
        pair: SocketPair,
    ) -> bool {
        let Some(listening) = self.streams.listeners.get(&at) else { return false };
        let shared = StreamShared::new(id, pair);
        if listening.incoming.0.try_send(shared.clone()).is_ok() {
            self.connections.table.insert(id, Phase::Streaming(shared));
        } else {
            self.reset(id);
        }
        true
    }

    fn write_stream(&mut self, connection: ConnectionId, octets: Box<[u8]>) {
        // What was written before MPA began is sent before it: requests come in order.
        if self.stream_of(connection).is_some_and(|shared| shared.sends()) {
            self.commands.push(Command::Stream { connection, octets, then: AfterStream::Stay });
        }
    }

    fn abort_stream(&mut self, connection: ConnectionId) {
        if self.stream_of(connection).is_some() {
            self.commands.push(Command::Abort { connection });
        }
    }

    /// Nobody reads and writes it any more: in streaming mode it is closed. A queue pair that serves one direction goes on.
    fn abandon_stream(&mut self, now: Instant, id: ConnectionId) {
        let Some(shared) = self.stream_of(id) else { return };
        let pending = shared.take_pending().len();
        self.take_octets(id, pending);
        if matches!(self.connections.table.get(&id), Some(Phase::Streaming(_))) {
            self.leave(now, id, Box::default());
        }
    }

    /// What the application has of a connection that is in streaming mode, in one direction at least, or may come back
    /// to it.
    pub(super) fn stream_of(&self, id: ConnectionId) -> Option<&Arc<StreamShared>> {
        match self.connections.table.get(&id)? {
            Phase::Streaming(shared) | Phase::AwaitingRequest { asker: Asker::Stream(shared, _), .. } => {
                Some(shared)
            }
            Phase::Deciding(deciding) => deciding.stream.as_ref(),
            Phase::AwaitingReply(initiating) => initiating.stream(),
            Phase::Operating { stream, .. } => stream.as_ref(),
            Phase::AwaitingRequest { .. } | Phase::Leaving { .. } => None,
        }
    }

    /// Control has taken octets that the core lent.
    pub(super) fn take_octets(&mut self, connection: ConnectionId, octets: usize) {
        if octets > 0 {
            self.commands.push(Command::Take { connection, octets: octets as u32 });
        }
    }

    /// Sends a startup frame, or a last streaming message.
    pub(super) fn send_on(
        &mut self,
        id: ConnectionId,
        stream: Option<&Arc<StreamShared>>,
        octets: Box<[u8]>,
    ) {
        if octets.is_empty() {
            return;
        }
        if let Some(shared) = stream {
            shared.charge(octets.len());
        }
        self.commands.push(Command::Stream { connection: id, octets, then: AfterStream::Stay });
    }

    /// MPA-7.1.2-07, MPA-7.1.2-13, A-01: MPA is left with TCP open: the connection is the application's again.
    pub(super) fn stream_again(&mut self, now: Instant, id: ConnectionId, shared: Arc<StreamShared>) {
        shared.give_back();
        let abandoned = shared.is_abandoned();
        self.connections.table.insert(id, Phase::Streaming(shared));
        if abandoned {
            self.abandon_stream(now, id);
        }
    }

    /// The connection of `id`, if MPA may start on it in both directions.
    fn startable(&self, id: ConnectionId) -> Option<Arc<StreamShared>> {
        match self.connections.table.get(&id) {
            Some(Phase::Streaming(shared)) if !shared.finished() => Some(shared.clone()),
            _ => None,
        }
    }

    /// MPA-7.1-03, MPA-7.1-06: Initiator after streaming mode, whoever opened the connection.
    fn initiate(&mut self, now: Instant, id: ConnectionId, wish: Wish) {
        let Some(shared) = self.startable(id) else {
            return wish.refuse(ConnectError::NotStreaming);
        };
        let octets = shared.pending_octets();
        if octets > 0 {
            // MPA-7.1.5-01: the peer has not heard of MPA when it sent them.
            return wish.refuse(ConnectError::PendingStreamData { octets });
        }
        if !self.queue_pairs.bind(wish.qp()) {
            return wish.refuse(ConnectError::QueuePairInUse);
        }
        shared.give_to_mpa(Direction::Both);
        let deadline = now + wish.timeout_ns();
        let finished = shared.peer_finished();
        self.request(now, id, deadline, wish.on(shared));
        if finished {
            self.on_peer_finished(now, id);
        }
    }

    /// MPA-7.1-03, MPA-7.1-06: Responder after streaming mode, whoever opened the connection.
    fn respond(
        &mut self,
        now: Instant,
        id: ConnectionId,
        last_message: Box<[u8]>,
        config: ListenConfig,
        reply: Reply<Result<Asked, SwitchError>>,
    ) {
        let Some(shared) = self.startable(id) else {
            return reply.send(Err(SwitchError::NotStreaming));
        };
        let octets = shared.pending_octets();
        if octets > 0 && !last_message.is_empty() {
            // MPA-7.1.5-01: the peer cannot have answered a message that was not sent yet.
            return reply.send(Err(SwitchError::PendingStreamData { octets }));
        }
        let octets = last_message.len();
        if octets > 0 && !shared.has_room(octets) {
            return reply.send(Err(SwitchError::NoRoom { octets }));
        }
        let early = shared.take_pending();
        shared.give_to_mpa(Direction::Both);
        let finished = shared.peer_finished();
        // MPA-7.1.5-02: whatever comes from now on is the Request, so it cannot come too soon.
        self.await_request(now, id, config, Asker::Stream(shared.clone(), reply));
        self.send_on(id, Some(&shared), last_message);
        if !early.is_empty() {
            self.on_stream(now, id, &early);
        }
        if finished {
            self.on_peer_finished(now, id);
        }
    }

    /// C00-8.1-01 to C00-8.1-06: FPDUs in `direction` from here on, without a word about it.
    fn start_unnegotiated(
        &mut self,
        id: ConnectionId,
        qp: &Arc<SharedQp>,
        (direction, config): (Direction, UnnegotiatedConfig),
        reply: Reply<Result<(), SwitchError>>,
    ) {
        let operation = FullOperation::unnegotiated(qp.number, config.version, config.depths);
        let operation = self.queue_pairs.adapt(qp, operation);
        let command = Command::StartUnnegotiated { connection: id, operation, direction };
        match self.connections.table.get(&id) {
            Some(Phase::Operating { qp: serving, stream: Some(shared), .. })
                if Arc::ptr_eq(serving, qp) && !shared.is_of_mpa(direction) =>
            {
                shared.give_to_mpa(direction);
                self.commands.push(command);
                reply.send(Ok(()));
            }
            Some(Phase::Streaming(shared)) if !(shared.finished() && direction.sends()) => {
                let shared = shared.clone();
                if !self.queue_pairs.bind(qp) {
                    return reply.send(Err(SwitchError::QueuePairInUse));
                }
                shared.give_to_mpa(direction);
                self.commands.push(command);
                self.operate(id, qp.clone(), Waiter::Start(reply), Some(shared));
            }
            _ => reply.send(Err(SwitchError::NotStreaming)),
        }
    }

    fn reject_to_stream(
        &mut self,
        now: Instant,
        id: ConnectionId,
        pair: SocketPair,
        private_data: &[u8],
    ) -> Result<Arc<StreamShared>, AnswerError> {
        if let Some(Phase::Deciding(deciding)) = self.connections.table.get_mut(&id) {
            deciding.stream.get_or_insert_with(|| StreamShared::new(id, pair));
        }
        let shared = self.stream_of(id).cloned().ok_or(AnswerError::Stopped)?;
        // It waits for no application any more.
        self.commands.push(Command::Admit { connection: id });
        self.reject(now, id, private_data)?;
        Ok(shared)
    }

    /// The core is polled no more.
    pub(super) fn stop_streams(&mut self) {
        for shared in self.connections.table.keys().filter_map(|id| self.stream_of(*id)) {
            shared.set_stopped();
        }
    }

    /// Startup has failed on a connection that was in streaming mode: it is closed (MPA-8-07).
    pub(super) fn end_stream(stream: Option<&Arc<StreamShared>>) {
        if let Some(shared) = stream {
            shared.set_end(CloseReason::Aborted);
        }
    }

    /// Where a listener may listen that is to do so at `at`: there, at a port that no other listener has if
    /// none is named.
    pub(super) fn free_listen_address(
        &mut self,
        at: ListenAddress,
        reuse_address: bool,
    ) -> Result<ListenAddress, ListenError> {
        const FIRST: u16 = limits::EPHEMERAL_PORTS.0;
        const COUNT: u16 = limits::EPHEMERAL_PORTS.1 - FIRST + 1;
        // One of them is free.
        const { assert!(limits::LISTENERS_PER_CORE < COUNT as usize) };
        let Self { connections, streams, .. } = self;
        let listeners = connections.listeners.iter();
        let listeners = listeners.map(|(at, listening)| (*at, listening.reuses_address()));
        let listeners: Vec<(ListenAddress, bool)> = listeners.chain(streams.listen_addresses()).collect();
        let conflicts = |(other, reuses): &(ListenAddress, bool)| {
            other == &at || (other.overlaps(&at) && !(*reuses && reuse_address))
        };
        if listeners.iter().any(conflicts) {
            return Err(ListenError::PortInUse(at.port));
        }
        if listeners.len() >= limits::LISTENERS_PER_CORE {
            return Err(ListenError::TooManyListeners);
        }
        if at.port != 0 {
            return Ok(at);
        }
        let mut next = connections.next_port.wrapping_add(1);
        let port = loop {
            let port = FIRST + next % COUNT;
            if !listeners.iter().any(|(other, _)| other.port == port) {
                break port;
            }
            next = next.wrapping_add(1);
        };
        connections.next_port = next;
        Ok(ListenAddress { port, ..at })
    }
}
