//! Protection Domains and registered memory.

use std::sync::Arc;
use std::time::Duration;

use warpline_dataplane::memory::{Access, InsertError, ProtectionDomainId, Region, STag};
use warpline_dataplane::qp::work::Slice;

use crate::advertisement::Advertisement;
use crate::completion::CompletionQueue;
use crate::device::{Shared, Stopped};
use crate::queue_pair::{CreateError, QpConfig, QueuePair};
use crate::thread::request::{Deregistration, Request};

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
    /// The device knows as many regions as it can.
    #[error("the device has as many regions as it can: deregister some")]
    TooManyRegions,
    /// The Tagged Offset behind the last octet would be 2^64 or more.
    #[error("the Tagged Offsets of the memory would wrap at 2^64: register less of it")]
    Wrap,
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<InsertError> for MemoryError {
    fn from(error: InsertError) -> Self {
        match error {
            InsertError::NoSlot => Self::TooManyRegions,
            InsertError::Wrap => Self::Wrap,
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

/// Queue pairs and the memory they may reach (RFC 5041 §8.2). Clones are the same domain.
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
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn register(
        &self,
        region: Region,
        access: Access,
        addressing: Addressing,
    ) -> Result<MemoryRegion, MemoryError> {
        let (pd, memory) = (self.id, region.clone());
        let stag = self.shared.ask(|reply| Request::Register {
            region: memory,
            pd,
            access,
            addressing,
            reply,
        })??;
        Ok(MemoryRegion {
            shared: Some(self.shared.clone()),
            base_to: addressing.base_to(&region),
            region,
            stag,
        })
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
        QueuePair::new(self.shared.clone(), self.id, *config, completions)
    }
}

/// Registered memory: a peer reaches it by its STag, as far as its [`Access`] goes.
///
/// It is read and written by copy, as a device does; what it holds while a peer writes is not defined before a Delivery
/// (RFC 5040 §5.5). Dropping it deregisters it, see [`deregister`](Self::deregister).
pub struct MemoryRegion {
    /// `None` once it is deregistered.
    shared: Option<Arc<Shared>>,
    region: Region,
    base_to: u64,
    stag: STag,
}

impl MemoryRegion {
    /// How long a drop waits until no core reaches the memory.
    const DROP_WAIT: Duration = Duration::from_millis(100);

    /// Octets.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether there is no octet. There always is.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// Its name.
    pub const fn stag(&self) -> STag {
        self.stag
    }

    /// The Tagged Offset of octet `offset`.
    pub const fn to(&self, offset: usize) -> u64 {
        self.base_to.wrapping_add(offset as u64)
    }

    /// The memory itself, to share with others or to register again.
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Octets `offset..offset + octets`, for a work request. Whether they lie inside is checked when it is worked on.
    pub const fn slice(&self, offset: usize, octets: u32) -> Slice {
        Slice { stag: self.stag, to: self.to(offset), octets }
    }

    /// What a peer must know to write to octets `offset..offset + octets`; `None` when they do not all lie inside.
    pub fn advertisement(&self, offset: usize, octets: u32) -> Option<Advertisement> {
        let inside = self.region.contains(offset, octets as usize);
        inside.then(|| Advertisement { to: self.to(offset), stag: self.stag, octets })
    }

    /// Copies `source` to octet `offset`. `false`, and nothing written, when it does not fit.
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

    /// Writes `value` to every octet.
    pub fn fill(&self, value: u8) {
        const CHUNK_OCTETS: usize = 4096;
        let chunk = [value; CHUNK_OCTETS];
        for offset in (0..self.len()).step_by(CHUNK_OCTETS) {
            let octets = CHUNK_OCTETS.min(self.len() - offset);
            let written = self.write(offset, &chunk[..octets]);
            debug_assert!(written, "inside by construction");
        }
    }

    /// Takes the memory back: afterwards no core reaches it and its STag names nothing (DDP-8.3.1-07). Tries for
    /// `patience` while sends read from it.
    ///
    /// A drop does the same with a wait of at most 100 ms; the rest happens behind its back, and the memory itself stays
    /// until then.
    ///
    /// # Errors
    ///
    /// [`DeregisterError`], with the memory, which is still registered.
    pub fn deregister(mut self, patience: Duration) -> Result<(), DeregisterError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let (stag, patience) = (self.stag, Some(patience));
        match shared.ask(|reply| Request::Deregister { stag, patience, reply }) {
            // A stopped device has no core that reaches anything.
            Ok(Deregistration::Done) | Err(Stopped) => {
                self.shared = None;
                Ok(())
            }
            Ok(Deregistration::InUse) => Err(DeregisterError::InUse(self)),
            Ok(Deregistration::WindowsBound) => Err(DeregisterError::WindowsBound(self)),
            Ok(Deregistration::Unanswered) => Err(DeregisterError::Unanswered(self)),
        }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            let stag = self.stag;
            // Without a core there is nothing to wait for; with a slow one, control goes on alone.
            if let Ok(done) = shared.begin(|reply| Request::Deregister { stag, patience: None, reply }) {
                let _ = done.recv_timeout(Self::DROP_WAIT);
            }
        }
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("stag", &self.stag)
            .field("to", &self.base_to)
            .field("octets", &self.len())
            .finish_non_exhaustive()
    }
}
