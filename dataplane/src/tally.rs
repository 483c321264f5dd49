//! Counts for tests, of what the cores of a thread do. They show without a clock what a poll does not do.
//!
//! *Visits* are of connections, queue pairs, timers and STags: no poll looks at all of them. *Shared writes*
//! are to lines that other cores of the device use: of what is pushed into the rings between cores, of bursts
//! that are taken from those of frames to hand over, of the bits that announce what was pushed, and of claims
//! to STags. No other structure is written by several cores, except queues that an application shares among
//! them: cores with queues of their own write none for a message.

#[cfg(feature = "testing")]
use core::cell::Cell;

#[cfg(feature = "testing")]
thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
    static SHARED_WRITES: Cell<u64> = const { Cell::new(0) };
}

/// Records that `count` connections, queue pairs, timers or STags are looked at. Without `testing` it does
/// nothing.
#[inline]
pub(crate) fn record_visits(count: u64) {
    #[cfg(feature = "testing")]
    VISITS.set(VISITS.get() + count);
    #[cfg(not(feature = "testing"))]
    let _ = count;
}

/// Records a write to a line that another core uses. Without `testing` it does nothing.
#[inline]
pub(crate) fn record_shared_write() {
    #[cfg(feature = "testing")]
    SHARED_WRITES.set(SHARED_WRITES.get() + 1);
}

/// Returns how many visits the cores of this thread have made.
#[cfg(feature = "testing")]
pub(crate) fn visits() -> u64 {
    VISITS.get()
}

/// Returns how many shared writes the cores of this thread have made.
#[cfg(feature = "testing")]
pub(crate) fn shared_writes() -> u64 {
    SHARED_WRITES.get()
}
