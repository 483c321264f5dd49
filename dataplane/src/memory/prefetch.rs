//! Prefetch: the processor fetches cache lines that are needed soon, while it does something else.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Has the processor fetch the cache lines of `value`.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    // The last byte may lie in a line of its own, where the value does not begin one.
    let last = size_of::<T>().saturating_sub(1);
    for at in (0..last).step_by(LINE_BYTES).chain([last]) {
        fetch_line(core::ptr::from_ref(value).cast::<u8>().wrapping_add(at));
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
#[inline]
fn fetch_line(line: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: The instruction is a hint: it accesses no memory that the program could observe, and faults at
    // no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn fetch_line(line: *const u8) {
    let _ = line;
}
