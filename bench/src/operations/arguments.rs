//! The command line of `operations`.

use std::time::Duration;

use clap::Args;

use crate::arguments::{TIMEOUT_SECONDS, parse_timeout};
use crate::interop::device::DeviceOption;

/// `operations`.
#[derive(Args, Debug, Clone)]
pub struct OperationsArguments {
    /// The device.
    #[command(flatten)]
    pub device: DeviceOption,
    /// The port at which `accept` takes connections.
    #[arg(long, value_name = "PORT")]
    pub listen: u16,
    /// How long the other end may be silent, in seconds, before it is given up: while it is to connect or to
    /// answer, and while a connection to it is open.
    #[arg(long, value_name = "S", value_parser = parse_timeout, default_value = TIMEOUT_SECONDS)]
    pub timeout: Duration,
}
