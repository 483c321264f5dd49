//! The Responder's side of connection setup at the control thread.

use std::collections::HashMap;
use std::sync::Arc;

use warpline_dataplane::core::listeners::ListenAddress;
use warpline_dataplane::core::ring::{AfterStream, Command, ConnectionId};
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::time::Instant;

use super::connections::{Phase, Waiter, full_operation};
use super::request::Reply;
use super::{Control, LINGER_NS};
use crate::engine::startup::{Disposition, Offer, ReadsWanted, Refusal, Request, Responder, StartupFault};
use crate::handles::device::CrcPolicy;
use crate::handles::driver;
use crate::handles::listener::{
    Accepted, AnswerError, Asked, Incoming, IncomingEnds, ListenConfig, ListenError, backlog,
};
use crate::handles::tcp_stream::{StreamShared, SwitchError};
use crate::vocabulary::socket_pair::SocketPair;

/// A listener.
pub(super) struct Listening {
    config: ListenConfig,
    /// To the application.
    incoming: IncomingEnds,
    /// Called when something was put there.
    told: Option<Box<dyn Fn() + Send>>,
    /// The peers of connections whose Request is not complete.
    peers: HashMap<ConnectionId, SocketPair>,
}

impl Listening {
    /// Whether its port may be shared.
    pub(super) const fn reuses_address(&self) -> bool {
        self.config.reuse_address
    }

    /// Hands something to the application; `false` when it does not keep up.
    fn put(&self, incoming: Incoming) -> bool {
        let done = self.incoming.0.try_send(incoming).is_ok();
        if let (true, Some(told)) = (done, &self.told) {
            told();
        }
        done
    }
}

/// Who waits for a Request.
pub(super) enum Asker {
    /// The application of the listener there.
    Listener(ListenAddress),
    /// The application of a connection that was in streaming mode.
    Stream(Arc<StreamShared>, Reply<Result<Asked, SwitchError>>),
}

/// What a listener allows time for, after a Request is complete.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// The application's decision, in nanoseconds.
    decision_ns: Option<u64>,
    /// The peer's first FPDU after it, in nanoseconds.
    first_fpdu_ns: Option<u64>,
}

/// A Request that the application decides about.
pub(super) struct Deciding {
    pub(super) responder: Responder,
    request: Request,
    /// The time the peer has for its first FPDU, in nanoseconds.
    first_fpdu_ns: Option<u64>,
    /// When the application has had its time; after that, when the connection is reset if it is not closed by
    /// then.
    pub(super) due: Instant,
    /// The connection was in streaming mode before, or is to be so after a rejection.
    pub(super) stream: Option<Arc<StreamShared>>,
    /// It is too late to accept.
    pub(super) failure: Option<AnswerError>,
    /// The core has forgotten the connection.
    pub(super) gone: bool,
}

/// An application's yes.
pub(super) struct Acceptance {
    pub(super) qp: Arc<SharedQp>,
    pub(super) reads: ReadsWanted,
    pub(super) private_data: Box<[u8]>,
    pub(super) reply: Reply<Result<Accepted, AnswerError>>,
}

impl Control {
    pub(super) fn listen(
        &mut self,
        at: ListenAddress,
        config: ListenConfig,
        incoming: IncomingEnds,
        told: Option<Box<dyn Fn() + Send>>,
    ) -> Result<u16, ListenError> {
        let at = self.free_listen_address(at, config.reuse_address)?;
        let config = ListenConfig { backlog: backlog(config.backlog), ..config };
        let backlog = config.backlog;
        let listening = Listening { config, incoming, told, peers: HashMap::new() };
        self.connections.listeners.insert(at, listening);
        let ListenAddress { address, port } = at;
        self.commands.push(Command::Listen { address, port, backlog, tcp: config.tcp });
        Ok(port)
    }

    /// Connections that the application has not taken are closed.
    pub(super) fn unlisten(&mut self, now: Instant, at: ListenAddress) {
        if self.unlisten_streams(now, at) {
            return;
        }
        let Some(listening) = self.connections.listeners.remove(&at) else { return };
        self.commands.push(Command::Unlisten { address: at.address, port: at.port });
        for id in listening.peers.into_keys() {
            self.leave(now, id, Box::default());
        }
        while let Ok(incoming) = listening.incoming.1.try_recv() {
            if let Incoming::Request { connection, .. } = incoming {
                // Nobody is left to be told of an error.
                let _ = self.reject(now, connection, &[]);
            }
        }
    }

