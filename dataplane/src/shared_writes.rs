//! A count for tests: how often the cores of a thread write to lines that other cores of the device use. Such
//! lines are those of the rings between cores, of the bits that announce what is pushed into any of them, and
//! of claims to STags; no other structure is written by several cores, but queues that an application shares
//! among them. The count shows, without a clock, that cores with queues of their own write none of them for a
//! message.

#[cfg(feature = "testing")]
use core::cell::Cell;

#[cfg(feature = "testing")]
thread_local! {
    static WRITES: Cell<u64> = const { Cell::new(0) };
}

/// Records a write. Without the feature `testing` it does nothing.
#[inline]
pub(crate) fn record() {
    #[cfg(feature = "testing")]
    WRITES.set(WRITES.get() + 1);
}

/// Returns how many the cores of this thread have made.
#[cfg(feature = "testing")]
pub(crate) fn recorded() -> u64 {
    WRITES.get()
}
