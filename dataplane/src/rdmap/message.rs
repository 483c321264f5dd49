//! RDMA Messages as DDP Messages (RFC 5040 §4, §5): buffer model, queue and control octet.

use crate::ddp::segmentation::{Message, Model};
use crate::memory::STag;
use crate::wire::atomic::{AtomicRequest, AtomicResponse};
use crate::wire::rdmap::{Control, IMMEDIATE_OCTETS, Opcode, ReadRequest};

/// Sends arrive on this queue.
// Requirements: RDMAP-3.1-01
pub const SEND_QUEUE: u32 = 0;
/// RDMA Read Requests arrive on this queue.
pub const READ_REQUEST_QUEUE: u32 = 1;
/// Terminates arrive on this queue.
pub const TERMINATE_QUEUE: u32 = 2;
/// Atomic Responses arrive on this queue (RFC 7306 §5.2.2).
pub const ATOMIC_RESPONSE_QUEUE: u32 = 3;

/// The version of RDMAP is always that of DDP.
// Requirements: RDMAC-C.1-03
const fn rsvd_ulp(version: u8, opcode: Opcode) -> [u8; 5] {
    [Control { version, opcode }.to_octet(), 0, 0, 0, 0]
}

/// An RDMA Write of `octets` octets to `to` of the peer's `stag`.
// Requirements: RDMAP-5.1-01, RDMAP-5.1-03, RDMAP-5.1-05
pub const fn write(version: u8, stag: STag, to: u64, octets: u32) -> Message {
    Message { version, model: Model::Tagged { stag, to }, rsvd_ulp: rsvd_ulp(version, Opcode::Write), octets }
}

/// The `msn`th RDMA Read Request; its payload is a [`ReadRequest`].
// Requirements: RDMAP-5.2.1-01
pub const fn read_request(version: u8, msn: u32) -> Message {
    Message {
        version,
        model: Model::Untagged { queue: READ_REQUEST_QUEUE, msn },
        rsvd_ulp: rsvd_ulp(version, Opcode::ReadRequest),
        octets: ReadRequest::LEN as u32,
    }
}

/// An RDMA Read Response of `octets` octets, to the sink of the Request.
// Requirements: RDMAP-5.2.2-01
pub const fn read_response(version: u8, stag: STag, to: u64, octets: u32) -> Message {
    let rsvd_ulp = rsvd_ulp(version, Opcode::ReadResponse);
    Message { version, model: Model::Tagged { stag, to }, rsvd_ulp, octets }
}

/// The `msn`th Send, of the kind `opcode`. The field for the STag to invalidate is zero if there is none.
// Requirements: RDMAP-4.1-09, RDMAP-5.3-01
pub const fn send(version: u8, opcode: Opcode, invalidate: STag, msn: u32, octets: u32) -> Message {
    let model = Model::Untagged { queue: SEND_QUEUE, msn };
    Message { version, model, rsvd_ulp: Control { version, opcode }.to_rsvd_ulp(invalidate), octets }
}

/// Immediate Data as the `msn`th message on the queue of Sends (RFC 7306 §6.3).
// Requirements: RDMAPX-4-01, RDMAPX-6-01
pub const fn immediate(version: u8, solicited: bool, msn: u32) -> Message {
    let opcode = if solicited { Opcode::ImmediateDataWithSolicitedEvent } else { Opcode::ImmediateData };
    let model = Model::Untagged { queue: SEND_QUEUE, msn };
    Message { version, model, rsvd_ulp: rsvd_ulp(version, opcode), octets: IMMEDIATE_OCTETS as u32 }
}

/// An Atomic Request as the `msn`th message on the queue of Read Requests (RFC 7306 §5.2.1); its payload is
/// an [`AtomicRequest`].
// Requirements: RDMAPX-4-01, RDMAPX-5-04
pub const fn atomic_request(version: u8, msn: u32) -> Message {
    Message {
        version,
        model: Model::Untagged { queue: READ_REQUEST_QUEUE, msn },
        rsvd_ulp: rsvd_ulp(version, Opcode::AtomicRequest),
        octets: AtomicRequest::LEN as u32,
    }
}

/// The `msn`th Atomic Response (RFC 7306 §5.2.2); its payload is an [`AtomicResponse`].
// Requirements: RDMAPX-4-01, RDMAPX-5-03
pub const fn atomic_response(version: u8, msn: u32) -> Message {
    Message {
        version,
        model: Model::Untagged { queue: ATOMIC_RESPONSE_QUEUE, msn },
        rsvd_ulp: rsvd_ulp(version, Opcode::AtomicResponse),
        octets: AtomicResponse::LEN as u32,
    }
}

/// The one Terminate of a stream.
// Requirements: RDMAP-5.4-01
pub const fn terminate(version: u8, octets: u32) -> Message {
    Message {
        version,
        model: Model::Untagged { queue: TERMINATE_QUEUE, msn: 1 },
        rsvd_ulp: rsvd_ulp(version, Opcode::Terminate),
        octets,
    }
}
