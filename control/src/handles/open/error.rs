//! Why a device does not open.

#[cfg(feature = "dpdk")]
use dpdk::{EalError, MempoolError, PortError, VdevError, WireError};
#[cfg(feature = "dpdk")]
use warpline_dataplane::device::dpdk::{CoreWiresError, PoolTooSmall};
use warpline_dataplane::device::packet::PacketError;
use warpline_dataplane::limits::CORES_MAX;

use crate::host::cpus::CpuFault;
use crate::host::privileges::Missing;
#[cfg(feature = "dpdk")]
use crate::host::sockets::SocketFault;
use crate::host::survey::HostFault;
use crate::vocabulary::device::StartError;
use crate::vocabulary::device_name::DeviceName;

/// Why there is no device.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An argument of the EAL lacks its value.
    #[cfg(feature = "dpdk")]
    #[error("EAL argument {0} lacks its value")]
    Argument(String),
    /// The EAL did not start.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Eal(#[from] EalError),
    /// The device needs the EAL to be started for it.
    #[cfg(feature = "dpdk")]
    #[error("DPDK runs already, without {0}: start it for all devices of the process at once (open::eal)")]
    StartedWithout(Box<DeviceName>),
    /// A ring joins two devices.
    #[cfg(feature = "dpdk")]
    #[error("a ring has both ends in this process: open it as a pair")]
    RingIsAPair,
    /// The device could not work on its interface of the kernel.
    #[error("device '{name}': {fault}")]
    Host {
        /// The device.
        name: Box<DeviceName>,
        /// Why, and the remedy.
        fault: HostFault,
    },
    /// The device cannot have its socket.
    #[cfg(feature = "dpdk")]
    #[error("device '{name}': {fault}")]
    Socket {
        /// The device.
        name: Box<DeviceName>,
        /// Why, and the remedy.
        fault: SocketFault,
    },
    /// This process lacks a right or a resource that the device needs.
    #[error("device '{name}': {missing}")]
    Missing {
        /// The device.
        name: Box<DeviceName>,
        /// What it is, and the command that grants it.
        missing: Missing,
    },
    /// The driver refuses the device.
    #[cfg(feature = "dpdk")]
    #[error("device '{name}': {error}")]
    Refused {
        /// The device.
        name: Box<DeviceName>,
        /// The error of DPDK.
        error: VdevError,
    },
    /// No buffers.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Mempool(#[from] MempoolError),
    /// No port.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Port(#[from] PortError),
    /// No wire.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Wire(#[from] WireError),
    /// No wires between several cores.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    CoreWires(#[from] CoreWiresError),
    /// The buffers are too small for the port's frames.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    PoolTooSmall(#[from] PoolTooSmall),
    /// A device with no cores, or too many.
    #[error("{0} cores: a device has 1 to {CORES_MAX}")]
    CoreCount(usize),
    /// The device's name lists no CPUs that it can have.
    #[error("device '{name}': {fault}")]
    Cpus {
        /// The device.
        name: Box<DeviceName>,
        /// Why, and the remedy.
        fault: CpuFault,
    },
    /// Threads are to share a device of several cores.
    #[error("device '{name}': {cpus} CPUs for one core: a device that threads share has one, list one CPU")]
    SharedCores {
        /// The device.
        name: Box<DeviceName>,
        /// The CPUs that its name lists.
        cpus: usize,
    },
    /// The port was started without queues.
    #[error("port {0} has no queue: its driver is of no use here")]
    NoQueue(String),
    /// The packet socket of the device cannot be had.
    #[error("device '{name}': {error}")]
    Packet {
        /// The device.
        name: Box<DeviceName>,
        /// Why.
        error: PacketError,
    },
    /// The device is of DPDK, and this build has none.
    #[cfg(not(feature = "dpdk"))]
    #[error(
        "device '{0}' needs DPDK, which this build lacks: build it with the feature dpdk, or open \
         packet:INTERFACE"
    )]
    WithoutDpdk(Box<DeviceName>),
    /// The device did not start.
    #[error(transparent)]
    Start(#[from] StartError),
}
