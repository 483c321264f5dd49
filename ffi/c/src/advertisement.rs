//! Advertisements: how one end describes a buffer to the other.

use std::ffi::{c_int, c_void};

use warpline::STag;

use crate::error::{Failure, guard};
use crate::memory::Mr;
use crate::pointer::{borrow, list};
use crate::window::Mw;

/// Bytes of the message that `warpline_advertisement_encode` writes.
pub const WARPLINE_ADVERTISEMENT_BYTES: u32 = 16;

const _: () = assert!(WARPLINE_ADVERTISEMENT_BYTES as usize == warpline::Advertisement::MESSAGE_LEN);

/// Memory of a peer that an RDMA Write may write or an RDMA Read may read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advertisement {
    /// The Tagged Offset of the first byte: `remote_addr` of a `warpline_send_wr`.
    pub to: u64,
    /// `remote_stag` of a `warpline_send_wr`.
    pub stag: u32,
    /// Bytes from there on.
    pub length: u32,
}

impl From<warpline::Advertisement> for Advertisement {
    fn from(advertisement: warpline::Advertisement) -> Self {
        let warpline::Advertisement { to, stag, len } = advertisement;
        Self { to, stag: stag.0, length: len }
    }
}

/// # Safety
///
/// `place` is null or may be written.
unsafe fn write(place: *mut Advertisement, what: Option<warpline::Advertisement>) -> Result<c_int, Failure> {
    if place.is_null() {
        return Err(Failure::NULL);
    }
    let what = what.ok_or(Failure::invalid("the bytes are not all inside"))?;
    // SAFETY: not null, so it may be written: the caller's promise.
    unsafe { place.write(what.into()) };
    Ok(0)
}

/// Writes the advertisement of bytes `offset` to `offset + length` of the memory.
///
/// - `-EINVAL`: they are not all registered
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_advertisement(
    mr: *const Mr,
    offset: usize,
    length: u32,
    advertisement: *mut Advertisement,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe {
        let what = borrow(mr)?.with(|memory| memory.advertisement(offset, length))?;
        write(advertisement, what)
    })
}

/// Writes the advertisement of bytes `offset` to `offset + length` of the window, by its last
/// `warpline_mw_binding`.
///
/// - `-EINVAL`: they do not all lie inside
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mw_advertisement(
    mw: *const Mw,
    offset: u64,
    length: u32,
    advertisement: *mut Advertisement,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe {
        let what = borrow(mw)?.with(|window| window.advertisement(offset, length))?;
        write(advertisement, what)
    })
}

/// Writes the advertisement to the `WARPLINE_ADVERTISEMENT_BYTES` bytes at `message`, as rping does: Tagged
/// Offset 8, STag 4, length 4, each with the most significant byte first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_advertisement_encode(
    advertisement: *const Advertisement,
    message: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let Advertisement { to, stag, length } = *unsafe { borrow(advertisement)? };
        if message.is_null() {
            return Err(Failure::NULL);
        }
        let encoded = warpline::Advertisement { to, stag: STag(stag), len: length }.encode();
        // SAFETY: not null, so as many bytes may be written: what C promises. No alignment is needed for
        // bytes.
        unsafe { message.cast::<u8>().copy_from_nonoverlapping(encoded.as_ptr(), encoded.len()) };
        Ok(0)
    })
}

/// Decodes a message that `warpline_advertisement_encode` wrote.
///
/// - `-EINVAL`: `length` is not `WARPLINE_ADVERTISEMENT_BYTES`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_advertisement_decode(
    message: *const c_void,
    length: usize,
    advertisement: *mut Advertisement,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe {
        let decoded = warpline::Advertisement::decode(list(message.cast(), length)?);
        write(advertisement, Some(decoded.map_err(|error| Failure::of(libc::EINVAL, &error))?))
    })
}
