//! TCP connections that the core is opening for this end.

use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{self, Command};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{Instant, SECOND};

use super::attempt::{ConnectAttempt, connect_error};
use super::phase::AwaitingReply;
use crate::engine::deadlines::Deadlines;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::shared_stream::SharedStream;
use crate::engine::names::Table;
use crate::engine::outbox::Outbox;
use crate::engine::placement::Placement;
use crate::engine::queue_pairs::QueuePairs;
use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::duration::nanos;
use crate::vocabulary::stream::StreamConfig;

/// How long after a connect's deadline the engine waits for the core. A core that is polled reports by the
/// deadline.
const UNANSWERED_NS: u64 = SECOND;

/// The purpose of a connection that is being opened.
pub(super) enum Purpose {
    /// MPA, as its Initiator: the core sends the Request.
    Mpa(Box<AwaitingReply>),
    /// Streaming mode.
    Stream { remote: SocketAddr, reply: Reply<Result<Arc<SharedStream>, ConnectError>> },
}

/// A connection that the core is opening.
pub(super) struct Opening {
    /// The core that opens it.
    core: u8,
    /// The port, if it is given, and 0 otherwise.
    port: u16,
    /// TCP's handshake, and MPA startup, are over by then.
    pub(super) deadline: Instant,
    /// `None` once the application has its reply.
    pub(super) purpose: Option<Purpose>,
}

impl Opening {
    /// Returns when the application has a reply though the core has sent none.
    fn unanswered_at(&self) -> Instant {
        if self.purpose.is_some() { self.deadline + UNANSWERED_NS } else { Instant::NEVER }
    }
}

/// All connections that the core is opening, by the token of the command.
pub(super) struct Openings {
    placement: Placement,
    table: Table<u64, Opening>,
    /// When the core has not answered in time.
    deadlines: Deadlines<u64>,
    next_token: u64,
}

impl Openings {
    pub(super) fn new(placement: Placement) -> Self {
        Self { placement, table: Table::default(), deadlines: Deadlines::new(), next_token: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns where connections go.
    pub(super) const fn placement(&mut self) -> &mut Placement {
        &mut self.placement
    }

    fn insert(&mut self, opening: Opening) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.placement.hold(opening.port);
        self.deadlines.change(token, Instant::NEVER, opening.unanswered_at());
        self.table.insert(token, opening);
        token
    }

    /// Opens a TCP connection and sends `request` on it. Everything is over by the Initiator's deadline.
    pub(super) fn open(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        queue_pairs: &mut QueuePairs,
        awaiting: Box<AwaitingReply>,
        request: Box<[u8]>,
    ) {
        let (deadline, attempt) = (awaiting.initiator.deadline(), &awaiting.attempt);
        let (remote, timeout_ns) = (attempt.remote, deadline - now);
        let (local, tcp) = (attempt.config.local, attempt.config.tcp);
        let (qp, core) =
            (attempt.qp.clone(), self.placement.core_for(out.alive(), attempt.config.core, local, remote));
        let purpose = Purpose::Mpa(awaiting);
        let core = match core {
            Ok(core) => core,
            Err(error) => return fail(out, queue_pairs, purpose, error),
        };
        let token = self.insert(Opening { core, port: port_of(local), deadline, purpose: Some(purpose) });
        queue_pairs.set_opening(&qp, token);
        let connect = Command::Connect { token, local, remote, timeout_ns, tcp, octets: request };
        out.command_core(core, connect);
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
        let StreamConfig { timeout, tcp, local, core } = config;
        let core = match self.placement.core_for(out.alive(), core, local, remote) {
            Ok(core) => core,
            Err(error) => return out.reply(reply, Err(error)),
        };
        let timeout_ns = nanos(timeout);
        let purpose = Some(Purpose::Stream { remote, reply });
        let deadline = now + timeout_ns;
        let token = self.insert(Opening { core, port: port_of(local), deadline, purpose });
        let octets = Box::default();
        out.command_core(core, Command::Connect { token, local, remote, timeout_ns, tcp, octets });
    }

    /// Removes and returns the opening `token`, which the core has completed or failed.
    pub(super) fn take(&mut self, token: u64) -> Option<Opening> {
        let opening = self.table.remove(&token)?;
        self.placement.release(opening.port);
        self.deadlines.change(token, opening.unanswered_at(), Instant::NEVER);
        Some(opening)
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

    /// Returns when the core has not answered in time.
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadlines.next()
    }

    /// Replies in place of a core that is not polled.
    pub(super) fn on_time(&mut self, now: Instant, out: &mut Outbox, queue_pairs: &mut QueuePairs) {
        while let Some(token) = self.deadlines.pop_due(now) {
            // Should the core be polled again, nothing of it is left there.
            let Some(core) = self.table.get(&token).map(|opening| opening.core) else { continue };
            self.end(out, queue_pairs, token, ConnectError::Unanswered { core });
        }
    }

    /// Gives up the connection that is being opened for the queue pair `qp`, if there is one.
    pub(super) fn give_up(&mut self, out: &mut Outbox, queue_pairs: &mut QueuePairs, qp: QpNumber) {
        if let Some(token) = queue_pairs.opening_of(qp) {
            self.end(out, queue_pairs, token, ConnectError::Closed(CloseReason::Aborted));
        }
    }

    /// Ends what a core was opening that is no longer polled.
    pub(super) fn on_core_ended(&mut self, out: &mut Outbox, queue_pairs: &mut QueuePairs, core: u8) {
        let mut tokens: Vec<u64> =
            self.table.iter().filter(|(_, opening)| opening.core == core).map(|(token, _)| *token).collect();
        tokens.sort_unstable();
        for token in tokens {
            if let Some(purpose) = self.take(token).and_then(|opening| opening.purpose) {
                fail(out, queue_pairs, purpose, ConnectError::Closed(CloseReason::Aborted));
            }
        }
    }

    /// Has the core give up the connection that it opens for `token`, if the application has no reply yet.
    fn end(&mut self, out: &mut Outbox, queue_pairs: &mut QueuePairs, token: u64, error: ConnectError) {
        let Some(opening) = self.table.get_mut(&token) else { return };
        let (at, core) = (opening.unanswered_at(), opening.core);
        if let Some(purpose) = opening.purpose.take() {
            self.deadlines.change(token, at, Instant::NEVER);
            out.command_core(core, Command::GiveUp { token });
            fail(out, queue_pairs, purpose, error);
        }
    }
}

fn port_of(local: Option<SocketAddr>) -> u16 {
    local.map_or(0, |local| local.port())
}

fn fail(out: &mut Outbox, queue_pairs: &mut QueuePairs, purpose: Purpose, error: ConnectError) {
    match purpose {
        Purpose::Mpa(awaiting) => {
            let ConnectAttempt { qp, reply, .. } = awaiting.attempt;
            queue_pairs.unbind(&qp);
            out.reply(reply, Err(error));
        }
        Purpose::Stream { reply, .. } => out.reply(reply, Err(error)),
    }
}
