//! How calls fail: negative numbers, and a sentence for the thread that called.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use warpline::cm::CmError;
use warpline::{
    AnswerError, ByteStreamError, CloseError, ConnectError, CreateError, DeallocateError, DeregisterError,
    ListenError, MemoryError, PollThreadError, PostError, StartError, Stopped, SwitchError, TcpStreamError,
};

/// Why a call fails: a number for the program, words for its user.
pub(crate) struct Failure {
    code: c_int,
    words: Words,
}

/// The number of a failure that has none of its own here.
const OTHER: c_int = libc::EIO;

/// Words that are put together only when somebody asks for them: posting must not allocate.
enum Words {
    Fixed(&'static str),
    Refused(PostError),
    Text(String),
}

impl Words {
    fn text(&self) -> String {
        match self {
            Self::Fixed(words) => (*words).into(),
            Self::Refused(error) => error.to_string(),
            Self::Text(words) => words.clone(),
        }
    }
}

thread_local! {
    /// Why the last call of this thread that failed did so, and the same as C has it once it was asked for.
    static LAST: RefCell<(Words, CString)> = RefCell::new((Words::Fixed(""), CString::default()));
}

impl Failure {
    pub(crate) const NULL: Self = Self::invalid("a pointer that must not be null is null");

    pub(crate) const fn new(code: c_int, words: &'static str) -> Self {
        Self { code, words: Words::Fixed(words) }
    }

    pub(crate) const fn invalid(words: &'static str) -> Self {
        Self::new(libc::EINVAL, words)
    }

    /// The words of `error`, with a number of `errno.h`.
    pub(crate) fn of(code: c_int, error: &dyn std::fmt::Display) -> Self {
        Self { code, words: Words::Text(error.to_string()) }
    }

