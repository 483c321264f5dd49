//! MPA startup as the Initiator: the Request, the Reply, and a second attempt by revision 1.

use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::qp::terminate;
use warpline_dataplane::ring::{Command, FullOperation};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::Instant;

use super::attempt::ConnectAttempt;
use super::context::{Context, end_stream, full_operation, give_to_mpa};
use super::phase::{AwaitingReply, Phase, Waiter};
use crate::engine::startup::{Initiator, Offer, PrivateDataTooLong, Proposal, Reply};
use crate::vocabulary::connect::{ConnectConfig, ConnectError, Connected, Revision};
use crate::vocabulary::device::CrcPolicy;
use crate::vocabulary::startup::StartupFault;

/// Returns the Initiator of `attempt`, and its Request. The Request is sent before anything else: the next
/// octet of the peer belongs to its Reply, which must be complete by `deadline`.
// Requirements: MPA-7.1-02, MPA-7.1.2-01
pub(super) fn begin(
    crc: CrcPolicy,
    attempt: &ConnectAttempt,
    deadline: Instant,
) -> Result<(Initiator, Box<[u8]>), PrivateDataTooLong> {
    let ConnectConfig { markers, terms, permissive, ref private_data, .. } = attempt.config;
    let offer = Offer { markers, crc: crc == CrcPolicy::Always };
    let proposal = Proposal { offer, revision: attempt.revision, terms, permissive };
    Initiator::new(proposal, private_data, deadline)
}

/// Waits for the Reply.
pub(super) fn await_reply(cx: &mut Context<'_>, awaiting: Box<AwaitingReply>) -> Phase {
    cx.queue_pairs.set_initiating(&awaiting.attempt.qp, cx.id);
    Phase::AwaitingReply(awaiting)
}

/// Handles octets of the peer, which belong to its Reply.
pub(super) fn on_octets(cx: &mut Context<'_>, mut awaiting: Box<AwaitingReply>, octets: &[u8]) -> Phase {
    let result = awaiting.initiator.on_octets(octets);
    let (of_reply, rest) = octets.split_at(octets.len() - awaiting.initiator.octets_after());
    awaiting.startup_octets += of_reply.len() as u32;
    match result {
        Ok(None) => Phase::AwaitingReply(awaiting),
        Ok(Some(reply)) => on_reply(cx, awaiting, reply, rest),
        Err(fault) => fail(cx, awaiting, fault),
    }
}

/// Handles a complete Reply; `rest` are the octets after it. The next octet belongs to the phase that
/// follows, so those of the Reply are consumed before it.
fn on_reply(cx: &mut Context<'_>, awaiting: Box<AwaitingReply>, reply: Reply, rest: &[u8]) -> Phase {
    let AwaitingReply { attempt, startup_octets, .. } = *awaiting;
    let ConnectAttempt { qp, config, reply: waiter, stream, .. } = attempt;
    match reply {
        Reply::Accepted { setup, .. } if !cx.queue_pairs.is_live(&qp) => {
            // Nothing is left at this end that could serve the connection.
            // Requirements: MPAv2-9.3-01
            let terminate = terminate::only_fpdu(MpaError::LocalCatastrophic, setup.agreement);
            cx.out.reply(waiter, Err(ConnectError::QueuePairInUse));
            end_stream(stream.as_ref());
            cx.close_after(terminate[..].into())
        }
        Reply::Accepted { setup, private_data, peer } => {
            // The next octet each way belongs to an FPDU. A nudge looks like an indication, so nudges are
            // sent only to a peer that negotiates indications.
            // Requirements: MPA-7.1.2-14, A-20
            let nudges = config.nudges && peer.depths.is_some();
            let operation = FullOperation { nudges, startup_octets, ..full_operation(true, setup) };
            let operation = cx.queue_pairs.configure(&qp, operation);
            cx.bring_memory(&qp);
            cx.command(Command::Start { connection: cx.id, qp: qp.clone(), operation });
            let (version, depths) = (setup.agreement.version, setup.outcome.depths);
            let connected = Connected { private_data, peer, version, depths };
            give_to_mpa(stream.as_ref());
            cx.operate(qp, Waiter::Connect(waiter, connected), None)
        }
        Reply::Rejected { private_data, peer } => {
            cx.queue_pairs.unbind(cx.out, &qp);
            cx.out.reply(waiter, Err(ConnectError::Rejected { private_data, peer }));
            // MPA is left, and TCP stays open if it has another use. The octets after the Reply are streaming
            // octets.
            // Requirements: MPA-7.1.2-13, A-01, A-03
            match stream {
                Some(stream) => {
                    cx.consume_octets(startup_octets as usize);
                    stream.lend(rest);
                    cx.resume_streaming(stream)
                }
                None => cx.close(),
            }
        }
        Reply::Unmet { error, terminate, peer } => {
            // The Terminate states the reason for the Responder, and the connection ends.
            // Requirements: MPAv2-9.1-07, MPAv2-9.2-08
            cx.queue_pairs.unbind(cx.out, &qp);
            cx.out.reply(waiter, Err(ConnectError::Unmet { error, peer }));
            end_stream(stream.as_ref());
            cx.close_after(terminate)
        }
    }
}

