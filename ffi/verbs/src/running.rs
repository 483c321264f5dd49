//! The device while it runs.

use warpline::Device;
use warpline::cm::EventChannel;

use crate::registry::Registry;

/// A device with what programs have made on it.
pub(crate) struct Running {
    pub(crate) device: Device,
    /// Makes ids, and has what happens to them.
    pub(crate) ids: EventChannel,
    pub(crate) registry: Registry,
}
