//! Endpoints: ids that are made from what `rdma_getaddrinfo` returns, with all that belongs to them.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::PoisonError;

use super::id::{self, CmId};
use super::{connect, event, queues};
use crate::abi::{
    RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_event,
    rdma_cm_id,
};
use crate::errno::{Errno, minus_one};
use crate::object::Object;
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

/// Waits for a peer of a listener whose calls wait. A peer for which this end can make no queue pair is
/// rejected.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_request(listener: *mut rdma_cm_id, target: *mut *mut rdma_cm_id) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let object = id::of(listener)?;
            if !object.waits() {
                return Err(Errno::INVALID);
            }
            let event = next_request(object)?;
            let peer = (*event).id;
            if let Err(errno) = serve(object, peer) {
                // The program has no pointer to the peer's id and none to the event, which names it.
                let _ = id::destroy(peer);
                event::acknowledge(event)?;
                return Err(errno);
            }
            (*peer).event = event;
            target.write(peer);
        }
        Ok(())
    })
}

/// Waits for the event that a peer asks for a connection. The listener keeps an event of another kind, as in
/// librdmacm: the program may look at it until the next call, or until it destroys the listener.
///
/// # Safety
///
/// The listener is as the ABI has it.
unsafe fn next_request(listener: &Object<CmId>) -> Result<*mut rdma_cm_event, Errno> {
    listener.release_event();
    let queue = listener.inner().state.queue()?;
    let event = event::wait(&queue)?;
    // SAFETY: the event is new. The structure of the listener is the program's, which does not touch it
    // during the call.
    unsafe {
        let outcome = event::outcome(event);
        if outcome.is_ok() && (*event).event == RDMA_CM_EVENT_CONNECT_REQUEST {
            return Ok(event);
        }
        (*listener.pointer()).event = event;
        Err(outcome.err().unwrap_or(Errno::INVALID))
    }
}

/// Has the calls of a peer's id wait, and makes its queue pair if the listener has attributes for that.
///
/// # Safety
///
/// The listener is as the ABI has it, and so is the id, which the program does not have yet.
unsafe fn serve(listener: &Object<CmId>, id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let peer = id::of(id)?;
        peer.migrate(null_mut())?;
        let kept = *listener.inner().endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        match kept {
            Some(mut attr) => queues::create_qp(peer, (*listener.pointer()).pd, &mut attr, Sends::Posted),
            None => Ok(()),
        }
    }
}
