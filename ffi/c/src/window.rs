//! Memory under other names: windows, and registrations that are made anew by work requests.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use warpline::{Binding, FastRegistration, MemoryRegion, MemoryWindow, STag, Sharing, WindowAddressing};

use crate::error::{Failure, guard, guard_or};
use crate::extensible::Flag;
use crate::memory::{Mr, Pd, rights, rights_to_memory};
use crate::pointer::{borrow, hand_out, patience, take_back};

/// A memory window: bound to a part of a registration, it opens that part to the peer of one queue pair,
/// until either end invalidates it or the queue pair is gone (RFC 5042 §2.1).
pub struct Mw {
    /// `None` once it is given back.
    window: Mutex<Option<MemoryWindow>>,
}

/// A range of memory with a new STag, which takes effect when the work request with this grant is complete
/// (`WARPLINE_WR_BIND`, `WARPLINE_WR_REGISTER`); requests posted later on the same queue pair are executed
/// after it. `stag`, `to` and `length` are for the caller to read; nothing of it is to be changed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The Tagged Offset of the first byte, under the new name.
    pub to: u64,
    /// Bytes.
    pub length: u64,
    /// Where the range begins: of a window, as a Tagged Offset of the registration; else, as bytes from the
    /// begin of the memory.
    pub start: u64,
    /// The new name.
    pub stag: u32,
    /// Of a window, the STag of the registration; else 0.
    pub mr_stag: u32,
    /// `WARPLINE_ACCESS_*`.
    pub access: u32,
    /// Whether it is for one queue pair alone.
    pub one_stream: Flag,
}

impl Grant {
    pub(crate) fn binding(&self) -> Result<Binding, Failure> {
        let (access, zero_based) = rights(self.access)?;
        Ok(Binding {
            window: STag(self.stag),
            registration: STag(self.mr_stag),
            to: self.start,
            len: self.length,
            access,
            zero_based,
        })
    }

    pub(crate) fn registration(&self) -> Result<FastRegistration, Failure> {
        let (access, _) = rights(self.access)?;
        Ok(FastRegistration {
            stag: STag(self.stag),
            offset: self.start,
            len: self.length,
            base_to: self.to,
            access,
            all_streams: !self.one_stream.is_set(),
        })
    }
}

impl Mw {
    /// Calls `call` with the window, whose STag it may change.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut MemoryWindow) -> T) -> Result<T, Failure> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(call(window.as_mut().ok_or(Failure::invalid("the window is given back"))?))
    }

    fn leave(&self, timeout_ms: i32) -> Result<(), Failure> {
        let mut place = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = place.take() else { return Ok(()) };
        window.deallocate(patience(timeout_ms)).map_err(|error| {
            let failure = Failure::from(&error);
            *place = Some(error.into_window());
            failure
        })
    }
}

/// A window, bound to nothing yet.
///
/// - `-ENOSPC`: the device has as many regions and windows as it can, or the Protection Domain as many as it
///   may
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mw_allocate(pd: *mut Pd, mw: *mut *mut Mw) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let pd = borrow(pd)?;
            hand_out(mw, || Ok(Mw { window: Mutex::new(Some(pd.domain.allocate_window()?)) }))?;
        }
        Ok(0)
    })
}

/// Returns its STag, which is valid once it is bound; 0, which is no STag, for a null `mw`.
/// `warpline_mw_binding` and `warpline_mw_binding_with_key` give it another name each time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mw_stag(mw: *const Mw) -> u32 {
    guard_or(0, || {
        // SAFETY: the caller keeps C's contract.
        let mw = unsafe { mw.as_ref() };
        mw.and_then(|mw| mw.with(|window| window.stag().0).ok()).unwrap_or(0)
    })
}

/// Writes to `grant` the binding of the window to bytes `offset` to `offset + length` of `mr`: for a work
/// request with the opcode `WARPLINE_WR_BIND`, which opens them to the peer of the queue pair that it is
/// posted to. The window must not be bound when the work request is done, so invalidate it before if it is.
/// Without a work request, nothing but its name changes.
///
/// `mr` must have been registered with the right `WARPLINE_ACCESS_WINDOW_BIND`, and with
/// `WARPLINE_ACCESS_LOCAL_WRITE` if the peer is to change anything. `access` are rights of peers, and
/// `WARPLINE_ACCESS_ZERO_BASED` if need be. What the registration does not allow makes the work request fail
/// with `WARPLINE_WC_MW_BIND_ERR`, which ends the connection.
///
/// - `-EINVAL`: a wrong right, or a handle that is on its way back
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mw_binding(
    mw: *mut Mw,
    mr: *const Mr,
    offset: usize,
    length: usize,
    access: u32,
    grant: *mut Grant,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { write_binding(mw, mr, None, offset, length, access, grant)? };
        Ok(0)
    })
}

