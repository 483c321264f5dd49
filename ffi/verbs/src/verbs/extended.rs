//! Sends that a program builds call by call (`ibv_wr_start`, `ibv_wr_send` and so on, `ibv_wr_complete`). The
//! functions of the headers call these by the pointers of a queue pair; what is built is what `ibv_post_send`
//! takes, and is posted by the same steps.

use std::ffi::{c_int, c_void};
use std::slice;

use arrayvec::ArrayVec;
use warpline::{SendRequest, limits};

use super::built::{Built, Data, INLINE_MAX, Posting, Send};
use super::qp::{self, Qp, Sends};
use super::work;
use crate::abi::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_BIND_MW,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_SEND_INLINE,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
    IBV_WR_SEND_WITH_INV, ibv_ah, ibv_context, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex,
    ibv_qp_init_attr_ex, ibv_send_wr, ibv_sge,
};
use crate::errno::{Errno, guarded, number, pointer, unsupported};
use crate::object::{Object, zeroed};

/// The operations that can be built.
const OPERATIONS: u32 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV;

/// `ibv_create_qp_ex`.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller keeps the contract of the ABI.
    pointer(|| unsafe { create_extended(attr) })
}

/// Returns how sends are posted to a queue pair of the extended attributes.
pub(crate) fn sends_of(attr: &ibv_qp_init_attr_ex) -> Result<Sends, Errno> {
    if attr.comp_mask & !(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 {
        return Err(unsupported!("of the extended attributes of queue pairs iWARP has those of sends alone"));
    }
    if attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS == 0 {
        return Ok(Sends::Posted);
    }
    if attr.send_ops_flags & !u64::from(OPERATIONS) != 0 {
        // Programs that offer it fall back to ibv_post_send: nothing to say.
        return Err(Errno::NOT_SUPPORTED);
    }
    Ok(Sends::Built(offer))
}

/// Makes a queue pair of the extended attributes.
///
/// # Safety
///
/// As for [`Object::of`], of all pointers.
unsafe fn create_extended(attr: *mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: the caller's promise.
    let attr = unsafe { attr.as_mut().ok_or(Errno::INVALID)? };
    let sends = sends_of(attr)?;
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
        return Err(Errno::INVALID);
    }
    let mut plain = qp::without_extensions(attr);
    // SAFETY: the caller's promise.
    let qp = unsafe { qp::create(attr.pd, &mut plain, sends)? };
    attr.cap = plain.cap;
    Ok(qp)
}

/// Returns the extended form of a queue pair; null if its sends are not built call by call.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    pointer(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { qp::of(qp)? };
        object.inner().posting.as_ref().map(|_| object.pointer()).ok_or(Errno::NOT_SUPPORTED)
    })
}

/// Sets the pointers of a queue pair to these functions.
const fn offer(qp: &mut ibv_qp_ex) {
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    qp.wr_bind_mw = Some(wr_bind_mw);
    qp.wr_local_inv = Some(wr_local_inv);
    qp.wr_rdma_read = Some(wr_rdma_read);
    qp.wr_rdma_write = Some(wr_rdma_write);
    qp.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    qp.wr_send = Some(wr_send);
    qp.wr_send_imm = Some(wr_send_imm);
    qp.wr_send_inv = Some(wr_send_inv);
    qp.wr_send_tso = Some(wr_send_tso);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    qp.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_atomic_write = Some(wr_atomic_write);
}

/// Borrows a queue pair of a program that posts so.
///
/// # Safety
///
/// As for [`Object::of`].
unsafe fn of<'a>(qp: *mut ibv_qp_ex) -> Result<(&'a Object<Qp>, &'a Posting), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { qp::of(qp.cast())? };
    Ok((object, object.inner().posting.as_ref().ok_or(Errno::INVALID)?))
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    let _ = guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (_, posting) = unsafe { of(qp)? };
        posting.section.enter();
        posting.lock().clear();
        Ok(())
    });
}

/// Posts all that was built, or nothing.
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (object, posting) = unsafe { of(qp)? };
        let posted = guarded(|| {
            let mut built = posting.lock();
            // SAFETY: as above.
            let posted = unsafe { post(object.inner(), &mut built) };
            built.clear();
            posted
        });
        posting.section.leave();
        posted
    })
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    let _ = guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (_, posting) = unsafe { of(qp)? };
        posting.lock().clear();
        posting.section.leave();
        Ok(())
    });
}

