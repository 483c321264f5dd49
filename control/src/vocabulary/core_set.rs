//! Sets of the cores of a device.

use std::fmt;

use warpline_dataplane::limits;

/// Some of the cores of a device, by their numbers: 0 to [`CORES_MAX`](limits::CORES_MAX) less one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreSet(u64);

const _: () = assert!(limits::CORES_MAX <= u64::BITS as usize);

impl CoreSet {
    /// No core.
    pub const EMPTY: Self = Self(0);

    /// Returns the set of the first `cores` cores.
    pub(crate) const fn first(cores: u8) -> Self {
        Self(if cores as u32 >= u64::BITS { u64::MAX } else { (1 << cores) - 1 })
    }

    /// Returns the set as bits, the first core's lowest.
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the set with these bits.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the cores that `other` has too.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns all others.
    #[must_use]
    pub(crate) const fn complement(self) -> Self {
        Self(!self.0)
    }

    /// Returns true if there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns how many there are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns true if `core` is one of them; false for a number that no core has.
    pub const fn contains(self, core: u8) -> bool {
        self.0 & bit(core) != 0
    }

    /// Returns the set with `core`; without it if no core has that number.
    #[must_use]
    pub(crate) const fn with(self, core: u8) -> Self {
        Self(self.0 | bit(core))
    }

    /// Returns the set without `core`.
    #[must_use]
    pub(crate) const fn without(self, core: u8) -> Self {
        Self(self.0 & !bit(core))
    }

    /// Returns the only core of the set, if there is one and no other.
    pub(crate) fn only(self) -> Option<u8> {
        (self.len() == 1).then_some(self.0.trailing_zeros() as u8)
    }

    /// Returns the cores in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..u64::BITS as u8).filter(move |core| self.contains(*core))
    }
}

/// Returns the bit of `core`; none for a number that no core has.
const fn bit(core: u8) -> u64 {
    if (core as u32) < u64::BITS { 1 << core } else { 0 }
}

impl FromIterator<u8> for CoreSet {
    /// Returns the set of these cores.
    ///
    /// # Panics
    ///
    /// If one has a number that no core has.
    fn from_iter<I: IntoIterator<Item = u8>>(cores: I) -> Self {
        cores.into_iter().fold(Self::EMPTY, |set, core| {
            assert!(usize::from(core) < limits::CORES_MAX, "no device has a core {core}");
            set.with(core)
        })
    }
}

impl fmt::Display for CoreSet {
    /// Writes them as a sentence does: `core 2`, `cores 0, 1 and 5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.len() == 1 { "core " } else { "cores " })?;
        for (index, core) in self.iter().enumerate() {
            let before = match self.len() - index {
                _ if index == 0 => "",
                1 => " and ",
                _ => ", ",
            };
            write!(f, "{before}{core}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added_and_not_removed() {
        let set = CoreSet::first(3).with(63).without(1);
        assert_eq!(set.iter().collect::<Vec<u8>>(), [0, 2, 63]);
        assert_eq!((set.len(), set.contains(63), set.contains(1)), (3, true, false));
        assert_eq!(CoreSet::first(64).len(), 64);
        assert!(CoreSet::EMPTY.is_empty() && CoreSet::first(0).is_empty());
        assert_eq!((set.only(), CoreSet::EMPTY.with(5).only()), (None, Some(5)));
    }

    /// An application may ask for any core.
    #[test]
    fn numbers_that_no_core_has_are_in_no_set() {
        for core in [64, 65, 127, 128, 255] {
            assert!(!CoreSet::first(64).contains(core), "{core}");
            assert_eq!(CoreSet::first(3).with(core).without(core), CoreSet::first(3), "{core}");
        }
    }

    #[test]
    fn it_reads_as_part_of_a_sentence() {
        let set = |cores: &[u8]| cores.iter().copied().collect::<CoreSet>();
        let texts = [&[2][..], &[0, 1], &[0, 1, 5]].map(|cores| set(cores).to_string());
        assert_eq!(texts, ["core 2", "cores 0 and 1", "cores 0, 1 and 5"]);
    }
}
