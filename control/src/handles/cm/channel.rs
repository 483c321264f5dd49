//! Where the events of ids arrive.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io};

use crossbeam::channel::TryRecvError;
use warpline_dataplane::notify::Notify;

use super::id::Id;
use super::listening::ListeningAt;
use crate::engine::interface::request::Arrival;
use crate::handles::connection_request::ConnectionRequest;
use crate::handles::device::Device;
use crate::handles::event_fd::EventFd;
use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::listen::AnswerError;
use crate::vocabulary::startup::{Peer, ReadDepths};

/// Names an id of a channel. No other id of the channel ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdNumber(pub u64);

/// Something that happened to an id.
#[derive(Debug)]
#[non_exhaustive]
pub struct Event {
    /// The id; for a connection request, that of the listener.
    pub id: IdNumber,
    /// What.
    pub kind: EventKind,
}

/// What happened: rdma_cm's `RDMA_CM_EVENT_*`.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The device that leads to the peer is known.
    AddressResolved,
    /// No device leads to the peer.
    AddressError,
    /// The route to the peer is known.
    RouteResolved,
    /// A peer wants to connect. The id is new; it has the peer's address, Private Data, IRD and ORD. Dropping
    /// it rejects the peer.
    ConnectRequest(Id),
    /// The connection is in Full Operation: sends may be posted.
    Established {
        /// What the peer that was connected to said when it accepted.
        private_data: Box<[u8]>,
        /// Our IRD and ORD on this connection.
        depths: ReadDepths,
    },
    /// The peer does not want the connection.
    Rejected {
        /// Its reason in words of its own. Empty when there is no listener.
        private_data: Box<[u8]>,
        /// What else its Reply said; `None` when there is no listener.
        peer: Option<Peer>,
    },
    /// The peer did not answer in time, or the network says that it cannot be reached.
    Unreachable(ConnectError),
    /// The connection could not be opened for another reason.
    ConnectError(ConnectError),
    /// The connection could not be accepted after all.
    AcceptError(AnswerError),
    /// The connection is being closed, by either end, or has failed. It comes once.
    Disconnected,
    /// The connection is over: its queue pair has completed everything and may go.
    TimewaitExit,
    /// The device serves no more.
    DeviceRemoval,
}

/// What waits on a channel.
pub(super) enum Entry {
    Event(Event),
    /// A listener has a request, or a peer has failed there.
    Arrival(Weak<ListeningAt>),
}

/// The events of a channel, in order. Control threads put them there; it holds on to no device, so that those
/// may go.
pub(super) struct Queue {
    entries: Mutex<VecDeque<Entry>>,
    /// Readable while there is an entry.
    fd: EventFd,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry. Each id causes a few events in its life. A listener has at most twice its backlog
    /// waiting, Requests and as many peers that failed, and each puts one entry here: so ids bound what waits
    /// here, not peers.
    pub(super) fn push(&self, entry: Entry) {
        let mut entries = self.lock();
        if entries.is_empty() {
            self.fd.notify();
        }
        entries.push_back(entry);
    }

    pub(super) fn report(&self, id: IdNumber, kind: EventKind) {
        self.push(Entry::Event(Event { id, kind }));
    }

    fn dequeue(&self) -> Option<Entry> {
        let mut entries = self.lock();
        let entry = entries.pop_front();
        if entries.is_empty() {
            self.fd.clear();
        }
        entry
    }
}

/// The state that a channel and its ids share.
pub(super) struct ChannelState {
    pub(super) devices: Vec<Device>,
    pub(super) queue: Arc<Queue>,
    numbers: AtomicU64,
}

impl ChannelState {
    pub(super) fn next_number(&self) -> IdNumber {
        IdNumber(self.numbers.fetch_add(1, Ordering::Relaxed))
    }
}

/// Where the events of ids arrive, in the order in which they happened. Its file descriptor is readable while
/// there are some.
pub struct EventChannel {
    state: Arc<ChannelState>,
}

impl EventChannel {
    /// Returns a channel for connections on `devices`.
    ///
    /// # Errors
    ///
    /// When the system has no file descriptor left.
    pub fn new(devices: impl IntoIterator<Item = Device>) -> io::Result<Self> {
        let queue = Arc::new(Queue { entries: Mutex::default(), fd: EventFd::new()? });
        let devices = devices.into_iter().collect();
        Ok(Self { state: Arc::new(ChannelState { devices, queue, numbers: AtomicU64::new(1) }) })
    }

    /// Returns a new id, whose events arrive here.
    pub fn create_id(&self) -> Id {
        Id::new(self.state.clone())
    }

    /// Returns how many entries wait to be polled: events, and peers that connected to listeners.
    pub fn waiting(&self) -> usize {
        self.state.queue.lock().len()
    }

    /// Returns the oldest event. Does not wait.
    pub fn poll(&self) -> Option<Event> {
        loop {
            match self.state.queue.dequeue()? {
                Entry::Event(event) => return Some(event),
                Entry::Arrival(listening) => {
                    if let Some(event) = listening.upgrade().and_then(|at| self.request_at(&at)) {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// Returns the oldest event; sleeps until there is one, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Event> {
        let start = Instant::now();
        loop {
            if let Some(event) = self.poll() {
                return Some(event);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return None;
            }
            self.state.queue.fd.wait(left);
        }
    }

    #[cfg(test)]
    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.state.queue
    }

    /// Returns the request that a listener has; a peer that failed before it had asked is no event.
    fn request_at(&self, at: &ListeningAt) -> Option<Event> {
        let device = self.state.devices.get(at.device)?;
        let (connection, pair, request) = match at.arrivals.try_recv() {
            Ok(Arrival::Request { connection, pair, request }) => (connection, pair, request),
            Ok(Arrival::Fault { .. }) | Err(TryRecvError::Empty) => return None,
            // So it is too when the listener has gone while it was looked at, or was refused.
            Err(TryRecvError::Disconnected) => {
                let removed = device.context.has_ended();
                return removed.then_some(Event { id: at.id, kind: EventKind::DeviceRemoval });
            }
        };
        let request = ConnectionRequest::new(device.context.clone(), connection, pair, request);
        let id = Id::of_request(self.state.clone(), at.device, request);
        Some(Event { id: at.id, kind: EventKind::ConnectRequest(id) })
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.state.queue.fd.as_fd()
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.state.queue.fd.as_raw_fd()
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").field("devices", &self.state.devices).finish_non_exhaustive()
    }
}
