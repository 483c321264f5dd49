//! The command lines of the tests. The letters and most of the words are perftest's; what a test has no use
//! for is not among its options, so it is refused.

use clap::{Args, ValueEnum};
use warpline_tools::arguments::Switch;
use warpline_tools::setup::Setup;

use super::plan::Verify;
use crate::arguments::{DeviceArguments, RunArguments, parse_region, parse_size};

/// The smallest region.
const REGION_LEAST: &str = "1";
/// The most messages outstanding on a queue pair.
pub const DEPTH_MAX: u32 = 8192;
/// The most queue pairs of an end. The room of its device is the closer bound, or their memory.
pub const QPS_MAX: u32 = 1_000_000;

/// What every test has.
#[derive(Args, Debug, Clone)]
pub struct Common {
    /// The device and the ends in this process. The end that listens takes the options of the test from the
    /// end that connects.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// How long to measure each size, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600),
          conflicts_with_all = ["iters", "listen"])]
    pub duration: Option<u32>,
    /// How many messages to measure for each size and queue pair; in a latency test, how many pings.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          conflicts_with = "listen")]
    pub iters: Option<u64>,
    /// How much of what arrives is compared with what was sent: messages from time to time while the test
    /// runs, all of them, or nothing.
    #[arg(long, value_enum, default_value_t = Verify::Sample, num_args = 0..=1, default_missing_value = "all",
          conflicts_with = "listen")]
    pub verify: Verify,
    /// Invert a bit before the Nth comparison of this end, in what is compared: the run must then fail. With
    /// both ends in this process it holds for each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub damage: Option<u64>,
    /// Sleep until something arrives or a timer is due, instead of polling all the time.
    #[arg(long, short = 'e')]
    pub events: bool,
    /// Report how much CPU time this process took, and how many polls of each end found nothing to do: a poll
    /// loop takes all of its CPU's time.
    #[arg(long, visible_alias = "cpu_util", conflicts_with = "listen")]
    pub cpu_util: bool,
    /// Nothing: connections are always set up by a connection manager, MPA's. For command lines of perftest.
    #[arg(long = "rdma_cm", short = 'R')]
    pub rdma_cm: bool,
    /// Nothing: the frequency of CPUs is not looked at. For command lines of perftest.
    #[arg(short = 'F')]
    pub frequency: bool,
    /// Refused: a device has one port. See --device.
    #[arg(long = "ib-port", short = 'i', value_name = "PORT", value_parser = refuse_ib_port)]
    pub ib_port: Option<u8>,
    /// Ask the peer for MPA Markers, in both directions.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub markers: Switch,
    /// Use MPA's CRC. Both ends must say `off` to turn it off.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,
    /// Let small messages that wait share segments. The end that sends decides.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub packing: Switch,
    /// How connections are set up. Without --revision it is `auto`.
    #[command(flatten)]
    pub setup: Setup,
    /// Where it runs, and what it writes.
    #[command(flatten)]
    pub run: RunArguments,
}

/// The sizes of messages.
#[derive(Args, Debug, Clone, Default)]
pub struct Sizes {
    /// Bytes of a message; without it, a sweep over sizes.
    #[arg(long, short, value_parser = parse_size, conflicts_with = "listen")]
    pub size: Option<u32>,
    /// Sweep over the sizes of perftest's `-a`, every power of two from 2 bytes to 8 MiB (the default without
    /// --size).
    #[arg(long, short, conflicts_with_all = ["size", "listen"])]
    pub all: bool,
}

/// The memory that messages go to.
#[derive(Args, Debug, Clone, Default)]
pub struct Target {
    /// Bytes that messages go to one after the other, and then again (default 1M, and a message at least):
    /// 256M is more than the caches hold.
    #[arg(long, value_name = "BYTES", value_parser = |text: &str| parse_region(text, REGION_LEAST),
          conflicts_with = "listen")]
    pub region: Option<u32>,
    /// Have the messages of all queue pairs go to the same region: then thousands of queue pairs need no
    /// memory each. Needs --verify off.
    #[arg(long, conflicts_with = "listen")]
    pub one_region: bool,
}

/// Bandwidth.
#[derive(Args, Debug, Clone)]
pub struct Bandwidth {
    /// Queue pairs, each on a connection of its own. At either end they may have half of the connections that
    /// the device has room for: connections= of the device says how many those are.
    #[arg(long, short, visible_alias = "qp",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QPS_MAX)),
          default_value_t = 1, conflicts_with = "listen")]
    pub qps: u32,
    /// Messages outstanding on each queue pair, from the start to the end.
    #[arg(long, short = 't', visible_alias = "tx-depth",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)), default_value_t = 128,
          conflicts_with = "listen")]
    pub depth: u32,
    /// Connect N more queue pairs between the same devices, and leave them idle.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..i64::from(QPS_MAX)),
          conflicts_with = "listen")]
    pub idle: Option<u32>,
    /// Send in both directions at the same time. The figures are the sums.
    #[arg(long, short, conflicts_with = "listen")]
    pub bidirectional: bool,
    /// One completion for every N messages.
    #[arg(long, short = 'Q', value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
          default_value_t = 1, conflicts_with = "listen")]
    pub cq_mod: u32,
    /// Post always N messages together (without it, as many as there is room for, 16 at most); 64 between
    /// two polls, or up to N - 1 more.
    #[arg(long, short = 'l', visible_alias = "post_list", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=warpline::SendBatch::CAPACITY as i64),
          conflicts_with = "listen")]
    pub post_list: Option<u32>,
    /// Send at most this many Gb/s on each queue pair, counted in TCP's payload: each end for itself.
    #[arg(long, visible_alias = "rate_limit", value_name = "GBPS", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Fail if the average is below this many Gb/s.
    #[arg(long, short = 'w', visible_alias = "limit_bw", value_name = "GBPS", value_parser = parse_limit,
          conflicts_with = "listen")]
    pub limit_bw: Option<f64>,
    /// Fail if there are fewer than this many million messages a second.
    #[arg(long, short = 'y', visible_alias = "limit_msgrate", value_name = "MMPS",
          value_parser = parse_limit, conflicts_with = "listen")]
    pub limit_msgrate: Option<f64>,
    /// Run until interrupted, with a line every --duration seconds (default 5), and the whole at the end.
    #[arg(long, visible_alias = "run_infinitely",
          conflicts_with_all = ["iters", "bidirectional", "listen"])]
    pub run_infinitely: bool,
}

