//! Ranges of memory that have passed the access check: the only way from a Tagged Offset to octets.

use super::Region;
use crate::crc32c::Digest;

/// A checked range inside a region.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    pub(super) region: &'t Region,
    pub(super) offset: usize,
    pub(super) octets: usize,
}

impl<'t> Target<'t> {
    /// Places `source` at `at` octets from the start of the range. Returns false and writes nothing if it
    /// does not fit the range.
    #[must_use]
    #[inline]
    pub fn write(&self, at: usize, source: &[u8]) -> bool {
        match at.checked_add(source.len()) {
            Some(end) if end <= self.octets => self.region.write(self.offset + at, source),
            _ => false,
        }
    }

    /// Octets of the range.
    #[inline]
    pub const fn octets(&self) -> usize {
        self.octets
    }

    /// Copies from `at` octets after the start of the range to `target`. Returns false as
    /// [`write`](Self::write) does.
    #[must_use]
    #[inline]
    pub fn read(&self, at: usize, target: &mut [u8]) -> bool {
        match at.checked_add(target.len()) {
            Some(end) if end <= self.octets => self.region.read(self.offset + at, target),
            _ => false,
        }
    }

    /// Copies as [`read`](Self::read) does, and adds the copy to `digest` in the same pass.
    #[must_use]
    #[inline]
    pub fn read_summed(&self, at: usize, target: &mut [u8], digest: &mut Digest) -> bool {
        match at.checked_add(target.len()) {
            Some(end) if end <= self.octets => self.region.read_summed(self.offset + at, target, digest),
            _ => false,
        }
    }

    /// Modifies the whole range atomically (see [`Region::fetch_modify`]). Returns `None` and writes nothing
    /// unless the range is 8 aligned octets.
    #[inline]
    pub fn fetch_modify(&self, f: impl FnMut(u64) -> u64) -> Option<u64> {
        if self.octets != size_of::<u64>() {
            return None;
        }
        self.region.fetch_modify(self.offset, f)
    }

    /// The octets of the range, in place; `None` if the region is not [constant](Region::freeze).
    #[inline]
    pub fn constant(&self) -> Option<&'t [u8]> {
        self.region.constant()?.get(self.offset..self.offset + self.octets)
    }

    /// The region and the offset of the range in it.
    pub fn region(&self) -> (&'t Region, usize) {
        (self.region, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(region: &Region, offset: usize, octets: usize) -> Target<'_> {
        Target { region, offset, octets }
    }

    #[test]
    fn a_target_writes_only_what_was_checked() {
        let region = Region::heap(4096).unwrap();
        assert!(target(&region, 10, 5).write(0, b"hello"));
        assert!(
            !target(&region, 10, 5).write(1, b"hello"),
            "past the checked range, though inside the region"
        );
        let mut back = [0; 7];
        assert!(target(&region, 9, 7).read(0, &mut back));
        assert_eq!(&back, b"\0hello\0");
        let (mut digest, mut back) = (Digest::new(), [0; 5]);
        assert!(!target(&region, 10, 5).read_summed(1, &mut back, &mut digest), "past the checked range");
        assert!(target(&region, 10, 5).read_summed(0, &mut back, &mut digest));
        assert_eq!((&back, digest.finish()), (b"hello", crc32c::crc32c(b"hello")));
    }

    // Requirements: RDMAPX-5-02
    #[test]
    fn an_atomic_is_of_exactly_what_was_checked() {
        let region = Region::heap(64).unwrap();
        assert_eq!(target(&region, 8, 8).fetch_modify(|value| value + 7), Some(0));
        for (offset, octets) in [(8, 7), (8, 9), (8, 0), (12, 8)] {
            assert_eq!(target(&region, offset, octets).fetch_modify(|_| 0), None, "{octets} at {offset}");
        }
        assert_eq!(target(&region, 8, 8).fetch_modify(|value| value), Some(7));
    }
}
