//! The device: which, and how it is started.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use warpline::{Cidr, CrcPolicy, Device, DeviceConfig, PollThread, open};
use warpline_dataplane::device::tap::{Tap, TapConfig};

use super::failure::Failure;

/// The device.
#[derive(Args, Clone, Debug)]
pub struct Port {
    /// DPDK's driver: its device is called net_tap0, net_af_packet0 or net_af_xdp0.
    #[arg(long, value_enum)]
    pub backend: Backend,
    /// Arguments for DPDK's EAL, as one string; the device is among them (--vdev=net_tap0,iface=tap0).
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub eal: String,
    /// Largest IP packet, in octets.
    #[arg(long, value_parser = clap::value_parser!(u16).range(576..=9600), default_value_t = 1500)]
    pub mtu: u16,
    /// Our address, with the prefix of its network: 198.18.0.2/24, fd00::2/64.
    #[arg(long, value_name = "ADDR/PREFIX")]
    pub address: Cidr,
    /// The VLAN that all frames belong to.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Use MPA's CRC. `off` takes both ends.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,
    /// Write all frames to a capture in the pcapng format.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
}

/// DPDK's driver.
#[derive(ValueEnum, Clone, Copy, Debug)]
#[value(rename_all = "snake_case")]
pub enum Backend {
    /// A tap interface of the kernel.
    Tap,
    /// A packet socket on an interface of the kernel.
    AfPacket,
    /// An express data path socket on an interface of the kernel.
    AfXdp,
}

impl Backend {
    /// The name of its port.
    pub const fn port(self) -> &'static str {
        match self {
            Self::Tap => "net_tap0",
            Self::AfPacket => "net_af_packet0",
            Self::AfXdp => "net_af_xdp0",
        }
    }
}

/// On or off.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

impl Port {
    /// Starts the device with a thread that polls it.
    pub fn start(&self) -> Result<Device, Failure> {
        let eal = open::eal(&self.eal).map_err(Failure::local)?;
        let port = open::port(eal, self.backend.port(), self.mtu).map_err(Failure::local)?;
        let crc = if self.crc.is_on() { CrcPolicy::Always } else { CrcPolicy::OffIfPeerAgrees };
        let Cidr { address, prefix_bits } = self.address;
        let config = DeviceConfig {
            crc,
            memory: open::hugepages(eal),
            vlan: self.vlan,
            ..DeviceConfig::new(address, prefix_bits)
        };
        let started = match &self.pcap {
            None => Device::start(port, &config, PollThread::default()),
            Some(path) => {
                let unreadable = |error| Failure::local(format!("{}: {error}", path.display()));
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let origin = since_1970.saturating_sub(Duration::from_nanos(warpline::now().as_nanos()));
                let capture = TapConfig { origin_unix_ns: origin.as_nanos() as u64, ..TapConfig::default() };
                let file = File::create(path).map_err(unreadable)?;
                let tap = Tap::new(port, file, &capture).map_err(unreadable)?;
                Device::start(tap, &config, PollThread::default())
            }
        };
        started.map_err(Failure::local)
    }
}
