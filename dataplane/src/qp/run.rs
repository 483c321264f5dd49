//! FPDUs that share a segment (RFC 5044 §4.5, App. A.2): small ones that wait at the same time go out
//! together, and the last may be cut to the room that is left.
//!
//! The FPDUs of a segment are a range of the work requests of a queue pair, or of its responses. Nothing of
//! the requests is copied. They stay where they are until the segment is acknowledged, and the FPDUs are
//! built from them whenever the segment is sent.
//!
//! Example: of a message of 3000 octets, the request with number 7, the first FPDU has 1428 octets: the range
//! from offset 0 of number 7, of 1428 octets. The second is the range from offset 1428 on. The third has the
//! last 144 octets and the complete messages 8 and 9 after them: the range from offset 2856 of number 7, of
//! 144 octets, and two FPDUs more.

use super::payload::Slice;
use crate::ddp::segmentation::Message;
use crate::mpa::enhanced::Rtr;
use crate::mpa::fpdu::{self, Markers};
use crate::wire::ddp;
use crate::wire::mpa::Marker;

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
/// Only the last may be a part of its message. The FPDUs can be built again from the requests only, so a
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
    /// The first is a complete small message, and in a group each segment after it has another one.
    pub(super) by_request: bool,
    /// Where Markers fall into the first. In a group with Markers all segments have as many octets as it,
    /// and their FPDUs no PAD.
    pub markers: Markers,
}

// Segments of them are copied in a burst.
const _: () = assert!(size_of::<FpduRun>() <= 32);

impl FpduRun {
    /// One FPDU at the beginning of a segment: that of the octets of `message` from `offset` on.
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
            markers: Markers::of(room.position, room.markers),
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

    /// Makes the run of one FPDU the one `count` FPDUs after it in its group: in the same message, if
    /// none of these ends it; or `count` messages after it, if it is a complete small message and all of
    /// these are as long.
    #[inline]
    pub const fn move_on(&mut self, count: u32) {
        if !self.by_request {
            self.offset += self.group_octets(count);
            // The first may end in PAD, if it is the only one.
            if count > 0 && !self.markers.are_none() {
                self.markers = self.markers.after(self.octets * count);
                self.first_octets = self.group_octets(1);
            }
        } else if let Origin::Requests(number) = &mut self.origin {
            *number = number.wrapping_add(count);
        }
    }

    /// Returns the octets of payload of this FPDU and those after it in its group, `count` together. All
    /// have as much without Markers; with them, less by their Markers.
    ///
    /// Example: of segments of 1444 octets one has 2 Markers and 1416 octets of payload, the next 3 Markers
    /// and 1412.
    #[inline]
    pub const fn group_octets(&self, count: u32) -> u32 {
        if self.markers.are_none() {
            return self.first_octets * count;
        }
        let around = fpdu::unmarked_len(self.header_len as usize) as u32;
        let octets = self.octets * count;
        octets - around * count - Marker::LEN as u32 * self.markers.within(octets)
    }

    /// Returns how many of the `count` FPDUs after this one, which are of one message in a stream with
    /// Markers, can have segments that are as long: those before one that would end with a Marker.
    #[inline]
    pub(super) fn count_alike(&self, count: u32) -> u32 {
        // Segments of a multiple of four octets meet the Markers as before after so many at most: if none of
        // these ends with one, none does. A message of 4 GiB needs no more looks than that.
        const PERIOD: u32 = Marker::INTERVAL as u32 / 4;
        let mut markers = self.markers;
        let can_be_alike = |_: &u32| {
            markers = markers.after(self.octets);
            markers.may_end_after(self.octets)
        };
        let alike = (0..count.min(PERIOD)).take_while(can_be_alike).count() as u32;
        if alike == PERIOD { count } else { alike }
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
    /// An FPDU whose payload is sent by reference and has at least this many octets has a segment of its own:
    /// that costs less than the segment that packing would save.
    pub single_from: u32,
}

impl SegmentRoom {
    /// The MULPDU at its beginning. It is computed for each FPDU, so it follows the EMSS.
    // Requirements: DDP-3-01, MPA-3-02, MPA-3-03, MPA-4.5-08, C00-5.2-01, C00-7.3.1-02
    #[inline]
    pub const fn mulpdu(&self) -> usize {
        fpdu::mulpdu_at(self.position, self.emss_octets, self.markers)
    }

