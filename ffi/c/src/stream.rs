//! TCP connections in streaming mode (RFC 5044 §7.1): bytes both ways, and MPA from there.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use warpline::{
    Direction, EventFd, ReadDepths, StreamConfig, TcpListenConfig, TcpListener, TcpStream,
    UnnegotiatedConfig, limits,
};

use crate::connection::{ConnParam, ConnReply, ListenAttr, Request};
use crate::device::Device;
use crate::error::{Failure, guard, guard_or};
use crate::pointer::{borrow, hand_out, list, patience, socket_address, take_back};
use crate::queue_pair::Qp;

/// A TCP connection in streaming mode: bytes go both ways until MPA is started on it, as Initiator by
/// `warpline_stream_initiate` or as Responder by `warpline_stream_respond`, whoever opened the connection; or
/// without startup frames by `warpline_stream_start_unnegotiated`. After a rejection it is in streaming mode
/// again.
///
/// Bytes that are not read close TCP's window; bytes that are written wait in a queue of about 64 KiB. One
/// thread may read while another writes.
pub struct Stream(pub(crate) TcpStream);

/// Takes connections to a port in streaming mode.
pub struct StreamListener(pub(crate) TcpListener);

/// For `warpline_stream_start_unnegotiated`: the direction in which this end sends.
pub const WARPLINE_STREAM_SEND: u32 = 1;
/// The direction in which this end receives.
pub const WARPLINE_STREAM_RECEIVE: u32 = 2;

/// Opens a TCP connection to `address`, an IPv4 or IPv6 address, and `port`, in streaming mode: in
/// `timeout_ms` milliseconds at most; 0 for ten seconds.
///
/// - `-ECONNREFUSED`: no program listens there
/// - `-ETIMEDOUT`, `-EHOSTUNREACH`, `-ENETUNREACH`: the peer cannot be reached
/// - `-EADDRNOTAVAIL`, `-ENOSPC`: no local port is left, or the device has as many connections as it can
/// - `-EINVAL`: an argument is wrong
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_connect(
    device: *mut Device,
    address: *const c_char,
    port: u16,
    timeout_ms: u32,
    stream: *mut *mut Stream,
) -> c_int {
    guard(|| {
        let mut config = StreamConfig::default();
        if timeout_ms != 0 {
            config.timeout = Duration::from_millis(timeout_ms.into());
        }
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (device, remote) = (borrow(device)?, socket_address(address, port)?);
            hand_out(stream, || Ok(Stream(device.0.connect_stream(remote, &config)?)))?;
        }
        Ok(0)
    })
}

/// Takes connections to `port` in streaming mode, of which at most `backlog` wait at a time; 0 for 128.
///
/// Fails as `warpline_listen` does; a port has one listener, of either kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_listen(
    device: *mut Device,
    port: u16,
    backlog: u32,
    listener: *mut *mut StreamListener,
) -> c_int {
    guard(|| {
        let mut config = TcpListenConfig::default();
        if backlog != 0 {
            config.backlog = backlog;
        }
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let device = borrow(device)?;
            hand_out(listener, || Ok(StreamListener(device.0.listen_streams(port, &config)?)))?;
        }
        Ok(0)
    })
}

/// Listens no more: connections that nobody has taken are closed. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_listener_destroy(listener: *mut StreamListener) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(listener) }));
}

/// The next connection; waits for it for `timeout_ms` milliseconds, or for ever if that is negative.
///
/// - `-ETIMEDOUT`: there is none
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_accept(
    listener: *mut StreamListener,
    timeout_ms: i32,
    stream: *mut *mut Stream,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let listener = borrow(listener)?;
            hand_out(stream, || Ok(Stream(listener.0.accept(patience(timeout_ms))?)))?;
        }
        Ok(0)
    })
}

/// The file descriptor that becomes readable, once after `warpline_stream_listener_arm`, when there is a
/// connection to accept, or the device has stopped. It is the library's: do not close it.
///
/// - `-EMFILE`: no file descriptor is left
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_listener_fd(listener: *mut StreamListener) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let listener = unsafe { borrow(listener)? };
        Ok(descriptor(listener)?.as_raw_fd())
    })
}

/// Has the descriptor of `warpline_stream_listener_fd` become readable when the next connection comes, and
/// clears it. Returns 1 if there is none, so that the thread may sleep; else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_listener_arm(listener: *mut StreamListener) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let listener = unsafe { borrow(listener)? };
        descriptor(listener)?.clear();
        Ok(listener.0.arm().into())
    })
}

