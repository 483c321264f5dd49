//! Completion queues.

use std::ffi::{CStr, c_char, c_int};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::time::Duration;

use warpline::{
    Completion, CompletionKind, CompletionQueue, CompletionQueueControl, Notice, SharedCompletionQueue,
    limits,
};

use crate::error::{Failure, guard, guard_or};
use crate::extensible::{Extensible, Flag, extensible};
use crate::pointer::{borrow, hand_out, patience, take_back};

/// A bounded queue of completions. It may serve many queue pairs. Any thread may poll it; see
/// `single_threaded` of `warpline_cq_attr`.
pub struct Cq(Polling);

enum Polling {
    /// Any thread polls, by a lock.
    Locked(SharedCompletionQueue),
    /// One thread at a time polls: the program's promise.
    Single(CompletionQueue),
}

// SAFETY: a program that has made it as `Single` promises that one thread at a time polls. All else is of
// `CompletionQueueControl`, which is `Sync`.
unsafe impl Sync for Cq {}

impl Cq {
    /// Calls `poll` with the queue, in this thread's turn.
    fn poll<T>(&self, poll: impl FnOnce(&CompletionQueue) -> T) -> T {
        match &self.0 {
            Polling::Locked(cq) => poll(&cq.lock()),
            Polling::Single(cq) => poll(cq),
        }
    }

    fn wait(&self, timeout: Duration) -> Option<Completion> {
        match &self.0 {
            Polling::Locked(cq) => cq.wait(timeout),
            Polling::Single(cq) => cq.wait(timeout),
        }
    }
}

impl Deref for Cq {
    type Target = CompletionQueueControl;

    fn deref(&self) -> &CompletionQueueControl {
        match &self.0 {
            Polling::Locked(cq) => cq,
            Polling::Single(cq) => cq,
        }
    }
}

/// How a completion queue is made. Zero is the default of everything but `size` and `capacity`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CqAttr {
    /// `sizeof(struct warpline_cq_attr)`.
    pub size: usize,
    /// Completions that it has room for, 1 to 1048576.
    pub capacity: u32,
    /// The queue has a file descriptor to sleep on.
    pub sleepable: Flag,
    /// One thread at a time polls, waits for and arms the queue: a promise of the program, for which these
    /// calls take no lock (as `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` of verbs). Without, any thread may, at any
    /// time. All other calls are for any thread either way.
    pub single_threaded: Flag,
    /// Must be 0.
    pub reserved: [u8; 2],
}

// SAFETY: integers and bytes only, and the size is the first; 8 + 4 + 4 bytes leave no padding.
unsafe impl Extensible for CqAttr {
    const FIRST_SIZE: usize = 16;
}

/// Of `warpline_wc`: a Send, or Immediate Data.
pub const WARPLINE_WC_SEND: u32 = 0;
/// An RDMA Write.
pub const WARPLINE_WC_WRITE: u32 = 1;
/// An RDMA Read.
pub const WARPLINE_WC_READ: u32 = 2;
/// An atomic compare-and-swap, or swap.
pub const WARPLINE_WC_COMPARE_SWAP: u32 = 3;
/// An atomic fetch-and-add.
pub const WARPLINE_WC_FETCH_ADD: u32 = 4;
/// The invalidation of an STag of this end.
pub const WARPLINE_WC_LOCAL_INVALIDATE: u32 = 5;
/// The binding of a memory window.
pub const WARPLINE_WC_BIND: u32 = 6;
/// A registration by a work request.
pub const WARPLINE_WC_REGISTER: u32 = 7;
/// A received Send, or Immediate Data.
pub const WARPLINE_WC_RECEIVE: u32 = 128;

/// Of a received message: `immediate` is valid, and there is nothing of it in the buffer.
pub const WARPLINE_WC_WITH_IMMEDIATE: u32 = 1;
/// Of a received message: it has invalidated `invalidated_stag`.
pub const WARPLINE_WC_WITH_INVALIDATE: u32 = 2;
/// Of a received message: its sender asked to wake a sleeper.
pub const WARPLINE_WC_SOLICITED: u32 = 4;

