//! Error numbers of DPDK and the C library.

use core::ffi::{CStr, c_int};
use core::fmt;

use dpdk_sys as sys;

/// An error number of DPDK (`rte_errno`) or the C library; displays as its text and number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const NOT_SUPPORTED: Self = Self(libc::ENOTSUP);
    pub(crate) const OUT_OF_MEMORY: Self = Self(libc::ENOMEM);

    /// Returns the error that the last failed call on this thread left in `rte_errno`.
    pub(crate) fn last() -> Self {
        // SAFETY: reads a thread-local number; no precondition.
        Self(unsafe { sys::inlined_rte_errno() })
    }

    /// Returns `Ok` unless `result`, which a DPDK function returned, is negative: an error number with its
    /// sign turned, or -1 with the number in `rte_errno`.
    pub(crate) fn check(result: c_int) -> Result<c_int, Self> {
        match result {
            0.. => Ok(result),
            -1 if Self::last().0 != 0 => Err(Self::last()),
            _ => Err(Self(-result)),
        }
    }

    /// Returns the number, positive.
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: takes any number and returns a string of this thread, valid until its next call.
        let text = unsafe { CStr::from_ptr(sys::rte_strerror(self.0)) };
        write!(f, "{} (error {})", text.to_string_lossy(), self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({self})")
    }
}
