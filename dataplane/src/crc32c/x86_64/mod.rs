//! Kernels for x86-64. That of AVX-512 is compiled three times: to sum bytes, to sum and copy them, and to
//! sum and copy bytes that others may write at the same time. The others only sum.

#![allow(unsafe_code)]

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod crc_instruction;
mod multipliers;

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_mov_epi8, _mm512_storeu_si512,
};

/// A pass over the source. A kernel takes each byte that it sums from the register that it stores, so the CRC
/// is that of the copy, whatever happens to the source meanwhile.
pub(super) trait Pass {
    /// Whether the bytes are stored to the target.
    const COPIES: bool;
    /// Whether others may write the source meanwhile: it is then loaded by assembly only, see `memory::copy`.
    /// A byte that is loaded twice may differ. The later one is stored over the earlier, and only one of
    /// them, the later, is summed.
    const SHARED: bool;
    /// From this many bytes on, blocks of 64 bytes are aligned in memory: in the target of a copy, whose
    /// stores take twice as long otherwise, and in the source of a sum too long for the first cache.
    const ALIGNED_MIN_LEN: usize = if Self::COPIES { 1024 } else { 16_384 };

    /// Returns the address to be aligned.
    #[inline]
    fn aligned_address(spans: Spans) -> usize {
        if Self::COPIES { spans.target.addr() } else { spans.source.addr() }
    }
}

/// Sums, and does not use the target.
pub(super) struct Sum;

impl Pass for Sum {
    const COPIES: bool = false;
    const SHARED: bool = false;
}

/// Sums and copies.
pub(super) struct Copy;

impl Pass for Copy {
    const COPIES: bool = true;
    const SHARED: bool = false;
}

/// Sums and copies what others may write at the same time.
pub(super) struct CopyShared;

impl Pass for CopyShared {
    const COPIES: bool = true;
    const SHARED: bool = true;
}

/// Where a kernel reads and writes.
///
/// All functions that take one require that the source is valid for reads of as many bytes as they take, and,
/// if the pass copies, the target for writes of as many. The two must not overlap. Unless the pass is for
/// shared sources, nobody may write the source meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Spans {
    pub(super) source: *const u8,
    /// Not used unless the pass copies.
    pub(super) target: *mut u8,
}

impl Spans {
    /// Returns the spans from `bytes` bytes after their starts on.
    #[inline]
    fn after(self, bytes: usize) -> Self {
        // Wrapping, because a target that is not used may be anything.
        Self { source: self.source.wrapping_add(bytes), target: self.target.wrapping_add(bytes) }
    }
}

/// Defines a function that takes an unsigned integer.
macro_rules! take {
    ($name:ident, $integer:ty, $move:literal, $class:ident) => {
        /// Takes the bytes at `at` as a little-endian number.
        ///
        /// # Safety
        ///
        /// See [`Spans`].
        #[inline]
        unsafe fn $name<P: Pass>(spans: Spans, at: usize) -> $integer {
            let Spans { source, target } = spans.after(at);
            let value: $integer;
            if P::SHARED {
                // SAFETY: the caller's promise. The assembly stands for one relaxed atomic load of each byte.
                unsafe {
                    asm!(
                        $move,
                        value = lateout($class) value, source = in(reg) source,
                        options(nostack, preserves_flags, readonly),
                    );
                }
            } else {
                // SAFETY: the caller's promise.
                value = unsafe { source.cast::<$integer>().read_unaligned() };
            }
            if P::COPIES {
                // SAFETY: the caller's promise.
                unsafe { target.cast::<$integer>().write_unaligned(value) };
            }
            value
        }
    };
}

take!(take_8, u64, "mov {value}, qword ptr [{source}]", reg);
take!(take_4, u32, "mov {value:e}, dword ptr [{source}]", reg);
take!(take_1, u8, "mov {value}, byte ptr [{source}]", reg_byte);

/// Loads the 64 bytes at `AT`.
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_64<P: Pass, const AT: usize>(source: *const u8) -> __m512i {
    if !P::SHARED {
        // SAFETY: the caller's promise.
        return unsafe { _mm512_loadu_si512(source.wrapping_add(AT).cast()) };
    }
    let value: __m512i;
    // SAFETY: the caller's promise. The assembly stands for one relaxed atomic load of each byte.
    unsafe {
        asm!(
            "vmovdqu64 {value}, zmmword ptr [{source} + {at}]",
            value = lateout(zmm_reg) value, source = in(reg) source, at = const AT,
            options(nostack, preserves_flags, readonly),
        );
    }
    value
}

/// Takes the 64 bytes at `AT`.
///
/// # Safety
///
/// See [`Spans`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn take_64<P: Pass, const AT: usize>(spans: Spans) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let value = load_64::<P, AT>(spans.source);
        if P::COPIES {
            _mm512_storeu_si512(spans.target.wrapping_add(AT).cast(), value);
        }
        value
    }
}

/// Takes the last `len` of 64 bytes, 1 to 63. The result has zeros for the others.
///
/// # Safety
///
/// See [`Spans`]. The other bytes are loaded as well, but not stored.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn take_end_of_64<P: Pass>(spans: Spans, len: usize) -> __m512i {
    debug_assert!((1..64).contains(&len));
    let mask = u64::MAX << (64 - len);
    // SAFETY: the caller's promise.
    unsafe {
        let value = _mm512_maskz_mov_epi8(mask, load_64::<P, 0>(spans.source));
        if P::COPIES {
            _mm512_mask_storeu_epi8(spans.target.cast(), mask, value);
        }
        value
    }
}
