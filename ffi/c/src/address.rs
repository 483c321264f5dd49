//! Local addresses: where to listen, and which addresses and ports a connection has.

use std::ffi::{c_char, c_int};
use std::net::SocketAddr;

use warpline::{ListenError, TcpListenConfig};

use crate::cm::id::CmId;
use crate::connection::{ListenAttr, Listener, Request};
use crate::device::Device;
use crate::error::{Failure, guard};
use crate::pointer::{borrow, hand_out, socket_address, write_address};
use crate::queue_pair::Qp;
use crate::stream::{Stream, StreamListener};

/// Takes connections to `port` at `address`, one of the device's; at every IPv4 address for `"0.0.0.0"`, at
/// every address for `"::"`. For port 0 a free one is chosen, which `warpline_listener_address` returns.
/// `attr` may be null for the defaults.
///
/// - `-EADDRINUSE`: the port of the address has a listener
/// - `-EADDRNOTAVAIL`: the address is none of the device's
/// - `-EINVAL`: an argument is wrong
/// - `-ENOSPC`: the device has as many listeners as it can
/// - `-ENOMEM`: the kernel, whose addresses the device shares, does not leave the port (below 1024 without
///   `CAP_NET_BIND_SERVICE`), or no file descriptor is left; `warpline_last_error` has the kernel's error
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_listen_at(
    device: *mut Device,
    address: *const c_char,
    port: u16,
    attr: *const ListenAttr,
    listener: *mut *mut Listener,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (device, local) = (borrow(device)?, socket_address(address, port)?);
            let config = ListenAttr::config(attr)?;
            hand_out(listener, || Ok(Listener(device.0.listen_at(local, &config)?)))?;
        }
        Ok(0)
    })
}

/// Takes connections to `port` at `address` in streaming mode, of which at most `backlog` wait at a time; 0
/// for 128.
///
/// Fails as `warpline_listen_at` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_listen_at(
    device: *mut Device,
    address: *const c_char,
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
            let (device, local) = (borrow(device)?, socket_address(address, port)?);
            let listen = || -> Result<StreamListener, ListenError> {
                Ok(StreamListener(device.0.listen_streams_at(local, &config)?))
            };
            hand_out(listener, || Ok(listen()?))?;
        }
        Ok(0)
    })
}

/// Where a listener listens: the address as a string, for which there is room for `WARPLINE_MAX_ADDRESS`
/// bytes, and the port. Either may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_listener_address(
    listener: *const Listener,
    address: *mut c_char,
    port: *mut u16,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe { write_address(Some(borrow(listener)?.0.local()), address, port) })
}

/// Where a listener for streaming mode listens, as `warpline_listener_address`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_listener_address(
    listener: *const StreamListener,
    address: *mut c_char,
    port: *mut u16,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe { write_address(Some(borrow(listener)?.0.local()), address, port) })
}

/// Both ends of a connection.
///
/// # Safety
///
/// What is not null may be written, the addresses with room for `WARPLINE_MAX_ADDRESS` bytes.
unsafe fn write_both(
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    local_address: *mut c_char,
    local_port: *mut u16,
    peer_address: *mut c_char,
    peer_port: *mut u16,
) -> Result<c_int, Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        write_address(local, local_address, local_port)?;
        write_address(peer, peer_address, peer_port)
    }
}

/// The addresses and ports of a queue pair's connection, ours and the peer's: addresses as strings, for each
/// of which there is room for `WARPLINE_MAX_ADDRESS` bytes. Any of the four may be null. They stay known
/// after the connection has ended.
///
/// - `-ENOTCONN`: it has had no connection
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_qp_addresses(
    qp: *const Qp,
    local_address: *mut c_char,
    local_port: *mut u16,
    peer_address: *mut c_char,
    peer_port: *mut u16,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let qp = borrow(qp)?;
            let both = (qp.local_addr(), qp.peer_addr());
            write_both(both.0, both.1, local_address, local_port, peer_address, peer_port)
        }
    })
}

/// The addresses and ports of the connection that a peer asks for, as `warpline_qp_addresses`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_request_addresses(
    request: *const Request,
    local_address: *mut c_char,
    local_port: *mut u16,
    peer_address: *mut c_char,
    peer_port: *mut u16,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let request = &borrow(request)?.request;
            let both = (Some(request.local()), Some(request.remote()));
            write_both(both.0, both.1, local_address, local_port, peer_address, peer_port)
        }
    })
}

/// The addresses and ports of a connection in streaming mode, as `warpline_qp_addresses`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_stream_addresses(
    stream: *const Stream,
    local_address: *mut c_char,
    local_port: *mut u16,
    peer_address: *mut c_char,
    peer_port: *mut u16,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let stream = &borrow(stream)?.0;
            let both = (Some(stream.local()), Some(stream.remote()));
            write_both(both.0, both.1, local_address, local_port, peer_address, peer_port)
        }
    })
}

/// The id's own address and port (`rdma_get_local_addr`, `rdma_get_src_port`), as far as they are known: as
/// bound; with the address that leads to the peer once that is resolved; with the port that was chosen once
/// it listens or is connected. There is room for `WARPLINE_MAX_ADDRESS` bytes of the address; either may be
/// null.
///
/// - `-ENOTCONN`: the id is new
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_local(id: *const CmId, address: *mut c_char, port: *mut u16) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe { write_address(borrow(id)?.id.local(), address, port) })
}