    pub(super) fn on_accepted(
        &mut self,
        now: Instant,
        id: ConnectionId,
        at: ListenAddress,
        pair: SocketPair,
    ) {
        let remote = pair.remote;
        // DDP-8.3.2-06: one peer's connections leave room for others'.
        if !self.connections.take_share(id, remote.ip()) {
            return self.reset(id);
        }
        self.connections.pairs.insert(id, pair);
        if self.on_stream_accepted(id, at, pair) {
            return;
        }
        let Some(listening) = self.connections.listeners.get_mut(&at) else {
            return self.reset(id);
        };
        listening.peers.insert(id, pair);
        let config = listening.config;
        self.await_request(now, id, config, Asker::Listener(at));
    }

    /// MPA-7.1.2-03: the next octet of the peer belongs to its Request.
    pub(super) fn await_request(
        &mut self,
        now: Instant,
        id: ConnectionId,
        config: ListenConfig,
        asker: Asker,
    ) {
        let ListenConfig { markers, terms, permissive, startup_timeout, .. } = config;
        let offer = Offer { markers, crc: self.crc == CrcPolicy::Always };
        let deadline = now + driver::nanos(startup_timeout);
        let responder = Responder::new(Disposition { offer, terms, permissive }, deadline);
        let times = Times {
            decision_ns: config.decision_timeout.map(driver::nanos),
            first_fpdu_ns: config.first_fpdu_timeout.map(driver::nanos),
        };
        self.alarm.set(deadline);
        self.connections.table.insert(id, Phase::AwaitingRequest { responder, times, asker });
    }

    pub(super) fn on_request_octets(
        &mut self,
        now: Instant,
        id: ConnectionId,
        result: Result<Option<Request>, Refusal>,
    ) {
        match result {
            Ok(None) => {}
            Ok(Some(request)) => self.offer(now, id, request),
            Err(Refusal { fault, answer }) => self.refuse(now, id, fault, answer),
        }
    }

    /// Offers a Request to the application, which sees its Private Data before it decides (MPA-7.1.4-01).
    fn offer(&mut self, now: Instant, id: ConnectionId, request: Request) {
        let Some(Phase::AwaitingRequest { responder, times, asker }) = self.connections.table.remove(&id)
        else {
            return;
        };
        let asked = Asked {
            private_data: request.private_data.clone(),
            peer: request.peer,
            version: request.version(),
            private_data_max_octets: request.private_data_max_octets(),
        };
        let (offered, due, stream) = match asker {
            Asker::Listener(at) => {
                let due = times.decision_ns.map_or(Instant::NEVER, |decision_ns| now + decision_ns);
                (self.offer_at(at, id, asked), due, None)
            }
            // The application has the connection, which is in no backlog.
            Asker::Stream(shared, reply) => {
                reply.send(Ok(asked));
                (true, Instant::NEVER, Some(shared))
            }
        };
        if offered {
            self.alarm.set(due);
            let first_fpdu_ns = times.first_fpdu_ns;
            let deciding =
                Deciding { responder, request, first_fpdu_ns, due, stream, failure: None, gone: false };
            self.connections.table.insert(id, Phase::Deciding(deciding));
        } else {
            // The application does not keep up: the peer is told at once.
            let answer = responder.reject(&request, ReadsWanted::default(), &[]).unwrap_or_default();
            self.leave(now, id, answer);
        }
    }

    /// Offers a Request at a listener; `false` when there is no room or nobody listens.
    fn offer_at(&mut self, at: ListenAddress, id: ConnectionId, asked: Asked) -> bool {
        let Some(listening) = self.connections.listeners.get_mut(&at) else { return false };
        let Some(pair) = listening.peers.remove(&id) else { return false };
        listening.put(Incoming::Request { connection: id, pair, asked })
    }

    /// MPA-7.1.2-04, MPA-7.1.3-01, MPA-8-07: the connection is closed at once and the fault reported at this end.
    pub(super) fn refuse(
        &mut self,
        now: Instant,
        id: ConnectionId,
        fault: StartupFault,
        answer: Option<Box<[u8]>>,
    ) {
        if let Some(Phase::AwaitingRequest { asker, .. }) = self.connections.table.remove(&id) {
            self.report(asker, id, fault);
        }
        self.leave(now, id, answer.unwrap_or_default());
    }

    /// Tells the application of a peer that failed; at a listener as long as that takes no room from peers that do not.
    pub(super) fn report(&mut self, asker: Asker, id: ConnectionId, fault: StartupFault) {
        let at = match asker {
            Asker::Listener(at) => at,
            Asker::Stream(shared, reply) => {
                Self::end_stream(Some(&shared));
                return reply.send(Err(SwitchError::Startup(fault)));
            }
        };
        let Some(listening) = self.connections.listeners.get_mut(&at) else { return };
        let Some(SocketPair { remote, .. }) = listening.peers.remove(&id) else { return };
        if listening.incoming.0.len() < listening.config.backlog as usize {
            listening.put(Incoming::Fault { remote, fault });
        }
    }

