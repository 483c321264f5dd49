//! The calls that read a byte stream, and the parts that a stream is read in.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use warpline::{Access, ReadItem, Region, TransferBuffer};

use super::{ByteStream, counted, name};
use crate::error::{Failure, guard};
use crate::memory::Mr;
use crate::pointer::{borrow, patience};

/// The next part of a stream is bytes, which were copied.
pub const WARPLINE_READ_BYTES: u32 = 1;
/// The next part is in a buffer already.
pub const WARPLINE_READ_PLACED: u32 = 2;
/// All bytes of a transfer are in its buffer, and were reported: its name is free.
pub const WARPLINE_READ_COMPLETE: u32 = 3;
/// The peer sends nothing more.
pub const WARPLINE_READ_FINISHED: u32 = 4;
/// Transfer `rid` cannot be expected: an unsolicited one has its name, or there are too many. Nothing is
/// placed in the memory that `warpline_byte_stream_expect` has named.
pub const WARPLINE_READ_NOT_EXPECTED: u32 = 5;
/// The next byte begins a message, as the peer has said.
pub const WARPLINE_READ_MESSAGE_START: u32 = 6;
/// A complete message of `length` bytes at position `rid` of the stream, counted from its first byte, has
/// arrived, and bytes before it have not. The parts after it are of `WARPLINE_READ_EARLY_BYTES`, until all of
/// it was copied. A message ends where the next one begins, so the last one waits for the next one.
pub const WARPLINE_READ_EARLY_MESSAGE: u32 = 7;
/// The next part is bytes of the early message, which were copied.
pub const WARPLINE_READ_EARLY_BYTES: u32 = 8;
/// The turn of an early message has come, after `WARPLINE_READ_MESSAGE_START`: of the `length` bytes at
/// position `rid` of the stream, those that were not placed in a buffer are passed over.
pub const WARPLINE_READ_HANDED_OUT: u32 = 9;
/// `buffer` of a transfer that was expected.
pub const WARPLINE_BUFFER_EXPECTED: u32 = u32::MAX;

/// The next part of a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReadPart {
    /// The name of the transfer. Of `WARPLINE_READ_EARLY_MESSAGE` and `WARPLINE_READ_HANDED_OUT`, the
    /// position of the message in the stream.
    pub rid: u64,
    /// `WARPLINE_READ_*`.
    pub kind: u32,
    /// Bytes of the part; of a complete transfer, all that it had; of an early message, all that it has.
    pub length: u32,
    /// Where in the buffer they begin.
    pub offset: u32,
    /// The number of an unsolicited buffer, or `WARPLINE_BUFFER_EXPECTED`.
    pub buffer: u32,
}

impl From<ReadItem> for ReadPart {
    fn from(item: ReadItem) -> Self {
        let number = |buffer| match buffer {
            TransferBuffer::Expected => WARPLINE_BUFFER_EXPECTED,
            TransferBuffer::Unsolicited(number) => number.into(),
        };
        let none = Self { rid: 0, kind: WARPLINE_READ_FINISHED, length: 0, offset: 0, buffer: 0 };
        // A part has no size that could grow: the position of a message is in the place of a name.
        let of_message = |kind, position, octets| Self { rid: position, kind, length: octets, ..none };
        match item {
            ReadItem::Octets(read) => Self { kind: WARPLINE_READ_BYTES, length: read as u32, ..none },
            ReadItem::Placed { rid, buffer, offset, octets } => Self {
                rid: rid.get(),
                kind: WARPLINE_READ_PLACED,
                length: octets,
                offset,
                buffer: number(buffer),
            },
            ReadItem::Complete { rid, buffer, total_octets } => Self {
                rid: rid.get(),
                kind: WARPLINE_READ_COMPLETE,
                length: total_octets,
                offset: 0,
                buffer: number(buffer),
            },
            ReadItem::MessageStart => Self { kind: WARPLINE_READ_MESSAGE_START, ..none },
            ReadItem::EarlyMessage { position, octets } => {
                of_message(WARPLINE_READ_EARLY_MESSAGE, position, octets)
            }
            ReadItem::EarlyOctets(read) => {
                Self { kind: WARPLINE_READ_EARLY_BYTES, length: read as u32, ..none }
            }
            ReadItem::HandedOut { position, octets } => {
                of_message(WARPLINE_READ_HANDED_OUT, position, octets)
            }
            ReadItem::NotExpected { rid } => Self {
                rid: rid.get(),
                kind: WARPLINE_READ_NOT_EXPECTED,
                buffer: WARPLINE_BUFFER_EXPECTED,
                ..none
            },
            _ => none,
        }
    }
}

