//! Protection Domains.

use std::ffi::c_int;
use std::sync::Arc;

use warpline::ProtectionDomain;

use super::context::{self, Context};
use crate::abi::{ibv_context, ibv_pd};
use crate::adapter::{running, started};
use crate::errno::{Errno, number, pointer};
use crate::object::{Kind, Object, Use};
use crate::registry::Running;

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

/// Returns the domain of ids whose program has given none, of the context that is theirs. It is never
/// destroyed.
pub(crate) fn shared(context: &Object<Context>) -> Result<*mut ibv_pd, Errno> {
    let running = running()?;
    let place = &running.shared_domain;
    let made = if let Some(made) = place.get() {
        *made
    } else {
        let new = alloc(context)?.expose_provenance();
        *place.get_or_init(|| new)
    };
    Ok(std::ptr::with_exposed_provenance_mut(made))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller keeps the contract of the ABI.
    pointer(|| alloc(unsafe { context::context(context)? }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    number(|| {
        let is_shared = |running: Arc<Running>| running.shared_domain.get() == Some(&pd.addr());
        if started().is_some_and(is_shared) {
            return Ok(());
        }
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { Object::<Pd>::take_back(pd) }.map(drop)
    })
}
