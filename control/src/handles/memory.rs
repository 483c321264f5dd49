//! Protection Domains and registered memory.

use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::memory::{Access, FastRegistration, InsertError, ProtectionDomainId, Region, STag};
use warpline_dataplane::qp::work::{QpNumber, Slice};

use crate::engine::request::{Deregistration, Request};
use crate::handles::completion::CompletionQueue;
use crate::handles::device::{Shared, Stopped};
use crate::handles::queue_pair::{CreateError, QpConfig, QueuePair};
use crate::handles::registered::Registered;
use crate::handles::shared_receive_queue::SharedReceiveQueue;
use crate::handles::window::MemoryWindow;
use crate::vocabulary::advertisement::Advertisement;

/// What the Tagged Offsets of a registration count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Addressing {
    /// The address of the memory: what most users of RDMA expect, and what rping's advertisement calls it.
    #[default]
    Address,
    /// Zero: the peer does not learn where the memory lies.
    ZeroBased,
}

impl Addressing {
    pub(crate) fn base_to(self, region: &Region) -> u64 {
        match self {
            Self::Address => region.address(),
            Self::ZeroBased => 0,
        }
    }
}

/// Which queue pairs may use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All of its Protection Domain. No peer can invalidate it then (RDMAP-8.1.1-02).
    AllStreams,
    /// One alone.
    OneStream,
}

/// Why memory could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// There is no such memory.
    #[error(
        "no {octets} octets of memory to be had: ask for less (and more than 0), or give the EAL more hugepages"
    )]
    OutOfMemory {
        /// Octets asked for.
        octets: usize,
    },
    /// The device knows as many regions and windows as it can.
    #[error("the device has as many regions and windows as it can: deregister some")]
    TooManyRegions,
    /// The Protection Domain has its share of what the device can know.
    #[error("the protection domain has as many regions and windows as it may: deregister some (Quotas)")]
    Quota,
    /// The queue pair that alone is to reach the memory is of another Protection Domain.
    #[error("the queue pair is of another protection domain: no stream of it reaches memory of this one")]
    OtherDomain,
    /// The Tagged Offset behind the last octet would be 2^64 or more.
    #[error("the Tagged Offsets of the memory would wrap at 2^64: register less of it")]
    Wrap,
    /// The memory is constant ([`Region::freeze`]), and the rights asked for are to write to it.
    #[error("the memory is constant: register it without a right to write")]
    Constant,
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<InsertError> for MemoryError {
    fn from(error: InsertError) -> Self {
        match error {
            InsertError::NoSlot => Self::TooManyRegions,
            InsertError::Wrap => Self::Wrap,
            InsertError::Constant => Self::Constant,
        }
    }
}

/// Why memory is still registered.
#[derive(Debug, thiserror::Error)]
pub enum DeregisterError {
    /// Sends that are not completed read from it.
    #[error("sends still read from the memory: poll their completions, then deregister again")]
    InUse(MemoryRegion),
    /// Windows are bound to it.
    #[error("windows are bound to the memory: invalidate them, then deregister again")]
    WindowsBound(MemoryRegion),
    /// The core did not answer in time.
    #[error("the core did not answer: is it polled?")]
    Unanswered(MemoryRegion),
}

impl DeregisterError {
    /// The memory, to try again.
    pub fn into_region(self) -> MemoryRegion {
        match self {
            Self::InUse(region) | Self::WindowsBound(region) | Self::Unanswered(region) => region,
        }
    }
}

/// Queue pairs and the memory they may reach (RFC 5041 §8.2). Clones are the same domain. Nothing of it is open to another
/// domain, of the same application or not: what is to be shared, a completion queue or a receive queue, is handed over by who
/// has it (DDP-8.3.2-04).
#[derive(Clone)]
pub struct ProtectionDomain {
    shared: Arc<Shared>,
    id: ProtectionDomainId,
}

impl ProtectionDomain {
    pub(crate) fn new(shared: Arc<Shared>, id: ProtectionDomainId) -> Self {
        Self { shared, id }
    }

