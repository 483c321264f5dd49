//! Ids: connections and listeners, before, while and after they are open.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use warpline::cm::Id;

use super::channel::Ids;
use crate::connection::{ConnParam, ListenAttr};
use crate::device::Device;
use crate::error::{Failure, guard, guard_or};
use crate::pointer::{borrow, hand_out, list, socket_address, take_back, write_address};
use crate::queue_pair::Qp;

/// A connection or a listener, before, while or after it is open: `struct rdma_cm_id`. Its calls return at
/// once; their outcome arrives on its channel. One that comes at a wrong time fails with `-EINVAL`, and
/// changes nothing.
pub struct CmId {
    pub(crate) id: Id,
    pub(super) context: AtomicPtr<c_void>,
    pub(super) ids: Arc<Ids>,
}

impl Drop for CmId {
    fn drop(&mut self) {
        self.ids.forget(self.id.number());
    }
}

/// Returns an id to the library: it listens no more, and a peer that waits for its answer is rejected. A
/// connection goes on: it belongs to its queue pair. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_destroy_id(id: *mut CmId) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(id) }));
}

/// What the caller has attached to the id, or to the one that listened for it; null for a null `id`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_context(id: *const CmId) -> *mut c_void {
    // SAFETY: the caller keeps C's contract.
    unsafe { id.as_ref() }.map_or(std::ptr::null_mut(), |id| id.context.load(Ordering::Acquire))
}

/// Attaches something to the id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_set_context(id: *mut CmId, context: *mut c_void) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(id)? }.context.store(context, Ordering::Release);
        Ok(0)
    })
}

/// A handle of the device that the id is on, for its queue pair: known once the address is resolved, and of a
/// peer that wants to connect. It is a handle of its own, to be given back with `warpline_device_close`.
///
/// - `-ENODEV`: it is not known
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_device(id: *const CmId, device: *mut *mut Device) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let on = borrow(id)?.id.device();
            let on =
                on.ok_or(Failure::new(libc::ENODEV, "the device is known once the address is resolved"))?;
            hand_out(device, || Ok(Device(on.clone())))?;
        }
        Ok(0)
    })
}

/// The peer that wants to connect, or whose address was resolved: the address as a string, for which there is
/// room for `WARPLINE_MAX_ADDRESS` bytes, and the port. Either may be null.
///
/// - `-ENOTCONN`: the id has no peer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_peer(id: *const CmId, address: *mut c_char, port: *mut u16) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { write_address(borrow(id)?.id.remote(), address, port) }
    })
}

/// Chooses the local address, and with it the device: `"0.0.0.0"` for all devices and their IPv4 addresses,
/// `"::"` for all addresses. `warpline_cm_listen` listens there, and a connection comes from there; for port
/// 0 a free one is chosen then, which `warpline_cm_local` returns.
///
/// - `-EADDRNOTAVAIL`: no device of the channel has the address
/// - `-EINVAL`: an argument is wrong, or the id is not new
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_bind_addr(id: *mut CmId, address: *const c_char, port: u16) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let (id, local) = unsafe { (borrow(id)?, socket_address(address, port)?) };
        id.id.bind_addr(local)?;
        Ok(0)
    })
}

/// Finds the device that leads to `address`: `WARPLINE_CM_EVENT_ADDR_RESOLVED` or
/// `WARPLINE_CM_EVENT_ADDR_ERROR`.
///
/// - `-EINVAL`: an argument is wrong, or the id is neither new nor bound
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_resolve_addr(id: *mut CmId, address: *const c_char, port: u16) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let (id, remote) = unsafe { (borrow(id)?, socket_address(address, port)?) };
        id.id.resolve_addr(remote)?;
        Ok(0)
    })
}

/// Finds the route to the peer: `WARPLINE_CM_EVENT_ROUTE_RESOLVED`.
///
/// - `-EINVAL`: the address is not resolved
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_resolve_route(id: *mut CmId) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(id)? }.id.resolve_route()?;
        Ok(0)
    })
}

/// Connects `qp`, of the id's device, to the peer. What comes of it: `WARPLINE_CM_EVENT_ESTABLISHED`,
/// `WARPLINE_CM_EVENT_REJECTED`, `WARPLINE_CM_EVENT_UNREACHABLE` or `WARPLINE_CM_EVENT_CONNECT_ERROR`.
/// `param` may be null for the usual.
///
/// - `-EINVAL`: an argument is wrong, the queue pair is of another device, or the route is not resolved
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_connect(id: *mut CmId, qp: *mut Qp, param: *const ConnParam) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (id, qp, param) = (borrow(id)?, borrow(qp)?, ConnParam::read(param)?);
            id.id.connect(qp, &param.connecting()?)?;
        }
        Ok(0)
    })
}

/// Listens where the id is bound: each peer that wants to connect is a `WARPLINE_CM_EVENT_CONNECT_REQUEST`.
/// `attr` may be null for the usual.
///
/// - `-EADDRINUSE`: the port has a listener
/// - `-EINVAL`: the id is not bound
/// - `-ENOSPC`: a device has as many listeners as it can
/// - `-ENOMEM`: the kernel, whose addresses a device shares, does not leave the port (below 1024 without
///   `CAP_NET_BIND_SERVICE`), or no file descriptor is left; `warpline_last_error` has the kernel's error
/// - `-ENODEV`: a device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_listen(id: *mut CmId, attr: *const ListenAttr) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(id)?.id.listen(&ListenAttr::config(attr)?)? };
        Ok(0)
    })
}

/// Accepts the peer that wants to connect: `qp`, of the id's device, serves the connection. What comes of it:
/// `WARPLINE_CM_EVENT_ESTABLISHED` or `WARPLINE_CM_EVENT_CONNECT_ERROR`. `param` may be null for the
/// defaults. With a failure the peer still waits for its answer.
///
/// - `-EINVAL`: an argument is wrong, the queue pair is of another device, or no peer wants to connect
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_accept(id: *mut CmId, qp: *mut Qp, param: *const ConnParam) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (id, qp, param) = (borrow(id)?, borrow(qp)?, ConnParam::read(param)?);
            id.id.accept(qp, param.accepting(), param.private_data()?)?;
        }
        Ok(0)
    })
}

/// Rejects the peer that wants to connect: it gets `length` bytes of `private_data`. With a failure it still
/// waits for its answer.
///
/// - `-EINVAL`: an argument is wrong, or no peer wants to connect
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_reject(
    id: *mut CmId,
    private_data: *const c_void,
    length: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let id = borrow(id)?;
            id.id.reject(list(private_data.cast::<u8>(), length as usize)?)?;
        }
        Ok(0)
    })
}

/// Closes our half of the connection after everything posted. `WARPLINE_CM_EVENT_DISCONNECTED` comes when the
/// peer closes its half, `WARPLINE_CM_EVENT_TIMEWAIT_EXIT` when all is over.
///
/// - `-EINVAL`: there was no connection; one that has ended meanwhile is no error
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_disconnect(id: *mut CmId) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(id)? }.id.disconnect()?;
        Ok(0)
    })
}