/// Closes a connection whose startup has failed. The application gets the error, unless the peer may
/// understand an unenhanced Request.
// Requirements: MPA-7.1.2-12, MPA-8-07
pub(super) fn fail(cx: &mut Context<'_>, awaiting: Box<AwaitingReply>, fault: StartupFault) -> Phase {
    let has_local_port = awaiting.attempt.has_local_port();
    match fall_back(cx, awaiting, fault) {
        Some(attempt) => give_up(cx, attempt, ConnectError::Startup(fault)),
        // The second connection has the port of this one. A FIN could leave the port in TIME-WAIT at either
        // end; a RST does not (RFC 9293 §3.6, §3.10.5).
        None if has_local_port => return cx.reset(),
        None => {}
    }
    cx.close()
}

/// Resets a connection whose queue pair is to end.
pub(super) fn abort(cx: &mut Context<'_>, phase: Phase) -> Phase {
    match phase {
        Phase::AwaitingReply(awaiting) => {
            give_up(cx, awaiting.attempt, ConnectError::Closed(CloseReason::Aborted));
            cx.reset()
        }
        phase => phase,
    }
}

/// Handles the end of TCP while the Reply is awaited. A reset may be all that an enhanced Request gets.
pub(super) fn on_closed(cx: &mut Context<'_>, awaiting: Box<AwaitingReply>, reason: CloseReason) {
    let fault = if reason == CloseReason::Reset { StartupFault::Closed } else { StartupFault::TimedOut };
    if let Some(attempt) = fall_back(cx, awaiting, fault) {
        give_up(cx, attempt, ConnectError::Closed(reason));
    }
}

fn give_up(cx: &mut Context<'_>, attempt: ConnectAttempt, error: ConnectError) {
    cx.queue_pairs.unbind(cx.out, &attempt.qp);
    end_stream(attempt.stream.as_ref());
    cx.out.reply(attempt.reply, Err(error));
}

/// Tries an unenhanced Request on a new connection, if `fault` and the application allow it; returns the
/// attempt if not.
// Requirements: MPAv2-10-05
fn fall_back(
    cx: &mut Context<'_>,
    awaiting: Box<AwaitingReply>,
    fault: StartupFault,
) -> Option<ConnectAttempt> {
    let AwaitingReply { initiator, attempt, .. } = *awaiting;
    let deadline = initiator.deadline();
    // There is no second connection to a peer that was in streaming mode, and none that nothing at this end
    // could serve.
    let allowed = attempt.stream.is_none()
        && attempt.config.revision == Revision::TwoThenOne
        && cx.queue_pairs.is_live(&attempt.qp);
    if !allowed || !initiator.may_fall_back(fault) || cx.now >= deadline {
        return Some(attempt);
    }
    let attempt = ConnectAttempt { revision: 1, fell_back: true, ..attempt };
    let Ok((initiator, request)) = begin(cx.crc, &attempt, deadline) else {
        debug_assert!(false, "a Request of revision 1 has room for more");
        return Some(attempt);
    };
    cx.openings.open(cx.now, cx.out, cx.queue_pairs, AwaitingReply::new(initiator, attempt), request);
    None
}
