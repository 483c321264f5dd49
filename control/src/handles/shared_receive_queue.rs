//! Receives that many queue pairs share.

use std::fmt;
use std::sync::Arc;

use warpline_dataplane::limits;
use warpline_dataplane::memory::ProtectionDomainId;
use warpline_dataplane::qp::shared::{BadRequest, PostError};
use warpline_dataplane::qp::shared_receive_queue::{self as shared, SrqNumber};
use warpline_dataplane::qp::work::{ReceiveRequest, SliceList};

use super::context::DeviceContext;

/// Buffers for the Sends of many peers, so that not each queue pair needs enough for the worst of its peer.
/// Clones are the same queue, and any thread may post to it.
///
/// A queue pair made by [`queue_pair_sharing`](crate::ProtectionDomain::queue_pair_sharing) takes the oldest
/// when a message begins; the completion, in the queue pair's completion queue, names both. What each peer
/// uses up can be counted ([`receives_consumed`](crate::QueuePairControl::receives_consumed)), and held at a
/// time no more than the queue pair's [`receive_depth`](crate::QpConfig::receive_depth). A message that finds
/// the queue empty ends its stream: post in time; [`arm_limit`](Self::arm_limit) reports when.
// Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
#[derive(Clone)]
pub struct SharedReceiveQueue {
    context: Arc<DeviceContext>,
    queue: Arc<shared::SharedReceiveQueue>,
}

impl SharedReceiveQueue {
    pub(crate) fn new(context: Arc<DeviceContext>, pd: ProtectionDomainId, depth: usize) -> Self {
        let number = context.next_shared_receive_queue();
        let events = Some(context.events.clone());
        let queue =
            shared::SharedReceiveQueue::new(number, pd, depth.min(limits::RECEIVES_PER_SHARED_QUEUE), events);
        Self { context, queue: Arc::new(queue) }
    }

    /// Returns the part of the queue that cores use, if it belongs to the Protection Domain `pd` of the
    /// device of `context`.
    pub(crate) fn of(
        &self,
        context: &Arc<DeviceContext>,
        pd: ProtectionDomainId,
    ) -> Option<Arc<shared::SharedReceiveQueue>> {
        (Arc::ptr_eq(&self.context, context) && self.queue.pd == pd).then(|| self.queue.clone())
    }

    /// Returns its name in asynchronous events.
    pub fn number(&self) -> SrqNumber {
        self.queue.number
    }

    /// Receives it was made for.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// Receives that no queue pair has taken yet.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Posts a receive: `local` is for one Send of any peer. Its completion is called `id`.
    ///
    /// # Errors
    ///
    /// [`PostError::QueueFull`]; nothing is posted then.
    pub fn post(&self, id: u64, local: impl Into<SliceList>) -> Result<(), PostError> {
        self.post_many(&[ReceiveRequest::new(id, local)]).map_err(|bad| bad.error)
    }

    /// Posts receives in this order.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first that had no room; those before it are posted.
    pub fn post_many(&self, requests: &[ReceiveRequest]) -> Result<(), BadRequest> {
        self.queue.post(requests)
    }

    /// Asks for one [`AsyncEvent::SharedReceiveLimit`](crate::AsyncEvent::SharedReceiveLimit) when fewer than
    /// `limit` receives are left, at once if they are already; 0 asks for none. Ask again after each event.
    pub fn arm_limit(&self, limit: u32) {
        self.queue.arm_limit(limit);
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("number", &self.number())
            .field("receives", &self.len())
            .finish_non_exhaustive()
    }
}