/// The most bytes that one call reads.
const READ_MAX: usize = 1 << 20;

/// Reads the bytes that have arrived, at most `length`, to `place`, wherever they are: those of a transfer
/// are copied from its buffer. They are in stream order: bytes of a message that was read early are read
/// again, unless they were passed over after `WARPLINE_READ_HANDED_OUT`. Waits for the first for `timeout_ms`
/// milliseconds, or for ever if that is negative. Returns how many; 0 when the peer has finished and all was
/// read.
///
/// - `-ETIMEDOUT`: nothing came
/// - `-ECONNRESET`: the connection ended otherwise
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_read(
    byte_stream: *mut ByteStream,
    place: *mut c_void,
    length: usize,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let stream = unsafe { borrow(byte_stream)? };
        if place.is_null() {
            return Err(Failure::NULL);
        }
        // C's memory need not hold values, so the bytes come by way of memory that does.
        let mut read = vec![0; length.min(READ_MAX)];
        let count = stream.reader().read(&mut read, patience(timeout_ms))?;
        // SAFETY: not null, so `length` bytes may be written: what C promises.
        unsafe { place.cast::<u8>().copy_from_nonoverlapping(read.as_ptr(), count) };
        Ok(counted(count))
    })
}

/// Takes the next part of the stream and describes it in `part`: bytes that were not placed are copied to
/// `place`, at most `length`. Complete messages beyond a gap come first where `early_message_bytes` of
/// `warpline_byte_stream_attr` has room for them. Waits as `warpline_byte_stream_read` does. Returns how many
/// bytes were copied. With a `length` of 0 none are: a part of bytes has length 0 then, and they stay.
///
/// - `-ETIMEDOUT`: nothing came
/// - `-ECONNRESET`: the connection ended otherwise
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_read_part(
    byte_stream: *mut ByteStream,
    place: *mut c_void,
    length: usize,
    timeout_ms: i32,
    part: *mut ReadPart,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let stream = unsafe { borrow(byte_stream)? };
        if place.is_null() || part.is_null() {
            return Err(Failure::NULL);
        }
        let mut read = vec![0; length.min(READ_MAX)];
        let item = stream.reader().read_item(&mut read, patience(timeout_ms))?;
        let count = match item {
            ReadItem::Octets(count) | ReadItem::EarlyOctets(count) => count,
            _ => 0,
        };
        // SAFETY: neither is null, so both may be written: what C promises.
        unsafe {
            place.cast::<u8>().copy_from_nonoverlapping(read.as_ptr(), count);
            part.write(item.into());
        }
        Ok(counted(count))
    })
}

/// Returns the memory of a registration whose rights let `range` be written.
fn placeable(mr: &Mr, range: &Range<usize>) -> Result<Region, Failure> {
    mr.with(|memory| {
        if !memory.access().contains(Access::LOCAL_WRITE) {
            return Err(Failure::new(libc::EACCES, "the memory is not registered for local writes"));
        }
        if !memory.is_registered(range) {
            return Err(Failure::invalid("the range does not lie in the memory that is registered"));
        }
        Ok(memory.region().clone())
    })?
}

/// Has the bytes of transfer `rid` placed in the `length` bytes at `offset` of registered memory as they
/// arrive. Ask before the peer can know that name. The memory is held until the transfer is complete or
/// cancelled, or the stream is destroyed.
///
/// If an unsolicited transfer has the name, `warpline_byte_stream_read_part` says
/// `WARPLINE_READ_NOT_EXPECTED`.
///
/// - `-EINVAL`: the range does not lie in the memory, a transfer of this name is expected, or the name has
///   more than 46 bits
/// - `-EACCES`: the memory is not registered with `WARPLINE_ACCESS_LOCAL_WRITE`
/// - `-ECONNRESET`: the connection has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_expect(
    byte_stream: *mut ByteStream,
    rid: u64,
    mr: *mut Mr,
    offset: usize,
    length: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let (stream, mr) = unsafe { (borrow(byte_stream)?, borrow(mr)?) };
        let rid = name(rid)?;
        let end = offset.checked_add(length).ok_or(Failure::invalid("the range is longer than memory"))?;
        let memory = placeable(mr, &(offset..end))?;
        stream.reader().expect(rid, &memory, offset..end)?;
        Ok(0)
    })
}

