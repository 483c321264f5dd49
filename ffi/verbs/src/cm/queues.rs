//! Queue pairs and shared receive queues of ids, with completion queues and channels if the program gives
//! none.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::id::{self, CmId};
use crate::abi::{
    IBV_QP_INIT_ATTR_PD, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_destroy_comp_channel,
    ibv_destroy_cq, ibv_destroy_srq, ibv_pd, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq_attr,
    ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_cm_id,
};
use crate::errno::{Errno, minus_one};
use crate::object::Object;
use crate::verbs::qp::Sends;
use crate::verbs::{cq, extended, qp, srq};

/// Makes a completion queue of `depth` places with a channel of its own, for an id.
///
/// # Safety
///
/// The context is as the ABI has it.
unsafe fn own_queue(id: *mut rdma_cm_id, depth: u32) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let channel = ibv_create_comp_channel((*id).verbs);
        if channel.is_null() {
            return Err(Errno::last());
        }
        match cq::create((*id).verbs, depth.max(1) as c_int, id.cast(), channel) {
            Ok(queue) => Ok((channel, queue)),
            Err(errno) => {
                ibv_destroy_comp_channel(channel);
                Err(errno)
            }
        }
    }
}

/// Destroys the completion queues that were made for an id.
///
/// # Safety
///
/// The id is as the ABI has it, and has no queue pair any more.
unsafe fn destroy_own_queues(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        let id = &mut *id;
        for (queue, channel) in
            [(&mut id.recv_cq, &mut id.recv_cq_channel), (&mut id.send_cq, &mut id.send_cq_channel)]
        {
            if !queue.is_null() {
                ibv_destroy_cq(std::mem::replace(queue, null_mut()));
                ibv_destroy_comp_channel(std::mem::replace(channel, null_mut()));
            }
        }
    }
}

/// Makes the queue pair of an id, with completion queues of its own where the attributes have none.
///
/// # Safety
///
/// All pointers are as the ABI has them; `pd` may be null.
pub(crate) unsafe fn create_qp(
    object: &Object<CmId>,
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    sends: Sends,
) -> Result<(), Errno> {
    let id = object.pointer();
    // SAFETY: the caller's promise; the program does not touch the id during the call.
    unsafe {
        if !(*id).qp.is_null() || (*id).verbs.is_null() {
            return Err(Errno::INVALID);
        }
        let pd = if pd.is_null() { (*id).pd } else { pd };
        if attr.srq.is_null() {
            attr.srq = (*id).srq;
        }
        if attr.qp_type == 0 {
            attr.qp_type = (*id).qp_type;
        }
        if attr.send_cq.is_null() {
            if (*id).send_cq.is_null() {
                ((*id).send_cq_channel, (*id).send_cq) = own_queue(id, attr.cap.max_send_wr)?;
            }
            attr.send_cq = (*id).send_cq;
        }
        if attr.recv_cq.is_null() {
            if (*id).recv_cq.is_null() {
                let own = own_queue(id, attr.cap.max_recv_wr);
                ((*id).recv_cq_channel, (*id).recv_cq) = own.inspect_err(|_| destroy_own_queues(id))?;
            }
            attr.recv_cq = (*id).recv_cq;
        }
        if attr.qp_context.is_null() {
            attr.qp_context = id.cast();
        }
        let made = qp::create(pd, attr, sends).inspect_err(|_| destroy_own_queues(id))?;
        // The connection manager has brought it there when this returns.
        qp::begin(made)?;
        (*id).qp = made;
        (*id).pd = pd;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    minus_one(|| unsafe { create_qp(id::of(id)?, pd, attr.as_mut().ok_or(Errno::INVALID)?, Sends::Posted) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::INVALID)?;
            let sends = extended::sends_of(attr)?;
            let pd = if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 { null_mut() } else { attr.pd };
            let mut plain = qp::without_extensions(attr);
            create_qp(id::of(id)?, pd, &mut plain, sends)?;
            (attr.cap, attr.send_cq, attr.recv_cq) = (plain.cap, plain.send_cq, plain.recv_cq);
        }
        Ok(())
    })
}

/// Destroys the queue pair of an id, if it has one.
///
/// # Safety
///
/// As for [`Object::take_back`].
pub(crate) unsafe fn destroy_qp(object: &Object<CmId>) -> Result<(), Errno> {
    let id = object.pointer();
    // SAFETY: the caller's promise; the program does not touch the id during the call.
    unsafe {
        if !(*id).qp.is_null() {
            qp::destroy((*id).qp)?;
            (*id).qp = null_mut();
        }
        destroy_own_queues(id);
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: the caller keeps the contract of the ABI.
    minus_one(|| unsafe { destroy_qp(id::of(id)?) });
}

/// Makes the shared receive queue of an id.
///
/// # Safety
///
/// All pointers are as the ABI has them; `pd` may be null.
unsafe fn create_srq(
    object: &Object<CmId>,
    pd: *mut ibv_pd,
    context: *mut c_void,
    attr: &mut ibv_srq_attr,
) -> Result<(), Errno> {
    let id = object.pointer();
    // SAFETY: the caller's promise; the program does not touch the id during the call.
    unsafe {
        if !(*id).srq.is_null() || (*id).verbs.is_null() {
            return Err(Errno::INVALID);
        }
        let pd = if pd.is_null() { (*id).pd } else { pd };
        (*id).srq = srq::create(pd, context, attr)?;
        (*id).pd = pd;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::INVALID)?;
            create_srq(id::of(id)?, pd, attr.srq_context, &mut attr.attr)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::INVALID)?;
            let pd = srq::domain_of_basic(attr)?;
            create_srq(id::of(id)?, pd, attr.srq_context, &mut attr.attr)
        }
    })
}

/// Destroys the shared receive queue of an id, if it has one.
///
/// # Safety
///
/// As for [`Object::take_back`].
pub(crate) unsafe fn destroy_srq(object: &Object<CmId>) {
    let id = object.pointer();
    // SAFETY: the caller's promise; the program does not touch the id during the call.
    unsafe {
        if !(*id).srq.is_null() {
            ibv_destroy_srq(std::mem::replace(&mut (*id).srq, null_mut()));
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { destroy_srq(id::of(id)?) };
        Ok(())
    });
}
