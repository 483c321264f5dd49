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

    pub(super) use copy as read;
    pub(super) use copy as write;

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
}

#[cfg_attr(all(target_arch = "x86_64", not(portable_copies), not(miri)), cfg(test))]
mod portable {
    use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

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
