//! Requests about connections in streaming mode, and how MPA starts on them.

use std::sync::Arc;

use warpline_dataplane::byte_stream::{ByteStreamConfig, SharedByteStream};
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::ring::{Command, Direction, FullOperation};

use super::attempt::ConnectAttempt;
use super::context::Context;
use super::phase::{AwaitingReply, Operating, Phase, Recipient, Waiter};
use super::{events, initiating, responding};
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::PeerRequest;
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::connect::{ConnectError, SocketPair};
use crate::vocabulary::listen::{AnswerError, ListenConfig};
use crate::vocabulary::stream::{SwitchError, UnnegotiatedConfig};

/// Handles an application that has dropped its handle. A connection in streaming mode is closed; a queue pair
/// that serves one direction continues.
pub(super) fn abandon(cx: &mut Context<'_>, phase: Phase) -> Phase {
    match phase {
        Phase::Streaming(stream) => cx.abandon(&stream),
        Phase::Bytes(_) => cx.abandon_bytes(),
        phase => {
            let Some(stream) = phase.stream() else { return phase };
            cx.discard_pending(stream);
            // The core has reported the end of the peer's octets, and does so once. The application had the
            // stream then; now the end is for the queue pair.
            let has_ended = stream.receives() && stream.peer_finished();
            if has_ended { events::on_peer_finished(cx, phase) } else { phase }
        }
    }
}

/// Gives the octets of the connection to the application, from the core directly: those that it has not read
/// yet, and all after them.
pub(super) fn attach(
    cx: &mut Context<'_>,
    phase: Phase,
    config: ByteStreamConfig,
    reply: Reply<Result<Arc<SharedByteStream>, SwitchError>>,
) -> Phase {
    let Phase::Streaming(before) = &phase else {
        cx.out.reply(reply, Err(SwitchError::NotStreaming));
        return phase;
    };
    if before.finished() {
        cx.out.reply(reply, Err(SwitchError::NotStreaming));
        return phase;
    }
    // What the application has not read is not consumed: the core hands it over once more.
    before.dequeue_pending();
    let doorbells = cx.queue_pairs.doorbells().of(cx.id.core()).clone();
    let stream = Arc::new(SharedByteStream::new(cx.id.slot(), doorbells, config));
    // The application may ask before the core has the stream.
    stream.set_rdma_option(before.rdma_option);
    cx.command(Command::AttachByteStream { connection: cx.id, stream: stream.clone() });
    cx.out.reply(reply, Ok(stream.clone()));
    Phase::Bytes(stream)
}

/// Returns the stream of the connection, if MPA may start on it in both directions.
fn startable(phase: &Phase) -> Option<Arc<SharedStream>> {
    match phase {
        Phase::Streaming(stream) if !stream.finished() => Some(stream.clone()),
        _ => None,
    }
}

/// Starts MPA as the Initiator, whichever end opened the connection.
// Requirements: MPA-7.1-03, MPA-7.1-06
pub(super) fn initiate(cx: &mut Context<'_>, phase: Phase, attempt: ConnectAttempt) -> Phase {
    let Some(stream) = startable(&phase) else {
        cx.out.reply(attempt.reply, Err(ConnectError::NotStreaming));
        return phase;
    };
    let octets = stream.pending_octets();
    if octets > 0 {
        // The peer sent them before it could receive our Request.
        // Requirements: MPA-7.1.5-01
        cx.out.reply(attempt.reply, Err(ConnectError::PendingStreamData { len: octets }));
        return phase;
    }
    if !cx.queue_pairs.bind(&attempt.qp) {
        cx.out.reply(attempt.reply, Err(ConnectError::QueuePairInUse));
        return phase;
    }
    let deadline = cx.now + attempt.timeout_ns();
    let (initiator, request) = match initiating::begin(cx.crc, &attempt, deadline) {
        Ok(begun) => begun,
        Err(error) => {
            cx.queue_pairs.unbind(cx.out, &attempt.qp);
            cx.out.reply(attempt.reply, Err(error.into()));
            return phase;
        }
    };
    stream.give_to_mpa(Direction::Both);
    let finished = stream.peer_finished();
    cx.send(&stream, request);
    let attempt = ConnectAttempt { stream: Some(stream), ..attempt };
    let next = initiating::await_reply(cx, AwaitingReply::new(initiator, attempt));
    if finished { events::on_peer_finished(cx, next) } else { next }
}

