//! Durations as the data plane and TCP count them.

use std::time::Duration;

/// Returns a duration as the data plane counts it; a duration that does not fit becomes the longest possible.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the milliseconds of a duration, at least one.
pub(crate) fn whole_milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).max(1)
}
