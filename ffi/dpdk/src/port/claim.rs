//! The right of one holder to a port.

use core::ffi::CStr;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};

use dpdk_sys as sys;

use super::config::PortError;
use crate::eal::{InControl, control_of};
use crate::errno::Errno;
use crate::log;

/// The exclusive right to a port in this process.
#[derive(Debug)]
pub(super) struct Claim {
    /// The port's number.
    pub(super) id: u16,
    /// The port's name.
    pub(super) name: String,
    held: AtomicBool,
}

static CLAIMED: [AtomicBool; sys::RTE_MAX_ETHPORTS as usize] =
    [const { AtomicBool::new(false) }; sys::RTE_MAX_ETHPORTS as usize];

impl Drop for Claim {
    fn drop(&mut self) {
        self.release();
    }
}

impl Claim {
    /// Claims the port `id`; `None` if it is claimed already.
    pub(super) fn new(id: u16, name: &str) -> Option<Self> {
        let in_use = CLAIMED[usize::from(id)].swap(true, Ordering::Acquire);
        (!in_use).then(|| Self { id, name: name.to_owned(), held: AtomicBool::new(true) })
    }

    /// Returns true while the port `id` is claimed.
    pub(super) fn is_held(id: u16) -> bool {
        CLAIMED[usize::from(id)].load(Ordering::Acquire)
    }

    /// Gives the right back. What closes the port does so within the same [`Self::control`]: once closed, the
    /// number can be that of another port, which another thread adds and claims.
    pub(super) fn release(&self) {
        if self.held.swap(false, Ordering::Relaxed) {
            CLAIMED[usize::from(self.id)].store(false, Ordering::Release);
        }
    }

    pub(super) fn refused(&self, step: &'static str) -> impl FnOnce(Errno) -> PortError {
        move |errno| PortError::Refused { name: self.name.clone(), step, errno, said: log::take() }
    }

    pub(super) fn info(&self) -> Result<sys::rte_eth_dev_info, PortError> {
        info(self.id).map_err(self.refused("asking for its capabilities"))
    }

    /// Starts the port, which is configured, with all its queues.
    pub(super) fn start(&self) -> Result<(), PortError> {
        // SAFETY: DPDK checks the port number, and that the port is configured.
        Errno::check(self.control(|_| unsafe { sys::rte_eth_dev_start(self.id) }))
            .map_err(self.refused("starting"))?;
        Ok(())
    }

    /// Stops the port. It can be configured again.
    pub(super) fn stop(&self) {
        // A port that does not stop refuses to be configured.
        // SAFETY: DPDK checks the port number and state; no queue of the port is in use yet.
        let _ = self.control(|_| unsafe { sys::rte_eth_dev_stop(self.id) });
    }

    /// Runs a call that sets up, starts, stops or closes the port, as the driver needs it.
    pub(super) fn control<T>(&self, call: impl FnOnce(&InControl) -> T) -> T {
        let info = self.info();
        control_of(info.as_ref().map_or(b"", driver), call)
    }

    pub(super) fn mac(&self) -> Result<[u8; 6], PortError> {
        let mut address = sys::rte_ether_addr { addr_bytes: [0; 6] };
        // SAFETY: `address` is writable; DPDK checks the port number.
        Errno::check(unsafe { sys::rte_eth_macaddr_get(self.id, &raw mut address) })
            .map_err(self.refused("asking for its hardware address"))?;
        Ok(address.addr_bytes)
    }
}

/// Returns what DPDK and its driver say of the port `id`.
pub(super) fn info(id: u16) -> Result<sys::rte_eth_dev_info, Errno> {
    // SAFETY: the structure is plain data, for which zeros are a value.
    let mut info: sys::rte_eth_dev_info = unsafe { mem::zeroed() };
    // SAFETY: `info` is writable; DPDK checks the port number.
    Errno::check(unsafe { sys::rte_eth_dev_info_get(id, &raw mut info) })?;
    Ok(info)
}

/// Returns the name of a port's driver.
pub(super) fn driver(info: &sys::rte_eth_dev_info) -> &[u8] {
    if info.driver_name.is_null() {
        return b"";
    }
    // SAFETY: DPDK put the name of a loaded driver there: a string that stays.
    unsafe { CStr::from_ptr(info.driver_name) }.to_bytes()
}
