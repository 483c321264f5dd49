//! Memory that packet buffers carry by reference.

use core::ffi::c_void;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU16, Ordering, fence};

use dpdk_sys as sys;

use crate::huge::{DeviceAddresses, HugeRegion};
use crate::mbuf::Mbuf;

/// A span of memory that frames may carry by reference ([`Mbuf::append_external`]).
///
/// The owner of the memory is kept alive by this handle and by every piece attached to it; the last of them
/// to go, on whatever thread, releases it. Attaching allocates nothing: all attachments share one count.
///
/// # What readers see
///
/// The octets stay the owner's, but pieces of frames expose them as slices, and a device reads them when it
/// sends the frame, not when it takes it. So no code may write to them while there are
/// [`attachments`](Self::attachments). Writing takes the raw pointer and `unsafe`: the writer is responsible
/// for this.
pub struct ExternalBuffer {
    shared: NonNull<Shared>,
}

/// The state that the handle and the attachments share; the count in `info` is their number.
struct Shared {
    info: sys::rte_mbuf_ext_shared_info,
    start: NonNull<u8>,
    octets: usize,
    addresses: DeviceAddresses,
    release: Option<Box<dyn FnOnce() + Send>>,
}

// SAFETY: everything in `Shared` but the count is constant until the last holder drops it; the count is
// atomic, and what is released may be sent.
unsafe impl Send for ExternalBuffer {}
// SAFETY: as for `Send`; `attach` changes only the count.
unsafe impl Sync for ExternalBuffer {}

impl ExternalBuffer {
    /// Attachments alive at a time. DPDK counts them in 16 bits; the distance to their end is more than the
    /// threads that can be past the count and not yet back.
    const ATTACHMENTS_MAX: u16 = 60_000;

    /// Returns a buffer over hugepage memory, which every device reaches.
    pub fn of_region(region: HugeRegion) -> Self {
        let (start, octets, addresses) = (region.start(), region.octets(), region.device_addresses());
        // SAFETY: the span is the region's, which the closure keeps until it is dropped.
        unsafe { Self::with_addresses(start, octets, addresses, Box::new(move || drop(region))) }
    }

    /// Returns a buffer over memory of any kind. `release` is called once when neither the handle nor an
    /// attachment is left, on the thread that dropped the last; it must not panic.
    ///
    /// # Safety
    ///
    /// Until `release` is called, `start` must point to `octets` initialised octets that any thread may read,
    /// and that no code writes to while frames refer to them. Frames with an attachment may only be sent to
    /// ports that reach the memory at its virtual address: none that does DMA, unless the memory was
    /// registered for it.
    pub unsafe fn from_raw_parts(
        start: NonNull<u8>,
        octets: usize,
        release: impl FnOnce() + Send + 'static,
    ) -> Self {
        // SAFETY: passed on to the caller.
        unsafe { Self::with_addresses(start, octets, DeviceAddresses::Virtual, Box::new(release)) }
    }

    /// # Safety
    ///
    /// As for [`from_raw_parts`](Self::from_raw_parts), with `addresses` those at which devices reach the
    /// span.
    unsafe fn with_addresses(
        start: NonNull<u8>,
        octets: usize,
        addresses: DeviceAddresses,
        release: Box<dyn FnOnce() + Send>,
    ) -> Self {
        let info = sys::rte_mbuf_ext_shared_info {
            free_cb: Some(released_by_mbuf),
            fcb_opaque: ptr::null_mut(),
            // The handle's own.
            refcnt: 1,
        };
        let shared =
            Box::into_raw(Box::new(Shared { info, start, octets, addresses, release: Some(release) }));
        // SAFETY: the pointer comes from a box that was just consumed.
        unsafe {
            (*shared).info.fcb_opaque = shared.cast();
            Self { shared: NonNull::new_unchecked(shared) }
        }
    }

    /// Returns the first octet.
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: the handle counts, so `shared` is alive; the member is constant.
        unsafe { (*self.shared.as_ptr()).start }
    }

    /// Returns the octets in the span.
    pub fn octets(&self) -> usize {
        // SAFETY: as in `start`.
        unsafe { (*self.shared.as_ptr()).octets }
    }

    /// Pieces attached at this moment.
    pub fn attachments(&self) -> usize {
        usize::from(self.count().load(Ordering::Relaxed)).saturating_sub(1)
    }

    /// Makes `piece`, a single empty buffer, refer to `octets` octets from `offset`; `false` when it cannot.
    #[inline]
    pub(crate) fn attach(&self, piece: &Mbuf, offset: usize, octets: usize) -> bool {
        let shared = self.shared.as_ptr();
        let Ok(length) = u16::try_from(octets) else {
            return false;
        };
        // SAFETY: the handle counts, so `shared` is alive; these members are constant.
        let (start, all, addresses) = unsafe { ((*shared).start, (*shared).octets, &(*shared).addresses) };
        if offset.checked_add(octets).is_none_or(|end| end > all) {
            return false;
        }
        // SAFETY: the range was just checked to lie inside the span.
        let start = unsafe { start.add(offset) };
        let Some(address) = addresses.of_range(start, offset, octets) else {
            return false;
        };
        // An increment by itself orders nothing: the handle keeps the span alive throughout.
        if self.count().fetch_add(1, Ordering::Relaxed) >= Self::ATTACHMENTS_MAX {
            self.count().fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let mbuf = piece.as_ptr();
        // SAFETY: `piece` is a fresh buffer of its own, owned by the caller. The span outlives the
        // attachment, which has just been counted; freeing the buffer takes the count back.
        unsafe {
            let info = &raw mut (*shared).info;
            sys::inlined_rte_pktmbuf_attach_extbuf(mbuf, start.as_ptr().cast(), address, length, info);
            (*mbuf).data_len = length;
            (*mbuf).pkt_len = u32::from(length);
        }
        true
    }

    #[inline]
    fn count(&self) -> &AtomicU16 {
        // SAFETY: `shared` is alive while the handle is, and the count is only ever accessed atomically: by
        // us here, by DPDK when an attachment goes.
        unsafe { AtomicU16::from_ptr(&raw mut (*self.shared.as_ptr()).info.refcnt) }
    }
}

impl Drop for ExternalBuffer {
    fn drop(&mut self) {
        if self.count().fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the count has reached 0 by our own decrement.
            unsafe { release(self.shared.as_ptr()) };
        }
    }
}

impl fmt::Debug for ExternalBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalBuffer")
            .field("start", &self.start())
            .field("octets", &self.octets())
            .field("attachments", &self.attachments())
            .finish()
    }
}

/// Releases the buffer: DPDK calls this when the last attachment is dropped after the handle.
unsafe extern "C" fn released_by_mbuf(_: *mut c_void, shared: *mut c_void) {
    // DPDK reads a count of 1 without ordering and takes it for its own.
    fence(Ordering::Acquire);
    // SAFETY: `shared` is what the constructor stored, and DPDK brought the count to 0.
    unsafe { release(shared.cast()) };
}

/// # Safety
///
/// The count of `shared` must have reached 0 by the caller's doing.
unsafe fn release(shared: *mut Shared) {
    // SAFETY: the pointer comes from `Box::into_raw`, and no holder is left.
    let mut shared = unsafe { Box::from_raw(shared) };
    if let Some(release) = shared.release.take() {
        release();
    }
}