/// Starts MPA as the Responder, whichever end opened the connection.
// Requirements: MPA-7.1-03, MPA-7.1-06
pub(super) fn respond(
    cx: &mut Context<'_>,
    phase: Phase,
    last_message: Box<[u8]>,
    config: &ListenConfig,
    reply: Reply<Result<PeerRequest, SwitchError>>,
) -> Phase {
    let Some(stream) = startable(&phase) else {
        cx.out.reply(reply, Err(SwitchError::NotStreaming));
        return phase;
    };
    let octets = stream.pending_octets();
    if octets > 0 && !last_message.is_empty() {
        // The peer cannot have answered a message that was not sent yet.
        // Requirements: MPA-7.1.5-01
        cx.out.reply(reply, Err(SwitchError::PendingStreamData { len: octets }));
        return phase;
    }
    let octets = last_message.len();
    if octets > 0 && !stream.has_room(octets) {
        cx.out.reply(reply, Err(SwitchError::NoRoom { len: octets }));
        return phase;
    }
    let early = stream.dequeue_pending();
    stream.give_to_mpa(Direction::Both);
    let finished = stream.peer_finished();
    // The next octet of the peer belongs to its Request, so the Request cannot come too soon.
    // Requirements: MPA-7.1.5-02
    let awaiting = responding::await_request(cx, config, Recipient::Stream(stream.clone(), reply));
    cx.send(&stream, last_message);
    let mut next = Phase::AwaitingRequest(Box::new(awaiting));
    if !early.is_empty() {
        next = events::on_stream(cx, next, &early);
    }
    if finished { events::on_peer_finished(cx, next) } else { next }
}

/// Switches `direction` to FPDUs without startup frames.
// Requirements: C00-8.1-01 to C00-8.1-06
pub(super) fn start_unnegotiated(
    cx: &mut Context<'_>,
    phase: Phase,
    qp: &Arc<SharedQp>,
    direction: Direction,
    config: UnnegotiatedConfig,
    reply: Reply<Result<(), SwitchError>>,
) -> Phase {
    let operation = FullOperation::unnegotiated(config.version, config.depths);
    let operation = cx.queue_pairs.configure(qp, operation);
    let command = Command::StartUnnegotiated { connection: cx.id, qp: qp.clone(), operation, direction };
    match phase {
        Phase::Operating(Operating { qp: ref serving, stream: Some(ref stream), .. })
            if Arc::ptr_eq(serving, qp) && !stream.is_of_mpa(direction) =>
        {
            stream.give_to_mpa(direction);
            cx.command(command);
            cx.out.reply(reply, Ok(()));
            phase
        }
        Phase::Streaming(stream) if !(stream.finished() && direction.sends()) => {
            if !cx.queue_pairs.bind(qp) {
                cx.out.reply(reply, Err(SwitchError::QueuePairInUse));
                return Phase::Streaming(stream);
            }
            stream.give_to_mpa(direction);
            cx.bring_memory(qp);
            cx.command(command);
            cx.operate(qp.clone(), Waiter::Start(reply), Some(stream))
        }
        phase => {
            cx.out.reply(reply, Err(SwitchError::NotStreaming));
            phase
        }
    }
}

/// Rejects a Request, and hands the connection to the application in streaming mode.
pub(super) fn reject_to_stream(
    cx: &mut Context<'_>,
    mut phase: Phase,
    pair: SocketPair,
    private_data: &[u8],
    reply: Reply<Result<Arc<SharedStream>, AnswerError>>,
) -> Option<Phase> {
    if let Phase::PendingAccept(pending) = &mut phase {
        // Whether it has the option was known to nobody who needed it.
        pending.stream.get_or_insert_with(|| SharedStream::new(cx.id, pair, true));
    }
    let Some(stream) = phase.stream().cloned() else {
        cx.out.reply(reply, Err(AnswerError::Stopped));
        return Some(phase);
    };
    // It counts in no backlog any more.
    cx.command(Command::Admit { connection: cx.id });
    let (next, rejected) = responding::reject(cx, phase, private_data);
    cx.out.reply(reply, rejected.map(|()| stream));
    next
}
