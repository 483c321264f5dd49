//! Pointers from C and to C.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::{IpAddr, SocketAddr};
use std::slice;
use std::time::Duration;

use crate::error::Failure;

/// The most bytes of an address as a string, with the zero byte at its end.
#[expect(unreachable_pub, reason = "the header has what is pub")]
pub const WARPLINE_MAX_ADDRESS: u32 = 46;

/// Borrows the value behind a handle or a pointer.
///
/// # Safety
///
/// Null, or good for as long as `'a`: C's contract.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Failure::NULL)
}

/// Writes to `target` a new handle of the value that `make` returns, and null before; makes nothing for a
/// null target.
///
/// # Safety
///
/// `target` is null or may be written.
pub(crate) unsafe fn hand_out<T>(
    target: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::NULL);
    }
    // SAFETY: not null, so it may be written: the caller's promise.
    unsafe { target.write(std::ptr::null_mut()) };
    let handle = Box::into_raw(Box::new(make()?));
    // SAFETY: as above.
    unsafe { target.write(handle) };
    Ok(())
}

/// Takes a handle back, by which its thing goes; null is nothing.
///
/// # Safety
///
/// Null, or from [`hand_out`] and not taken back yet.
pub(crate) unsafe fn take_back<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: not null, so it came from `Box::into_raw`, once: the caller's promise.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// `count` things from `start`; null is good for none.
///
/// # Safety
///
/// Null, or good for `count` things, which hold values and do not change, for as long as `'a`.
pub(crate) unsafe fn list<'a, T>(start: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null()
        || !start.is_aligned()
        || count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize)
    {
        return Err(Failure::invalid("a list is null, not aligned or longer than memory"));
    }
    // SAFETY: not null and aligned; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(start, count) })
}

/// A string; `None` for null.
///
/// # Safety
///
/// Null, or ended by a zero byte, and it does not change for as long as `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::invalid("a string is not UTF-8"))
}

/// An address in words, with a port.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn socket_address(address: *const c_char, port: u16) -> Result<SocketAddr, Failure> {
    // SAFETY: the caller's promise.
    let address = unsafe { text(address)? }.ok_or(Failure::NULL)?;
    let address: IpAddr = address.parse().map_err(|error| Failure::of(libc::EINVAL, &error))?;
    Ok(SocketAddr::new(address, port))
}

/// Writes an address in words to `address` and its port to `port`, of which either may be null.
///
/// # Safety
///
/// Both are null or may be written, `address` with room for [`WARPLINE_MAX_ADDRESS`] bytes.
pub(crate) unsafe fn write_address(
    from: Option<SocketAddr>,
    address: *mut c_char,
    port: *mut u16,
) -> Result<c_int, Failure> {
    let from =
        from.ok_or(Failure::new(libc::ENOTCONN, "the address is not known: nothing is connected or bound"))?;
    let words = CString::new(from.ip().to_canonical().to_string()).unwrap_or_default();
    let words = words.as_bytes_with_nul();
    if !address.is_null() && words.len() <= WARPLINE_MAX_ADDRESS as usize {
        // SAFETY: not null, so there is room for as many bytes: the caller's promise.
        unsafe { address.cast::<u8>().copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    }
    if !port.is_null() {
        // SAFETY: not null, so it may be written: the caller's promise.
        unsafe { port.write(from.port()) };
    }
    Ok(0)
}

/// How long a call waits at most: for ever (some decades) when negative.
pub(crate) fn patience(milliseconds: i32) -> Duration {
    u64::try_from(milliseconds).map_or(Duration::from_secs(1 << 30), Duration::from_millis)
}
