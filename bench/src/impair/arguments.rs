//! The command line of `impair`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use warpline_dataplane::device::fault::Impairments;
use warpline_dataplane::time::{MICROSECOND, MILLISECOND, SECOND};

/// `impair`.
#[derive(Args, Debug, Clone)]
pub struct Impair {
    /// One device: a virtual one as DPDK's --vdev names it (net_af_packet0,iface=e1), or the address of a PCI device.
    #[arg(long, value_name = "DEVICE")]
    pub left: Endpoint,
    /// The other device.
    #[arg(long, value_name = "DEVICE")]
    pub right: Endpoint,
    /// More arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    eal: String,
    /// Largest IP packet, in octets.
    #[arg(long, value_parser = clap::value_parser!(u16).range(576..=9600), default_value_t = 1500)]
    pub mtu: u16,
    /// Which frames are lost, duplicated, reordered, corrupted and resegmented. Delay and rate hold both ways.
    #[arg(long, value_enum, default_value_t = Way::Both)]
    way: Way,
    /// Probability that a frame is lost, as 0.01 or 1%.
    #[arg(long, value_name = "P", value_parser = parse_probability, default_value = "0")]
    loss: f64,
    /// Probability that a frame arrives twice.
    #[arg(long, value_name = "P", value_parser = parse_probability, default_value = "0")]
    duplicate: f64,
    /// Probability that a frame is held back, so that later ones overtake it.
    #[arg(long, value_name = "P", value_parser = parse_probability, default_value = "0")]
    reorder: f64,
    /// How long a reordered frame is held back at most, as 500us or 2ms.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "500us")]
    reorder_delay: u64,
    /// Probability that one bit of a frame is inverted.
    #[arg(long, value_name = "P", value_parser = parse_probability, default_value = "0")]
    corrupt: f64,
    /// Probability that a TCP segment is cut, or joined with the one before it.
    #[arg(long, value_name = "P", value_parser = parse_probability, default_value = "0")]
    resegment: f64,
    /// How long a frame takes, each way.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "0us")]
    delay: u64,
    /// How much longer it may take; the order stays.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "0us")]
    jitter: u64,
    /// Bits per second of the line, each way.
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// Octets that may wait for the line; what comes on top is lost. Only with --rate.
    #[arg(long, value_name = "OCTETS", requires = "rate", default_value_t = u64::MAX, hide_default_value = true)]
    queue: u64,
    /// What chance decides follows from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long to forward, in seconds; without it, until standard input ends (Ctrl-D).
    #[arg(long, short = 'D', value_name = "S")]
    pub duration: Option<u32>,
    /// Never nap: most punctual, for a CPU of its own.
    #[arg(long)]
    pub spin: bool,
    /// Write the counters as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Directions.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "kebab-case")]
enum Way {
    /// Both ways.
    Both,
    /// From the left to the right device.
    ToRight,
    /// From the right to the left device.
    ToLeft,
}

/// A device by what DPDK is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

impl std::str::FromStr for Endpoint {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl Endpoint {
    /// The name of its port.
    pub fn port(&self) -> &str {
        self.0.split(',').next().unwrap_or(&self.0)
    }

    /// The argument that makes or takes it: virtual devices have their driver's name.
    fn argument(&self) -> String {
        let kind = if self.0.starts_with("net_") { "--vdev" } else { "--allow" };
        format!("{kind}={}", self.0)
    }
}

impl Impair {
    /// The EAL's arguments.
    pub fn eal(&self) -> String {
        format!("{} {} {}", self.eal, self.left.argument(), self.right.argument()).trim().to_owned()
    }

    /// What happens to frames from left to right.
    pub fn to_right(&self) -> Impairments {
        self.impairments(Way::ToRight)
    }

    /// What happens to frames from right to left.
    pub fn to_left(&self) -> Impairments {
        self.impairments(Way::ToLeft)
    }

    fn impairments(&self, way: Way) -> Impairments {
        let line = Impairments {
            delay_min_ns: self.delay,
            delay_max_ns: self.delay.saturating_add(self.jitter),
            rate_bits_per_second: self.rate,
            queue_octets: self.queue,
            ..Impairments::default()
        };
        if self.way != Way::Both && self.way != way {
            return line;
        }
        Impairments {
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            reorder_delay_ns: self.reorder_delay,
            corrupt_bits: self.corrupt,
            resegment: self.resegment,
            ..line
        }
    }
}

fn parse_probability(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let value = number.parse::<f64>().ok().map(|value| value / scale);
    let value = value.filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| format!("'{text}' is not a probability: write it like 0.01 or 1%"))
}

/// Longest delay taken: a longer one is a slip of the unit.
const LONGEST_NS: u64 = 60 * SECOND;

/// Nanoseconds.
fn parse_time(text: &str) -> Result<u64, String> {
    let units = [("us", MICROSECOND), ("ms", MILLISECOND), ("s", SECOND)];
    let split = units.iter().find_map(|(unit, nanos)| Some((text.strip_suffix(unit)?, *nanos)));
    let value = split.and_then(|(number, nanos)| Some(number.parse::<f64>().ok()? * nanos as f64));
    let value = value.filter(|nanos| (0.0..=LONGEST_NS as f64).contains(nanos));
    value
        .map(|nanos| nanos as u64)
        .ok_or_else(|| format!("'{text}' is not a time: write it like 500us or 1ms"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(more: &[&str]) -> Impair {
        let devices = ["x", "impair", "--left", "net_null0,size=64", "--right", "0000:01:00.0"];
        match Cli::try_parse_from(devices.iter().chain(more)).unwrap().command {
            Command::Impair(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn devices_are_virtual_or_on_pci() {
        let args = parse(&["--eal", "--no-huge -m 128"]);
        assert_eq!(args.eal(), "--no-huge -m 128 --vdev=net_null0,size=64 --allow=0000:01:00.0");
        assert_eq!((args.left.port(), args.right.port()), ("net_null0", "0000:01:00.0"));
    }

    #[test]
    fn faults_keep_to_their_way_and_the_line_is_the_same_both_ways() {
        let args = parse(&["--loss", "1%", "--reorder", "0.5", "--delay", "1ms", "--jitter", "250us"]);
        assert_eq!(args.to_left(), args.to_right());
        let faults = args.to_left();
        assert_eq!((faults.loss, faults.reorder, faults.reorder_delay_ns), (0.01, 0.5, 500_000));
        assert_eq!((faults.delay_min_ns, faults.delay_max_ns), (1_000_000, 1_250_000));
        let args = parse(&["--loss", "1%", "--way", "to-left", "--rate", "1000000", "--queue", "3000"]);
        assert_eq!((args.to_left().loss, args.to_right().loss), (0.01, 0.0));
        for line in [args.to_left(), args.to_right()] {
            assert_eq!((line.rate_bits_per_second, line.queue_octets), (Some(1_000_000), 3000));
            assert_eq!(line.delay_max_ns, 0);
        }
    }

    #[test]
    fn numbers_have_units_and_bounds() {
        assert_eq!(parse_probability("3%"), Ok(0.03));
        assert_eq!(parse_probability("1"), Ok(1.0));
        assert_eq!((parse_time("1.5ms"), parse_time("0s")), (Ok(1_500_000), Ok(0)));
        for wrong in ["", "%", "-1%", "101%", "1.01", "NaN"] {
            assert!(parse_probability(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "1", "ms", "-1ms", "61s", "1h", "NaNms"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
