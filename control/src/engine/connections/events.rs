//! Handles the core's events of a connection, by the phase that the connection is in.

use warpline_dataplane::ring::Command;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::Instant;

use super::context::Context;
use super::phase::{Operating, PendingAccept, Phase};
use super::{initiating, responding};
use crate::vocabulary::listen::AnswerError;
use crate::vocabulary::startup::StartupFault;

/// Handles octets that the core has lent. Those of startup frames are taken at once; the others when the
/// application reads them.
pub(super) fn on_stream(cx: &mut Context<'_>, phase: Phase, octets: &[u8]) -> Phase {
    match phase {
        Phase::Streaming(stream) => {
            stream.lend(octets);
            Phase::Streaming(stream)
        }
        Phase::AwaitingRequest(awaiting) => responding::on_octets(cx, awaiting, octets),
        Phase::PendingAccept(mut pending) => {
            if let Err(refusal) = pending.responder.on_octets(octets) {
                fail_pending(cx, &mut pending, refusal.fault);
            }
            pending.consume_request(cx);
            cx.consume_octets(octets.len());
            Phase::PendingAccept(pending)
        }
        Phase::AwaitingReply(awaiting) => initiating::on_octets(cx, awaiting, octets),
        Phase::Operating(operating) => on_stream_operating(cx, operating, octets),
        // They came before the core knew whose they are, and it gives them to the application itself.
        phase @ Phase::Bytes(_) => phase,
        Phase::Closing { abort_at } => {
            cx.consume_octets(octets.len());
            Phase::Closing { abort_at }
        }
    }
}

fn on_stream_operating(cx: &mut Context<'_>, mut operating: Operating, octets: &[u8]) -> Phase {
    match &operating.stream {
        Some(stream) if stream.receives() => {
            if stream.is_abandoned() {
                cx.consume_octets(octets.len());
            } else {
                stream.lend(octets);
            }
        }
        // The core takes those of a stream in Full Operation as what they are: FPDUs.
        Some(_) => {}
        None => {
            // They came before the core had switched: before our Reply, or before our first FPDU.
            // Requirements: A-03
            if let Some(starting) = operating.starting.take() {
                starting.waiter.failed(cx.out, StartupFault::ExtraBytes);
            }
            cx.command(Command::Abort { connection: cx.id });
        }
    }
    Phase::Operating(operating)
}

/// Closes a connection that the application can no longer accept.
fn fail_pending(cx: &mut Context<'_>, pending: &mut PendingAccept, fault: StartupFault) {
    pending.failure.get_or_insert(AnswerError::Startup(fault));
    cx.command(Command::Close { connection: cx.id });
}

/// Handles the end of the peer's octets: it sends nothing more. Our half closes too, unless its owner keeps
/// it open.
// Requirements: MPA-7.2-02, DDP-6.2.1-05
pub(super) fn on_peer_finished(cx: &mut Context<'_>, phase: Phase) -> Phase {
    if let Some(stream) = phase.stream() {
        stream.set_peer_finished();
    }
    match phase {
        Phase::AwaitingRequest(awaiting) => responding::refuse(cx, *awaiting, StartupFault::Closed, None),
        Phase::PendingAccept(mut pending) => {
            // The peer can never send the FPDU that lets us send.
            fail_pending(cx, &mut pending, StartupFault::Closed);
            Phase::PendingAccept(pending)
        }
        Phase::AwaitingReply(awaiting) => initiating::fail(cx, awaiting, StartupFault::Closed),
        Phase::Operating(operating) => Phase::Operating(on_peer_finished_operating(cx, operating)),
        phase @ (Phase::Streaming(_) | Phase::Bytes(_) | Phase::Closing { .. }) => phase,
    }
}

fn on_peer_finished_operating(cx: &mut Context<'_>, mut operating: Operating) -> Operating {
    let is_streaming =
        operating.stream.as_ref().is_some_and(|stream| stream.receives() && !stream.is_abandoned());
    let Some(qp) = cx.queue_pairs.of(&operating.qp).filter(|_| !is_streaming) else { return operating };
    qp.status.set_peer_closed();
    if !operating.finishing && !qp.operation.keep_open {
        operating.finishing = true;
        let within_ns = qp.disconnect_within_ns();
        cx.command(Command::Disconnect { connection: cx.id, within_ns });
    }
    operating
}

/// Handles a failure of the queue pair's stream. The core sends its Terminate, if it may, and closes, unless
/// the application still sends streaming octets.
pub(super) fn on_stream_failed(phase: &mut Phase) {
    if let Phase::Operating(Operating { finishing, stream, .. }) = phase {
        *finishing = !stream.as_ref().is_some_and(|stream| stream.sends());
    }
}

/// Handles the end of TCP. Returns the phase of a connection that an application still decides about.
pub(super) fn on_closed(cx: &mut Context<'_>, phase: Phase, reason: CloseReason) -> Option<Phase> {
    if let Some(stream) = phase.stream() {
        stream.set_end(reason);
    }
    match phase {
        Phase::AwaitingRequest(awaiting) => {
            responding::report(cx, awaiting.recipient, StartupFault::Closed);
        }
        Phase::PendingAccept(mut pending) => {
            // The application learns so when it decides.
            pending.failure.get_or_insert(AnswerError::Closed(reason));
            pending.gone = true;
            (pending.due, pending.consume_at) = (Instant::NEVER, Instant::NEVER);
            return Some(Phase::PendingAccept(pending));
        }
        Phase::AwaitingReply(awaiting) => initiating::on_closed(cx, awaiting, reason),
        Phase::Operating(Operating { qp, begun, starting, .. }) => {
            if let Some(starting) = starting {
                debug_assert!(!begun, "the application has its reply since the core has begun");
                starting.waiter.closed(cx.out, reason);
            }
            // A core that is no longer polled may have begun, and never said so.
            if begun || !cx.out.alive().contains(cx.id.core()) {
                cx.queue_pairs.on_closed(cx.out, &qp, reason);
            } else {
                cx.queue_pairs.unbind(cx.out, &qp);
            }
        }
        // One that the core has not taken yet learns of the end here.
        Phase::Bytes(stream) => stream.set_end(reason),
        Phase::Streaming(_) | Phase::Closing { .. } => {}
    }
    None
}

/// Handles a phase that has taken too long.
pub(super) fn on_deadline(cx: &mut Context<'_>, phase: Phase) -> Phase {
    match phase {
        Phase::AwaitingRequest(awaiting) => {
            responding::report(cx, awaiting.recipient, StartupFault::TimedOut);
            cx.reset()
        }
        Phase::AwaitingReply(awaiting) => initiating::fail(cx, awaiting, StartupFault::TimedOut),
        Phase::PendingAccept(mut pending) => {
            pending.consume_request(cx);
            if cx.now < pending.due {
                Phase::PendingAccept(pending)
            } else {
                responding::on_deadline(cx, pending)
            }
        }
        Phase::Operating(mut operating) => {
            // Should the core be polled again, the connection begins, and ends.
            if let Some(starting) = operating.starting.take() {
                starting.waiter.unanswered(cx.out, cx.id.core());
            }
            cx.command(Command::Abort { connection: cx.id });
            Phase::Operating(operating)
        }
        Phase::Streaming(_) | Phase::Bytes(_) | Phase::Closing { .. } => cx.reset(),
    }
}
