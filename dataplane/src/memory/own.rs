//! Regions over existing memory of the application. Frames never refer to it: payload sent from it is copied
//! ([`Region::is_copied`]).

use core::any::Any;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::sync::Arc;

use super::{Backing, Region};

/// Memory of the application, which `keep` holds in place.
struct Own<K> {
    start: NonNull<u8>,
    octets: usize,
    /// Dropped with the region, and not used otherwise.
    _keep: K,
}

// SAFETY: the constructor requires what `Region::from_raw` requires: the span is valid for access from any
// thread until `keep` is dropped, which comes last.
#[allow(unsafe_code)]
unsafe impl<K: Send> Send for Own<K> {}
// SAFETY: as for `Send`; `keep` is not reached through a shared reference.
#[allow(unsafe_code)]
unsafe impl<K: Send> Sync for Own<K> {}

// SAFETY: `Region::from_raw` requires exactly this of its caller, and `keep` lives as long as the value.
#[allow(unsafe_code)]
unsafe impl<K: Send + 'static> Backing for Own<K> {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn octets(&self) -> usize {
        self.octets
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}

/// The allocation of a vector that was taken apart.
struct Allocation {
    start: NonNull<u8>,
    octets: usize,
    /// The capacity of the vector; `None` once the vector is given back.
    capacity: Option<usize>,
}

#[allow(unsafe_code)]
impl Allocation {
    fn take(&mut self) -> Option<Vec<u8>> {
        let capacity = self.capacity.take()?;
        // SAFETY: the three values come from one vector, which was forgotten, and taking the capacity takes
        // the ownership.
        Some(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.octets, capacity) })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        drop(self.take());
    }
}

// SAFETY: it owns the allocation alone, and a shared reference gives access to the two numbers only.
#[allow(unsafe_code)]
unsafe impl Send for Allocation {}
// SAFETY: as for `Send`.
#[allow(unsafe_code)]
unsafe impl Sync for Allocation {}

// SAFETY: the octets were a vector's, initialised, and stay in place until drop or `take_octets`, which only
// the last holder can call; only regions access them meanwhile.
#[allow(unsafe_code)]
unsafe impl Backing for Allocation {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn octets(&self) -> usize {
        self.octets
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn take_octets(&mut self) -> Option<Vec<u8>> {
        self.take()
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}

impl Region {
    /// The octets of a vector or box as they lie there, without a copy; they are freed with the last clone of
    /// the region, or taken out again ([`into_vec`](Self::into_vec)). `None` when there is no octet.
    pub fn owned(octets: impl Into<Vec<u8>>) -> Option<Self> {
        let mut vector = ManuallyDrop::new(octets.into());
        let start = NonNull::new(vector.as_mut_ptr())?;
        let allocation = Allocation { start, octets: vector.len(), capacity: Some(vector.capacity()) };
        // One without octets is freed with the allocation.
        (allocation.octets > 0).then(|| Self::new(Arc::new(allocation)))
    }

    /// The octets of an [`owned`](Self::owned) region as a vector again, without a copy.
    ///
    /// # Errors
    ///
    /// The region, when it is not of that kind, or somebody else still has it: a clone, a part, or a core.
    pub fn into_vec(mut self) -> Result<Vec<u8>, Self> {
        self.take_octets().ok_or(self)
    }

    /// The `octets` octets from `start`, which are somebody else's. `keep` is dropped when nothing reaches
    /// them any more: neither a clone of the region nor a core. It may be what holds the memory, or what says
    /// by its drop that it may go. `None`, and `keep` dropped, when there is no octet.
    ///
    /// Deregistering alone is not the end of it: a region that was cloned lives on.
    ///
    /// # Safety
    ///
    /// From now until `keep` is dropped, the octets must stay in place, initialised, and valid for reads and
    /// writes from any thread. No Rust reference to them may be used meanwhile; other code, of this process
    /// or of another that shares the memory, may read and write them by whatever it takes for volatile or
    /// atomic, and finds old or new octets, as with a device's DMA. Such a region is never constant
    /// ([`freeze`](Self::freeze)).
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(start: NonNull<u8>, octets: usize, keep: impl Send + 'static) -> Option<Self> {
        if octets == 0 || isize::try_from(octets).is_err() {
            return None;
        }
        Some(Self::new(Arc::new(Own { start, octets, _keep: keep })))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_vector_becomes_a_region_where_it_lies() {
        let mut vector = Vec::with_capacity(100);
        vector.extend_from_slice(b"as it was");
        let address = vector.as_ptr() as u64;
        let region = Region::owned(vector).unwrap();
        assert_eq!((region.address(), region.len()), (address, 9), "the octets, not the capacity");
        let mut seen = [0; 9];
        assert!(region.read(0, &mut seen));
        assert_eq!(&seen, b"as it was");
        assert!(!region.write(9, b"x"), "past the octets, though inside the allocation");
        assert!(region.is_copied());
        let boxed: Box<[u8]> = vec![7; 64].into();
        assert_eq!(Region::owned(boxed).unwrap().len(), 64);
    }

    #[test]
    fn the_last_holder_has_the_vector_again() {
        let mut vector = Vec::with_capacity(100);
        vector.extend_from_slice(b"as it was");
        let address = vector.as_ptr();
        let region = Region::owned(vector).unwrap();
        let clone = region.clone();
        let region = region.into_vec().unwrap_err();
        drop(clone);
        let part = region.part(3, 2).unwrap();
        let region = region.into_vec().unwrap_err();
        assert!(part.write(0, b"IT"));
        drop(part);
        let vector = region.into_vec().unwrap();
        assert_eq!((&vector[..], vector.capacity(), vector.as_ptr()), (&b"as IT was"[..], 100, address));
        let not_owned = Region::heap(64).unwrap();
        assert_eq!(not_owned.into_vec().unwrap_err().len(), 64);
    }

    #[test]
    fn nothing_is_no_region() {
        assert!(Region::owned(Vec::new()).is_none() && Region::owned(Vec::with_capacity(9)).is_none());
    }

    struct Counts(Arc<AtomicUsize>);

    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The owner is notified once, after the last clone and part are gone.
    #[test]
    #[allow(unsafe_code)]
    fn the_keeper_goes_last() {
        let drops = Arc::new(AtomicUsize::new(0));
        let mut memory = vec![1_u8; 32];
        let start = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector lives until the end of the test and is not touched before the region has gone.
        let region = unsafe { Region::from_raw(start, 32, Counts(drops.clone())) }.unwrap();
        let region = region.freeze().unwrap_err();
        let part = region.part(8, 8).unwrap();
        assert!(region.is_copied() && part.write(0, &[9; 8]));
        drop(region);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(part);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        assert_eq!(memory[..20], [1, 1, 1, 1, 1, 1, 1, 1, 9, 9, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1]);
        for octets in [0, usize::MAX] {
            // SAFETY: no region is made.
            assert!(unsafe { Region::from_raw(start, octets, Counts(drops.clone())) }.is_none());
        }
        assert_eq!(drops.load(Ordering::Relaxed), 3);
    }
}
