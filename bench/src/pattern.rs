//! The data that benchmarks write, and its comparison at the other end.
//!
//! Both ends make the same random octets. In round `r` the octets written to a region are those from a place
//! that depends on `r`, so that data of an earlier round, or of another place in the region, differs from
//! what should be there.

use warpline::MemoryRegion;

/// Octets by which one round is shifted against the one before.
const SHIFT_OCTETS: usize = 64;
/// Rounds before a shift comes again.
const SHIFTS: usize = 509;

/// The octets from which every round takes its own.
pub struct Pattern {
    octets: Vec<u8>,
    region_octets: usize,
}

impl Pattern {
    /// Returns the pattern for regions of `region_octets` octets.
    pub fn new(region_octets: usize) -> Self {
        let mut octets = vec![0; Self::source_octets(region_octets)];
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for word in octets.chunks_mut(8) {
            // splitmix64: both ends must make the same octets, whatever their version of any library.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            word.copy_from_slice(&mixed.to_le_bytes()[..word.len()]);
        }
        Self { octets, region_octets }
    }

    /// Returns the octets of a source region that holds what every round of `region_octets` needs.
    pub const fn source_octets(region_octets: usize) -> usize {
        region_octets + SHIFT_OCTETS * SHIFTS
    }

    /// Returns the octets to fill the source region with.
    pub fn source(&self) -> &[u8] {
        &self.octets
    }

    /// Returns the offset in the source region at which round `round` begins.
    pub const fn offset(round: u64) -> usize {
        SHIFT_OCTETS * (round % SHIFTS as u64) as usize
    }

    /// Returns how many of the first `octets` octets of `region` are not what round `round` wrote.
    pub fn corrupt_bytes(&self, region: &MemoryRegion, round: u64, octets: usize) -> u64 {
        assert!(octets <= self.region_octets, "a round fits its region");
        let expected = &self.octets[Self::offset(round)..][..octets];
        let mut chunk = [0; 16_384];
        let mut corrupt = 0;
        for (n, expected) in expected.chunks(chunk.len()).enumerate() {
            let got = &mut chunk[..expected.len()];
            if !region.read(n * 16_384, got) {
                corrupt += expected.len() as u64;
            } else if got != expected {
                corrupt += got.iter().zip(expected).filter(|(got, expected)| got != expected).count() as u64;
            }
        }
        corrupt
    }
}
