//! The command line of `operations`.

use clap::Args;

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
}