/// Status of a `warpline_wc`, with the numbers of `enum ibv_wc_status`: success.
pub const WARPLINE_WC_SUCCESS: u32 = 0;
/// The local buffers are too short or too long for the message.
pub const WARPLINE_WC_LOC_LEN_ERR: u32 = 1;
/// The queue pair could not do what was asked of it.
pub const WARPLINE_WC_LOC_QP_OP_ERR: u32 = 2;
/// A local buffer is not registered, or not for this.
pub const WARPLINE_WC_LOC_PROT_ERR: u32 = 4;
/// The connection was over before this request's turn came.
pub const WARPLINE_WC_WR_FLUSH_ERR: u32 = 5;
/// A memory window could not be bound.
pub const WARPLINE_WC_MW_BIND_ERR: u32 = 6;
/// The peer's response is invalid.
pub const WARPLINE_WC_BAD_RESP_ERR: u32 = 7;
/// The peer tried to access memory of this end that was not granted.
pub const WARPLINE_WC_LOC_ACCESS_ERR: u32 = 8;
/// The peer has found a request of this end invalid.
pub const WARPLINE_WC_REM_INV_REQ_ERR: u32 = 9;
/// The peer has not granted the access to its memory.
pub const WARPLINE_WC_REM_ACCESS_ERR: u32 = 10;
/// The peer could not carry out the operation.
pub const WARPLINE_WC_REM_OP_ERR: u32 = 11;
/// TCP gave up retransmitting.
pub const WARPLINE_WC_RETRY_EXC_ERR: u32 = 12;
/// The peer had no receive posted for the message.
pub const WARPLINE_WC_RNR_RETRY_EXC_ERR: u32 = 13;
/// The peer has ended the connection.
pub const WARPLINE_WC_REM_ABORT_ERR: u32 = 16;
/// The stream cannot go on.
pub const WARPLINE_WC_FATAL_ERR: u32 = 19;
/// An expected message did not come in time.
pub const WARPLINE_WC_RESP_TIMEOUT_ERR: u32 = 20;
/// Anything else.
pub const WARPLINE_WC_GENERAL_ERR: u32 = 21;

/// The completion of a work request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wc {
    /// The work request's name.
    pub wr_id: u64,
    /// With `WARPLINE_WC_WITH_IMMEDIATE`, the eight bytes as an integer, most significant first on the wire.
    pub immediate: u64,
    /// `WARPLINE_WC_SUCCESS`, or why it failed: `WARPLINE_WC_LOC_LEN_ERR` to `WARPLINE_WC_GENERAL_ERR`.
    pub status: u32,
    /// Which of `WARPLINE_WC_SEND` to `WARPLINE_WC_RECEIVE`.
    pub opcode: u32,
    /// For receives, bytes of the message; for sends, bytes sent.
    pub byte_len: u32,
    /// The queue pair: see `warpline_qp_number`.
    pub qp_number: u32,
    /// `WARPLINE_WC_WITH_IMMEDIATE`, `WARPLINE_WC_WITH_INVALIDATE`, `WARPLINE_WC_SOLICITED`.
    pub flags: u32,
    /// With `WARPLINE_WC_WITH_INVALIDATE`, the STag.
    pub invalidated_stag: u32,
}

impl From<Completion> for Wc {
    fn from(completion: Completion) -> Self {
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        Self {
            wr_id: completion.id,
            immediate: completion.immediate.unwrap_or_default(),
            status: u32::from(completion.status.wc_status() as u8),
            opcode: match completion.kind {
                CompletionKind::Send => WARPLINE_WC_SEND,
                CompletionKind::Write => WARPLINE_WC_WRITE,
                CompletionKind::Read => WARPLINE_WC_READ,
                CompletionKind::CompareSwap => WARPLINE_WC_COMPARE_SWAP,
                CompletionKind::FetchAdd => WARPLINE_WC_FETCH_ADD,
                CompletionKind::LocalInvalidate => WARPLINE_WC_LOCAL_INVALIDATE,
                CompletionKind::Bind => WARPLINE_WC_BIND,
                CompletionKind::Register => WARPLINE_WC_REGISTER,
                CompletionKind::Receive => WARPLINE_WC_RECEIVE,
            },
            byte_len: completion.byte_len,
            qp_number: completion.qp.0,
            flags: flag(completion.immediate.is_some(), WARPLINE_WC_WITH_IMMEDIATE)
                | flag(completion.invalidated.is_some(), WARPLINE_WC_WITH_INVALIDATE)
                | flag(completion.solicited, WARPLINE_WC_SOLICITED),
            invalidated_stag: completion.invalidated.unwrap_or_default().0,
        }
    }
}

