//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::opening::{Opening, Role};
use super::port::{Port, Switch};
use super::setup::Setup;

/// Exchanges files with another iWARP endpoint by RDMA Writes.
#[derive(Parser, Debug)]
#[command(version, about)]
pub struct Arguments {
    /// The device.
    #[command(flatten)]
    pub port: Port,
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
    /// How the connection is set up. Without --revision it is 1, which every peer understands.
    #[command(flatten)]
    pub setup: Setup,
    /// Who starts MPA, and when.
    #[command(flatten)]
    pub opening: Opening,
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

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds"))
}
