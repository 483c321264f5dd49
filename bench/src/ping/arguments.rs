//! The command line of `ping`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use warpline::Cidr;

use crate::cli::{Backend, Switch, parse_interface, parse_size};
use crate::setup::Setup;

/// `ping`. The letters are rping's, where it has them.
#[derive(Args, Debug, Clone)]
pub struct Ping {
    /// Where frames go.
    #[arg(long, value_enum, default_value_t = Backend::Ring)]
    pub backend: Backend,
    /// Arguments for DPDK's EAL, as one string: `--vdev`, `--no-huge`, `-m`.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// Octets of a ping. With --listen, of the buffer each client gets at first: it grows with what a client advertises.
    #[arg(long, short = 'S', value_parser = parse_size, default_value = "64")]
    pub size: u32,
    /// Pings: 1000 unless given. With --listen, those after which we close a client's connection: never unless given.
    #[arg(long, short = 'C', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Connect so many times, one after the other, for --count pings each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 1, conflicts_with = "listen")]
    pub connections: u32,
    /// Largest IP packet, in octets.
    #[arg(long, value_parser = clap::value_parser!(u16).range(576..=9600), default_value_t = 1500)]
    pub mtu: u16,
    /// Ask the peer for MPA Markers, in both directions. With --listen, clients decide for themselves what we insert.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub markers: Switch,
    /// Use MPA's CRC. `off` takes both ends.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,
    /// Send a server that stays silent after our first message RDMA Writes without payload, three at most:
    /// Linux siw may overlook that message.
    #[arg(long, value_enum, default_value_t = Switch::On, conflicts_with = "listen")]
    pub nudges: Switch,
    /// How connections are set up. Without --revision it is `auto`.
    #[command(flatten)]
    pub setup: Setup,
    /// Octets of Private Data in our startup frame; octet n is n modulo 251.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=512), default_value_t = 0)]
    pub private_data: u16,
    /// Compare every octet that comes back.
    #[arg(long, short = 'V', value_enum, default_value_t = Switch::On, num_args = 0..=1, default_missing_value = "on")]
    pub validate: Switch,
    /// How long the other end may take to connect, for a message or for closing, in seconds.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600), default_value_t = 20)]
    pub timeout: u32,
    /// Serve so many clients, then end; without it, until interrupted.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "listen")]
    pub clients: Option<u32>,
    /// Reject every client.
    #[arg(long, requires = "listen")]
    pub reject: bool,
    /// The CPUs that poll: one for each end in this process, or a single one. Without it, the idlest; with a
    /// single CPU free, it polls both ends.
    #[arg(long, value_name = "CPU", value_delimiter = ',', num_args = 1..=2)]
    pub cpus: Vec<usize>,
    /// Write all frames to a capture in the pcapng format. Slows the run.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Write the result as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Be the server, for many clients at once, at this address of ours, an IPv6 address in brackets.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "peer")]
    pub listen: Option<SocketAddr>,
    /// Our address, with the prefix of its network. With --listen it is only needed for a prefix other than 24
    /// (IPv4) or 64 (IPv6).
    #[arg(long, value_name = "ADDR/PREFIX", value_parser = parse_interface)]
    pub address: Option<Cidr>,
    /// Ping the server at this address.
    #[arg(value_name = "HOST:PORT")]
    pub peer: Option<SocketAddr>,
}

impl Ping {
    /// How long the other end may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// The Private Data of our startup frame.
    pub fn private_data(&self) -> Vec<u8> {
        (0..self.private_data).map(|n| (n % 251) as u8).collect()
    }
}
