//! Memory windows: of type 1, which `ibv_bind_mw` binds, and of type 2, which a work request binds under the
//! key that the program chooses.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use warpline::{Access, Binding, MemoryWindow, Operation, Payload, STag, SendRequest, WindowAddressing};

use super::memory::{Mr, peer_rights};
use super::pd::Pd;
use super::qp::{self, Qp};
use crate::abi::{
    IBV_ACCESS_ZERO_BASED, IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_SEND_FENCE, IBV_SEND_SIGNALED, ibv_mw,
    ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_pd, ibv_qp,
};
use crate::errno::{Errno, number, pointer};
use crate::object::{Kind, Object, Use};

/// How long responses to the peer may still read by a window that is to go.
const PATIENCE: Duration = Duration::from_millis(100);

/// A memory window.
pub(crate) struct Mw {
    /// `None` while it is being deallocated.
    window: Mutex<Option<MemoryWindow>>,
    is_of_type_2: bool,
    pd: Use<Pd>,
}

impl Kind for Mw {
    type Public = ibv_mw;
    const MARK: u64 = 0x7761_7270_6d77_3030;
}

/// The part of an rkey that a program chooses when it binds a window of type 2: what `ibv_inc_rkey` counts.
const CHOSEN: u32 = 0xff;

/// `ibv_alloc_mw`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    pointer(|| {
        if ![IBV_MW_TYPE_1, IBV_MW_TYPE_2].contains(&kind) {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller keeps the contract of the ABI.
        let pd = unsafe { Object::<Pd>::of(pd)? };
        let window = pd.inner().domain.allocate_window()?;
        let stag = window.stag().0;
        let (context, pd_pointer) = (pd.inner().context.context_pointer(), pd.pointer());
        let public = ibv_mw { context, pd: pd_pointer, rkey: stag, handle: stag, type_: kind };
        let is_of_type_2 = kind == IBV_MW_TYPE_2;
        let inner = Mw { window: Mutex::new(Some(window)), is_of_type_2, pd: pd.used() };
        Ok(Object::hand_out(public, inner))
    })
}

/// `ibv_dealloc_mw`.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { Object::<Mw>::of(mw)? };
        let mut place = object.inner().window.lock().unwrap_or_else(PoisonError::into_inner);
        let window = place.take().ok_or(Errno::INVALID)?;
        if let Err(error) = window.deallocate(PATIENCE) {
            *place = Some(error.into_window());
            return Err(Errno::BUSY);
        }
        drop(place);
        // SAFETY: as above, once.
        unsafe { Object::<Mw>::take_back(mw) }.map(drop)
    })
}

/// Octets of a registration that a window is to open.
struct Opened<'a> {
    mr: &'a Mr,
    offset: usize,
    len: usize,
    rights: Access,
    addressing: WindowAddressing,
}

impl<'a> Opened<'a> {
    /// Returns what `info` names, of a registration of the domain of `qp`.
    ///
    /// # Safety
    ///
    /// `info` is as the ABI has it.
    unsafe fn of(qp: &Qp, info: &'a ibv_mw_bind_info) -> Result<Self, Errno> {
        // SAFETY: the caller's promise.
        let mr = unsafe { Object::<Mr>::of(info.mr)? }.inner();
        if !mr.is_of(&qp.pd) {
            return Err(Errno::INVALID);
        }
        let zero_based = info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0;
        let addressing =
            if zero_based { WindowAddressing::ZeroBased } else { WindowAddressing::AsRegistered };
        let rights = peer_rights(info.mw_access_flags & !IBV_ACCESS_ZERO_BASED)?;
        let len = usize::try_from(info.length).map_err(|_| Errno::INVALID)?;
        let offset = mr.with(|region| usize::try_from(info.addr.wrapping_sub(region.to(0))))?;
        Ok(Self { mr, offset: offset.map_err(|_| Errno::INVALID)?, len, rights, addressing })
    }

    /// Returns the binding of `window` to it, under `key` or one that cannot be predicted. The window has
    /// that name from now on.
    fn binding(&self, window: &mut MemoryWindow, key: Option<u16>) -> Result<Binding, Errno> {
        let &Self { mr, offset, len, rights, addressing } = self;
        mr.with(|region| match key {
            Some(key) => window.binding_with_key(key, region, offset, len, rights, addressing),
            None => window.binding(region, offset, len, rights, addressing),
        })
    }
}

/// Returns the operation that binds a window of type 2 under `rkey`: the core refuses it if the window is
/// bound, or has this key already.
///
/// # Errors
///
/// [`Errno::INVALID`] for a window of type 1 or of another domain than `qp`, for an `rkey` of another window,
/// and for no octets at all.
///
/// # Safety
///
/// `mw` and `info` are as the ABI has them.
pub(crate) unsafe fn operation(
    qp: &Qp,
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<Operation, Errno> {
    // SAFETY: the caller's promise.
    let mw = unsafe { Object::<Mw>::of(mw)? }.inner();
    if !mw.is_of_type_2 || mw.pd.pointer() != qp.pd.pointer() || info.length == 0 {
        return Err(Errno::INVALID);
    }
    let mut place = mw.window.lock().unwrap_or_else(PoisonError::into_inner);
    let window = place.as_mut().ok_or(Errno::INVALID)?;
    if (rkey ^ window.stag().0) & !CHOSEN != 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: as above.
    let opened = unsafe { Opened::of(qp, info)? };
    opened.binding(window, Some(STag(rkey).key())).map(Operation::Bind)
}

/// `ibv_bind_mw`, for a window of type 1: it gets another key, which `mw->rkey` has when this returns. Bound
/// to no octets it is closed, and keeps its key.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (qp, object, bind) =
            unsafe { (qp::of(qp)?.inner(), Object::<Mw>::of(mw)?, bind.as_ref().ok_or(Errno::INVALID)?) };
        let info = &bind.bind_info;
        let Mw { window, is_of_type_2, pd } = object.inner();
        if *is_of_type_2 || pd.pointer() != qp.pd.pointer() {
            return Err(Errno::INVALID);
        }
        let mut place = window.lock().unwrap_or_else(PoisonError::into_inner);
        let window = place.as_mut().ok_or(Errno::INVALID)?;
        let signaled = qp.signals_all || bind.send_flags & IBV_SEND_SIGNALED != 0;
        let fenced = bind.send_flags & IBV_SEND_FENCE != 0;
        let post = |operation| {
            let request = SendRequest { id: bind.wr_id, operation, local: Payload::EMPTY, signaled, fenced };
            qp.state.queue_pair.lock().post(request)
        };
        let before = window.stag();
        // What it opened before is closed. Only the core knows whether something else has closed it: either
        // end, or the end of its queue pair.
        if info.length == 0 {
            return Ok(post(Operation::Unbind { window: before })?);
        }
        // SAFETY: as above.
        let opened = unsafe { Opened::of(qp, info)? };
        if let Err(error) = post(Operation::Rebind(opened.binding(window, None)?)) {
            // It keeps its name.
            let _ = opened.binding(window, Some(before.key()))?;
            return Err(error.into());
        }
        // SAFETY: as above; the field is for programs, and nothing here reads it.
        unsafe { (*mw).rkey = window.stag().0 };
        Ok(())
    })
}
