//! The receive ring of a socket in memory that the kernel shares: its layout, the mapping, and the slots.
//!
//! A ring is made of blocks, each of which is contiguous in the kernel and holds whole slots. With slots of
//! 1664 octets, a block of 16,384 octets holds 9 of them, and its last 1408 octets are not used.
//!
//! The status word of a slot says who owns it. Its owner alone touches the rest of the slot, and passes it on
//! by a store with release order; the other finds that out by a load with acquire order.

use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::tpacket2_hdr;

use crate::error::PacketError;

/// The most slots of a ring.
pub(crate) const SLOTS_MAX: usize = 1 << 20;

/// Slots begin at multiples of a cache line. The kernel wants multiples of `TPACKET_ALIGNMENT`.
pub(crate) const SLOT_ALIGNMENT: usize = 64;

/// The largest block, unless a slot needs more. Beyond it, the kernel seldom finds contiguous memory.
const BLOCK_OCTETS: usize = 1 << 20;

const _: () = assert!(SLOT_ALIGNMENT.is_multiple_of(libc::TPACKET_ALIGNMENT));

/// How a ring is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    slot_octets: usize,
    block_octets: usize,
    blocks: usize,
}

impl Layout {
    /// Returns the layout of a ring with at least `slots` slots of at least `octets` octets each: 1 to
    /// [`SLOTS_MAX`] slots.
    pub(crate) fn new(octets: usize, slots: usize) -> Self {
        let slot_octets = octets.next_multiple_of(SLOT_ALIGNMENT);
        let page = page_octets();
        let mut block_octets = slot_octets.next_power_of_two().max(page);
        // Larger blocks until no more than an eighth of them is not used.
        while block_octets < BLOCK_OCTETS
            && block_octets / slot_octets < slots
            && block_octets % slot_octets > block_octets / 8
        {
            block_octets *= 2;
        }
        Self { slot_octets, block_octets, blocks: slots.div_ceil(block_octets / slot_octets) }
    }

    /// Returns the octets of the ring.
    const fn octets(&self) -> usize {
        self.block_octets * self.blocks
    }

    const fn block_slots(&self) -> usize {
        self.block_octets / self.slot_octets
    }

    /// Returns the layout in the kernel's form.
    pub(crate) const fn request(&self) -> libc::tpacket_req {
        libc::tpacket_req {
            tp_block_size: self.block_octets as u32,
            tp_block_nr: self.blocks as u32,
            tp_frame_size: self.slot_octets as u32,
            tp_frame_nr: (self.block_slots() * self.blocks) as u32,
        }
    }

    /// Returns the slots of a ring that begins at `start`.
    ///
    /// # Safety
    ///
    /// The ring is mapped there.
    unsafe fn slots(&self, start: NonNull<u8>) -> Box<[Slot]> {
        let offsets = (0..self.blocks).flat_map(|block| {
            (0..self.block_slots()).map(move |slot| block * self.block_octets + slot * self.slot_octets)
        });
        // SAFETY: every slot is inside its block, and that inside the ring.
        let slot_at = |offset| Slot { start: unsafe { start.add(offset) }, octets: self.slot_octets };
        offsets.map(slot_at).collect()
    }
}

fn page_octets() -> usize {
    // SAFETY: reads a constant of the system.
    let octets = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(octets).unwrap_or(4096)
}

/// The memory of a ring. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    octets: usize,
}

// SAFETY: memory of the process, not of a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the ring of `socket`, which has been given one of this layout, and returns its slots. They must
    /// not be used after the mapping has been dropped.
    ///
    /// # Errors
    ///
    /// That of the kernel.
    pub(crate) fn new(socket: BorrowedFd<'_>, layout: &Layout) -> Result<(Self, Box<[Slot]>), PacketError> {
        let octets = layout.octets();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the kernel chooses a range that nothing else uses.
        let start = unsafe { libc::mmap(ptr::null_mut(), octets, protection, flags, socket.as_raw_fd(), 0) };
        let start = match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => start,
            _ => return Err(PacketError::last("map the receive ring")),
        };
        // SAFETY: the ring is mapped there, blocks in their order.
        let slots = unsafe { layout.slots(start) };
        Ok((Self { start, octets }, slots))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping, and no slot is used any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.octets) };
    }
}

/// A slot of a ring. It begins with a header, whose first word is the status.
#[derive(Debug)]
pub(crate) struct Slot {
    start: NonNull<u8>,
    octets: usize,
}

