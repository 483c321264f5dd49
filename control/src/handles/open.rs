//! DPDK devices, opened by their names ([`DeviceName`]).
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
//! A program that chooses DPDK's arguments, the configuration or the thread that polls takes the same steps
//! itself:
//!
//! ```no_run
//! use warpline::{Device, DeviceConfig, DeviceName, Idle, PollThread, open};
//!
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
mod pools;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dpdk::{
    AllMulticast, EalBuilder, LogLevel, Memory, Mempool, Mtu, Pci, Port, PortConfig, QueuePair, Rss,
    RunningPort, UnknownSpread, wire,
};
pub use dpdk::{
    Eal, EalError, ExternalPieces, LogLines, Mbuf, MempoolError, PortError, VdevError, WireConfig, WireError,
};
pub use warpline_dataplane::device::dpdk::{CoreWiresError, DpdkDevice, PoolTooSmall, SUPER_FRAME_MAX_BYTES};
use warpline_dataplane::device::spread::Queues;
use warpline_dataplane::limits::CORES_MAX;
use warpline_dataplane::memory::Region;

pub use self::cores::{OpenedPorts, cpus, device, ports, ring_pair_of};
pub use crate::host::claim::Owner;
pub use crate::host::cpus::CpuFault;
pub use crate::host::privileges::{Capability, Missing};
pub use crate::host::sockets::SocketFault;
pub use crate::host::survey::{HostFault, HostWarning};

use self::cores::steering_of_port;
use self::pools::{port_pools, wire_pool};
use super::device::Device;
use super::vdev::{PortArguments, locked_kib, other_channels, pci_argument, port_arguments, queue_size};
use crate::host::survey::{Survey, survey};
use crate::host::{privileges, sockets};
use crate::vocabulary::device::{MemorySource, StartError};
use crate::vocabulary::device_name::{DeviceKind, DeviceName};
use crate::vocabulary::poll_thread::PollThread;

