//! Captures of all frames of a device.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use warpline::link::Device;
use warpline::link::tap::{Tap, TapConfig};

use crate::error::CommandError;
use crate::output::OutputFile;

/// Returns `device` with its frames captured to `file`. A write that fails then ends the command
/// ([`interrupt`](crate::interrupt)).
///
/// # Errors
///
/// [`CommandError::File`].
pub fn captured<D: Device>(
    device: D,
    file: OutputFile,
    interface: &str,
) -> Result<Tap<D, OutputFile>, CommandError> {
    let path = file.path().to_owned();
    let failed = |error| CommandError::File(path.clone(), error);
    let mut tap = Tap::new(device, file.begin()?, &capture_config(interface)).map_err(failed)?;
    // A file that takes nothing is noticed before anything is measured.
    tap.flush().map_err(failed)?;
    Ok(tap)
}

/// Returns the configuration of a capture of all frames. Frames carry [`warpline::now`]: the capture has the
/// time of day at which that was zero.
fn capture_config(interface: &str) -> TapConfig {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let origin = since_1970.saturating_sub(Duration::from_nanos(warpline::now().as_nanos()));
    TapConfig {
        interface_name: interface.into(),
        origin_unix_ns: u64::try_from(origin.as_nanos()).unwrap_or(0),
        snap_bytes: None,
        limit_bytes: None,
    }
}
