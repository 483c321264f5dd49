//! Poll loops that this crate compiles for all programs of a test build.
//!
//! The poll loop is generic over its device, so each program that starts one would compile the whole stack
//! for itself. A crate of `opt-level` 0 or 1 takes generic code that a crate it uses has compiled: here,
//! once, instead of in each example and test.

use warpline_dataplane::device::boxed::BoxedDevice;
#[cfg(feature = "dpdk")]
use warpline_dataplane::device::dpdk::DpdkDevice;
use warpline_dataplane::device::sim::SimFrame;

use super::device::Device;
use crate::vocabulary::device::{DeviceConfig, StartError};
use crate::vocabulary::poll_thread::PollThread;

type Start<D> = fn(D, &DeviceConfig, PollThread) -> Result<Device, StartError>;

#[cfg(feature = "dpdk")]
#[used]
static PORT: Start<DpdkDevice> = Device::start;

#[used]
static SIMULATED: Start<BoxedDevice<SimFrame>> = Device::start;
