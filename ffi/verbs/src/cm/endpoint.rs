//! Endpoints: ids that are made from what `rdma_getaddrinfo` returns, with all that belongs to them.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::PoisonError;

use super::{connect, event, id, queues};
use crate::abi::{
    RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id,
};
use crate::errno::{Errno, minus_one};
use crate::verbs::qp::Sends;

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_ep(
    target: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let info = info.as_ref().ok_or(Errno::INVALID)?;
            let id = id::create(null_mut(), null_mut())?;
            match prepare(id, info, pd, attr.as_mut()) {
                Ok(()) => target.write(id),
                Err(errno) => {
                    let _ = queues::destroy_qp(id::of(id)?);
                    id::destroy(id)?;
                    return Err(errno);
                }
            }
        }
        Ok(())
    })
}

/// Binds or resolves an endpoint, and makes its queue pair, or remembers how those of its peers are made.
unsafe fn prepare(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> Result<(), Errno> {
    // SAFETY: the caller keeps the contract of the ABI.
    let object = unsafe { id::of(id)? };
    let kind = |attr: &mut ibv_qp_init_attr| {
        if info.ai_qp_type != 0 {
            attr.qp_type = info.ai_qp_type as u32;
        }
    };
    // SAFETY: as above.
    unsafe {
        if info.ai_flags as u32 & RAI_PASSIVE != 0 {
            connect::bind(object, info.ai_src_addr)?;
            if !pd.is_null() {
                (*id).pd = pd;
            }
            if let Some(attr) = attr {
                let mut kept = *attr;
                kind(&mut kept);
                let mut endpoint = object.inner().endpoint.lock().unwrap_or_else(PoisonError::into_inner);
                *endpoint = Some(kept);
            }
            return Ok(());
        }
        connect::resolve_addr(object, info.ai_src_addr, info.ai_dst_addr)?;
        connect::resolve_route(object)?;
        if let Some(attr) = attr {
            kind(attr);
            queues::create_qp(object, pd, attr, Sends::Posted)?;
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            queues::destroy_qp(id::of(id)?)?;
            queues::destroy_srq(id::of(id)?);
            id::destroy(id)
        }
    });
}

/// Waits for a peer of a listener whose calls wait.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_request(listener: *mut rdma_cm_id, target: *mut *mut rdma_cm_id) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let object = id::of(listener)?;
            if !object.waits() {
                return Err(Errno::INVALID);
            }
            let queue = object.inner().state.queue()?;
            let event = event::wait(&queue)?;
            event::outcome(event)?;
            if (*event).event != RDMA_CM_EVENT_CONNECT_REQUEST {
                event::acknowledge(event)?;
                return Err(Errno::INVALID);
            }
            let id = (*event).id;
            let peer = id::of(id)?;
            // Its calls wait too.
            peer.migrate(null_mut())?;
            let kept = *object.inner().endpoint.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(mut attr) = kept {
                queues::create_qp(peer, (*listener).pd, &mut attr, Sends::Posted)?;
            }
            (*id).event = event;
            target.write(id);
        }
        Ok(())
    })
}
