//! Regions in hugepage memory, which frames can carry by reference.

use core::any::Any;
use core::ptr::NonNull;
use std::sync::Arc;

use dpdk::{Eal, ExternalBuffer, HugeRegion, HugeRegionError};

use super::{Backing, Region};

/// Zeroed hugepage memory. Once it is [constant](Region::freeze), frames can carry it. Frames that carry a
/// piece of it keep it in place after the last [`Region`] is gone.
#[derive(Debug)]
pub struct HugeBacking {
    // Holds the memory, and the one count that all references from frames share: a frame costs no allocation,
    // and a device needs no table of regions.
    buffer: ExternalBuffer,
}

impl HugeBacking {
    /// Returns `octets` zero octets, of the NUMA node `node` if it is given and has them.
    ///
    /// # Errors
    ///
    /// [`HugeRegionError`] when `octets` is 0 or memory is short.
    pub fn new(eal: Eal, octets: usize, node: Option<u32>) -> Result<Self, HugeRegionError> {
        Ok(Self { buffer: ExternalBuffer::of_region(HugeRegion::near(eal, octets, node)?) })
    }

    pub(crate) const fn external_buffer(&self) -> &ExternalBuffer {
        &self.buffer
    }
}

// SAFETY: the memory is zeroed when it is made, and `buffer` keeps it in place. Nobody reaches it but regions
// and the readers of frames that carry it, which only constant regions do.
#[allow(unsafe_code)]
unsafe impl Backing for HugeBacking {
    fn start(&self) -> NonNull<u8> {
        self.buffer.start()
    }

    fn octets(&self) -> usize {
        self.buffer.octets()
    }

    fn is_for_devices(&self) -> bool {
        true
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}

impl Region {
    /// A region of `octets` zero octets in hugepage memory (ordinary memory where the EAL runs without), page
    /// aligned.
    ///
    /// # Errors
    ///
    /// [`HugeRegionError`] when `octets` is 0 or memory is short.
    pub fn huge(eal: Eal, octets: usize) -> Result<Self, HugeRegionError> {
        Self::huge_near(eal, octets, None)
    }

    /// The same, of the memory of the NUMA node `node` while enough of it is free.
    ///
    /// # Errors
    ///
    /// [`HugeRegionError`] when `octets` is 0 or memory is short.
    pub fn huge_near(eal: Eal, octets: usize, node: Option<u32>) -> Result<Self, HugeRegionError> {
        Ok(Self::new(Arc::new(HugeBacking::new(eal, octets, node)?)))
    }
}