/// Posts what was built.
///
/// # Safety
///
/// The work requests are as the ABI has them.
unsafe fn post(qp: &Qp, built: &mut Built) -> Result<(), Errno> {
    if let Some(errno) = built.error {
        return Err(errno);
    }
    let Built { sends, requests, .. } = built;
    let queue_pair = qp.state.queue_pair.lock();
    // Before inline data is copied to the area of the queue pair: its places are those of sends that fit.
    if queue_pair.sends_free() < sends.len() {
        return Err(Errno::NO_MEMORY);
    }
    requests.clear();
    let mut in_areas = 0;
    let gathered = sends.iter_mut().try_for_each(|send| {
        // SAFETY: the caller's promise.
        let (request, in_area) = unsafe { request(qp, send)? };
        if let (true, Some(area)) = (in_area, &qp.inline) {
            area.posted();
            in_areas += 1;
        }
        requests.push(request);
        Ok(())
    });
    let posted: Result<(), Errno> = gathered.and_then(|()| Ok(queue_pair.post_all(requests)?));
    if let (Err(_), Some(area)) = (&posted, &qp.inline) {
        area.not_posted(in_areas);
    }
    posted?;
    for (send, request) in sends.iter().zip(requests) {
        // SAFETY: the caller's promise.
        unsafe { work::show_binding(&send.wr, request) };
    }
    Ok(())
}

/// Returns a send as warpline has it, as [`work::send_request`] does.
///
/// # Safety
///
/// As there.
unsafe fn request(qp: &Qp, send: &mut Send) -> Result<(SendRequest, bool), Errno> {
    let Send { wr, data } = send;
    let mut inline;
    let elements = match data {
        Data::None => &mut [],
        Data::Ranges(elements) => elements.as_mut_slice(),
        Data::Inline(octets) => {
            wr.send_flags |= IBV_SEND_INLINE;
            let addr = octets.as_ptr().expose_provenance() as u64;
            inline = [ibv_sge { addr, length: octets.len() as u32, lkey: 0 }];
            &mut inline
        }
    };
    (wr.sg_list, wr.num_sge) = (elements.as_mut_ptr(), elements.len() as c_int);
    // SAFETY: the caller's promise, and the elements are there.
    unsafe { work::send_request(qp, wr) }
}

/// Begins a send of `opcode`, of which `set` sets the rest.
///
/// # Safety
///
/// As for [`Object::of`].
unsafe fn begin(qp: *mut ibv_qp_ex, opcode: u32, set: impl FnOnce(&mut ibv_send_wr)) {
    let _ = guarded(|| {
        // SAFETY: the caller's promise; the fields are the program's, which does not touch them during the
        // call. Zeros are a work request.
        unsafe {
            let (object, posting) = of(qp)?;
            let mut built = posting.lock();
            if built.sends.len() == object.inner().caps.max_send_wr as usize {
                // More than are ever posted together.
                built.refuse(Errno::NO_MEMORY);
                return Ok(());
            }
            let mut wr: ibv_send_wr = zeroed();
            (wr.wr_id, wr.opcode) = ((*qp).wr_id, opcode);
            // Inline is what has been set so, whatever the flags say.
            wr.send_flags = (*qp).wr_flags & !IBV_SEND_INLINE;
            set(&mut wr);
            built.sends.push(Send { wr, data: Data::None });
        }
        Ok(())
    });
}

/// Sets the data of the last send, once. A failure is that of the whole posting.
///
/// # Safety
///
/// As for [`Object::of`].
unsafe fn set_data(qp: *mut ibv_qp_ex, data: impl FnOnce() -> Result<Data, Errno>) {
    let _ = guarded(|| {
        // SAFETY: the caller's promise.
        let (_, posting) = unsafe { of(qp)? };
        let mut built = posting.lock();
        match (data(), built.sends.last_mut()) {
            (Ok(data), Some(send @ Send { data: Data::None, .. })) => send.data = data,
            (Err(errno), _) => built.refuse(errno),
            _ => built.refuse(Errno::INVALID),
        }
        Ok(())
    });
}

