//! Queue pairs: work is posted to them, and their connection carries it out.

use std::cell::Cell;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warpline_dataplane::memory::ProtectionDomainId;
use warpline_dataplane::qp::async_event::AsyncEvent;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRings, QpState, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::tcp::{CloseReason, Snapshot};

use super::completion::CompletionQueueControl;
use super::context::DeviceContext;
use crate::engine::interface::connection_status::ConnectionStatus;
use crate::engine::interface::request::{NewQueuePair, Request};
use crate::vocabulary::connect::{self, ConnectConfig, ConnectError, Connected};
use crate::vocabulary::device::Stopped;
use crate::vocabulary::queue_pair::{CloseError, CreateError, QpConfig};

/// A queue pair (RFC 5040 §1.1): an endpoint that serves one connection.
///
/// One thread at a time posts to it: it can be sent to another thread, and not be shared (`Send`, not
/// `Sync`). So posting takes no lock, and one locked operation to ring the core's bell. Threads that post to
/// the same queue pair put a lock around it: [`SharedQueuePair`](crate::SharedQueuePair). What any thread may
/// do at any time is in [`QueuePairControl`], to which it dereferences.
///
/// ```compile_fail,E0277
/// # use warpline::QueuePair;
/// fn is_sync<T: Sync>() {}
/// is_sync::<QueuePair>();
/// ```
///
/// Dropping it ends its connection: after [`disconnect`](QueuePairControl::disconnect) in the orderly way
/// that has begun, else with a reset.
pub struct QueuePair {
    /// That of `control` too, one step nearer for posting.
    pub(crate) shared: Arc<SharedQp>,
    control: Arc<QueuePairControl>,
    /// Not `Sync`.
    one_poster: PhantomData<Cell<()>>,
}

/// What any thread may do with a [`QueuePair`] while another posts to it: connect and close, and look at its
/// state.
pub struct QueuePairControl {
    pub(crate) shared: Arc<SharedQp>,
    status: Arc<ConnectionStatus>,
    context: Arc<DeviceContext>,
    /// Its drop waits until no work request uses memory.
    fenced: AtomicBool,
}

const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_sync<T: Sync>() {}
    is_send::<QueuePair>();
    is_sync::<QueuePairControl>();
};

impl QueuePair {
    pub(crate) fn new(
        context: Arc<DeviceContext>,
        pd: ProtectionDomainId,
        config: QpConfig,
        completions: CompletionRings,
        receives: Option<Arc<SharedReceiveQueue>>,
    ) -> Result<Self, CreateError> {
        let NewQueuePair { shared, status } =
            context.ask(|reply| Request::CreateQp { pd, config, completions, receives, reply })??;
        let control = Arc::new(QueuePairControl {
            shared: shared.clone(),
            status,
            context,
            fenced: AtomicBool::new(false),
        });
        Ok(Self { shared, control, one_poster: PhantomData })
    }

    /// The part for any thread, for a shared form.
    pub(crate) fn control(&self) -> Arc<QueuePairControl> {
        self.control.clone()
    }
}

impl Deref for QueuePair {
    type Target = QueuePairControl;

    fn deref(&self) -> &QueuePairControl {
        &self.control
    }
}

impl QueuePairControl {
    /// How long a drop waits until the core has forgotten the queue pair.
    const DROP_WAIT: Duration = Duration::from_millis(100);
    /// The same where the owner needs the memory: the core is asked within milliseconds, if its thread runs.
    const FENCED_DROP_WAIT: Duration = Duration::from_secs(2);

    /// Has the drop of the queue pair wait until none of its work requests uses memory any more, also where
    /// its connection ends in an orderly way: verbs promise that of a queue pair that is destroyed, and whose
    /// owner gives the memory to others while it stays registered. What was posted has some 50 milliseconds
    /// to reach the peer, or the connection is reset; what the peer still sends is dropped.
    ///
    /// It waits for two seconds at most, should the core's thread stand still, and not at all where this
    /// thread may be the one that has to poll: there the memory is free after 50 milliseconds of polling at
    /// most.
    pub fn fence_drop(&self) {
        self.fenced.store(true, Ordering::Relaxed);
    }

