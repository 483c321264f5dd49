//! The device of an end that `scripts/interop` drives.

use std::path::PathBuf;

use clap::Args;
use warpline::{CrcPolicy, Device, DeviceConfig, DeviceName, PollThread, open};
use warpline_tools::arguments::Switch;
use warpline_tools::capture::captured;
use warpline_tools::output::OutputFile;

use crate::failure::Failure;

/// The device.
#[derive(Args, Clone, Debug)]
pub struct DeviceOption {
    /// The device with its address: af_packet:eth1,mtu=9000,address=198.18.0.2/24.
    #[arg(long, value_name = "NAME")]
    pub device: DeviceName,
    /// More arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// Use MPA's CRC. Both ends must say `off` to turn it off.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,
    /// Write all frames to a capture in the pcapng format.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
}

impl DeviceOption {
    /// Starts the device with a thread that polls it.
    pub fn start(&self) -> Result<Device, Failure> {
        let capture = OutputFile::open_some(self.pcap.as_deref()).map_err(Failure::local)?;
        let eal = open::eal(&[&self.device], &self.eal).map_err(Failure::local)?;
        let port = open::port(eal, &self.device).map_err(Failure::local)?;
        let crc = if self.crc.is_on() { CrcPolicy::Always } else { CrcPolicy::OffIfPeerAgrees };
        let config = DeviceConfig { crc, memory: open::hugepages(eal), ..self.device.config() };
        let started = match capture {
            None => Device::start(port, &config, PollThread::default()),
            Some(file) => {
                let tap = captured(port, file, self.device.kind().word()).map_err(Failure::local)?;
                Device::start(tap, &config, PollThread::default())
            }
        };
        started.map_err(Failure::local)
    }
}
