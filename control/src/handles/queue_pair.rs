//! Queue pairs: work is posted to them, and their connection carries it out.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use warpline_dataplane::limits;
use warpline_dataplane::memory::ProtectionDomainId;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, QpState, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::tcp::{CloseReason, Snapshot};

use crate::engine::request::Request;
use crate::handles::device::{Shared, Stopped};
use crate::vocabulary::connect::{self, ConnectConfig, ConnectError, Connected};
use crate::vocabulary::socket_pair::SocketPair;

/// What becomes of a message of the peer, a Send or Immediate Data, that meets no receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RnrPolicy {
    /// It ends the stream: the peer gets a Terminate that says so (RFC 5041 §7.1).
    #[default]
    Terminate,
    /// It waits for a receive, as verbs' `rnr_retry` has a sender wait. All that the peer sends behind it
    /// waits too, the answers to our RDMA Reads among it: TCP's window closes, and the peer is held up. The
    /// stream ends as with
    /// [`Terminate`](Self::Terminate) when no receive was posted in time; earlier, but not within four seconds, when the device
    /// runs short of the frames that its connections hold.
    Wait {
        /// How long each message waits.
        timeout: Duration,
    },
}

/// How a queue pair is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Send work requests that may be outstanding: at least one, at most
    /// [`WORK_REQUESTS_PER_QUEUE`](limits::WORK_REQUESTS_PER_QUEUE).
    pub send_depth: usize,
    /// Receive work requests that may be outstanding; the same bounds.
    pub receive_depth: usize,
    /// What happens when the peer closes its half of the connection. `false`: we close ours once everything posted is
    /// done. `true`: it stays open for sends until [`QueuePair::disconnect`].
    pub keep_open: bool,
    /// Small messages that wait at the same time share a TCP segment (RFC 5044 App. A.2). None waits for another: that is
    /// [`Behaviour::nagle`](warpline_dataplane::tcp::Behaviour::nagle). `false`: each FPDU has a segment of its own.
    pub packing: bool,
    /// Times in a row that an FPDU with a wrong CRC is dropped in silence before it is error 2: TCP brings it again, if none
    /// of it was acknowledged (RFC 5044 §8). 0: the first is an error.
    pub crc_retries: u8,
    /// What becomes of a message that meets no receive, of its own or of its shared receive queue.
    pub rnr: RnrPolicy,
    /// How long a connection that this end has closed may go without a sign of life that matters: an octet of
    /// the peer, or an acknowledgement of ours. Then it is reset, and ends as
    /// [`TimedOut`](warpline_dataplane::tcp::CloseReason::TimedOut). `None`: it waits for the peer however long that takes.
    pub disconnect_timeout: Option<Duration>,
}

impl Default for QpConfig {
    /// 128 work requests each way, packing, a few retries, and a minute after a disconnect.
    fn default() -> Self {
        Self {
            send_depth: 128,
            receive_depth: 128,
            keep_open: false,
            packing: true,
            crc_retries: limits::CRC_RETRIES,
            rnr: RnrPolicy::Terminate,
            disconnect_timeout: Some(Duration::from_nanos(limits::DISCONNECT_TIMEOUT_NS)),
        }
    }
}

/// Why there is no queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The device serves as many as it can.
    #[error("the device has as many queue pairs as it can: drop some")]
    TooManyQueuePairs,
    /// The Protection Domain has its share of what the device can serve.
    #[error("the protection domain has as many queue pairs as it may: drop some (Quotas)")]
    Quota,
    /// A queue is to hold more work requests than one can.
    #[error("a queue of {depth} work requests is deeper than any can be: {most} at most")]
    TooDeep {
        /// Work requests asked for.
        depth: usize,
        /// As many as there may be.
        most: usize,
    },
    /// The shared receive queue belongs to another Protection Domain.
    #[error(
        "the shared receive queue belongs to another Protection Domain: make one in that of the queue pair"
    )]
    OtherDomain,
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a connection did not end in an orderly way, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// It failed.
    #[error(transparent)]
    Failed(StreamError),
    /// It is not closed yet.
    #[error("the connection is not closed yet: disconnect it, and see that the peer closes too")]
    NotYet,
}

