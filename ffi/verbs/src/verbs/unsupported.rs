//! What iWARP does not have, or warpline: the error of the manual page, and a line that says why.

use std::ffi::{c_int, c_void};

use crate::abi::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_ece, ibv_gid, ibv_grh, ibv_mr, ibv_pd, ibv_qp, ibv_wc,
};
use crate::errno::{Errno, minus_one, number, pointer, unsupported};

fn datagrams() -> Errno {
    unsupported!("iWARP has no datagrams, address handles or multicast: use connections")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_create_ah(_pd: *mut ibv_pd, _attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    pointer(|| Err(datagrams()))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_create_ah_from_wc(
    _pd: *mut ibv_pd,
    _wc: *mut ibv_wc,
    _grh: *mut ibv_grh,
    _port: u8,
) -> *mut ibv_ah {
    pointer(|| Err(datagrams()))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_init_ah_from_wc(
    _context: *mut ibv_context,
    _port: u8,
    _wc: *mut ibv_wc,
    _grh: *mut ibv_grh,
    _attr: *mut ibv_ah_attr,
) -> c_int {
    minus_one(|| Err(datagrams()))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_ah(_ah: *mut ibv_ah) -> c_int {
    number(|| Err(Errno::INVALID))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_attach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    number(|| Err(datagrams()))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_detach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    number(|| Err(datagrams()))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _len: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    pointer(|| Err(unsupported!("memory is this process's: there are no DMA buffers of devices")))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rereg_mr(
    _mr: *mut ibv_mr,
    _flags: c_int,
    _pd: *mut ibv_pd,
    _start: *mut c_void,
    _len: usize,
    _access: c_int,
) -> c_int {
    // "Nothing was changed": IBV_REREG_MR_ERR_INPUT.
    const UNCHANGED: c_int = -1;
    minus_one(|| Err(unsupported!("memory is not registered anew: deregister it, and register it")));
    UNCHANGED
}

fn imports() -> Errno {
    unsupported!("objects of other processes are not imported")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_import_device(_fd: c_int) -> *mut ibv_context {
    pointer(|| Err(imports()))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_import_pd(_context: *mut ibv_context, _handle: u32) -> *mut ibv_pd {
    pointer(|| Err(imports()))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_import_mr(_pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr {
    pointer(|| Err(imports()))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_import_dm(_context: *mut ibv_context, _handle: u32) -> *mut c_void {
    pointer(|| Err(imports()))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}

#[unsafe(no_mangle)]
extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

#[unsafe(no_mangle)]
extern "C" fn ibv_unimport_dm(_dm: *mut c_void) {}

/// Enhanced connection establishment is InfiniBand's.
#[unsafe(no_mangle)]
extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    number(|| Err(Errno::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    number(|| Err(Errno::NOT_SUPPORTED))
}

/// Whether what is placed is seen in order: not promised.
#[unsafe(no_mangle)]
extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _operation: u32, _flags: u32) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    _attr: *mut ibv_ah_attr,
    _mac: *mut u8,
    _vlan: *mut u16,
) -> c_int {
    minus_one(|| Err(datagrams()))
}

/// Memory stays the parent's under copy-on-write: a child has copies, and the adapter of the parent goes on.
#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> u32 {
    crate::abi::IBV_FORK_UNNEEDED
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dontfork_range(_start: *mut c_void, _len: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dofork_range(_start: *mut c_void, _len: usize) -> c_int {
    0
}
