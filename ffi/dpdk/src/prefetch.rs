//! Hints for the processor's caches.

use dpdk_sys as sys;

use crate::mbuf::Mbuf;

/// Cache lines of 64 octets, which all processors of DPDK's have but a few.
const LINE_OCTETS: usize = 64;
/// Lines of the structure that describes a frame.
const HEAD_LINES: usize = size_of::<sys::rte_mbuf>() / LINE_OCTETS;
/// The line where the octets of a frame begin.
const DATA_LINE: usize = HEAD_LINES + sys::RTE_PKTMBUF_HEADROOM as usize / LINE_OCTETS;
/// Lines of a frame with a payload of 64 octets.
const SHORT_LINES: usize = 3;

impl Mbuf {
    /// Has the processor fetch what describes the frame.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_line(self.as_ptr().cast_const().cast());
    }

    /// Has the processor fetch what is written first to an empty frame: what describes it, and the lines that
    /// the headers and a short payload go to.
    #[inline]
    pub fn prefetch_empty(&mut self) {
        for line in 1..HEAD_LINES {
            prefetch_line_for_write(self.line(line));
        }
        for line in 0..SHORT_LINES {
            prefetch_line_for_write(self.line(DATA_LINE + line));
        }
    }

    /// Has the processor fetch what is read first of a frame that another processor has sent. The octets lie
    /// where they do in every frame of one buffer that begins where it was allocated; for other frames the
    /// hint is of no use, and does no harm.
    #[inline]
    pub(crate) fn prefetch_arrived(&self) {
        for line in 0..HEAD_LINES {
            prefetch_line(self.line(line));
        }
        for line in 0..SHORT_LINES {
            prefetch_line(self.line(DATA_LINE + line));
        }
    }

    /// Returns the address of a cache line of the buffer, which has at least as many.
    #[inline]
    fn line(&self, line: usize) -> *const u8 {
        self.as_ptr().cast_const().cast::<u8>().wrapping_add(line * LINE_OCTETS)
    }
}

/// Has the processor fetch the first `lines` cache lines of `octets`.
#[inline]
pub fn prefetch(octets: &[u8], lines: usize) {
    octets.iter().step_by(LINE_OCTETS).take(lines).for_each(|octet| prefetch_line(octet));
}

/// Has the processor fetch the first `lines` cache lines of `octets`, to write to them: other processors
/// lose theirs.
#[inline]
pub fn prefetch_for_write(octets: &mut [u8], lines: usize) {
    octets.iter_mut().step_by(LINE_OCTETS).take(lines).for_each(|octet| prefetch_line_for_write(octet));
}

#[inline]
fn prefetch_line_for_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which accesses no memory as far as the program is concerned. Processors of 64 bits
    // that do not have the instruction ignore it.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[inline]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which accesses no memory as far as the program is concerned.
    unsafe {
        core::arch::x86_64::_mm_prefetch(address.cast(), core::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
