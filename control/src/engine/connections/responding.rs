//! MPA startup as the Responder: the Request, the decision of the application, and the Reply.

use std::mem;
use std::sync::Arc;

use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::ring::{AfterStream, Command, FullOperation, ListenAddress};
use warpline_dataplane::time::{Instant, MILLISECOND};

use super::context::{Context, end_stream, full_operation, give_to_mpa};
use super::phase::{AwaitingRequest, DecisionTimeouts, PendingAccept, Phase, Recipient, Waiter};
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::PeerRequest;
use crate::engine::interface::shared_stream::SharedStream;
use crate::engine::queue_pairs::LINGER_NS;
use crate::engine::startup::{Disposition, Offer, Refusal, Request, Responder};
use crate::vocabulary::device::CrcPolicy;
use crate::vocabulary::duration::nanos;
use crate::vocabulary::listen::{Accepted, AnswerError, ListenConfig};
use crate::vocabulary::startup::{ReadsWanted, StartupFault};
use crate::vocabulary::stream::SwitchError;

/// How long the octets of a Request stay with the core, for the command that begins Full Operation to consume
/// them. The core keeps them in a frame, of which it has not many: for an application that takes longer to
/// decide, they are consumed by a command of their own.
const CONSUME_AFTER_NS: u64 = 10 * MILLISECOND;

/// An application's decision to accept.
pub(in crate::engine) struct Acceptance {
    pub(in crate::engine) qp: Arc<SharedQp>,
    pub(in crate::engine) reads: ReadsWanted,
    pub(in crate::engine) private_data: Box<[u8]>,
    pub(in crate::engine) reply: Reply<Result<Accepted, AnswerError>>,
}

/// Waits for the Request: the next octet of the peer belongs to it.
// Requirements: MPA-7.1.2-03
pub(super) fn await_request(
    cx: &mut Context<'_>,
    config: &ListenConfig,
    recipient: Recipient,
) -> AwaitingRequest {
    let ListenConfig { markers, terms, permissive, startup_timeout, .. } = *config;
    let offer = Offer { markers, crc: cx.crc == CrcPolicy::Always };
    let deadline = cx.now + nanos(startup_timeout);
    let responder = Responder::new(Disposition { offer, terms, permissive }, deadline);
    let timeouts = DecisionTimeouts {
        decision_ns: config.decision_timeout.map(nanos),
        first_fpdu_ns: config.first_fpdu_timeout.map(nanos),
    };
    AwaitingRequest { responder, timeouts, recipient }
}

/// Handles octets of the peer, which belong to its Request.
pub(super) fn on_octets(cx: &mut Context<'_>, mut awaiting: Box<AwaitingRequest>, octets: &[u8]) -> Phase {
    match awaiting.responder.on_octets(octets) {
        Ok(None) => {
            cx.consume_octets(octets.len());
            Phase::AwaitingRequest(awaiting)
        }
        Ok(Some(request)) => offer(cx, *awaiting, request, octets.len() as u32),
        Err(Refusal { fault, answer }) => refuse(cx, *awaiting, fault, answer),
    }
}

/// Offers a Request, whose last octets are `unconsumed`, to the application, which sees its Private Data
/// before it decides.
// Requirements: MPA-7.1.4-01
fn offer(cx: &mut Context<'_>, awaiting: AwaitingRequest, request: Request, unconsumed: u32) -> Phase {
    let AwaitingRequest { responder, timeouts, recipient } = awaiting;
    let offered = PeerRequest {
        private_data: request.private_data.clone(),
        peer: request.peer,
        version: request.version(),
        private_data_max_octets: request.private_data_max_octets(),
    };
    let (due, stream) = match recipient {
        Recipient::Listener(at) => {
            if !cx.listeners.offer(at, cx.id, offered) {
                // The application does not keep up: the peer learns so at once.
                let reply = responder.reject(&request, ReadsWanted::default(), &[]).unwrap_or_default();
                return cx.close_after(reply);
            }
            (timeouts.decision_ns.map_or(Instant::NEVER, |decision_ns| cx.now + decision_ns), None)
        }
        // The application has the connection, which is in no backlog.
        Recipient::Stream(stream, reply) => {
            cx.out.reply(reply, Ok(offered));
            (Instant::NEVER, Some(stream))
        }
    };
    let first_fpdu_ns = timeouts.first_fpdu_ns;
    Phase::PendingAccept(Box::new(PendingAccept {
        responder,
        request,
        first_fpdu_ns,
        due,
        unconsumed,
        consume_at: cx.now + CONSUME_AFTER_NS,
        stream,
        failure: None,
        gone: false,
    }))
}

impl PendingAccept {
    /// Has the core consume the octets of the Request that it has not consumed.
    pub(super) fn consume_request(&mut self, cx: &mut Context<'_>) {
        cx.consume_octets(mem::take(&mut self.unconsumed) as usize);
        self.consume_at = Instant::NEVER;
    }
}

/// Closes the connection at once, and reports the fault at this end.
// Requirements: MPA-7.1.2-04, MPA-7.1.3-01, MPA-8-07
pub(super) fn refuse(
    cx: &mut Context<'_>,
    awaiting: AwaitingRequest,
    fault: StartupFault,
    reply: Option<Box<[u8]>>,
) -> Phase {
    report(cx, awaiting.recipient, fault);
    cx.close_after(reply.unwrap_or_default())
}

