//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use warpline::{Cidr, NotCidr};

use crate::impair::Impair;
use crate::ping::Ping;
use crate::reassembly::Reassembly;
use crate::setup::Setup;

/// Benchmarks and tools for warpline, a software RNIC.
#[derive(Parser, Debug)]
#[command(version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The measurements and tools.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Bandwidth of RDMA Writes, contents verified.
    WriteBw(WriteBw),
    /// rping's exchange, contents compared, with rping or another warpline: the time that each ping takes.
    Ping(Ping),
    /// What one core could do at most: a CRC pass and a copy pass over frames from a pool.
    Floor(Floor),
    /// A wire with faults between two devices: loss, delay, reordering, duplication, corruption.
    Impair(Impair),
    /// What a receiver keeps for reassembly, by how FPDUs lie in segments and by the number of connections.
    Reassembly(Reassembly),
}

/// Where frames go.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "snake_case")]
pub enum Backend {
    /// A wire in memory: both endpoints in this process.
    Ring,
    /// A TAP interface of the kernel (net_tap); MTU 1500 at most.
    Tap,
    /// An interface of the kernel by AF_PACKET (net_af_packet).
    AfPacket,
    /// An interface of the kernel by AF_XDP (net_af_xdp).
    AfXdp,
    /// A shared-memory interface to another process (net_memif).
    Memif,
    /// A vhost-user socket: the virtio_user of another process is at its other end.
    Vhost,
    /// A PCI device bound to vfio-pci or uio.
    Pci,
}

impl Backend {
    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tap => "tap",
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Memif => "memif",
            Self::Vhost => "vhost",
            Self::Pci => "pci",
        }
    }
}

/// A switch written `on` or `off`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// An address with the prefix of its network; without a prefix, 24 bits for IPv4 and 64 for IPv6.
pub fn parse_interface(text: &str) -> Result<Cidr, String> {
    match text.parse() {
        Ok(address) => Ok(with_usual_prefix(address)),
        Err(_) => text.parse().map_err(|error: NotCidr| error.to_string()),
    }
}

/// `address` on a network of the usual size.
pub fn with_usual_prefix(address: IpAddr) -> Cidr {
    Cidr::new(address, if address.is_ipv4() { 24 } else { 64 })
}

/// Octets, with an optional k or M.
pub fn parse_size(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    digits
        .parse::<u32>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|octets| (1..=MESSAGE_OCTETS_MAX).contains(octets))
        .ok_or_else(|| {
            format!("'{text}' is not a size: 1 to {MESSAGE_OCTETS_MAX} octets, k and M are understood")
        })
}

/// Largest message the benchmark sends: a round of one message then still fits its region.
pub const MESSAGE_OCTETS_MAX: u32 = 64 << 20;