fn descriptor(listener: &StreamListener) -> Result<&EventFd, Failure> {
    listener.0.event_fd().map_err(|error| Failure::of(libc::EMFILE, &error))
}

/// Returns a connection to the library: in streaming mode it is closed in an orderly way; once MPA has
/// started, it is its queue pair's. Null is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_destroy(stream: *mut Stream) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(stream) }));
}

/// Bytes that can be read at once; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_available(stream: *const Stream) -> usize {
    // SAFETY: the caller keeps C's contract.
    guard_or(0, || unsafe { stream.as_ref() }.map_or(0, |stream| stream.0.available()))
}

/// Bytes that were read or written at once, of which there are never more than a call can give.
fn counted(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

/// Reads the bytes that have arrived, at most `length`, to `place`; waits for the first for `timeout_ms`
/// milliseconds, or for ever if that is negative. Returns how many; 0 when the peer has finished and all was
/// read.
///
/// - `-ETIMEDOUT`: nothing came
/// - `-ECONNRESET`: the connection ended otherwise
/// - `-EINVAL`: a pointer is null, or the bytes are MPA's
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_read(
    stream: *mut Stream,
    place: *mut c_void,
    length: usize,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let stream = unsafe { borrow(stream)? };
        if place.is_null() {
            return Err(Failure::NULL);
        }
        // C's memory need not hold values, so the bytes come by way of memory that does.
        let mut read = vec![0; length.min(limits::STREAM_UNCONSUMED_BYTES)];
        let count = stream.0.read(&mut read, patience(timeout_ms))?;
        // SAFETY: not null, so `length` bytes may be written: what C promises. No alignment is needed for
        // bytes.
        unsafe { place.cast::<u8>().copy_from_nonoverlapping(read.as_ptr(), count) };
        Ok(counted(count))
    })
}

/// Queues as many of `length` bytes from `start` as there is room for; waits for room for one for
/// `timeout_ms` milliseconds, or for ever if that is negative. Returns how many.
///
/// - `-ETIMEDOUT`: there was no room
/// - `-EPIPE`: this end has finished
/// - `-ECONNRESET`: the connection has ended
/// - `-EINVAL`: a pointer is null, or MPA has started in this direction
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_write(
    stream: *mut Stream,
    start: *const c_void,
    length: usize,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let (stream, bytes) =
            unsafe { (borrow(stream)?, list(start.cast::<u8>(), length.min(limits::STREAM_SEND_BYTES))?) };
        Ok(counted(stream.0.write(bytes, patience(timeout_ms))?))
    })
}

/// Closes our half of the connection after everything written. The peer's half stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_finish(stream: *mut Stream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(stream)? }.0.finish();
        Ok(0)
    })
}

/// Resets the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_abort(stream: *mut Stream) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(stream)? }.0.abort();
        Ok(0)
    })
}

/// Waits until both ends have finished.
///
/// - `-ETIMEDOUT`: they have not, after `timeout_ms` milliseconds
/// - `-ECONNRESET`: the connection ended otherwise
/// - `-EINVAL`: a pointer is null, or MPA has started with startup frames
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_wait_closed(stream: *mut Stream, timeout_ms: i32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(stream)? }.0.wait_closed(patience(timeout_ms))?;
        Ok(0)
    })
}

/// Starts MPA as its Initiator, at once or after bytes: the Request follows this end's last byte, and the
/// peer's next byte belongs to its Reply. Returns when sends may be posted to `qp`. `param` may be null for
/// the defaults; `reply` may be null, else it is written on success, and on `-EACCES` with the peer's reason.
/// After that the connection is in streaming mode again.
///
/// - `-EBUSY`: bytes wait to be read: read them, then start
/// - `-EACCES`: the peer's application does not want it
/// - `-EISCONN`: the queue pair has or had a connection
/// - `-EPROTO`, `-ECONNRESET`: startup has failed, and the connection is closed
/// - `-ETIMEDOUT`: the core of the connection has not answered
/// - `-EINVAL`: an argument is wrong, the queue pair is of another device, or MPA has started already
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_initiate(
    stream: *mut Stream,
    qp: *mut Qp,
    param: *const ConnParam,
    reply: *mut ConnReply,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let (stream, qp, config) =
            unsafe { (borrow(stream)?, borrow(qp)?, ConnParam::read(param)?.connecting()?) };
        // SAFETY: as above.
        unsafe { ConnReply::write_outcome(reply, stream.0.initiate(qp, &config)) }
    })
}

