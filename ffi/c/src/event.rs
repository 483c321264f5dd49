//! Asynchronous events, which belong to no work request.

use std::ffi::{c_char, c_int};
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use warpline::{AsyncEvent, MacAddress, Status, StreamError};

use crate::device::Device;
use crate::error::{Failure, guard};
use crate::pointer::{WARPLINE_MAX_ADDRESS, borrow, patience};

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
/// Another station on the link uses an address of the device, which keeps it.
pub const WARPLINE_EVENT_ADDRESS_CONFLICT: u32 = 8;
/// Another station on the link has an address of the device, which has given it up.
pub const WARPLINE_EVENT_ADDRESS_ABANDONED: u32 = 9;
/// The first segment was dropped whose TCP checksum its sender has left to a device that it never passed: on
/// a Linux peer, `ethtool -K INTERFACE tx off` has the kernel compute them.
pub const WARPLINE_EVENT_PARTIAL_CHECKSUM: u32 = 10;
/// Something that has no number here.
pub const WARPLINE_EVENT_OTHER: u32 = u32::MAX;

/// The first packet was dropped that the port has cut to its buffer: on a Linux peer, `ethtool -K INTERFACE
/// tso off` has the kernel cut what it sends into segments.
pub const WARPLINE_EVENT_OVERSIZED_PACKET: u32 = 11;

/// Nobody polls the core of this number any more: its connections have failed, those of others go on.
pub const WARPLINE_EVENT_CORE_ENDED: u32 = 12;

/// The adapter brings segments to other cores than it was asked to, and the cores sort them in software,
/// which takes more of the CPUs; nothing is lost.
pub const WARPLINE_EVENT_ADAPTER_DIFFERS: u32 = 13;

/// Something that happened.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `WARPLINE_EVENT_*`.
    pub event: u32,
    /// The number of the queue pair, the shared receive queue, the completion queue or the core.
    pub number: u32,
    /// Of `WARPLINE_EVENT_QP_FATAL` to `_QP_ACCESS_ERROR`, why: as `status` of `warpline_wc`.
    pub status: u32,
    /// Of `WARPLINE_EVENT_ADDRESS_*` the address, of `WARPLINE_EVENT_PARTIAL_CHECKSUM` and
    /// `_OVERSIZED_PACKET` the peer's, as a string.
    pub address: [c_char; WARPLINE_MAX_ADDRESS as usize],
    /// Of `WARPLINE_EVENT_ADDRESS_*`, the hardware address of the other station.
    pub mac: [u8; 6],
}

impl Default for Event {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

impl Event {
    const fn new(event: u32, number: u32) -> Self {
        Self { event, number, status: 0, address: [0; _], mac: [0; 6] }
    }

    fn about(event: u32, address: IpAddr, mac: MacAddress) -> Self {
        let mut about = Self { mac: mac.0, ..Self::new(event, 0) };
        let text = address.to_string();
        // The last byte stays zero.
        for (place, octet) in
            about.address.iter_mut().take(WARPLINE_MAX_ADDRESS as usize - 1).zip(text.bytes())
        {
            *place = c_char::from_ne_bytes([octet]);
        }
        about
    }
}

impl From<AsyncEvent> for Event {
    fn from(event: AsyncEvent) -> Self {
        let ended = |event, number, error: StreamError| {
            let status = u32::from(Status::Failed(error).wc_status() as u8);
            Self { status, ..Self::new(event, number) }
        };
        let plain = Self::new;
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
            AsyncEvent::CoreEnded { core } => plain(WARPLINE_EVENT_CORE_ENDED, core.into()),
            AsyncEvent::AdapterDiffers => plain(WARPLINE_EVENT_ADAPTER_DIFFERS, 0),
            AsyncEvent::AddressConflict { address, mac, abandoned: false } => {
                Self::about(WARPLINE_EVENT_ADDRESS_CONFLICT, address, mac)
            }
            AsyncEvent::AddressConflict { address, mac, abandoned: true } => {
                Self::about(WARPLINE_EVENT_ADDRESS_ABANDONED, address, mac)
            }
            AsyncEvent::PartialChecksum { peer } => {
                Self::about(WARPLINE_EVENT_PARTIAL_CHECKSUM, peer, MacAddress::default())
            }
            AsyncEvent::OversizedPacket { peer } => {
                Self::about(WARPLINE_EVENT_OVERSIZED_PACKET, peer, MacAddress::default())
            }
            _ => plain(WARPLINE_EVENT_OTHER, 0),
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
        WARPLINE_EVENT_ADDRESS_CONFLICT => c"device: another station uses an address of its own",
        WARPLINE_EVENT_ADDRESS_ABANDONED => c"device: another station has an address, which is given up",
        WARPLINE_EVENT_PARTIAL_CHECKSUM => c"device: segments come without TCP checksums and are dropped",
        WARPLINE_EVENT_OVERSIZED_PACKET => c"device: packets longer than the MTU are cut and dropped",
        WARPLINE_EVENT_CORE_ENDED => c"device: a core is no longer polled",
        WARPLINE_EVENT_ADAPTER_DIFFERS => c"device: its adapter brings segments to other cores",
        WARPLINE_EVENT_OTHER => c"another event",
        _ => c"unknown event",
    }
    .as_ptr()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    /// Every event of cores has a number and a text of its own.
    #[test]
    fn events_about_cores_have_texts() {
        for (event, number, of, text) in [
            (
                AsyncEvent::CoreEnded { core: 3 },
                WARPLINE_EVENT_CORE_ENDED,
                3,
                "device: a core is no longer polled",
            ),
            (
                AsyncEvent::AdapterDiffers,
                WARPLINE_EVENT_ADAPTER_DIFFERS,
                0,
                "device: its adapter brings segments to other cores",
            ),
        ] {
            let event = Event::from(event);
            assert_eq!((event.event, event.number), (number, of));
            // SAFETY: a string that lives for ever.
            assert_eq!(unsafe { CStr::from_ptr(warpline_event_text(number)) }.to_str(), Ok(text));
        }
    }

    #[test]
    fn an_event_about_the_link_names_the_station() {
        let mac = MacAddress([2, 0, 0, 0, 0, 9]);
        let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        for (event, number, address, text) in [
            (
                AsyncEvent::AddressConflict { address: [198, 18, 0, 2].into(), mac, abandoned: false },
                WARPLINE_EVENT_ADDRESS_CONFLICT,
                "198.18.0.2",
                "device: another station uses an address of its own",
            ),
            (
                AsyncEvent::AddressConflict { address: longest, mac, abandoned: true },
                WARPLINE_EVENT_ADDRESS_ABANDONED,
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                "device: another station has an address, which is given up",
            ),
        ] {
            let event = Event::from(event);
            assert_eq!((event.event, event.mac), (number, mac.0));
            // SAFETY: the last byte of the array is zero.
            let written = unsafe { CStr::from_ptr(event.address.as_ptr()) };
            assert_eq!(written.to_str(), Ok(address));
            // SAFETY: a string that lives for ever.
            assert_eq!(unsafe { CStr::from_ptr(warpline_event_text(number)) }.to_str(), Ok(text));
        }
    }
}