    /// Whether `run`, in a stream with Markers, is as long as all that fill a segment but those which would
    /// end with a Marker.
    #[inline]
    pub(super) const fn is_filled_by(&self, run: &FpduRun) -> bool {
        // Where MULPDU is next to the least that there may be, it does not follow the Markers.
        run.octets as usize == fpdu::full_octets(self.emss_octets)
            && run.first_ulpdu_octets() > fpdu::MULPDU_MIN + Marker::LEN
            && run.first_octets == run.group_octets(1)
    }

    /// The MULPDU after its first `octets` octets; `None` if the FPDU belongs into the next segment. That is
    /// so if less than a quarter of this one is left: filling it would save less on the wire than the
    /// additional FPDU costs.
    // Requirements: MPA-4.5-03, MPA-4.5-04, MPA-4.5-07
    pub const fn mulpdu_after(&self, octets: usize) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmap::message;
    use crate::wire::stag::STag;

    /// The FPDUs of a message that one descriptor describes are those that are cut one by one, at every phase
    /// of the Markers: as long, and each where the one before ends in stream and message.
    #[test]
    fn a_group_with_markers_is_what_is_cut_one_by_one() {
        let message = message::write(1, STag(7), 0, 1_000_000);
        let mut longest = 0;
        for (emss_octets, position) in [140, 536, 1428, 1448, 8948]
            .into_iter()
            .flat_map(|emss| (0..512).step_by(4).map(move |at| (emss, at)))
        {
            let mut room =
                SegmentRoom { position, emss_octets, markers: true, packing: true, single_from: u32::MAX };
            let first = FpduRun::one(Origin::Requests(0), &message, 0, &room);
            if !room.is_filled_by(&first) {
                continue;
            }
            let alike = first.count_alike(1_000).min(900_000 / first.octets);
            longest = longest.max(alike);
            let mut one_by_one = first;
            for count in 1..=alike {
                room.position += u64::from(one_by_one.octets);
                let offset = one_by_one.offset + one_by_one.first_octets;
                one_by_one = FpduRun::one(Origin::Requests(0), &message, offset, &room);
                let mut moved = first;
                moved.move_on(count);
                assert_eq!(moved, one_by_one, "{count} after the first at {position}, EMSS {emss_octets}");
                assert_eq!(moved.octets, first.octets);
                assert_eq!(first.group_octets(count), offset, "as much payload as these have together");
            }
            room.position += u64::from(one_by_one.octets);
            let offset = one_by_one.offset + one_by_one.first_octets;
            let after = FpduRun::one(Origin::Requests(0), &message, offset, &room);
            let is_ended_by_marker = !after.markers.may_end_after(first.octets);
            assert_eq!(after.octets < first.octets, is_ended_by_marker, "{emss_octets} at {position}");
        }
        assert!(longest > 60, "all groups were small: {longest}");
    }

    /// The first of a group is itself, whatever PAD it has and wherever Markers fall into it.
    #[test]
    fn none_after_the_first_is_the_first() {
        for position in (0..512).step_by(4) {
            for octets in 1..=8 {
                let message = message::read_response(1, STag(7), 0, octets);
                let room =
                    SegmentRoom { position, emss_octets: 1448, markers: true, packing: true, single_from: 0 };
                let run = FpduRun::one(Origin::Response(0), &message, 0, &room);
                let mut moved = run;
                moved.move_on(0);
                assert_eq!(moved, run, "{octets} octets at {position}");
            }
        }
    }

    /// Where no segment ever ends with a Marker, all of the longest message are alike, and only few are
    /// looked at.
    #[test]
    fn all_are_alike_where_none_ends_with_a_marker() {
        let message = message::write(1, STag(7), 0, u32::MAX);
        let mut endless = 0;
        for emss_octets in (600..2100).step_by(4) {
            let room =
                SegmentRoom { position: 8, emss_octets, markers: true, packing: true, single_from: u32::MAX };
            let first = FpduRun::one(Origin::Requests(0), &message, 0, &room);
            let looked_at = |count: u32| {
                let mut markers = first.markers;
                let ends = |_: &u32| {
                    markers = markers.after(first.octets);
                    markers.may_end_after(first.octets)
                };
                (0..count).take_while(ends).count() as u32
            };
            for count in [0, 1, 127, 128, 129, 1000] {
                assert_eq!(first.count_alike(count), looked_at(count), "{count} of EMSS {emss_octets}");
            }
            endless += u32::from(first.count_alike(u32::MAX) == u32::MAX);
        }
        assert!(endless > 0, "no EMSS was one of those");
    }
}
