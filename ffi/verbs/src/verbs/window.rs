//! Memory windows of type 1, which `ibv_bind_mw` binds.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use warpline::{MemoryWindow, Operation, Payload, SendRequest, WindowAddressing};

use super::memory::{Mr, peer_rights};
use super::pd::Pd;
use super::qp;
use crate::abi::{
    IBV_ACCESS_ZERO_BASED, IBV_MW_TYPE_1, IBV_SEND_FENCE, IBV_SEND_SIGNALED, ibv_mw, ibv_mw_bind,
    ibv_mw_type, ibv_pd, ibv_qp,
};
use crate::errno::{Errno, number, pointer, unsupported};
use crate::object::{Kind, Object, Use};

/// How long responses to the peer may still read by a window that is to go.
const PATIENCE: Duration = Duration::from_millis(100);

/// A memory window.
pub(crate) struct Mw {
    /// With whether it was bound; `None` while it is being deallocated.
    window: Mutex<Option<(MemoryWindow, bool)>>,
    _pd: Use<Pd>,
}

impl Kind for Mw {
    type Public = ibv_mw;
    const MARK: u64 = 0x7761_7270_6d77_3030;
}

/// Returns why windows of type 2 are not bound.
pub(crate) fn type_2() -> Errno {
    unsupported!("memory windows are of type 1: a program does not choose their keys")
}

/// `ibv_alloc_mw`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    pointer(|| {
        if kind != IBV_MW_TYPE_1 {
            return Err(type_2());
        }
        // SAFETY: the caller keeps the contract of the ABI.
        let pd = unsafe { Object::<Pd>::of(pd)? };
        let window = pd.inner().domain.allocate_window()?;
        let stag = window.stag().0;
        let (context, pd_pointer) = (pd.inner().context.context_pointer(), pd.pointer());
        let public = ibv_mw { context, pd: pd_pointer, rkey: stag, handle: stag, type_: kind };
        Ok(Object::hand_out(public, Mw { window: Mutex::new(Some((window, false))), _pd: pd.used() }))
    })
}

/// `ibv_dealloc_mw`.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { Object::<Mw>::of(mw)? };
        let mut place = object.inner().window.lock().unwrap_or_else(PoisonError::into_inner);
        let (window, bound) = place.take().ok_or(Errno::INVALID)?;
        if let Err(error) = window.deallocate(PATIENCE) {
            *place = Some((error.into_window(), bound));
            return Err(Errno::BUSY);
        }
        drop(place);
        // SAFETY: as above, once.
        unsafe { Object::<Mw>::take_back(mw) }.map(drop)
    })
}

/// `ibv_bind_mw`: the window gets another key, which `mw->rkey` has when this returns.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (qp, object, bind) =
            unsafe { (qp::of(qp)?.inner(), Object::<Mw>::of(mw)?, bind.as_ref().ok_or(Errno::INVALID)?) };
        let info = &bind.bind_info;
        let mut place = object.inner().window.lock().unwrap_or_else(PoisonError::into_inner);
        let (window, bound) = place.as_mut().ok_or(Errno::INVALID)?;
        let queue_pair = qp.state.queue_pair.lock();
        let post = |operation, signaled| {
            let fenced = bind.send_flags & IBV_SEND_FENCE != 0;
            let local = Payload::EMPTY;
            queue_pair.post(SendRequest { id: bind.wr_id, operation, local, signaled, fenced })
        };
        let signaled = qp.signals_all || bind.send_flags & IBV_SEND_SIGNALED != 0;
        let unbind = Operation::LocalInvalidate { stag: window.stag() };
        if info.length == 0 {
            post(unbind, signaled)?;
            *bound = false;
            return Ok(());
        }
        // SAFETY: as above.
        let mr = unsafe { Object::<Mr>::of(info.mr)? };
        let zero_based = info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0;
        let addressing =
            if zero_based { WindowAddressing::ZeroBased } else { WindowAddressing::AsRegistered };
        let rights = peer_rights(info.mw_access_flags & !IBV_ACCESS_ZERO_BASED)?;
        let len = usize::try_from(info.length).map_err(|_| Errno::INVALID)?;
        if *bound {
            // Verbs bind one that is bound: what it opened before is closed.
            post(unbind, false)?;
            *bound = false;
        }
        let binding = mr.inner().with(|region| {
            let offset = usize::try_from(info.addr.wrapping_sub(region.to(0))).ok()?;
            Some(window.binding(region, offset, len, rights, addressing))
        })?;
        post(Operation::Bind(binding.ok_or(Errno::INVALID)?), signaled)?;
        *bound = true;
        // SAFETY: as above; the field is for programs, and nothing here reads it.
        unsafe { (*mw).rkey = window.stag().0 };
        Ok(())
    })
}
