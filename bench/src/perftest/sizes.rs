//! Sizes of messages and of the memory that they go to, and how long a test takes.

/// Bytes of a region unless a message needs more or --region says so: sixteen times the 64 KiB that perftest
/// writes over and over.
pub const REGION_BYTES: u32 = 1 << 20;
/// Seconds for a size without --duration.
pub const SECONDS: u32 = 1;
/// Pings for a size without --iters: as many as perftest makes.
pub const PINGS: u64 = 1000;
/// Seconds between two lines of --run-infinitely: as perftest has it.
pub const INTERVAL_SECONDS: u32 = 5;

/// Returns the sizes of perftest's `-a`, in bytes.
pub fn sweep() -> Vec<u32> {
    (1..=23).map(|power| 1 << power).collect()
}
