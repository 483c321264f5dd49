//! The ports of DPDK under devices, and the EAL that they need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dpdk::{AllMulticast, Eal, Mempool, Mtu, Port, PortConfig, QueuePair, Rss, RunningPort, UnknownSpread};
use warpline_dataplane::device::dpdk::DpdkDevice;
use warpline_dataplane::device::packet::BUFFER_SPARE_OCTETS;
use warpline_dataplane::device::spread::Queues;
use warpline_dataplane::steering::Steering;

use super::cores::{SOFTWARE_ENTRIES, check_count, new_steering, polls};
use super::eal::{hugepages_near, require_pci};
use super::pools::port_pools;
use super::{OpenError, OpenedPorts, packet, surveyed};
use crate::handles::device::Device;
use crate::handles::turns::Turns;
use crate::handles::vdev::{
    PortArguments, locked_kib, other_channels, pci_argument, port_arguments, queue_size,
};
use crate::host::privileges::{self, Missing};
use crate::host::sockets;
use crate::host::survey::Survey;
use crate::vocabulary::device::DeviceConfig;
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

/// Returns how many frames the queue to a device of this MTU has room for.
pub(super) fn queue_frames(mtu_bytes: u16) -> u16 {
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
    open_port(eal, device, 1)?.into_only()
}

/// Opens the port of `device` for `cores` cores, as [`port`] does for one: with a queue for each
/// if the port spreads TCP segments over so many by a hash that is known, or as the name
/// [says](DeviceName::has_queue_each); else with one queue.
///
/// # Errors
///
/// [`OpenError`].
pub fn ports(eal: Eal, device: &DeviceName, cores: usize) -> Result<OpenedPorts, OpenError> {
    check_count(cores)?;
    open_port(eal, device, cores)
}

/// Opens the device `name` and starts it: with a core on each of the CPUs that the name lists, or with one
/// core on the CPU of `poll`, whose behaviour without work all threads have. Its memory is of hugepages, near
/// the port if that is at a NUMA node; the rest is as `config` says.
///
/// # Errors
///
/// [`OpenError`].
pub fn device(
    eal: Eal,
    name: &DeviceName,
    config: DeviceConfig,
    poll: PollThread,
) -> Result<Device, OpenError> {
    let polls = polls(name, poll)?;
    let opened = ports(eal, name, polls.len())?;
    let config = DeviceConfig { memory: hugepages_near(eal, opened.node()), ..config };
    opened.start(&config, &polls)
}

/// Opens the device `name` with one core and starts it for threads of the application and that of `poll`, in
/// turns. Its memory is that of [`device`].
pub(super) fn shared_device(
    eal: Eal,
    name: &DeviceName,
    config: DeviceConfig,
    poll: PollThread,
) -> Result<(Device, Turns), OpenError> {
    let opened = ports(eal, name, 1)?;
    let config = DeviceConfig { memory: hugepages_near(eal, opened.node()), ..config };
    opened.start_shared(&config, poll)
}

/// Opens the port of `device` for `cores` cores.
fn open_port(eal: Eal, device: &DeviceName, cores: usize) -> Result<OpenedPorts, OpenError> {
    if device.kind() == DeviceKind::Packet {
        return open_packet(eal, device, cores);
    }
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

/// Opens the packet sockets of `device`, with frames in DPDK's buffers.
fn open_packet(eal: Eal, device: &DeviceName, cores: usize) -> Result<OpenedPorts, OpenError> {
    let pools = port_pools(eal, device, cores, None)?;
    let frame_octets = pools.first().map_or(0, |pool| pool.data_octets().saturating_sub(BUFFER_SPARE_OCTETS));
    let mut pools = pools.into_iter();
    packet::open(device, cores, frame_octets, |queue, shape| {
        let pool = pools.next().ok_or_else(|| OpenError::NoQueue(device.to_string()))?;
        Ok(DpdkDevice::packet(queue, shape, pool)?.sharing_frames(cores))
    })
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

/// Returns a steering among `cores` cores: by a table with the entries of the port's, or of one in software.
fn steering_of_port(cores: usize, entries: Option<u16>) -> Result<Arc<Steering>, OpenError> {
    new_steering(cores, entries.map_or(SOFTWARE_ENTRIES, usize::from))
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
