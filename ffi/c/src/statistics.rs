//! Counters of devices and connections.

use std::ffi::{c_char, c_int};

use warpline::{NamedValue, Snapshot};

use crate::byte_stream::ByteStream;
use crate::device::Device;
use crate::error::{Failure, guard};
use crate::pointer::borrow;
use crate::queue_pair::Qp;
use crate::stream::Stream;

/// The most bytes of a counter's name, with the zero byte at its end.
pub const WARPLINE_MAX_COUNTER_NAME: usize = 56;

/// A counter, or another number of a connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Counter {
    /// What it counts, with its unit where it is not a number of things: `"frames_received"`,
    /// `"drops.tcp_checksum"`, `"tcp.timeouts"`, `"smoothed_rtt_ns"`.
    pub name: [c_char; WARPLINE_MAX_COUNTER_NAME],
    /// The value. Of what is true or false, 1 or 0.
    pub value: u64,
}

impl From<&NamedValue> for Counter {
    fn from(named: &NamedValue) -> Self {
        let mut name = [0; WARPLINE_MAX_COUNTER_NAME];
        // A zero byte stays after the last. Names are those of fields: ASCII.
        for (place, byte) in name[..WARPLINE_MAX_COUNTER_NAME - 1].iter_mut().zip(named.name.bytes()) {
            *place = c_char::try_from(byte).unwrap_or_default();
        }
        Self { name, value: named.value }
    }
}

/// Writes as many of the values as there is room for; returns how many there are.
///
/// # Safety
///
/// `counters` is null, or `room` of them may be written.
unsafe fn write_out(values: &[NamedValue], counters: *mut Counter, room: u32) -> Result<c_int, Failure> {
    if counters.is_null() && room > 0 {
        return Err(Failure::NULL);
    }
    for (index, value) in values.iter().take(room as usize).enumerate() {
        // SAFETY: there is room for more than `index`: the caller's promise.
        unsafe { counters.add(index).write(value.into()) };
    }
    Ok(c_int::try_from(values.len()).unwrap_or(c_int::MAX))
}

fn of_connection(snapshot: Option<Snapshot>) -> Result<Vec<NamedValue>, Failure> {
    let snapshot = snapshot.ok_or(Failure::new(libc::ENOTCONN, "there is no connection, or it is closed"))?;
    Ok(snapshot.named())
}

/// Writes the counters of a device to `counters`, which has room for `room` of them; null if that is 0.
/// Returns how many there are: with more room than that, `counters` has all. A program looks for a counter
/// by its name: later versions have more of them, in another order.
///
/// Counters only grow, but for `"held_frames"`, which is the number of frames held now. Those of TCP are the
/// sum over all connections so far.
///
/// - `-EINVAL`: a pointer is null
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_device_counters(
    device: *const Device,
    counters: *mut Counter,
    room: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { write_out(&borrow(device)?.0.statistics()?.named(), counters, room) }
    })
}

/// Writes the state of a queue pair's TCP connection at this moment, and its counters: windows, what is in
/// flight, round-trip times once they are known, what was sent again and why. Otherwise as
/// `warpline_device_counters`.
///
/// - `-ENOTCONN`: it has no connection yet, or none any more
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_qp_counters(qp: *const Qp, counters: *mut Counter, room: u32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { write_out(&of_connection(borrow(qp)?.tcp()?)?, counters, room) }
    })
}

/// Writes the same of a connection in streaming mode. See `warpline_qp_counters`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_counters(
    stream: *const Stream,
    counters: *mut Counter,
    room: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { write_out(&of_connection(borrow(stream)?.0.tcp()?)?, counters, room) }
    })
}

/// Writes what became of the segments with the TCP RDMA option that a byte stream has received, as
/// `"transfers.octets_placed"` and the causes why others were not placed, and then the same as
/// `warpline_stream_counters`, as long as there is a connection. Does not wait for threads that read, write
/// or wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_byte_stream_counters(
    byte_stream: *const ByteStream,
    counters: *mut Counter,
    room: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let handle = unsafe { borrow(byte_stream)? }.handle();
        let transfers = handle.transfer_counters().named();
        let mut values: Vec<_> = transfers.into_iter().map(|counter| counter.within("transfers")).collect();
        values.extend(handle.tcp()?.map(|snapshot| snapshot.named()).unwrap_or_default());
        // SAFETY: as above.
        unsafe { write_out(&values, counters, room) }
    })
}
