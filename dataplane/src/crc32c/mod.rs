//! CRC32c engines and the choice among them at run time.
//!
//! The CRC is that of iSCSI digests: reflected polynomial 0x1EDC6F41, initial value and final XOR all ones,
//! least significant octet first on the wire.
// Requirements: MPA-4.4-11, C00-7.2-02

mod portable;

use std::sync::OnceLock;

/// The fast engine takes about 10 ns to continue a CRC that another piece began. From this many octets on it
/// makes up for them against the CRC instruction alone.
const CONTINUE_FAST_OCTETS: usize = 512;

/// A way to compute CRC32c. All give the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Carry-less multiplication next to the CRC instruction, as wide as the processor has it.
    Fast,
    /// The CRC instruction of SSE4.2, three streams at a time.
    Sse42,
    /// Table lookups, on any processor.
    Portable,
}

impl Engine {
    /// The fastest engine of this processor. Looked up once, the same ever after.
    #[inline]
    pub fn best() -> Self {
        static BEST: OnceLock<Engine> = OnceLock::new();
        *BEST.get_or_init(Self::detect)
    }

    /// The fast engine begins a CRC faster than the others at every size that was measured, from 2 octets up.
    fn detect() -> Self {
        if Self::Fast.is_supported() {
            Self::Fast
        } else if Self::Sse42.is_supported() {
            Self::Sse42
        } else {
            Self::Portable
        }
    }

    /// Whether this processor has what the engine is made for. The others work all the same, slower.
    pub fn is_supported(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Fast => {
                std::arch::is_x86_feature_detected!("pclmulqdq")
                    && std::arch::is_x86_feature_detected!("sse4.2")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Fast => {
                std::arch::is_aarch64_feature_detected!("aes")
                    && std::arch::is_aarch64_feature_detected!("crc")
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            Self::Fast => false,
            #[cfg(target_arch = "x86_64")]
            Self::Sse42 => std::arch::is_x86_feature_detected!("sse4.2"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Sse42 => false,
            Self::Portable => true,
        }
    }

    /// The CRC of some octets followed by `octets`, when `crc` is that of the former. The CRC of no octets is
    /// 0.
    #[inline]
    pub fn append(self, crc: u32, octets: &[u8]) -> u32 {
        match self {
            // A CRC of 0 is where a CRC begins, which has no cost but that of the octets.
            Self::Fast if crc == 0 => crc_fast::crc32_iscsi(octets),
            Self::Fast if octets.len() < CONTINUE_FAST_OCTETS => crc32c::crc32c_append(crc, octets),
            Self::Fast => {
                let state = u64::from(!crc);
                let mut digest =
                    crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, state);
                digest.update(octets);
                !(digest.get_state() as u32)
            }
            Self::Sse42 => crc32c::crc32c_append(crc, octets),
            Self::Portable => portable::append(crc, octets),
        }
    }
}

/// The CRC32c of `octets`. On the wire it is sent with [`u32::to_le_bytes`].
#[inline]
pub fn checksum(octets: &[u8]) -> u32 {
    Engine::best().append(0, octets)
}

/// A CRC32c over octets that come in pieces. Eight octets of state, no heap; copies continue independently.
#[derive(Clone, Copy, Debug)]
pub struct Digest {
    engine: Engine,
    crc: u32,
}

impl Digest {
    /// The CRC of no octets, with the best engine.
    #[inline]
    pub fn new() -> Self {
        Self::with_engine(Engine::best())
    }

    /// The CRC of no octets, with an engine of choice.
    #[inline]
    pub const fn with_engine(engine: Engine) -> Self {
        Self { engine, crc: 0 }
    }

    /// Adds the octets that follow those added before.
    #[inline]
    pub fn update(&mut self, octets: &[u8]) {
        self.crc = self.engine.append(self.crc, octets);
    }

    /// The CRC of all octets added.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ENGINES: [Engine; 3] = [Engine::Fast, Engine::Sse42, Engine::Portable];

    /// The customary check value, and the order on the wire.
    // Requirements: MPA-4.4-11, C00-7.2-02
    #[test]
    fn the_check_value() {
        for engine in ENGINES {
            assert_eq!(engine.append(0, b"123456789"), 0xe306_9283, "{engine:?}");
            assert_eq!(engine.append(0, b""), 0);
        }
        assert_eq!(checksum(b"123456789").to_le_bytes(), [0x83, 0x92, 0x06, 0xe3]);
    }

    #[test]
    fn the_choice_is_supported_and_lasting() {
        assert!(Engine::best().is_supported());
        assert!(Engine::Portable.is_supported());
        assert_eq!(Engine::best(), Engine::best());
    }

    /// An earlier piece whose CRC happens to be 0 is continued like any other.
    #[test]
    fn a_crc_of_zero_is_continued() {
        // All ones cancel the initial value, and their final XOR leaves the remainder of nothing.
        let zero_crc = [0xff; 4];
        for engine in ENGINES {
            let crc = engine.append(0, &zero_crc);
            let whole = crc32c::crc32c(b"\xff\xff\xff\xff and more");
            assert_eq!(engine.append(crc, b" and more"), whole, "{engine:?}");
        }
    }

    proptest! {
        /// Every engine agrees with the reference at every length and cut.
        // Requirements: MPA-4.4-11
        #[test]
        fn engines_agree(
            octets in proptest::collection::vec(any::<u8>(), 0..10_000),
            cuts in proptest::collection::vec(0usize..10_000, 0..6),
        ) {
            let expected = crc32c::crc32c(&octets);
            prop_assert_eq!(checksum(&octets), expected);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(octets.len())).collect();
            cuts.extend([0, octets.len()]);
            cuts.sort_unstable();
            for engine in ENGINES {
                prop_assert_eq!(engine.append(0, &octets), expected);
                let mut digest = Digest::with_engine(engine);
                for cut in cuts.windows(2) {
                    digest.update(&octets[cut[0]..cut[1]]);
                }
                prop_assert_eq!(digest.finish(), expected);
            }
        }

        #[test]
        fn engines_agree_on_short_pieces(crc: u32, octets in proptest::collection::vec(any::<u8>(), 0..40)) {
            let expected = crc32c::crc32c_append(crc, &octets);
            for engine in ENGINES {
                prop_assert_eq!(engine.append(crc, &octets), expected);
            }
        }
    }
}
