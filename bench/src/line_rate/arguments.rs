//! The command line of `line-rate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use warpline_tools::arguments::Switch;

use crate::arguments::parse_size;
use crate::placement::parse_cpu;

/// `line-rate`. Lists make a row of each combination.
#[derive(Args, Debug, Clone)]
pub struct LineRate {
    /// Arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// What the core does.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "transmit,receive")]
    pub direction: Vec<Direction>,
    /// The largest IP packets in bytes.
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', default_value = "1500,9000",
          value_parser = clap::value_parser!(u16).range(576..=9600))]
    pub mtu: Vec<u16>,
    /// Bytes of a message.
    #[arg(long, short, value_name = "BYTES,..", value_delimiter = ',', default_value = "64,64k",
          value_parser = parse_size)]
    pub size: Vec<u32>,
    /// MPA Markers.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "off")]
    pub markers: Vec<Switch>,
    /// MPA's CRC.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "on")]
    pub crc: Vec<Switch>,
    /// Let small messages share segments.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "on")]
    pub packing: Vec<Switch>,
    /// Connections, with a queue pair each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256),
          default_value_t = 1)]
    pub connections: u16,
    /// How long to measure each row, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = crate::floor::parse_seconds,
          default_value = "1")]
    pub duration: f64,
    /// The CPU of the core. Without it, the idlest.
    #[arg(long, value_name = "CPU", value_parser = parse_cpu)]
    pub cpu: Option<usize>,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// What the core does.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// RDMA Writes go into a device that drops them.
    Transmit,
    /// RDMA Writes come from a generator.
    Receive,
}
