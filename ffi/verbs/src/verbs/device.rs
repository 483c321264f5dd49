//! The list of devices, which has one entry at most.

use std::ffi::{c_char, c_int};
use std::ptr::null;

use crate::abi::ibv_device;
use crate::adapter::{Adapter, adapter};
use crate::errno::{Errno, pointer};

/// Returns the devices, with a null behind the last, and their number in `count` unless that is null.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    pointer(|| {
        let adapter = adapter();
        if !count.is_null() {
            // SAFETY: not null, so the caller's to be written.
            unsafe { *count = adapter.is_some().into() };
        }
        // SAFETY: memory for two pointers, which `ibv_free_device_list` gives back.
        let list: *mut *mut ibv_device = unsafe { libc::calloc(2, size_of::<usize>()) }.cast();
        if list.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        if let Some(adapter) = adapter {
            // SAFETY: the list has room for it.
            unsafe { *list = adapter.public() };
        }
        Ok(list)
    })
}

/// Gives the list back; the devices stay.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: it is from `ibv_get_device_list`, or null.
    unsafe { libc::free(list.cast()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return null();
    }
    // SAFETY: a device of this library, for as long as the process lives.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    0
}

/// The hardware address of the interface as an EUI-64, most significant octet first.
#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    guid()
}

/// Returns the hardware address of the interface as an EUI-64, in the order of the network.
pub(crate) fn guid() -> u64 {
    let mac = adapter().map_or([0; 6], Adapter::mac);
    let mut eui = [0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    eui[..3].copy_from_slice(&mac[..3]);
    eui[5..].copy_from_slice(&mac[3..]);
    // The bit that says "universally administered" has the other meaning in an EUI-64.
    eui[0] ^= 2;
    u64::from_ne_bytes(eui)
}
