//! The device while it runs.

use std::sync::OnceLock;

use warpline::cm::EventChannel;
use warpline::{Device, Turns};

use crate::registry::Registry;

/// A device with what programs have made on it.
pub(crate) struct Running {
    pub(crate) device: Device,
    /// The turns at it of the program's threads.
    pub(crate) turns: Turns,
    /// Makes ids, and has what happens to them.
    pub(crate) ids: EventChannel,
    pub(crate) registry: Registry,
    /// The program's pointer to the Protection Domain of ids that have been given none.
    pub(crate) shared_domain: OnceLock<usize>,
}
