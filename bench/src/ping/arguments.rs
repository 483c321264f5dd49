//! The command line of `ping`.

use clap::Args;
use warpline::DeviceName;
use warpline_tools::arguments::Switch;
use warpline_tools::setup::Setup;

use crate::arguments::{DeviceArguments, Polling, RunArguments, parse_size};
use crate::error::BenchError;

/// `ping`. The letters are rping's, where it has them.
#[derive(Args, Debug, Clone)]
pub struct Ping {
    /// The device and the ends in this process. With --listen this is the server, for many clients at once.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// Bytes of a ping. With --listen, of the buffer that each client gets at first; it grows if a client
    /// advertises more.
    #[arg(long, short = 'S', value_parser = parse_size, default_value = "64")]
    pub size: u32,
    /// Pings (default 1000). With --listen, the number of pings after which the server closes a client's
    /// connection (default: it never does).
    #[arg(long, short = 'C', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Connect N times, one after the other, for --count pings each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 1,
          conflicts_with = "listen")]
    pub connections: u32,
    /// Ping from this core alone, of a device with several; without it all ping at the same time.
    #[arg(long, value_name = "N", conflicts_with = "listen")]
    pub core: Option<u8>,
    /// Sleep until something arrives or a timer is due, instead of polling all the time.
    #[arg(long, short = 'e')]
    pub events: bool,
    /// Ask the peer for MPA Markers, in both directions. With --listen, each client decides whether the
    /// server inserts them.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub markers: Switch,
    /// Use MPA's CRC. Both ends must say `off` to turn it off.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,
    /// Send up to three RDMA Writes without payload to a server that stays silent after the first message:
    /// Linux siw may overlook that message.
    #[arg(long, value_enum, default_value_t = Switch::On, conflicts_with = "listen")]
    pub nudges: Switch,
    /// How connections are set up. Without --revision it is `auto`.
    #[command(flatten)]
    pub setup: Setup,
    /// Bytes of Private Data in the startup frame of this end; byte n is n modulo 251.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=512), default_value_t = 0)]
    pub private_data: u16,
    /// Compare every byte that comes back.
    #[arg(long, short = 'V', value_enum, default_value_t = Switch::On, num_args = 0..=1,
          default_missing_value = "on")]
    pub validate: Switch,
    /// Serve N clients, then end; without it, serve until interrupted.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "listen")]
    pub clients: Option<u32>,
    /// Reject every client.
    #[arg(long, requires = "listen")]
    pub reject: bool,
    /// Where it runs, and what it writes.
    #[command(flatten)]
    pub run: RunArguments,
}

impl Ping {
    /// Returns the cores and CPUs of `device`.
    ///
    /// # Errors
    ///
    /// Those of [`RunArguments::polling`]; [`CommandError::Options`] if it has no core `--core`.
    ///
    /// [`CommandError::Options`]: warpline_tools::error::CommandError::Options
    pub fn polling(&self, device: &DeviceName) -> Result<Polling, BenchError> {
        let polling = self.run.polling(device)?;
        match self.core {
            Some(core) if usize::from(core) >= polling.cores => Err(BenchError::options(format!(
                "--core {core}: the device has {} cores, from 0 on: --cores, or cores= in its name",
                polling.cores
            ))),
            _ => Ok(polling),
        }
    }

    /// Returns the Private Data of this end's startup frame.
    pub fn private_data(&self) -> Vec<u8> {
        (0..self.private_data).map(|n| (n % 251) as u8).collect()
    }
}
