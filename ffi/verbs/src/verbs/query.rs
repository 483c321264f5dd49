//! What programs ask about the device and its port: true limits, and the link of the interface.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use warpline::{Capacity, limits};

use super::context::{self, PORT};
use super::device::guid;
use super::qp::INLINE_MAX;
use crate::abi::{
    IBV_ATOMIC_HCA, IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_GID_TYPE_IB,
    IBV_LINK_LAYER_ETHERNET, IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096,
    IBV_PORT_ACTIVE, IBV_PORT_CM_SUP, IBV_PORT_DOWN, ibv_context, ibv_device_attr, ibv_device_attr_ex,
    ibv_gid, ibv_gid_entry, ibv_port_attr, ibv_query_device_ex_input,
};
use crate::adapter::{Adapter, adapter};
use crate::errno::{Errno, minus_one, number};
use crate::object::zeroed;

/// Numbers that no table bounds.
const MANY: c_int = 1 << 16;

/// Returns the limits of the device.
fn device_attr() -> ibv_device_attr {
    // SAFETY: a structure of numbers and arrays of them.
    let mut attr: ibv_device_attr = unsafe { zeroed() };
    let capacity = Capacity::default();
    for (target, octet) in attr.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *target = octet as c_char;
    }
    attr.node_guid = guid();
    attr.sys_image_guid = attr.node_guid;
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = 4096;
    attr.max_qp = capacity.queue_pairs as c_int;
    attr.max_qp_wr = limits::WORK_REQUESTS_PER_QUEUE as c_int;
    // Type 2B: a binding is for the peer of one queue pair, and within one Protection Domain.
    attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    attr.max_sge = limits::SCATTER_GATHER_ELEMENTS as c_int;
    attr.max_sge_rd = 1;
    attr.max_cq = MANY;
    attr.max_cqe = (limits::COMPLETIONS_PER_QUEUE / 2) as c_int;
    attr.max_mr = capacity.registrations as c_int;
    attr.max_pd = MANY;
    attr.max_qp_rd_atom = limits::READ_DEPTH_MAX.into();
    attr.max_res_rd_atom = attr.max_qp_rd_atom.saturating_mul(attr.max_qp);
    attr.max_qp_init_rd_atom = limits::READ_DEPTH_MAX.into();
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_mw = capacity.registrations as c_int;
    attr.max_srq = MANY;
    attr.max_srq_wr = limits::RECEIVES_PER_SHARED_QUEUE as c_int;
    attr.max_srq_sge = limits::SCATTER_GATHER_ELEMENTS as c_int;
    attr.max_pkeys = 1;
    attr.phys_port_cnt = PORT;
    attr
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            context::context(context)?;
            attr.write(device_attr());
        }
        Ok(())
    })
}

/// `ibv_query_device_ex`; of the extensions there is none.
pub(crate) unsafe extern "C" fn query_device_ex(
    _context: *mut ibv_context,
    _input: *const ibv_query_device_ex_input,
    target: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    number(|| {
        // SAFETY: a structure of numbers and arrays of them.
        let mut attr: ibv_device_attr_ex = unsafe { zeroed() };
        attr.orig_attr = device_attr();
        attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags.into();
        attr.phys_port_cnt_ex = PORT.into();
        // SAFETY: the caller has room for `size` octets.
        unsafe { copy_part(&attr, target, size) };
        Ok(())
    })
}

/// Copies the first `size` octets of `from`, or as many as it has.
///
/// # Safety
///
/// `target` has room for `size` octets.
unsafe fn copy_part<T>(from: &T, target: *mut T, size: usize) {
    let size = size.min(size_of::<T>());
    // SAFETY: the caller's promise; both are of the C structure `T`.
    unsafe { target.cast::<u8>().copy_from_nonoverlapping((&raw const *from).cast(), size) };
}

/// Returns the name by which verbs know an MTU: the next smaller of five.
const fn verbs_mtu(octets: u32) -> u32 {
    match octets {
        4096.. => IBV_MTU_4096,
        2048.. => IBV_MTU_2048,
        1024.. => IBV_MTU_1024,
        512.. => IBV_MTU_512,
        _ => IBV_MTU_256,
    }
}

/// Returns the width and the speed of verbs that come nearest to a link of `mbps`, from below.
const fn verbs_rate(mbps: u32) -> (u8, u8) {
    /// Lanes, by their code.
    const ONE: u8 = 1;
    const FOUR: u8 = 2;
    /// A lane of 2.5, 10, 25 and 50 Gb/s.
    const SDR: u8 = 1;
    const FDR10: u8 = 8;
    const EDR: u8 = 32;
    const HDR: u8 = 64;
    match mbps {
        200_000.. => (FOUR, HDR),
        100_000.. => (FOUR, EDR),
        40_000.. => (FOUR, FDR10),
        25_000.. => (ONE, EDR),
        10_000.. => (ONE, FDR10),
        _ => (ONE, SDR),
    }
}

