//! Asynchronous events, as programs take and acknowledge them.

use std::ffi::c_int;

use super::{context, cq, qp, srq};
use crate::abi::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL,
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_event,
    ibv_context,
};
use crate::adapter::hand_over;
use crate::errno::{Errno, descriptor, guarded};
use crate::object::zeroed;
use crate::tokens;

/// Waits for an asynchronous event; -1 if there is none and the descriptor does not wait.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_async_event(
    public: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    loop {
        // SAFETY: the caller keeps the contract of the ABI: the context, with its descriptor, stays.
        unsafe {
            let fd = descriptor(|| Ok(context::context(public)?.inner().events.fd()));
            hand_over();
            if fd < 0 || !tokens::wait(fd) {
                return -1;
            }
            if take_event(public, event) {
                return 0;
            }
        }
    }
}

/// Writes the oldest event to `target`; false if it was withdrawn.
unsafe fn take_event(public: *mut ibv_context, target: *mut ibv_async_event) -> bool {
    guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let context = unsafe { context::context(public)? };
        let Some(pending) = context.inner().events.pop() else { return Ok(false) };
        // SAFETY: a structure of pointers and numbers, which the caller has room for.
        unsafe {
            let mut event: ibv_async_event = zeroed();
            event.event_type = pending.kind;
            if pending.acks.is_some() {
                event.element.qp = std::ptr::with_exposed_provenance_mut(pending.element);
            } else {
                event.element.port_num = pending.element as c_int;
            }
            target.write(event);
        }
        Ok(true)
    })
    .unwrap_or(true)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    let _ = guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI: it is an event that it has got, and the object
        // is there until the event is acknowledged.
        unsafe {
            if event.is_null() {
                return Err(Errno::INVALID);
            }
            let element = &(*event).element;
            match (*event).event_type {
                IBV_EVENT_CQ_ERR => cq::of(element.cq)?.inner().events.acks.acknowledged(1),
                IBV_EVENT_QP_FATAL
                | IBV_EVENT_QP_REQ_ERR
                | IBV_EVENT_QP_ACCESS_ERR
                | IBV_EVENT_COMM_EST
                | IBV_EVENT_QP_LAST_WQE_REACHED => qp::of(element.qp)?.inner().state.acks.acknowledged(1),
                IBV_EVENT_SRQ_LIMIT_REACHED => srq::of(element.srq)?.inner().events.acks.acknowledged(1),
                _ => {}
            }
        }
        Ok(())
    });
}
