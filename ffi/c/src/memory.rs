//! Protection Domains and registered memory.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use warpline::{Access, Addressing, DeregisterError, MemoryError, MemoryRegion, ProtectionDomain, Region};

use crate::device::Device;
use crate::error::{Failure, guard, guard_or};
use crate::pointer::{borrow, hand_out, patience, take_back};
use crate::queue_pair::Qp;

/// Queue pairs and the memory they may reach (RFC 5041 §8.2).
pub struct Pd {
    pub(crate) domain: ProtectionDomain,
    device: warpline::Device,
}

/// Registered memory: a peer reaches it by its STag, as far as its access goes.
///
/// It may be read and written through its address at any time, as memory that a device reaches by DMA: what a
/// peer is writing or this end has posted to be sent is not defined before the completion.
pub struct Mr {
    length: usize,
    address: u64,
    /// What it is called now, or will be when the work request that calls it so is done.
    stag: AtomicU32,
    copied: bool,
    state: Mutex<State>,
}

/// How far memory is on its way back to its owner.
enum State {
    /// With `Gone` for memory of the caller's own.
    Registered(MemoryRegion, Option<Gone>),
    /// No STag names it any more; a core may still hold it.
    Leaving(Gone),
    Back,
}

/// Closed by the last that reaches memory of the caller's own: that holds the other half.
type Gone = Receiver<()>;

/// Messages, and the data of RDMA Reads and atomics, may be placed there.
pub const WARPLINE_ACCESS_LOCAL_WRITE: u32 = 1;
/// Peers may read it.
pub const WARPLINE_ACCESS_REMOTE_READ: u32 = 2;
/// Peers may write it.
pub const WARPLINE_ACCESS_REMOTE_WRITE: u32 = 4;
/// Peers may do atomics on it.
pub const WARPLINE_ACCESS_REMOTE_ATOMIC: u32 = 8;
/// Windows may be bound to it: see `warpline_mw_binding`.
pub const WARPLINE_ACCESS_WINDOW_BIND: u32 = 16;
/// Tagged Offsets count from zero instead of being addresses, so that the peer does not learn where the
/// memory lies. `addr` of a `warpline_sge` then counts from zero too.
pub const WARPLINE_ACCESS_ZERO_BASED: u32 = 1 << 16;

/// Returns the rights, and whether Tagged Offsets count from zero.
pub(crate) fn rights(access: u32) -> Result<(Access, bool), Failure> {
    let pairs = [
        (WARPLINE_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (WARPLINE_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (WARPLINE_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (WARPLINE_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (WARPLINE_ACCESS_WINDOW_BIND, Access::WINDOW_BIND),
    ];
    let mut left = access & !WARPLINE_ACCESS_ZERO_BASED;
    let mut rights = Access::empty();
    for (flag, right) in pairs {
        if left & flag != 0 {
            rights |= right;
            left &= !flag;
        }
    }
    if left != 0 {
        return Err(Failure::invalid("a right is none of WARPLINE_ACCESS_*"));
    }
    Ok((rights, access & WARPLINE_ACCESS_ZERO_BASED != 0))
}

/// Returns the rights to memory, and the origin of its Tagged Offsets: `to` if that is given.
pub(crate) fn rights_to_memory(access: u32, to: Option<u64>) -> Result<(Access, Addressing), Failure> {
    let (rights, zero_based) = rights(access)?;
    let addressing = match (to, zero_based) {
        (None, false) => Addressing::Address,
        (None, true) => Addressing::ZeroBased,
        (Some(to), false) => Addressing::At(to),
        (Some(_), true) => return Err(Failure::invalid("the first Tagged Offset is zero, or another")),
    };
    Ok((rights, addressing))
}

/// A new Protection Domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_pd_create(device: *mut Device, pd: *mut *mut Pd) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let device = borrow(device)?;
            hand_out(pd, || Ok(Pd { domain: device.0.protection_domain(), device: device.0.clone() }))?;
        }
        Ok(0)
    })
}