    pub(crate) fn status(&self) -> Arc<ConnectionStatus> {
        self.status.clone()
    }

    pub(crate) fn is_of(&self, context: &Arc<DeviceContext>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    pub(crate) fn domain(&self) -> ProtectionDomainId {
        self.shared.pd
    }

    /// Returns its number, as completions carry it.
    pub fn number(&self) -> QpNumber {
        self.shared.number
    }

    /// Receives that it has taken from its [`SharedReceiveQueue`](crate::SharedReceiveQueue) so far: what its
    /// peer has used up of it.
    // Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
    pub fn receives_consumed(&self) -> u64 {
        self.shared.receives_consumed()
    }

    /// Returns its state.
    pub fn state(&self) -> QpState {
        self.shared.state()
    }

    /// Returns the error that ended its stream, if one did.
    pub fn error(&self) -> Option<StreamError> {
        self.shared.error()
    }

    /// Returns the events of its end that have come so far: of its failure, and that its last receive is
    /// complete. For applications whose [events were lost](crate::Device::events_lost).
    pub fn end_events(&self) -> impl Iterator<Item = AsyncEvent> + use<> {
        self.shared.end_events()
    }

    /// Returns true if its sends are reported to `completions`.
    pub fn reports_sends_to(&self, completions: &CompletionQueueControl) -> bool {
        self.shared.reports_sends_to(&completions.ring)
    }

    /// Returns true if its receives are reported to `completions`.
    pub fn reports_receives_to(&self, completions: &CompletionQueueControl) -> bool {
        self.shared.reports_receives_to(&completions.ring)
    }

    /// Opens a connection to `remote` as MPA's Initiator. Returns when sends may be posted.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]; the queue pair may then try again.
    pub fn connect(&self, remote: SocketAddr, config: &ConnectConfig) -> Result<Connected, ConnectError> {
        connect::check(config)?;
        let (qp, config) = (self.shared.clone(), config.clone());
        self.context.ask(|reply| Request::Connect { qp, remote, config, reply })?
    }

    /// Returns our address and port on its connection; `None` before the connection is in Full Operation.
    /// They stay known after its end.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.status.pair().map(|pair| pair.local)
    }

    /// Returns the peer's address and port, as [`local_addr`](Self::local_addr).
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.status.pair().map(|pair| pair.remote)
    }

    /// Returns the state of its connection's TCP at this moment: round-trip time, windows, what is in flight,
    /// what was sent again and why. `None` without a connection in Full Operation, or if its core, one of
    /// several, does not answer within a second.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn tcp(&self) -> Result<Option<Snapshot>, Stopped> {
        self.context.ask(|reply| Request::ConnectionReport { qp: self.number(), reply })
    }

    /// Closes our half of the connection after everything posted: what is posted later is flushed. The peer's
    /// half stays open until the peer closes it: what it sends is placed and completes receives, those posted
    /// after this call among them. [`wait_closed`](Self::wait_closed) waits for the end of both halves. A
    /// peer from which nothing comes for [`QpConfig::disconnect_timeout`] is abandoned: the connection is
    /// reset, and ends with [`StreamError::Tcp`]`(`[`CloseReason::TimedOut`]`)`.
    // Requirements: DDP-6.2.1-01, DDP-6.2.1-02, DDP-6.2.1-06
    pub fn disconnect(&self) {
        // A stopped device has closed everything.
        let _ = self.context.send(Request::Disconnect { qp: self.shared.clone() });
    }

    /// Resets the connection: what is outstanding is flushed, the peer sees an error. Without a connection
    /// receives that were posted are flushed, an attempt to connect is given up, and the queue pair serves no
    /// connection any more. [`wait_closed`](Self::wait_closed) waits for that too, and returns
    /// [`StreamError::Tcp`]`(`[`CloseReason::Aborted`]`)`.
    // Requirements: DDP-6.2.2-02
    pub fn abort(&self) {
        // As above.
        let _ = self.context.send(Request::Abort { qp: self.number() });
    }

    /// Returns true if the peer has closed its half of the connection: everything it sent has arrived, and
    /// nothing more will. Our half then closes too, after everything posted, unless it is to be kept open
    /// ([`QpConfig::keep_open`]).
    // Requirements: DDP-6.2.1-04
    pub fn peer_closed(&self) -> bool {
        self.status.close_state().peer_closed
    }

    /// Waits until the peer has closed its half of the connection.
    ///
    /// # Errors
    ///
    /// [`CloseError::Failed`] when the connection ended otherwise, [`CloseError::NotYet`] after `timeout`.
    pub fn wait_peer_closed(&self, timeout: Duration) -> Result<(), CloseError> {
        let state = self.status.wait(timeout, |state| state.peer_closed || state.reason.is_some());
        if state.peer_closed { Ok(()) } else { self.outcome(state.reason) }
    }

    /// Waits until the connection is closed by both ends.
    ///
    /// # Errors
    ///
    /// [`CloseError::Failed`] when it ended otherwise, [`CloseError::NotYet`] after `timeout`.
    pub fn wait_closed(&self, timeout: Duration) -> Result<(), CloseError> {
        self.outcome(self.status.wait(timeout, |state| state.reason.is_some()).reason)
    }

    fn outcome(&self, reason: Option<CloseReason>) -> Result<(), CloseError> {
        match (self.error(), reason.ok_or(CloseError::NotYet)?) {
            (Some(error), _) => Err(CloseError::Failed(error)),
            (None, CloseReason::Finished) => Ok(()),
            (None, reason) => Err(CloseError::Failed(StreamError::Tcp(reason))),
        }
    }
}

