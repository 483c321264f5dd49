//! The device of an end that `scripts/interop` drives.

use std::ops::Deref;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use warpline::open::{DpdkDevice, OpenedPorts};
use warpline::{CrcPolicy, Device, DeviceConfig, DeviceName, DropCause, PollThread, Statistics, open};
use warpline_dataplane::device::spread::{Queues, SteeringWatch};
use warpline_tools::arguments::Switch;
use warpline_tools::capture::{CaptureFile, captured};
use warpline_tools::output::{OutputFile, note};

use crate::adapter::SoftwareAdapter;
use crate::failure::Failure;

/// The device.
#[derive(Args, Clone, Debug)]
pub struct DeviceOption {
    /// The device with its address: af_packet:eth1,mtu=9000,address=198.18.0.2/24. With cores=0-1 it has a
    /// core on each of these CPUs.
    #[arg(long, value_name = "NAME")]
    pub device: DeviceName,
    /// More arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// Use MPA's CRC. Both ends must say `off` to turn it off.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,
    /// Put an adapter in software before the port, with a queue for each core that it fills by RSS.
    #[arg(long)]
    pub queue_per_core: bool,
    /// Write all frames to a capture in the pcapng format.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
}

/// A device that has started.
pub struct Started {
    device: Device,
    queues: Queues,
    /// How an adapter spreads segments; `None` with one core.
    spreading: Option<SteeringWatch>,
    /// Dropped after the device, whose last frames it carries.
    #[expect(dead_code, reason = "it is there to be dropped")]
    adapter: Option<SoftwareAdapter>,
}

impl Started {
    /// Returns what each core has done, and how its segments came to it, as JSON.
    pub fn cores(&self) -> Result<Value, Failure> {
        let cores = self.device.statistics_by_core().map_err(Failure::local)?;
        let differs = self.spreading.as_ref().is_some_and(SteeringWatch::adapter_differs);
        let queues = match self.queues {
            Queues::One => "one",
            Queues::PerCore if differs => "one for each core, with another hash",
            Queues::PerCore => "one for each core",
            Queues::Unsorted => "one for each core, which sorts it",
        };
        let of_core = |core: &Option<Statistics>| {
            core.as_ref().map(|core| {
                json!({
                    "connections": core.connections_opened,
                    "fpdus_received": core.fpdus_received,
                    "fpdus_sent": core.fpdus_sent,
                    "not_handed_over": core.dropped(DropCause::NotHandedOver),
                })
            })
        };
        Ok(json!({"queues": queues, "cores": cores.iter().map(of_core).collect::<Vec<_>>()}))
    }
}

impl Deref for Started {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl DeviceOption {
    /// Starts the device with a thread on each CPU that its name lists, or on any, that polls a core.
    pub fn start(&self) -> Result<Started, Failure> {
        let capture = OutputFile::open_some(self.pcap.as_deref()).map_err(Failure::local)?;
        let capture = capture.map(CaptureFile::begin).transpose().map_err(Failure::local)?;
        let name = &open::resolved(&self.device).map_err(Failure::local)?;
        let eal = open::eal(&[name], &self.eal).map_err(Failure::local)?;
        let cpus = open::cpus(name).map_err(Failure::local)?.unwrap_or_default();
        let crc = if self.crc.is_on() { CrcPolicy::Always } else { CrcPolicy::OffIfPeerAgrees };
        let config = DeviceConfig { crc, memory: open::hugepages(eal), ..name.config() };
        let cores = cpus.len();
        let starting = Starting { name, config, cpus, capture };
        if cores < 2 {
            if self.queue_per_core {
                return Err(Failure::local(
                    "--queue-per-core is for several cores: name their CPUs, as in cores=0-1",
                ));
            }
            let port = open::port(eal, name).map_err(Failure::local)?;
            return starting.on_one_core(port);
        }
        let (opened, adapter) = if self.queue_per_core {
            let (opened, adapter) = SoftwareAdapter::before(eal, name, cores)?;
            (opened, Some(adapter))
        } else {
            (open::ports(eal, name, cores).map_err(Failure::local)?, None)
        };
        Ok(Started { adapter, ..starting.on_cores(opened)? })
    }
}

/// What a device starts with.
struct Starting<'n> {
    name: &'n DeviceName,
    config: DeviceConfig,
    /// The CPUs that poll, one for each core; none for a single core on any.
    cpus: Vec<usize>,
    capture: Option<CaptureFile>,
}

impl Starting<'_> {
    fn on_one_core(self, port: DpdkDevice) -> Result<Started, Failure> {
        let poll = PollThread { lcore: self.cpus.first().copied(), ..PollThread::default() };
        let started = match self.capture {
            None => Device::start(port, &self.config, poll),
            Some(file) => {
                let tap = captured(port, file, self.name.kind().word()).map_err(Failure::local)?;
                Device::start(tap, &self.config, poll)
            }
        };
        let device = started.map_err(Failure::local)?;
        Ok(Started { device, queues: Queues::One, spreading: None, adapter: None })
    }

    fn on_cores(self, opened: OpenedPorts) -> Result<Started, Failure> {
        if let Some(warning) = opened.warning() {
            note!("warning: {warning}");
        }
        let queues = opened.queues();
        let poll = |cpu| PollThread { lcore: Some(cpu), ..PollThread::default() };
        let polls: Vec<_> = self.cpus.into_iter().map(poll).collect();
        let (started, spreading) = match self.capture {
            None => {
                let (devices, steering) = opened.into_parts();
                let spreading = devices[0].watch();
                (Device::start_cores(devices, &steering, &self.config, &polls), spreading)
            }
            Some(file) => {
                let interface = self.name.kind().word();
                let parts = opened.into_parts_in(|device| captured(device, file.clone(), interface));
                let (devices, steering) = parts.map_err(Failure::local)?;
                let spreading = devices[0].watch();
                (Device::start_cores(devices, &steering, &self.config, &polls), spreading)
            }
        };
        let device = started.map_err(Failure::local)?;
        Ok(Started { device, queues, spreading, adapter: None })
    }
}
