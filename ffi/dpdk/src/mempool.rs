//! Pools of packet buffers.

use core::ffi::{c_uint, c_void};
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering, fence};
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dpdk_sys as sys;

use crate::eal::Eal;
use crate::errno::Errno;
use crate::mbuf::Mbuf;

/// The shape of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MempoolConfig {
    /// Buffers in the pool. A power of two less one wastes no memory.
    pub mbufs: u32,
    /// Octets of frame a buffer takes, not counting the headroom before them. At most 65407.
    pub data_octets: u16,
    /// Buffers each registered thread may cache; cut to what the pool's size allows (two thirds of it).
    pub cache_mbufs: u32,
    /// The NUMA node whose memory the pool is made of, if enough of it is free; any memory else.
    pub node: Option<u32>,
}

impl Default for MempoolConfig {
    /// Returns 8191 buffers of 2048 octets in any memory, 256 at hand.
    fn default() -> Self {
        Self { mbufs: 8191, data_octets: 2048, cache_mbufs: 256, node: None }
    }
}

/// A pool could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MempoolError {
    /// The memory is not there.
    #[error(
        "no memory for {mbufs} buffers of {data_octets} bytes: {errno}; reserve more hugepages \
        (vm.nr_hugepages), give the EAL more memory, or make the pool smaller"
    )]
    Memory {
        /// Buffers asked for.
        mbufs: u32,
        /// Octets of each.
        data_octets: u16,
        /// DPDK's reason.
        errno: Errno,
    },
    /// A buffer cannot be that large.
    #[error("a buffer takes at most {most} bytes, not {asked}")]
    DataOctets {
        /// Octets asked for.
        asked: u16,
        /// The largest number that works.
        most: u16,
    },
    /// DPDK refused.
    #[error(
        "the pool could not be made: {0}; if the pool operations are missing, install the plug-in \
         (package librte-mempool-ring23)"
    )]
    Refused(Errno),
}

/// A pool of packet buffers, shared by its clones.
///
/// It is freed with its last handle if every buffer is back then, in the pool or in the cache of the thread
/// that drops it. Else it stays until they are, for a buffer elsewhere may be in use this very moment: it is
/// looked at again when a registered thread ends, whose caches are given back, when another pool goes, and
/// before one is made.
#[derive(Clone)]
pub struct Mempool {
    inner: Arc<Inner>,
}

/// A pool without a handle.
struct Orphan {
    raw: NonNull<sys::rte_mempool>,
    mbufs: u32,
}

// SAFETY: a pool belongs to no thread.
unsafe impl Send for Orphan {}

impl Orphan {
    /// Frees the pool if every buffer is back, or in the cache of the calling thread; returns false if not.
    /// The caller holds the lock on [`ORPHANS`].
    fn free(&self) -> bool {
        let raw = self.raw.as_ptr();
        // SAFETY: the pool lives, for only this frees it, and the cache flushed is the calling thread's own.
        unsafe { sys::inlined_rte_mempool_cache_flush(raw) };
        // SAFETY: the pool lives.
        let home = unsafe { sys::inlined_rte_mempool_common_count(raw) };
        if home != self.mbufs {
            return false;
        }
        // Every buffer is in the pool's ring, whose count rises as the last act of giving one back: no thread
        // is still inside the pool. Only a thread that gives its cache back writes to it after that, with the
        // lock held. This pairs with the ring's release of its tail.
        fence(Ordering::Acquire);
        // SAFETY: no handle is left and, by the count, no buffer either, so no code can reach the pool any
        // more but walks over all pools, which hold the lock.
        unsafe { sys::rte_mempool_free(raw) };
        true
    }
}

/// Pools whose last handle has gone before their last buffer was back. Locked also while pools are made and
/// freed, and while a thread walks over them: DPDK's own walk holds another lock than those that it frees
/// pools under.
static ORPHANS: Mutex<Vec<Orphan>> = Mutex::new(Vec::new());

/// Locks the list of pools without a handle, and with that the pools that there are.
fn lock_pools() -> MutexGuard<'static, Vec<Orphan>> {
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees the pools without a handle whose buffers are all back.
fn free_orphans(orphans: &mut Vec<Orphan>) {
    orphans.retain(|orphan| !orphan.free());
}

/// Gives the buffers in the caches of the calling thread back to all pools, and frees those that no handle
/// is left of.
pub(crate) fn flush_caches(_: Eal) {
    let mut orphans = lock_pools();
    // SAFETY: the EAL runs; the lock keeps pools from being freed, and the callback touches only the calling
    // thread's own caches.
    unsafe { sys::rte_mempool_walk(Some(flush_cache), ptr::null_mut()) };
    free_orphans(&mut orphans);
}

