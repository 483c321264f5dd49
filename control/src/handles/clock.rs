//! The clock of all devices of this process.

use std::sync::LazyLock;

use warpline_dataplane::time::Instant;

use crate::vocabulary::duration::nanos;

/// The origin of all [`Instant`]s of this process, so that devices on different cores agree on the time.
static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Returns the time as all devices of this process see it, from an origin of their own.
pub fn now() -> Instant {
    Instant::from_nanos(nanos(ORIGIN.elapsed()))
}
