//! The Initiator's side of connection setup at the control thread.

use std::net::SocketAddr;

use warpline_dataplane::core::ring::{self, AfterStream, Command, ConnectionId};
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{Instant, SECOND};

use super::Control;
use super::connections::{Phase, Waiter, full_operation};
use super::request::Reply;
use crate::connect::{ConnectConfig, ConnectError, Connected};
use crate::device::CrcPolicy;
use crate::driver;
use crate::startup::{self, Initiator, Offer, StartupFault};

/// How long after its deadline a core that does not answer is waited for.
const UNANSWERED_NS: u64 = SECOND;

/// What an application wants of a connection.
pub(crate) struct Wish {
    pub(super) qp: QpNumber,
    pub(super) config: ConnectConfig,
    pub(super) reply: Reply<Result<Connected, ConnectError>>,
}

/// A connection that the core is opening.
pub(super) struct Opening {
    /// The whole of the handshake and the startup is over by then.
    deadline: Instant,
    /// Gone once nobody waits any more.
    wish: Option<Wish>,
}

/// A connection whose Reply is awaited.
pub(super) struct Initiating {
    pub(super) initiator: Initiator,
    pub(super) qp: QpNumber,
    pub(super) reply: Reply<Result<Connected, ConnectError>>,
}

impl Control {
    pub(super) fn connect(&mut self, now: Instant, wish: Wish, remote: SocketAddr) {
        if !self.queue_pairs.bind(wish.qp) {
            wish.reply.send(Err(ConnectError::QueuePairInUse));
            return;
        }
        let token = self.connections.next_token;
        self.connections.next_token += 1;
        let (timeout_ns, tcp) = (driver::nanos(wish.config.timeout), wish.config.tcp);
        let deadline = now + timeout_ns;
        self.connections.opening.insert(token, Opening { deadline, wish: Some(wish) });
        self.alarm.set(deadline + UNANSWERED_NS);
        self.commands.push(Command::Connect { token, remote, timeout_ns, tcp });
    }

    pub(super) fn on_connect_failed(&mut self, token: u64, error: ring::ConnectError) {
        let Some(wish) = self.connections.opening.remove(&token).and_then(|opening| opening.wish) else {
            return;
        };
        self.queue_pairs.unbind(wish.qp);
        wish.reply.send(Err(match error {
            ring::ConnectError::Closed(CloseReason::Refused) => ConnectError::Refused,
            ring::ConnectError::Closed(CloseReason::TimedOut) => ConnectError::TimedOut,
            ring::ConnectError::Closed(reason) => ConnectError::Closed(reason),
            ring::ConnectError::NoRoom => ConnectError::TooManyConnections,
            ring::ConnectError::Unreachable => ConnectError::Unreachable,
            ring::ConnectError::NoPort => ConnectError::NoPort,
            ring::ConnectError::NoRoute => ConnectError::NoRoute,
        }));
    }

    /// TCP is open: the Request goes out, before anything else (MPA-7.1-02, MPA-7.1.2-01).
    pub(super) fn on_connected(&mut self, now: Instant, token: u64, id: ConnectionId) {
        let Some(Opening { deadline, wish: Some(wish) }) = self.connections.opening.remove(&token) else {
            return self.reset(id);
        };
        let offer = Offer { markers: wish.config.markers, crc: self.crc == CrcPolicy::Always };
        match Initiator::new(offer, &wish.config.private_data, deadline) {
            Ok((initiator, octets)) => {
                self.alarm.set(deadline);
                self.commands.push(Command::Stream { connection: id, octets, then: AfterStream::Stay });
                let initiating = Initiating { initiator, qp: wish.qp, reply: wish.reply };
                self.connections.table.insert(id, Phase::AwaitingReply(initiating));
            }
            Err(error) => {
                self.queue_pairs.unbind(wish.qp);
                wish.reply.send(Err(error.into()));
                self.leave(now, id, Box::default());
            }
        }
    }

    pub(super) fn on_reply_octets(
        &mut self,
        now: Instant,
        id: ConnectionId,
        result: Result<Option<startup::Reply>, StartupFault>,
    ) {
        let reply = match result {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(fault) => return self.fail_startup(now, id, fault),
        };
        let Some(Phase::AwaitingReply(Initiating { qp, reply: waiter, .. })) =
            self.connections.table.remove(&id)
        else {
            return;
        };
        match reply {
            startup::Reply::Accepted { agreement, private_data } => {
                // MPA-7.1.2-14, A-20: the next octet each way belongs to an FPDU.
                let operation = full_operation(qp, true, agreement, self.queue_pairs.packs(qp));
                self.commands.push(Command::Start { connection: id, operation });
                self.operate(id, qp, Waiter::Connect(waiter, Connected { private_data }));
            }
            startup::Reply::Rejected { private_data } => {
                self.queue_pairs.unbind(qp);
                waiter.send(Err(ConnectError::Rejected { private_data }));
                // MPA is left. TCP has no other use here.
                self.leave(now, id, Box::default());
            }
        }
    }

    /// MPA-7.1.2-12, MPA-8-07: the connection is closed and the application is told.
    pub(super) fn fail_startup(&mut self, now: Instant, id: ConnectionId, fault: StartupFault) {
        if let Some(Phase::AwaitingReply(initiating)) = self.connections.table.remove(&id) {
            self.queue_pairs.unbind(initiating.qp);
            initiating.reply.send(Err(ConnectError::Startup(fault)));
        }
        self.leave(now, id, Box::default());
    }

    /// Answers for a core that does not: nobody polls it.
    pub(super) fn look_at_openings(&mut self, now: Instant) {
        for opening in self.connections.opening.values_mut() {
            let at = opening.deadline + UNANSWERED_NS;
            if now < at {
                self.alarm.set(at);
            } else if let Some(wish) = opening.wish.take() {
                self.queue_pairs.unbind(wish.qp);
                wish.reply.send(Err(ConnectError::TimedOut));
            }
        }
    }
}