/// A queue with room for the completions of `capacity` work requests. With `sleepable`, it has a file
/// descriptor.
///
/// - `-EINVAL`: `capacity` is 0 or more than 1048576
/// - `-EMFILE`: the system has no file descriptor left
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cq_create(capacity: u32, sleepable: bool, cq: *mut *mut Cq) -> c_int {
    guard(|| {
        let attr = CqAttr { capacity, sleepable: sleepable.into(), ..CqAttr::default() };
        // SAFETY: the caller keeps C's contract.
        unsafe { create(&attr, cq) }
    })
}

/// A queue as `attr` describes it, which must not be null.
///
/// - `-EINVAL`: `capacity` is 0 or more than 1048576, or a reserved field is not 0
/// - `-EMFILE`: the system has no file descriptor left
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cq_create_with(attr: *const CqAttr, cq: *mut *mut Cq) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { create(&extensible(attr)?, cq) }
    })
}

/// # Safety
///
/// As for [`hand_out`].
unsafe fn create(attr: &CqAttr, cq: *mut *mut Cq) -> Result<c_int, Failure> {
    let capacity = attr.capacity as usize;
    if attr.reserved != [0; 2] {
        return Err(Failure::invalid("a reserved field is not 0"));
    }
    if !(1..=limits::COMPLETIONS_PER_QUEUE).contains(&capacity) {
        return Err(Failure::invalid("a completion queue has room for 1 to 1048576 completions"));
    }
    let make = || {
        let queue = if attr.sleepable.is_set() {
            CompletionQueue::with_events(capacity).map_err(|error| Failure::of(libc::EMFILE, &error))?
        } else {
            CompletionQueue::new(capacity)
        };
        let single = attr.single_threaded.is_set();
        Ok(Cq(if single { Polling::Single(queue) } else { Polling::Locked(queue.into()) }))
    };
    // SAFETY: the caller's promise.
    unsafe { hand_out(cq, make)? };
    Ok(0)
}

/// Returns a completion queue to the library. It stays for queue pairs that report to it. Does nothing for
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cq_destroy(cq: *mut Cq) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(cq) }));
}

/// Moves the oldest completions to `wc`, at most `count`. Returns their number. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cq_poll(cq: *mut Cq, count: u32, wc: *mut Wc) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let cq = unsafe { borrow(cq)? };
        if wc.is_null() {
            return Err(Failure::NULL);
        }
        let most = count.min(c_int::MAX as u32) as usize;
        Ok(cq.poll(|cq| {
            let mut polled: c_int = 0;
            for completion in cq.drain().take(most) {
                // SAFETY: C promises `count` places, written one after the other; they need not hold values.
                unsafe { wc.add(polled as usize).write(completion.into()) };
                polled += 1;
            }
            polled
        }))
    })
}

/// The oldest completion; waits for it for `timeout_ms` milliseconds, or for ever if that is negative.
/// Returns 1 when `wc` is written, 0 when there was none in time. On a queue that is sleepable the thread
/// sleeps meanwhile, else it polls.
///
/// Any number of threads may wait so, unless the queue is `single_threaded`. A thread that sleeps on the file
/// descriptor instead needs a queue of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cq_wait(cq: *mut Cq, wc: *mut Wc, timeout_ms: i32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let cq = unsafe { borrow(cq)? };
        if wc.is_null() {
            return Err(Failure::NULL);
        }
        let Some(completion) = cq.wait(patience(timeout_ms)) else { return Ok(0) };
        // SAFETY: not null, so it may be written, by C's contract.
        unsafe { wc.write(completion.into()) };
        Ok(1)
    })
}