unsafe extern "C" fn flush_cache(pool: *mut sys::rte_mempool, _: *mut c_void) {
    // SAFETY: the walk passes live pools.
    unsafe { sys::inlined_rte_mempool_cache_flush(pool) }
}

struct Inner {
    raw: NonNull<sys::rte_mempool>,
    config: MempoolConfig,
}

// SAFETY: the pool's ring takes several producers and consumers, and its caches belong to one thread each.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`.
unsafe impl Sync for Inner {}

impl Mempool {
    const HEADROOM: u16 = sys::RTE_PKTMBUF_HEADROOM as u16;

    /// Makes a pool.
    ///
    /// # Errors
    ///
    /// [`MempoolError`].
    pub fn new(_: Eal, mut config: MempoolConfig) -> Result<Self, MempoolError> {
        static NEXT_NAME: AtomicUsize = AtomicUsize::new(0);
        let most = u16::MAX - Self::HEADROOM;
        if config.data_octets > most {
            return Err(MempoolError::DataOctets { asked: config.data_octets, most });
        }
        config.cache_mbufs =
            config.cache_mbufs.min(config.mbufs / 3 * 2).min(sys::RTE_MEMPOOL_CACHE_MAX_SIZE);
        let number = NEXT_NAME.fetch_add(1, Ordering::Relaxed);
        let name =
            CString::new(format!("mbufs-{number}")).map_err(|_| MempoolError::Refused(Errno::INVALID))?;
        let mut orphans = lock_pools();
        free_orphans(&mut orphans);
        let make_on = |node| {
            // SAFETY: the EAL runs, and the name lives through the call, which copies it. Every other value
            // is checked there.
            NonNull::new(unsafe {
                sys::rte_pktmbuf_pool_create(
                    name.as_ptr(),
                    config.mbufs,
                    config.cache_mbufs,
                    0,
                    config.data_octets + Self::HEADROOM,
                    node,
                )
            })
        };
        let node = config.node.and_then(|node| i32::try_from(node).ok());
        let on_node = node.and_then(make_on);
        config.node = config.node.filter(|_| on_node.is_some());
        let made = on_node.or_else(|| make_on(sys::SOCKET_ID_ANY));
        let Some(raw) = made else {
            let errno = Errno::last();
            return Err(if errno == Errno::OUT_OF_MEMORY {
                MempoolError::Memory { mbufs: config.mbufs, data_octets: config.data_octets, errno }
            } else {
                MempoolError::Refused(errno)
            });
        };
        Ok(Self { inner: Arc::new(Inner { raw, config }) })
    }

    /// Returns an empty buffer; `None` when none is free.
    #[inline]
    pub fn allocate(&self) -> Option<Mbuf> {
        // SAFETY: the pool lives (`self`).
        let raw = NonNull::new(unsafe { sys::inlined_rte_pktmbuf_alloc(self.as_ptr()) })?;
        // SAFETY: the buffer was just allocated and has no other owner.
        Some(unsafe { Mbuf::from_raw(raw) })
    }

    /// Appends `count` empty buffers to `mbufs`, or none: then it returns `false`.
    pub fn allocate_many(&self, mbufs: &mut Vec<Mbuf>, count: usize) -> bool {
        mbufs.reserve(count);
        let spare = mbufs.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: the pool lives (`self`), and there is room for `count` pointers at `spare`: an `Mbuf` is
        // one pointer.
        let result = unsafe { sys::inlined_rte_pktmbuf_alloc_bulk(self.as_ptr(), spare, count as c_uint) };
        if result != 0 {
            return false;
        }
        // SAFETY: all `count` elements have been written, each a buffer without another owner.
        unsafe { mbufs.set_len(mbufs.len() + count) };
        true
    }

    /// Buffers free, in the pool and in all caches. Walks the caches: not for the hot path.
    pub fn available(&self) -> usize {
        // SAFETY: the pool lives (`self`).
        unsafe { sys::rte_mempool_avail_count(self.as_ptr()) as usize }
    }

    /// Buffers in all.
    pub fn capacity(&self) -> usize {
        self.inner.config.mbufs as usize
    }

    /// Returns the octets of a frame that an empty buffer takes.
    pub fn data_octets(&self) -> usize {
        usize::from(self.inner.config.data_octets)
    }

    /// Returns the NUMA node whose memory it is made of; `None` if it may be of any.
    pub fn node(&self) -> Option<u32> {
        self.inner.config.node
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.inner.raw.as_ptr()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut orphans = lock_pools();
        orphans.push(Orphan { raw: self.raw, mbufs: self.config.mbufs });
        free_orphans(&mut orphans);
    }
}

impl fmt::Debug for Mempool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mempool").field("config", &self.inner.config).finish_non_exhaustive()
    }
}
