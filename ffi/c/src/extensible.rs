//! Structures that callers fill and that may grow, as those of Linux's system calls do: the first field is
//! the size that the caller's header has. An older caller's structure is shorter, and the fields that it
//! lacks are zero. A newer caller's is longer, which is an error only if a field that this library does not
//! know is not zero. The booleans in them are bytes.

use std::mem::MaybeUninit;
use std::slice;

use crate::error::Failure;

/// A `bool` of C, read as the byte that it is. Rust's `bool` has two values, and a program may leave any byte
/// there, by `memset` or a union: what is not 0 is true, as in C.
///
/// The header says `bool`: see cbindgen.toml.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flag(pub u8);

impl Flag {
    pub const CLEAR: Self = Self(0);
    pub const SET: Self = Self(1);

    pub const fn is_set(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Flag {
    fn from(set: bool) -> Self {
        Self(set.into())
    }
}

/// The longest structure that is looked at, in bytes: a longer one is a size that was never set.
const SIZE_MAX: usize = 4096;

/// A structure whose first field is its size.
///
/// # Safety
///
/// It is `repr(C)`, its first field is a `usize`, bytes of zeros are a value of it, and no padding follows
/// its last field, since padding that an older caller has left as it was would become part of a field.
pub(crate) unsafe trait Extensible: Copy {
    /// The size of the first version, in bytes.
    const FIRST_SIZE: usize;
}

/// Reads what the caller has filled; zeros for null.
///
/// # Safety
///
/// Null, or aligned and good for as many bytes as its first field says.
pub(crate) unsafe fn extensible<T: Extensible>(pointer: *const T) -> Result<T, Failure> {
    const { assert!(size_of::<T>() >= T::FIRST_SIZE && T::FIRST_SIZE >= size_of::<usize>()) };
    let mut filled = MaybeUninit::<T>::zeroed();
    if !pointer.is_null() {
        // SAFETY: not null, and the first field is the size: the caller's promise.
        let size = unsafe { pointer.cast::<usize>().read() };
        if size < T::FIRST_SIZE {
            return Err(Failure::invalid("the size of a structure is too small: set it to sizeof"));
        }
        if size > size_of::<T>() {
            if size > SIZE_MAX {
                return Err(TOO_NEW);
            }
            // SAFETY: as many bytes are good, and C's structures are zero or filled beyond what this library
            // knows.
            let rest = unsafe {
                slice::from_raw_parts(pointer.cast::<u8>().add(size_of::<T>()), size - size_of::<T>())
            };
            if rest.iter().any(|byte| *byte != 0) {
                return Err(TOO_NEW);
            }
        }
        // SAFETY: both are good for so many bytes, and the copy is this call's own.
        unsafe {
            pointer.cast::<u8>().copy_to_nonoverlapping(filled.as_mut_ptr().cast(), size.min(size_of::<T>()));
        }
    }
    // SAFETY: zeros are a value, and C has written values to the rest: the caller's promise.
    Ok(unsafe { filled.assume_init() })
}

const TOO_NEW: Failure =
    Failure::new(libc::E2BIG, "a structure has fields that this library does not know: use a newer library");
