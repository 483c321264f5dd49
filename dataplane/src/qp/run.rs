//! FPDUs that share a segment (RFC 5044 §4.5, App. A.2): small ones that wait at the same time go out
//! together, and the last may be cut to the room that is left.

use super::payload::Slice;
use crate::mpa::fpdu;
use crate::wire::ddp;

/// The source of an FPDU's payload when it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Registered memory of this end.
    Memory(Slice),
    /// A work request that is not complete: its ranges of memory, or its inline data.
    Request {
        /// The number of its entry at the sender.
        number: u32,
        /// The offset in its message.
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
    /// A message of the provider: a ready-to-receive indication, or the response to one. Only a Read Request
    /// has a payload, always [the same](super::indication::READ_REQUEST).
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
    /// The source of the payload.
    pub source: Source,
}

impl FpduDescriptor {
    /// Octets of the ULPDU: header and payload.
    pub fn ulpdu_octets(&self) -> usize {
        self.header.header_len() + self.octets as usize
    }
}

/// What the FPDUs of a run belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Work requests, from the entry with this number on.
    Requests(u32),
    /// A response to the peer.
    Response,
    /// The Terminate Message.
    Terminate,
    /// A message of the provider.
    Provider,
}

/// The FPDUs of one segment, in order: the first, and one for each of the work requests that follow its own.
/// Only the last may be a part of its message. The FPDUs can be built again from the requests alone, so a
/// retransmission has the same boundaries.
// Requirements: MPA-A.1-01, MPA-A.1-04, C00-5.1-01, C00-7.3-03, C00-7.3-07
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpduRun {
    /// The first.
    pub first: FpduDescriptor,
    /// Octets that all FPDUs take on the wire, at the stream position they were made for.
    pub octets: u32,
    /// What the FPDUs belong to.
    pub(super) origin: Origin,
    /// FPDUs after the first.
    pub(super) more: u8,
    /// Octets of payload of the last of those.
    pub(super) last_octets: u32,
}

impl FpduRun {
    /// One FPDU alone, at the beginning of a segment.
    pub(super) fn one(first: FpduDescriptor, origin: Origin, room: &SegmentRoom) -> Self {
        let octets = room.with(0, first.ulpdu_octets()) as u32;
        Self { first, octets, origin, more: 0, last_octets: 0 }
    }

    /// Turns the run of one FPDU into the one `count` FPDUs after it in the same message, if all of these are
    /// as long and none ends the message.
    #[inline]
    pub const fn move_on(&mut self, count: u32) {
        let octets = self.first.octets * count;
        self.first.header.move_on(octets);
        match &mut self.first.source {
            Source::Memory(slice) => slice.to = slice.to.wrapping_add(octets as u64),
            Source::Request { offset, .. } => *offset += octets,
            Source::AtomicResponse { .. } | Source::Terminate | Source::Provider => {}
        }
    }

    /// As [`move_on`](Self::move_on) by one, to the beginning of `room`. In a stream with Markers the FPDU
    /// takes as many octets on the wire, or a Marker more or less.
    #[inline]
    pub fn move_to(&mut self, room: &SegmentRoom) {
        self.move_on(1);
        self.octets = room.with(0, self.first.ulpdu_octets()) as u32;
    }

    /// How many FPDUs there are.
    pub const fn fpdus(&self) -> usize {
        1 + self.more as usize
    }
}

/// The segment that FPDUs are cut for.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRoom {
    /// The stream position of its first octet, counted from the beginning of Full Operation.
    pub position: u64,
    /// Its length in octets (EMSS).
    pub emss_octets: usize,
    /// Whether this end inserts Markers.
    pub markers: bool,
    /// Whether FPDUs may share it.
    pub packing: bool,
    /// An FPDU whose payload is sent by reference and has at least this many octets goes alone: that costs
    /// less than the segment that packing would save.
    pub alone_from: u32,
}

impl SegmentRoom {
    /// The MULPDU at its beginning. It is computed for each FPDU, so it follows the EMSS.
    // Requirements: DDP-3-01, MPA-3-02, MPA-3-03, MPA-4.5-08, C00-5.2-01, C00-7.3.1-02
    pub const fn mulpdu(&self) -> usize {
        fpdu::mulpdu(self.emss_octets, self.markers)
    }

    /// The MULPDU after its first `octets` octets; `None` if the FPDU belongs into the next segment. That is
    /// so if less than a quarter of this one is left: filling it would save less on the wire than the
    /// additional FPDU costs.
    // Requirements: MPA-4.5-03, MPA-4.5-04, MPA-4.5-07
    pub const fn mulpdu_behind(&self, octets: usize) -> Option<usize> {
        match self.emss_octets.checked_sub(octets) {
            Some(left) if left < self.emss_octets / 4 => None,
            Some(left) => fpdu::mulpdu_within(self.position + octets as u64, left, self.markers),
            None => None,
        }
    }

    /// The octets used once an FPDU with a ULPDU of `ulpdu_octets` follows the first `octets`.
    pub fn with(&self, octets: usize, ulpdu_octets: usize) -> usize {
        octets + fpdu::wire_len(self.position + octets as u64, ulpdu_octets, self.markers)
    }
}