/// Reads the next `length` bytes of the stream, the whole of transfer `rid`, which is expected at the
/// same place, into registered memory from `offset` on. Bytes that were placed there are not copied. Bytes
/// that were placed elsewhere, by an option that was changed on its way, or not at all, are brought to
/// their place. Bytes of a message that was read early are read again, as by `warpline_byte_stream_read`. An
/// unsolicited transfer that has the name is ended, and its buffer given back unless
/// `warpline_byte_stream_read_part` has told of it. Waits `timeout_ms` each time there is nothing to read.
///
/// - `-ETIMEDOUT`: nothing came
/// - `-ECONNRESET`, `-EPIPE`: the connection, or the peer's half of it, ended before
/// - `-EINVAL`: the range does not lie in the memory
/// - `-EACCES`: the memory is not registered with `WARPLINE_ACCESS_LOCAL_WRITE`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_read_section(
    byte_stream: *mut ByteStream,
    rid: u64,
    mr: *mut Mr,
    offset: usize,
    length: usize,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let (stream, mr) = unsafe { (borrow(byte_stream)?, borrow(mr)?) };
        let rid = name(rid)?;
        let end = offset.checked_add(length).ok_or(Failure::invalid("the range is longer than memory"))?;
        let memory = placeable(mr, &(offset..end))?;
        stream.reader().read_section(rid, &memory, offset..end, patience(timeout_ms))?;
        Ok(0)
    })
}

/// Copies from an unsolicited buffer that a part was placed in: `length` bytes from `offset` of it on.
///
/// - `-EINVAL`: there is no such buffer, or the range does not lie in it
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_copy_unsolicited(
    byte_stream: *mut ByteStream,
    buffer: u32,
    offset: usize,
    place: *mut c_void,
    length: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let stream = unsafe { borrow(byte_stream)? };
        if place.is_null() {
            return Err(Failure::NULL);
        }
        let reader = stream.reader();
        let outside = || Failure::invalid("the range does not lie in a buffer for unsolicited transfers");
        let buffer = u16::try_from(buffer).map_err(|_| outside())?;
        // Before memory is allocated for it: the caller's length may be anything.
        let (memory, at) = reader.unsolicited_part(buffer, offset, length).ok_or_else(outside)?;
        let mut read = vec![0; length];
        if !memory.read(at, &mut read) {
            return Err(outside());
        }
        // SAFETY: not null, so `length` bytes may be written: what C promises.
        unsafe { place.cast::<u8>().copy_from_nonoverlapping(read.as_ptr(), length) };
        Ok(0)
    })
}

/// Gives an unsolicited buffer back.
///
/// - `-EINVAL`: there is no such buffer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_release(byte_stream: *mut ByteStream, buffer: u32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let stream = unsafe { borrow(byte_stream)? };
        let absent = || Failure::invalid("the stream has no such buffer for unsolicited transfers");
        let buffer = u16::try_from(buffer).map_err(|_| absent())?;
        let mut reader = stream.reader();
        if reader.unsolicited_part(buffer, 0, 0).is_none() {
            return Err(absent());
        }
        reader.release(buffer, Duration::MAX)?;
        Ok(0)
    })
}

/// Ends transfer `rid`, and waits for `timeout_ms` milliseconds until nothing more is placed in its buffer.
///
/// - `-ETIMEDOUT`: the core did not answer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_cancel(
    byte_stream: *mut ByteStream,
    rid: u64,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let stream = unsafe { borrow(byte_stream)? };
        stream.reader().cancel(name(rid)?, patience(timeout_ms))?;
        Ok(0)
    })
}

/// The file descriptor that becomes readable, once after `warpline_byte_stream_arm_read`, when there is more
/// to read. It is the library's: do not close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_read_fd(byte_stream: *const ByteStream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let reader = unsafe { borrow(byte_stream)? }.reader();
        Ok(reader.event_fd().ok_or(Failure::invalid("the stream has none"))?.as_raw_fd())
    })
}

/// Has the descriptor of `warpline_byte_stream_read_fd` become readable at the next change, and clears it.
/// Returns 1 if there is nothing to read, so that the thread may sleep; else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_arm_read(byte_stream: *mut ByteStream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let mut reader = unsafe { borrow(byte_stream)? }.reader();
        if let Some(event) = reader.event_fd() {
            event.clear();
        }
        Ok(reader.arm().into())
    })
}
