//! The command line of `write-bw`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{DeviceArguments, Switch, parse_size};
use crate::setup::Setup;

/// `write-bw`. The letters are perftest's, where it has them.
#[derive(Args, Debug, Clone)]
pub struct WriteBw {
    /// The device and the ends in this process.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// Bytes of a message; without it, a sweep over sizes.
    #[arg(long, short, value_parser = parse_size)]
    pub size: Option<u32>,
    /// Sweep over the sizes of perftest's `-a`, every power of two from 2 bytes to 8 MiB (the default without
    /// --size).
    #[arg(long, short, conflicts_with = "size")]
    pub all: bool,
    /// Queue pairs, each on a connection of its own.
    #[arg(long, short, value_parser = clap::value_parser!(u32).range(1..=256), default_value_t = 1)]
    pub qps: u32,
    /// Writes outstanding on each queue pair.
    #[arg(long, short = 't', value_parser = clap::value_parser!(u32).range(1..=8192), default_value_t = 128)]
    pub depth: u32,
    /// How long to measure each size, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600),
          conflicts_with = "iters")]
    pub duration: Option<u32>,
    /// How many Writes to measure for each size and queue pair.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: Option<u64>,
    /// Ask the peer for MPA Markers, in both directions.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub markers: Switch,
    /// Use MPA's CRC. Both ends must say `off` to turn it off.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,
    /// How connections are set up. Without --revision it is `auto`.
    #[command(flatten)]
    pub setup: Setup,
    /// Let small Writes that wait share segments. The end that writes decides.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub packing: Switch,
    /// Compare every byte that arrived.
    #[arg(long, value_enum, default_value_t = Switch::On, num_args = 0..=1, default_missing_value = "on")]
    pub verify: Switch,
    /// The CPUs that poll: one for each end in this process, or a single one for both. Without it, the idlest
    /// two that are free, or the idlest one.
    #[arg(long, value_name = "CPU", value_delimiter = ',', num_args = 1..=2)]
    pub cpus: Vec<usize>,
    /// Write all frames to a capture in the pcapng format. Slows the run.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::super::sizes::sweep;
    use super::*;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        write_bw: WriteBw,
    }

    /// The help names the smallest and the largest size that the sweep has.
    #[test]
    fn the_help_says_which_sizes_the_sweep_has() {
        let help = Line::command().render_help().to_string();
        let sentence = help.split_once("every power of two from ").unwrap().1;
        let (range, _) = sentence.split_once(" (").unwrap();
        let words: Vec<&str> = range.split_whitespace().collect();
        let ["to", largest, "MiB"] = words[2..] else { panic!("{range}") };
        assert_eq!(words[1], "bytes");
        let bounds = [parse_size(words[0]).unwrap(), parse_size(&format!("{largest}M")).unwrap()];
        let sizes = sweep();
        assert_eq!(bounds, [sizes[0], sizes[sizes.len() - 1]]);
        assert!(sizes.windows(2).all(|pair| pair[1] == 2 * pair[0]), "every power of two");
    }
}