    /// Notes it for [`warpline_last_error`]. Returns the result of the call.
    pub(crate) fn report(self) -> c_int {
        // A thread that is ending has nobody left to ask.
        let _ = LAST.try_with(|last| last.borrow_mut().0 = self.words);
        -self.code
    }
}

impl From<PostError> for Failure {
    fn from(error: PostError) -> Self {
        use PostError as Error;
        let code = match error {
            Error::QueueFull | Error::CompletionQueueFull => libc::EAGAIN,
            Error::WrongState(_) => libc::ENOTCONN,
            Error::TooLong => libc::EMSGSIZE,
            Error::NoReads => libc::EOPNOTSUPP,
            Error::LocalShape
            | Error::BatchFull
            | Error::SharedReceives
            | Error::OutsideAdvertisement { .. } => libc::EINVAL,
            _ => OTHER,
        };
        Self { code, words: Words::Refused(error) }
    }
}

impl From<Stopped> for Failure {
    fn from(error: Stopped) -> Self {
        Self::of(libc::ENODEV, &error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let code = match error {
            StartError::Random(_)
            | StartError::EventFd(_)
            | StartError::ControlThread(_)
            | StartError::PollThread(PollThreadError::Spawn(_)) => libc::ENOMEM,
            StartError::Ports(_) => libc::EADDRINUSE,
            _ => libc::EINVAL,
        };
        Self::of(code, &error)
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        let code = match error {
            MemoryError::OutOfMemory { .. } => libc::ENOMEM,
            MemoryError::TooManyRegions | MemoryError::Quota => libc::ENOSPC,
            MemoryError::OtherDomain | MemoryError::Wrap | MemoryError::Constant => libc::EINVAL,
            MemoryError::Stopped(_) => libc::ENODEV,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

impl From<&DeregisterError> for Failure {
    fn from(error: &DeregisterError) -> Self {
        Self::of(libc::EBUSY, error)
    }
}

impl From<&DeallocateError> for Failure {
    fn from(error: &DeallocateError) -> Self {
        let code = match error {
            DeallocateError::InUse(_) | DeallocateError::Unanswered { .. } => libc::EBUSY,
            _ => OTHER,
        };
        Self::of(code, error)
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        let code = match error {
            CreateError::TooManyQueuePairs | CreateError::Quota => libc::ENOSPC,
            CreateError::OtherDomain | CreateError::TooDeep { .. } => libc::EINVAL,
            CreateError::Stopped(_) => libc::ENODEV,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        let code = match error {
            CloseError::Failed(_) => libc::ECONNABORTED,
            CloseError::NotYet => libc::ETIMEDOUT,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

impl From<ListenError> for Failure {
    fn from(error: ListenError) -> Self {
        let code = match error {
            ListenError::PortInUse(_) | ListenError::PortOfKernel(_) | ListenError::OtherCore(_) => {
                libc::EADDRINUSE
            }
            ListenError::NotHeld { .. } => libc::ENOMEM,
            ListenError::NoCore { .. } | ListenError::NoPortOfCore(_) => libc::EINVAL,
            ListenError::NoAddress(_) => libc::EADDRNOTAVAIL,
            ListenError::TooManyListeners => libc::ENOSPC,
            ListenError::Stopped(_) => libc::ENODEV,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let code = match error {
            ConnectError::Refused => libc::ECONNREFUSED,
            ConnectError::TimedOut | ConnectError::Unanswered { .. } => libc::ETIMEDOUT,
            ConnectError::Rejected { .. } => libc::EACCES,
            ConnectError::Unmet { .. } | ConnectError::Startup(_) => libc::EPROTO,
            ConnectError::Closed(_) => libc::ECONNRESET,
            ConnectError::NoRoute => libc::ENETUNREACH,
            ConnectError::Unreachable => libc::EHOSTUNREACH,
            ConnectError::TooManyConnections => libc::ENOSPC,
            ConnectError::NoPort | ConnectError::OtherCore { .. } | ConnectError::NoAddress => {
                libc::EADDRNOTAVAIL
            }
            ConnectError::QueuePairInUse => libc::EISCONN,
            ConnectError::PendingStreamData { .. } => libc::EBUSY,
            ConnectError::NotStreaming
            | ConnectError::OtherDevice
            | ConnectError::NoCore { .. }
            | ConnectError::PrivateDataTooLong(_) => libc::EINVAL,
            ConnectError::Stopped(_) => libc::ENODEV,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

impl From<AnswerError> for Failure {
    fn from(error: AnswerError) -> Self {
        let code = match error {
            AnswerError::Startup(_) | AnswerError::InsufficientIrd { .. } => libc::EPROTO,
            AnswerError::TimedOut | AnswerError::Unanswered { .. } => libc::ETIMEDOUT,
            AnswerError::Closed(_) => libc::ECONNRESET,
            AnswerError::QueuePairInUse => libc::EISCONN,
            AnswerError::OtherDevice | AnswerError::PrivateDataTooLong(_) => libc::EINVAL,
            AnswerError::Stopped => libc::ENODEV,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

impl From<TcpStreamError> for Failure {
    fn from(error: TcpStreamError) -> Self {
        let code = match error {
            TcpStreamError::TimedOut => libc::ETIMEDOUT,
            TcpStreamError::Closed(_) => libc::ECONNRESET,
            TcpStreamError::Finished => libc::EPIPE,
            TcpStreamError::NotStreaming => libc::EINVAL,
            TcpStreamError::Stopped(_) => libc::ENODEV,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

impl From<ByteStreamError> for Failure {
    fn from(error: ByteStreamError) -> Self {
        use ByteStreamError as Error;
        let code = match error {
            Error::TimedOut => libc::ETIMEDOUT,
            Error::Closed(_) => libc::ECONNRESET,
            Error::PeerFinished | Error::Finished => libc::EPIPE,
            Error::OutsideMemory | Error::NameInUse | Error::Section(_) => libc::EINVAL,
            Error::NoMemory | Error::NoDescriptor(_) => libc::ENOMEM,
            Error::Switch(error) => return error.into(),
            Error::Stopped(_) => libc::ENODEV,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

impl From<SwitchError> for Failure {
    fn from(error: SwitchError) -> Self {
        let code = match error {
            SwitchError::PendingStreamData { .. } => libc::EBUSY,
            SwitchError::NoRoom { .. } => libc::EAGAIN,
            SwitchError::QueuePairInUse => libc::EISCONN,
            SwitchError::NotStreaming | SwitchError::OtherDevice => libc::EINVAL,
            SwitchError::Startup(_) => libc::EPROTO,
            SwitchError::Closed(_) => libc::ECONNRESET,
            SwitchError::Unanswered { .. } => libc::ETIMEDOUT,
            SwitchError::Stopped(_) => libc::ENODEV,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

impl From<CmError> for Failure {
    fn from(error: CmError) -> Self {
        let code = match error {
            CmError::NoDevice => libc::EADDRNOTAVAIL,
            CmError::Listen(error) => return error.into(),
            CmError::WrongState(_) | CmError::OtherDevice | CmError::PrivateDataTooLong(_) => libc::EINVAL,
            CmError::Stopped(_) => libc::ENODEV,
            _ => OTHER,
        };
        Self::of(code, &error)
    }
}

/// Runs the body of a call. A failure is noted and becomes its number; so does a panic, which must not unwind
/// into C.
pub(crate) fn guard(call: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    // State that a panic leaves half changed is under locks that ignore poisoning, or belongs to the call
    // alone.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => failure.report(),
        Err(panic) => Failure::of(libc::ENOTRECOVERABLE, &what_panicked(panic.as_ref())).report(),
    }
}

/// The same for a call that cannot fail: it returns `otherwise` after a panic.
pub(crate) fn guard_or<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Failure::of(libc::ENOTRECOVERABLE, &what_panicked(panic.as_ref())).report();
        otherwise
    })
}

fn what_panicked(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("warpline has a bug, please report it: {}", words.unwrap_or("no words"))
}

/// Why the last call of this thread that failed did so, in a sentence that says what to do. Empty before the
/// first failure. It is good until the next call of this thread. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn warpline_last_error() -> *const c_char {
    guard_or(c"".as_ptr(), || {
        LAST.try_with(|last| {
            let (words, text) = &mut *last.borrow_mut();
            *text = CString::new(words.text()).unwrap_or_default();
            text.as_ptr()
        })
        .unwrap_or(c"".as_ptr())
    })
}
