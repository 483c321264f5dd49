//! Shared receive queues.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use warpline::{SharedReceiveQueue, limits};

use super::context::Events;
use super::pd::Pd;
use crate::abi::{
    IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQT_BASIC, ibv_context,
    ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::acks::Acks;
use crate::adapter::{running, started};
use crate::errno::{Errno, number, pointer, unsupported};
use crate::object::{Kind, Object, Use, zeroed};
use crate::registry::Reports;

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) queue: SharedReceiveQueue,
    pub(crate) events: Arc<SrqEvents>,
    pd: Use<Pd>,
}

impl Kind for Srq {
    type Public = ibv_srq;
    const MARK: u64 = 0x7761_7270_7372_7130;
}

/// What of a queue takes part in asynchronous events.
pub(crate) struct SrqEvents {
    pub(crate) acks: Arc<Acks>,
    context: Arc<Events>,
    pointer: OnceLock<usize>,
    /// The limit that was armed last.
    limit: AtomicU32,
}

impl Reports for SrqEvents {
    fn report(&self, kind: u32) {
        self.limit.store(0, Ordering::Relaxed);
        if let Some(pointer) = self.pointer.get() {
            self.context.report_of(*pointer, kind, &self.acks);
        }
    }
}

/// Borrows a shared receive queue of a program.
///
/// # Safety
///
/// As for [`Object::of`].
pub(crate) unsafe fn of<'a>(srq: *mut ibv_srq) -> Result<&'a Object<Srq>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Object::of(srq) }
}

/// Makes a shared receive queue, and writes what it has to `attr`.
///
/// # Safety
///
/// As for [`Object::of`], of both pointers.
pub(crate) unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut std::ffi::c_void,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: the caller's promise.
    let pd = unsafe { Object::<Pd>::of(pd)? };
    let depth = attr.max_wr as usize;
    let ranges = limits::SCATTER_GATHER_ELEMENTS as u32;
    if depth > limits::RECEIVES_PER_SHARED_QUEUE || attr.max_sge > ranges {
        return Err(Errno::INVALID);
    }
    let queue = pd.inner().domain.shared_receive_queue(depth.max(1));
    attr.max_wr = queue.depth() as u32;
    attr.max_sge = ranges;
    let number = queue.number();
    let context = pd.inner().context.inner().events.clone();
    let (acks, pointer, limit) = (Arc::default(), OnceLock::new(), AtomicU32::new(0));
    let events = Arc::new(SrqEvents { acks, context, pointer, limit });
    // SAFETY: a structure of C's, of pointers, numbers and POSIX locks.
    let mut public: ibv_srq = unsafe { zeroed() };
    public.context = pd.inner().context.context_pointer();
    public.srq_context = srq_context;
    public.pd = pd.pointer();
    public.handle = number.0;
    let srq = Object::hand_out(public, Srq { queue, events: events.clone(), pd: pd.used() });
    let _ = events.pointer.set(srq.expose_provenance());
    running()?.registry.lock().receive_queues.insert(number, events);
    Ok(srq)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    pointer(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::INVALID)?;
            create(pd, attr.srq_context, &mut attr.attr)
        }
    })
}

/// Returns the Protection Domain that the attributes of a queue of the basic kind name; null if they name
/// none. Without a type they are of that kind, and what only other kinds have is ignored.
///
/// # Errors
///
/// [`Errno::NOT_SUPPORTED`] for other kinds.
pub(crate) fn domain_of_basic(attr: &ibv_srq_init_attr_ex) -> Result<*mut ibv_pd, Errno> {
    let has = |field| attr.comp_mask & field != 0;
    if has(IBV_SRQ_INIT_ATTR_TYPE) && attr.srq_type != IBV_SRQT_BASIC {
        return Err(unsupported!("XRC and tag matching are InfiniBand's: iWARP has neither"));
    }
    Ok(if has(IBV_SRQ_INIT_ATTR_PD) { attr.pd } else { std::ptr::null_mut() })
}

/// `ibv_create_srq_ex`, for the basic kind.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    pointer(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let attr = attr.as_mut().ok_or(Errno::INVALID)?;
            let pd = domain_of_basic(attr)?;
            create(pd, attr.srq_context, &mut attr.attr)
        }
    })
}

/// The number of a queue, which peers have no use for on iWARP.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, target: *mut u32) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { target.write(of(srq)?.inner().queue.number().0) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (srq, attr) = unsafe { (of(srq)?, attr.as_ref().ok_or(Errno::INVALID)?) };
        if mask as u32 & IBV_SRQ_MAX_WR != 0 {
            return Err(unsupported!("a shared receive queue does not grow: make it as deep as it is to be"));
        }
        if mask as u32 & IBV_SRQ_LIMIT != 0 {
            let Srq { queue, events, .. } = srq.inner();
            if attr.srq_limit as usize > queue.depth() {
                return Err(Errno::INVALID);
            }
            events.limit.store(attr.srq_limit, Ordering::Relaxed);
            queue.arm_limit(attr.srq_limit);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let Srq { queue, events, .. } = of(srq)?.inner();
            attr.write(ibv_srq_attr {
                max_wr: queue.depth() as u32,
                max_sge: limits::SCATTER_GATHER_ELEMENTS as u32,
                srq_limit: events.limit.load(Ordering::Relaxed),
            });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { of(srq)? };
        if object.is_used() {
            return Err(Errno::BUSY);
        }
        let Srq { queue, events, pd } = object.inner();
        if let Some(running) = started() {
            running.registry.lock().receive_queues.remove(&queue.number());
        }
        pd.inner().context.inner().events.withdraw(srq.addr());
        events.acks.wait();
        // SAFETY: as above, once.
        unsafe { Object::<Srq>::take_back(srq) }.map(drop)
    })
}
