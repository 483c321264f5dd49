//! Lines that DPDK and its libraries print past DPDK's log, to the C streams `stdout` and `stderr`: EAL its
//! fatal errors and its usage, getopt(3) an option that it does not recognize, libbpf and libxdp the programs
//! that they load.
//!
//! For the time of a call both variables hold streams of this module (fopencookie(3)). What the calling
//! thread prints through them is DPDK's; what another thread of the program prints meanwhile goes on to the
//! stream that it was meant for, at once. File descriptors stay as they are, so Rust's own streams, panics
//! and child processes notice nothing.

use core::cell::Cell;
use core::ffi::{c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::slice;
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::{FILE, ssize_t};

/// The most octets that are kept, as many as a pipe holds.
const OCTETS: usize = 1 << 16;

/// What was printed to `stderr`, and not yet taken.
static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// The streams that stand for a while in place of `stdout` and `stderr`, in this order.
static STREAMS: OnceLock<Option<[AtomicPtr<FILE>; 2]>> = OnceLock::new();

/// The streams in whose place they stand: those of the program.
static ORIGINALS: [AtomicPtr<FILE>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

const STDERR: usize = 1;

thread_local! {
    /// Whether what this thread prints is DPDK's.
    static CALLS: Cell<bool> = const { Cell::new(false) };
}

/// The functions of a stream: `cookie_io_functions_t` of fopencookie(3).
#[repr(C)]
struct Functions {
    read: *const c_void,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> ssize_t,
    seek: *const c_void,
    close: *const c_void,
}

unsafe extern "C" {
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// The variables of C, in the order of [`STREAMS`].
fn variables() -> [&'static AtomicPtr<FILE>; 2] {
    // SAFETY: both variables live as long as the process and are aligned. C reads and sets them as plain
    // pointers, which no processor tears.
    unsafe { [AtomicPtr::from_ptr(&raw mut stdout), AtomicPtr::from_ptr(&raw mut stderr)] }
}

/// Makes a stream without a buffer: a call of the program leaves nothing in it. It is never closed, for a
/// thread may print to it that has read the variable before it was restored.
fn open(number: usize) -> *mut FILE {
    let functions = Functions { read: ptr::null(), write, seek: ptr::null(), close: ptr::null() };
    // SAFETY: the mode is a string, the cookie is a number that nothing reads as an address, and `write` has
    // the type that the library expects.
    let stream = unsafe { fopencookie(ptr::without_provenance_mut(number), c"w".as_ptr(), functions) };
    if !stream.is_null() {
        // SAFETY: a stream that is open and unused.
        unsafe { libc::setvbuf(stream, ptr::null_mut(), libc::_IONBF, 0) };
    }
    stream
}

/// Takes what is printed to the stream with the number in `cookie`.
///
/// # Safety
///
/// `octets` points to `count` readable octets.
unsafe extern "C" fn write(cookie: *mut c_void, octets: *const c_char, count: usize) -> ssize_t {
    let number = cookie.addr();
    if !CALLS.get() {
        let original = ORIGINALS[number].load(Ordering::Acquire);
        // SAFETY: the octets are readable (caller), and the program's own stream is open: this thread was
        // about to print to it. The library locks it.
        return unsafe { libc::fwrite(octets.cast(), 1, count, original) }.cast_signed();
    }
    if number == STDERR {
        // SAFETY: the caller vouches for it.
        let octets = unsafe { slice::from_raw_parts(octets.cast::<u8>(), count) };
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let room = OCTETS.saturating_sub(kept.len());
        kept.extend_from_slice(&octets[..count.min(room)]);
    }
    count.cast_signed()
}

/// Has what this thread prints through C be kept, until it is dropped. One at a time.
pub(crate) struct Diversion {
    streams: Option<&'static [AtomicPtr<FILE>; 2]>,
}

impl Diversion {
    /// Begins it. Where the streams cannot be made nothing changes.
    pub(crate) fn begin() -> Self {
        let streams = STREAMS.get_or_init(|| {
            let streams = [open(0), open(STDERR)];
            streams.iter().all(|stream| !stream.is_null()).then(|| streams.map(AtomicPtr::new))
        });
        for (number, stream) in streams.iter().flatten().enumerate() {
            let variable = variables()[number];
            ORIGINALS[number].store(variable.load(Ordering::Acquire), Ordering::Release);
            variable.store(stream.load(Ordering::Relaxed), Ordering::Release);
        }
        CALLS.set(true);
        Self { streams: streams.as_ref() }
    }
}

impl Drop for Diversion {
    fn drop(&mut self) {
        CALLS.set(false);
        for (number, stream) in self.streams.into_iter().flatten().enumerate() {
            let original = ORIGINALS[number].load(Ordering::Acquire);
            // Unless the program has set it to another stream meanwhile.
            let _ = variables()[number].compare_exchange(
                stream.load(Ordering::Relaxed),
                original,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }
}

/// Takes what was printed to `stderr`.
pub(crate) fn take() -> Vec<u8> {
    core::mem::take(&mut KEPT.lock().unwrap_or_else(PoisonError::into_inner))
}