/// Returns a Protection Domain to the library. What was made from it stays. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_pd_destroy(pd: *mut Pd) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(pd) }));
}

fn registered(
    pd: &Pd,
    qp: Option<&Qp>,
    region: Region,
    access: u32,
    to: Option<u64>,
    gone: Option<Gone>,
) -> Result<Mr, Failure> {
    let (access, addressing) = rights_to_memory(access, to)?;
    let address = region.address();
    let memory = match qp {
        Some(qp) => pd.domain.register_for(qp, region, access, addressing)?,
        None => pd.domain.register(region, access, addressing)?,
    };
    Ok(Mr {
        length: memory.len(),
        address,
        stag: AtomicU32::new(memory.stag().0),
        copied: memory.is_copied(),
        state: Mutex::new(State::Registered(memory, gone)),
    })
}

/// Registers `length` bytes of the caller's own memory from `start`. What is sent from it is copied into
/// frames, see `warpline_mr_is_copied`; arriving data is placed there at once.
///
/// `qp` is null, or the queue pair that alone may reach the memory: its peer may then invalidate it.
///
/// The memory must be initialised, and stay in place, writable and mapped, until `warpline_mr_deregister` has
/// returned 0; `warpline_mr_destroy` is not enough for that.
///
/// - `-EINVAL`: no bytes, a wrong right, or `qp` is of another Protection Domain
/// - `-ENOSPC`: the device has as many regions as it can, or the Protection Domain as many as it may
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_register(
    pd: *mut Pd,
    qp: *mut Qp,
    start: *mut c_void,
    length: usize,
    access: u32,
    mr: *mut *mut Mr,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe { register(pd, qp, start, length, access, None, mr) })
}

/// As `warpline_mr_register`, but the first byte has the Tagged Offset `to`, whatever its address: at peers,
/// and in `addr` of a `warpline_sge` (libibverbs: the `iova` of `ibv_reg_mr_iova`).
///
/// - `-EINVAL`: also if the Tagged Offsets would wrap at 2^64, and for `WARPLINE_ACCESS_ZERO_BASED`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_register_at(
    pd: *mut Pd,
    qp: *mut Qp,
    start: *mut c_void,
    length: usize,
    to: u64,
    access: u32,
    mr: *mut *mut Mr,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe { register(pd, qp, start, length, access, Some(to), mr) })
}

unsafe fn register(
    pd: *mut Pd,
    qp: *mut Qp,
    start: *mut c_void,
    length: usize,
    access: u32,
    to: Option<u64>,
    mr: *mut *mut Mr,
) -> Result<c_int, Failure> {
    // SAFETY: the caller keeps C's contract.
    unsafe {
        let pd = borrow(pd)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(Failure::NULL)?;
        hand_out(mr, || {
            let (held, gone): (Sender<()>, Gone) = mpsc::channel();
            // C promises that the memory stays as it has to until it is deregistered, which waits for
            // `held`.
            let region = Region::from_raw(start, length, held);
            let region = region.ok_or(Failure::invalid("no bytes, or more than memory has"))?;
            registered(pd, qp.as_ref(), region, access, to, Some(gone))
        })?;
    }
    Ok(0)
}

/// Allocates and registers `length` zero bytes: in hugepages on a device of `warpline_device_open`. They go
/// when nothing reaches them any more.
///
/// - `-ENOMEM`: there is no such memory
/// - and as `warpline_mr_register`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_allocate(
    pd: *mut Pd,
    qp: *mut Qp,
    length: usize,
    access: u32,
    mr: *mut *mut Mr,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let pd = borrow(pd)?;
            hand_out(mr, || {
                let source = &pd.device.config().memory;
                let region = source.allocate(length).ok_or(MemoryError::OutOfMemory { len: length })?;
                registered(pd, qp.as_ref(), region, access, None, None)
            })?;
        }
        Ok(0)
    })
}

