//! The processor's time stamp counter.

/// Returns the time stamp counter, which all processors of a machine share and which counts at a constant
/// rate. Where there is none, returns 0.
#[inline]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of every x86-64 processor, and user space may execute it: DPDK, whose
    // clock it is, would not run else.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}
