//! Asynchronous events of verbs: events of queue pairs and queues that no work request reports.

use core::fmt;
use core::net::IpAddr;
use std::sync::Arc;

use super::error::StreamError;
use super::verbs::Blame;
use super::work::{CqNumber, QpNumber, SrqNumber};
use crate::limits;
use crate::notify::Notify;
use crate::sync::{ArrayQueue, AtomicU64, Ordering};
use crate::wire::ethernet::MacAddress;

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// The first message of the peer has arrived at the passive end, so that sends may leave (`COMM_EST`).
    CommunicationEstablished {
        /// The queue pair.
        qp: QpNumber,
    },
    /// A queue pair's stream has ended because this end or the network failed (`QP_FATAL`).
    QpFatal {
        /// The queue pair.
        qp: QpNumber,
        /// Why.
        error: StreamError,
    },
    /// A queue pair's stream has ended because of an invalid request of the peer or of this end
    /// (`QP_REQ_ERR`).
    QpRequestError {
        /// The queue pair.
        qp: QpNumber,
        /// Why.
        error: StreamError,
    },
    /// A queue pair's stream has ended because of an access to memory that was not granted (`QP_ACCESS_ERR`).
    QpAccessError {
        /// The queue pair.
        qp: QpNumber,
        /// Why.
        error: StreamError,
    },
    /// A queue pair that is in Error has completed the last receive that it had dequeued from a shared
    /// receive queue (`QP_LAST_WQE_REACHED`).
    LastReceiveReached {
        /// The queue pair.
        qp: QpNumber,
    },
    /// A shared receive queue holds fewer receives than its limit (`SRQ_LIMIT_REACHED`). The limit is
    /// disarmed then.
    SharedReceiveLimit {
        /// The shared receive queue.
        srq: SrqNumber,
    },
    /// A completion found no entry in a completion queue, and its queue pair has failed (`CQ_ERR`). It was
    /// for a receive from a shared receive queue, or for a send that was not signaled and was flushed.
    CompletionQueueOverflow {
        /// The completion queue.
        cq: CqNumber,
    },
    /// No thread polls the device's cores any more (`DEVICE_FATAL`).
    DeviceFatal,
    /// No thread polls one of the device's cores any more: its queue pairs and streams have failed, and the
    /// other cores go on.
    CoreEnded {
        /// The core.
        core: u8,
    },
    /// The adapter brings segments to other cores than it was asked to: by another hash or table. The cores
    /// sort what each queue receives from now on, which costs each segment a hash, and most of them a way
    /// through a ring to another core. Nothing is lost. Reported once for a device.
    AdapterDiffers,
    /// Another station on the link uses an address of the device (RFC 5227 §2.4, RFC 4862 §5.4): peers reach
    /// now one, now the other. Reported once in ten seconds at most.
    AddressConflict {
        /// The address.
        address: IpAddr,
        /// The other station's hardware address.
        mac: MacAddress,
        /// Whether the device has given the address up: the other station had it first. Else it keeps the
        /// address, and has announced it again.
        abandoned: bool,
    },
    /// A segment was dropped because its TCP checksum is partial: its sender has left it to a device that the
    /// frame never passed, as Linux does on virtual interfaces. Reported for the first one.
    PartialChecksum {
        /// The sender.
        peer: IpAddr,
    },
    /// A packet was dropped because the port had cut it to its buffer: its sender has left it to a device to
    /// cut it into segments, as Linux does on virtual interfaces, or the kernel here has joined segments that
    /// came. Reported for the first one.
    OversizedPacket {
        /// The sender.
        peer: IpAddr,
    },
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommunicationEstablished { qp } => {
                write!(f, "queue pair {}: the peer's first message came", qp.0)
            }
            Self::QpFatal { qp, error }
            | Self::QpRequestError { qp, error }
            | Self::QpAccessError { qp, error } => write!(f, "queue pair {}: {error}", qp.0),
            Self::LastReceiveReached { qp } => write!(f, "queue pair {}: the last receive is complete", qp.0),
            Self::SharedReceiveLimit { srq } => {
                write!(f, "shared receive queue {}: fewer receives than its limit", srq.0)
            }
            Self::CompletionQueueOverflow { cq } => write!(f, "completion queue {}: no entry was left", cq.0),
            Self::DeviceFatal => f.write_str("the device is no longer polled"),
            Self::CoreEnded { core } => {
                write!(f, "core {core} is no longer polled: its connections have failed")
            }
            Self::AdapterDiffers => f.write_str(
                "the adapter brings segments to other cores than it was asked to, and the cores sort them \
                 in software: a device of one core, or another adapter, takes less of the CPUs",
            ),
            Self::AddressConflict { address, mac, abandoned: false } => write!(
                f,
                "another station, {mac}, uses {address}, too, and peers reach now one, now the other: give \
                 one of them another address"
            ),
            Self::AddressConflict { address, mac, abandoned: true } => write!(
                f,
                "another station, {mac}, has {address}, and the device has given it up: give it another \
                 address"
            ),
            Self::PartialChecksum { peer } => write!(
                f,
                "segments of {peer} come without TCP checksums and are dropped: its kernel leaves them to a \
                 device that they never pass; at the peer: ethtool -K INTERFACE tx off"
            ),
            Self::OversizedPacket { peer } => write!(
                f,
                "packets of {peer} are longer than the MTU, and are cut and dropped: its kernel leaves \
                 segmentation to a device that they never pass (at the peer: ethtool -K INTERFACE tso off), \
                 or the one here joins segments (ethtool -K INTERFACE gro off); or, with af_packet: \
                 super_frames=on"
            ),
        }
    }
}

