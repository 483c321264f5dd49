//! TCP connections that the core is opening for this end.

use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{self, Command};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

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
/// How long after a failure an attempt is made again.
const RETRY_NS: u64 = 10 * MILLISECOND;

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
    /// What to do if the connection cannot be opened, other than to say so.
    retry: Option<Retry>,
}

/// An attempt that may fail, and is made again.
struct Retry {
    /// Until when, if the peer refuses.
    refused_until: Instant,
    /// Until when, if the local port is not free: it is that of a first connection, which the core may still
    /// have.
    no_port_until: Instant,
    /// What is sent first.
    request: Box<[u8]>,
    /// When the attempt is made again, after a failure; `None` while the core opens the connection.
    again_at: Option<Instant>,
}

impl Retry {
    /// Returns until when an attempt that has failed with `error` is made again.
    const fn until(&self, error: ring::ConnectError) -> Instant {
        match error {
            ring::ConnectError::Closed(CloseReason::Refused) => self.refused_until,
            ring::ConnectError::NoPort => self.no_port_until,
            _ => Instant::ZERO,
        }
    }
}

impl Opening {
    /// Returns when there is something to do though the core has sent no reply: the attempt is made again, or
    /// the application has a reply.
    fn due_at(&self) -> Instant {
        match &self.retry {
            Some(Retry { again_at: Some(again_at), .. }) => *again_at,
            _ if self.purpose.is_some() => self.deadline + UNANSWERED_NS,
            _ => Instant::NEVER,
        }
    }

    /// Returns true if the core has nothing of it: the attempt is made again later.
    fn is_waiting(&self) -> bool {
        matches!(&self.retry, Some(Retry { again_at: Some(_), .. }))
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
    pub(super) const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// As [`placement`](Self::placement), to change it.
    pub(super) const fn placement_mut(&mut self) -> &mut Placement {
        &mut self.placement
    }

    fn insert(&mut self, opening: Opening) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.placement.hold(opening.port);
        self.deadlines.change(token, Instant::NEVER, opening.due_at());
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
        let (local, tcp, patience) =
            (attempt.config.local, attempt.config.tcp, attempt.config.refused_patience);
        let reuses_port = attempt.fell_back && attempt.has_local_port();
        let (qp, core) =
            (attempt.qp.clone(), self.placement.core_for(out.alive(), attempt.config.core, local, remote));
        let purpose = Purpose::Mpa(awaiting);
        let core = match core {
            Ok(core) => core,
            Err(error) => return fail(out, queue_pairs, purpose, error),
        };
        let refused_until = deadline.min(now + nanos(patience));
        let no_port_until = if reuses_port { deadline } else { now };
        let retry = (reuses_port || !patience.is_zero()).then(|| Retry {
            refused_until,
            no_port_until,
            request: request.clone(),
            again_at: None,
        });
        let purpose = Some(purpose);
        let token = self.insert(Opening { core, port: port_of(local), deadline, purpose, retry });
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
        let token = self.insert(Opening { core, port: port_of(local), deadline, purpose, retry: None });
        let octets = Box::default();
        out.command_core(core, Command::Connect { token, local, remote, timeout_ns, tcp, octets });
    }

    /// Removes and returns the opening `token`, which the core has completed or failed.
    pub(super) fn take(&mut self, token: u64) -> Option<Opening> {
        let opening = self.table.remove(&token)?;
        self.placement.release(opening.port);
        self.deadlines.change(token, opening.due_at(), Instant::NEVER);
        Some(opening)
    }

    /// Handles a connection that the core could not open.
    pub(super) fn on_failed(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        queue_pairs: &mut QueuePairs,
        token: u64,
        error: ring::ConnectError,
    ) {
        if self.wait_to_retry(now, token, error) {
            return;
        }
        if let Some(purpose) = self.take(token).and_then(|opening| opening.purpose) {
            fail(out, queue_pairs, purpose, connect_error(error));
        }
    }

    /// Has an attempt that has failed made again later: if the peer has refused and the application wants
    /// that, or if the local port will be free. Returns false if it is not.
    fn wait_to_retry(&mut self, now: Instant, token: u64, error: ring::ConnectError) -> bool {
        let Some(opening) = self.table.get_mut(&token) else { return false };
        let before = opening.due_at();
        let again_at = now + RETRY_NS;
        let wanted = opening.purpose.is_some()
            && opening.retry.as_ref().is_some_and(|retry| again_at < retry.until(error));
        if wanted && let Some(retry) = &mut opening.retry {
            retry.again_at = Some(again_at);
            self.deadlines.change(token, before, again_at);
        }
        wanted
    }

    /// Makes an attempt again that has failed; returns false if it has not.
    fn retry(&mut self, now: Instant, out: &mut Outbox, token: u64) -> bool {
        let Some(opening) = self.table.get_mut(&token).filter(|opening| opening.is_waiting()) else {
            return false;
        };
        let (Some(Purpose::Mpa(awaiting)), Some(retry)) = (&opening.purpose, &mut opening.retry) else {
            return false;
        };
        retry.again_at = None;
        let (remote, timeout_ns) = (awaiting.attempt.remote, opening.deadline - now);
        let (local, tcp) = (awaiting.attempt.config.local, awaiting.attempt.config.tcp);
        let (core, octets) = (opening.core, retry.request.clone());
        self.deadlines.change(token, Instant::NEVER, opening.due_at());
        out.command_core(core, Command::Connect { token, local, remote, timeout_ns, tcp, octets });
        true
    }

    /// Returns when the core has not answered in time.
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadlines.next()
    }

    /// Makes attempts again that have failed, and replies in place of a core that is not polled.
    pub(super) fn on_time(&mut self, now: Instant, out: &mut Outbox, queue_pairs: &mut QueuePairs) {
        while let Some(token) = self.deadlines.pop_due(now) {
            if self.retry(now, out, token) {
                continue;
            }
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
        if opening.is_waiting() {
            if let Some(purpose) = self.take(token).and_then(|opening| opening.purpose) {
                fail(out, queue_pairs, purpose, error);
            }
            return;
        }
        let (at, core) = (opening.due_at(), opening.core);
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
            queue_pairs.unbind(out, &qp);
            out.reply(reply, Err(error));
        }
        Purpose::Stream { reply, .. } => out.reply(reply, Err(error)),
    }
}
