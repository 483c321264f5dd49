//! Devices, opened by their names ([`DeviceName`]).
//!
//! [`Device::open`] is all that most programs need:
//!
//! ```no_run
//! use warpline::Device;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open(&"tap:tap0,address=198.18.0.2/24".parse()?)?;
//! # Ok(())
//! # }
//! ```
//!
//! `packet:eth1,address=198.18.0.2/24` is a packet socket of Linux, and needs nothing else. All other kinds
//! are opened by DPDK, which a build without the feature `dpdk` lacks. A program that chooses DPDK's
//! arguments, the configuration or the thread that polls takes the steps itself:
//!
//! ```no_run
//! use warpline::{Device, DeviceConfig, DeviceName, Idle, PollThread, open};
//!
//! # #[cfg(not(feature = "dpdk"))]
//! # fn main() {}
//! # #[cfg(feature = "dpdk")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let name: DeviceName = "af_packet:eth1,mtu=9000,address=198.18.0.2/24".parse()?;
//! let eal = open::eal(&[&name], "--no-huge -m 512")?;
//! let config = DeviceConfig { memory: open::hugepages(eal), window_bytes: 1 << 20, ..name.config() };
//! let poll = PollThread { lcore: Some(3), idle: Idle::Spin };
//! let device = Device::start(open::port(eal, &name)?, &config, poll)?;
//! # Ok(())
//! # }
//! ```

mod cores;
#[cfg(feature = "dpdk")]
mod eal;
mod error;
mod packet;
#[cfg(feature = "dpdk")]
mod pools;
#[cfg(feature = "dpdk")]
mod port;
#[cfg(feature = "dpdk")]
mod wires;

#[cfg(feature = "dpdk")]
pub use dpdk::{
    Eal, EalError, ExternalPieces, LogLines, Mbuf, MempoolError, PortError, VdevError, WireConfig, WireError,
};
pub use warpline_dataplane::device::SUPER_FRAME_MAX_BYTES;
#[cfg(feature = "dpdk")]
pub use warpline_dataplane::device::dpdk::{CoreWiresError, DpdkDevice, PoolTooSmall};
pub use warpline_dataplane::device::packet::{PacketDevice, PacketError};

pub use self::cores::{OpenedDevices, cpus};
#[cfg(feature = "dpdk")]
pub use self::eal::{eal, hugepages, hugepages_near};
pub use self::error::OpenError;
pub use self::packet::packet;
#[cfg(feature = "dpdk")]
pub use self::port::{device, port, ports};
#[cfg(feature = "dpdk")]
pub use self::wires::{ring_pair, ring_pair_of, wire_config};
pub use crate::host::claim::Owner;
pub use crate::host::cpus::CpuFault;
pub use crate::host::privileges::{Capability, Missing};
#[cfg(feature = "dpdk")]
pub use crate::host::sockets::SocketFault;
pub use crate::host::survey::{HostFault, HostWarning};

use super::device::Device;
use super::turns::Turns;
use crate::host::kernel_addresses::shared;
use crate::host::survey::{Survey, survey};
use crate::vocabulary::device::DeviceConfig;
use crate::vocabulary::device_name::{DeviceKind, DeviceName};
use crate::vocabulary::poll_thread::PollThread;

/// The devices of the cores of a port of DPDK.
#[cfg(feature = "dpdk")]
pub type OpenedPorts = OpenedDevices<DpdkDevice>;

