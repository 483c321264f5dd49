//! Copies between private memory and memory that others read and write at the same time.
//!
//! A region is shared: applications, cores and, through them, peers reach it, and nothing orders a copy
//! against the others. To Rust a plain copy that races with a write is undefined behaviour, whatever is done
//! with the octets. The copies here are not plain:
//!
//! - On `x86_64` they are assembly. To the compiler such a block is foreign code, which stands for what a
//!   Rust program could have done in its place: here, for one relaxed atomic access of each octet, some of
//!   them more than once. That may race with others of its kind. It is as fast as `memcpy`, which no loop
//!   over atomics is, as compilers do not vectorise those.
//! - Elsewhere, and under the thread sanitizer (`--cfg portable_copies`), which does not look into assembly,
//!   they are relaxed atomic accesses of whole words, and of single octets at both ends: three to six times
//!   slower in cache.
//!
//! No Rust reference to the octets of a region is made unless the region is constant.
//!
//! Racing accesses of different sizes, of a word and of one of its octets, or of an octet and of the 64 bits
//! of [`Region::fetch_modify`](super::Region::fetch_modify), have no meaning in Rust's model yet. What is
//! assumed of them is what coherent caches give: each octet read is one that was written there. Volatile
//! accesses, the usual practice for the memory of virtual machines, assume more: by the letter they may not
//! race with anything inside the program.
//!
//! The reader of octets that are written meanwhile finds old ones and new ones, in any mixture, even within a
//! word; and may find others when it reads them again.

#![allow(unsafe_code)]

use crate::crc32c::Digest;
use crate::wire::mpa::Marker;

/// Octets between two Markers.
const BETWEEN: usize = Marker::INTERVAL - Marker::LEN;

/// Octets in the pieces that Markers cut them into: some before the first Marker, as many as there are
/// between two in each of a number of pieces, and the rest after the last Marker.
///
/// Example: 1200 octets of which 100 come before a Marker are pieces of 100, 508, 508 and 84 octets. With
/// their Markers they take 1212.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    first: usize,
    between: usize,
    last: usize,
}

impl Pieces {
    /// Returns the pieces of `octets` octets, a Marker being after the first `to_marker` of them.
    #[inline]
    pub(super) const fn new(octets: usize, to_marker: usize) -> Self {
        if octets <= to_marker {
            return Self { first: octets, between: 0, last: 0 };
        }
        let after = octets - to_marker;
        Self { first: to_marker, between: after / BETWEEN, last: after % BETWEEN }
    }

    /// Returns the octets that they take with the Markers among them.
    #[inline]
    pub(super) const fn marked_octets(self) -> usize {
        let last = if self.last > 0 { Marker::LEN + self.last } else { 0 };
        self.first + Marker::INTERVAL * self.between + last
    }
}

/// Copies from shared memory at `source`.
///
/// # Safety
///
/// `source` must be valid for reads of as many octets as `target` has, which are initialised. Nobody may
/// access them meanwhile but by these functions, by atomics, or by code outside of the program's Rust.
#[inline]
pub(super) unsafe fn read(source: *const u8, target: &mut [u8]) {
    // SAFETY: the caller's promise, and that of a mutable slice.
    unsafe { engine::read(source, target.as_mut_ptr(), target.len()) }
}

