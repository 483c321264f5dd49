//! Why a measurement could not be made.

use std::io;
use std::net::SocketAddr;

use warpline::DeviceNameError;
use warpline::open::OpenError;
use warpline_tools::error::CommandError;

use crate::placement;

/// Why a measurement could not be made. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// What any command may fail of.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The device does not start.
    #[error(transparent)]
    Start(#[from] warpline::StartError),
    /// The device has stopped.
    #[error(transparent)]
    Stopped(#[from] warpline::Stopped),
    /// Memory is short.
    #[error(
        "no memory for the buffers: {0}; smaller --size, fewer --qps, or more hugepages (vm.nr_hugepages)"
    )]
    Memory(String),
    /// A CPU that this process may not use.
    #[error(
        "CPU {0} cannot be used: this process may use {list} (taskset -p $$)",
        list = placement::list_of_cpus()
    )]
    Pin(usize),
    /// It is not clear which end this process is.
    #[error(
        "with device {0}, one end needs --listen ADDR:PORT, the other HOST:PORT and --address ADDR/PREFIX \
         (or address=ADDR/PREFIX in the name of the device)"
    )]
    WhichEnd(String),
    /// An end that listens everywhere, and is nowhere.
    #[error(
        "--listen without an address takes those of the device, and {0} has none: give it \
         address=ADDR/PREFIX, or say --listen ADDR:PORT"
    )]
    ListenNowhere(String),
    /// A ring needs no addresses.
    #[error(
        "the device ring has both ends in this process: name another with --device, or leave out --listen, \
         --address and HOST:PORT"
    )]
    RingHasBothEnds,
    /// A figure is below the limit that was set for it.
    #[error("{figure} is {got:.6}, below the limit of {limit}")]
    BelowLimit {
        /// The figure and its unit.
        figure: &'static str,
        /// Its value.
        got: f64,
        /// The limit.
        limit: f64,
    },
    /// No connection.
    #[error("connecting to {0}: {1}")]
    Connect(SocketAddr, warpline::ConnectError),
    /// A step before the measurement failed.
    #[error("{0}")]
    Setup(String),
    /// The other end failed.
    #[error("the other end: {0}")]
    Peer(String),
    /// Data was damaged.
    #[error("{0} bytes arrived wrong")]
    Corrupt(u64),
}

impl BenchError {
    /// Options that do not go together.
    pub fn options(why: impl Into<String>) -> Self {
        CommandError::Options(why.into()).into()
    }

    /// A signal has ended the command too early.
    pub const fn interrupted() -> Self {
        Self::Command(CommandError::Interrupted)
    }
}

impl From<DeviceNameError> for BenchError {
    fn from(error: DeviceNameError) -> Self {
        CommandError::Name(error).into()
    }
}

impl From<OpenError> for BenchError {
    fn from(error: OpenError) -> Self {
        CommandError::Open(error).into()
    }
}

impl From<io::Error> for BenchError {
    fn from(error: io::Error) -> Self {
        CommandError::Io(error).into()
    }
}