/// As `warpline_mw_binding`, with the key that the caller chooses: the low 16 bits of the STag, as
/// `ibv_inc_rkey` counts them. The work request fails with `WARPLINE_WC_MW_BIND_ERR` if the window has that
/// key already.
///
/// Keys that are counted are not hard to predict (RFC 5040 §8.1.1): a peer of the queue pair that has had one
/// STag of the window can name it under each later key. Invalidate the window when the peer is not to reach
/// the memory.
///
/// - `-EINVAL`: a wrong right, or a handle that is on its way back
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mw_binding_with_key(
    mw: *mut Mw,
    mr: *const Mr,
    key: u16,
    offset: usize,
    length: usize,
    access: u32,
    grant: *mut Grant,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { write_binding(mw, mr, Some(key), offset, length, access, grant)? };
        Ok(0)
    })
}

/// Writes to `grant` the binding of a window to a range, under `key` or one that cannot be predicted.
///
/// # Safety
///
/// C's contract.
unsafe fn write_binding(
    mw: *mut Mw,
    mr: *const Mr,
    key: Option<u16>,
    offset: usize,
    length: usize,
    access: u32,
    grant: *mut Grant,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let (mw, mr) = unsafe { (borrow(mw)?, borrow(mr)?) };
    if grant.is_null() {
        return Err(Failure::NULL);
    }
    let (allowed, zero_based) = rights(access)?;
    let addressing = if zero_based { WindowAddressing::ZeroBased } else { WindowAddressing::AsRegistered };
    let bind = |window: &mut MemoryWindow, memory: &MemoryRegion| {
        let binding = match key {
            Some(key) => window.binding_with_key(key, memory, offset, length, allowed, addressing),
            None => window.binding(memory, offset, length, allowed, addressing),
        };
        let Binding { window: stag, registration, to: start, len: length, .. } = binding;
        let to = window.to(0);
        Grant { to, length, start, stag: stag.0, mr_stag: registration.0, access, one_stream: Flag::SET }
    };
    let bound = mr.with(|memory| mw.with(|window| bind(window, memory)))??;
    // SAFETY: not null, so it may be written, by the caller's promise.
    unsafe { grant.write(bound) };
    Ok(())
}

/// Takes a window back: with 0, its name names nothing, and the handle is gone. With anything else the handle
/// is still there, for another try.
///
/// - `-EBUSY`: a response to the peer still read by it after `timeout_ms` milliseconds, or the core had not
///   answered
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mw_deallocate(mw: *mut Mw, timeout_ms: i32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(mw.cast_const())?.leave(timeout_ms)? };
        // SAFETY: as above; nothing of it is borrowed any more.
        drop(unsafe { take_back(mw) });
        Ok(0)
    })
}

/// Destroys a window without waiting: now, or in the background as soon as no Read uses it. Null
/// is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mw_destroy(mw: *mut Mw) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(mw) }));
}

/// Writes to `grant` the registration of bytes `offset` to `offset + length` of the memory anew, without
/// asking the control thread: for a work request with the opcode `WARPLINE_WR_REGISTER`. The memory must be
/// invalid when the work request is done, so invalidate it before (`WARPLINE_WR_LOCAL_INVALIDATE`), if the
/// peer has not. `warpline_mr_stag` returns the new STag from now on.
///
/// `access` is no more than at first, with or without `WARPLINE_ACCESS_ZERO_BASED`. With `one_stream`, the
/// memory is for the queue pair alone that the work request is posted to, whose peer may then invalidate it.
/// What is not allowed makes the work request fail with `WARPLINE_WC_LOC_PROT_ERR`, which ends
/// the connection. On a device of several cores, a work request that registers memory without `one_stream`,
/// or invalidates memory that queue pairs at other cores may use, completes when those cores have followed;
/// it fails if one is not polled for 5 s.
///
/// - `-EINVAL`: a wrong right, or a handle that is on its way back
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_fast_registration(
    mr: *mut Mr,
    offset: usize,
    length: usize,
    access: u32,
    one_stream: bool,
    grant: *mut Grant,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let mr = unsafe { borrow(mr)? };
        if grant.is_null() {
            return Err(Failure::NULL);
        }
        let (allowed, addressing) = rights_to_memory(access, None)?;
        let sharing = if one_stream { Sharing::OneStream } else { Sharing::AllStreams };
        let anew =
            mr.with(|memory| memory.fast_registration(offset, length, allowed, addressing, sharing))?;
        let FastRegistration { stag, offset: start, len: length, base_to: to, .. } = anew;
        // SAFETY: not null, so it may be written, by C's contract.
        unsafe {
            let one_stream = one_stream.into();
            grant.write(Grant { to, length, start, stag: stag.0, mr_stag: 0, access, one_stream });
        };
        Ok(0)
    })
}
