//! Protection Domains: from them come memory, windows, queue pairs and shared receive queues.

use std::sync::Arc;

use warpline_dataplane::memory::{Access, ProtectionDomainId, Region};
use warpline_dataplane::qp::shared::CompletionRings;
use warpline_dataplane::qp::work::QpNumber;

use super::completion::CompletionQueueControl;
use super::context::DeviceContext;
use super::memory_region::MemoryRegion;
use super::queue_pair::{QueuePair, QueuePairControl};
use super::registered::Registered;
use super::shared_receive_queue::SharedReceiveQueue;
use super::window::MemoryWindow;
use crate::engine::interface::request::Request;
use crate::vocabulary::memory::{Addressing, MemoryError};
use crate::vocabulary::queue_pair::{CreateError, QpConfig};

/// Queue pairs and the memory they may reach (RFC 5041 §8.2). Clones are the same domain. Nothing of it is
/// open to another domain, of the same application or not: a completion queue or a receive queue is shared
/// only by its owner.
// Requirements: DDP-8.3.2-04
#[derive(Clone)]
pub struct ProtectionDomain {
    context: Arc<DeviceContext>,
    id: ProtectionDomainId,
}

impl ProtectionDomain {
    pub(crate) fn new(context: Arc<DeviceContext>, id: ProtectionDomainId) -> Self {
        Self { context, id }
    }

    /// Registers `len` zero bytes of new memory: hugepages on a DPDK device. Tagged Offsets are
    /// addresses.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, MemoryError> {
        let region = self.context.allocate(len).ok_or(MemoryError::OutOfMemory { len })?;
        self.register(region, access, Addressing::Address)
    }

    /// Registers all of `region`. Waits for the core: work posted afterwards finds the registration.
    ///
    /// The memory may be the device's ([`MemorySource`](crate::MemorySource)) or the caller's own
    /// ([`Region::owned`]). Sends copy the payload from it ([`MemoryRegion::is_copied`]), unless it is
    /// hugepages that were made constant first ([`Region::freeze`]).
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn register(
        &self,
        region: Region,
        access: Access,
        addressing: Addressing,
    ) -> Result<MemoryRegion, MemoryError> {
        self.register_region(region, None, access, addressing)
    }

    /// Registers all of `region` for `queue_pair` alone: no other stream reaches it, not even of this domain,
    /// and the peer of `queue_pair` may invalidate it, because no other stream uses it. It becomes invalid
    /// when the queue pair is dropped.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    // Requirements: DDP-8.2-03, RDMAP-8.1.1-02
    pub fn register_for(
        &self,
        queue_pair: &QueuePairControl,
        region: Region,
        access: Access,
        addressing: Addressing,
    ) -> Result<MemoryRegion, MemoryError> {
        if !queue_pair.is_of(&self.context) || queue_pair.domain() != self.id {
            return Err(MemoryError::OtherDomain);
        }
        self.register_region(region, Some(queue_pair.number()), access, addressing)
    }

    fn register_region(
        &self,
        region: Region,
        stream: Option<QpNumber>,
        access: Access,
        addressing: Addressing,
    ) -> Result<MemoryRegion, MemoryError> {
        let (pd, memory) = (self.id, region.clone());
        let stag = self.context.ask(|reply| Request::Register {
            region: memory,
            pd,
            stream,
            access,
            addressing,
            reply,
        })??;
        Ok(MemoryRegion::new(Registered::new(self.context.clone(), stag), region, access, addressing))
    }

    /// Returns a window, bound to nothing yet. Waits for the core.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn allocate_window(&self) -> Result<MemoryWindow, MemoryError> {
        let pd = self.id;
        let stag = self.context.ask(|reply| Request::AllocateWindow { pd, reply })??;
        Ok(MemoryWindow::new(Registered::new(self.context.clone(), stag)))
    }

    /// Makes a queue pair that reports to `send_completions` and `receive_completions`, which may be the
    /// same.
    ///
    /// # Errors
    ///
    /// [`CreateError`].
    pub fn queue_pair(
        &self,
        config: &QpConfig,
        send_completions: &CompletionQueueControl,
        receive_completions: &CompletionQueueControl,
    ) -> Result<QueuePair, CreateError> {
        let completions = CompletionRings {
            send: send_completions.ring.clone(),
            receive: receive_completions.ring.clone(),
        };
        QueuePair::new(self.context.clone(), self.id, *config, completions, None)
    }

    /// Makes a queue pair that takes its receives from `receives`, of this domain, and is otherwise as those
    /// of [`queue_pair`](Self::queue_pair). It may hold as many of them at a time as `config` gives it
    /// receives.
    ///
    /// # Errors
    ///
    /// [`CreateError`].
    pub fn queue_pair_sharing(
        &self,
        receives: &SharedReceiveQueue,
        config: &QpConfig,
        send_completions: &CompletionQueueControl,
        receive_completions: &CompletionQueueControl,
    ) -> Result<QueuePair, CreateError> {
        let receives = receives.of(&self.context, self.id).ok_or(CreateError::OtherDomain)?;
        let completions = CompletionRings {
            send: send_completions.ring.clone(),
            receive: receive_completions.ring.clone(),
        };
        QueuePair::new(self.context.clone(), self.id, *config, completions, Some(receives))
    }

    /// Makes a queue of `depth` receives that queue pairs of this domain can share: one at least,
    /// [`RECEIVES_PER_SHARED_QUEUE`](warpline_dataplane::limits::RECEIVES_PER_SHARED_QUEUE) at most. A larger
    /// `depth` counts as that, see [`SharedReceiveQueue::depth`].
    pub fn shared_receive_queue(&self, depth: usize) -> SharedReceiveQueue {
        SharedReceiveQueue::new(self.context.clone(), self.id, depth)
    }
}
