//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use warpline_tools::arguments::Switch;
use warpline_tools::host_port::HostPort;
use warpline_tools::setup::Setup;

use crate::device::DeviceOption;
use crate::failure::Failure;

/// The port of the other end without one.
const PORT: u16 = 7471;

/// `exchange`.
#[derive(Args, Debug, Clone)]
pub struct ExchangeArguments {
    /// The device.
    #[command(flatten)]
    pub device: DeviceOption,
    /// Wait for the other end at this port.
    #[arg(long, value_name = "PORT", required_unless_present = "connect", conflicts_with = "connect")]
    pub listen: Option<u16>,
    /// Connect to the other end, at an address like `198.18.0.1:7471` or `[fd00::1]:7471`, or a name that
    /// this machine resolves. Without a port it is 7471.
    #[arg(long, value_name = "HOST:PORT")]
    pub connect: Option<HostPort>,
    /// The file to write into the other end's memory.
    #[arg(long, value_name = "FILE")]
    pub send: PathBuf,
    /// Send it from constant memory: by reference, where the device gathers frames from pieces.
    #[arg(long)]
    pub by_reference: bool,
    /// Where to store what the other end wrote.
    #[arg(long, value_name = "FILE")]
    pub receive: PathBuf,
    /// Bytes of this end's buffer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub receive_octets: u32,
    /// Ask the other end for MPA Markers.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub markers: Switch,
    /// The core that connects; without it the device takes its cores in turn.
    #[arg(long, value_name = "N", requires = "connect")]
    pub core: Option<u8>,
    /// How the connection is set up. Without --revision it is 1, which every peer understands.
    #[command(flatten)]
    pub setup: Setup,
    /// Which end starts MPA, and when.
    #[command(flatten)]
    pub opening: Opening,
    /// How long all of it may take, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "60")]
    pub timeout: Duration,
    /// How long MPA's startup may take, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "10")]
    pub startup_timeout: Duration,
    /// Succeed if the connection fails, and print how it failed.
    #[arg(long)]
    pub expect_error: bool,
}

/// The end that starts MPA, and when it does.
#[derive(Args, Clone, Copy, Debug)]
pub struct Opening {
    /// The role of this end in MPA's startup. Without it, the end that connects is the initiator.
    #[arg(long, value_enum)]
    pub role: Option<Role>,
    /// Delayed startup: N bytes each way in streaming mode first, and a last streaming message.
    #[arg(long, value_name = "N")]
    pub streaming: Option<usize>,
    /// Bytes of Private Data in the startup frame of this end.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=512), default_value_t = 0)]
    pub private_data: u16,
    /// As Responder, reject.
    #[arg(long)]
    pub reject: bool,
    /// No startup frames, as in draft-culley-iwarp-mpa-00: Markers and CRCs both ways, and this version of
    /// DDP and RDMAP.
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u8).range(..=1))]
    pub culley: Option<u8>,
}

/// The role of an end in MPA's startup.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends the Request.
    Initiator,
    /// It sends the Reply.
    Responder,
}

impl ExchangeArguments {
    /// Returns where to connect to; `None` for the end that listens.
    ///
    /// # Errors
    ///
    /// Those of [`HostPort::peer`].
    pub fn remote(&self) -> Result<Option<SocketAddr>, Failure> {
        let own = self.device.device.addresses();
        let resolved = self.connect.as_ref().map(|peer| peer.peer(own, PORT)).transpose();
        resolved.map_err(Failure::local)
    }

    /// Returns true if this end is MPA's Initiator.
    pub fn initiator(&self) -> bool {
        self.opening.role.map_or(self.connect.is_some(), |role| role == Role::Initiator)
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds"))
}
