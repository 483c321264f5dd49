//! CRC32c engines and the choice among them at run time.
//!
//! The CRC is that of iSCSI digests: reflected polynomial 0x1EDC6F41, initial value and final XOR all ones,
//! least significant octet first on the wire.
//!
//! With AVX-512 a payload of 512 bytes or more is summed as it is copied, from the registers that are stored.
//! The CRC of a shorter one, of one with Markers in it, and on processors where two passes are faster, is
//! computed over the frame.
// Requirements: MPA-4.4-11, C00-7.2-02

mod polynomial;
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

use std::sync::OnceLock;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64::{Copy as CopyPass, CopyShared, Spans, Sum, avx2, avx512, crc_instruction};

/// A way to compute CRC32c. All return the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Carry-less multiplication of 512 bits, for x86-64.
    Avx512,
    /// The CRC instruction and carry-less multiplication of 256 bits at the same time, for x86-64.
    Avx2,
    /// The CRC instruction in three streams, for x86-64.
    Sse42,
    /// The crc-fast crate, which has kernels for x86-64 and aarch64.
    CrcFast,
    /// Table look-ups, for any processor.
    Portable,
}

impl EngineKind {
    /// All kinds, the fastest first.
    pub const ALL: [Self; 5] = [Self::Avx512, Self::Avx2, Self::Sse42, Self::CrcFast, Self::Portable];

    /// Returns true if this processor has the instructions that the engine needs, or is made for.
    fn is_supported(self) -> bool {
        match self {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Self::Avx512 => {
                use std::arch::is_x86_feature_detected;
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("vpclmulqdq")
                    && Self::Sse42.is_supported()
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Self::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("vpclmulqdq")
                    && Self::Sse42.is_supported()
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Self::Sse42 => {
                std::arch::is_x86_feature_detected!("sse4.2")
                    && std::arch::is_x86_feature_detected!("pclmulqdq")
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            Self::Avx512 | Self::Avx2 | Self::Sse42 => false,
            #[cfg(target_arch = "aarch64")]
            Self::CrcFast => {
                std::arch::is_aarch64_feature_detected!("aes")
                    && std::arch::is_aarch64_feature_detected!("crc")
            }
            #[cfg(not(target_arch = "aarch64"))]
            Self::CrcFast => Self::Sse42.is_supported(),
            Self::Portable => true,
        }
    }

    /// Returns the bytes from which on a copy and its CRC take less time in one pass than in two; `None` if
    /// they never do.
    ///
    /// A sender copies what no cache of its own holds, so a copy takes the time of its loads. The more of
    /// them are on their way at once, the shorter it is, and a processor looks ahead by a number of
    /// instructions. With AVX-512 a pass that sums as well has five instructions for 64 bytes. With the CRC
    /// instruction it has three for 8, also if 256 bits are folded beside it. There, a copy of 32 bytes at a
    /// time and a sum of the copy, which the first cache holds, are faster at all lengths, though not if that
    /// cache held the source too.
    pub const fn one_pass_min_len(self) -> Option<usize> {
        match self {
            Self::Avx512 => Some(512),
            Self::Avx2 | Self::Sse42 | Self::CrcFast | Self::Portable => None,
        }
    }
}

/// An engine that this processor supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine(EngineKind);

impl Engine {
    /// Returns the engine of a kind; `None` if this processor does not support it.
    pub fn new(kind: EngineKind) -> Option<Self> {
        kind.is_supported().then_some(Self(kind))
    }

    /// Returns the fastest engine of this processor: always the same.
    #[inline]
    pub fn best() -> Self {
        static BEST: OnceLock<Engine> = OnceLock::new();
        *BEST.get_or_init(|| EngineKind::ALL.into_iter().find_map(Self::new).expect("one is portable"))
    }

    /// Returns the kind of the engine.
    pub const fn kind(self) -> EngineKind {
        self.0
    }

    /// Returns true if a copy of `len` bytes and its CRC take less time in one pass than in two.
    #[inline]
    pub const fn prefers_one_pass(self, len: usize) -> bool {
        match self.0.one_pass_min_len() {
            Some(min_len) => len >= min_len,
            None => false,
        }
    }

    /// Returns the CRC of some bytes followed by `bytes`, when `crc` is that of the former. The CRC of no
    /// bytes is 0.
    #[inline]
    #[allow(unsafe_code)]
    pub fn append(self, crc: u32, bytes: &[u8]) -> u32 {
        match self.0 {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            EngineKind::Avx512 | EngineKind::Avx2 | EngineKind::Sse42 => {
                let spans = Spans { source: bytes.as_ptr(), target: core::ptr::null_mut() };
                // SAFETY: there is no such engine unless the processor has the instructions. The source is a
                // slice, and this pass has no target.
                let remainder = unsafe {
                    match self.0 {
                        EngineKind::Avx512 => avx512::update::<Sum>(!crc, spans, bytes.len()),
                        EngineKind::Avx2 => avx2::update(!crc, spans, bytes.len()),
                        _ => crc_instruction::update(!crc, spans, bytes.len()),
                    }
                };
                !remainder
            }
            EngineKind::CrcFast => append_fast(crc, bytes),
            _ => portable::append(crc, bytes),
        }
    }

    /// Copies `source` to `target`, which must have the same length, and returns the CRC as
    /// [`append`](Self::append) does.
    #[inline]
    #[allow(unsafe_code)]
    pub fn copy_and_append(self, crc: u32, source: &[u8], target: &mut [u8]) -> u32 {
        assert_eq!(source.len(), target.len(), "a copy is as long as its source");
        match self.0 {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            EngineKind::Avx512 => {
                let spans = Spans { source: source.as_ptr(), target: target.as_mut_ptr() };
                // SAFETY: there is no such engine unless the processor has the instructions. These are slices
                // of that length, and a mutable one overlaps no other.
                !unsafe { avx512::update::<CopyPass>(!crc, spans, source.len()) }
            }
            _ => {
                target.copy_from_slice(source);
                self.append(crc, target)
            }
        }
    }

    /// See [`Digest::copy_shared`]. Returns `None` and does nothing if the engine has no such pass.
    ///
    /// # Safety
    ///
    /// See [`Digest::copy_shared`].
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[cfg_attr(portable_copies, allow(dead_code, reason = "only its tests are built"))]
    #[inline]
    #[allow(unsafe_code)]
    unsafe fn copy_shared_and_append(self, crc: u32, source: *const u8, target: &mut [u8]) -> Option<u32> {
        let EngineKind::Avx512 = self.0 else { return None };
        let spans = Spans { source, target: target.as_mut_ptr() };
        // SAFETY: there is no such engine unless the processor has the instructions. The rest is the caller's
        // promise, and that of a mutable slice.
        Some(!unsafe { avx512::update::<CopyShared>(!crc, spans, target.len()) })
    }
}

/// [`Engine::append`] by the crc-fast crate.
fn append_fast(crc: u32, bytes: &[u8]) -> u32 {
    // Beginning a CRC costs less than continuing one.
    if crc == 0 {
        return crc_fast::crc32_iscsi(bytes);
    }
    let state = u64::from(!crc);
    let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, state);
    digest.update(bytes);
    !(digest.get_state() as u32)
}

/// Returns the CRC32c of `bytes`. On the wire it is sent with [`u32::to_le_bytes`].
#[inline]
pub fn checksum(bytes: &[u8]) -> u32 {
    Engine::best().append(0, bytes)
}

/// A CRC32c over bytes that come in pieces. Eight bytes of state, no heap; copies continue independently.
#[derive(Clone, Copy, Debug)]
pub struct Digest {
    engine: Engine,
    crc: u32,
}

impl Digest {
    /// The CRC of no bytes, with the best engine.
    #[inline]
    pub fn new() -> Self {
        Self::with_engine(Engine::best())
    }