/// Asks for one notification of the file descriptor: at the next completion, or with `solicited_only` at the
/// next whose sender asked for it or that is a failure. Returns 1 when there are completions
/// already, which cause no notification: poll first; else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cq_arm(cq: *mut Cq, solicited_only: bool) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let cq = unsafe { borrow(cq)? };
        let notice = if solicited_only { Notice::Solicited } else { Notice::Next };
        Ok(c_int::from(cq.poll(|cq| cq.arm(notice))))
    })
}

/// The file descriptor for poll(2) or an epoll set, readable from a notification until `warpline_cq_clear`.
/// It belongs to the queue: do not read or close it.
///
/// - `-EOPNOTSUPP`: the queue is not sleepable
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cq_fd(cq: *const Cq) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let events = unsafe { borrow(cq)? }.events();
        let events = events.ok_or(Failure::new(libc::EOPNOTSUPP, "the queue was not made to sleep on"))?;
        Ok(events.as_raw_fd())
    })
}

/// Takes the notifications there are: do so before polling. Returns 1 when there was one, else 0.
///
/// - `-EOPNOTSUPP`: the queue is not sleepable
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cq_clear(cq: *mut Cq) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let events = unsafe { borrow(cq)? }.events();
        let events = events.ok_or(Failure::new(libc::EOPNOTSUPP, "the queue was not made to sleep on"))?;
        Ok(c_int::from(events.clear()))
    })
}

/// Its number in asynchronous events; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cq_number(cq: *const Cq) -> u32 {
    // SAFETY: the caller keeps C's contract.
    unsafe { cq.as_ref() }.map_or(0, |cq| cq.number().0)
}

/// A status: its name in the header, and what it means.
struct StatusWords {
    status: u32,
    name: &'static CStr,
    text: &'static CStr,
}

macro_rules! statuses {
    ($($name:ident $text:literal)*) => {
        [$(StatusWords {
            status: $name,
            name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero byte"),
            },
            text: $text,
        }),*]
    };
}

const STATUSES: [StatusWords; 17] = statuses! {
    WARPLINE_WC_SUCCESS c"success"
    WARPLINE_WC_LOC_LEN_ERR c"local length error"
    WARPLINE_WC_LOC_QP_OP_ERR c"local QP operation error"
    WARPLINE_WC_LOC_PROT_ERR c"local protection error"
    WARPLINE_WC_WR_FLUSH_ERR c"work request flushed"
    WARPLINE_WC_MW_BIND_ERR c"memory window bind error"
    WARPLINE_WC_BAD_RESP_ERR c"bad response"
    WARPLINE_WC_LOC_ACCESS_ERR c"local access error"
    WARPLINE_WC_REM_INV_REQ_ERR c"remote invalid request"
    WARPLINE_WC_REM_ACCESS_ERR c"remote access error"
    WARPLINE_WC_REM_OP_ERR c"remote operation error"
    WARPLINE_WC_RETRY_EXC_ERR c"retries exceeded"
    WARPLINE_WC_RNR_RETRY_EXC_ERR c"the peer had no receive posted"
    WARPLINE_WC_REM_ABORT_ERR c"aborted by the peer"
    WARPLINE_WC_FATAL_ERR c"fatal error"
    WARPLINE_WC_RESP_TIMEOUT_ERR c"response timeout"
    WARPLINE_WC_GENERAL_ERR c"general error"
};

fn words_of(status: u32) -> Option<&'static StatusWords> {
    STATUSES.iter().find(|words| words.status == status)
}

/// Returns the name of a status in this header, such as `"WARPLINE_WC_WR_FLUSH_ERR"`. Never null; good for
/// ever.
#[unsafe(no_mangle)]
pub extern "C" fn warpline_wc_status_name(status: u32) -> *const c_char {
    words_of(status).map_or(c"unknown status", |words| words.name).as_ptr()
}

/// What a status means, in words. Never null; good for ever.
#[unsafe(no_mangle)]
pub extern "C" fn warpline_wc_status_text(status: u32) -> *const c_char {
    words_of(status).map_or(c"unknown status", |words| words.text).as_ptr()
}
