//! Byte streams: TCP at the speed of the data plane, and the TCP RDMA option (draft-csapuntz-tcprdma-00).

use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpline::tcp_rdma::{Rid, RidFormat};
use warpline::{
    Access, Annotation, Behaviour, ByteStreamConfig, ByteStreamHandle, ByteStreamReader, ByteStreamWriter,
    ReadItem, Region, Section, StreamConfig, TcpListenConfig, TransferBuffer, UnsolicitedConfig,
};

use crate::device::Device;
use crate::error::{Failure, guard, guard_or};
use crate::extensible::{Extensible, Flag, extensible};
use crate::memory::Mr;
use crate::pointer::{borrow, hand_out, list, patience, socket_address, take_back};
use crate::stream::{Stream, StreamListener};

/// How TCP connections are opened or taken in streaming mode.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StreamAttr {
    /// `sizeof(struct warpline_stream_attr)`.
    pub size: usize,
    /// To open: milliseconds it may take; 0 for ten seconds.
    pub timeout_ms: u32,
    /// To listen: connections that wait for the application, at most; 0 for 128.
    pub backlog: u32,
    /// Not 0: the TCP RDMA option is offered to the peer, or accepted from it.
    pub rdma_option: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, the size comes first, all zeros are a value, and there is no padding at the end.
unsafe impl Extensible for StreamAttr {
    const FIRST_SIZE: usize = 24;
}

impl StreamAttr {
    /// How TCP behaves with it on `device`, if not as usual.
    fn behaviour(&self, device: &Device) -> Result<Option<Behaviour>, Failure> {
        if self.reserved != 0 {
            return Err(Failure::invalid("a reserved field is not 0"));
        }
        Ok((self.rdma_option != 0).then(|| Behaviour { rdma_option: true, ..device.0.config().tcp }))
    }
}

/// The sizes of a byte stream.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ByteStreamAttr {
    /// `sizeof(struct warpline_byte_stream_attr)`.
    pub size: usize,
    /// Bytes that may be written and not acknowledged by the peer; 0 for 1 MiB.
    pub send_bytes: usize,
    /// Bytes that wait to be read, beside those in TCP's window; 0 for 1 MiB.
    pub receive_bytes: usize,
    /// Buffers for transfers that nobody expects, and the bytes of each; 0 for none.
    pub unsolicited_count: usize,
    /// See `unsolicited_count`.
    pub unsolicited_bytes: usize,
    /// The format of the names of the peer's transfers, `WARPLINE_RID_*`: the bits that it has as zero are
    /// received as zeros.
    pub rid_format: u32,
    /// Not 0: `warpline_byte_stream_read_part` says where messages begin.
    pub message_starts: u32,
    /// Bytes of complete messages beyond a gap that wait to be read: `warpline_byte_stream_read_part` returns
    /// a message before its turn, as `WARPLINE_READ_EARLY_MESSAGE` describes, and says where messages begin.
    /// 0 for none; a longer message is read in its turn.
    // Requirements: TRO-3.1.6-03
    pub early_message_bytes: usize,
}

/// All 46 bits of a RID are a name.
pub const WARPLINE_RID_OPAQUE: u32 = 0;
/// The RID of NFS: operation index (8 bits), XID (32).
pub const WARPLINE_RID_NFS: u32 = 1;
/// The RID of HTTP: request index (32 bits).
pub const WARPLINE_RID_HTTP: u32 = 2;
/// The RID of CIFS: operation index (8 bits), PID (16), MID (16).
pub const WARPLINE_RID_CIFS: u32 = 3;

impl ByteStreamAttr {
    fn rid_format(&self) -> Result<RidFormat, Failure> {
        match self.rid_format {
            WARPLINE_RID_OPAQUE => Ok(RidFormat::Opaque),
            WARPLINE_RID_NFS => Ok(RidFormat::Nfs),
            WARPLINE_RID_HTTP => Ok(RidFormat::Http),
            WARPLINE_RID_CIFS => Ok(RidFormat::Cifs),
            _ => Err(Failure::invalid("the format of names is none of WARPLINE_RID_*")),
        }
    }
}

// SAFETY: as above.
unsafe impl Extensible for ByteStreamAttr {
    const FIRST_SIZE: usize = 40;
}

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

// SAFETY: as above.
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

fn name(rid: u64) -> Result<Rid, Failure> {
    Rid::new(rid).ok_or(Failure::invalid("the name of a transfer has 46 bits"))
}

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

/// A TCP connection whose bytes the program and the core share, without a thread between them. One thread may
/// read while another writes. `warpline_byte_stream_abort` and `warpline_byte_stream_has_rdma_option` never
/// wait for the threads that read, write or wait.
pub struct ByteStream {
    handle: ByteStreamHandle,
    reader: Mutex<ByteStreamReader>,
    writer: Mutex<ByteStreamWriter>,
}

impl ByteStream {
    pub(crate) const fn handle(&self) -> &ByteStreamHandle {
        &self.handle
    }