/// Where the memory starts; null for a null `mr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_address(mr: *const Mr) -> *mut c_void {
    // SAFETY: the caller keeps C's contract.
    unsafe { mr.as_ref() }
        .map_or(std::ptr::null_mut(), |mr| std::ptr::with_exposed_provenance_mut(mr.address as usize))
}

/// Its length in bytes; 0 for a null `mr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_length(mr: *const Mr) -> usize {
    // SAFETY: the caller keeps C's contract.
    unsafe { mr.as_ref() }.map_or(0, |mr| mr.length)
}

/// Its STag: its name in `warpline_sge`, and at peers. 0, which names nothing, for a null `mr`.
/// `warpline_mr_fast_registration` gives it another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_stag(mr: *const Mr) -> u32 {
    // SAFETY: the caller keeps C's contract.
    unsafe { mr.as_ref() }.map_or(0, |mr| mr.stag.load(Ordering::Acquire))
}

/// Whether what is sent from it is copied into frames, because it may change, or the device cannot refer to
/// it or to any memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_is_copied(mr: *const Mr) -> bool {
    // SAFETY: the caller keeps C's contract.
    unsafe { mr.as_ref() }.is_some_and(|mr| mr.copied)
}

/// Takes the memory back: with 0, its STag names nothing, no core reaches the memory, and the handle is gone.
/// With anything else the handle is still there, for another try.
///
/// - `-EBUSY`: work that is not completed, a response to the peer, or a window that is bound still needed the
///   memory after `timeout_ms` milliseconds, or the core had not answered; `warpline_last_error` says which
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_deregister(mr: *mut Mr, timeout_ms: i32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(mr.cast_const())?.leave(timeout_ms, MemoryRegion::deregister)? };
        // SAFETY: as above; nothing of it is borrowed any more.
        drop(unsafe { take_back(mr) });
        Ok(0)
    })
}

/// As `warpline_mr_deregister`; but after `timeout_ms` milliseconds the connections of queue pairs are reset
/// whose Sends, Writes, Reads or responses still use the memory, and no others. With 0, nothing reads or
/// writes the memory any more, no retransmission either.
///
/// - `-EBUSY`: a window that is bound still needed the memory, or the core had not answered;
///   `warpline_last_error` says which
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_revoke(mr: *mut Mr, timeout_ms: i32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(mr.cast_const())?.leave(timeout_ms, MemoryRegion::revoke)? };
        // SAFETY: as above; nothing of it is borrowed any more.
        drop(unsafe { take_back(mr) });
        Ok(0)
    })
}

/// Returns memory without waiting: it is deregistered now, or in the background as soon as nothing uses it.
/// Fit for memory of `warpline_mr_allocate`; the caller's own must then never go. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_mr_destroy(mr: *mut Mr) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(mr) }));
}

impl Mr {
    /// Calls `call` with the registration, whose STag it may change.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut MemoryRegion) -> T) -> Result<T, Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Registered(memory, _) = &mut *state else {
            return Err(Failure::invalid("the memory is on its way back to its owner"));
        };
        let answer = call(memory);
        self.stag.store(memory.stag().0, Ordering::Release);
        Ok(answer)
    }

    fn leave(
        &self,
        timeout_ms: i32,
        how: impl FnOnce(MemoryRegion, Duration) -> Result<(), DeregisterError>,
    ) -> Result<(), Failure> {
        let start = Instant::now();
        let timeout = patience(timeout_ms);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Registered(memory, gone) = std::mem::replace(&mut *state, State::Back) {
            match how(memory, timeout) {
                Ok(()) => *state = gone.map_or(State::Back, State::Leaving),
                Err(error) => {
                    let failure = Failure::from(&error);
                    *state = State::Registered(error.into_region(), gone);
                    return Err(failure);
                }
            }
        }
        if let State::Leaving(gone) = &*state {
            if gone.recv_timeout(timeout.saturating_sub(start.elapsed())) == Err(RecvTimeoutError::Timeout) {
                return Err(Failure::new(libc::EBUSY, "a core still holds the memory: try again"));
            }
            *state = State::Back;
        }
        Ok(())
    }
}
