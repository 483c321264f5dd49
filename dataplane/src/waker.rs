//! Wakes the thread that polls a core. A thread that has nothing to poll sleeps; a thread that then gives it
//! work wakes it. Giving work to a thread that is awake costs no system call.
//!
//! A core's thread sleeps after 50 microseconds without work, unless its application asked it to spin
//! (`Idle`). Before it sleeps it sets a flag and polls once more; a thread that then rings a doorbell, pushes
//! a command or puts frames on a link in memory reads the flag, and writes to the thread's eventfd only if it
//! is set. A fence at either side sees to it that one of them notices the other (the loom models try all
//! orders). The thread sleeps no longer than to the core's next deadline. At a DPDK port whose driver has
//! receive interrupts, the thread enables the interrupt of its queue together with that flag, before the last
//! poll, and then waits for its eventfd and for the port's descriptor; the interrupt is disabled again when
//! it wakes. Nothing is read from that descriptor. Most drivers never make theirs unreadable again, so its
//! edges are waited for through an epoll set; that of `net_tap` is the tap's own queue, readable as long as
//! frames wait. After an interrupt that no poll can explain, the thread looks from time to time, as below,
//! before it relies on the interrupt again: `net_tap` looks at its queue only after a signal, which may come
//! later, and the descriptor of a tap whose interface is gone stays readable.
//!
//! | Port | Frames wake a thread that sleeps |
//! |---|---|
//! | wire in memory, simulated link | at once, by the other end |
//! | packet sockets (`packet`) | at once: the descriptor of the socket is readable as long as frames wait |
//! | `net_tap`, `net_virtio_user` | by interrupt |
//! | PCI adapters | by interrupt, where driver and kernel (VFIO) offer it; untested |
//! | `net_af_packet`, `net_af_xdp`, `net_memif`, `net_ring`, `net_null` | no: their drivers in DPDK 22.11 have no such interrupt |
//! | `net_vhost` | no: its driver enables the interrupt of the peer it has, and a peer that connects later would not wake the thread |
//!
//! Where frames do not wake it, the thread looks for them after 50 microseconds, then after twice as long, up
//! to every millisecond. The control thread sleeps until a request, its own next deadline, or a poll of the
//! core that had an event or took a command: the core's driver unparks it after such a poll, which is a
//! system call only if it sleeps. The protocol core itself refers to neither thread.

use core::fmt;
use std::sync::Arc;

use crate::notify::Notify;
use crate::sync::{AtomicBool, Ordering, fence};

/// Wakes one thread, if it sleeps.
///
/// The thread calls [`arm`](Self::arm), polls everything once more, and sleeps if that found nothing. Others
/// put their work where the thread polls, and then call [`wake`](Self::wake). Both have a fence between what
/// they write and what they read: either the thread's last poll sees the work, or the other sees the flag and
/// notifies.
pub struct Waker {
    asleep: AtomicBool,
    notify: Arc<dyn Notify>,
}

impl Waker {
    /// Returns a waker that calls `notify`, which ends the thread's present sleep or the next one.
    pub fn new(notify: Arc<dyn Notify>) -> Self {
        Self { asleep: AtomicBool::new(false), notify }
    }

    /// Arms the waker before the polling thread sleeps: from now on the thread is notified. It must poll once
    /// more before it sleeps.
    pub fn arm(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Disarms the waker when the polling thread does not sleep, or no longer. A notification may still come.
    pub fn disarm(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Returns true if the thread sleeps, or is about to.
    pub fn is_armed(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Wakes the polling thread because another thread has work for it. Costs a fence and a load while the
    /// thread is awake, and a system call only if it sleeps.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        self.notify_if_asleep();
    }

    /// Wakes the polling thread as [`wake`](Self::wake) does, after a read-modify-write operation of order
    /// `SeqCst` that has made the work visible. It needs no fence: if the load below finds the thread awake,
    /// it comes before the fence of [`arm`](Self::arm) in the one order of all such operations and fences,
    /// and so does the operation before it, which the thread's last poll then sees.
    #[inline]
    pub(crate) fn wake_after_exchange(&self) {
        // The model has that one order for fences only.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        self.notify_if_asleep();
    }

    #[inline]
    fn notify_if_asleep(&self) {
        // Of several that find it asleep, one notifies.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::AcqRel) {
            self.notify.notify();
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU32;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Notify for Count {
        fn notify(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_a_sleeping_thread_is_notified_and_once() {
        let count = Arc::new(Count::default());
        let waker = Waker::new(count.clone());
        waker.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "it is awake");
        waker.arm();
        waker.wake();
        waker.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        waker.arm();
        waker.disarm();
        waker.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