    /// The application has had its time for a decision: the peer is rejected, and the application told when
    /// it decides. The second time, the connection has not closed, and is reset.
    pub(super) fn decide_late(&mut self, now: Instant, id: ConnectionId, deciding: Deciding) {
        let late = deciding.failure.is_some();
        let due = if late { Instant::NEVER } else { now + LINGER_NS };
        if late {
            self.commands.push(Command::Abort { connection: id });
        } else {
            let answer = deciding.responder.reject(&deciding.request, ReadsWanted::default(), &[]);
            let octets = answer.unwrap_or_default();
            self.commands.push(Command::Stream { connection: id, octets, then: AfterStream::Close });
        }
        self.alarm.set(due);
        let failure = deciding.failure.or(Some(AnswerError::TimedOut));
        self.connections.table.insert(id, Phase::Deciding(Deciding { due, failure, ..deciding }));
    }

    /// Takes the Request that an application has decided about, unless it is too late.
    fn decided(&mut self, now: Instant, id: ConnectionId) -> Result<Deciding, AnswerError> {
        match self.connections.table.remove(&id) {
            Some(Phase::Deciding(Deciding { failure: Some(error), gone, stream, .. })) => {
                Self::end_stream(stream.as_ref());
                if !gone {
                    self.leave(now, id, Box::default());
                }
                Err(error)
            }
            Some(Phase::Deciding(deciding)) => Ok(deciding),
            Some(phase) => {
                self.connections.table.insert(id, phase);
                Err(AnswerError::Stopped)
            }
            None => Err(AnswerError::Stopped),
        }
    }

    pub(super) fn accept(&mut self, now: Instant, id: ConnectionId, acceptance: Acceptance) {
        let Acceptance { qp, reads, private_data, reply } = acceptance;
        let deciding = match self.decided(now, id) {
            Ok(deciding) => deciding,
            Err(error) => return reply.send(Err(error)),
        };
        let Deciding { responder, request, first_fpdu_ns, stream, .. } = deciding;
        let answer = responder.accept(&request, reads, &private_data).map_err(AnswerError::from);
        let bound =
            |answer| if self.queue_pairs.bind(&qp) { Ok(answer) } else { Err(AnswerError::QueuePairInUse) };
        match answer.and_then(bound) {
            Ok((octets, setup)) => {
                // MPA-7.1.2-10, A-20: one command, so that no octet is read in the wrong mode.
                let operation = self.queue_pairs.adapt(&qp, full_operation(qp.number, false, setup));
                let then = AfterStream::FullOperation(operation);
                self.commands.push(Command::Stream { connection: id, octets, then });
                let accepted = Accepted { version: setup.agreement.version, depths: setup.outcome.depths };
                if let Some(within_ns) = first_fpdu_ns {
                    // MPA-7.1.2-26
                    self.commands.push(Command::ExpectFpdu { connection: id, within_ns });
                }
                self.operate(id, qp, Waiter::Accept(reply, accepted), None);
            }
            Err(error) => {
                // A-07, MPAv2-9.1-04: the reason, if it is one that the peer can do something about, stands in the Reply.
                let answer = responder.reject(&request, reads, &[]).unwrap_or_default();
                self.turn_away(now, id, stream, answer);
                reply.send(Err(error));
            }
        }
    }

    pub(super) fn reject(
        &mut self,
        now: Instant,
        id: ConnectionId,
        private_data: &[u8],
    ) -> Result<(), AnswerError> {
        let deciding = self.decided(now, id)?;
        let Deciding { responder, request, stream, .. } = deciding;
        let answer = responder.reject(&request, ReadsWanted::default(), private_data);
        self.turn_away(now, id, stream, answer.clone().unwrap_or_default());
        answer.map(drop).map_err(AnswerError::from)
    }

    /// MPA-7.1.2-07, MPA-7.1.2-18, A-01: after a rejecting Reply MPA is left. TCP stays open if it has another use.
    fn turn_away(
        &mut self,
        now: Instant,
        id: ConnectionId,
        stream: Option<Arc<StreamShared>>,
        answer: Box<[u8]>,
    ) {
        match stream {
            Some(shared) => {
                self.send_on(id, Some(&shared), answer);
                self.stream_again(now, id, shared);
            }
            None => self.leave(now, id, answer),
        }
    }
}