impl AsyncEvent {
    /// The event for a stream that has ended with `error`.
    pub fn of_failure(qp: QpNumber, error: StreamError) -> Self {
        match Blame::of(error) {
            Blame::Access => Self::QpAccessError { qp, error },
            Blame::Request => Self::QpRequestError { qp, error },
            Blame::Fatal => Self::QpFatal { qp, error },
        }
    }

    /// Whether it is about a queue pair.
    const fn is_of_queue_pair(&self) -> bool {
        matches!(
            self,
            Self::CommunicationEstablished { .. }
                | Self::QpFatal { .. }
                | Self::QpRequestError { .. }
                | Self::QpAccessError { .. }
                | Self::LastReceiveReached { .. }
        )
    }
}

/// The asynchronous events of a device that are not dequeued yet.
pub struct AsyncEvents {
    entries: ArrayQueue<AsyncEvent>,
    lost: AtomicU64,
    notify: Option<Arc<dyn Notify>>,
}

impl AsyncEvents {
    /// An empty queue; `notify` is called for each event.
    pub fn new(notify: Option<Arc<dyn Notify>>) -> Self {
        Self { entries: ArrayQueue::new(limits::ASYNC_EVENTS), lost: AtomicU64::new(0), notify }
    }

    /// Dequeues the oldest event.
    pub fn dequeue(&self) -> Option<AsyncEvent> {
        self.entries.pop()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Events lost because the queue was full. Queue pairs
    /// [say the same](super::shared::SharedQp::end_events) of their ends.
    pub fn lost(&self) -> u64 {
        // After what a queue pair says of its end, which was there before the event was lost.
        self.lost.load(Ordering::Acquire)
    }

    /// Reports an event.
    pub fn report(&self, event: AsyncEvent) {
        let is_full = event.is_of_queue_pair() && self.entries.len() >= limits::ASYNC_EVENTS_OF_QUEUE_PAIRS;
        if is_full || self.entries.push(event).is_err() {
            self.lost.fetch_add(1, Ordering::Release);
        }
        if let Some(notify) = &self.notify {
            notify.notify();
        }
    }
}

impl fmt::Debug for AsyncEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncEvents").field("waiting", &self.entries.len()).finish_non_exhaustive()
    }
}
