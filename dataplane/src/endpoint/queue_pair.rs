//! A queue pair at its core: both halves, and the connection that carries its stream.

use core::mem::offset_of;
use std::sync::Arc;

use crate::conn::ConnectionId;
use crate::memory::{STag, StagTable, prefetch};
use crate::ordered::OrderedPool;
use crate::qp::error::StreamError;
use crate::qp::reads::{InboundReads, Reads};
use crate::qp::receiver::{PlacedSegment, Receiver};
use crate::qp::sender::{CarriedOut, Sender};
use crate::qp::shared::{QpState, SharedQp};
use crate::ring::{Event, Events, FullOperation};
use crate::tcp::CloseReason;

use super::queue_pairs::Unaccepted;
use super::receive_wait::ReceiveWait;

/// A queue pair at its core. The fields are in an order that leaves what steady operation needs in few cache
/// lines, the first four: rare things of the sender are boxed, and the receiver begins with what each segment
/// needs.
#[repr(C, align(64))]
pub(crate) struct QueuePair {
    /// The part that it shares with the application.
    pub shared: Arc<SharedQp>,
    /// The connection that carries its stream.
    pub connection: Option<ConnectionId>,
    /// The half that sends.
    pub sender: Sender,
    /// The outstanding Reads and Atomic Operations, which both halves use.
    pub reads: Reads,
    /// The half that receives.
    pub receiver: Receiver,
    /// How long messages may wait for a receive.
    pub receive_wait: ReceiveWait,
}

// An odd number of cache lines, so that the hot lines of many queue pairs use all sets of a cache.
const _: () = assert!((size_of::<QueuePair>() / 64) % 2 == 1);
// What the peer has requested is asked for each time, and lies on one line.
const _: () = {
    let inbound = offset_of!(QueuePair, reads) + offset_of!(Reads, inbound);
    assert!(inbound / 64 == (inbound + size_of::<InboundReads>() - 1) / 64);
};

impl QueuePair {
    /// Returns a queue pair without a connection.
    pub(crate) fn new(shared: Arc<SharedQp>) -> Self {
        Self {
            sender: Sender::new(shared.send_depth()),
            receiver: Receiver::new(),
            reads: Reads::default(),
            connection: None,
            receive_wait: ReceiveWait::new(None),
            shared,
        }
    }

    /// Has the processor fetch what it uses besides its own lines.
    #[inline]
    pub(crate) fn prefetch_queues(&self) {
        prefetch(&*self.shared);
        self.sender.prefetch_entries();
    }

    /// Begins its stream.
    pub(crate) fn begin(&mut self, operation: &FullOperation) {
        self.sender.begin(operation.version, operation.ready, operation.depths.ord);
        self.receiver.begin(operation.version, operation.ready);
        self.reads.begin(operation.depths, operation.ready);
        self.receive_wait = ReceiveWait::new(operation.receive_wait_ns);
        self.shared.set_ord(operation.depths.ord);
        self.shared.set_state(QpState::ReadyToSend);
    }

    /// Accepts what is posted, as the queue pair's doorbell asks for: from here on it counts as a reader of
    /// its memory. If some has to wait, the queue pair becomes one of the `unaccepted`.
    #[inline]
    pub(crate) fn accept_posted(&mut self, stags: &mut StagTable, unaccepted: &mut Unaccepted) {
        if !self.shared.state().is_over()
            && !self.sender.accept_posted(&self.shared, stags)
            && let Some(home) = self.shared.home()
        {
            unaccepted.insert(home.slot);
        }
    }

    /// Accepts what is posted, unless its stream is over, and carries out requests that put nothing on the
    /// wire: they do not wait for the peer's first FPDU. `operations_left` counts down those that may still
    /// be carried out in this poll, besides one.
    #[inline]
    pub(super) fn carry_out_posted(
        &mut self,
        stags: &mut StagTable,
        events: &mut Events,
        operations_left: &mut usize,
    ) {
        let Self { shared, sender, reads, .. } = self;
        if shared.state().is_over() {
            return;
        }
        sender.accept_posted(shared, stags);
        loop {
            match sender.carry_out(shared, stags, reads) {
                CarriedOut::Nothing => break,
                CarriedOut::Elsewhere(change) => {
                    events.push(Event::GrantChanged(change));
                    break;
                }
                CarriedOut::Done if *operations_left == 0 => {
                    // The others are carried out in the next poll.
                    shared.ring();
                    break;
                }
                CarriedOut::Done => {}
            }
            *operations_left -= 1;
            sender.accept_posted(shared, stags);
        }
        sender.flush_after_close(shared);
    }

    /// Returns how many requests it has accepted that are not complete: its own, and its peer's.
    pub(crate) fn requests(&self) -> usize {
        self.sender.accepted() + self.reads.inbound.unacknowledged()
    }

    /// Returns true if one of these requests uses the memory in the slot of `stag`.
    pub(crate) fn reads_from(&self, stag: STag) -> bool {
        self.sender.reads_from(stag) || self.reads.inbound.reads_from(stag)
    }

    /// Ends it: its stream is over, or it is to have none. A connection that ended before both ends closed it
    /// is an error, and each request that was posted is reported once.
    // Requirements: MPA-8-01, DDP-6.2.2-01, DDP-3-03, DDP-6.2.2-02
    pub(crate) fn end(
        &mut self,
        stags: &mut StagTable,
        placed: &mut OrderedPool<PlacedSegment>,
        reason: CloseReason,
    ) {
        let error = match reason {
            CloseReason::Finished => None,
            reason => Some(StreamError::Tcp(reason)),
        };
        if let Some(error) = error {
            self.shared.set_error(error);
        }
        self.shared.set_state(QpState::Error);
        self.flush(stags, placed, self.shared.error().or(error));
    }

    /// Ends all requests that are posted and not complete.
    pub(crate) fn flush(
        &mut self,
        stags: &mut StagTable,
        placed: &mut OrderedPool<PlacedSegment>,
        error: Option<StreamError>,
    ) {
        self.sender.flush(&self.shared, stags, error);
        self.receiver.flush(&self.shared, placed, error);
        self.reads.flush(stags);
    }
}
