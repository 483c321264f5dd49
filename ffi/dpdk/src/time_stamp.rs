//! The processor's time-stamp counter, which DPDK's own timers count by too.

/// Returns the time-stamp counter, on processors where it runs at one rate whatever the CPU does, and the
/// same on all CPUs (an *invariant* counter); `None` elsewhere. It costs no system call, and a tenth of
/// reading a clock of the kernel without one.
///
/// What the rate is in nanoseconds, the caller has to find out. After a virtual machine has moved, the
/// counter may be another one.
#[inline]
pub fn time_stamp() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if is_invariant() {
        // SAFETY: x86-64 processors have the instruction; Linux does not forbid it to programs unless one
        // asks for that (`PR_SET_TSC`).
        return Some(unsafe { core::arch::x86_64::_rdtsc() });
    }
    None
}

/// Whether the processor says that its counter is invariant.
#[cfg(target_arch = "x86_64")]
#[inline]
fn is_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    use std::sync::LazyLock;

    /// Processor Name and Feature Identifiers (the largest extended leaf), Advanced Power Management.
    const EXTENDED: [u32; 2] = [0x8000_0000, 0x8000_0007];
    static IS_INVARIANT: LazyLock<bool> = LazyLock::new(|| {
        let [largest, power] = EXTENDED;
        __cpuid(largest).eax >= power && __cpuid(power).edx & 1 << 8 != 0
    });
    *IS_INVARIANT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_runs_backwards() {
        let mut before = time_stamp();
        for _ in 0..10_000 {
            let now = time_stamp();
            assert!(now >= before, "{before:?}, then {now:?}");
            before = now;
        }
    }
}
