//! Byte streams: TCP at the speed of the data plane, and the TCP RDMA option (draft-csapuntz-tcprdma-00).

mod reader;
mod writer;

use std::ffi::{c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpline::tcp_rdma::{Rid, RidFormat};
use warpline::{
    Behaviour, ByteStreamConfig, ByteStreamHandle, ByteStreamReader, ByteStreamWriter, StreamConfig,
    TcpListenConfig, UnsolicitedConfig,
};

use crate::device::Device;
use crate::error::{Failure, guard, guard_or};
use crate::extensible::{Extensible, extensible};
use crate::pointer::{borrow, hand_out, patience, socket_address, take_back};
use crate::stream::{Stream, StreamListener};

pub use reader::*;
pub use writer::*;

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
    /// Buffers for transfers that nobody expects, 256 at most, and the bytes of each. There are none if
    /// either is 0, or if the ends have not agreed on the TCP RDMA option.
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

fn name(rid: u64) -> Result<Rid, Failure> {
    Rid::new(rid).ok_or(Failure::invalid("the name of a transfer has 46 bits"))
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
/// - `-ENOMEM`: there is no memory for its rings, or no file descriptor is left
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
