//! Protection Domains.

use std::ffi::c_int;
use std::sync::OnceLock;

use warpline::ProtectionDomain;

use super::context::{self, Context};
use crate::abi::{ibv_context, ibv_pd};
use crate::adapter::running;
use crate::errno::{Errno, number, pointer};
use crate::object::{Kind, Object, Use};

/// A Protection Domain.
pub(crate) struct Pd {
    pub(crate) domain: ProtectionDomain,
    pub(crate) context: Use<Context>,
}

impl Kind for Pd {
    type Public = ibv_pd;
    const MARK: u64 = 0x7761_7270_7064_3030;
}

/// Makes a Protection Domain, for which the device starts.
fn alloc(context: &Object<Context>) -> Result<*mut ibv_pd, Errno> {
    let domain = running()?.device.protection_domain();
    context.listed();
    let public = ibv_pd { context: context.context_pointer(), handle: 0 };
    Ok(Object::hand_out(public, Pd { domain, context: context.used() }))
}

/// A domain that is never destroyed.
struct Shared(*mut ibv_pd);

// SAFETY: domains are shared among threads, and this one stays.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

/// The domain of ids whose program has given none.
static SHARED: OnceLock<Shared> = OnceLock::new();

/// Returns the domain of ids whose program has given none, of the context that is theirs.
pub(crate) fn shared(context: &Object<Context>) -> Result<*mut ibv_pd, Errno> {
    if let Some(made) = SHARED.get() {
        return Ok(made.0);
    }
    let new = alloc(context)?;
    Ok(SHARED.get_or_init(|| Shared(new)).0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller keeps the contract of the ABI.
    pointer(|| alloc(unsafe { context::context(context)? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    number(|| {
        if SHARED.get().is_some_and(|shared| shared.0 == pd) {
            return Ok(());
        }
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { Object::<Pd>::take_back(pd) }.map(drop)
    })
}