/// Returns what the port is: the interface's link.
fn port_attr() -> Result<ibv_port_attr, Errno> {
    let adapter = adapter().ok_or(Errno::NO_DEVICE)?;
    let number = |property: &str| adapter.of_interface(property).and_then(|text| text.parse().ok());
    let is_up = adapter.of_interface("operstate").is_none_or(|state| state != "down");
    let mtu = number("mtu").unwrap_or(1500);
    let (width, speed) = verbs_rate(number("speed").unwrap_or(10_000));
    // SAFETY: a structure of numbers.
    let mut attr: ibv_port_attr = unsafe { zeroed() };
    attr.state = if is_up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = verbs_mtu(mtu);
    attr.gid_tbl_len = 1;
    attr.port_cap_flags = IBV_PORT_CM_SUP;
    attr.max_msg_sz = u32::MAX;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 1;
    attr.active_width = width;
    attr.active_speed = speed;
    // "Link up" and "disabled" of InfiniBand's physical states.
    attr.phys_state = if is_up { 5 } else { 3 };
    attr.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
    Ok(attr)
}

/// The slot of `ibv_query_port`, for structures of the size that the program was compiled with.
pub(crate) unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    port: u8,
    target: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    number(|| {
        if port != PORT {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller has room for `size` octets.
        unsafe { copy_part(&port_attr()?, target, size) };
        Ok(())
    })
}

/// The same for programs that were compiled with the first structure, which ends before the flags.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    target: *mut ibv_port_attr,
) -> c_int {
    let size = std::mem::offset_of!(ibv_port_attr, flags);
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { query_port(context, port, target, size) }
}

/// Returns the only GID: the hardware address, as iWARP adapters have it.
fn gid() -> ibv_gid {
    let mac = adapter().map_or([0; 6], Adapter::mac);
    let mut raw = [0; 16];
    raw[..mac.len()].copy_from_slice(&mac);
    ibv_gid { raw }
}

fn check_gid(port: u32, index: u32) -> Result<(), Errno> {
    if port == PORT.into() && index == 0 { Ok(()) } else { Err(Errno::INVALID) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    target: *mut ibv_gid,
) -> c_int {
    minus_one(|| {
        check_gid(port.into(), index as u32)?;
        // SAFETY: the caller has room for it.
        unsafe { target.write(gid()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    _context: *mut ibv_context,
    port: u32,
    index: u32,
    target: *mut ibv_gid_entry,
    _flags: u32,
    size: usize,
) -> c_int {
    number(|| {
        check_gid(port, index)?;
        let entry = gid_entry();
        // SAFETY: the caller has room for `size` octets.
        unsafe { copy_part(&entry, target, size) };
        Ok(())
    })
}

fn gid_entry() -> ibv_gid_entry {
    static INDEX: OnceLock<u32> = OnceLock::new();
    let index = || adapter()?.of_interface("ifindex")?.parse().ok();
    let ndev_ifindex = *INDEX.get_or_init(|| index().unwrap_or_default());
    ibv_gid_entry { gid: gid(), gid_index: 0, port_num: PORT.into(), gid_type: IBV_GID_TYPE_IB, ndev_ifindex }
}

/// Writes the GIDs to `entries`; returns how many, or a negative errno.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    _context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    room: usize,
    _flags: u32,
    size: usize,
) -> isize {
    if room == 0 {
        return -(libc::EINVAL as isize);
    }
    // SAFETY: the caller has room for it.
    unsafe { copy_part(&gid_entry(), entries, size) };
    1
}

/// The kind of a GID: `ibv_devinfo` asks for it.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    _context: *mut ibv_context,
    port: u8,
    index: u32,
    target: *mut u32,
) -> c_int {
    minus_one(|| {
        check_gid(port.into(), index)?;
        // SAFETY: the caller has room for it.
        unsafe { target.write(IBV_GID_TYPE_IB) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    target: *mut u16,
) -> c_int {
    minus_one(|| {
        check_gid(port.into(), index as u32)?;
        // SAFETY: the caller has room for it.
        unsafe { target.write(u16::MAX) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    if port == PORT && pkey == u16::MAX { 0 } else { -1 }
}

/// There is nothing of it in sysfs.
#[unsafe(no_mangle)]
extern "C" fn ibv_read_sysfs_file(
    _directory: *const c_char,
    _file: *const c_char,
    _buffer: *mut c_char,
    _size: usize,
) -> c_int {
    -1
}

#[unsafe(no_mangle)]
extern "C" fn ibv_read_ibdev_sysfs_file(_buffer: *mut c_char, _size: usize) -> c_int {
    -1
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

const _: () = assert!(INLINE_MAX <= u8::MAX as usize + 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_smaller_mtu_and_rate_are_said() {
        for (octets, expected) in [
            (9000, IBV_MTU_4096),
            (4096, IBV_MTU_4096),
            (1500, IBV_MTU_1024),
            (576, IBV_MTU_512),
            (68, IBV_MTU_256),
        ] {
            assert_eq!(verbs_mtu(octets), expected, "{octets}");
        }
        assert_eq!((verbs_rate(10_000), verbs_rate(100_000), verbs_rate(1000)), ((1, 8), (2, 32), (1, 1)));
    }
}
