//! FPDUs that share a segment (RFC 5044 §4.5, App. A.2): small ones that wait at the same time go out
//! together, and the last may be cut to the room that is left.
//!
//! A segment's FPDUs are a range of the work requests of a queue pair, or of its responses: where it begins,
//! and how far it goes. Nothing of the requests is copied. They stay where they are until the segment is
//! acknowledged, and the FPDUs are built from them whenever the segment is sent.
//!
//! Example: of a message of 3000 octets, the request with number 7, the first FPDU has 1428 octets: the range
//! from offset 0 of number 7, of 1428 octets. The second is the range from offset 1428 on. The third has the
//! last 144 octets and the whole messages 8 and 9 after them: the range from offset 2856 of number 7, of 144
//! octets, and two FPDUs more.

use super::payload::Slice;
use crate::ddp::segmentation::Message;
use crate::mpa::enhanced::Rtr;
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

/// An FPDU that is built: when it is sent, and again whenever it is retransmitted, from the same octets, with
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

/// What the FPDUs of a run belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Work requests, from the entry with this number on.
    Requests(u32),
    /// The response with this number.
    Response(u32),
    /// The Terminate Message.
    Terminate,
    /// A ready-to-receive indication of the provider.
    Indication(Rtr),
    /// The provider's response to such an indication.
    IndicationResponse,
}

/// The FPDUs of one segment, in order: the first, and one for each of the work requests that follow its own.
/// Only the last may be a part of its message. The FPDUs can be built again from the requests alone, so a
/// retransmission has the same boundaries.
// Requirements: MPA-A.1-01, MPA-A.1-04, C00-5.1-01, C00-7.3-03, C00-7.3-07
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpduRun {
    /// What the FPDUs belong to.
    pub(super) origin: Origin,
    /// Where the first begins in its message.
    pub(super) offset: u32,
    /// Octets of payload of the first.
    pub first_octets: u32,
    /// Octets that all FPDUs take on the wire, at the stream position they were made for.
    pub octets: u32,
    /// Octets of payload of the last of those after the first.
    pub(super) last_octets: u32,
    /// FPDUs after the first.
    pub(super) more: u8,
    /// Octets of the header of the first.
    pub(super) header_len: u8,
    /// The first is a whole short message, and in a series each segment after it has another one.
    pub(super) by_request: bool,
}

// Segments of them are copied in a burst.
const _: () = assert!(size_of::<FpduRun>() <= 32);

impl FpduRun {
    /// One FPDU alone, at the beginning of a segment: the part of `message` that begins at `offset`.
    #[inline]
    pub(super) fn one(origin: Origin, message: &Message, offset: u32, room: &SegmentRoom) -> Self {
        let header_len = message.header_len();
        let first_octets = message.part_octets(offset, room.mulpdu());
        let octets = room.with(0, header_len + first_octets as usize) as u32;
        Self {
            origin,
            offset,
            first_octets,
            octets,
            last_octets: 0,
            more: 0,
            header_len: header_len as u8,
            by_request: false,
        }
    }

    /// Octets of the ULPDU of the first FPDU.
    #[inline]
    pub const fn first_ulpdu_octets(&self) -> usize {
        self.header_len as usize + self.first_octets as usize
    }

    /// Where the first FPDU begins in its message.
    #[inline]
    pub const fn offset(&self) -> u32 {
        self.offset
    }

    /// Turns the run of one FPDU into the one `count` FPDUs after it in the same message, if all of these are
    /// as long and none ends the message; or `count` messages after it, if it is a whole short message and
    /// all of these are as long.
    #[inline]
    pub const fn move_on(&mut self, count: u32) {
        if !self.by_request {
            self.offset += self.first_octets * count;
        } else if let Origin::Requests(number) = &mut self.origin {
            *number = number.wrapping_add(count);
        }
    }

    /// As [`move_on`](Self::move_on) by one, to the beginning of `room`. In a stream with Markers the FPDU
    /// takes as many octets on the wire, or a Marker more or less.
    #[inline]
    pub fn move_to(&mut self, room: &SegmentRoom) {
        self.move_on(1);
        self.octets = room.with(0, self.first_ulpdu_octets()) as u32;
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
