//! Registered memory.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use warpline::{Access, Addressing, DeregisterError, MemoryRegion, Region};

use super::pd::Pd;
use crate::abi::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_OPTIONAL_FIRST, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED, ibv_mr, ibv_pd,
};
use crate::errno::{Errno, number, pointer, unsupported};
use crate::object::{Kind, Object, Use};

/// How long memory may still be read by sends after its program wants it back; then their streams end.
const SENDS_PATIENCE: Duration = Duration::from_millis(100);

/// Registered memory of the program.
pub(crate) struct Mr {
    /// `None` while it is being deregistered.
    region: Mutex<Option<MemoryRegion>>,
    pd: Use<Pd>,
}

impl Kind for Mr {
    type Public = ibv_mr;
    const MARK: u64 = 0x7761_7270_6d72_3030;
}

/// Returns the rights that `access` asks for, and whether Tagged Offsets count from zero.
fn rights(access: u32) -> Result<(Access, bool), Errno> {
    // The optional ones are wishes about order and placement.
    let access = access & (IBV_ACCESS_OPTIONAL_FIRST - 1) & !IBV_ACCESS_HUGETLB;
    if access & IBV_ACCESS_ON_DEMAND != 0 {
        return Err(unsupported!("memory is not paged on demand: register it without IBV_ACCESS_ON_DEMAND"));
    }
    let zero_based = access & IBV_ACCESS_ZERO_BASED != 0;
    let rights = peer_rights(access & !IBV_ACCESS_ZERO_BASED)?;
    if rights.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        && !rights.contains(Access::LOCAL_WRITE)
    {
        return Err(Errno::INVALID);
    }
    Ok((rights, zero_based))
}

/// Returns the rights that the flags `access` name.
pub(crate) fn peer_rights(access: u32) -> Result<Access, Errno> {
    let pairs = [
        (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (IBV_ACCESS_MW_BIND, Access::WINDOW_BIND),
    ];
    let known = pairs.iter().fold(0, |known, (flag, _)| known | flag);
    if access & !known != 0 {
        return Err(Errno::INVALID);
    }
    let granted = pairs.iter().filter(|(flag, _)| access & flag != 0);
    Ok(granted.fold(Access::empty(), |rights, (_, right)| rights | *right))
}

/// Has the pages of memory mapped now, with the right to write if that is needed: placing into it meets no
/// page fault, and what is not mapped is refused.
fn populate(start: usize, len: usize, access: Access) -> Result<(), Errno> {
    /// The value of the headers of Linux 5.14 and later.
    const MADV_POPULATE_READ: c_int = 22;
    const MADV_POPULATE_WRITE: c_int = 23;
    const PAGE: usize = 4096;
    let advice = if access.intersects(Access::ANY_WRITE) { MADV_POPULATE_WRITE } else { MADV_POPULATE_READ };
    let first = start & !(PAGE - 1);
    let len = start.checked_add(len).ok_or(Errno::INVALID)? - first;
    let pages = std::ptr::with_exposed_provenance_mut::<c_void>(first);
    // SAFETY: the call changes no octet; it maps pages of mappings that exist.
    if unsafe { libc::madvise(pages, len, advice) } == 0 {
        return Ok(());
    }
    match Errno::last().number() {
        libc::ENOMEM | libc::EFAULT | libc::EHWPOISON => Err(Errno::FAULT),
        // An older kernel, or a mapping of a device: faults, if they come, come in the core.
        _ => Ok(()),
    }
}

/// Registers `len` octets from `start`, which a peer knows by `iova`, or by their address.
unsafe fn register(
    pd: *mut ibv_pd,
    start: *mut c_void,
    len: usize,
    iova: Option<u64>,
    access: u32,
) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: the caller keeps the contract of the ABI.
    let pd = unsafe { Object::<Pd>::of(pd)? };
    let (rights, zero_based) = rights(access)?;
    let memory = NonNull::new(start.cast::<u8>()).filter(|_| len > 0).ok_or(Errno::INVALID)?;
    populate(start.expose_provenance(), len, rights)?;
    // SAFETY: the memory is mapped, and the program keeps it so until it is deregistered, as it would for an
    // adapter; nobody holds a reference to it here.
    let region = unsafe { Region::from_raw(memory, len, ()) }.ok_or(Errno::INVALID)?;
    let addressing = match (iova, zero_based) {
        (_, true) => Addressing::ZeroBased,
        (Some(to), false) => Addressing::At(to),
        (None, false) => Addressing::Address,
    };
    let region = pd.inner().domain.register(region, rights, addressing)?;
    let stag = region.stag().0;
    let public = ibv_mr {
        context: pd.inner().context.context_pointer(),
        pd: pd.pointer(),
        addr: start,
        length: len,
        handle: stag,
        lkey: stag,
        rkey: stag,
    };
    Ok(Object::hand_out(public, Mr { region: Mutex::new(Some(region)), pd: pd.used() }))
}

impl Mr {
    /// Returns true if it is a registration of `pd`.
    pub(crate) fn is_of(&self, pd: &Use<Pd>) -> bool {
        self.pd.pointer() == pd.pointer()
    }

    /// Runs `look` on the registration, which is there until it is deregistered.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&MemoryRegion) -> T) -> Result<T, Errno> {
        let region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        region.as_ref().map(look).ok_or(Errno::INVALID)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    start: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller keeps the contract of the ABI.
    pointer(|| unsafe { register(pd, start, len, None, access as u32) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    start: *mut c_void,
    len: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller keeps the contract of the ABI.
    pointer(|| unsafe { register(pd, start, len, Some(iova), access as u32) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    start: *mut c_void,
    len: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: the caller keeps the contract of the ABI.
    pointer(|| unsafe { register(pd, start, len, Some(iova), access) })
}

/// Takes memory back: when this returns 0, nothing reads or writes it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { Object::<Mr>::of(mr)? };
        let mut place = object.inner().region.lock().unwrap_or_else(PoisonError::into_inner);
        let region = place.take().ok_or(Errno::INVALID)?;
        if let Err(error) = region.revoke(SENDS_PATIENCE) {
            let errno = match &error {
                DeregisterError::Unanswered { .. } => Errno::TIMED_OUT,
                _ => Errno::BUSY,
            };
            *place = Some(error.into_region());
            return Err(errno);
        }
        drop(place);
        // SAFETY: as above, once.
        unsafe { Object::<Mr>::take_back(mr) }.map(drop)
    })
}