    /// Registers `octets` zero octets of new memory: hugepages on a DPDK device. Tagged Offsets are addresses.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn allocate(&self, octets: usize, access: Access) -> Result<MemoryRegion, MemoryError> {
        let region = self.shared.allocate(octets).ok_or(MemoryError::OutOfMemory { octets })?;
        self.register(region, access, Addressing::Address)
    }

    /// Registers all of `region`. Waits for the core: work posted afterwards finds the registration.
    ///
    /// The memory may be the device's ([`MemorySource`](crate::MemorySource)) or the caller's own
    /// ([`Region::owned`]). What is sent from it is copied ([`MemoryRegion::is_copied`]), unless it is
    /// hugepages that were made constant beforehand ([`Region::freeze`]).
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

    /// Registers all of `region` for `queue_pair` alone: no other stream reaches it, not even of this domain, and the peer
    /// of `queue_pair`, which nobody shares it with, may invalidate it (DDP-8.2-03, RDMAP-8.1.1-02). It becomes invalid when
    /// the queue pair is gone.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn register_for(
        &self,
        queue_pair: &QueuePair,
        region: Region,
        access: Access,
        addressing: Addressing,
    ) -> Result<MemoryRegion, MemoryError> {
        if !queue_pair.is_of(&self.shared) || queue_pair.domain() != self.id {
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
        let stag = self.shared.ask(|reply| Request::Register {
            region: memory,
            pd,
            stream,
            access,
            addressing,
            reply,
        })??;
        Ok(MemoryRegion {
            registered: Registered::new(self.shared.clone(), stag),
            origin_to: addressing.base_to(&region),
            range: (0, region.len()),
            region,
        })
    }

    /// A window, bound to nothing yet. Waits for the core.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn allocate_window(&self) -> Result<MemoryWindow, MemoryError> {
        let pd = self.id;
        let stag = self.shared.ask(|reply| Request::AllocateWindow { pd, reply })??;
        Ok(MemoryWindow::new(Registered::new(self.shared.clone(), stag)))
    }

    /// Makes a queue pair that reports to `send_completions` and `receive_completions`, which may be the same.
    ///
    /// # Errors
    ///
    /// [`CreateError`].
    pub fn queue_pair(
        &self,
        config: &QpConfig,
        send_completions: &CompletionQueue,
        receive_completions: &CompletionQueue,
    ) -> Result<QueuePair, CreateError> {
        let completions = (send_completions.ring.clone(), receive_completions.ring.clone());
        QueuePair::new(self.shared.clone(), self.id, *config, completions, None)
    }

    /// Makes a queue pair that takes its receives from `receives`, of this domain, and is otherwise as those of
    /// [`queue_pair`](Self::queue_pair). It may hold as many of them at a time as `config` gives it receives.
    ///
    /// # Errors
    ///
    /// [`CreateError`].
    pub fn queue_pair_sharing(
        &self,
        receives: &SharedReceiveQueue,
        config: &QpConfig,
        send_completions: &CompletionQueue,
        receive_completions: &CompletionQueue,
    ) -> Result<QueuePair, CreateError> {
        let receives = receives.of(&self.shared, self.id).ok_or(CreateError::OtherDomain)?;
        let completions = (send_completions.ring.clone(), receive_completions.ring.clone());
        QueuePair::new(self.shared.clone(), self.id, *config, completions, Some(receives))
    }

    /// Makes a queue of `depth` receives that queue pairs of this domain can share: one at least,
    /// [`RECEIVES_PER_SHARED_QUEUE`](warpline_dataplane::limits::RECEIVES_PER_SHARED_QUEUE) at most. What is asked for beyond that is not there, see
    /// [`SharedReceiveQueue::depth`].
    pub fn shared_receive_queue(&self, depth: usize) -> SharedReceiveQueue {
        SharedReceiveQueue::new(self.shared.clone(), self.id, depth)
    }
}

/// Registered memory: a peer reaches it by its STag, as far as its [`Access`] goes.
///
/// It is read and written by copy, as a device does; what it holds while a peer writes is not defined before a Delivery
/// (RFC 5040 §5.5). Dropping it deregisters it, see [`deregister`](Self::deregister).
pub struct MemoryRegion {
    registered: Registered,
    region: Region,
    /// The Tagged Offset of the first octet of the memory, though it may not be registered.
    origin_to: u64,
    /// What of the memory is registered: the first octet, and how many.
    range: (usize, usize),
}

impl MemoryRegion {
    /// Octets.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether there is no octet. There always is.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// Its name. [`fast_registration`](Self::fast_registration) gives it another one.
    pub const fn stag(&self) -> STag {
        self.registered.stag()
    }

    /// Whether what is sent from it is copied into frames: the memory may change, or the device cannot refer
    /// to it, or to none ([`Region::is_copied`]). It costs a copy for each octet sent, and nothing when
    /// receiving.
    pub fn is_copied(&self) -> bool {
        self.registered.copies(&self.region)
    }

