//! A span of memory shared between the application, its cores and, through them, remote peers.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{self, Layout};
use std::sync::Arc;

use super::copy::{self, Pieces};
use crate::crc32c::Digest;

/// The owner of a [`Region`]'s octets: a hugepage zone, a heap block, a mapping.
///
/// # Safety
///
/// For as long as the value lives, `start()` must point to `octets()` octets, initialised and valid for reads
/// and writes from any thread, always the same span, to which no Rust reference exists except those of
/// constant regions ([`Region::constant`]). If [`is_exclusive`](Self::is_exclusive) returns true, the octets
/// are accessed through regions only.
#[allow(unsafe_code)]
pub unsafe trait Backing: Send + Sync + 'static {
    /// The first octet.
    fn start(&self) -> NonNull<u8>;
    /// Octets in the span.
    fn octets(&self) -> usize;
    /// Whether devices that take payload by reference can refer to it.
    fn is_for_devices(&self) -> bool {
        false
    }
    /// Whether the octets are accessed through regions only. Only such regions can be made constant.
    fn is_exclusive(&self) -> bool {
        false
    }
    /// Returns the octets as a vector, and leaves the backing empty, only to be dropped; `None` if it was not
    /// made of a vector.
    fn take_octets(&mut self) -> Option<Vec<u8>> {
        None
    }
    /// The device-specific backing, by which a device that transmits by reference recognizes its own memory.
    fn as_any(&self) -> &(dyn core::any::Any + Send + Sync);
}

/// A span of memory that applications and cores read and write as a device does: by copy, without Rust
/// references into it. Clones share the span; it is freed with the last clone.
///
/// Any number of threads and peers may read and write the same octets at the same time. A read that races
/// with a write returns old and new octets in any mixture, even within a word, as with any DMA, and the next
/// read may return others: RDMAP leaves the contents of a buffer undetermined until a Delivery defines them
/// (RFC 5040 §5.5). A completion orders: the thread that has polled it sees all octets that it stands for. No
/// octet outside the region is ever accessed.
///
/// A region can be made constant ([`freeze`](Self::freeze)). Only then frames carry its octets by reference.
#[derive(Clone)]
pub struct Region {
    // The span is repeated here so that the hot path does not go through the trait object.
    start: NonNull<u8>,
    octets: usize,
    /// No octet is written any more. All regions on a backing are constant, or none is.
    constant: bool,
    backing: Arc<dyn Backing>,
}

// SAFETY: `Backing` promises that the span is valid from any thread. It is accessed by copies that may race,
// by atomics, and, when it is constant, by reads alone.
#[allow(unsafe_code)]
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
#[allow(unsafe_code)]
unsafe impl Sync for Region {}

#[allow(unsafe_code)]
impl Region {
    /// A region over `backing`.
    pub fn new(backing: Arc<dyn Backing>) -> Self {
        Self { start: backing.start(), octets: backing.octets(), constant: false, backing }
    }

    /// A region of `octets` zero octets on the heap, page aligned. For tests and for machines without
    /// hugepages.
    ///
    /// # Errors
    ///
    /// `None` when `octets` is 0 or memory is short.
    pub fn heap(octets: usize) -> Option<Self> {
        Some(Self::new(Arc::new(HeapBacking::new(octets)?)))
    }

    /// The `octets` octets from `offset` as a region of their own, which keeps this one alive; `None` if they
    /// do not all lie inside, or `octets` is 0. Devices do not transmit it by reference.
    pub fn part(&self, offset: usize, octets: usize) -> Option<Self> {
        (octets > 0 && self.contains(offset, octets)).then(|| Self {
            constant: self.constant,
            ..Self::new(Arc::new(Part { whole: self.clone(), offset, octets }))
        })
    }

