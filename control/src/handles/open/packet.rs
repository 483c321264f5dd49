//! Packet sockets, which need no DPDK.

use std::sync::Arc;

use warpline_dataplane::device::packet::{
    FRAME_MAX_OCTETS, Fanout, Filter, Filtering, PacketConfig, PacketDevice, PacketError, PacketQueue,
    PacketShape, SharedAddresses,
};
use warpline_dataplane::device::{self, THIS_MACHINE, spread::Queues};
use warpline_dataplane::net::addresses::Presence;
use warpline_dataplane::wire::ethernet::MacAddress;

use super::cores::{OpenedDevices, SOFTWARE_ENTRIES, check_count, new_steering};
use super::{OpenError, surveyed};
use crate::handles::start::random_key;
use crate::host::privileges;
use crate::host::survey::Survey;
use crate::vocabulary::device::StartError;
use crate::vocabulary::device_name::DeviceName;

/// Opens the packet socket of `device`, a device of kind `packet`, for one core. Before that, looks at the
/// interface: it must exist, be up, carry packets of the device's MTU, and neither the kernel nor another
/// device may have one of the addresses.
///
/// # Errors
///
/// [`OpenError`].
pub fn packet(device: &DeviceName) -> Result<PacketDevice, OpenError> {
    packets(device, 1)?.into_only()
}

/// Opens the packet sockets of `device` for `cores` cores, with frames in memory of the process.
pub(super) fn packets(device: &DeviceName, cores: usize) -> Result<OpenedDevices<PacketDevice>, OpenError> {
    open(device, cores, FRAME_MAX_OCTETS, |queue, shape| {
        Ok(PacketDevice::new(queue, shape).sharing_frames(cores))
    })
}

/// Opens the packet sockets of `device` for `cores` cores: one for each, on which the kernel spreads flows,
/// or as the name [says](DeviceName::has_queue_each) one. `make` makes the device of each core. Frames have
/// up to `super_frame_octets` octets if super-frames pass.
pub(super) fn open<D: device::Device>(
    device: &DeviceName,
    cores: usize,
    super_frame_octets: usize,
    mut make: impl FnMut(Option<PacketQueue>, PacketShape) -> Result<D, OpenError>,
) -> Result<OpenedDevices<D>, OpenError> {
    check_count(cores)?;
    let Survey { claims, warnings, .. } = surveyed(device, None)?;
    let claims = Arc::new(claims);
    let addresses: Vec<_> = device.addresses().iter().map(|own| own.address).collect();
    let filter = Filter::addresses(&addresses, device.vlan());
    let filtering = match device.presence() {
        Presence::Own => Filtering::Own(&filter),
        Presence::Shared => {
            let source = hardware_address_of_program()?;
            // A core does not know of all ports of the others, and sends to them as to another program.
            let unheard = if cores == 1 { source } else { THIS_MACHINE };
            let (vlan, hears_all_but) = (device.vlan(), Some(unheard));
            Filtering::Shared(SharedAddresses { addresses: &addresses, vlan, source, hears_all_but })
        }
    };
    let sockets = if device.has_queue_each() { cores } else { 1 };
    let config = PacketConfig {
        interface: device.target(),
        mtu_bytes: device.mtu().into(),
        super_frame_octets: device.has_super_frames().then_some(super_frame_octets),
        fanout: None,
        filtering,
    };
    let queues = group(&config, sockets).map_err(|error| explained(device, error))?;
    let queues: Vec<_> = queues.into_iter().map(|queue| queue.keeping(claims.clone())).collect();
    let shape = queues.first().map(PacketQueue::shape).ok_or(OpenError::CoreCount(0))?;
    let queues = queues.into_iter().map(Some).chain(core::iter::repeat_with(|| None)).take(cores);
    Ok(OpenedDevices {
        devices: queues.map(|queue| make(queue, shape)).collect::<Result<_, _>>()?,
        steering: new_steering(cores, SOFTWARE_ENTRIES)?,
        queues: match sockets {
            _ if cores == 1 => Queues::PerCore,
            1 => Queues::One,
            _ => Queues::Unsorted,
        },
        port: device.target().to_owned(),
        node: None,
        warnings,
    })
}

/// Returns a hardware address by which the other programs of this machine know this one.
fn hardware_address_of_program() -> Result<MacAddress, OpenError> {
    let random = random_key().map_err(StartError::Random)?;
    let mut address = THIS_MACHINE;
    address.0[3..].copy_from_slice(&random[..3]);
    Ok(address)
}

/// Opens so many sockets, at least one, on which the kernel spreads flows. The first hears other programs of
/// this machine, and all send to them.
fn group(config: &PacketConfig<'_>, sockets: usize) -> Result<Vec<PacketQueue>, PacketError> {
    if sockets == 1 {
        return Ok(vec![PacketQueue::open(config)?]);
    }
    let mut queues = vec![PacketQueue::open(&PacketConfig { fanout: Some(Fanout::New), ..*config })?];
    let fanout = queues[0].fanout_group().map(Fanout::Group);
    let filtering = match config.filtering {
        Filtering::Shared(shared) => Filtering::Shared(SharedAddresses { hears_all_but: None, ..shared }),
        own @ Filtering::Own(_) => own,
    };
    for _ in 1..sockets {
        queues.push(PacketQueue::open(&PacketConfig { fanout, filtering, ..*config })?);
    }
    Ok(queues)
}

/// Returns what this process lacks, if that can be why there is no socket; else `error`.
fn explained(device: &DeviceName, error: PacketError) -> OpenError {
    let name = Box::new(device.clone());
    match privileges::missing(device.kind(), 0) {
        Some(missing) => OpenError::Missing { name, missing },
        None => OpenError::Packet { name, error },
    }
}
