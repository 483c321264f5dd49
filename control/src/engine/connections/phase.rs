//! The phases of a connection at the engine, from TCP's handshake to its end, and what each phase holds.

use std::sync::Arc;

use warpline_dataplane::byte_stream::SharedByteStream;
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::ring::ListenAddress;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::Instant;

use super::attempt::ConnectAttempt;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::PeerRequest;
use crate::engine::interface::shared_stream::SharedStream;
use crate::engine::outbox::Outbox;
use crate::engine::startup::{Initiator, Request, Responder};
use crate::vocabulary::connect::{ConnectError, Connected};
use crate::vocabulary::listen::{Accepted, AnswerError};
use crate::vocabulary::startup::StartupFault;
use crate::vocabulary::stream::SwitchError;

/// The phase of a connection. The phases of startup are in boxes: there are many connections in Full
/// Operation, and few in startup.
pub(super) enum Phase {
    /// Streaming mode: the octets are the application's.
    Streaming(Arc<SharedStream>),
    /// An application has the octets, from the core directly.
    Bytes(Arc<SharedByteStream>),
    /// This end is the Responder, and the Request is not complete.
    AwaitingRequest(Box<AwaitingRequest>),
    /// The application decides about a Request.
    PendingAccept(Box<PendingAccept>),
    /// This end is the Initiator, and the Reply is not complete.
    AwaitingReply(Box<AwaitingReply>),
    /// The core was commanded to switch to Full Operation.
    Operating(Operating),
    /// This end has closed the connection; it is reset if it is not over by `abort_at`.
    Closing { abort_at: Instant },
}

/// Holds what the engine waits with for a Request.
pub(super) struct AwaitingRequest {
    pub(super) responder: Responder,
    pub(super) timeouts: DecisionTimeouts,
    pub(super) recipient: Recipient,
}

/// The application that a Request is offered to.
pub(super) enum Recipient {
    /// That of the listener there.
    Listener(ListenAddress),
    /// That of a connection that was in streaming mode.
    Stream(Arc<SharedStream>, Reply<Result<PeerRequest, SwitchError>>),
}

/// The times that a listener allows after a Request is complete.
#[derive(Clone, Copy)]
pub(super) struct DecisionTimeouts {
    /// The application's decision, in nanoseconds.
    pub(super) decision_ns: Option<u64>,
    /// The peer's first FPDU after it, in nanoseconds.
    pub(super) first_fpdu_ns: Option<u64>,
}

/// A Request that waits for the application's decision.
pub(super) struct PendingAccept {
    pub(super) responder: Responder,
    pub(super) request: Request,
    /// The time that the peer has for its first FPDU, in nanoseconds.
    pub(super) first_fpdu_ns: Option<u64>,
    /// Before a failure: when the peer is rejected. After one: when the connection is reset.
    pub(super) due: Instant,
    /// Octets of the Request that the core has not consumed, and when it is to, if there is no decision.
    pub(super) unconsumed: u32,
    pub(super) consume_at: Instant,
    /// The connection was in streaming mode before, or is to be so after a rejection.
    pub(super) stream: Option<Arc<SharedStream>>,
    /// Why the application cannot accept any more. It learns so when it decides.
    pub(super) failure: Option<AnswerError>,
    /// The core has forgotten the connection.
    pub(super) gone: bool,
}

/// A Request that was sent, and whose Reply is awaited.
pub(super) struct AwaitingReply {
    pub(super) initiator: Initiator,
    pub(super) attempt: ConnectAttempt,
    /// Octets of the Reply that have come. The core consumes them as Full Operation begins.
    pub(super) startup_octets: u32,
}

impl AwaitingReply {
    pub(super) fn new(initiator: Initiator, attempt: ConnectAttempt) -> Box<Self> {
        Box::new(Self { initiator, attempt, startup_octets: 0 })
    }
}

