//! The command line of `floor`.

use std::path::PathBuf;

use clap::Args;
use warpline_tools::arguments::Switch;

use crate::arguments::parse_region;
use crate::placement::parse_cpu;

/// The smallest region.
const REGION_LEAST: &str = "64k";

/// `floor`.
#[derive(Args, Debug, Clone)]
pub struct Floor {
    /// Arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// The largest IP packets in bytes. A frame carries 72 bytes less: those of IPv4, TCP with timestamps,
    /// MPA, DDP and RDMAP.
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', default_value = "1500,9000",
          value_parser = clap::value_parser!(u16).range(576..=9600))]
    pub mtu: Vec<u16>,
    /// Bytes of the memory that is copied from, and of the memory that is copied to.
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', default_value = "1M,256M",
          value_parser = |text: &str| parse_region(text, REGION_LEAST))]
    pub region: Vec<u32>,
    /// With CRC, without, or both.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "on,off")]
    pub crc: Vec<Switch>,
    /// How long to measure each figure, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = parse_seconds, default_value = "1")]
    pub duration: f64,
    /// The CPUs that work: two for the hand-off. Without it, the idlest two that are free, or the idlest one.
    #[arg(long, visible_alias = "cpu", value_name = "CPU", value_delimiter = ',', num_args = 1..=2,
          value_parser = parse_cpu)]
    pub cpus: Vec<usize>,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Parses a duration in seconds.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.01..=60.0).contains(seconds))
        .ok_or_else(|| format!("'{text}' is not a duration: write 0.01 to 60 seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_and_durations_have_bounds() {
        let parse_region = |text: &str| parse_region(text, REGION_LEAST);
        assert_eq!(parse_region("64k"), Ok(1 << 16));
        assert_eq!(parse_region("1G"), Ok(1 << 30));
        assert_eq!(parse_region("1M"), Ok(1 << 20));
        assert_eq!(parse_region("1024M"), Ok(1 << 30));
        for wrong in ["63k", "1025M", "2G", "x", ""] {
            assert!(parse_region(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for wrong in ["0", "61", "NaN", "-1", "s"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