/// Starts MPA as its Responder: `length` bytes of `last_message`, which may be none, are our last ones before
/// the Reply, and the peer's next byte belongs to its Request. Waits for the Request, which `warpline_accept`
/// or `warpline_reject` answers; after a rejection the connection is in streaming mode again. `attr` may be
/// null for the defaults.
///
/// - `-EBUSY`: bytes wait to be read, which cannot be the Request's with a last message: read them, then
///   start
/// - `-EAGAIN`: the queue has no room for the last message
/// - `-EPROTO`, `-ECONNRESET`: no Request came in its time, or startup has failed; the connection is closed
/// - `-EINVAL`: a pointer is null but `attr`, or MPA has started already
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_respond(
    stream: *mut Stream,
    last_message: *const c_void,
    length: usize,
    attr: *const ListenAttr,
    request: *mut *mut Request,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (stream, last) = (borrow(stream)?, list(last_message.cast::<u8>(), length)?);
            let config = ListenAttr::config(attr)?;
            hand_out(request, || Ok(Request { request: stream.0.respond(last, &config)? }))?;
        }
        Ok(0)
    })
}

/// Rejects, as `warpline_reject` does, and keeps the connection of a request of `warpline_get_request`: it is
/// in streaming mode from then on.
///
/// - `-EINVAL`: an argument is wrong
/// - `-EPROTO`, `-ECONNRESET`: the connection failed meanwhile
/// - `-ETIMEDOUT`: the peer was rejected after `decision_timeout_ms`, or the core of the connection has not
///   answered
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_reject_to_stream(
    request: *mut Request,
    private_data: *const c_void,
    length: u32,
    stream: *mut *mut Stream,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let request = unsafe { take_back(request) }.ok_or(Failure::NULL)?;
        // SAFETY: as above.
        unsafe {
            let private_data = list(private_data.cast::<u8>(), length as usize)?;
            hand_out(stream, || Ok(Stream(request.request.reject_to_stream(private_data)?)))?;
        }
        Ok(0)
    })
}

/// Full Operation without startup frames, as draft-culley-iwarp-mpa-00 has it: with Markers and CRCs, and no
/// waiting for the other end. `directions` is `WARPLINE_STREAM_SEND`, `WARPLINE_STREAM_RECEIVE` or both: the
/// bytes after those written and read so far are MPA's, which both ends must know; the other direction stays
/// in streaming mode until it is started too, with the same queue pair. `version` is that of DDP and RDMAP, 0
/// or 1. `ird` and `ord` are the RDMA Reads of the peer that are served at a time and our own that may be
/// outstanding, up to 128 each: the peer must be called with the same numbers the other way round. Of these
/// three the first call for a connection decides.
///
/// - `-EBUSY`: bytes wait to be read
/// - `-EISCONN`: the queue pair has or had another connection
/// - `-ECONNRESET`: the connection has ended
/// - `-EINVAL`: an argument is wrong, the queue pair is of another device, or MPA has started already
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_start_unnegotiated(
    stream: *mut Stream,
    qp: *mut Qp,
    directions: u32,
    version: u8,
    ird: u16,
    ord: u16,
) -> c_int {
    const BOTH: u32 = WARPLINE_STREAM_SEND | WARPLINE_STREAM_RECEIVE;
    guard(|| {
        let direction = match directions {
            WARPLINE_STREAM_SEND => Direction::Send,
            WARPLINE_STREAM_RECEIVE => Direction::Receive,
            BOTH => Direction::Both,
            _ => return Err(Failure::invalid("a direction is none of WARPLINE_STREAM_*")),
        };
        if version > 1 {
            return Err(Failure::invalid("there is no such version of DDP and RDMAP"));
        }
        // SAFETY: the caller keeps C's contract.
        let (stream, qp) = unsafe { (borrow(stream)?, borrow(qp)?) };
        let config = UnnegotiatedConfig { version, depths: ReadDepths { ird, ord } };
        stream.0.start_unnegotiated(qp, direction, &config)?;
        Ok(0)
    })
}