// SAFETY: memory of the process, not of a thread. One thread at a time has the socket, so the slot.
unsafe impl Send for Slot {}

impl Slot {
    const fn header(&self) -> *mut tpacket2_hdr {
        // The slot begins at a multiple of SLOT_ALIGNMENT.
        self.start.as_ptr().cast()
    }

    /// Returns the status. What its owner before has written to the slot is visible afterwards.
    #[inline]
    pub(crate) fn status(&self) -> u32 {
        // SAFETY: the mapping lives, and the word is aligned; this process accesses it as an atomic only.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header()).tp_status) }.load(Ordering::Acquire)
    }

    /// Sets the status, which passes the slot on with all that this process has written to it. The caller
    /// owns the slot and has no reference into it.
    #[inline]
    pub(crate) fn set_status(&self, status: u32) {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header()).tp_status) }.store(status, Ordering::Release);
    }

    /// Returns what the kernel has noted on the frame in a slot of the receive ring.
    ///
    /// # Safety
    ///
    /// The caller owns the slot.
    #[inline]
    pub(crate) unsafe fn arrival(&self) -> Arrival {
        let header = self.header();
        // SAFETY: the mapping lives, and the kernel does not write to the slot while the caller owns it.
        unsafe {
            Arrival {
                frame_octets: (*header).tp_len as usize,
                captured_octets: (*header).tp_snaplen as usize,
                offset: usize::from((*header).tp_mac),
                vlan_tci: (*header).tp_vlan_tci,
                vlan_tpid: (*header).tp_vlan_tpid,
            }
        }
    }

    /// Returns octets of the slot, fewer or none if that many are not in it.
    ///
    /// # Safety
    ///
    /// The caller owns the slot for as long as it uses the result.
    #[inline]
    pub(crate) unsafe fn octets(&self, offset: usize, count: usize) -> &[u8] {
        let offset = offset.min(self.octets);
        let count = count.min(self.octets - offset);
        // SAFETY: the range is inside the slot, whose memory the kernel has initialised with zeros, and to
        // which nothing writes while the caller owns it.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(offset), count) }
    }
}

/// What the kernel has noted on a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Octets of the frame.
    pub(crate) frame_octets: usize,
    /// Octets of it in the slot.
    pub(crate) captured_octets: usize,
    /// Octets of the slot before the frame.
    pub(crate) offset: usize,
    pub(crate) vlan_tci: u16,
    pub(crate) vlan_tpid: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_waste_little_and_suit_the_kernel() {
        let page = page_octets();
        for octets in (100..70_000).step_by(61) {
            for slots in [1, 2, 7, 256, 4096] {
                let layout = Layout::new(octets, slots);
                let request = layout.request();
                let (block, slot) = (request.tp_block_size as usize, request.tp_frame_size as usize);
                assert!(block.is_power_of_two() && block.is_multiple_of(page));
                assert!(slot >= octets && slot.is_multiple_of(libc::TPACKET_ALIGNMENT));
                assert_eq!(request.tp_frame_nr, (block / slot) as u32 * request.tp_block_nr);
                let room = request.tp_frame_nr as usize;
                // No more blocks than it takes.
                assert!((slots..slots + block / slot).contains(&room), "{octets} {slots}: {layout:?}");
                let wasted = block % slot;
                let has_one_block = request.tp_block_nr == 1;
                assert!(wasted <= block / 8 || has_one_block, "{octets} {slots}: {layout:?}");
            }
        }
    }

    #[test]
    fn slots_stay_apart_and_inside_their_blocks() {
        let layout = Layout::new(1608, 100);
        let mut memory = vec![0_u8; layout.octets()];
        let start = NonNull::from(&mut memory[0]);
        // SAFETY: the memory is as large as the ring, and nothing is read or written.
        let slots = unsafe { layout.slots(start) };
        assert_eq!(slots.len(), layout.request().tp_frame_nr as usize);
        let offset = |slot: &Slot| slot.start.as_ptr() as usize - start.as_ptr() as usize;
        for pair in slots.windows(2) {
            assert!(offset(&pair[1]) >= offset(&pair[0]) + layout.slot_octets);
        }
        for slot in &slots {
            let in_block = offset(slot) % layout.block_octets;
            assert!(in_block + layout.slot_octets <= layout.block_octets);
        }
    }
}
