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

    /// Copies all of the range to the front of `target`, except where Markers stand: after the first
    /// `to_marker` octets, and after each 508 more. Returns false, and writes nothing, if that is too short.
    #[must_use]
    #[inline]
    pub fn read_marked(&self, target: &mut [u8], to_marker: usize) -> bool {
        self.region.read_marked(self.offset, self.octets, target, to_marker)
    }

    /// Fills the whole range with what lies between the Markers at the front of `source`, as
    /// [`read_marked`](Self::read_marked) has it. Returns false and writes nothing if `source` is too short.
    #[must_use]
    #[inline]
    pub fn write_marked(&self, source: &[u8], to_marker: usize) -> bool {
        self.region.write_marked(self.offset, self.octets, source, to_marker)
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

    /// Octets that Markers cut are those of the range, one after the other.
    #[test]
    fn a_marked_target_is_all_of_what_was_checked() {
        let region = Region::heap(4096).unwrap();
        let pattern: Vec<u8> = (0..1200_usize).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut marked = vec![0xee; 1212];
        for (octet, value) in pattern.iter().enumerate() {
            let markers = if octet < 100 { 0 } else { 1 + (octet - 100) / 508 };
            marked[octet + 4 * markers] = *value;
        }
        let range = target(&region, 10, 1200);
        assert!(!range.write_marked(&marked[..1211], 100), "the source is too short");
        assert!(range.write_marked(&marked, 100));
        let mut back = [0; 1201];
        assert!(region.read(10, &mut back));
        assert_eq!((&back[..1200], back[1200]), (&pattern[..], 0));
        let mut out = vec![0xee; 1214];
        assert!(!range.read_marked(&mut out[..1211], 100), "no room");
        assert!(range.read_marked(&mut out, 100));
        assert_eq!((&out[..1212], &out[1212..]), (&marked[..], &[0xee; 2][..]));
        assert!(!target(&region, 4000, 100).read_marked(&mut out, 100), "past the region");
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
