//! The counters of an IP host.

use crate::drops::Drops;

/// Counters of one host. They only grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Frames received from the device.
    pub frames_received: u64,
    /// Frames given to the device.
    pub frames_sent: u64,
    /// Frames to the host's own addresses, which the device does not see.
    pub frames_looped: u64,
    /// Datagrams put together from fragments.
    pub datagrams_reassembled: u64,
    /// Frames that the host dropped and did not report as an error of the call.
    pub drops: Drops,
}
