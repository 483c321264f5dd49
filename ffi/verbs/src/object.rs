//! What programs hold: a structure of the ABI, with ours around it in one allocation.
//!
//! In front of each is a mark, by which a pointer to something else, or to what was destroyed, is recognised
//! in most cases, and a count of the objects that stand on it: one in use is not destroyed (`EBUSY`).

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::errno::Errno;

/// A kind of object: what stands behind its structure.
pub(crate) trait Kind: Send + Sync {
    /// The structure that programs see.
    type Public;
    /// The mark of this kind: no two have the same.
    const MARK: u64;
}

/// An object. Programs have a pointer to `public`; what is in front of that is at the same distance in all
/// kinds. Programs and calls write to `public`, so here it is reached by pointers alone.
#[repr(C)]
pub(crate) struct Object<K: Kind> {
    mark: AtomicU64,
    users: AtomicUsize,
    public: UnsafeCell<K::Public>,
    inner: K,
}

/// From an object of any kind to what a program's pointer points to.
pub(crate) const TO_PUBLIC: usize = 16;

impl<K: Kind> Object<K> {
    /// The mark is as far in front of the structure whatever the kind is.
    const IN_FRONT: () = assert!(std::mem::offset_of!(Self, public) == TO_PUBLIC && align_of::<Self>() == 8);

    /// Makes an object, and returns what a program gets.
    pub(crate) fn hand_out(public: K::Public, inner: K) -> *mut K::Public {
        let () = Self::IN_FRONT;
        let public = UnsafeCell::new(public);
        let object = Self { public, mark: AtomicU64::new(K::MARK), users: AtomicUsize::new(0), inner };
        Box::into_raw(Box::new(object)).wrapping_byte_add(TO_PUBLIC).cast()
    }

    /// Borrows the object around a program's pointer.
    ///
    /// # Errors
    ///
    /// [`Errno::INVALID`] if it is null, not aligned, or of another kind.
    ///
    /// # Safety
    ///
    /// The pointer is null, or to an object of this library that is not destroyed while `'a` lasts.
    pub(crate) unsafe fn of<'a>(public: *mut K::Public) -> Result<&'a Self, Errno> {
        let object = public.wrapping_byte_sub(TO_PUBLIC).cast::<Self>();
        if public.is_null() || !object.is_aligned() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller's promise: every object has its mark there.
        let mark = unsafe { (*object.cast::<AtomicU64>()).load(Ordering::Acquire) };
        if mark != K::MARK {
            return Err(Errno::INVALID);
        }
        // SAFETY: the mark says that it is one of this kind.
        Ok(unsafe { &*object })
    }

    /// Takes an object back, to destroy it. No call of the program uses it any more.
    ///
    /// # Errors
    ///
    /// [`Errno::BUSY`] if others stand on it; [`Errno::INVALID`] as for [`of`](Self::of). It is then as
    /// before.
    ///
    /// # Safety
    ///
    /// As for [`of`](Self::of), and nobody borrows it.
    pub(crate) unsafe fn take_back(public: *mut K::Public) -> Result<Box<Self>, Errno> {
        // SAFETY: the caller's promise.
        let object = unsafe { Self::of(public)? };
        if object.is_used() {
            return Err(Errno::BUSY);
        }
        object.mark.store(0, Ordering::Release);
        // SAFETY: it came from `hand_out`, and the mark has now been taken away, once.
        Ok(unsafe { Box::from_raw(public.wrapping_byte_sub(TO_PUBLIC).cast()) })
    }

    /// Returns what stands behind the structure.
    pub(crate) const fn inner(&self) -> &K {
        &self.inner
    }

    /// Returns the program's pointer.
    pub(crate) const fn pointer(&self) -> *mut K::Public {
        self.public.get()
    }

    /// Returns true if others stand on it.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) != 0
    }

    /// Counts a user, until the result is dropped.
    pub(crate) fn used(&self) -> Use<K> {
        self.users.fetch_add(1, Ordering::AcqRel);
        Use(NonNull::from(self))
    }
}

/// An object that another stands on: it is there as long as this is.
pub(crate) struct Use<K: Kind>(NonNull<Object<K>>);

// SAFETY: an object is shared among threads, and goes when no `Use` is left.
unsafe impl<K: Kind> Send for Use<K> {}
// SAFETY: as for `Send`.
unsafe impl<K: Kind> Sync for Use<K> {}

impl<K: Kind> std::ops::Deref for Use<K> {
    type Target = Object<K>;

    fn deref(&self) -> &Object<K> {
        // SAFETY: one that is used is not taken back.
        unsafe { self.0.as_ref() }
    }
}

impl<K: Kind> Drop for Use<K> {
    fn drop(&mut self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns a structure of the ABI whose octets are all zero.
///
/// # Safety
///
/// Zero octets are a value of `T`: it has integers, pointers, optional functions and arrays and structures of
/// these alone, as what C declares has.
pub(crate) unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller's promise.
    unsafe { std::mem::zeroed() }
}
