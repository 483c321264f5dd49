//! The ports that there are.

use core::ffi::{CStr, c_char};
use core::iter;

use dpdk_sys as sys;

use super::claim::{Claim, info};
use crate::eal::InControl;

/// A port by its number. Another port may have the number once the caller is in [control](InControl) no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortId(u16);

impl PortId {
    /// Returns true while somebody holds the port, started or not.
    pub(crate) fn is_claimed(self) -> bool {
        Claim::is_held(self.0)
    }

    /// Returns its name.
    pub(super) fn name(self) -> Option<String> {
        let mut name: [c_char; sys::RTE_ETH_NAME_MAX_LEN as usize] = [0; _];
        // SAFETY: `name` is as long as the longest name with its end.
        if unsafe { sys::rte_eth_dev_get_name_by_port(self.0, name.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: DPDK has written a string that ends inside `name`.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Some(name.to_string_lossy().into_owned())
    }

    /// Returns true if it is a port of the device `name`. Not every driver of a virtual device notes which
    /// device is under the port, and its port has the name of the device.
    fn is_of_device(self, _: &InControl, name: &CStr) -> bool {
        let device = info(self.0).map_or(core::ptr::null_mut(), |info| info.device);
        if device.is_null() {
            return self.name().is_some_and(|own| own.as_bytes() == name.to_bytes());
        }
        // SAFETY: not null, so it is the device of a port that is there, and nobody removes it meanwhile (the
        // caller is in control); its name is a string.
        unsafe { CStr::from_ptr(sys::rte_dev_name(device)) == name }
    }
}

/// Returns all ports.
pub(super) fn ports(_: &InControl) -> impl Iterator<Item = PortId> {
    let mut next = 0;
    iter::from_fn(move || {
        // SAFETY: takes any number and returns the next port from there, or one past the last possible.
        let id = unsafe { sys::rte_eth_find_next(next) };
        if u32::from(id) >= sys::RTE_MAX_ETHPORTS {
            return None;
        }
        next = id + 1;
        Some(PortId(id))
    })
}

/// Returns the ports of the device `name`.
pub(crate) fn ports_of_device(alone: &InControl, name: &CStr) -> impl Iterator<Item = PortId> {
    ports(alone).filter(move |port| port.is_of_device(alone, name))
}
