//! Sizes of messages, of the regions they are written to, and of rounds.

use std::time::Duration;

/// Bytes of a region unless a message needs more: sixteen times the 64 KiB that perftest writes over and
/// over, and all of them compared after each round.
const REGION_BYTES: usize = 1 << 20;
/// Most messages of a round.
pub const ROUND_MESSAGES: usize = 65_536;
/// Seconds for a size without --duration.
pub const SECONDS: u32 = 1;
/// How long the other end may take to answer.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the bytes of the buffer that messages of `size` bytes are written to.
pub fn region_bytes(size: u32) -> usize {
    REGION_BYTES.max(size as usize)
}

/// Returns the sizes of perftest's `-a`, in bytes.
pub fn sweep() -> Vec<u32> {
    (1..=23).map(|power| 1 << power).collect()
}
