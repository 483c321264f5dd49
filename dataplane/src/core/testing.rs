//! Hooks of tests and fuzz targets: they look into a core, or move its counters.

use super::Core;
use crate::conn::ConnectionId;
use crate::device::Device;
use crate::net;
use crate::qp::work::QpNumber;
use crate::tcp;

/// Returns how often the cores of this thread have computed the checksum of a segment that has arrived.
#[doc(hidden)]
pub fn checksums_computed() -> u64 {
    net::testing::sums()
}

impl<D: Device> Core<D> {
    /// Returns the TCP connection that `id` names.
    #[doc(hidden)]
    pub fn tcp(&self, id: ConnectionId) -> Option<&tcp::Connection> {
        self.endpoints.table.get(id).map(|connection| &connection.tcp)
    }

    /// Returns the device.
    #[doc(hidden)]
    pub const fn device(&self) -> &D {
        self.host.device()
    }

    /// Has every queue of a queue pair continue at message number `next`, in both directions, as if all
    /// before had been exchanged. For tests: the wrap (RFC 5041 §4.3) is 2^32 messages away otherwise.
    #[doc(hidden)]
    pub fn continue_message_numbers(&mut self, qp: QpNumber, next: u32) {
        if let Some(qp) = self.endpoints.queue_pairs.numbered(qp) {
            qp.sender.continue_message_numbers(next);
            qp.receiver.continue_message_numbers(next);
            qp.reads.inbound.continue_message_numbers(next);
        }
    }
}