    fn reader(&self) -> MutexGuard<'_, ByteStreamReader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, ByteStreamWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most bytes that one call reads.
const READ_MAX: usize = 1 << 20;

fn counted(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

/// Opens a TCP connection as `warpline_stream_connect` does, with what `attr` says; null for the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_open(
    device: *mut Device,
    address: *const c_char,
    port: u16,
    attr: *const StreamAttr,
    stream: *mut *mut Stream,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (device, remote, attr) = (borrow(device)?, socket_address(address, port)?, extensible(attr)?);
            let mut config = StreamConfig { tcp: attr.behaviour(device)?, ..StreamConfig::default() };
            if attr.timeout_ms != 0 {
                config.timeout = Duration::from_millis(attr.timeout_ms.into());
            }
            hand_out(stream, || Ok(Stream(device.0.connect_stream(remote, &config)?)))?;
        }
        Ok(0)
    })
}

/// Takes connections as `warpline_stream_listen` does, with what `attr` says; null for the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_listen_with(
    device: *mut Device,
    port: u16,
    attr: *const StreamAttr,
    listener: *mut *mut StreamListener,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (device, attr) = (borrow(device)?, extensible(attr)?);
            let mut config = TcpListenConfig { tcp: attr.behaviour(device)?, ..TcpListenConfig::default() };
            if attr.backlog != 0 {
                config.backlog = attr.backlog;
            }
            hand_out(listener, || Ok(StreamListener(device.0.listen_streams(port, &config)?)))?;
        }
        Ok(0)
    })
}

/// Makes a byte stream of a connection in streaming mode, and returns the handle `stream` to the library,
/// also if it fails. `attr` may be null for the defaults. Bytes that were not read are the first that the
/// byte stream reads. MPA does not start on it any more.
///
/// - `-EINVAL`: MPA has started on it, this end has finished, or `attr` is wrong
/// - `-ENOMEM`: there is no memory for its rings
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_create(
    stream: *mut Stream,
    attr: *const ByteStreamAttr,
    byte_stream: *mut *mut ByteStream,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let stream = unsafe { take_back(stream) }.ok_or(Failure::NULL)?;
        // SAFETY: as above.
        let attr = unsafe { extensible(attr)? };
        let mut config = ByteStreamConfig {
            rid_format: attr.rid_format()?,
            message_starts: attr.message_starts != 0,
            early_message_bytes: attr.early_message_bytes,
            ..ByteStreamConfig::default()
        };
        if attr.send_bytes != 0 {
            config.send_bytes = attr.send_bytes;
        }
        if attr.receive_bytes != 0 {
            config.receive_bytes = attr.receive_bytes;
        }
        if attr.unsolicited_count != 0 && attr.unsolicited_bytes != 0 {
            let (count, bytes) = (attr.unsolicited_count, attr.unsolicited_bytes);
            config.unsolicited = Some(UnsolicitedConfig { count, bytes });
        }
        // SAFETY: as above.
        unsafe {
            hand_out(byte_stream, || {
                let stream = stream.0.into_byte_stream(&config)?;
                let handle = stream.handle();
                let warpline::ByteStream { reader, writer } = stream;
                Ok(ByteStream { handle, reader: Mutex::new(reader), writer: Mutex::new(writer) })
            })?;
        }
        Ok(0)
    })
}

/// Returns a byte stream to the library: what was written is still sent, and the connection is closed. If
/// bytes have arrived that were not read, or others arrive after this, it is reset instead, and what was
/// written may be lost: read to the peer's end where that matters. Null is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_destroy(byte_stream: *mut ByteStream) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(byte_stream) }));
}

/// Whether the ends have agreed on the TCP RDMA option; false for null. Known before the first byte is read,
/// and returned at once whatever other threads do with the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_has_rdma_option(byte_stream: *const ByteStream) -> bool {
    guard_or(false, || {
        // SAFETY: the caller keeps C's contract.
        let stream = unsafe { byte_stream.as_ref() };
        stream.is_some_and(|stream| stream.handle.has_rdma_option())
    })
}

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
/// bytes were copied.
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
/// their place. Bytes of a message that was read early are read again, as by `warpline_byte_stream_read`.
/// Waits `timeout_ms` each time there is nothing to read.
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
        let buffer = u16::try_from(buffer).map_err(|_| Failure::invalid("there is no such buffer"))?;
        stream.reader().release(buffer, Duration::MAX)?;
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

/// Has what is written wait if `corked`; else sends what has waited. Parts of a message that were written
/// together are cut into segments together.
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

/// Resets the connection, whatever other threads do with the stream: those that read, write or wait return
/// `-ECONNRESET`. Does not wait for them, and does nothing if the connection has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_abort(byte_stream: *mut ByteStream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(byte_stream)? }.handle.abort();
        Ok(0)
    })
}

/// Waits until both ends have finished.
///
/// - `-ETIMEDOUT`: they have not, after `timeout_ms` milliseconds
/// - `-ECONNRESET`: the connection ended otherwise
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_wait_closed(
    byte_stream: *mut ByteStream,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(byte_stream)? }.writer().wait_closed(patience(timeout_ms))?;
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

/// As `warpline_byte_stream_read_fd`, for room to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_write_fd(byte_stream: *const ByteStream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let writer = unsafe { borrow(byte_stream)? }.writer();
        Ok(writer.event_fd().ok_or(Failure::invalid("the stream has none"))?.as_raw_fd())
    })
}

/// As `warpline_byte_stream_arm_read`, for room to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_arm_write(byte_stream: *mut ByteStream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let writer = unsafe { borrow(byte_stream)? }.writer();
        if let Some(event) = writer.event_fd() {
            event.clear();
        }
        Ok(writer.arm().into())
    })
}
