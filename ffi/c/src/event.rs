//! Asynchronous events, which belong to no work request.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;

use warpline::{AsyncEvent, Status, StreamError};

use crate::device::Device;
use crate::error::{Failure, guard};
use crate::pointer::{borrow, patience};

/// The first message of the peer has arrived at the end that was connected to.
pub const WARPLINE_EVENT_COMMUNICATION_ESTABLISHED: u32 = 0;
/// A queue pair's stream has ended because this end or the network failed.
pub const WARPLINE_EVENT_QP_FATAL: u32 = 1;
/// A queue pair's stream has ended because a request broke the rules.
pub const WARPLINE_EVENT_QP_REQUEST_ERROR: u32 = 2;
/// A queue pair's stream has ended because somebody reached for memory that was not granted.
pub const WARPLINE_EVENT_QP_ACCESS_ERROR: u32 = 3;
/// A queue pair that is over has completed the last receive that it had taken from a shared receive queue.
pub const WARPLINE_EVENT_LAST_RECEIVE_REACHED: u32 = 4;
/// A shared receive queue holds fewer receives than its limit.
pub const WARPLINE_EVENT_SRQ_LIMIT: u32 = 5;
/// A completion had no place in a completion queue; the queue pair it was for has failed.
pub const WARPLINE_EVENT_CQ_ERROR: u32 = 6;
/// Nobody polls the device's core any more.
pub const WARPLINE_EVENT_DEVICE_FATAL: u32 = 7;

/// Something that happened.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `WARPLINE_EVENT_*`.
    pub event: u32,
    /// The number of the queue pair, the shared receive queue or the completion queue.
    pub number: u32,
    /// Of `WARPLINE_EVENT_QP_FATAL` to `_QP_ACCESS_ERROR`, why: as `status` of `warpline_wc`.
    pub status: u32,
}

impl From<AsyncEvent> for Event {
    fn from(event: AsyncEvent) -> Self {
        let ended = |event, number, error: StreamError| {
            let status = u32::from(Status::Failed(error).wc_status() as u8);
            Self { event, number, status }
        };
        let plain = |event, number| Self { event, number, status: 0 };
        match event {
            AsyncEvent::CommunicationEstablished { qp } => {
                plain(WARPLINE_EVENT_COMMUNICATION_ESTABLISHED, qp.0)
            }
            AsyncEvent::QpFatal { qp, error } => ended(WARPLINE_EVENT_QP_FATAL, qp.0, error),
            AsyncEvent::QpRequestError { qp, error } => ended(WARPLINE_EVENT_QP_REQUEST_ERROR, qp.0, error),
            AsyncEvent::QpAccessError { qp, error } => ended(WARPLINE_EVENT_QP_ACCESS_ERROR, qp.0, error),
            AsyncEvent::LastReceiveReached { qp } => plain(WARPLINE_EVENT_LAST_RECEIVE_REACHED, qp.0),
            AsyncEvent::SharedReceiveLimit { srq } => plain(WARPLINE_EVENT_SRQ_LIMIT, srq.0),
            AsyncEvent::CompletionQueueOverflow { cq } => plain(WARPLINE_EVENT_CQ_ERROR, cq.0),
            AsyncEvent::DeviceFatal => plain(WARPLINE_EVENT_DEVICE_FATAL, 0),
        }
    }
}

/// The oldest asynchronous event that was not taken; waits for it for `timeout_ms` milliseconds, or for ever
/// if that is negative. For one thread at a time. Returns 1 when `event` is written, 0 when there was none in
/// time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_get_event(
    device: *mut Device,
    event: *mut Event,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let device = unsafe { borrow(device)? };
        if event.is_null() {
            return Err(Failure::NULL);
        }
        let Some(happened) = device.0.wait_event(patience(timeout_ms)) else { return Ok(0) };
        // SAFETY: not null, so it may be written, by C's contract.
        unsafe { event.write(happened.into()) };
        Ok(1)
    })
}

/// The file descriptor for poll(2) or an epoll set, readable once there is an event. Then call
/// `warpline_get_event` with no time to wait until it returns 0. It belongs to the device: do not read or
/// close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_event_fd(device: *const Device) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        Ok(unsafe { borrow(device)? }.0.event_fd().as_raw_fd())
    })
}

/// What an event is called. Never null; good for ever.
#[unsafe(no_mangle)]
pub extern "C" fn warpline_event_text(event: u32) -> *const c_char {
    match event {
        WARPLINE_EVENT_COMMUNICATION_ESTABLISHED => c"communication established",
        WARPLINE_EVENT_QP_FATAL => c"queue pair: fatal error",
        WARPLINE_EVENT_QP_REQUEST_ERROR => c"queue pair: request error",
        WARPLINE_EVENT_QP_ACCESS_ERROR => c"queue pair: access error",
        WARPLINE_EVENT_LAST_RECEIVE_REACHED => c"last receive reached",
        WARPLINE_EVENT_SRQ_LIMIT => c"shared receive queue: limit reached",
        WARPLINE_EVENT_CQ_ERROR => c"completion queue: no place for a completion",
        WARPLINE_EVENT_DEVICE_FATAL => c"device: fatal error",
        _ => c"unknown event",
    }
    .as_ptr()
}
