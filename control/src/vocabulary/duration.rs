//! Durations.

use std::time::Duration;

/// Returns a duration as the data plane counts it; what does not fit is as long as can be.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
