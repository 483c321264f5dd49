//! The command line of `cores`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use warpline::limits;

use super::course::SLICE;
use crate::arguments::parse_size;
use crate::error::BenchError;
use crate::floor::parse_seconds;
use crate::placement::parse_cpu;

/// What is measured.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurement {
    /// One device of several cores, beside as many devices of one core.
    Scale,
    /// Registering memory that several cores have, and deregistering it.
    Deregister,
    /// The goodput of cores beside one that is not polled.
    Stall,
    /// A frame that one core receives for another, beside the bare ring between two cores.
    HandOver,
}

/// What the queue pairs of different cores share.
#[derive(ValueEnum, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// Nothing: each core's have a Protection Domain, a region and a completion queue of their own.
    Nothing,
    /// One Protection Domain and one region of each device.
    Domain,
    /// One completion queue of the near device, which the first thread polls for all.
    Queue,
}

/// `cores`.
#[derive(Args, Debug, Clone)]
pub struct CoresCommand {
    /// What to measure.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT,..",
        value_delimiter = ',',
        default_value = "scale,deregister,stall,hand-over"
    )]
    pub only: Vec<Measurement>,
    /// Cores of each device (default 2; for deregister 8).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=64))]
    pub cores: Option<u8>,
    /// The CPUs whose threads poll the cores, which they take in turn: with 3 cores on 2 CPUs the first has
    /// 2. Without it, one for each core, or all that this process may use if these are fewer.
    #[arg(long, value_name = "CPU,..", value_delimiter = ',', num_args = 1.., value_parser = parse_cpu)]
    pub cpus: Vec<usize>,
    /// What the queue pairs of different cores share.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT,..",
        value_delimiter = ',',
        default_value = "nothing,domain,queue"
    )]
    pub share: Vec<Share>,
    #[command(flatten)]
    pub traffic: Traffic,
    /// The largest IP packet in bytes.
    #[arg(long, value_name = "BYTES", default_value = "1500",
          value_parser = clap::value_parser!(u16).range(576..=9600))]
    pub mtu: u16,
    /// How long to measure each ratio, in seconds: in slices of 50 ms, of the one and of the other in turn.
    #[arg(long, short = 'D', value_name = "S", value_parser = parse_seconds, default_value = "2")]
    pub duration: f64,
    /// How many pairs of slices to measure for each ratio, in place of a duration.
    #[arg(long, value_name = "N", conflicts_with = "duration",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub pairs: Option<u32>,
    /// More arguments for DPDK's EAL, as one string: "--no-huge -m 512".
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// Write the results as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The RDMA Writes.
#[derive(Args, Serialize, Clone, Copy, Debug)]
pub struct Traffic {
    /// Bytes of a Write.
    #[arg(long, short, value_name = "BYTES", default_value = "64", value_parser = parse_size)]
    pub size: u32,
    /// Writes that a queue pair may have outstanding. Those of all queue pairs of a core report to one
    /// completion queue, or those of all cores (--share queue), which holds 1048576.
    #[arg(long, value_name = "N", default_value = "128",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// Queue pairs of each core.
    #[arg(long, short, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub qps: u32,
}

impl Traffic {
    /// Returns how much memory the Writes of the queue pairs of a core come from, and go to: a place for each
    /// that one of them may have outstanding.
    pub const fn lane_bytes(&self) -> usize {
        self.size as usize * self.depth as usize
    }

    /// Returns how many Writes all queue pairs of a core may have outstanding.
    pub const fn outstanding(&self) -> usize {
        self.qps as usize * self.depth as usize
    }
}

/// How much a measurement takes.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Cores of each device.
    pub cores: usize,
    /// Pairs of slices.
    pub pairs: u32,
}

impl CoresCommand {
    /// Checks that the completions of all Writes that may be outstanding fit into a queue.
    ///
    /// # Errors
    ///
    /// [`CommandError::Options`](warpline_tools::error::CommandError::Options).
    pub fn check(&self) -> Result<(), BenchError> {
        let has_traffic =
            |measurement: &&Measurement| matches!(measurement, Measurement::Scale | Measurement::Stall);
        let reporting = self.only.iter().filter(has_traffic).map(|measurement| {
            let together = *measurement == Measurement::Scale && self.share.contains(&Share::Queue);
            if together { self.cores_for(*measurement) } else { 1 }
        });
        let cores = reporting.max().unwrap_or(0);
        let (outstanding, most) = (cores * self.traffic.outstanding(), limits::COMPLETIONS_PER_QUEUE);
        if outstanding <= most {
            return Ok(());
        }
        let Traffic { depth, qps, .. } = self.traffic;
        let queue = if cores > 1 { format!(" of {cores} cores (--share queue)") } else { String::new() };
        let fits = most / (cores * qps as usize);
        Err(BenchError::options(format!(
            "--qps {qps} times --depth {depth}{queue} is {outstanding} Writes, and a completion queue holds \
             {most}: with so many queue pairs --depth is {fits} at most"
        )))
    }

    /// Returns how many cores each device has for `measurement`.
    pub fn cores_for(&self, measurement: Measurement) -> usize {
        let usual = if measurement == Measurement::Deregister { 8 } else { 2 };
        // Frames are handed over from one core to another, whatever there is else.
        let wanted = self.cores.filter(|_| measurement != Measurement::HandOver);
        wanted.map_or(usual, usize::from)
    }

    /// Returns how many cores a device has at most.
    pub fn cores_at_most(&self) -> usize {
        self.only.iter().map(|measurement| self.cores_for(*measurement)).max().unwrap_or(1)
    }

    /// Returns how many pairs of slices are measured for a ratio.
    pub fn pairs(&self) -> u32 {
        let fitting = (Duration::from_secs_f64(self.duration).as_nanos() / (2 * SLICE).as_nanos()) as u32;
        self.pairs.unwrap_or(fitting).max(1)
    }
}