/// Copies from shared memory at `source`, and adds the copy to `digest`. The bytes are loaded once: the CRC
/// is that of the copy, whatever others write meanwhile.
///
/// # Safety
///
/// As for [`read`].
#[inline]
pub(super) unsafe fn read_summed(source: *const u8, target: &mut [u8], digest: &mut Digest) {
    #[cfg(all(target_arch = "x86_64", not(portable_copies), not(miri)))]
    {
        // SAFETY: the caller's promise.
        if unsafe { digest.copy_shared(source, target) } {
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { read(source, target) };
    digest.update(target);
}

/// Copies to shared memory at `target`.
///
/// # Safety
///
/// As for [`read`], of `target` for writes.
#[inline]
pub(super) unsafe fn write(source: &[u8], target: *mut u8) {
    // SAFETY: the caller's promise, and that of a slice.
    unsafe { engine::write(source.as_ptr(), target, source.len()) }
}

/// Copies from shared memory at `source` to the places that Markers leave at `target`.
///
/// # Safety
///
/// As for [`read`], of as many octets as there are in the `pieces`; `target` must have room for them with
/// their Markers.
#[inline]
pub(super) unsafe fn read_pieces(source: *const u8, target: &mut [u8], pieces: Pieces) {
    debug_assert!(pieces.marked_octets() <= target.len());
    // SAFETY: the caller's promise.
    unsafe { engine::read_pieces::<BETWEEN, { Marker::INTERVAL }>(source, target.as_mut_ptr(), pieces) }
}

/// Copies to shared memory at `target` what lies between the Markers at `source`.
///
/// # Safety
///
/// As for [`write()`], of as many octets as there are in the `pieces`; `source` must have them with their
/// Markers.
#[inline]
pub(super) unsafe fn write_pieces(source: &[u8], target: *mut u8, pieces: Pieces) {
    debug_assert!(pieces.marked_octets() <= source.len());
    // SAFETY: the caller's promise.
    unsafe { engine::write_pieces::<{ Marker::INTERVAL }, BETWEEN>(source.as_ptr(), target, pieces) }
}

#[cfg(all(target_arch = "x86_64", not(portable_copies), not(miri)))]
use x86_64 as engine;

#[cfg(not(all(target_arch = "x86_64", not(portable_copies), not(miri))))]
use portable as engine;

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[cfg_attr(portable_copies, allow(dead_code, reason = "only its tests are built"))]
mod x86_64 {
    use core::arch::asm;

    /// Octets from which on 32 or 64 are copied at a time, where the processor can: below, its check costs
    /// what that saves.
    const WIDE_OCTETS: usize = 256;

    use super::{BETWEEN, Pieces};

    pub(super) use copy as read;
    pub(super) use copy as write;
    pub(super) use copy_pieces as read_pieces;
    pub(super) use copy_pieces as write_pieces;

    /// # Safety
    ///
    /// `source` must be valid for reads of `octets` octets and `target` for writes, as [`super::read`] says.
    #[inline]
    pub(super) unsafe fn copy(source: *const u8, target: *mut u8, octets: usize) {
        // SAFETY: each function is called for what its name says, and the caller promises the rest.
        unsafe {
            match octets {
                0 => {}
                1 => one(source, target),
                2..4 => two_ends_of_2(source, target, octets),
                4..8 => two_ends_of_4(source, target, octets),
                8..16 => two_ends_of_8(source, target, octets),
                16..WIDE_OCTETS => by_16(source, target, octets),
                // Processors with the second run at full speed with registers of 512 bits. Those that have
                // only the first do not.
                _ if std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("vpclmulqdq") =>
                {
                    by_64(source, target, octets);
                }
                _ if std::arch::is_x86_feature_detected!("avx") => by_32(source, target, octets),
                _ => by_16(source, target, octets),
            }
        }
    }

    /// Copies pieces. From the beginning of one between Markers to that of the next are `FROM` octets at the
    /// source, `TO` at the target.
    ///
    /// # Safety
    ///
    /// As for [`copy`], of the octets of the `pieces`.
    pub(super) unsafe fn copy_pieces<const FROM: usize, const TO: usize>(
        mut source: *const u8,
        mut target: *mut u8,
        pieces: Pieces,
    ) {
        let Pieces { first, between, last } = pieces;
        // SAFETY: each step copies one piece, or those between Markers, and goes to the beginning of the next
        // piece if there is one. The caller promises the rest.
        unsafe {
            copy(source, target, first);
            if between > 0 {
                source = source.add(first + FROM - BETWEEN);
                target = target.add(first + TO - BETWEEN);
                if std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("vpclmulqdq")
                {
                    between_by_64::<FROM, TO>(source, target, between);
                } else if std::arch::is_x86_feature_detected!("avx") {
                    between_by_32::<FROM, TO>(source, target, between);
                } else {
                    between_by_16::<FROM, TO>(source, target, between);
                }
                if last > 0 {
                    copy(source.add(FROM * between), target.add(TO * between), last);
                }
            } else if last > 0 {
                copy(source.add(first + FROM - BETWEEN), target.add(first + TO - BETWEEN), last);
            }
        }
    }

    /// # Safety
    ///
    /// As for [`copy`], of one octet.
    #[inline]
    unsafe fn one(source: *const u8, target: *mut u8) {
        // SAFETY: one octet is read and written.
        unsafe {
            asm!(
                "mov {octet}, byte ptr [{source}]",
                "mov byte ptr [{target}], {octet}",
                source = in(reg) source, target = in(reg) target, octet = out(reg_byte) _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// A function that copies the first and the last so many octets, which together are all.
    macro_rules! two_ends {
        ($name:ident, $octets:literal, $word:literal, $register:literal) => {
            /// # Safety
            ///
            /// As for [`copy`], of so many octets as its name says at least and twice as many at most.
            #[inline]
            unsafe fn $name(source: *const u8, target: *mut u8, octets: usize) {
                debug_assert!(($octets..=2 * $octets).contains(&octets));
                // SAFETY: the first and the last so many of `octets` octets are read and written.
                unsafe {
                    asm!(
                        concat!("mov {first", $register, "}, ", $word, " ptr [{source}]"),
                        concat!(
                            "mov {last", $register, "}, ", $word, " ptr [{source} + {octets} - ", $octets, "]"
                        ),
                        concat!("mov ", $word, " ptr [{target}], {first", $register, "}"),
                        concat!(
                            "mov ", $word, " ptr [{target} + {octets} - ", $octets, "], {last", $register, "}"
                        ),
                        source = in(reg) source, target = in(reg) target, octets = in(reg) octets,
                        first = out(reg) _, last = out(reg) _,
                        options(nostack, preserves_flags),
                    );
                }
            }
        };
    }

    two_ends!(two_ends_of_2, 2, "word", ":x");
    two_ends!(two_ends_of_4, 4, "dword", ":e");
    two_ends!(two_ends_of_8, 8, "qword", ":r");

    /// # Safety
    ///
    /// As for [`copy`], of 16 octets at least.
    #[inline]
    unsafe fn by_16(source: *const u8, target: *mut u8, octets: usize) {
        debug_assert!(octets >= 16);
        // SAFETY: `at` rises by what was copied and stops short of the end by less than a step; the last 16
        // octets, some of them copied already, end with the last of `octets`.
        unsafe {
            asm!(
                "sub {left}, 64",
                "jb 3f",
                "2:",
                "movdqu {a}, xmmword ptr [{source} + {at}]",
                "movdqu {b}, xmmword ptr [{source} + {at} + 16]",
                "movdqu {c}, xmmword ptr [{source} + {at} + 32]",
                "movdqu {d}, xmmword ptr [{source} + {at} + 48]",
                "movdqu xmmword ptr [{target} + {at}], {a}",
                "movdqu xmmword ptr [{target} + {at} + 16], {b}",
                "movdqu xmmword ptr [{target} + {at} + 32], {c}",
                "movdqu xmmword ptr [{target} + {at} + 48], {d}",
                "add {at}, 64",
                "sub {left}, 64",
                "jae 2b",
                "3:",
                "add {left}, 48",
                "js 5f",
                "4:",
                "movdqu {a}, xmmword ptr [{source} + {at}]",
                "movdqu xmmword ptr [{target} + {at}], {a}",
                "add {at}, 16",
                "sub {left}, 16",
                "jns 4b",
                "5:",
                "movdqu {a}, xmmword ptr [{source} + {octets} - 16]",
                "movdqu xmmword ptr [{target} + {octets} - 16], {a}",
                source = in(reg) source, target = in(reg) target, octets = in(reg) octets,
                left = inout(reg) octets => _, at = inout(reg) 0_usize => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }

    /// # Safety
    ///
    /// As for [`copy`], of 128 octets at least, on a processor with AVX.
    unsafe fn by_32(source: *const u8, target: *mut u8, octets: usize) {
        debug_assert!(octets >= 128);
        // SAFETY: the first 32 octets are copied, then whole steps of 128 from where `target` is first a
        // multiple of 32, as long as they end before the end, and at last the 128 that end there, some of
        // them copied already. The registers have the names they are reserved by.
        unsafe {
            asm!(
                "vmovdqu ymm0, ymmword ptr [{source}]",
                "vmovdqu ymmword ptr [{target}], ymm0",
                "mov {at}, {target}",
                "neg {at}",
                "and {at}, 31",
                "lea {last}, [{octets} - 128]",
                "cmp {at}, {last}",
                "jae 3f",
                "2:",
                "vmovdqu ymm0, ymmword ptr [{source} + {at}]",
                "vmovdqu ymm1, ymmword ptr [{source} + {at} + 32]",
                "vmovdqu ymm2, ymmword ptr [{source} + {at} + 64]",
                "vmovdqu ymm3, ymmword ptr [{source} + {at} + 96]",
                "vmovdqu ymmword ptr [{target} + {at}], ymm0",
                "vmovdqu ymmword ptr [{target} + {at} + 32], ymm1",
                "vmovdqu ymmword ptr [{target} + {at} + 64], ymm2",
                "vmovdqu ymmword ptr [{target} + {at} + 96], ymm3",
                "add {at}, 128",
                "cmp {at}, {last}",
                "jb 2b",
                "3:",
                "vmovdqu ymm0, ymmword ptr [{source} + {last}]",
                "vmovdqu ymm1, ymmword ptr [{source} + {last} + 32]",
                "vmovdqu ymm2, ymmword ptr [{source} + {last} + 64]",
                "vmovdqu ymm3, ymmword ptr [{source} + {last} + 96]",
                "vmovdqu ymmword ptr [{target} + {last}], ymm0",
                "vmovdqu ymmword ptr [{target} + {last} + 32], ymm1",
                "vmovdqu ymmword ptr [{target} + {last} + 64], ymm2",
                "vmovdqu ymmword ptr [{target} + {last} + 96], ymm3",
                "vzeroupper",
                source = in(reg) source, target = in(reg) target, octets = in(reg) octets,
                at = out(reg) _, last = out(reg) _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack),
            );
        }
    }

    /// # Safety
    ///
    /// As for [`copy`], of 256 octets at least, on a processor with AVX-512.
    unsafe fn by_64(source: *const u8, target: *mut u8, octets: usize) {
        debug_assert!(octets >= 256);
        // SAFETY: the first 64 octets are copied, then whole steps of 256 from where `target` is first a
        // multiple of 64, as long as they end before the end, and at last the 256 that end there, some of
        // them copied already. The registers have the names they are reserved by.
        unsafe {
            asm!(
                "vmovdqu64 zmm0, zmmword ptr [{source}]",
                "vmovdqu64 zmmword ptr [{target}], zmm0",
                "mov {at}, {target}",
                "neg {at}",
                "and {at}, 63",
                "lea {last}, [{octets} - 256]",
                "cmp {at}, {last}",
                "jae 3f",
                "2:",
                "vmovdqu64 zmm0, zmmword ptr [{source} + {at}]",
                "vmovdqu64 zmm1, zmmword ptr [{source} + {at} + 64]",
                "vmovdqu64 zmm2, zmmword ptr [{source} + {at} + 128]",
                "vmovdqu64 zmm3, zmmword ptr [{source} + {at} + 192]",
                "vmovdqu64 zmmword ptr [{target} + {at}], zmm0",
                "vmovdqu64 zmmword ptr [{target} + {at} + 64], zmm1",
                "vmovdqu64 zmmword ptr [{target} + {at} + 128], zmm2",
                "vmovdqu64 zmmword ptr [{target} + {at} + 192], zmm3",
                "add {at}, 256",
                "cmp {at}, {last}",
                "jb 2b",
                "3:",
                "vmovdqu64 zmm0, zmmword ptr [{source} + {last}]",
                "vmovdqu64 zmm1, zmmword ptr [{source} + {last} + 64]",
                "vmovdqu64 zmm2, zmmword ptr [{source} + {last} + 128]",
                "vmovdqu64 zmm3, zmmword ptr [{source} + {last} + 192]",
                "vmovdqu64 zmmword ptr [{target} + {last}], zmm0",
                "vmovdqu64 zmmword ptr [{target} + {last} + 64], zmm1",
                "vmovdqu64 zmmword ptr [{target} + {last} + 128], zmm2",
                "vmovdqu64 zmmword ptr [{target} + {last} + 192], zmm3",
                "vzeroupper",
                source = in(reg) source, target = in(reg) target, octets = in(reg) octets,
                at = out(reg) _, last = out(reg) _,
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
                out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
                options(nostack),
            );
        }
    }

    /// # Safety
    ///
    /// As for [`copy`], of `pieces` times 508 octets.
    pub(super) unsafe fn between_by_16<const FROM: usize, const TO: usize>(
        source: *const u8,
        target: *mut u8,
        pieces: usize,
    ) {
        for piece in 0..pieces {
            // SAFETY: the caller's promise.
            unsafe { by_16(source.add(FROM * piece), target.add(TO * piece), BETWEEN) };
        }
    }

    /// # Safety
    ///
    /// As for [`copy`], of `pieces` times 508 octets, at least once, on a processor with AVX.
    pub(super) unsafe fn between_by_32<const FROM: usize, const TO: usize>(
        source: *const u8,
        target: *mut u8,
        pieces: usize,
    ) {
        debug_assert!(pieces > 0);
        const { assert!(BETWEEN == 508) };
        // SAFETY: of each piece the first 32 octets are copied, then 448 from where `target` is first a
        // multiple of 32, and at last the 64 that end where it does: 31 and 448 are less than 508 together,
        // and 444 is less than 448. The registers have the names they are reserved by.
        unsafe {
            asm!(
                "2:",
                "vmovdqu ymm0, ymmword ptr [{source}]",
                "vmovdqu ymmword ptr [{target}], ymm0",
                "mov {from}, {target}",
                "neg {from}",
                "and {from}, 31",
                "lea {to}, [{target} + {from}]",
                "add {from}, {source}",
                ".irp at, 0, 128, 256",
                "vmovdqu ymm0, ymmword ptr [{from} + \\at]",
                "vmovdqu ymm1, ymmword ptr [{from} + \\at + 32]",
                "vmovdqu ymm2, ymmword ptr [{from} + \\at + 64]",
                "vmovdqu ymm3, ymmword ptr [{from} + \\at + 96]",
                "vmovdqu ymmword ptr [{to} + \\at], ymm0",
                "vmovdqu ymmword ptr [{to} + \\at + 32], ymm1",
                "vmovdqu ymmword ptr [{to} + \\at + 64], ymm2",
                "vmovdqu ymmword ptr [{to} + \\at + 96], ymm3",
                ".endr",
                "vmovdqu ymm0, ymmword ptr [{from} + 384]",
                "vmovdqu ymm1, ymmword ptr [{from} + 416]",
                "vmovdqu ymm2, ymmword ptr [{source} + 444]",
                "vmovdqu ymm3, ymmword ptr [{source} + 476]",
                "vmovdqu ymmword ptr [{to} + 384], ymm0",
                "vmovdqu ymmword ptr [{to} + 416], ymm1",
                "vmovdqu ymmword ptr [{target} + 444], ymm2",
                "vmovdqu ymmword ptr [{target} + 476], ymm3",
                "add {source}, {source_step}",
                "add {target}, {target_step}",
                "dec {pieces}",
                "jnz 2b",
                "vzeroupper",
                source = inout(reg) source => _, target = inout(reg) target => _,
                pieces = inout(reg) pieces => _, from = out(reg) _, to = out(reg) _,
                source_step = const FROM, target_step = const TO,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack),
            );
        }
    }

    /// # Safety
    ///
    /// As for [`copy`], of `pieces` times 508 octets, at least once, on a processor with AVX-512.
    pub(super) unsafe fn between_by_64<const FROM: usize, const TO: usize>(
        source: *const u8,
        target: *mut u8,
        pieces: usize,
    ) {
        debug_assert!(pieces > 0);
        const { assert!(BETWEEN == 508) };
        // SAFETY: of each piece the first 64 octets are copied, then 384 from where `target` is first a
        // multiple of 64, and at last the 128 that end where it does: 63 and 384 are less than 508 together,
        // and 380 is less than 384. The registers have the names they are reserved by.
        unsafe {
            asm!(
                "2:",
                "vmovdqu64 zmm0, zmmword ptr [{source}]",
                "vmovdqu64 zmmword ptr [{target}], zmm0",
                "mov {from}, {target}",
                "neg {from}",
                "and {from}, 63",
                "lea {to}, [{target} + {from}]",
                "add {from}, {source}",
                "vmovdqu64 zmm0, zmmword ptr [{from}]",
                "vmovdqu64 zmm1, zmmword ptr [{from} + 64]",
                "vmovdqu64 zmm2, zmmword ptr [{from} + 128]",
                "vmovdqu64 zmm3, zmmword ptr [{from} + 192]",
                "vmovdqu64 zmmword ptr [{to}], zmm0",
                "vmovdqu64 zmmword ptr [{to} + 64], zmm1",
                "vmovdqu64 zmmword ptr [{to} + 128], zmm2",
                "vmovdqu64 zmmword ptr [{to} + 192], zmm3",
                "vmovdqu64 zmm0, zmmword ptr [{from} + 256]",
                "vmovdqu64 zmm1, zmmword ptr [{from} + 320]",
                "vmovdqu64 zmm2, zmmword ptr [{source} + 380]",
                "vmovdqu64 zmm3, zmmword ptr [{source} + 444]",
                "vmovdqu64 zmmword ptr [{to} + 256], zmm0",
                "vmovdqu64 zmmword ptr [{to} + 320], zmm1",
                "vmovdqu64 zmmword ptr [{target} + 380], zmm2",
                "vmovdqu64 zmmword ptr [{target} + 444], zmm3",
                "add {source}, {source_step}",
                "add {target}, {target_step}",
                "dec {pieces}",
                "jnz 2b",
                "vzeroupper",
                source = inout(reg) source => _, target = inout(reg) target => _,
                pieces = inout(reg) pieces => _, from = out(reg) _, to = out(reg) _,
                source_step = const FROM, target_step = const TO,
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
                out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
                options(nostack),
            );
        }
    }
}

#[cfg_attr(all(target_arch = "x86_64", not(portable_copies), not(miri)), cfg(test))]
mod portable {
    use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    use super::{BETWEEN, Pieces};

    const WORD: usize = size_of::<usize>();

    /// How `octets` octets at `shared` divide: octets up to the first whole word, and words.
    #[inline]
    fn divide(shared: usize, octets: usize) -> (usize, usize) {
        let head = (shared.wrapping_neg() % WORD).min(octets);
        (head, (octets - head) / WORD)
    }

    /// # Safety
    ///
    /// See [`super::read`].
    #[inline]
    pub(super) unsafe fn read(source: *const u8, target: *mut u8, octets: usize) {
        let (head, words) = divide(source.addr(), octets);
        let tail = head + words * WORD;
        // SAFETY: every place lies inside the spans, as the caller guarantees; words are aligned in the
        // shared one.
        unsafe {
            for at in (0..head).chain(tail..octets) {
                target.add(at).write(AtomicU8::from_ptr(source.add(at).cast_mut()).load(Ordering::Relaxed));
            }
            for at in (head..tail).step_by(WORD) {
                let word = AtomicUsize::from_ptr(source.add(at).cast_mut().cast());
                target.add(at).cast::<usize>().write_unaligned(word.load(Ordering::Relaxed));
            }
        }
    }

    /// # Safety
    ///
    /// See [`super::write`].
    #[inline]
    pub(super) unsafe fn write(source: *const u8, target: *mut u8, octets: usize) {
        let (head, words) = divide(target.addr(), octets);
        let tail = head + words * WORD;
        // SAFETY: as in `read`.
        unsafe {
            for at in (0..head).chain(tail..octets) {
                AtomicU8::from_ptr(target.add(at)).store(source.add(at).read(), Ordering::Relaxed);
            }
            for at in (head..tail).step_by(WORD) {
                let word = source.add(at).cast::<usize>().read_unaligned();
                AtomicUsize::from_ptr(target.add(at).cast()).store(word, Ordering::Relaxed);
            }
        }
    }

    /// Calls `copy` for each piece with what is before it at the source, at the target, and its octets.
    fn each_piece<const FROM: usize, const TO: usize>(
        pieces: Pieces,
        mut copy: impl FnMut(usize, usize, usize),
    ) {
        let Pieces { first, between, last } = pieces;
        copy(0, 0, first);
        for piece in 0..=between {
            let (from, to) = (first + FROM * (piece + 1) - BETWEEN, first + TO * (piece + 1) - BETWEEN);
            let octets = if piece < between { BETWEEN } else { last };
            if octets > 0 {
                copy(from, to, octets);
            }
        }
    }

    /// # Safety
    ///
    /// See [`super::read_pieces`].
    pub(super) unsafe fn read_pieces<const FROM: usize, const TO: usize>(
        source: *const u8,
        target: *mut u8,
        pieces: Pieces,
    ) {
        // SAFETY: the caller's promise, of one piece after the other.
        each_piece::<FROM, TO>(pieces, |from, to, octets| unsafe {
            read(source.add(from), target.add(to), octets);
        });
    }

    /// # Safety
    ///
    /// See [`super::write_pieces`].
    pub(super) unsafe fn write_pieces<const FROM: usize, const TO: usize>(
        source: *const u8,
        target: *mut u8,
        pieces: Pieces,
    ) {
        // SAFETY: the caller's promise, of one piece after the other.
        each_piece::<FROM, TO>(pieces, |from, to, octets| unsafe {
            write(source.add(from), target.add(to), octets);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Copy = unsafe fn(*const u8, *mut u8, usize);

    /// Every length up to some steps of the widest loop, at every alignment of either side: all octets
    /// arrive, and none beside them changes.
    fn copies_what_it_should(copy: Copy) {
        const AROUND: usize = 40;
        let source: Vec<u8> = (0..1200_usize).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut target = vec![0_u8; 1200];
        for octets in (0..300).chain([511, 512, 513, 640, 1000]) {
            for (from, to) in (0..65).map(|n| (n, 7 * n % 65)) {
                target.fill(0xee);
                let place = AROUND + to;
                // SAFETY: both spans lie inside the vectors, and this thread alone has these.
                unsafe { copy(source[from..].as_ptr(), target[place..].as_mut_ptr(), octets) };
                assert_eq!(
                    target[place..place + octets],
                    source[from..from + octets],
                    "{octets}: {from} to {to}"
                );
                let mut beside = target[..place].iter().chain(&target[place + octets..]);
                assert!(beside.all(|&octet| octet == 0xee), "{octets} octets from {from} to {to}: more");
            }
        }
    }

    #[test]
    fn portable_copies() {
        copies_what_it_should(portable::read);
        copies_what_it_should(portable::write);
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn copies_of_x86_64() {
        copies_what_it_should(x86_64::copy);
    }

    type CopyPieces = unsafe fn(*const u8, *mut u8, Pieces);
    type CopyBetween = unsafe fn(*const u8, *mut u8, usize);

    /// Whatever is before the first Marker and after the last, and at every alignment of either side: each
    /// octet is copied to its place, and none beside them or in the place of a Marker changes.
    fn copies_pieces<const FROM: usize, const TO: usize>(copy: CopyPieces) {
        const AROUND: usize = 70;
        // The octets of the pieces at a side where they are so far apart.
        let places = |pieces: Pieces, step: usize| {
            let gap = step - BETWEEN;
            let after = move |octet: usize| 1 + octet / BETWEEN;
            (0..pieces.first)
                .chain(
                    (0..BETWEEN * pieces.between + pieces.last)
                        .map(move |octet| pieces.first + octet + gap * after(octet)),
                )
                .collect::<Vec<_>>()
        };
        let source: Vec<u8> = (0..3200_usize).map(|at| (at * 7 + at / 251) as u8).collect();
        for (to_marker, octets) in [0, 1, 2, 31, 64, 492, 508].into_iter().flat_map(|to_marker| {
            [0, 1, 5, 300, 508, 509, 1016, 1017, 1428, 2200, 2600].map(|octets| (to_marker, octets))
        }) {
            let pieces = Pieces::new(octets, to_marker);
            let (froms, tos) = (places(pieces, FROM), places(pieces, TO));
            assert_eq!((froms.len(), tos.len()), (octets, octets));
            for (from, to) in (0..65).map(|n| (n, 7 * n % 65)) {
                let mut expected = vec![0xee; 3200];
                for (octet_from, octet_to) in froms.iter().zip(&tos) {
                    expected[AROUND + to + octet_to] = source[from + octet_from];
                }
                let mut target = vec![0xee; 3200];
                // SAFETY: both spans lie inside the vectors, and this thread alone has these.
                unsafe { copy(source[from..].as_ptr(), target[AROUND + to..].as_mut_ptr(), pieces) };
                assert_eq!(target, expected, "{pieces:?}: {from} to {to}");
            }
        }
    }

    #[test]
    fn pieces_are_copied_to_their_places() {
        const INTERVAL: usize = Marker::INTERVAL;
        copies_pieces::<BETWEEN, INTERVAL>(portable::read_pieces::<BETWEEN, INTERVAL>);
        copies_pieces::<INTERVAL, BETWEEN>(portable::write_pieces::<INTERVAL, BETWEEN>);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            copies_pieces::<BETWEEN, INTERVAL>(x86_64::copy_pieces::<BETWEEN, INTERVAL>);
            copies_pieces::<INTERVAL, BETWEEN>(x86_64::copy_pieces::<INTERVAL, BETWEEN>);
        }
    }

    /// Each loop over the pieces between Markers that this processor has, not only the widest.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn pieces_are_copied_at_any_width() {
        const STEPS: [usize; 2] = [BETWEEN, Marker::INTERVAL];
        let mut widths: Vec<CopyBetween> = vec![x86_64::between_by_16::<{ STEPS[0] }, { STEPS[1] }>];
        if std::arch::is_x86_feature_detected!("avx") {
            widths.push(x86_64::between_by_32::<{ STEPS[0] }, { STEPS[1] }>);
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            widths.push(x86_64::between_by_64::<{ STEPS[0] }, { STEPS[1] }>);
        }
        let source: Vec<u8> = (0..2200_usize).map(|at| (at * 7 + at / 251) as u8).collect();
        for (copy, count, place) in widths
            .iter()
            .flat_map(|copy| (1..4).flat_map(move |count| (0..130).map(move |place| (copy, count, place))))
        {
            let mut target = vec![0xee; 2400];
            // SAFETY: both spans lie inside the vectors, and this thread alone has these.
            unsafe { copy(source[place % 7..].as_ptr(), target[place..].as_mut_ptr(), count) };
            let mut expected = vec![0xee; 2400];
            for piece in 0..count {
                let (from, to) = (place % 7 + STEPS[0] * piece, place + STEPS[1] * piece);
                expected[to..to + BETWEEN].copy_from_slice(&source[from..from + BETWEEN]);
            }
            assert_eq!(target, expected, "{count} pieces at {place}");
        }
    }

    #[test]
    fn slices_are_copied_whole() {
        let (mut shared, mut back) = ([0; 77], [0; 77]);
        // SAFETY: the arrays are of that size, and this thread alone has them.
        unsafe {
            write(&[5; 77], shared.as_mut_ptr());
            read(shared.as_ptr(), &mut back);
        }
        assert_eq!(back, [5; 77]);
    }

    /// The CRC is that of the copy, also while another thread writes the source.
    #[test]
    fn a_copy_has_its_crc_whatever_is_written_meanwhile() {
        use core::sync::atomic::{AtomicU8, Ordering};

        let shared: Vec<AtomicU8> = (0..1500).map(|at: u32| AtomicU8::new(at as u8)).collect();
        let stop = AtomicU8::new(0);
        let mut wrong = None;
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| {
                for value in (0..=u8::MAX).cycle() {
                    for byte in &shared {
                        byte.store(value, Ordering::Relaxed);
                    }
                    if stop.load(Ordering::Relaxed) != 0 {
                        break;
                    }
                }
            });
            // The shortest are over before the other thread has written much.
            for len in (0..1500).rev().chain((0..16).cycle().take(200_000)) {
                let mut target = vec![0; len];
                let mut digest = Digest::new();
                digest.update(b"before");
                // SAFETY: so many bytes are there, and the other thread writes them by atomics.
                unsafe { read_summed(shared.as_ptr().cast(), &mut target, &mut digest) };
                let expected = crc32c::crc32c_append(crc32c::crc32c(b"before"), &target);
                if digest.finish() != expected {
                    wrong = Some(len);
                    break;
                }
            }
            stop.store(1, Ordering::Relaxed);
            // The end of a scope joins too, but a sanitizer does not see that the standard library does.
            writer.join().expect("it does not panic");
        });
        assert_eq!(wrong, None, "so many bytes have another CRC");
    }
}
