//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use warpline::Cidr;

use super::opening::{Opening, Role};
use super::setup::Setup;

/// Exchanges files with another iWARP endpoint by RDMA Writes.
#[derive(Parser, Debug)]
#[command(version, about)]
pub struct Arguments {
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
    /// Wait for the other end at this port.
    #[arg(long, value_name = "PORT", required_unless_present = "connect", conflicts_with = "connect")]
    pub listen: Option<u16>,
    /// Connect to the other end, at an address like 198.18.0.1:7471 or [fd00::1]:7471.
    #[arg(long, value_name = "ADDR:PORT")]
    pub connect: Option<SocketAddr>,
    /// The file to write into the other end's memory.
    #[arg(long, value_name = "FILE")]
    pub send: PathBuf,
    /// Where to store what the other end wrote.
    #[arg(long, value_name = "FILE")]
    pub receive: PathBuf,
    /// Octets of our buffer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub receive_octets: u32,
    /// Ask the other end for MPA Markers.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub markers: Switch,
    /// Use MPA's CRC. `off` takes both ends.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,
    /// How the connection is set up. Without --revision it is 1, which every peer understands.
    #[command(flatten)]
    pub setup: Setup,
    /// Who starts MPA, and when.
    #[command(flatten)]
    pub opening: Opening,
    /// Write all frames to a capture in the pcapng format.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// How long all of it may take, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "60")]
    pub timeout: Duration,
    /// How long MPA's startup may take, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "10")]
    pub startup_timeout: Duration,
    /// Succeed if the connection fails, and say how.
    #[arg(long)]
    pub expect_error: bool,
}

impl Arguments {
    /// Whether we are MPA's Initiator.
    pub fn initiator(&self) -> bool {
        self.opening.role.map_or(self.connect.is_some(), |role| role == Role::Initiator)
    }
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

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds"))
}
