//! The command line of `reassembly`.

use std::path::PathBuf;

use clap::Args;

/// Most connections of one run: each has a port, from 1024 on.
const CONNECTIONS_MAX: u32 = 60_000;

/// `reassembly`.
#[derive(Args, Debug, Clone)]
pub struct Reassembly {
    /// The numbers of connections, one run for each.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', default_value = "10,100,1000,10000",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub connections: Vec<u32>,
    /// Segments that each connection sends.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000),
          default_value_t = 40)]
    pub segments: u32,
    /// The share of segments, in percent, that later segments overtake.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=50),
          default_value_t = 5)]
    pub reorder: u8,
    /// The seed of all random decisions.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a plot of the results as SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