/// `write-bw`.
#[derive(Args, Debug, Clone)]
pub struct WriteBw {
    /// Where frames go.
    #[arg(long, value_enum, default_value_t = Backend::Ring)]
    pub backend: Backend,
    /// Arguments for DPDK's EAL, as one string: `--vdev`, `--no-huge`, `-m`.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// Bytes of a message; without it, a sweep over sizes.
    #[arg(long, short, value_parser = parse_size)]
    pub size: Option<u32>,
    /// Sweep over the sizes of perftest's `-a`, every power of two from 2 bytes to 8 MiB (the default without
    /// --size).
    #[arg(long, short, conflicts_with = "size")]
    pub all: bool,
    /// Largest IP packet, in octets.
    #[arg(long, value_parser = clap::value_parser!(u16).range(576..=9600), default_value_t = 1500)]
    pub mtu: u16,
    /// Queue pairs, each on a connection of its own.
    #[arg(long, short, value_parser = clap::value_parser!(u32).range(1..=256), default_value_t = 1)]
    pub qps: u32,
    /// Writes outstanding on each queue pair.
    #[arg(long, short = 't', value_parser = clap::value_parser!(u32).range(1..=8192), default_value_t = 128)]
    pub depth: u32,
    /// How long to measure each size, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600), conflicts_with = "iters")]
    pub duration: Option<u32>,
    /// How many Writes to measure for each size and queue pair.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: Option<u64>,
    /// Ask the peer for MPA Markers, in both directions.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub markers: Switch,
    /// Use MPA's CRC. `off` takes both ends.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,
    /// How connections are set up. Without --revision it is `auto`.
    #[command(flatten)]
    pub setup: Setup,
    /// Let small Writes that wait share segments. The end that writes decides.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub packing: Switch,
    /// Compare every octet that arrived.
    #[arg(long, value_enum, default_value_t = Switch::On, num_args = 0..=1, default_missing_value = "on")]
    pub verify: Switch,
    /// The CPUs that poll: one for each end in this process, or a single one. Without it, the idlest; with a
    /// single CPU free, it polls both ends.
    #[arg(long, value_name = "CPU", value_delimiter = ',', num_args = 1..=2)]
    pub cpus: Vec<usize>,
    /// Write all frames to a capture in the pcapng format. Slows the run.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Wait for the other end at this address of ours, an IPv6 address in brackets.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "peer")]
    pub listen: Option<SocketAddr>,
    /// Our address, with the prefix of its network. With --listen it is only needed for a prefix other than 24
    /// (IPv4) or 64 (IPv6).
    #[arg(long, value_name = "ADDR/PREFIX", value_parser = parse_interface)]
    pub address: Option<Cidr>,
    /// Connect to the other end at this address.
    #[arg(value_name = "HOST:PORT")]
    pub peer: Option<SocketAddr>,
}

/// `floor`.
#[derive(Args, Debug, Clone)]
pub struct Floor {
    /// Arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// Largest IP packet, in octets: a frame carries that less 40 octets of headers.
    #[arg(long, value_parser = clap::value_parser!(u16).range(576..=9600), default_value_t = 1500)]
    pub mtu: u16,
    /// Octets of a message; the destination holds as many messages as write-bw's does.
    #[arg(long, short, value_parser = parse_size, default_value = "64k")]
    pub size: u32,
    /// How long to measure, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = clap::value_parser!(u32).range(1..=60), default_value_t = 2)]
    pub duration: u32,
    /// The CPU that computes. Without it, the idlest.
    #[arg(long = "cpu", value_name = "CPU", num_args = 1)]
    pub cpus: Vec<usize>,
    /// Write the result as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// The help names the smallest and the largest size that the sweep has.
    #[test]
    fn the_help_says_which_sizes_the_sweep_has() {
        use clap::CommandFactory;
        let help = Cli::command().find_subcommand_mut("write-bw").unwrap().render_help().to_string();
        let sentence = help.split_once("every power of two from ").unwrap().1;
        let (range, _) = sentence.split_once(" (").unwrap();
        let words: Vec<&str> = range.split_whitespace().collect();
        let ["to", largest, "MiB"] = words[2..] else { panic!("{range}") };
        assert_eq!(words[1], "bytes");
        let bounds = [parse_size(words[0]).unwrap(), parse_size(&format!("{largest}M")).unwrap()];
        let sizes = crate::write_bw::sweep();
        assert_eq!(bounds, [sizes[0], sizes[sizes.len() - 1]]);
        assert!(sizes.windows(2).all(|pair| pair[1] == 2 * pair[0]), "every power of two");
    }

    #[test]
    fn sizes_have_units_and_bounds() {
        assert_eq!(parse_size("64k"), Ok(65_536));
        assert_eq!(parse_size("1M"), Ok(1 << 20));
        assert_eq!(parse_size("64"), Ok(64));
        for wrong in ["", "0", "k", "-1", "65M", "5000000000", "4096k1"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_have_prefixes() {
        let interface = parse_interface("198.18.0.2/15").unwrap();
        assert_eq!(interface, Cidr::new([198, 18, 0, 2].into(), 15));
        assert_eq!(parse_interface("198.18.0.2").unwrap().prefix_bits, 24);
        assert_eq!(parse_interface("fd00::2").unwrap().to_string(), "fd00::2/64");
        for wrong in ["198.18.0/24", "198.18.0.2/33", "host/24"] {
            assert!(parse_interface(wrong).is_err(), "{wrong}");
        }
    }
}
