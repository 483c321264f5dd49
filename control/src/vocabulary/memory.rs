//! How memory is registered, and why not.

use warpline_dataplane::memory::InsertError;

use super::core_set::CoreSet;
use super::device::Stopped;

/// The origin of the Tagged Offsets of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Addressing {
    /// The address of the memory: what most users of RDMA expect, and what rping's advertisement calls it.
    #[default]
    Address,
    /// Zero: the peer does not learn where the memory lies.
    ZeroBased,
    /// This one: where the memory lies in whatever the peer knows, such as another process or a file.
    At(u64),
}

impl Addressing {
    /// Returns the Tagged Offset of the first byte of memory at `address`.
    pub(crate) const fn base_to(self, address: u64) -> u64 {
        match self {
            Self::Address => address,
            Self::ZeroBased => 0,
            Self::At(to) => to,
        }
    }
}

/// The origin of the Tagged Offsets of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WindowAddressing {
    /// That of the registration: both call a byte the same.
    #[default]
    AsRegistered,
    /// Zero: the peer does not learn where in the registration the window lies.
    ZeroBased,
}

/// Which queue pairs may use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All of its Protection Domain. No peer can invalidate it then.
    // Requirements: RDMAP-8.1.1-02
    AllStreams,
    /// One alone.
    OneStream,
}

/// Why memory could not be registered.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// There is no such memory.
    #[error(
        "no {len} bytes of memory to be had: ask for less (and more than 0), or give the EAL more \
        hugepages"
    )]
    OutOfMemory {
        /// Bytes asked for.
        len: usize,
    },
    /// The device has as many regions and windows as it can.
    #[error("the device has as many regions and windows as it can: deregister some")]
    TooManyRegions,
    /// The Protection Domain has its share of what the device can know.
    #[error("the protection domain has as many regions and windows as it may: deregister some (Quotas)")]
    Quota,
    /// The queue pair that alone is to reach the memory is of another Protection Domain.
    #[error("the queue pair is of another protection domain: no stream of it reaches memory of this one")]
    OtherDomain,
    /// The Tagged Offset after the last byte would be 2^64 or more.
    // Requirements: A-14
    #[error("the Tagged Offsets of the memory would wrap at 2^64: register less of it")]
    Wrap,
    /// The memory is constant ([`Region::freeze`](crate::Region::freeze)), and the rights asked for are to
    /// write to it.
    #[error("the memory is constant: register it without a right to write")]
    Constant,
    /// Cores did not answer in time. The memory is taken back.
    #[error("{0} did not answer: the device's threads have too little time")]
    Unanswered(CoreSet),
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl MemoryError {
    /// Returns why a core refused a registration.
    pub(crate) const fn of_insert(error: InsertError) -> Self {
        match error {
            InsertError::NoSlot => Self::TooManyRegions,
            InsertError::Wrap => Self::Wrap,
            InsertError::Constant => Self::Constant,
        }
    }
}