/// Bytes of full frames that wait in the queue to a device, at most: what is sent next waits until they have
/// left, some 60 µs at 50 Gb/s. What does not fit waits in its connection, and the core chooses whose frames
/// come next ([`QpConfig::weight`](crate::QpConfig::weight)). The number of frames is the next power of two.
/// On a ring a single queue pair loses nothing by it, compared with 1024 frames, and a hundred gain 5 to 12
/// %.
const QUEUE_OCTETS: usize = 256 << 10;
/// The least frames in that queue: a core that is interrupted leaves the device some.
const QUEUE_FRAMES_MIN: usize = 64;
/// The most.
const QUEUE_FRAMES_MAX: usize = 1024;
/// The least transmit descriptors of a port: a frame by reference takes some, and a burst is not to wait.
const PORT_DESCRIPTORS_MIN: u16 = 256;
/// Why there is no device.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An argument of the EAL lacks its value.
    #[error("EAL argument {0} lacks its value")]
    Argument(String),
    /// The EAL did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// The device needs the EAL to be started for it.
    #[error("DPDK runs already, without {0}: start it for all devices of the process at once (open::eal)")]
    StartedWithout(Box<DeviceName>),
    /// A ring joins two devices.
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
    #[error("device '{name}': {error}")]
    Refused {
        /// The device.
        name: Box<DeviceName>,
        /// The error of DPDK.
        error: VdevError,
    },
    /// No buffers.
    #[error(transparent)]
    Mempool(#[from] MempoolError),
    /// No port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// No wire.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// No wires between several cores.
    #[error(transparent)]
    CoreWires(#[from] CoreWiresError),
    /// The buffers are too small for the port's frames.
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
    /// The port was started without queues.
    #[error("port {0} has no queue: its driver is of no use here")]
    NoQueue(String),
    /// The device did not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Starts DPDK's EAL for `devices`, with `arguments` as DPDK's programs take them, separated by blanks. What
/// the arguments do not say is as for [`Eal::builder`]: no PCI device but those of `devices` is taken, and
/// hugepages are used where enough are free.
///
/// A process has one EAL. Where it runs already and there are no arguments, this returns it.
///
/// # Errors
///
/// [`OpenError::Argument`], [`OpenError::Eal`]; [`OpenError::StartedWithout`] if the EAL runs and does not
/// reach a device.
pub fn eal(devices: &[&DeviceName], arguments: &str) -> Result<Eal, OpenError> {
    if arguments.trim().is_empty()
        && let Some(running) = Eal::current()
    {
        return match devices.iter().find(|device| !reaches(running, device)) {
            Some(device) => Err(OpenError::StartedWithout(Box::new((*device).clone()))),
            None => Ok(running),
        };
    }
    for device in devices.iter().filter(|device| device.kind() == DeviceKind::Pci) {
        require_pci(device)?;
    }
    let mut start = Eal::builder();
    let in_one_file = devices.iter().any(|device| device.kind() == DeviceKind::VirtioUser);
    if in_one_file {
        // Its peer maps the memory, and takes few regions: one file of hugepages, not one a page.
        start = start.memory(Memory::Hugepages).argument("--single-file-segments");
    }
    let pci = devices.iter().filter_map(|device| pci_argument(device)).collect();
    let eal = with_arguments(start, arguments, pci)?.init()?;
    IN_ONE_FILE.store(in_one_file, Ordering::Relaxed);
    Ok(eal)
}

/// Checks that this process may have the PCI device `device`.
fn require_pci(device: &DeviceName) -> Result<(), OpenError> {
    match privileges::missing_for_pci(Path::new("/"), device.target()) {
        Some(missing) => Err(OpenError::Missing { name: Box::new(device.clone()), missing }),
        None => Ok(()),
    }
}

/// Whether the EAL was started for a `virtio_user` device.
static IN_ONE_FILE: AtomicBool = AtomicBool::new(false);

/// Returns true if the running EAL has what `device` needs of it from its start.
fn reaches(eal: Eal, device: &DeviceName) -> bool {
    match device.kind() {
        DeviceKind::Pci => eal.has_pci(),
        DeviceKind::VirtioUser => IN_ONE_FILE.load(Ordering::Relaxed),
        _ => true,
    }
}

fn with_arguments(
    mut builder: EalBuilder,
    arguments: &str,
    mut devices: Vec<String>,
) -> Result<EalBuilder, OpenError> {
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let mut value = || value.or_else(|| words.next()).ok_or_else(|| OpenError::Argument(name.into()));
        builder = match name {
            "--no-huge" => builder.memory(Memory::Ordinary),
            "--in-memory" => builder.memory(Memory::Hugepages),
            // The builder's way without `-a`.
            "--no-pci" => builder,
            "-m" => {
                let mib = value()?.parse().map_err(|_| OpenError::Argument(name.into()))?;
                builder.memory_mib(mib)
            }
            "--lcores" => builder.lcores(value()?),
            "--vdev" => builder.vdev(value()?),
            "--log-level" => builder.log_level(LogLevel::Error).argument(format!("{name}={}", value()?)),
            "--file-prefix" => builder.file_prefix(value()?),
            "-a" | "--allow" => {
                devices.push(value()?.to_owned());
                builder
            }
            _ => builder.argument(word),
        };
    }
    if !devices.is_empty() {
        builder = builder.pci(Pci::Allow(devices));
    }
    Ok(builder)
}

/// Returns a source of the EAL's memory, which frames carry by reference.
pub fn hugepages(eal: Eal) -> MemorySource {
    hugepages_near(eal, None)
}

/// The same, of the memory of a NUMA node while enough of it is free.
pub fn hugepages_near(eal: Eal, node: Option<u32>) -> MemorySource {
    MemorySource::new(move |len| Region::huge_near(eal, len, node).ok())
}

/// Returns the configuration of the wire that the device `name`, a ring, is.
pub fn wire_config(name: &DeviceName) -> WireConfig {
    let super_frame_bytes = if name.has_super_frames() { SUPER_FRAME_MAX_BYTES } else { 0 };
    let frames = queue_frames(name.mtu()).into();
    WireConfig { mtu_bytes: name.mtu().into(), super_frame_bytes, frames, ..WireConfig::default() }
}

/// Returns how many frames the queue to a device of this MTU has room for.
fn queue_frames(mtu_bytes: u16) -> u16 {
    let frames = (QUEUE_OCTETS / usize::from(mtu_bytes.max(1))).next_power_of_two();
    frames.clamp(QUEUE_FRAMES_MIN, QUEUE_FRAMES_MAX) as u16
}

/// Opens the port of `device` with one queue pair, for IP packets up to its MTU. Before that, looks at the
/// interface of the kernel under it, if there is one: it must exist, be up, carry such packets, and neither
/// the kernel nor another device may have one of the addresses.
///
/// # Errors
///
/// [`OpenError`].
pub fn port(eal: Eal, device: &DeviceName) -> Result<DpdkDevice, OpenError> {
    let OpenedPorts { mut devices, port, .. } = open_port(eal, device, 1)?;
    devices.pop().ok_or(OpenError::NoQueue(port))
}

/// Opens the port of `device` for `cores` cores.
fn open_port(eal: Eal, device: &DeviceName, cores: usize) -> Result<OpenedPorts, OpenError> {
    let arguments = unused_port_arguments(eal, device, cores);
    let PortArguments { port, vdev } = arguments.ok_or(OpenError::RingIsAPair)?;
    // One in DPDK's notation may stand in the EAL's arguments already.
    let is_there = device.kind() == DeviceKind::Eal && Port::names(eal).contains(&port);
    let under_port = if is_there { Port::open(eal, &port)?.interface()? } else { None };
    let Survey { kind, interface, claims, has_partial_checksums, warnings } = surveyed(device, under_port)?;
    // Of a program that it may not load, libxdp says much, and not this.
    if kind == DeviceKind::AfXdp
        && let Some(missing @ Missing::Capabilities { .. }) = privileges::missing(kind, 0)
    {
        return Err(OpenError::Missing { name: Box::new(device.clone()), missing });
    }
    sockets::prepare(device).map_err(|fault| OpenError::Socket { name: Box::new(device.clone()), fault })?;
    let groups = interface.filter(|_| kind == DeviceKind::AfPacket);
    let groups = groups.and_then(|interface| AllMulticast::of_interface(interface).ok());
    let vdev = vdev.filter(|_| !is_there);
    let add = || match &vdev {
        Some(vdev) => add_vdev(eal, device, kind, cores, vdev),
        None => probe_unless_there(eal, device, &port),
    };
    let removed = |error| {
        if vdev.is_some() {
            // What the driver says of that matters less than why the port did not start.
            let _ = eal.remove_vdev(&port);
        }
        error
    };
    let pools = make_pools(eal, device, cores, &port, add).map_err(removed)?;
    let opened = start_port(eal, &port, device, &pools, groups.is_none())
        .map_err(|error| removed(explained(device, kind, cores, error)));
    let mut opened = opened?;
    let kept = Arc::new((claims, groups));
    let keeping = |device: DpdkDevice| {
        device.accepting_partial_checksums(has_partial_checksums).keeping(Arc::clone(&kept))
    };
    opened.devices = opened.devices.into_iter().map(keeping).collect();
    opened.warnings = warnings;
    if device.kind() == DeviceKind::AfXdp {
        let queues = if opened.queues == Queues::One { 1 } else { cores };
        opened.warnings.extend(other_channels(device, queues));
    }
    Ok(opened)
}

/// Adds the virtual device `vdev`.
fn add_vdev(
    eal: Eal,
    device: &DeviceName,
    kind: DeviceKind,
    cores: usize,
    vdev: &str,
) -> Result<(), OpenError> {
    // A port that was closed has left its device behind, by the name that the user gave it: that is opened
    // again.
    eal.probe_vdev(vdev).map_err(|error| {
        let name = Box::new(device.clone());
        explained(device, kind, cores, OpenError::Refused { name, error })
    })
}

/// Makes the pools of the port of `device`, which `add` adds, near the port.
fn make_pools(
    eal: Eal,
    device: &DeviceName,
    cores: usize,
    port: &str,
    add: impl FnOnce() -> Result<(), OpenError>,
) -> Result<Vec<Mempool>, OpenError> {
    if matches!(device.kind(), DeviceKind::Pci | DeviceKind::Eal) {
        // Its node is known once the port is there.
        add()?;
        return Ok(port_pools(eal, device, cores, node_of(eal, port))?);
    }
    // It is at no node; and when an interface appears or a peer connects, there are buffers.
    let pools = port_pools(eal, device, cores, None)?;
    add()?;
    Ok(pools)
}

/// Returns the NUMA node of the port `name`, if it is there and at one.
fn node_of(eal: Eal, name: &str) -> Option<u32> {
    let is_there = Port::names(eal).iter().any(|port| port == name);
    if is_there { Port::open(eal, name).ok()?.node() } else { None }
}

/// Has its driver open `device`, if it is a PCI device and its port is not there: the port was closed, or the
/// EAL was started for other devices.
fn probe_unless_there(eal: Eal, device: &DeviceName, port: &str) -> Result<(), OpenError> {
    let Some(argument) = pci_argument(device).filter(|_| !Port::names(eal).iter().any(|name| name == port))
    else {
        return Ok(());
    };
    require_pci(device)?;
    let refused = |error| OpenError::Refused { name: Box::new(device.clone()), error };
    eal.probe_pci(&argument).map_err(refused)
}

/// Returns how DPDK opens `device` for `cores` cores; `None` for a ring. A virtual device gets a name that no
/// port has: the arguments of the EAL may have made some.
fn unused_port_arguments(eal: Eal, device: &DeviceName, cores: usize) -> Option<PortArguments> {
    /// Virtual devices of this process get numbers as they come.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let names = Port::names(eal);
    loop {
        let arguments = port_arguments(device, NUMBER.fetch_add(1, Ordering::Relaxed), cores)?;
        if matches!(device.kind(), DeviceKind::Pci | DeviceKind::Eal) || !names.contains(&arguments.port) {
            return Some(arguments);
        }
    }
}

/// Returns what this process lacks for `device` with `cores` cores, whose driver is of the kind `kind`, if
/// that can be why it did not open; else `error`.
fn explained(device: &DeviceName, kind: DeviceKind, cores: usize, error: OpenError) -> OpenError {
    match privileges::missing(kind, locked_kib(device, cores)) {
        Some(missing) => OpenError::Missing { name: Box::new(device.clone()), missing },
        None => error,
    }
}

/// Checks that `device` can work on its interface of the kernel, if it has one. Returns what may still keep
/// its frames from passing.
///
/// # Errors
///
/// [`OpenError::Host`], as [`port`] would report it.
pub fn inspect(device: &DeviceName) -> Result<Vec<HostWarning>, OpenError> {
    Ok(surveyed(device, None)?.warnings)
}

fn surveyed(device: &DeviceName, under_port: Option<u32>) -> Result<Survey, OpenError> {
    survey(device, under_port).map_err(|fault| OpenError::Host { name: Box::new(device.clone()), fault })
}

/// Starts the port `name` of `device` for a core with each of `pools`. With `multicast` it is opened for
/// frames to groups.
fn start_port(
    eal: Eal,
    name: &str,
    device: &DeviceName,
    pools: &[Mempool],
    multicast: bool,
) -> Result<OpenedPorts, OpenError> {
    let port = Port::open(eal, name)?;
    let (cores, node) = (pools.len(), port.node());
    let steering = steering_of_port(cores, port.spreads(cores as u16)?)?;
    let rss = Rss { key: *steering.key() };
    let config = PortConfig { rss, multicast, ..port_config(name, device) };
    let unknown = if device.has_queue_each() { UnknownSpread::QueueEach } else { UnknownSpread::OneQueue };
    let (port, pairs) = port.start_spread(&config, pools, unknown)?;
    let queues = match port.rss() {
        _ if pairs.len() < cores => Queues::One,
        None if cores > 1 => Queues::Unsorted,
        _ => Queues::PerCore,
    };
    // Where frames of one pool come to all cores, each may keep its part of them.
    let sharing = if queues == Queues::PerCore { 1 } else { cores };
    let devices = port_devices(&port, pairs, pools, sharing)?;
    Ok(OpenedPorts { devices, steering, queues, port: name.into(), node, warnings: Vec::new() })
}

/// Returns the configuration of the port `name` of `device`.
fn port_config(name: &str, device: &DeviceName) -> PortConfig {
    // That driver cannot change what the interface beneath it has.
    let assume = name.starts_with("net_af_packet");
    let mtu = if assume { Mtu::Assume(device.mtu()) } else { Mtu::Set(device.mtu()) };
    let super_frames = device.has_super_frames();
    let mut config = PortConfig { mtu, super_frames, ..PortConfig::default() };
    if matches!(device.kind(), DeviceKind::Vhost | DeviceKind::VirtioUser) {
        // The length of a queue of virtio is an option of the device.
        let descriptors = queue_size(device);
        (config.receive_descriptors, config.transmit_descriptors) = (descriptors, descriptors);
    } else if !super_frames {
        config.transmit_descriptors = queue_frames(device.mtu()).max(PORT_DESCRIPTORS_MIN);
    }
    config
}

/// Returns a device for each pool: each with a queue of its own, or all but the first without one. The frames
/// of a pool come to so many cores.
fn port_devices(
    port: &RunningPort,
    queues: Vec<QueuePair>,
    pools: &[Mempool],
    sharing: usize,
) -> Result<Vec<DpdkDevice>, OpenError> {
    let [received, ..] = pools else { return Ok(Vec::new()) };
    let mut queues = queues.into_iter();
    let device = |pool: &Mempool| {
        let device = match queues.next() {
            Some(queues) => DpdkDevice::port(port, queues, pool.clone()),
            None => DpdkDevice::without_queue(port, pool.clone(), received),
        };
        Ok(device?.sharing_frames(sharing))
    };
    pools.iter().map(device).collect()
}

impl Device {
    /// Opens the device that `name` names and starts a core on it with a thread that polls it, or a core on
    /// each of the CPUs that the name lists. Starts DPDK if it does not run yet; memory comes from hugepages
    /// where DPDK has them. What may keep the device from working though it can be opened, [`inspect`]
    /// returns before, and [`warnings`](Self::warnings) after.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(name: &DeviceName) -> Result<Self, OpenError> {
        // Before DPDK starts, which takes a while.
        inspect(name)?;
        cpus(name)?;
        device(eal(&[name], "")?, name, name.config(), PollThread::default())
    }

    /// Returns what was found when the device was opened by its name, by [`open`](Self::open) or [`device`]:
    /// what may keep its frames from passing, and that a port has too few queues for its cores
    /// ([`HostWarning::OneQueue`]). For the program to show; the device works as well as it can.
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

/// Opens two devices with a wire in memory between them.
///
/// # Errors
///
/// [`OpenError`].
pub fn ring_pair(eal: Eal, config: &WireConfig) -> Result<(DpdkDevice, DpdkDevice), OpenError> {
    let pools = [wire_pool(eal, config, 1)?, wire_pool(eal, config, 1)?];
    let (near, far) = wire(eal, config, [&pools[0], &pools[1]])?;
    let [near_pool, far_pool] = pools;
    Ok((DpdkDevice::wire(near, near_pool)?, DpdkDevice::wire(far, far_pool)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the MTU, the frames that wait take about as many bytes, within bounds on their number.
    #[test]
    fn a_queue_holds_bytes_not_frames() {
        let frames = [68, 576, 1500, 4096, 9000, u16::MAX].map(queue_frames);
        assert_eq!(frames, [1024, 512, 256, 64, 64, 64]);
        assert!(queue_frames(1500) as usize * 1500 < 2 * QUEUE_OCTETS);
    }
}