/// Reports a peer whose startup failed to the application.
pub(super) fn report(cx: &mut Context<'_>, recipient: Recipient, fault: StartupFault) {
    match recipient {
        Recipient::Listener(at) => cx.listeners.report_fault(at, cx.id, fault),
        Recipient::Stream(stream, reply) => {
            end_stream(Some(&stream));
            cx.out.reply(reply, Err(SwitchError::Startup(fault)));
        }
    }
}

/// Rejects the peer when the time for the application's decision is over; the application learns so when it
/// decides. The second time, the connection has not closed, and is reset.
pub(super) fn on_deadline(cx: &mut Context<'_>, mut pending: Box<PendingAccept>) -> Phase {
    pending.due = if pending.failure.is_some() {
        cx.command(Command::Abort { connection: cx.id });
        Instant::NEVER
    } else {
        let reply = pending.responder.reject(&pending.request, ReadsWanted::default(), &[]);
        let octets = reply.unwrap_or_default();
        cx.command(Command::Stream { connection: cx.id, octets, then: AfterStream::Close });
        cx.now + LINGER_NS
    };
    pending.failure.get_or_insert(AnswerError::TimedOut);
    Phase::PendingAccept(pending)
}

/// The state of a Request that an application has decided about.
enum Decided {
    /// The decision counts.
    InTime(Box<PendingAccept>),
    /// It does not: why, and the phase that follows, if any.
    TooLate(AnswerError, Option<Phase>),
}

fn decided(cx: &mut Context<'_>, phase: Phase) -> Decided {
    match phase {
        Phase::PendingAccept(mut pending) => match pending.failure.take() {
            Some(error) => {
                end_stream(pending.stream.as_ref());
                Decided::TooLate(error, (!pending.gone).then(|| cx.close()))
            }
            None => Decided::InTime(pending),
        },
        phase => Decided::TooLate(AnswerError::Stopped, Some(phase)),
    }
}

/// Accepts for the application. Returns `None` for a connection that is over.
pub(super) fn accept(cx: &mut Context<'_>, phase: Phase, acceptance: Acceptance) -> Option<Phase> {
    let Acceptance { qp, reads, private_data, reply } = acceptance;
    let pending = match decided(cx, phase) {
        Decided::InTime(pending) => pending,
        Decided::TooLate(error, next) => {
            cx.out.reply(reply, Err(error));
            return next;
        }
    };
    let PendingAccept { responder, request, first_fpdu_ns, stream, unconsumed, .. } = *pending;
    let frame = responder.accept(&request, reads, &private_data).map_err(AnswerError::from);
    let frame =
        frame.and_then(
            |frame| {
                if cx.queue_pairs.bind(&qp) { Ok(frame) } else { Err(AnswerError::QueuePairInUse) }
            },
        );
    match frame {
        Ok((octets, setup)) => {
            // One command, so that no octet is read in the wrong mode.
            // Requirements: MPA-7.1.2-10, A-20
            let operation = full_operation(false, setup);
            // Requirements: MPA-7.1.2-26
            let operation = FullOperation { startup_octets: unconsumed, first_fpdu_ns, ..operation };
            let operation = cx.queue_pairs.configure(&qp, operation);
            cx.bring_memory(&qp);
            let then = AfterStream::FullOperation { qp: qp.clone(), operation };
            cx.command(Command::Stream { connection: cx.id, octets, then });
            let accepted = Accepted { version: setup.agreement.version, depths: setup.outcome.depths };
            give_to_mpa(stream.as_ref());
            Some(cx.operate(qp, Waiter::Accept(reply, accepted), None))
        }
        Err(error) => {
            // The Reply carries the reason, if it is one that the peer can act on.
            // Requirements: A-07, MPAv2-9.1-04
            let octets = responder.reject(&request, reads, &[]).unwrap_or_default();
            cx.out.reply(reply, Err(error));
            Some(turn_away(cx, stream, unconsumed, octets))
        }
    }
}

/// Rejects for the application. Returns `None` as the phase of a connection that is over.
pub(super) fn reject(
    cx: &mut Context<'_>,
    phase: Phase,
    private_data: &[u8],
) -> (Option<Phase>, Result<(), AnswerError>) {
    let PendingAccept { responder, request, stream, unconsumed, .. } = match decided(cx, phase) {
        Decided::InTime(pending) => *pending,
        Decided::TooLate(error, next) => return (next, Err(error)),
    };
    let frame = responder.reject(&request, ReadsWanted::default(), private_data);
    let next = turn_away(cx, stream, unconsumed, frame.clone().unwrap_or_default());
    (Some(next), frame.map(drop).map_err(AnswerError::from))
}

/// Leaves MPA after a rejecting Reply. TCP stays open if it has another use; the core consumes the octets of
/// the Request that are still `unconsumed` then.
// Requirements: MPA-7.1.2-07, MPA-7.1.2-18, A-01
fn turn_away(
    cx: &mut Context<'_>,
    stream: Option<Arc<SharedStream>>,
    unconsumed: u32,
    octets: Box<[u8]>,
) -> Phase {
    match stream {
        Some(stream) => {
            cx.consume_octets(unconsumed as usize);
            cx.send(&stream, octets);
            cx.resume_streaming(stream)
        }
        None => cx.close_after(octets),
    }
}

/// Handles a connection that a listener has just accepted.
pub(super) fn on_accepted(cx: &mut Context<'_>, at: ListenAddress, config: &ListenConfig) -> Phase {
    Phase::AwaitingRequest(Box::new(await_request(cx, config, Recipient::Listener(at))))
}
