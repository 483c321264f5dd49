//! The placing of octets in the buffers of transfers, when their segment arrives.

use core::ops::Range;

use super::intervals::BufferRange;
use super::message_starts::MessageStarts;
use super::placements::{Placement, Placements};
use super::transfers::{TransferId, Transfers};
use crate::limits;
use crate::wire::tcp_rdma::{RidFormat, Transfer};

/// Octets of a segment that TCP keeps, by positions of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The position of the first octet of the segment's payload.
    pub payload: u64,
    /// Octets of the payload.
    pub payload_octets: usize,
    /// The positions of the octets kept: from the first to the one after the last.
    pub kept: (u64, u64),
    /// No octet before them is missing.
    pub in_order: bool,
}

/// What is to come next in stream order.
pub(super) struct Turn<'s> {
    /// The position of the next octet.
    pub(super) position: u64,
    /// Where messages begin.
    pub(super) starts: &'s MessageStarts,
}

/// The transfers of a stream, and what is placed of them.
#[derive(Debug)]
pub(super) struct Placing {
    pub(super) transfers: Transfers,
    /// Those whose turn has not come.
    pub(super) placements: Placements,
    rid_format: RidFormat,
}

impl Placing {
    /// Returns those of a stream with room for so many placements.
    pub(super) fn new(transfers: Transfers, placements: usize, rid_format: RidFormat) -> Self {
        Self { transfers, placements: Placements::with_capacity(placements), rid_format }
    }

    /// Places the octets of a segment that are not placed yet. Those that came beyond a gap, and were placed
    /// there by the same words, keep their place: to claim it again would revoke it.
    pub(super) fn place_new(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        turn: &Turn<'_>,
        mut copy: impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) {
        // A segment is kept in part if some of its octets have come before: the rest is placed.
        let data = arrived.payload + u64::from(option.data_offset);
        let end = (data + u64::from(option.data_octets)).min(arrived.kept.1);
        let mut at = data.max(arrived.kept.0).max(turn.position);
        if at > end || (at == end && option.data_octets > 0) {
            return;
        }
        let mut placed = 0;
        while let Some(same) = self.placed_alike(option, data, at, end) {
            if at < same.at {
                placed += u32::from(self.place_and_add(option, arrived, turn.starts, at..same.at, &mut copy));
            }
            at = same.end();
        }
        if at < end || option.data_octets == 0 {
            placed += u32::from(self.place_and_add(option, arrived, turn.starts, at..end, &mut copy));
        }
        if placed > 0 {
            let counters = &mut self.transfers.counters;
            counters.segments_placed += 1;
            counters.segments_placed_out_of_order += u64::from(!arrived.in_order);
        }
    }

    /// The first placement of octets from `at` to `end` that is of the transfer that `option` names, at the
    /// same place in its buffer. The octets that the option describes begin at position `data`.
    fn placed_alike(&self, option: &Transfer, data: u64, at: u64, end: u64) -> Option<Placement> {
        let rid = self.rid_format.received(option.rid);
        let among = self.placements.after(at).take_while(|placement| placement.at < end);
        let alike = |placement: &&Placement| {
            let described = u64::from(option.buffer_offset) + placement.at;
            let is_there = described == u64::from(placement.range.offset()) + data;
            let counts = self.transfers.counts(placement.transfer) && placement.range.octets() > 0;
            let name = self.transfers.names(placement.transfer).filter(|_| counts);
            is_there && name.is_some_and(|(name, _)| name == rid)
        };
        among.filter(|placement| placement.end() > at).find(alike).copied()
    }

    /// Places these octets of a segment, by their positions, whose turn comes. Returns false if they are
    /// refused.
    fn place_and_add(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        starts: &MessageStarts,
        octets: Range<u64>,
        copy: &mut impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) -> bool {
        let placement = self.place_part(option, arrived, octets, copy);
        if let Some(placement) = placement {
            self.placements.add(placement, starts);
        }
        placement.is_some()
    }

    /// Places these octets of a segment, by their positions. Returns `None` if they are refused.
    #[inline]
    pub(super) fn place_part(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        Range { start: at, end }: Range<u64>,
        copy: &mut impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) -> Option<Placement> {
        let Some((transfer, range)) = self.claim(option, arrived, at, end) else {
            self.transfers.counters.octets_refused += end - at;
            return None;
        };
        let octets = range.octets() as usize;
        if octets > 0 {
            let (transfers, mut place) = (&self.transfers, u64::from(range.offset()));
            copy(at, octets, &mut |slice| {
                transfers.write(transfer, place, slice);
                place += slice.len() as u64;
            });
        }
        self.transfers.counters.octets_placed += octets as u64;
        Some(Placement { at, range, transfer, beyond_gap: !arrived.in_order })
    }

    /// Claims the place in its buffer for the octets of a segment from `at` on, up to `end`.
    #[inline]
    fn claim(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        at: u64,
        end: u64,
    ) -> Option<(TransferId, BufferRange)> {
        if !self.has_room_for_placement() {
            return None;
        }
        // The offset of each octet has 32 bits, so a range may end at 2^32.
        let skipped = at - (arrived.payload + u64::from(option.data_offset));
        let range = u32::try_from(u64::from(option.buffer_offset) + skipped);
        let Some(range) = range.ok().and_then(|offset| BufferRange::new(offset, (end - at) as u32)) else {
            self.transfers.counters.out_of_bounds += 1;
            return None;
        };
        // Requirements: TRO-5.1.1-04, TRO-5.3.1-02
        let option = &Transfer { rid: self.rid_format.received(option.rid), ..*option };
        let transfer = self.transfers.claim(option, range, arrived.in_order)?;
        Some((transfer, range))
    }

    fn has_room_for_placement(&mut self) -> bool {
        let room = self.placements.len() < limits::PLACEMENTS_PER_STREAM;
        self.transfers.counters.too_scattered += u64::from(!room);
        room
    }

    /// The next placement that counts, if all of its octets come before `end`. Those that do not count, or
    /// lie before `position`, are dropped: their octets are still in their frames.
    pub(super) fn next(&mut self, position: u64, end: u64) -> Option<Placement> {
        while let Some(placement) = self.placements.front() {
            if placement.at < position || !self.transfers.counts(placement.transfer) {
                self.placements.pop_front();
                self.count_dropped(&placement);
                continue;
            }
            // In order are the octets of complete segments, so its octets are too.
            return (placement.end() <= end).then_some(placement);
        }
        None
    }

    /// Frees the buffer of an unsolicited transfer whose last placement does not count: the application,
    /// to which none was delivered, could not.
    #[cold]
    fn count_dropped(&mut self, dropped: &Placement) {
        let Some(slot) = self.transfers.undelivered(dropped.transfer) else { return };
        let is_its = |placement: &Placement| {
            placement.transfer.slot == slot && self.transfers.counts(placement.transfer)
        };
        if !self.placements.iter().any(is_its) {
            self.transfers.forget(slot);
        }
    }

    /// Gives up the placement whose turn has come: its octets are read from the stream, where they still are.
    #[cold]
    pub(super) fn give_up_next(&mut self) {
        let Some(placement) = self.placements.pop_front() else { return };
        self.transfers.give_up(placement.transfer, placement.range, placement.beyond_gap);
        self.count_dropped(&placement);
    }
}
