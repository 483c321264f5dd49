//! The calls that write to a byte stream, and what a program says about the bytes.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd as _;

use warpline::{Annotation, Section};

use super::{ByteStream, counted, name};
use crate::error::{Failure, guard};
use crate::extensible::{Extensible, Flag, extensible};
use crate::pointer::{borrow, list, patience};

/// Bytes that one call writes at most: as many as it can return.
const WRITE_MAX: usize = c_int::MAX as usize;

/// What is said about bytes that are written.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Annotated {
    /// `sizeof(struct warpline_annotation)`.
    pub size: usize,
    /// The name of the transfer, 46 bits, if `in_section`.
    pub rid: u64,
    /// The place of the first byte in the peer's buffer.
    pub buffer_offset: u32,
    /// Bytes of the whole transfer, if `total_known`.
    pub total_bytes: u32,
    /// The first byte begins a message.
    pub starts_message: Flag,
    /// The bytes are a section of a transfer.
    pub in_section: Flag,
    /// The peer does not expect the transfer.
    pub unsolicited: Flag,
    /// See `total_bytes`.
    pub total_known: Flag,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, the size comes first, all zeros are a value, and there is no padding at the end.
unsafe impl Extensible for Annotated {
    const FIRST_SIZE: usize = 32;
}

impl Annotated {
    fn annotation(&self) -> Result<Annotation, Failure> {
        let section = if self.in_section.is_set() {
            let rid = name(self.rid)?;
            let total_octets = self.total_known.is_set().then_some(self.total_bytes);
            Some((Section { rid, unsolicited: self.unsolicited.is_set(), total_octets }, self.buffer_offset))
        } else {
            None
        };
        Ok(Annotation { starts_message: self.starts_message.is_set(), section })
    }
}

/// Writes as many of `length` bytes from `start` as there is room for; waits for room for one for
/// `timeout_ms` milliseconds, or for ever if that is negative. Returns how many.
///
/// - `-ETIMEDOUT`: there was no room
/// - `-EPIPE`: this end has finished
/// - `-ECONNRESET`: the connection has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_write(
    byte_stream: *mut ByteStream,
    start: *const c_void,
    length: usize,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let (stream, bytes) = unsafe { (borrow(byte_stream)?, list(start.cast::<u8>(), length)?) };
        let bytes = &bytes[..bytes.len().min(WRITE_MAX)];
        Ok(counted(stream.writer().write(bytes, patience(timeout_ms))?))
    })
}

/// Writes all of `length` bytes from `start`, with what `annotation` says about them; null for nothing.
/// Waits `timeout_ms` each time there is no room. With no bytes and a section whose total is 0, it is a
/// transfer of nothing, which goes with the last byte written before it: that is of no section, and the
/// stream is corked.
///
/// Fails as `warpline_byte_stream_write` does; some bytes may be written then.
///
/// - `-EINVAL`: the section contradicts one before it (another total, bytes beyond the total, bytes of the
///   buffer that were sent before), or a transfer of nothing has no byte to go with; nothing was written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_write_annotated(
    byte_stream: *mut ByteStream,
    annotation: *const Annotated,
    start: *const c_void,
    length: usize,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let (stream, bytes, annotated) =
            unsafe { (borrow(byte_stream)?, list(start.cast::<u8>(), length)?, extensible(annotation)?) };
        stream.writer().write_annotated(annotated.annotation()?, bytes, patience(timeout_ms))?;
        Ok(0)
    })
}

/// Ends transfer `rid`, of which not all was sent, or whose total is not known: the next section with this
/// name is of another transfer.
///
/// - `-EINVAL`: the name has more than 46 bits
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_end_transfer(byte_stream: *mut ByteStream, rid: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let stream = unsafe { borrow(byte_stream)? };
        stream.writer().end_transfer(name(rid)?);
        Ok(0)
    })
}

/// Has what is written wait if `corked`, as far as there is room; else sends what has waited. Parts of a
/// message that were written together are cut into segments together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_cork(byte_stream: *mut ByteStream, corked: bool) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let mut writer = unsafe { borrow(byte_stream)? }.writer();
        if corked {
            writer.cork();
        } else {
            writer.uncork();
        }
        Ok(0)
    })
}

/// Closes our half of the connection after everything written. The peer's half stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_finish(byte_stream: *mut ByteStream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(byte_stream)? }.writer().finish();
        Ok(0)
    })
}

/// As `warpline_byte_stream_read_fd`, for room to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_write_fd(byte_stream: *const ByteStream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let writer = unsafe { borrow(byte_stream)? }.writer();
        Ok(writer.event_fd().ok_or(Failure::invalid("the stream has none"))?.as_raw_fd())
    })
}

/// As `warpline_byte_stream_arm_read`, for room to write. A corked stream without room sends what it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_arm_write(byte_stream: *mut ByteStream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let mut writer = unsafe { borrow(byte_stream)? }.writer();
        if let Some(event) = writer.event_fd() {
            event.clear();
        }
        Ok(writer.arm().into())
    })
}
