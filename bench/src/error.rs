//! Why a measurement could not be made.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::failure::Failure;
use crate::placement;

/// Why a measurement could not be made. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The name of the device is wrong.
    #[error(transparent)]
    Name(#[from] warpline::DeviceNameError),
    /// The device does not open.
    #[error(transparent)]
    Open(#[from] warpline::open::OpenError),
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
    /// A name has no address.
    #[error("{0}: {1}")]
    Resolve(String, String),
    /// The other end has another version of IP.
    #[error("{0}: the device has no address of that version of IP: give it one with address=ADDR/PREFIX")]
    OtherVersion(IpAddr),
    /// An end that connects to nobody.
    #[error("connect to a host, as in 198.18.0.2:7471: an unspecified address is for --listen")]
    NoHost,
    /// The address to listen at is not one of the device.
    #[error("{0} is no address of the device: name it in --address, or leave out --address")]
    ListenAddress(IpAddr),
    /// A ring needs no addresses.
    #[error(
        "the device ring has both ends in this process: name another with --device, or leave out --listen, \
         --address and HOST:PORT"
    )]
    RingHasBothEnds,
    /// Options that do not go together.
    #[error("{0}")]
    Options(String),
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
    /// A file.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// Nobody reads standard output any more.
    #[error("standard output is closed")]
    ClosedPipe,
    /// A signal has ended the command too early.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// A call of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An end that `scripts/interop` drives failed.
    #[error("{0}")]
    Failed(Failure),
    /// Data was damaged.
    #[error("{0} bytes arrived wrong")]
    Corrupt(u64),
}

impl From<Failure> for BenchError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