impl Device {
    /// Opens the device that `name` names and starts a core on it with a thread that polls it, or a core on
    /// each of the CPUs that the name lists. Starts DPDK if the device needs it and it does not run yet;
    /// memory comes from hugepages where DPDK has them. What may keep the device from working though it can
    /// be opened, [`inspect`] returns before, and [`warnings`](Self::warnings) after.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(name: &DeviceName) -> Result<Self, OpenError> {
        let name = resolved(name)?;
        Self::open_with(&name, name.config(), PollThread::default())
    }

    /// As [`open`](Self::open), of a name that is [`resolved`], with the configuration `config`, of which a
    /// device of DPDK takes all but the memory, and the CPU of `poll`, unless the name lists CPUs, and its
    /// behaviour without work.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open_with(name: &DeviceName, config: DeviceConfig, poll: PollThread) -> Result<Self, OpenError> {
        if name.kind() == DeviceKind::Packet {
            let polls = cores::polls(name, poll)?;
            return packet::packets(name, polls.len())?.start(&config, &polls);
        }
        open_by_dpdk(name, config, poll)
    }

    /// Opens the device that `name` names, as [`open`](Self::open) does, with one core and its control engine
    /// that threads of the application and one of warpline drive in turns, as
    /// [`start_shared`](Self::start_shared) describes. Warpline's thread is pinned to the CPU that the name
    /// lists, if it lists one.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; [`OpenError::SharedCores`] if the name lists several CPUs.
    pub fn open_shared(name: &DeviceName) -> Result<(Self, Turns), OpenError> {
        let name = resolved(name)?;
        Self::open_shared_with(&name, name.config(), PollThread::default())
    }

    /// As [`open_shared`](Self::open_shared), of a name that is [`resolved`], with the configuration `config`
    /// and the thread `poll`, as [`open_with`](Self::open_with) takes them.
    ///
    /// # Errors
    ///
    /// As for [`open_shared`](Self::open_shared).
    pub fn open_shared_with(
        name: &DeviceName,
        config: DeviceConfig,
        poll: PollThread,
    ) -> Result<(Self, Turns), OpenError> {
        let poll = cores::only_poll(name, poll)?;
        if name.kind() == DeviceKind::Packet {
            return packet::packets(name, 1)?.start_shared(&config, poll);
        }
        open_shared_by_dpdk(name, config, poll)
    }

    /// Returns what was found when the device was opened by its name: what may keep its frames from passing,
    /// and that a port has too few queues for its cores ([`HostWarning::OneQueue`]). For the program to show;
    /// the device works as well as it can.
    pub fn warnings(&self) -> &[HostWarning] {
        self.context.warnings.get().map_or(&[], Vec::as_slice)
    }

    /// Keeps what was found when the device was opened.
    fn with_warnings(self, warnings: Vec<HostWarning>) -> Self {
        // Once, for the device is new.
        let _ = self.context.warnings.set(warnings);
        self
    }
}

#[cfg(feature = "dpdk")]
fn open_by_dpdk(name: &DeviceName, config: DeviceConfig, poll: PollThread) -> Result<Device, OpenError> {
    // Before DPDK starts, which takes a while.
    inspect(name)?;
    cpus(name)?;
    device(eal(&[name], "")?, name, config, poll)
}

#[cfg(not(feature = "dpdk"))]
fn open_by_dpdk(name: &DeviceName, _: DeviceConfig, _: PollThread) -> Result<Device, OpenError> {
    Err(OpenError::WithoutDpdk(Box::new(name.clone())))
}

#[cfg(feature = "dpdk")]
fn open_shared_by_dpdk(
    name: &DeviceName,
    config: DeviceConfig,
    poll: PollThread,
) -> Result<(Device, Turns), OpenError> {
    inspect(name)?;
    port::shared_device(eal(&[name], "")?, name, config, poll)
}

#[cfg(not(feature = "dpdk"))]
fn open_shared_by_dpdk(
    name: &DeviceName,
    _: DeviceConfig,
    _: PollThread,
) -> Result<(Device, Turns), OpenError> {
    Err(OpenError::WithoutDpdk(Box::new(name.clone())))
}

/// Returns the name of `device` with all that is asked of the machine: a packet socket without addresses has
/// those of the kernel on its interface, with their routes and the interface's MTU, and
/// [shares](crate::Presence::Shared) them. Any other name is returned as it is.
///
/// # Errors
///
/// [`OpenError::Host`].
pub fn resolved(device: &DeviceName) -> Result<DeviceName, OpenError> {
    if !device.lacks_addresses() {
        return Ok(device.clone());
    }
    shared(device).map_err(|fault| OpenError::Host { name: Box::new(device.clone()), fault })
}

/// Checks that `device` can work on its interface of the kernel, if it has one. Returns what may still keep
/// its frames from passing.
///
/// # Errors
///
/// [`OpenError::Host`], as [`Device::open`] would report it.
pub fn inspect(device: &DeviceName) -> Result<Vec<HostWarning>, OpenError> {
    Ok(surveyed(device, None)?.warnings)
}

fn surveyed(device: &DeviceName, under_port: Option<u32>) -> Result<Survey, OpenError> {
    survey(device, under_port).map_err(|fault| OpenError::Host { name: Box::new(device.clone()), fault })
}
