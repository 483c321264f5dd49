//! What librdmacm has for InfiniBand alone.

use std::ffi::{c_int, c_void};

use crate::abi::{ibv_ece, rdma_cm_id, rdma_cm_join_mc_attr_ex, sockaddr as CSockaddr};
use crate::errno::{Errno, minus_one, unsupported};

fn multicast() -> Errno {
    unsupported!("iWARP has no multicast: it is over TCP")
}

#[unsafe(no_mangle)]
extern "C" fn rdma_join_multicast(
    _id: *mut rdma_cm_id,
    _address: *mut CSockaddr,
    _context: *mut c_void,
) -> c_int {
    minus_one(|| Err(multicast()))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_join_multicast_ex(
    _id: *mut rdma_cm_id,
    _attr: *mut rdma_cm_join_mc_attr_ex,
    _context: *mut c_void,
) -> c_int {
    minus_one(|| Err(multicast()))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_leave_multicast(_id: *mut rdma_cm_id, _address: *mut CSockaddr) -> c_int {
    minus_one(|| Err(multicast()))
}

/// Enhanced connection establishment is InfiniBand's.
#[unsafe(no_mangle)]
extern "C" fn rdma_set_local_ece(_id: *mut rdma_cm_id, _ece: *mut ibv_ece) -> c_int {
    minus_one(|| Err(Errno::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_get_remote_ece(_id: *mut rdma_cm_id, _ece: *mut ibv_ece) -> c_int {
    minus_one(|| Err(Errno::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_reject_ece(_id: *mut rdma_cm_id, _data: *const c_void, _len: u8) -> c_int {
    minus_one(|| Err(Errno::NOT_SUPPORTED))
}
