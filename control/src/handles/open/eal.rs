//! DPDK's EAL, started for the devices that a process opens.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use dpdk::{Eal, EalBuilder, LogLevel, Memory, Pci};
use warpline_dataplane::memory::Region;

use super::OpenError;
use crate::handles::vdev::pci_argument;
use crate::host::privileges;
use crate::vocabulary::device::MemorySource;
use crate::vocabulary::device_name::{DeviceKind, DeviceName};

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
pub(super) fn require_pci(device: &DeviceName) -> Result<(), OpenError> {
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
