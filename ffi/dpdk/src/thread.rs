//! Threads known to the EAL.

use core::marker::PhantomData;

use dpdk_sys as sys;

use crate::eal::Eal;
use crate::errno::Errno;
use crate::mempool;

/// The calling thread has no lcore number.
#[derive(Debug, thiserror::Error)]
#[error(
    "the EAL did not take the thread: {0}; it knows a fixed number of threads (128 unless built otherwise)"
)]
pub struct ThreadError(Errno);

/// While it lives, its thread is an lcore and has a cache before every [`Mempool`](crate::Mempool). Affinity
/// stays as it is.
pub struct RegisteredThread {
    eal: Eal,
    /// Whether this value made the thread an lcore; it may have been one.
    registered: bool,
    /// Stays on its thread.
    thread: PhantomData<*mut ()>,
}

impl Eal {
    /// Makes the calling thread an lcore, unless it is one.
    ///
    /// # Errors
    ///
    /// [`ThreadError`] when the EAL has no lcore number left.
    pub fn register_thread(self) -> Result<RegisteredThread, ThreadError> {
        // SAFETY: reads a thread-local number.
        let registered = u64::from(unsafe { sys::inlined_rte_lcore_id() }) == sys::constant_LCORE_ID_ANY;
        if registered {
            // SAFETY: the EAL runs (`self`), and this thread is not an lcore.
            Errno::check(unsafe { sys::rte_thread_register() }).map_err(ThreadError)?;
        }
        Ok(RegisteredThread { eal: self, registered, thread: PhantomData })
    }
}

impl Drop for RegisteredThread {
    fn drop(&mut self) {
        // The thread's caches outlive it, and the buffers in them would be lost to all other threads.
        mempool::flush_caches(self.eal);
        if self.registered {
            // SAFETY: this thread was registered by this value and is not yet unregistered.
            unsafe { sys::rte_thread_unregister() };
        }
    }
}
