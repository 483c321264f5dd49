//! Devices that are added, opened again and removed while the EAL runs.
//!
//! DPDK finds a device by its name and gives its ports numbers, which it uses again. A port that another
//! thread polls must stay, so whoever removes a device looks at its ports in the same [`control`] in which it
//! removes the device.

use core::ffi::CStr;
use std::ffi::CString;

use dpdk_sys as sys;

use crate::eal::{Eal, InControl, control_of};
use crate::errno::Errno;
use crate::log::{self, LogLines};
use crate::port::{PortId, ports_of_device};

/// A device did not come up, or did not go.
#[derive(Debug, thiserror::Error)]
pub enum VdevError {
    /// No driver has such a name.
    #[error(
        "DPDK has no driver for `{device}`: install its plug-in ({package} in Debian 12), or write the name \
         of another driver with a number (net_tap0)"
    )]
    NoDriver {
        /// The device.
        device: String,
        /// The package that would have the driver.
        package: String,
    },
    /// Its port is open in this process.
    #[error("`{device}` has a port that is in use in this process, and cannot be removed")]
    InUse {
        /// The device.
        device: String,
    },
    /// The driver refuses it.
    #[error("the driver refuses `{device}`: {errno}{said}")]
    Refused {
        /// The device.
        device: String,
        /// The driver's reason, as a number.
        errno: Errno,
        /// What it said.
        said: LogLines,
    },
}

impl VdevError {
    fn new(device: &str, errno: Errno) -> Self {
        let device = device.to_owned();
        // No bus has recognised the name.
        if errno.number() == libc::EFAULT {
            return Self::NoDriver { package: package_of(&device), device };
        }
        Self::Refused { device, errno, said: log::take() }
    }

    /// Returns the error number of a driver that refuses the device.
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::NoDriver { .. } | Self::InUse { .. } => None,
            Self::Refused { errno, .. } => Some(*errno),
        }
    }
}

/// Returns Debian's name for the package with the driver of a virtual device: of `net_af_packet0,iface=e1`,
/// `librte-net-af-packet23`. The bus of a PCI device is a plug-in too.
fn package_of(device: &str) -> String {
    /// The number of DPDK 22.11's interface.
    const ABI: &str = "23";
    let name = device.split(',').next().unwrap_or_default();
    let driver = match name.trim_end_matches(|digit: char| digit.is_ascii_digit()) {
        "net_virtio_user" => "net_virtio",
        address if address.contains(':') => "bus_pci",
        driver => driver,
    };
    format!("librte-{}{ABI}", driver.replace('_', "-"))
}

impl Eal {
    /// Has the driver of a PCI device open it, while running: its address, with arguments if need be
    /// (`0000:03:00.0,key=value`). A port that was closed has left its device behind with its driver, and is
    /// there again after this. A device with a port stays as it is.
    ///
    /// # Errors
    ///
    /// [`VdevError`] when no driver takes the device or its driver refuses.
    pub fn probe_pci(self, device: &str) -> Result<(), VdevError> {
        probe_for_port(c"pci", device)
    }

    /// The same for a virtual device: its name and arguments (`net_null0,size=64`). Adds it if it is not
    /// there.
    ///
    /// # Errors
    ///
    /// [`VdevError`] when no driver matches the name or the driver refuses.
    pub fn probe_vdev(self, device: &str) -> Result<(), VdevError> {
        probe_for_port(c"vdev", device)
    }

    /// Adds a virtual device while running: its name and arguments (`net_null0,size=64`).
    ///
    /// # Errors
    ///
    /// [`VdevError`] when no driver matches the name or the driver refuses.
    pub fn add_vdev(self, device: &str) -> Result<(), VdevError> {
        let (text, error) = (text(device)?, |errno| VdevError::new(device, errno));
        control_of(device.as_bytes(), |alone| probe(alone, &text)).map_err(error)
    }

    /// Removes the virtual device `name`, with the port that it may have.
    ///
    /// # Errors
    ///
    /// [`VdevError::InUse`] while the port is open, or not closed yet; [`VdevError::Refused`] when there is
    /// no such device or the driver refuses.
    pub fn remove_vdev(self, name: &str) -> Result<(), VdevError> {
        let (text, error) = (text(name)?, |errno| VdevError::new(name, errno));
        let removed = control_of(name.as_bytes(), |alone| remove(alone, c"vdev", &text));
        removed.ok_or_else(|| VdevError::InUse { device: name.into() })?.map_err(error)
    }
}

/// Has the driver of the device that `device` describes open it, unless it has a port.
///
/// A device that has a driver is not opened again, and DPDK 22.11 reports success for it all the same. If its
/// port was closed it has none, and is opened after it was removed.
fn probe_for_port(bus: &CStr, device: &str) -> Result<(), VdevError> {
    let name = text(device.split(',').next().unwrap_or_default())?;
    let (text, error) = (text(device)?, |errno| VdevError::new(device, errno));
    let has_port = |alone: &InControl| ports_of_device(alone, &name).next().is_some();
    control_of(device.as_bytes(), |alone| {
        if has_port(alone) {
            return Ok(());
        }
        match probe(alone, &text) {
            Err(errno) if errno.number() != libc::EEXIST => return Err(errno),
            _ if has_port(alone) => return Ok(()),
            _ => {}
        }
        remove(alone, bus, &name).transpose()?;
        // What DPDK has said up to here is not why it may fail now.
        log::forget();
        probe(alone, &text)
    })
    .map_err(error)
}

/// Returns `device` as C takes it.
fn text(device: &str) -> Result<CString, VdevError> {
    CString::new(device).map_err(|_| VdevError::new(device, Errno::INVALID))
}

/// Adds or probes the device that `text` describes.
fn probe(_: &InControl, text: &CStr) -> Result<(), Errno> {
    // SAFETY: the EAL runs, for the callers have it; nobody else changes devices (the caller is in control);
    // the string lives through the call.
    Errno::check(unsafe { sys::rte_dev_probe(text.as_ptr()) }).map(drop)
}

/// Removes the device `name` of `bus`, with the ports that it has; `None` if somebody has claimed one.
fn remove(alone: &InControl, bus: &CStr, name: &CStr) -> Option<Result<(), Errno>> {
    if ports_of_device(alone, name).any(PortId::is_claimed) {
        return None;
    }
    // SAFETY: the EAL runs, for the callers have it; nobody else changes devices (the caller is in control);
    // both strings live through the call. No code polls a port of the device, for nobody has claimed one.
    Some(Errno::check(unsafe { sys::rte_eal_hotplug_remove(bus.as_ptr(), name.as_ptr()) }).map(drop))
}
