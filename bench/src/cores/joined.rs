//! Two devices that wires in memory join, and their cores, which the benchmark polls.

use warpline::open::{self, DpdkDevice, Eal, OpenedPorts};
use warpline::{CoreDriver, Device, DeviceConfig, DeviceName};
use warpline_tools::arguments::Switch;

use crate::device::{self, config};
use crate::error::BenchError;

/// A device, and its cores by number.
pub struct End {
    pub device: Device,
    pub cores: Vec<CoreDriver>,
}

/// The two ends: the near one connects and writes to the far one.
pub struct Joined {
    pub near: End,
    pub far: End,
}

impl Joined {
    /// Starts two devices with `cores` cores each on a wire of `ring`. With one core they are what devices
    /// for a single core are: nothing of several cores is in their way.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn start(eal: Eal, ring: &DeviceName, cores: usize) -> Result<Self, BenchError> {
        let wire = open::wire_config(ring);
        let [near_config, far_config] = [1, 2].map(|host| DeviceConfig {
            duplicate_address_detection: false,
            ..config(Switch::On, device::on_ring(ring, host))
        });
        if cores == 1 {
            let (near, far) = open::ring_pair(eal, &wire)?;
            return Ok(Self { near: End::only(near, &near_config)?, far: End::only(far, &far_config)? });
        }
        let [near, far] = open::ring_pair_of(eal, &wire, [cores; 2])?;
        Ok(Self { near: End::start(near, &near_config)?, far: End::start(far, &far_config)? })
    }
}

impl End {
    fn only(link: DpdkDevice, config: &DeviceConfig) -> Result<Self, BenchError> {
        let (device, core) = Device::start_manual(link, config)?;
        Ok(Self { device, cores: vec![core] })
    }

    fn start(opened: OpenedPorts, config: &DeviceConfig) -> Result<Self, BenchError> {
        let (links, steering) = opened.into_parts();
        let (device, cores) = Device::start_cores_manual(links, &steering, config)?;
        Ok(Self { device, cores })
    }
}
