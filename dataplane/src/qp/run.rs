//! FPDUs that share a segment (RFC 5044 §4.5, App. A.2): small ones that wait at the same time go out
//! together, and the last may be cut to the room that is left.

use super::payload::Slice;
use crate::mpa::fpdu;
use crate::wire::ddp;

/// Where the payload of an FPDU comes from when it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Registered memory of this end.
    Memory(Slice),
    /// A work request that is not completed: ranges of memory, or octets that it holds itself.
    Request {
        /// Its number, as the sender counts them.
        number: u32,
        /// Where in its message.
        offset: u32,
    },
    /// The header of an Atomic Response.
    AtomicResponse {
        /// From the request.
        identifier: u32,
        /// The value before the operation.
        original: u64,
    },
    /// The Terminate Message of the queue pair.
    Terminate,
    /// A message of the provider's own: a ready-to-receive indication, or the answer to one. What payload it
    /// has is always [the same](super::indication::READ_REQUEST).
    Provider,
}

/// An FPDU to be built when it is sent, and again whenever it is retransmitted: from the same octets, with
/// the same boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpduDescriptor {
    /// The DDP header with RDMAP's control octet.
    pub header: ddp::Header,
    /// Octets of payload after the header.
    pub octets: u32,
    /// Where they come from.
    pub source: Source,
}

impl FpduDescriptor {
    /// Octets of the ULPDU: header and payload.
    pub fn ulpdu_octets(&self) -> usize {
        self.header.header_len() + self.octets as usize
    }
}

/// Whose FPDUs they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Of work requests, from the one with this number on, as the sender counts them.
    Requests(u32),
    /// Of an answer to the peer.
    Response,
    /// The Terminate Message.
    Terminate,
    /// The provider's own.
    Provider,
}

/// The FPDUs of one segment, one behind the other: the first, and one of each of the work requests that
/// follow its own. Only the last of these may be a part of its message. With that they can be built again
/// from the requests alone, so a retransmission has the same boundaries.
// Requirements: MPA-A.1-01, MPA-A.1-04, C00-5.1-01, C00-7.3-03, C00-7.3-07
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpduRun {
    /// The first.
    pub first: FpduDescriptor,
    /// Octets that all of them take on the wire, at the place they were made for.
    pub octets: u32,
    /// Whose they are.
    pub(super) origin: Origin,
    /// FPDUs behind it.
    pub(super) more: u8,
    /// Octets of payload of the last of these.
    pub(super) last_octets: u32,
}

impl FpduRun {
    /// One FPDU alone, at the beginning of a segment.
    pub(super) fn one(first: FpduDescriptor, origin: Origin, room: &SegmentRoom) -> Self {
        let octets = room.with(0, first.ulpdu_octets()) as u32;
        Self { first, octets, origin, more: 0, last_octets: 0 }
    }

    /// How many FPDUs there are.
    pub const fn fpdus(&self) -> usize {
        1 + self.more as usize
    }
}

/// The segment that FPDUs are cut for.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRoom {
    /// Where in the stream it begins, in octets since the beginning of Full Operation.
    pub position: u64,
    /// Its octets (EMSS).
    pub emss_octets: usize,
    /// Whether this end inserts Markers.
    pub markers: bool,
    /// Whether FPDUs may share it.
    pub packing: bool,
    /// Octets of payload from which on an FPDU from memory that goes by reference goes alone: that costs less
    /// than the segment it would save.
    pub alone_from: u32,
}

impl SegmentRoom {
    /// The MULPDU at its beginning: DDP asks for each FPDU, so it follows the EMSS.
    // Requirements: DDP-3-01, MPA-3-02, MPA-3-03, MPA-4.5-08, C00-5.2-01, C00-7.3.1-02
    pub const fn mulpdu(&self) -> usize {
        fpdu::mulpdu(self.emss_octets, self.markers)
    }

    /// The MULPDU behind its first `octets` octets; `None` when the next segment is the place: also when less
    /// than a quarter of this one is left. What that would save on the wire costs more in FPDUs.
    // Requirements: MPA-4.5-03, MPA-4.5-04, MPA-4.5-07
    pub const fn mulpdu_behind(&self, octets: usize) -> Option<usize> {
        match self.emss_octets.checked_sub(octets) {
            Some(left) if left < self.emss_octets / 4 => None,
            Some(left) => fpdu::mulpdu_within(self.position + octets as u64, left, self.markers),
            None => None,
        }
    }

    /// Octets behind the first `octets` when an FPDU with a ULPDU of `ulpdu_octets` follows them.
    pub fn with(&self, octets: usize, ulpdu_octets: usize) -> usize {
        octets + fpdu::wire_len(self.position + octets as u64, ulpdu_octets, self.markers)
    }
}