    /// Makes the region constant for the rest of its life: from now on every write to it is refused, and it
    /// cannot be registered with a right to write. Payload can be sent from it by reference where memory and
    /// device allow it ([`is_copied`](Self::is_copied)), RDMA Read Responses too: however late the device
    /// reads a frame, the octets are those that its CRC was computed over.
    ///
    /// # Errors
    ///
    /// The region, unchanged, if a clone, a part or a registration of it exists, or if the memory is accessed
    /// without it ([`from_raw`](Self::from_raw)).
    pub fn freeze(mut self) -> Result<Self, Self> {
        if Arc::get_mut(&mut self.backing).is_some_and(|backing| backing.is_exclusive()) {
            self.constant = true;
            Ok(self)
        } else {
            Err(self)
        }
    }

    /// Whether it is constant: no write is accepted ([`freeze`](Self::freeze)).
    pub const fn is_constant(&self) -> bool {
        self.constant
    }

    /// The octets, in place; `None` when the region is not constant.
    pub fn constant(&self) -> Option<&[u8]> {
        // SAFETY: `Backing` keeps the span valid and initialised, and reached by regions alone. When this one
        // became constant it was the only one; since then all are, and none writes.
        self.constant.then(|| unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.octets) })
    }

    /// Octets in the region.
    pub fn len(&self) -> usize {
        self.octets
    }

    /// Always false: regions are not empty.
    pub fn is_empty(&self) -> bool {
        self.octets == 0
    }

    /// The address of the first octet, as a number: the Tagged Offset of address-based registrations.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The octets as a vector, from the last holder of a region made of one; the region is then to be
    /// dropped.
    pub(super) fn take_octets(&mut self) -> Option<Vec<u8>> {
        Arc::get_mut(&mut self.backing)?.take_octets()
    }

    /// Whether sends copy their payload from it into frames. Frames refer only to memory that cannot change
    /// and that devices can read: whole regions of hugepages (`Region::huge`).
    pub fn is_copied(&self) -> bool {
        !(self.constant && self.backing.is_for_devices())
    }

    /// The owner of the octets.
    pub fn backing(&self) -> &dyn Backing {
        &*self.backing
    }

    /// Whether `offset..offset + octets` lies inside.
    pub const fn contains(&self, offset: usize, octets: usize) -> bool {
        match offset.checked_add(octets) {
            Some(end) => end <= self.octets,
            None => false,
        }
    }

    /// Copies `source` to `offset`. Returns false and writes nothing if it does not fit, or the region is
    /// constant.
    #[must_use]
    #[inline]
    pub fn write(&self, offset: usize, source: &[u8]) -> bool {
        if !self.contains(offset, source.len()) || self.constant {
            return false;
        }
        // SAFETY: the range was just checked to lie inside the span, which `Backing` keeps valid; its octets
        // are accessed by such copies and atomics alone. `source` is no part of it: there are references into
        // constant regions only.
        unsafe { copy::write(source, self.start.as_ptr().add(offset)) };
        true
    }

    /// Copies from `offset` to `target`. Returns false and leaves `target` unchanged if the range is not
    /// inside.
    #[must_use]
    #[inline]
    pub fn read(&self, offset: usize, target: &mut [u8]) -> bool {
        if !self.contains(offset, target.len()) {
            return false;
        }
        // SAFETY: as in `write`, with the direction turned.
        unsafe { copy::read(self.start.as_ptr().add(offset), target) };
        true
    }

    /// Copies from `offset` to `target` as [`read`](Self::read) does, and adds the copy to `digest` in the
    /// same pass. Returns false and changes neither if the range is not inside.
    #[must_use]
    #[inline]
    pub fn read_summed(&self, offset: usize, target: &mut [u8], digest: &mut Digest) -> bool {
        if !self.contains(offset, target.len()) {
            return false;
        }
        // SAFETY: as in `read`.
        unsafe { copy::read_summed(self.start.as_ptr().add(offset), target, digest) };
        true
    }

    /// Copies `octets` octets from `offset` to the front of `target`, except where Markers stand: after the
    /// first `to_marker` octets, and after each 508 more. Returns false and leaves `target` unchanged if the
    /// range is not inside, or `target` is too short.
    #[must_use]
    #[inline]
    pub fn read_marked(&self, offset: usize, octets: usize, target: &mut [u8], to_marker: usize) -> bool {
        let pieces = Pieces::new(octets, to_marker);
        if !self.contains(offset, octets) || pieces.marked_octets() > target.len() {
            return false;
        }
        // SAFETY: as in `read`; the target was just checked to have room.
        unsafe { copy::read_pieces(self.start.as_ptr().add(offset), target, pieces) };
        true
    }

    /// Copies `octets` octets from the front of `source` to `offset`, except the Markers, which stand as
    /// [`read_marked`](Self::read_marked) says. Returns false and writes nothing if they do not fit, the
    /// source is too short, or the region is constant.
    #[must_use]
    #[inline]
    pub fn write_marked(&self, offset: usize, octets: usize, source: &[u8], to_marker: usize) -> bool {
        let pieces = Pieces::new(octets, to_marker);
        if !self.contains(offset, octets) || pieces.marked_octets() > source.len() || self.constant {
            return false;
        }
        // SAFETY: as in `write`; the source was just checked to have them.
        unsafe { copy::write_pieces(source, self.start.as_ptr().add(offset), pieces) };
        true
    }

    /// Replaces the 64 bits at `offset`, in the byte order of this machine (RFC 7306 §5.1.1), by the result
    /// of `f`, and returns the value before: one read-modify-write, atomic to every core and to the
    /// application's own atomics on the same octets. It orders other accesses like a lock that is taken and
    /// released.
    ///
    /// Returns `None` and writes nothing if the region is constant, or if the 8 octets are not inside or not
    /// aligned to 8 in memory. `f` may be called more than once.
    // Requirements: RDMAPX-5-01, RDMAPX-5-02
    #[inline]
    pub fn fetch_modify(&self, offset: usize, mut f: impl FnMut(u64) -> u64) -> Option<u64> {
        if !self.contains(offset, size_of::<u64>()) || self.constant {
            return None;
        }
        // SAFETY: the range was just checked to lie inside the span.
        let place = unsafe { self.start.as_ptr().add(offset) };
        #[expect(clippy::cast_ptr_alignment, reason = "checked on the next line")]
        let place = place.cast::<u64>();
        if !place.is_aligned() {
            return None;
        }
        // SAFETY: the place is aligned and inside the span, which `Backing` keeps valid and initialised; the
        // reference ends here. A copy that meets it sees old or new octets (`copy`).
        let place = unsafe { AtomicU64::from_ptr(place) };
        let modify = |value| Some(f(value));
        place.fetch_update(Ordering::AcqRel, Ordering::Acquire, modify).ok()
    }

    /// The raw span. Accesses must be atomic or volatile while others may write at the same time, and a
    /// constant region must not be written.
    pub fn as_non_null(&self) -> NonNull<u8> {
        self.start
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("start", &self.start)
            .field("len", &self.octets)
            .field("constant", &self.constant)
            .finish_non_exhaustive()
    }
}