impl Drop for QueuePairControl {
    fn drop(&mut self) {
        let qp = self.number();
        // Without a core there is nothing to wait for; with a slow one, control goes on alone.
        let fence = self.fenced.load(Ordering::Relaxed);
        if let Ok(done) = self.context.begin(|reply| Request::DestroyQp { qp, fence, reply }) {
            let wait = if fence { Self::FENCED_DROP_WAIT } else { Self::DROP_WAIT };
            self.context.wait_briefly(&done, wait);
        }
    }
}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.control, f)
    }
}

impl std::fmt::Debug for QueuePairControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.number())
            .field("state", &self.state())
            .field("error", &self.error())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;
    use warpline_dataplane::device::sim::{self, EndConfig};
    use warpline_dataplane::qp::error::StreamError;

    use crate::engine::interface::request::Request;
    use crate::{
        CloseError, CompletionQueue, ConnectConfig, Device, DeviceConfig, ListenConfig, PollThread, QpConfig,
    };

    const PATIENCE: Duration = Duration::from_secs(30);

    /// The Responder has accepted, but the queue pair of the attempt is gone by then.
    // Requirements: MPAv2-9.3-01, MPAv2-8-01
    #[test]
    fn a_queue_pair_that_has_gone_is_a_local_catastrophe() {
        let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
        let (near_address, far_address) = ([198, 18, 0, 1], [198, 18, 0, 2]);
        let start = |device, address: [u8; 4]| {
            Device::start(device, &DeviceConfig::new(address, 24), PollThread::default()).unwrap()
        };
        let (near, far) = (start(near, near_address), start(far, far_address));
        let completions = CompletionQueue::new(8);
        let queue_pair = |device: &Device| {
            let config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
            device.protection_domain().queue_pair(&config, &completions, &completions).unwrap()
        };
        let (near_qp, far_qp) = (queue_pair(&near), queue_pair(&far));
        let listener = far.listen(4711, &ListenConfig::default()).unwrap();
        let (qp, config) = (near_qp.shared.clone(), ConnectConfig::default());
        let remote = SocketAddr::from((far_address, 4711));
        let connecting = near.context.begin(|reply| Request::Connect { qp, remote, config, reply }).unwrap();
        let request = listener.accept(PATIENCE).unwrap();
        // The Request goes out with the handshake. Control knows that the attempt is open once the core has
        // answered; until then it would be given up with its queue pair.
        let _ = near.statistics().unwrap();
        drop(near_qp);
        request.accept(&far_qp, b"").unwrap();
        assert!(connecting.recv_timeout(PATIENCE).unwrap().is_err());
        let error = StreamError::Terminated { layer: 2, error_type: 0, code: 5 };
        assert_eq!(far_qp.wait_closed(PATIENCE), Err(CloseError::Failed(error)));
    }
}
