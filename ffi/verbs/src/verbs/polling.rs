//! Completions one after the other, field by field: `ibv_start_poll`, `ibv_next_poll` and what reads the
//! fields. The functions of the headers call these by the pointers of a completion queue.

use std::ffi::{c_int, c_uint};

use super::completion;
use super::cq::{self, Cq};
use crate::abi::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
    IBV_WC_EX_WITH_BYTE_LEN, IBV_WC_EX_WITH_DLID_PATH_BITS, IBV_WC_EX_WITH_IMM, IBV_WC_EX_WITH_QP_NUM,
    IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID, IBV_WC_EX_WITH_SRC_QP, ibv_context, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc,
};
use crate::errno::{Errno, number, pointer, unsupported};
use crate::object::{Object, zeroed};

/// The fields of completions that can be asked for.
const WC_FLAGS: u32 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS;

/// `ibv_create_cq_ex`.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    pointer(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let attr = unsafe { attr.as_ref().ok_or(Errno::INVALID)? };
        if attr.wc_flags & !u64::from(WC_FLAGS) != 0 {
            return Err(unsupported!("completions have no times, VLANs, flow tags or tags to match"));
        }
        if attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 {
            return Err(unsupported!("completion queues have no parent domains"));
        }
        // Wishes: a lock that nobody waits for is taken all the same, and no queue overruns.
        let known = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        let flags = if attr.comp_mask == 0 { 0 } else { attr.flags };
        if flags & !known != 0 || attr.comp_vector != 0 {
            return Err(Errno::INVALID);
        }
        let cqe = c_int::try_from(attr.cqe).map_err(|_| Errno::INVALID)?;
        // SAFETY: as above.
        unsafe {
            let cq = cq::create(context, cqe, attr.cq_context, attr.channel)?.cast::<ibv_cq_ex>();
            offer(&mut *cq);
            Ok(cq)
        }
    })
}

/// Sets the pointers of a completion queue to these functions.
const fn offer(cq: &mut ibv_cq_ex) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_slid = Some(read_slid);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_dlid_path_bits);
}

/// Makes the oldest completion the current one; `ENOENT` if there is none.
fn advance(cq: &Object<Cq>) -> Result<(), Errno> {
    // SAFETY: a structure of C's, of numbers.
    let mut wc: ibv_wc = unsafe { zeroed() };
    // SAFETY: there is room for one.
    if unsafe { completion::poll(&cq.inner().polled, 1, &raw mut wc) } == 0 {
        return Err(Errno::NO_ENTRY);
    }
    let public = cq.pointer();
    // SAFETY: the structure is the program's, whose thread is in the section of the queue.
    unsafe {
        (*public).wr_id = wc.wr_id;
        (*public).status = wc.status;
    }
    *cq.inner().polling.lock() = wc;
    Ok(())
}

/// Enters the section, with a current completion; else with `ENOENT` it is left already.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (object, attr) = unsafe { (cq::of(cq.cast())?, attr.as_ref()) };
        if attr.is_some_and(|attr| attr.comp_mask != 0) {
            return Err(Errno::INVALID);
        }
        let section = &object.inner().polling.section;
        section.enter();
        advance(object).inspect_err(|_| section.leave())
    })
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    number(|| advance(unsafe { cq::of(cq.cast())? }))
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller keeps the contract of the ABI.
    if let Ok(object) = unsafe { cq::of(cq.cast()) } {
        object.inner().polling.section.leave();
    }
}

/// Reads a field of the current completion.
///
/// # Safety
///
/// As for [`Object::of`].
unsafe fn read<T: Default>(cq: *mut ibv_cq_ex, field: impl FnOnce(&ibv_wc) -> T) -> T {
    // SAFETY: the caller's promise.
    unsafe { cq::of(cq.cast()) }.map(|object| field(&object.inner().polling.lock())).unwrap_or_default()
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { read(cq, |wc| wc.opcode) }
}

unsafe extern "C" fn read_vendor_err(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: as above.
    unsafe { read(cq, |wc| wc.vendor_err) }
}

unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: as above.
    unsafe { read(cq, |wc| wc.byte_len) }
}

/// Immediate Data, or the STag that was invalidated: `ibv_wc_read_invalidated_rkey` asks here too.
unsafe extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: as above; both parts of the union are numbers in the same place.
    unsafe { read(cq, |wc| wc.__bindgen_anon_1.imm_data) }
}

unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: as above.
    unsafe { read(cq, |wc| wc.qp_num) }
}

unsafe extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: as above.
    unsafe { read(cq, |wc| wc.src_qp) }
}

unsafe extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
    // SAFETY: as above.
    unsafe { read(cq, |wc| wc.wc_flags) }
}

unsafe extern "C" fn read_slid(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: as above.
    unsafe { read(cq, |wc| wc.slid.into()) }
}

unsafe extern "C" fn read_sl(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: as above.
    unsafe { read(cq, |wc| wc.sl) }
}

unsafe extern "C" fn read_dlid_path_bits(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: as above.
    unsafe { read(cq, |wc| wc.dlid_path_bits) }
}
