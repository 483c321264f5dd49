//! Memory of the EAL for anything but packet buffers.

use core::fmt;
use core::ptr::{self, NonNull};

use dpdk_sys as sys;

use crate::eal::Eal;

/// The memory is not there.
#[derive(Debug, thiserror::Error)]
#[error(
    "{octets} bytes of EAL memory are not free: reserve more hugepages (vm.nr_hugepages) or, in ordinary \
    memory, give the EAL more at its start"
)]
pub struct HugeRegionError {
    octets: usize,
}

/// Zeroed memory of the EAL: hugepages, or ordinary pages where the EAL runs without. Devices reach it by
/// DMA. Freed on drop.
pub struct HugeRegion {
    start: NonNull<u8>,
    octets: usize,
}

// SAFETY: the span belongs to this value alone, and the EAL's heap may be used from any thread.
unsafe impl Send for HugeRegion {}
// SAFETY: as for `Send`; the value itself gives no access to the octets.
unsafe impl Sync for HugeRegion {}

impl HugeRegion {
    /// The alignment of regions: a page, so that none is shared between regions.
    pub const ALIGNMENT: usize = 4096;
    /// Octets that the EAL keeps in front of what it allocates (`MALLOC_ELEM_HEADER_LEN`).
    const HEADER_OCTETS: usize = 128;

    /// Allocates `octets` zero octets, of the memory of any NUMA node.
    ///
    /// # Errors
    ///
    /// [`HugeRegionError`] when memory is short or `octets` is 0.
    pub fn new(eal: Eal, octets: usize) -> Result<Self, HugeRegionError> {
        Self::near(eal, octets, None)
    }

    /// Allocates `octets` zero octets, of the memory of the NUMA node `node` if enough of it is free.
    ///
    /// # Errors
    ///
    /// [`HugeRegionError`] when memory is short or `octets` is 0.
    pub fn near(_: Eal, octets: usize, node: Option<u32>) -> Result<Self, HugeRegionError> {
        let asked = Self::octets_to_ask_for(octets).ok_or(HugeRegionError { octets })?;
        let allocate_on = |node| {
            // SAFETY: the EAL runs. A size of 0 returns null; the type is only a label, and may be null.
            let start = unsafe { sys::rte_zmalloc_socket(ptr::null(), asked, Self::ALIGNMENT as u32, node) };
            NonNull::new(start.cast())
        };
        let node = node.and_then(|node| i32::try_from(node).ok());
        let start = node.and_then(allocate_on).or_else(|| allocate_on(sys::SOCKET_ID_ANY));
        start.map(|start| Self { start, octets }).ok_or(HugeRegionError { octets })
    }

    /// Returns the octets of an allocation that reaches to where the header of the next region begins. The
    /// EAL's heap keeps what alignment leaves free between two allocations in a list, and looks through all
    /// of it for each: after some thousands of small regions an allocation would take a millisecond.
    fn octets_to_ask_for(octets: usize) -> Option<usize> {
        if octets == 0 {
            return Some(0);
        }
        let with_header = octets.checked_add(Self::HEADER_OCTETS)?;
        Some(with_header.checked_next_multiple_of(Self::ALIGNMENT)? - Self::HEADER_OCTETS)
    }

    /// Returns the first octet.
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the octets in the region.
    pub const fn octets(&self) -> usize {
        self.octets
    }

    /// Returns the addresses at which devices reach the region.
    pub(crate) fn device_addresses(&self) -> DeviceAddresses {
        // SAFETY: the EAL runs: a region exists.
        if unsafe { sys::rte_eal_iova_mode() } == sys::rte_iova_mode::RTE_IOVA_VA {
            return DeviceAddresses::Virtual;
        }
        // SAFETY: the address lies in EAL memory; a null list means to search all.
        let page = unsafe { sys::rte_mem_virt2memseg(self.start.as_ptr().cast(), ptr::null()).as_ref() };
        let Some(page_octets) = page.map(|page| page.hugepage_sz as usize).filter(|octets| *octets > 0)
        else {
            return DeviceAddresses::Paged { first_octets: 0, page_octets: 1, pages: Box::new([]) };
        };
        let into_page = self.start.as_ptr() as usize % page_octets;
        let pages = (0..(into_page + self.octets).div_ceil(page_octets))
            .map(|index| {
                let address = (self.start.as_ptr() as usize - into_page + index * page_octets) as *const _;
                // SAFETY: as above.
                unsafe { sys::rte_mem_virt2memseg(address, ptr::null()).as_ref() }
                    .map_or(sys::constant_RTE_BAD_IOVA, |page| page.iova)
            })
            .collect();
        DeviceAddresses::Paged { first_octets: into_page, page_octets, pages }
    }
}

impl Drop for HugeRegion {
    fn drop(&mut self) {
        // SAFETY: the span came from the EAL's heap and is freed once.
        unsafe { sys::rte_free(self.start.as_ptr().cast()) }
    }
}

impl fmt::Debug for HugeRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HugeRegion").field("start", &self.start).field("octets", &self.octets).finish()
    }
}

/// The addresses at which devices reach a span of memory.
pub(crate) enum DeviceAddresses {
    /// Those the CPU uses.
    Virtual,
    /// Physical ones: each page has its own.
    Paged {
        /// Octets of the first page before the span.
        first_octets: usize,
        /// Octets of a page.
        page_octets: usize,
        /// The address of each page.
        pages: Box<[u64]>,
    },
}

impl DeviceAddresses {
    /// Returns the address of the `octets` octets that lie at `offset` and, for the CPU, at `start`; `None`
    /// when a device does not reach them as one span.
    #[inline]
    pub(crate) fn of_range(&self, start: NonNull<u8>, offset: usize, octets: usize) -> Option<u64> {
        match self {
            Self::Virtual => Some(start.as_ptr() as u64),
            Self::Paged { first_octets, page_octets, pages } => {
                let position = first_octets + offset;
                let (page, into_page) = (position / page_octets, position % page_octets);
                let address = *pages.get(page)?;
                (address != sys::constant_RTE_BAD_IOVA && into_page + octets <= *page_octets)
                    .then(|| address + into_page as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that reads past the end of a physical page reads another process's memory.
    #[test]
    fn a_range_never_crosses_physical_pages() {
        let pages = Box::new([0x10_0000, 0x50_0000, sys::constant_RTE_BAD_IOVA]);
        let addresses = DeviceAddresses::Paged { first_octets: 100, page_octets: 1000, pages };
        let address = |offset, octets| addresses.of_range(NonNull::dangling(), offset, octets);
        assert_eq!(address(0, 900), Some(0x10_0000 + 100));
        assert_eq!(address(0, 901), None);
        assert_eq!(address(900, 1000), Some(0x50_0000));
        assert_eq!(address(1899, 2), None);
        assert_eq!(address(1900, 1), None, "a page no device reaches");
        assert_eq!(address(2900, 1), None, "past the last page");
    }
}
