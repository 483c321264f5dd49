//! Wires in memory: both ends of a device of kind `ring`.

use dpdk::{Eal, Mempool, WireConfig, wire};
use warpline_dataplane::device::SUPER_FRAME_MAX_BYTES;
use warpline_dataplane::device::dpdk::{DpdkDevice, core_wires};
use warpline_dataplane::device::spread::Queues;

use super::cores::{SOFTWARE_ENTRIES, check_count, new_steering};
use super::pools::wire_pool;
use super::port::queue_frames;
use super::{OpenError, OpenedPorts};
use crate::vocabulary::device_name::DeviceName;

/// Returns the configuration of the wire that the device `name`, a ring, is.
pub fn wire_config(name: &DeviceName) -> WireConfig {
    let super_frame_bytes = if name.has_super_frames() { SUPER_FRAME_MAX_BYTES } else { 0 };
    let frames = queue_frames(name.mtu()).into();
    WireConfig { mtu_bytes: name.mtu().into(), super_frame_bytes, frames, ..WireConfig::default() }
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

/// Opens two devices with wires in memory between them, for so many cores at each end. With one core at both
/// they are those of [`ring_pair`](super::ring_pair).
///
/// # Errors
///
/// [`OpenError`].
pub fn ring_pair_of(eal: Eal, config: &WireConfig, cores: [usize; 2]) -> Result<[OpenedPorts; 2], OpenError> {
    let steering = |cores| {
        check_count(cores)?;
        new_steering(cores, SOFTWARE_ENTRIES)
    };
    let pools = |cores, receivers| {
        (0..cores).map(|_| wire_pool(eal, config, receivers)).collect::<Result<Vec<Mempool>, _>>()
    };
    let (near, far) = (steering(cores[0])?, steering(cores[1])?);
    let (near_pools, far_pools) = (pools(cores[0], cores[1])?, pools(cores[1], cores[0])?);
    let [near_devices, far_devices] = core_wires(eal, config, [&near_pools, &far_pools], [&near, &far])?;
    let opened = |devices, steering| {
        let (port, node, warnings) = ("ring".into(), None, Vec::new());
        OpenedPorts { devices, steering, queues: Queues::PerCore, port, node, warnings }
    };
    Ok([opened(near_devices, near), opened(far_devices, far)])
}
