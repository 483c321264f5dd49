//! How calls fail: the numbers of errno(3), as the manual pages of rdma-core have them.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Once;

use warpline::cm::CmError;
use warpline::open::OpenError;
use warpline::{BadRequest, ConnectError, CreateError, ListenError, MemoryError, PostError, Stopped};

/// A number of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const NO_DEVICE: Self = Self(libc::ENODEV);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);
    pub(crate) const NOT_SUPPORTED: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const NO_FUNCTION: Self = Self(libc::ENOSYS);
    pub(crate) const NO_ADDRESS: Self = Self(libc::EADDRNOTAVAIL);
    pub(crate) const TIMED_OUT: Self = Self(libc::ETIMEDOUT);
    pub(crate) const REFUSED: Self = Self(libc::ECONNREFUSED);
    pub(crate) const RESET: Self = Self(libc::ECONNRESET);
    pub(crate) const UNREACHABLE: Self = Self(libc::ENETUNREACH);
    pub(crate) const FAULT: Self = Self(libc::EFAULT);
    pub(crate) const NO_ENTRY: Self = Self(libc::ENOENT);
    pub(crate) const IO: Self = Self(libc::EIO);

    /// Returns that of the last system call of this thread.
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Returns that of `number`, which is positive.
    pub(crate) const fn of(number: c_int) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> c_int {
        self.0
    }

    /// Sets `errno`, for calls that say -1 or null.
    pub(crate) fn set(self) {
        // SAFETY: the location is this thread's, and always there.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<Stopped> for Errno {
    fn from(_: Stopped) -> Self {
        Self::NO_DEVICE
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        match error {
            PostError::QueueFull | PostError::CompletionQueueFull | PostError::BatchFull => Self::NO_MEMORY,
            _ => Self::INVALID,
        }
    }
}

impl From<BadRequest> for Errno {
    fn from(bad: BadRequest) -> Self {
        bad.error.into()
    }
}

impl From<MemoryError> for Errno {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::OutOfMemory { .. } | MemoryError::TooManyRegions | MemoryError::Quota => {
                Self::NO_MEMORY
            }
            MemoryError::Stopped(_) => Self::NO_DEVICE,
            MemoryError::Unanswered(_) => Self::TIMED_OUT,
            _ => Self::INVALID,
        }
    }
}

impl From<CreateError> for Errno {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::TooManyQueuePairs | CreateError::Quota => Self::NO_MEMORY,
            CreateError::Stopped(_) => Self::NO_DEVICE,
            _ => Self::INVALID,
        }
    }
}

impl From<ListenError> for Errno {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::PortInUse(_) | ListenError::PortOfKernel(_) | ListenError::OtherCore(_) => {
                Self(libc::EADDRINUSE)
            }
            ListenError::NotHeld { errno, .. } if errno != 0 => Self(errno),
            ListenError::NotHeld { .. } | ListenError::TooManyListeners => Self::NO_MEMORY,
            ListenError::NoAddress(_) => Self::NO_ADDRESS,
            ListenError::Stopped(_) => Self::NO_DEVICE,
            _ => Self::INVALID,
        }
    }
}

impl From<CmError> for Errno {
    fn from(error: CmError) -> Self {
        match error {
            CmError::Listen(error) => error.into(),
            CmError::NoDevice | CmError::Stopped(_) => Self::NO_DEVICE,
            _ => Self::INVALID,
        }
    }
}

impl From<&ConnectError> for Errno {
    fn from(error: &ConnectError) -> Self {
        match error {
            ConnectError::Refused | ConnectError::Rejected { .. } => Self::REFUSED,
            ConnectError::TimedOut | ConnectError::Unanswered { .. } => Self::TIMED_OUT,
            ConnectError::NoRoute => Self::UNREACHABLE,
            ConnectError::Unreachable => Self(libc::EHOSTUNREACH),
            ConnectError::Closed(_) => Self::RESET,
            ConnectError::NoPort | ConnectError::NoAddress | ConnectError::OtherCore { .. } => {
                Self::NO_ADDRESS
            }
            ConnectError::TooManyConnections => Self::NO_MEMORY,
            ConnectError::Stopped(_) => Self::NO_DEVICE,
            ConnectError::Unmet { .. } | ConnectError::Startup(_) => Self(libc::EPROTO),
            _ => Self::INVALID,
        }
    }
}

impl From<&OpenError> for Errno {
    fn from(error: &OpenError) -> Self {
        match error {
            OpenError::Missing { .. } => Self(libc::EPERM),
            _ => Self::NO_DEVICE,
        }
    }
}

/// Runs a call that returns 0 or a number of errno(3).
pub(crate) fn number(call: impl FnOnce() -> Result<(), Errno>) -> c_int {
    guarded(call).map_or_else(Errno::number, |()| 0)
}

/// Runs a call that returns 0, or -1 with `errno`.
pub(crate) fn minus_one(call: impl FnOnce() -> Result<(), Errno>) -> c_int {
    descriptor(|| call().map(|()| 0))
}

/// Runs a call that returns a descriptor, or -1 with `errno`.
pub(crate) fn descriptor(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    guarded(call).unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// Runs a call that returns a pointer, or null with `errno`.
pub(crate) fn pointer<T>(call: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    guarded(call).unwrap_or_else(|errno| {
        errno.set();
        null_mut()
    })
}

/// Runs a call. A panic, which must not unwind into the program, is a failure of the device. The thread is
/// not cancelled meanwhile (pthread_cancel(3)): it may have the lock of the device, and what it has would be
/// lost.
pub(crate) fn guarded<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let _not_cancelled = NotCancelled::new();
    // State that a panic leaves half changed is under locks that ignore poisoning, or belongs to the call.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno::IO))
}

/// Keeps this thread from being cancelled until it is dropped.
struct NotCancelled {
    /// What held before.
    before: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl NotCancelled {
    /// `PTHREAD_CANCEL_DISABLE` of Linux.
    const DISABLE: c_int = 1;

    fn new() -> Self {
        let mut before = 0;
        // SAFETY: the state is one of two, and the variable is there.
        unsafe { pthread_setcancelstate(Self::DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for NotCancelled {
    fn drop(&mut self) {
        // SAFETY: the state is one that this thread had; null is allowed on Linux.
        unsafe { pthread_setcancelstate(self.before, null_mut()) };
    }
}

/// Says on standard error, once for each `said`, why something does not go.
pub(crate) fn explain(said: &Once, words: &str) {
    said.call_once(|| eprintln!("warpline: {words}"));
}

/// Returns "not supported", and says once why.
macro_rules! unsupported {
    ($words:literal) => {{
        static SAID: std::sync::Once = std::sync::Once::new();
        $crate::errno::explain(&SAID, $words);
        $crate::errno::Errno::NOT_SUPPORTED
    }};
}

pub(crate) use unsupported;
