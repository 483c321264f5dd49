//! The command line of `instructions`.

use std::path::PathBuf;

use clap::Args;

/// `instructions`.
#[derive(Args, Debug, Clone)]
pub struct Instructions {
    /// Arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// The cases to run, all of them without this.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Write the counts of each phase as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
