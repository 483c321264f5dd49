//! TCP connections that the core is opening for this end.

use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{self, Command};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{Instant, SECOND};

use super::attempt::{ConnectAttempt, connect_error};
use crate::engine::interface::reply::Reply;
use crate::engine::interface::shared_stream::SharedStream;
use crate::engine::names::Table;
use crate::engine::outbox::Outbox;
use crate::engine::queue_pairs::QueuePairs;
use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::duration::nanos;
use crate::vocabulary::stream::StreamConfig;

/// How long after a connect's deadline the engine waits for the core. A core that is polled reports by the
/// deadline.
const UNANSWERED_NS: u64 = SECOND;

/// The purpose of a connection that is being opened.
pub(super) enum Purpose {
    /// MPA, as its Initiator.
    Mpa(ConnectAttempt),
    /// Streaming mode.
    Stream { remote: SocketAddr, reply: Reply<Result<Arc<SharedStream>, ConnectError>> },
}

/// A connection that the core is opening.
pub(super) struct Opening {
    /// TCP's handshake, and MPA startup, are over by then.
    pub(super) deadline: Instant,
    /// `None` once the application has its reply.
    pub(super) purpose: Option<Purpose>,
}

/// All connections that the core is opening, by the token of the command.
pub(super) struct Openings {
    table: Table<u64, Opening>,
    next_token: u64,
}

impl Openings {
    pub(super) fn new() -> Self {
        Self { table: Table::default(), next_token: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn insert(&mut self, out: &mut Outbox, opening: Opening) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        out.wake_at(opening.deadline + UNANSWERED_NS);
        self.table.insert(token, opening);
        token
    }

    /// Opens a TCP connection for `attempt`, of which everything is over by `deadline`.
    pub(super) fn open(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        deadline: Instant,
        attempt: ConnectAttempt,
    ) {
        let (remote, timeout_ns) = (attempt.remote, deadline - now);
        let (local, tcp) = (attempt.config.local, attempt.config.tcp);
        let token = self.insert(out, Opening { deadline, purpose: Some(Purpose::Mpa(attempt)) });
        out.command(Command::Connect { token, local, remote, timeout_ns, tcp });
    }

    /// Opens a TCP connection for streaming mode.
    pub(super) fn open_stream(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        remote: SocketAddr,
        config: StreamConfig,
        reply: Reply<Result<Arc<SharedStream>, ConnectError>>,
    ) {
        let StreamConfig { timeout, tcp, local } = config;
        let timeout_ns = nanos(timeout);
        let purpose = Some(Purpose::Stream { remote, reply });
        let token = self.insert(out, Opening { deadline: now + timeout_ns, purpose });
        out.command(Command::Connect { token, local, remote, timeout_ns, tcp });
    }

    /// Removes and returns the opening `token`, which the core has completed or failed.
    pub(super) fn take(&mut self, token: u64) -> Option<Opening> {
        self.table.remove(&token)
    }

    /// Handles a connection that the core could not open.
    pub(super) fn on_failed(
        &mut self,
        out: &mut Outbox,
        queue_pairs: &mut QueuePairs,
        token: u64,
        error: ring::ConnectError,
    ) {
        if let Some(purpose) = self.take(token).and_then(|opening| opening.purpose) {
            fail(out, queue_pairs, purpose, connect_error(error));
        }
    }

    /// Replies in place of a core that is not polled.
    pub(super) fn on_deadline(&mut self, now: Instant, out: &mut Outbox, queue_pairs: &mut QueuePairs) {
        for (token, opening) in &mut self.table {
            let at = opening.deadline + UNANSWERED_NS;
            if now < at {
                out.wake_at(at);
            } else if let Some(purpose) = opening.purpose.take() {
                // Should the core be polled again, nothing of it is left there.
                out.command(Command::GiveUp { token: *token });
                fail(out, queue_pairs, purpose, ConnectError::TimedOut);
            }
        }
    }

    /// Gives up the connection that is being opened for the queue pair `qp`, if there is one.
    pub(super) fn give_up(&mut self, out: &mut Outbox, queue_pairs: &mut QueuePairs, qp: QpNumber) {
        let is_for_it =
            |purpose: &Purpose| matches!(purpose, Purpose::Mpa(attempt) if attempt.qp.number == qp);
        for (token, opening) in &mut self.table {
            if let Some(purpose) = opening.purpose.take_if(|purpose| is_for_it(purpose)) {
                out.command(Command::GiveUp { token: *token });
                fail(out, queue_pairs, purpose, ConnectError::Closed(CloseReason::Aborted));
            }
        }
    }
}

fn fail(out: &mut Outbox, queue_pairs: &mut QueuePairs, purpose: Purpose, error: ConnectError) {
    match purpose {
        Purpose::Mpa(ConnectAttempt { qp, reply, .. }) => {
            queue_pairs.unbind(&qp);
            out.reply(reply, Err(error));
        }
        Purpose::Stream { reply, .. } => out.reply(reply, Err(error)),
    }
}