/// Latency.
#[derive(Args, Debug, Clone, Default)]
pub struct Latency {
    /// Print and report all times, as a histogram.
    #[arg(long, short = 'H', conflicts_with = "listen")]
    pub report_histogram: bool,
    /// Print and report all times, in the order in which they were measured: at most a million.
    #[arg(long, short = 'U', conflicts_with_all = ["duration", "listen"])]
    pub report_unsorted: bool,
    /// Measure twice: alone, and then while N more queue pairs between the same devices stream RDMA Writes of
    /// 64 KiB to the other end. The figures are those of the second time. The rate of the Writes follows, and
    /// the median alone, and how often that goes into the 99th percentile.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..i64::from(QPS_MAX)),
          conflicts_with = "listen")]
    pub beside: Option<u32>,
}

/// Payload in the work requests.
#[derive(Args, Debug, Clone, Default)]
pub struct Inlining {
    /// Put the payload of messages of at most this many bytes into their work requests: 64 at most.
    #[arg(long, short = 'I', visible_alias = "inline_size", value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..=warpline::limits::INLINE_BYTES as i64),
          conflicts_with = "listen")]
    pub inline_size: Option<u32>,
}

/// Receives.
#[derive(Args, Debug, Clone, Default)]
pub struct Receiving {
    /// Receives of a queue pair, or of the shared receive queue, each with a buffer of its own. Without it,
    /// as many as the region holds, at least 2 and at most 512. Each end decides for itself.
    #[arg(long, short = 'r', value_name = "N",
          value_parser = clap::value_parser!(u32).range(2..=i64::from(DEPTH_MAX)))]
    pub rx_depth: Option<u32>,
    /// Let all queue pairs take their receives from one queue. Each end decides for itself.
    #[arg(long, visible_alias = "use_srq")]
    pub use_srq: bool,
}

/// The kind of Atomic Operations.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AtomicType {
    /// FetchAdd.
    #[default]
    #[value(name = "FETCH_AND_ADD", alias = "fetch-add")]
    FetchAdd,
    /// CmpSwap.
    #[value(name = "CMP_AND_SWAP", alias = "compare-swap")]
    CompareSwap,
}

/// Atomic Operations.
#[derive(Args, Debug, Clone, Default)]
pub struct Atomic {
    /// The Atomic Operation.
    #[arg(long, short = 'A', visible_alias = "atomic_type", value_enum,
          default_value_t = AtomicType::FetchAdd, conflicts_with = "listen")]
    pub atomic_type: AtomicType,
}

/// Defines the command line of a test: the groups of options that it has.
macro_rules! command {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $group:ty),* }) => {
        $(#[$doc])*
        #[derive(Args, Debug, Clone)]
        pub struct $name {
            /// What every test has.
            #[command(flatten)]
            pub common: Common,
            $(
                /// A group of options.
                #[command(flatten)]
                pub $field: $group,
            )*
        }
    };
}

command!(
    /// `write-bw`.
    WriteBw { sizes: Sizes, target: Target, bandwidth: Bandwidth, inlining: Inlining }
);
command!(
    /// `read-bw`.
    ReadBw { sizes: Sizes, target: Target, bandwidth: Bandwidth }
);
command!(
    /// `send-bw`.
    SendBw { sizes: Sizes, target: Target, bandwidth: Bandwidth, inlining: Inlining, receiving: Receiving }
);
command!(
    /// `atomic-bw`.
    AtomicBw { bandwidth: Bandwidth, atomic: Atomic }
);
command!(
    /// `write-lat`.
    WriteLat { sizes: Sizes, latency: Latency, inlining: Inlining }
);
command!(
    /// `read-lat`.
    ReadLat { sizes: Sizes, latency: Latency }
);
command!(
    /// `send-lat`.
    SendLat { sizes: Sizes, latency: Latency, inlining: Inlining, receiving: Receiving }
);
command!(
    /// `atomic-lat`.
    AtomicLat { latency: Latency, atomic: Atomic }
);

fn refuse_ib_port(_: &str) -> Result<u8, String> {
    Err("a device has one port, which is part of its name: leave out -i, and name the device with -d".into())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    parse_limit(text)
        .ok()
        .filter(|rate| *rate > 0.0)
        .ok_or_else(|| format!("'{text}' is not a rate: write a number of Gb/s above 0"))
}

fn parse_limit(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|limit: &f64| limit.is_finite() && *limit >= 0.0)
        .ok_or_else(|| format!("'{text}' is not a limit: write a number, 0 or more"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::super::settings::sweep;
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

    #[test]
    fn regions_are_larger_than_messages() {
        let parse_region = |text: &str| parse_region(text, REGION_LEAST);
        assert_eq!(parse_region("256M"), Ok(256 << 20));
        assert_eq!(parse_region("1G"), Ok(1 << 30));
        for wrong in ["0", "2G", "4G", "1025M", "G", "x"] {
            assert!(parse_region(wrong).is_err(), "{wrong}");
        }
    }
}
