//! A count for tests: how many connections, queue pairs and their timers the cores of a thread look at. It
//! shows, without a clock, that no poll looks at all of them.

#[cfg(feature = "testing")]
use core::cell::Cell;

#[cfg(feature = "testing")]
thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// Records that `count` of them are looked at. Without the feature `testing` it does nothing.
#[inline]
pub(crate) fn record(count: u64) {
    #[cfg(feature = "testing")]
    VISITS.set(VISITS.get() + count);
    #[cfg(not(feature = "testing"))]
    let _ = count;
}

/// Returns how many the cores of this thread have looked at.
#[cfg(feature = "testing")]
pub(crate) fn recorded() -> u64 {
    VISITS.get()
}