/// How far the end of a connection has come.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// The peer has closed its half.
    peer_closed: bool,
    /// All of it is over.
    reason: Option<CloseReason>,
}

/// How a connection ends.
#[derive(Default)]
pub(crate) struct Ending {
    /// The connection, once it has come to Full Operation.
    pair: Mutex<Option<SocketPair>>,
    end: Mutex<End>,
    changed: Condvar,
    watcher: Mutex<Option<Watcher>>,
}

/// Is told of each change: whether the peer has closed its half, and why all of it is over. It must not wait.
type Watcher = Box<dyn FnMut(bool, Option<CloseReason>) + Send>;

impl Ending {
    /// The connection that the queue pair serves from now on.
    pub(crate) fn set_pair(&self, pair: Option<SocketPair>) {
        *self.pair.lock().unwrap_or_else(PoisonError::into_inner) = pair;
    }

    /// The connection that the queue pair serves or has served.
    pub(crate) fn pair(&self) -> Option<SocketPair> {
        *self.pair.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, reason: CloseReason) {
        self.change(|end| _ = end.reason.get_or_insert(reason));
    }

    pub(crate) fn set_peer_closed(&self) {
        self.change(|end| end.peer_closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut End)) {
        change(&mut self.end.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        self.tell(&mut self.watcher.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Has `watcher` told of how far the end has come, and of each change from now on.
    pub(crate) fn watch(&self, watcher: Watcher) {
        let mut place = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(watcher);
        self.tell(&mut place);
    }

    fn tell(&self, watcher: &mut Option<Watcher>) {
        if let Some(watcher) = watcher {
            let End { peer_closed, reason } = *self.end.lock().unwrap_or_else(PoisonError::into_inner);
            watcher(peer_closed, reason);
        }
    }

    /// Waits until `done` or for `timeout`; gives what there is then.
    fn wait(&self, timeout: Duration, done: impl Fn(&End) -> bool) -> End {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(end, timeout, |end| !done(end));
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The two halves of what an application has of a queue pair: what it shares with the core, and with control.
pub(crate) type Halves = (Arc<SharedQp>, Arc<Ending>);

/// A queue pair (RFC 5040 §1.1): an endpoint that serves one connection. Any thread may post to it.
///
/// Dropping it ends its connection: after [`disconnect`](Self::disconnect) in the orderly way that has begun, else with a
/// reset.
pub struct QueuePair {
    pub(crate) shared: Arc<SharedQp>,
    ending: Arc<Ending>,
    device: Arc<Shared>,
}

impl QueuePair {
    /// How long a drop waits until no core knows of the queue pair.
    const DROP_WAIT: Duration = Duration::from_millis(100);

    pub(crate) fn new(
        device: Arc<Shared>,
        pd: ProtectionDomainId,
        config: QpConfig,
        completions: (Arc<CompletionRing>, Arc<CompletionRing>),
        receives: Option<Arc<SharedReceiveQueue>>,
    ) -> Result<Self, CreateError> {
        let (shared, ending) =
            device.ask(|reply| Request::CreateQp { pd, config, completions, receives, reply })??;
        Ok(Self { shared, ending, device })
    }

    pub(crate) fn ending(&self) -> Arc<Ending> {
        self.ending.clone()
    }

    pub(crate) fn is_of(&self, device: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    pub(crate) fn domain(&self) -> ProtectionDomainId {
        self.shared.pd
    }

    /// Its number, as completions carry it.
    pub fn number(&self) -> QpNumber {
        self.shared.number
    }

    /// Receives that it has taken from its [`SharedReceiveQueue`](crate::SharedReceiveQueue) so far: what its peer has used
    /// up of it (DDP-8.3.2-07, RDMAP-8.1.2-05).
    pub fn receives_taken(&self) -> u64 {
        self.shared.receives_taken()
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.shared.state()
    }

    /// The error that ended its stream, if one did.
    pub fn error(&self) -> Option<StreamError> {
        self.shared.error()
    }

    /// Opens a connection to `remote` as MPA's Initiator. Returns when sends may be posted.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]; the queue pair may then try again.
    pub fn connect(&self, remote: SocketAddr, config: &ConnectConfig) -> Result<Connected, ConnectError> {
        connect::connect(&self.device, self.shared.clone(), remote, config)
    }

    /// Our address and port on its connection; `None` before the connection is in Full Operation. They stay
    /// known after its end.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.ending.pair().map(|pair| pair.local)
    }

    /// The peer's address and port, as [`local_addr`](Self::local_addr).
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.ending.pair().map(|pair| pair.remote)
    }

    /// How its connection's TCP fares at this moment: round-trip time, windows, what is in flight, what was sent again and
    /// why. `None` without a connection in Full Operation.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn tcp(&self) -> Result<Option<Snapshot>, Stopped> {
        self.device.ask(|reply| Request::ConnectionReport { qp: self.number(), reply })
    }

    /// Closes our half of the connection after everything posted (DDP-6.2.1-01): what is posted later is
    /// flushed (DDP-6.2.1-02). The peer's half stays open until the peer closes it (DDP-6.2.1-06): what it
    /// sends is placed and completes receives, those posted after this call among them.
    /// [`wait_closed`](Self::wait_closed) waits for the end of both halves. A peer from which nothing comes
    /// for [`QpConfig::disconnect_timeout`] is given up: the connection is reset, and ends with
    /// [`StreamError::Tcp`]`(`[`CloseReason::TimedOut`]`)`.
    pub fn disconnect(&self) {
        // A stopped device has closed everything.
        let _ = self.device.tell(Request::Disconnect { qp: self.shared.clone() });
    }

    /// Resets the connection: what is outstanding is flushed, the peer sees an error.
    pub fn abort(&self) {
        // As above.
        let _ = self.device.tell(Request::Abort { qp: self.number() });
    }

    /// Whether the peer has closed its half of the connection: everything it sent has arrived, and nothing more will
    /// (DDP-6.2.1-04). Our half then closes too, after everything posted, unless it is to be kept open
    /// ([`QpConfig::keep_open`]).
    pub fn peer_closed(&self) -> bool {
        self.ending.wait(Duration::ZERO, |_| true).peer_closed
    }

    /// Waits until the peer has closed its half of the connection.
    ///
    /// # Errors
    ///
    /// [`CloseError::Failed`] when the connection ended otherwise, [`CloseError::NotYet`] after `timeout`.
    pub fn wait_peer_closed(&self, timeout: Duration) -> Result<(), CloseError> {
        let end = self.ending.wait(timeout, |end| end.peer_closed || end.reason.is_some());
        if end.peer_closed { Ok(()) } else { self.outcome(end.reason) }
    }

    /// Waits until the connection is closed by both ends.
    ///
    /// # Errors
    ///
    /// [`CloseError::Failed`] when it ended otherwise, [`CloseError::NotYet`] after `timeout`.
    pub fn wait_closed(&self, timeout: Duration) -> Result<(), CloseError> {
        self.outcome(self.ending.wait(timeout, |end| end.reason.is_some()).reason)
    }

    fn outcome(&self, reason: Option<CloseReason>) -> Result<(), CloseError> {
        match (self.error(), reason.ok_or(CloseError::NotYet)?) {
            (Some(error), _) => Err(CloseError::Failed(error)),
            (None, CloseReason::Finished) => Ok(()),
            (None, reason) => Err(CloseError::Failed(StreamError::Tcp(reason))),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let qp = self.number();
        // Without a core there is nothing to wait for; with a slow one, control goes on alone.
        if let Ok(done) = self.device.begin(|reply| Request::DestroyQp { qp, reply }) {
            let _ = done.recv_timeout(Self::DROP_WAIT);
        }
    }
}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.number())
            .field("state", &self.state())
            .field("error", &self.error())
            .finish_non_exhaustive()
    }
}