    /// The Tagged Offset of octet `offset`.
    pub const fn to(&self, offset: usize) -> u64 {
        self.origin_to.wrapping_add(offset as u64)
    }

    /// The memory itself, to share with others or to register again.
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Octets `offset..offset + octets`, for a work request. Whether they lie inside is checked when it is worked on.
    pub const fn slice(&self, offset: usize, octets: u32) -> Slice {
        Slice { stag: self.stag(), to: self.to(offset), octets }
    }

    /// What a peer must know to write to octets `offset..offset + octets`; `None` when they are not all registered.
    pub fn advertisement(&self, offset: usize, octets: u32) -> Option<Advertisement> {
        let (first, registered) = self.range;
        let end = offset.checked_add(octets as usize)?;
        let inside = first <= offset && end <= first.checked_add(registered)?;
        inside.then(|| Advertisement { to: self.to(offset), stag: self.stag(), octets })
    }

    /// What to post to register octets `offset..offset + octets` of the memory anew, under another name, which
    /// [`stag`](Self::stag) gives from now on: the last one must have been invalidated by then, by either end. It is valid when
    /// the work request is done; what is posted behind it on the same queue pair comes after that.
    ///
    /// `access` is no more than at first. [`Sharing`] says whether other queue pairs may use it too; if not, it ends with
    /// the one that the work request is posted to.
    #[must_use = "it is a part of a work request"]
    pub fn fast_registration(
        &mut self,
        (offset, octets): (usize, usize),
        access: Access,
        addressing: Addressing,
        sharing: Sharing,
    ) -> FastRegistration {
        let stag = self.registered.rename();
        let base_to = match addressing {
            Addressing::Address => self.region.address().wrapping_add(offset as u64),
            Addressing::ZeroBased => 0,
        };
        self.range = (offset, octets);
        self.origin_to = base_to.wrapping_sub(offset as u64);
        let all_streams = sharing == Sharing::AllStreams;
        FastRegistration { stag, offset: offset as u64, octets: octets as u64, base_to, access, all_streams }
    }

    /// Copies `source` to octet `offset`. `false`, and nothing written, when it does not fit or the memory is
    /// constant.
    #[must_use]
    pub fn write(&self, offset: usize, source: &[u8]) -> bool {
        self.region.write(offset, source)
    }

    /// Copies from octet `offset` to `target`. `false`, and `target` unchanged, when there are not as many.
    #[must_use]
    pub fn read(&self, offset: usize, target: &mut [u8]) -> bool {
        self.region.read(offset, target)
    }

    /// A copy of `octets` octets from `offset`; `None` when there are not as many.
    pub fn to_vec(&self, offset: usize, octets: usize) -> Option<Vec<u8>> {
        if !self.region.contains(offset, octets) {
            return None;
        }
        let mut copy = vec![0; octets];
        self.read(offset, &mut copy).then_some(copy)
    }

    /// Writes `value` to every octet, unless the memory is constant.
    pub fn fill(&self, value: u8) {
        const CHUNK_OCTETS: usize = 4096;
        let chunk = [value; CHUNK_OCTETS];
        for offset in (0..self.len()).step_by(CHUNK_OCTETS) {
            let octets = CHUNK_OCTETS.min(self.len() - offset);
            let written = self.write(offset, &chunk[..octets]);
            debug_assert!(written || self.region.is_constant(), "inside by construction");
        }
    }

    /// Takes the memory back: afterwards no core reaches it and its STag names nothing (DDP-8.3.1-07). Tries for
    /// `patience` while sends read from it or windows are bound to it.
    ///
    /// A drop does the same with a wait of at most 100 ms; the rest happens behind its back, and the memory itself stays
    /// until then.
    ///
    /// # Errors
    ///
    /// [`DeregisterError`], with the memory, which is still registered.
    pub fn deregister(mut self, patience: Duration) -> Result<(), DeregisterError> {
        match self.registered.leave(patience) {
            Deregistration::Done => Ok(()),
            Deregistration::InUse => Err(DeregisterError::InUse(self)),
            Deregistration::WindowsBound => Err(DeregisterError::WindowsBound(self)),
            Deregistration::Unanswered => Err(DeregisterError::Unanswered(self)),
        }
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("stag", &self.stag())
            .field("to", &self.to(self.range.0))
            .field("octets", &self.len())
            .finish_non_exhaustive()
    }
}