/// A part of a region.
struct Part {
    whole: Region,
    offset: usize,
    octets: usize,
}

// SAFETY: the octets lie inside the region, which is kept, and which makes the same promises for all of its
// own.
#[allow(unsafe_code)]
unsafe impl Backing for Part {
    fn start(&self) -> NonNull<u8> {
        // SAFETY: `part` has checked that the range lies inside the span.
        unsafe { self.whole.start.add(self.offset) }
    }

    fn octets(&self) -> usize {
        self.octets
    }

    fn as_any(&self) -> &(dyn core::any::Any + Send + Sync) {
        self
    }
}

/// Zeroed, page-aligned octets on the heap.
pub struct HeapBacking {
    start: NonNull<u8>,
    layout: Layout,
}

impl HeapBacking {
    const ALIGNMENT: usize = 4096;

    /// `octets` zero octets; `None` when `octets` is 0 or memory is short.
    #[allow(unsafe_code)]
    pub fn new(octets: usize) -> Option<Self> {
        let layout = Layout::from_size_align(octets, Self::ALIGNMENT).ok()?;
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }
}

impl Drop for HeapBacking {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this very layout and is freed once.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: the block is owned by this value alone and accessed only through raw copies.
#[allow(unsafe_code)]
unsafe impl Send for HeapBacking {}
// SAFETY: as for `Send`.
#[allow(unsafe_code)]
unsafe impl Sync for HeapBacking {}

// SAFETY: the block is allocated zeroed, stays in place until drop, and is given to nobody but regions.
#[allow(unsafe_code)]
unsafe impl Backing for HeapBacking {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn octets(&self) -> usize {
        self.layout.size()
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn as_any(&self) -> &(dyn core::any::Any + Send + Sync) {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stay_inside() {
        let region = Region::heap(100).unwrap();
        assert!(region.write(90, &[7; 10]));
        assert!(!region.write(91, &[8; 10]), "one octet over");
        assert!(!region.write(usize::MAX, &[8; 2]), "the sum wraps");
        let mut back = [0; 12];
        assert!(region.read(88, &mut back));
        assert_eq!(back, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert!(!region.read(89, &mut back));
        let mut digest = Digest::new();
        assert!(!region.read_summed(89, &mut back, &mut digest), "one byte over");
        assert_eq!((back[11], digest.finish()), (7, 0), "nothing is copied or summed");
        back.fill(0);
        assert!(region.read_summed(88, &mut back, &mut digest));
        assert_eq!(back, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(digest.finish(), crc32c::crc32c(&back));
    }

    #[test]
    fn a_part_ends_where_it_ends() {
        let whole = Region::heap(100).unwrap();
        let part = whole.part(10, 20).unwrap();
        assert_eq!((part.len(), part.address()), (20, whole.address() + 10));
        assert!(part.write(0, &[1; 20]));
        assert!(!part.write(1, &[1; 20]) && !part.write(20, &[1]), "inside the whole, but not the part");
        let mut back = [0; 22];
        assert!(whole.read(9, &mut back));
        assert_eq!((back[0], &back[1..21], back[21]), (0, &[1; 20][..], 0));
        assert!(
            whole.part(90, 11).is_none() && whole.part(usize::MAX, 2).is_none() && whole.part(0, 0).is_none()
        );
        drop(whole);
        assert!(part.read(0, &mut back[..20]), "a part keeps the whole");
    }

    /// Only 8 whole octets, inside and aligned in memory, are touched.
    // Requirements: RDMAPX-5-02
    #[test]
    fn atomics_want_eight_aligned_octets_inside() {
        let region = Region::heap(32).unwrap();
        assert!(region.write(8, &41_u64.to_ne_bytes()));
        assert_eq!(region.fetch_modify(8, |value| value + 1), Some(41), "in the byte order of the machine");
        let mut whole = [0; 32];
        assert!(region.read(0, &mut whole));
        assert_eq!(whole[8..16], 42_u64.to_ne_bytes());
        let outside = [25, 32, usize::MAX - 7, usize::MAX];
        // Of the part's own octets those at its offset 4 are aligned: it is the memory that counts.
        let part = region.part(4, 28).unwrap();
        assert_eq!(part.fetch_modify(4, |value| value), Some(42));
        for offset in (9..16).chain(1..8).chain(outside) {
            assert_eq!(region.fetch_modify(offset, |_| u64::MAX), None, "offset {offset}");
        }
        assert_eq!(part.fetch_modify(0, |_| u64::MAX), None);
        let mut after = [0; 32];
        assert!(region.read(0, &mut after));
        assert_eq!(after, whole, "a refused one touches nothing");
    }

    /// An update that comes between reading and writing is not lost; nor is a neighbouring octet touched.
    // Requirements: RDMAPX-5-01
    #[test]
    fn an_atomic_that_is_overtaken_begins_again() {
        let region = Region::heap(32).unwrap();
        assert!(region.write(0, &[9; 32]) && region.write(8, &100_u64.to_ne_bytes()));
        let mut seen = Vec::new();
        let before = region.fetch_modify(8, |value| {
            if seen.is_empty() {
                region.fetch_modify(8, |value| value + 1000).unwrap();
            }
            seen.push(value);
            value + 1
        });
        assert_eq!((before, seen), (Some(1100), vec![100, 1100]));
        let mut whole = [0; 32];
        assert!(region.read(0, &mut whole));
        assert_eq!(whole[8..16], 1101_u64.to_ne_bytes());
        assert!(whole[..8].iter().chain(&whole[16..]).all(|&octet| octet == 9));
    }

    /// No update of another thread is lost.
    // Requirements: RDMAPX-5-01
    #[test]
    fn atomics_of_many_threads_add_up() {
        const THREADS: u64 = 4;
        const TIMES: u64 = 5_000;
        let region = Region::heap(64).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        region.fetch_modify(16, |value| value.wrapping_add(3)).unwrap();
                    }
                });
            }
        });
        assert_eq!(region.fetch_modify(16, |value| value), Some(3 * THREADS * TIMES));
    }

    /// Several threads write, read and modify the same octets; each reads a value that one of them wrote. The
    /// thread sanitizer checks for data races (`scripts/sanitize thread`).
    #[test]
    fn copies_may_race() {
        const TIMES: u64 = 300;
        const OCTETS: usize = 700;
        let region = Region::heap(OCTETS + 60).unwrap();
        std::thread::scope(|scope| {
            for writer in 1..=2_u8 {
                let region = &region;
                scope.spawn(move || {
                    for at in 0..TIMES as usize {
                        assert!(
                            region.write(at % 61, &[writer; OCTETS - 1]) && region.write(at % 7, &[writer])
                        );
                    }
                });
            }
            scope.spawn(|| {
                for at in 0..TIMES as usize {
                    let target = super::super::Target { region: &region, offset: at % 31, octets: 512 };
                    assert!(target.write(at % 5, &[3; 500]));
                    region.fetch_modify(64, |_| u64::from_ne_bytes([4; 8])).unwrap();
                }
            });
            scope.spawn(|| {
                let mut seen = [0; OCTETS];
                for at in 0..TIMES as usize {
                    assert!(region.read(at % 61, &mut seen));
                    assert!(seen.iter().all(|&octet| octet <= 4), "an octet that nobody wrote");
                }
            });
        });
    }

    #[test]
    fn nobody_writes_to_a_constant_region() {
        let region = Region::heap(64).unwrap();
        assert!(region.write(8, b"as it is") && region.constant().is_none());
        let clone = region.clone();
        let region = region.freeze().unwrap_err();
        assert!(region.write(0, b"!") && !region.is_constant(), "another could write");
        drop(clone);
        let part = region.part(0, 8).unwrap();
        let (region, part) = (region.freeze().unwrap_err(), part.freeze().unwrap_err());
        drop(part);
        let region = region.freeze().unwrap();
        let part = region.part(8, 8).unwrap();
        for region in [&region, &part, &region.clone()] {
            assert!(region.is_constant() && !region.write(0, b"?") && !region.write(0, b""));
            assert_eq!(region.fetch_modify(0, |_| 7), None);
        }
        assert_eq!(part.constant(), Some(&b"as it is"[..]));
        let mut back = [0; 9];
        assert!(region.read(0, &mut back));
        assert_eq!(&back, b"!\0\0\0\0\0\0\0a");
        let owned = Region::owned(&b"a vector"[..]).unwrap().freeze().unwrap();
        assert_eq!(owned.into_vec().unwrap(), b"a vector");
    }

    #[test]
    fn an_empty_region_cannot_be_had() {
        assert!(Region::heap(0).is_none());
    }
}
