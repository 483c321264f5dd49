//! The link of a device: a port or the end of a wire, opened for one core or for several, and the device that
//! is started on it.

use dpdk::WireConfig;
use warpline::open::{self, DpdkDevice, Eal, Mbuf, OpenedPorts};
use warpline::{CoreDriver, Device, DeviceConfig, DeviceName};
use warpline_tools::capture::{CaptureFile, captured};
use warpline_tools::output::{OutputFile, note};

use crate::error::BenchError;

/// What a device is to be started on.
pub enum Link {
    /// For one core.
    One(DpdkDevice, Option<Capture>),
    /// For several cores.
    Several(OpenedPorts, Option<Capture>),
}

/// What the frames of a link are captured to.
pub struct Capture {
    file: CaptureFile,
    /// The name that the link has in the file.
    interface: &'static str,
}

impl Capture {
    /// Begins a capture to `file` if there is one.
    fn begin(file: Option<OutputFile>, interface: &'static str) -> Result<Option<Self>, BenchError> {
        let Some(file) = file else { return Ok(None) };
        Ok(Some(Self { file: CaptureFile::begin(file)?, interface }))
    }

    /// Returns `device` with its frames captured.
    fn of(&self, device: DpdkDevice) -> Result<impl warpline::link::Device<Frame = Mbuf> + Send, BenchError> {
        Ok(captured(device, self.file.clone(), self.interface)?)
    }
}

/// A device that has started, whose cores the benchmark polls.
pub struct Started {
    /// The device.
    pub device: Device,
    /// Its cores, by number.
    pub cores: Vec<CoreDriver>,
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
        let capture = Capture::begin(capture, "ring")?;
        if cores == 1 {
            let (near, far) = open::ring_pair(eal, wire)?;
            return Ok([Self::One(near, capture), Self::One(far, None)]);
        }
        let [near, far] = open::ring_pair_of(eal, wire, [cores; 2])?;
        Ok([Self::Several(near, capture), Self::Several(far, None)])
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
        let capture = Capture::begin(capture, name.kind().word())?;
        if cores == 1 {
            return Ok(Self::One(open::port(eal, name)?, capture));
        }
        let opened = open::ports(eal, name, cores)?;
        if let Some(warning) = opened.warning() {
            note!("warning: {warning}");
        }
        Ok(Self::Several(opened, capture))
    }

    /// Starts a device.
    ///
    /// # Errors
    ///
    /// [`BenchError::Start`].
    pub fn start(self, config: &DeviceConfig) -> Result<Started, BenchError> {
        let one = |(device, core)| Started { device, cores: vec![core] };
        let several = |(device, cores)| Started { device, cores };
        Ok(match self {
            Self::One(link, None) => one(Device::start_manual(link, config)?),
            Self::One(link, Some(capture)) => one(Device::start_manual(capture.of(link)?, config)?),
            Self::Several(opened, None) => {
                let (links, steering) = opened.into_parts();
                several(Device::start_cores_manual(links, &steering, config)?)
            }
            Self::Several(opened, Some(capture)) => {
                let (links, steering) = opened.into_parts_in(|link| capture.of(link))?;
                several(Device::start_cores_manual(links, &steering, config)?)
            }
        })
    }
}
