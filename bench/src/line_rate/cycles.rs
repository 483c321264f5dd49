//! The clock of the benchmark.

/// Returns the processor's time-stamp counter; 0 where it has none that counts at one rate.
#[inline]
pub fn cycles() -> u64 {
    dpdk::time_stamp().unwrap_or(0)
}
