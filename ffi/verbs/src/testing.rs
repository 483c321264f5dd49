//! A device in memory, for tests: no name leads programs to it.

use std::sync::atomic::{AtomicBool, Ordering};

use warpline::link::boxed;
use warpline::link::sim::{self, EndConfig};
use warpline::open::OpenError;
use warpline::{Device, DeviceConfig, DeviceName, PollThread, Turns};

/// The name of the device: its addresses.
const NAME: &str = "ring,address=198.18.0.1/24,address=fd00::1/64";

static CHOSEN: AtomicBool = AtomicBool::new(false);

/// Has the adapter of this process be a device in memory, with the addresses 198.18.0.1 and fd00::1, which
/// needs neither a privilege nor a network. It is connected to nobody: both ends of a connection are its own.
///
/// To be called before any other function of the library.
pub fn use_device_in_memory() {
    CHOSEN.store(true, Ordering::Release);
}

/// Returns the name of the device in memory if that is the adapter.
pub(crate) fn chosen() -> Option<DeviceName> {
    CHOSEN.load(Ordering::Acquire).then(|| NAME.parse().expect("a device's name"))
}

/// Opens the device in memory.
pub(crate) fn open(name: &DeviceName) -> Result<(Device, Turns), OpenError> {
    let (device, _nobody) = sim::link(0, EndConfig::a(), EndConfig::b());
    // Nobody else may have its addresses.
    let config = DeviceConfig { duplicate_address_detection: false, ..name.config() };
    Ok(Device::start_shared(boxed(device), &config, PollThread::default())?)
}

/// Returns a device of its own for a test of a module.
#[cfg(test)]
pub(crate) fn device() -> (Device, Turns) {
    open(&NAME.parse().expect("a device's name")).expect("a device in memory")
}