    /// The CRC of no bytes, with an engine of choice.
    #[inline]
    pub const fn with_engine(engine: Engine) -> Self {
        Self { engine, crc: 0 }
    }

    /// Adds the bytes that follow those added before.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc = self.engine.append(self.crc, bytes);
    }

    /// Adds the bytes of `source` as [`update`](Self::update) does, and copies them to `target`, which must
    /// have the same length, in one pass if the engine has one.
    #[inline]
    pub fn copy(&mut self, source: &[u8], target: &mut [u8]) {
        self.crc = self.engine.copy_and_append(self.crc, source, target);
    }

    /// Adds bytes of memory that others may write at the same time, and copies them to `target`, in one pass.
    /// Returns false and does nothing if the engine has no such pass.
    ///
    /// # Safety
    ///
    /// `source` must be valid for reads of as many bytes as `target` has, which are initialised. Nobody may
    /// access them meanwhile but as `memory::copy` says. `target` must not overlap them.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[cfg_attr(portable_copies, allow(dead_code, reason = "only its tests are built"))]
    #[inline]
    #[must_use]
    #[allow(unsafe_code)]
    pub(crate) unsafe fn copy_shared(&mut self, source: *const u8, target: &mut [u8]) -> bool {
        // SAFETY: the caller's promise.
        match unsafe { self.engine.copy_shared_and_append(self.crc, source, target) } {
            Some(crc) => {
                self.crc = crc;
                true
            }
            None => false,
        }
    }

    /// The CRC of all bytes added.
    #[inline]
    pub const fn finish(self) -> u32 {
        self.crc
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
