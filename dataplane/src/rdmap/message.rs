//! RDMA Messages as DDP Messages (RFC 5040 §4, §5): which model, which queue, which control octet.

use crate::ddp::segmentation::{Message, Model};
use crate::memory::STag;
use crate::wire::rdmap::{Control, Opcode, RDMAP_VERSION};

/// Sends arrive on this queue (RDMAP-3.1-01).
pub const SEND_QUEUE: u32 = 0;
/// RDMA Read Requests arrive on this queue.
pub const READ_REQUEST_QUEUE: u32 = 1;
/// Terminates arrive on this queue.
pub const TERMINATE_QUEUE: u32 = 2;

const fn rsvd_ulp(opcode: Opcode) -> [u8; 5] {
    [Control { version: RDMAP_VERSION, opcode }.to_octet(), 0, 0, 0, 0]
}

/// An RDMA Write of `octets` octets to `to` of the peer's `stag` (RDMAP-5.1-01).
pub const fn write(stag: STag, to: u64, octets: u32) -> Message {
    Message { model: Model::Tagged { stag, to }, rsvd_ulp: rsvd_ulp(Opcode::Write), octets }
}

/// The `msn`th Send (RDMAP-5.3-01). RDMAP-4.1-09: its Invalidate STag field is zero.
pub const fn send(msn: u32, octets: u32) -> Message {
    Message { model: Model::Untagged { queue: SEND_QUEUE, msn }, rsvd_ulp: rsvd_ulp(Opcode::Send), octets }
}

/// The one Terminate of a stream (RDMAP-5.4-01).
pub const fn terminate(octets: u32) -> Message {
    Message {
        model: Model::Untagged { queue: TERMINATE_QUEUE, msn: 1 },
        rsvd_ulp: rsvd_ulp(Opcode::Terminate),
        octets,
    }
}
