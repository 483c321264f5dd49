//! Durations.

use std::time::Duration;

/// Returns a duration as the data plane counts it; a duration that does not fit becomes the longest possible.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
