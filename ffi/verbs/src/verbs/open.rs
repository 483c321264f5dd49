//! How devices are opened, with the functions behind the pointers of their contexts.

use std::ffi::c_int;
use std::sync::Arc;

use super::context::{self, Context, Events};
use super::{completion, cq, extended, polling, query, srq, window, work};
use crate::abi::{ibv_context, ibv_device, verbs_context};
use crate::adapter::{adapter, of_process, started};
use crate::errno::{Errno, number, pointer};
use crate::object::{Object, zeroed};

/// Opens the device. It starts when something is made on it.
pub(crate) fn open() -> Result<*mut ibv_context, Errno> {
    let adapter = adapter().ok_or(Errno::NO_DEVICE)?;
    let events = Arc::new(Events::new()?);
    // SAFETY: a structure of C's, of optional functions, pointers and numbers.
    let mut verbs: verbs_context = unsafe { zeroed() };
    verbs.sz = size_of::<verbs_context>();
    verbs.query_port = Some(query::query_port);
    verbs.query_device_ex = Some(query::query_device_ex);
    verbs.create_qp_ex = Some(extended::create_qp_ex);
    verbs.create_cq_ex = Some(polling::create_cq_ex);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    let public = &mut verbs.context;
    public.device = adapter.public();
    public.cmd_fd = -1;
    public.async_fd = events.fd();
    public.num_comp_vectors = 1;
    // What the headers look for before they use the larger structure.
    public.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    public.ops.poll_cq = Some(completion::poll_cq);
    public.ops.req_notify_cq = Some(cq::req_notify_cq);
    public.ops.post_send = Some(work::post_send);
    public.ops.post_recv = Some(work::post_recv);
    public.ops.post_srq_recv = Some(work::post_srq_recv);
    public.ops.alloc_mw = Some(window::alloc_mw);
    public.ops.dealloc_mw = Some(window::dealloc_mw);
    public.ops.bind_mw = Some(window::bind_mw);
    Ok(context::hand_out(verbs, Context::new(events)))
}

/// Returns the context of connections and of what their ids make, which is never closed. A child has another
/// than its parent, whose descriptor both could read.
pub(crate) fn shared() -> Result<&'static Object<Context>, Errno> {
    let place = &of_process().shared_context;
    let made = if let Some(made) = place.get() {
        *made
    } else {
        let new = open()?.expose_provenance();
        *place.get_or_init(|| new)
    };
    // SAFETY: it stays.
    unsafe { context::context(std::ptr::with_exposed_provenance_mut(made)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer(|| {
        if adapter().is_none_or(|adapter| adapter.public() != device) {
            return Err(Errno::NO_DEVICE);
        }
        open()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(public: *mut ibv_context) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { context::context(public)? };
        if of_process().shared_context.get() == Some(&public.addr()) {
            // Programs close what `rdma_get_devices` gave them at their own risk.
            return Ok(());
        }
        let events = object.inner().events.clone();
        // SAFETY: as above; it is closed once.
        drop(unsafe { Object::<Context>::take_back(object.pointer())? });
        if let Some(running) = started() {
            running
                .registry
                .lock()
                .contexts
                .retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(&events)));
        }
        Ok(())
    })
}