/// Refuses the whole posting, for what iWARP does not have.
///
/// # Safety
///
/// As for [`Object::of`].
unsafe fn refuse(qp: *mut ibv_qp_ex) {
    let _ = guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { of(qp)? }.1.lock().refuse(Errno::NOT_SUPPORTED);
        Ok(())
    });
}

/// Sets where the data of the peer is.
const fn set_remote(wr: &mut ibv_send_wr, rkey: u32, remote_addr: u64) {
    wr.wr.rdma.remote_addr = remote_addr;
    wr.wr.rdma.rkey = rkey;
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare: u64,
    swap: u64,
) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe {
        begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP, |wr| {
            wr.wr.atomic.remote_addr = remote_addr;
            wr.wr.atomic.rkey = rkey;
            wr.wr.atomic.compare_add = compare;
            wr.wr.atomic.swap = swap;
        });
    }
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe {
        begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, |wr| {
            wr.wr.atomic.remote_addr = remote_addr;
            wr.wr.atomic.rkey = rkey;
            wr.wr.atomic.compare_add = add;
        });
    }
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    bind_info: *const ibv_mw_bind_info,
) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe {
        begin(qp, IBV_WR_BIND_MW, |wr| {
            wr.__bindgen_anon_2.bind_mw.mw = mw;
            wr.__bindgen_anon_2.bind_mw.rkey = rkey;
            wr.__bindgen_anon_2.bind_mw.bind_info = *bind_info;
        });
    }
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { begin(qp, IBV_WR_LOCAL_INV, |wr| wr.__bindgen_anon_1.invalidate_rkey = invalidate_rkey) }
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { begin(qp, IBV_WR_RDMA_READ, |wr| set_remote(wr, rkey, remote_addr)) }
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { begin(qp, IBV_WR_RDMA_WRITE, |wr| set_remote(wr, rkey, remote_addr)) }
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: u32) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe {
        begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM, |wr| {
            set_remote(wr, rkey, remote_addr);
            wr.__bindgen_anon_1.imm_data = imm_data;
        });
    }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { begin(qp, IBV_WR_SEND, |_| {}) }
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm_data: u32) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { begin(qp, IBV_WR_SEND_WITH_IMM, |wr| wr.__bindgen_anon_1.imm_data = imm_data) }
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { begin(qp, IBV_WR_SEND_WITH_INV, |wr| wr.__bindgen_anon_1.invalidate_rkey = invalidate_rkey) }
}

unsafe extern "C" fn wr_send_tso(qp: *mut ibv_qp_ex, _header: *mut c_void, _header_len: u16, _mss: u16) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { refuse(qp) }
}

unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    _rkey: u32,
    _remote_addr: u64,
    _value: *const c_void,
) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { refuse(qp) }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, _ah: *mut ibv_ah, _qp_num: u32, _qkey: u32) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { refuse(qp) }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, _srq_num: u32) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { refuse(qp) }
}

/// Borrows a list of the program.
///
/// # Safety
///
/// As the ABI has it: `count` elements, or none.
unsafe fn list<'a, T>(start: *const T, count: usize) -> Result<&'a [T], Errno> {
    match count {
        0 => Ok(&[]),
        _ if start.is_null() => Err(Errno::INVALID),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { slice::from_raw_parts(start, count) }),
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let element = ibv_sge { addr, length, lkey };
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { wr_set_sge_list(qp, 1, &raw const element) }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, elements: *const ibv_sge) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe {
        set_data(qp, || {
            if count > limits::SCATTER_GATHER_ELEMENTS {
                return Err(Errno::INVALID);
            }
            Ok(Data::Ranges(list(elements, count)?.iter().copied().collect()))
        });
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let part = ibv_data_buf { addr, length };
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { wr_set_inline_data_list(qp, 1, &raw const part) }
}

/// Copies the data of the last send, which the program may change at once.
unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, parts: *const ibv_data_buf) {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe {
        set_data(qp, || {
            let mut octets: ArrayVec<u8, INLINE_MAX> = ArrayVec::new();
            for part in list(parts, count)? {
                // Before anything of it is read.
                if part.length > octets.remaining_capacity() {
                    return Err(Errno::INVALID);
                }
                let part = list(part.addr.cast_const().cast::<u8>(), part.length)?;
                octets.try_extend_from_slice(part).map_err(|_| Errno::INVALID)?;
            }
            Ok(Data::Inline(octets))
        });
    }
}
