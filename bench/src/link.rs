//! The link of a device: a port or the end of a wire, opened for one core or for several, and the device that
//! is started on it.

use dpdk::WireConfig;
use warpline::link::boxed;
use warpline::open::{self, DpdkDevice, Eal, OpenedPorts};
use warpline::{CoreDriver, Device, DeviceConfig, DeviceName};
use warpline_tools::capture::CaptureFile;
use warpline_tools::output::{OutputFile, note};

use crate::device::BenchDevice;
use crate::error::BenchError;

/// What a device is to be started on.
pub enum Link {
    /// For one core.
    One(BenchDevice),
    /// For several cores, captured to a file that they share if there is one.
    Several {
        /// The port or the end of a wire.
        opened: OpenedPorts,
        /// The file, and the name of the interface in it.
        capture: Option<(CaptureFile, String)>,
    },
}

/// A device that has started, whose cores the benchmark polls.
pub struct Started {
    /// The device.
    pub device: Device,
    /// Its cores, by number.
    pub cores: Vec<CoreDriver<BenchDevice>>,
}

impl Link {
    /// Opens a wire between two devices of `cores` cores each. The frames of the first are captured to
    /// `capture` if there is one.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn wire(
        eal: Eal,
        wire: &WireConfig,
        cores: usize,
        capture: Option<OutputFile>,
    ) -> Result<[Self; 2], BenchError> {
        if cores == 1 {
            let (near, far) = open::ring_pair(eal, wire)?;
            return Ok([Self::one(near, capture, "ring")?, Self::one(far, None, "ring")?]);
        }
        let [near, far] = open::ring_pair_of(eal, wire, [cores; 2])?;
        Ok([Self::several(near, capture, "ring")?, Self::several(far, None, "ring")?])
    }

    /// Opens the port of the device `name` for `cores` cores. Says if it has fewer queues. Its frames are
    /// captured to `capture` if there is one.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn port(
        eal: Eal,
        name: &DeviceName,
        cores: usize,
        capture: Option<OutputFile>,
    ) -> Result<Self, BenchError> {
        if cores == 1 {
            return Self::one(open::port(eal, name)?, capture, name.kind().word());
        }
        let opened = open::ports(eal, name, cores)?;
        if let Some(warning) = opened.warning() {
            note!("warning: {warning}");
        }
        Self::several(opened, capture, name.kind().word())
    }

    fn several(
        opened: OpenedPorts,
        capture: Option<OutputFile>,
        interface: &str,
    ) -> Result<Self, BenchError> {
        let capture = capture.map(CaptureFile::begin).transpose()?;
        Ok(Self::Several { opened, capture: capture.map(|file| (file, interface.to_owned())) })
    }

    fn one(device: DpdkDevice, capture: Option<OutputFile>, interface: &str) -> Result<Self, BenchError> {
        Ok(Self::One(BenchDevice::new(device, capture, interface)?))
    }

    /// Starts a device.
    ///
    /// # Errors
    ///
    /// [`BenchError::Start`].
    pub fn start(self, config: &DeviceConfig) -> Result<Started, BenchError> {
        match self {
            Self::One(link) => {
                let (device, core) = Device::start_manual(link, config)?;
                Ok(Started { device, cores: vec![core] })
            }
            Self::Several { opened, capture } => {
                let capture = capture.as_ref().map(|(file, interface)| (file, interface.as_str()));
                let (links, steering) = opened.into_parts_in(|link| BenchDevice::of_core(link, capture))?;
                let links = links.into_iter().map(|link| BenchDevice::Boxed(boxed(link))).collect();
                let (device, cores) = Device::start_cores_manual(links, &steering, config)?;
                Ok(Started { device, cores })
            }
        }
    }
}
