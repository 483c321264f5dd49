//! Why a command failed.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// Why a command failed. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The name of the device is wrong.
    #[error(transparent)]
    Name(#[from] warpline::DeviceNameError),
    /// The device does not open.
    #[error(transparent)]
    Open(#[from] warpline::open::OpenError),
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
    /// Options that do not go together.
    #[error("{0}")]
    Options(String),
    /// The work of the command failed.
    #[error("{0}")]
    Failed(String),
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
}
