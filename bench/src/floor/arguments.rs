//! The command line of `floor`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::parse_size;

/// `floor`.
#[derive(Args, Debug, Clone)]
pub struct Floor {
    /// Arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// The largest IP packet in bytes: a frame carries 40 bytes less, those of its headers.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..=9600),
          default_value_t = 1500)]
    pub mtu: u16,
    /// Bytes of a message; the destination holds as many messages as write-bw's does.
    #[arg(long, short, value_parser = parse_size, default_value = "64k")]
    pub size: u32,
    /// How long to measure, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = clap::value_parser!(u32).range(1..=60),
          default_value_t = 2)]
    pub duration: u32,
    /// The CPU that computes. Without it, the idlest.
    #[arg(long = "cpu", value_name = "CPU", num_args = 1)]
    pub cpus: Vec<usize>,
    /// Write the result as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