/// A connection in Full Operation, or on the way there.
pub(super) struct Operating {
    pub(super) qp: Arc<SharedQp>,
    /// The core has begun Full Operation.
    pub(super) begun: bool,
    /// Our FIN was asked for, or follows by itself.
    pub(super) finishing: bool,
    /// The application that waits until the core has begun.
    pub(super) starting: Option<Box<Starting>>,
    /// One direction may still be in streaming mode: there were no startup frames.
    pub(super) stream: Option<Arc<SharedStream>>,
}

/// A start of Full Operation that an application waits for.
pub(super) struct Starting {
    pub(super) waiter: Waiter,
    /// When the core has not answered in time.
    pub(super) until: Instant,
}

/// The application that waits until a connection is in Full Operation.
pub(super) enum Waiter {
    /// That of the Initiator.
    Connect(Reply<Result<Connected, ConnectError>>, Connected),
    /// That of the Responder.
    Accept(Reply<Result<Accepted, AnswerError>>, Accepted),
    /// That of a connection that starts without startup frames.
    Start(Reply<Result<(), SwitchError>>),
}

impl Waiter {
    /// Reports that the queue pair takes sends.
    pub(super) fn ready(self, out: &mut Outbox) {
        match self {
            Self::Connect(reply, connected) => out.reply(reply, Ok(connected)),
            Self::Accept(reply, accepted) => out.reply(reply, Ok(accepted)),
            Self::Start(reply) => out.reply(reply, Ok(())),
        }
    }

    /// Reports that the connection is over.
    pub(super) fn closed(self, out: &mut Outbox, reason: CloseReason) {
        match self {
            Self::Connect(reply, _) => out.reply(reply, Err(ConnectError::Closed(reason))),
            Self::Accept(reply, _) => out.reply(reply, Err(AnswerError::Closed(reason))),
            Self::Start(reply) => out.reply(reply, Err(SwitchError::Closed(reason))),
        }
    }

    /// Reports that MPA startup has failed.
    pub(super) fn failed(self, out: &mut Outbox, fault: StartupFault) {
        match self {
            Self::Connect(reply, _) => out.reply(reply, Err(ConnectError::Startup(fault))),
            Self::Accept(reply, _) => out.reply(reply, Err(AnswerError::Startup(fault))),
            Self::Start(reply) => out.reply(reply, Err(SwitchError::Startup(fault))),
        }
    }

    /// Reports that the core has not answered.
    pub(super) fn unanswered(self, out: &mut Outbox, core: u8) {
        match self {
            Self::Connect(reply, _) => out.reply(reply, Err(ConnectError::Unanswered { core })),
            Self::Accept(reply, _) => out.reply(reply, Err(AnswerError::Unanswered { core })),
            Self::Start(reply) => out.reply(reply, Err(SwitchError::Unanswered { core })),
        }
    }
}

const _: () = assert!(size_of::<Phase>() <= 32);

impl Phase {
    /// Returns the stream of a connection that is in streaming mode, in one direction at least, or may come
    /// back to it.
    pub(super) fn stream(&self) -> Option<&Arc<SharedStream>> {
        match self {
            Self::Streaming(stream) => Some(stream),
            Self::AwaitingRequest(awaiting) => match &awaiting.recipient {
                Recipient::Stream(stream, _) => Some(stream),
                Recipient::Listener(_) => None,
            },
            Self::PendingAccept(pending) => pending.stream.as_ref(),
            Self::AwaitingReply(awaiting) => awaiting.attempt.stream.as_ref(),
            Self::Operating(operating) => operating.stream.as_ref(),
            Self::Bytes(_) | Self::Closing { .. } => None,
        }
    }

    /// Returns the time limit of the phase; [`Instant::NEVER`] for a phase without one.
    pub(super) fn deadline(&self) -> Instant {
        match self {
            Self::AwaitingRequest(awaiting) => awaiting.responder.deadline(),
            Self::AwaitingReply(awaiting) => awaiting.initiator.deadline(),
            Self::Closing { abort_at } => *abort_at,
            Self::PendingAccept(pending) => pending.due.min(pending.consume_at),
            Self::Operating(Operating { starting: Some(starting), .. }) => starting.until,
            Self::Streaming(_) | Self::Bytes(_) | Self::Operating(_) => Instant::NEVER,
        }
    }
}
