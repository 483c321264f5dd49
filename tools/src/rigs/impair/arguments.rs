//! The command line of `impair`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use warpline::link::fault::Impairments;
use warpline::time::{MICROSECOND, MILLISECOND, SECOND};
use warpline::{DeviceName, DeviceNameError};

/// `impair`.
#[derive(Args, Debug, Clone)]
pub struct Impair {
    /// One device, as in af_packet:eth1 or pci:0000:01:00.0. It has no address of its own.
    #[arg(long, value_name = "NAME")]
    left: DeviceName,
    /// The other device.
    #[arg(long, value_name = "NAME")]
    right: DeviceName,
    /// More arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// The largest IP packet in bytes, 576 to 9600 (default 1500): as mtu= of both devices.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..=9600))]
    mtu: Option<u16>,
    /// The direction in which frames are lost, duplicated, reordered, corrupted and resegmented. Delay and
    /// rate hold in both.
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
    /// Bytes that may wait for the line; frames beyond that are lost. Only with --rate.
    #[arg(long, value_name = "BYTES", requires = "rate", default_value_t = u64::MAX,
          hide_default_value = true)]
    queue: u64,
    /// The seed of all random decisions.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long to forward, in seconds; without it, until standard input ends (Ctrl-D).
    #[arg(long, short = 'D', value_name = "S")]
    pub duration: Option<u32>,
    /// Poll without a pause: most punctual, for a CPU of its own.
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

impl Impair {
    /// Returns the devices, left and right.
    ///
    /// # Errors
    ///
    /// [`DeviceNameError`] if the MTU is given twice.
    pub fn devices(&self) -> Result<[DeviceName; 2], DeviceNameError> {
        let with_mtu = |device: &DeviceName| match self.mtu {
            Some(mtu) => device.with_option("mtu", mtu),
            None => Ok(device.clone()),
        };
        Ok([with_mtu(&self.left)?, with_mtu(&self.right)?])
    }

    /// Returns the impairments of frames from left to right.
    pub fn to_right(&self) -> Impairments {
        self.impairments(Way::ToRight)
    }

    /// Returns the impairments of frames from right to left.
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

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        impair: Impair,
    }

    fn parse(more: &[&str]) -> Impair {
        let devices = ["x", "--left", "eal:net_null0,size=64", "--right", "pci:0000:01:00.0"];
        Line::try_parse_from(devices.iter().chain(more)).unwrap().impair
    }

    #[test]
    fn one_mtu_serves_both_devices() {
        let named = |more: &[&str]| parse(more).devices().unwrap().map(|device| device.to_string());
        assert_eq!(named(&[]), ["eal:net_null0,size=64", "pci:0000:01:00.0"]);
        assert_eq!(
            named(&["--mtu", "9000"]),
            ["eal:net_null0,mtu=9000,size=64", "pci:0000:01:00.0,mtu=9000"]
        );
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
