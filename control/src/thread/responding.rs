//! The Responder's side of connection setup at the control thread.

use std::collections::HashMap;
use std::net::SocketAddr;

use crossbeam::channel::{self, Receiver, Sender};
use warpline_dataplane::core::ring::{AfterStream, Command, ConnectionId};
use warpline_dataplane::limits;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::time::Instant;

use super::Control;
use super::connections::{Phase, Waiter, full_operation};
use super::request::Reply;
use crate::device::CrcPolicy;
use crate::driver;
use crate::listener::{Accepted, AnswerError, Asked, Incoming, ListenConfig, ListenError};
use crate::startup::{Disposition, Offer, ReadsWanted, Refusal, Request, Responder, StartupFault};

/// A listener.
pub(super) struct Listening {
    config: ListenConfig,
    /// To the application; room for a backlog of Requests and as many faults.
    incoming: (Sender<Incoming>, Receiver<Incoming>),
    /// The peers of connections whose Request is not complete.
    peers: HashMap<ConnectionId, SocketAddr>,
}

/// A Request that the application decides about.
pub(super) struct Deciding {
    pub(super) responder: Responder,
    request: Request,
    /// It is too late to accept.
    pub(super) failure: Option<AnswerError>,
    /// The core has forgotten the connection.
    pub(super) gone: bool,
}

/// An application's yes.
pub(super) struct Acceptance {
    pub(super) qp: QpNumber,
    pub(super) reads: ReadsWanted,
    pub(super) private_data: Box<[u8]>,
    pub(super) reply: Reply<Result<Accepted, AnswerError>>,
}

impl Control {
    pub(super) fn listen(
        &mut self,
        port: u16,
        config: ListenConfig,
    ) -> Result<Receiver<Incoming>, ListenError> {
        let listeners = &mut self.connections.listeners;
        if listeners.contains_key(&port) {
            return Err(ListenError::PortInUse(port));
        }
        if listeners.len() >= limits::LISTENERS_PER_CORE {
            return Err(ListenError::TooManyListeners);
        }
        let backlog = config.backlog.max(1);
        let incoming = channel::bounded(2 * backlog as usize);
        let receiver = incoming.1.clone();
        listeners.insert(port, Listening { config, incoming, peers: HashMap::new() });
        self.commands.push(Command::Listen { port, backlog, tcp: config.tcp });
        Ok(receiver)
    }

    /// Connections that the application has not taken are closed.
    pub(super) fn unlisten(&mut self, now: Instant, port: u16) {
        let Some(listening) = self.connections.listeners.remove(&port) else { return };
        self.commands.push(Command::Unlisten { port });
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

    pub(super) fn on_accepted(&mut self, now: Instant, id: ConnectionId, port: u16, remote: SocketAddr) {
        let crc = self.crc == CrcPolicy::Always;
        let Some(listening) = self.connections.listeners.get_mut(&port) else {
            return self.reset(id);
        };
        listening.peers.insert(id, remote);
        let deadline = now + driver::nanos(listening.config.startup_timeout);
        let ListenConfig { markers, terms, permissive, .. } = listening.config;
        let disposition = Disposition { offer: Offer { markers, crc }, terms, permissive };
        let responder = Responder::new(disposition, deadline);
        self.alarm.set(deadline);
        self.connections.table.insert(id, Phase::AwaitingRequest { responder, port });
    }

    pub(super) fn on_request_octets(
        &mut self,
        now: Instant,
        id: ConnectionId,
        port: u16,
        result: Result<Option<Request>, Refusal>,
    ) {
        match result {
            Ok(None) => {}
            Ok(Some(request)) => self.offer(now, id, port, request),
            Err(Refusal { fault, answer }) => self.refuse(now, id, port, fault, answer),
        }
    }

    /// Offers a Request to the application.
    fn offer(&mut self, now: Instant, id: ConnectionId, port: u16, request: Request) {
        let Some(Phase::AwaitingRequest { responder, .. }) = self.connections.table.remove(&id) else {
            return;
        };
        let offered = self.connections.listeners.get_mut(&port).and_then(|listening| {
            let remote = listening.peers.remove(&id)?;
            let asked = Asked {
                private_data: request.private_data.clone(),
                peer: request.peer,
                version: request.version(),
                private_data_max_octets: request.private_data_max_octets(),
            };
            listening.incoming.0.try_send(Incoming::Request { connection: id, remote, asked }).ok()
        });
        if offered.is_some() {
            let deciding = Deciding { responder, request, failure: None, gone: false };
            self.connections.table.insert(id, Phase::Deciding(deciding));
        } else {
            // The application does not keep up: the peer is told at once.
            let answer = responder.reject(&request, ReadsWanted::default(), &[]).unwrap_or_default();
            self.leave(now, id, answer);
        }
    }

    /// MPA-7.1.2-04, MPA-8-07: the connection is closed and the fault reported at this end.
    pub(super) fn refuse(
        &mut self,
        now: Instant,
        id: ConnectionId,
        port: u16,
        fault: StartupFault,
        answer: Option<Box<[u8]>>,
    ) {
        self.report(port, id, fault);
        self.leave(now, id, answer.unwrap_or_default());
    }

    /// Tells the application of a peer that failed, as long as that takes no room from peers that do not.
    pub(super) fn report(&mut self, port: u16, id: ConnectionId, fault: StartupFault) {
        let Some(listening) = self.connections.listeners.get_mut(&port) else { return };
        let Some(remote) = listening.peers.remove(&id) else { return };
        if listening.incoming.0.len() < listening.config.backlog.max(1) as usize {
            let _ = listening.incoming.0.try_send(Incoming::Fault { remote, fault });
        }
    }

    /// Takes the Request that an application has decided about, unless it is too late.
    fn decided(&mut self, now: Instant, id: ConnectionId) -> Result<Deciding, AnswerError> {
        match self.connections.table.remove(&id) {
            Some(Phase::Deciding(Deciding { failure: Some(error), gone, .. })) => {
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
        let Deciding { responder, request, .. } = deciding;
        let answer = responder.accept(&request, reads, &private_data).map_err(AnswerError::from);
        let bound =
            |answer| if self.queue_pairs.bind(qp) { Ok(answer) } else { Err(AnswerError::QueuePairInUse) };
        match answer.and_then(bound) {
            Ok((octets, setup)) => {
                // MPA-7.1.2-10, A-20: one command, so that no octet is read in the wrong mode.
                let operation = full_operation(qp, false, setup, self.queue_pairs.packs(qp));
                let then = AfterStream::FullOperation(operation);
                self.commands.push(Command::Stream { connection: id, octets, then });
                let accepted = Accepted { version: setup.agreement.version, depths: setup.outcome.depths };
                self.operate(id, qp, Waiter::Accept(reply, accepted));
            }
            Err(error) => {
                reply.send(Err(error));
                // A-07, MPAv2-9.1-04: the reason, if it is one that the peer can do something about, stands in the Reply.
                let answer = responder.reject(&request, reads, &[]).unwrap_or_default();
                self.leave(now, id, answer);
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
        let Deciding { responder, request, .. } = deciding;
        let answer = responder.reject(&request, ReadsWanted::default(), private_data);
        // MPA is left. TCP has no other use here.
        self.leave(now, id, answer.clone().unwrap_or_default());
        answer.map(drop).map_err(AnswerError::from)
    }
}
