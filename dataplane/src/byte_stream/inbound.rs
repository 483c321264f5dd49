//! The core's half of what is received: octets of transfers are placed when their segment arrives, and in
//! stream order everything is handed to the application, as octets of the ring or as records.

use core::ops::Range;
use std::collections::VecDeque;
use std::sync::Arc;

use super::counters::TransferCounters;
use super::early::EarlyMessage;
use super::intervals::BufferRange;
use super::octet_ring;
use super::reader::ReaderCommand;
use super::shared::SharedByteStream;
use super::transfers::{Buffer, Record, RecordKind, TransferId, Transfers};
use crate::limits;
use crate::memory::Region;
use crate::sync::{Ordering, fence};
use crate::wire::tcp_rdma::{RdmaOption, Rid, Transfer, TransferWords};

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

/// Octets placed whose turn has not come.
#[derive(Clone, Copy, Debug)]
struct Placement {
    /// The position of the first octet.
    at: u64,
    /// Where they are in the buffer.
    range: BufferRange,
    transfer: TransferId,
    beyond_gap: bool,
}

impl Placement {
    /// The position after the last octet.
    fn end(&self) -> u64 {
        self.at + u64::from(self.range.octets())
    }

    /// Returns it and `next` as one, if `next` is the same claim on the next octets of the stream, for the
    /// next octets of the buffer.
    fn joined(&self, next: &Self) -> Option<Self> {
        let continues = self.end() == next.at
            && self.range.end() == u64::from(next.range.offset())
            && (self.transfer, self.beyond_gap) == (next.transfer, next.beyond_gap);
        let octets = self.range.octets().checked_add(next.range.octets()).filter(|_| continues)?;
        let range = BufferRange::new(self.range.offset(), octets)?;
        (self.range.octets() > 0 && next.range.octets() > 0).then_some(Self { range, ..*self })
    }
}

/// A position where a message begins, and whose turn has not come.
#[derive(Clone, Copy, Debug)]
struct MessageStart {
    position: u64,
    /// The end of octets that were handed out from here on, or from before; 0 if none were.
    handed_out_to: u64,
}

/// A transfer of which the segments of a burst bring one part after the other, in order. What the first of
/// them has shown holds for those that say the same and continue it; the transfer has them when the
/// continuation ends.
///
/// Example: octets 0 to 1427 of a buffer of 65536 came in a segment that says that all of its 1428 octets are
/// of the transfer. The next one says so too, with a buffer offset of 1428. The 46th, the last, is shorter.
#[derive(Clone, Copy, Debug)]
struct Continuation {
    transfer: TransferId,
    /// The option of the segment before.
    option: TransferWords,
    /// Octets of the payload of each segment.
    segment_octets: u32,
    /// Where in the buffer the next segment begins, and the last place where it may end.
    next: u32,
    end: u32,
    /// Octets that the transfer does not have yet.
    octets: u32,
}

impl Continuation {
    /// Returns true if a segment of `payload_octets` octets with `option` continues it.
    #[inline]
    fn is_continued_by(&self, option: TransferWords, payload_octets: usize) -> bool {
        option.is_at(&self.option, self.next)
            && payload_octets == self.segment_octets as usize
            && self.segment_octets <= self.end - self.next
    }
}

/// Records that one segment may add: that a message begins, that octets are placed, and that they complete
/// their transfer. Before each of them two must have room.
const RECORDS_OF_SEGMENT: usize = 4;

/// The name and the buffer of a record that is of no transfer.
const NO_TRANSFER: Record = Record {
    at: 0,
    rid: Rid::new(0).expect("46 bits"),
    buffer: Buffer::Expected,
    kind: RecordKind::MessageStart,
};

/// What an application receives, at its core.
#[derive(Debug)]
pub struct Inbound {
    shared: Arc<SharedByteStream>,
    transfers: Transfers,
    /// In stream order, without overlap.
    placements: VecDeque<Placement>,
    /// In stream order.
    message_starts: VecDeque<MessageStart>,
    /// The last of those that the application was told of: a copy of its segment may come before its octets
    /// find room.
    last_message_start: Option<u64>,
    /// The ring, and how many octets had been put into others when it replaced the last of them.
    ring: Region,
    ring_from: u64,
    /// Octets of the longest ring that may replace it.
    longest_ring: usize,
    /// Octets in the ring so far, published or not.
    filled: u64,
    /// Octets in the ring that the application was told of.
    filled_told: u64,
    /// The next record: octets that were placed last, and may continue.
    placed_last: Option<Record>,
    /// The transfer that the segments of a burst continue.
    continuation: Option<Continuation>,
    /// How far the ring may be filled, and how many records may be pushed, at least: the application, which
    /// makes more room, writes other cache lines, so it is asked only where this does not suffice.
    fill_to: u64,
    records_left: usize,
    /// There are records or counts that the application was not told of.
    has_news: bool,
    /// Octets of messages handed out before their turn.
    early_filled: u64,
    /// The position of the next octet in stream order.
    position: u64,
    commands_done: u64,
    /// Octets came after the application had left, and were dropped.
    dropped: bool,
    /// Octets copied to the ring.
    pub octets_copied: u64,
}

impl Inbound {
    /// What the application of `shared` receives.
    pub fn new(shared: Arc<SharedByteStream>) -> Self {
        let annotated = shared.has_rdma_option();
        let transfers = Transfers::new(shared.unsolicited.clone(), annotated);
        let placements = if annotated { limits::PLACEMENTS_PER_STREAM } else { 0 };
        if annotated {
            // The core pushes to these while octets arrive, when it allocates nothing.
            shared.records.allocate();
            shared.not_expected.allocate();
        }
        let (ring, longest_ring) = (shared.receive_ring.clone(), shared.receive_bytes());
        Self {
            shared,
            transfers,
            placements: VecDeque::with_capacity(placements),
            message_starts: VecDeque::new(),
            last_message_start: None,
            ring,
            ring_from: 0,
            longest_ring,
            filled: 0,
            filled_told: 0,
            placed_last: None,
            continuation: None,
            fill_to: 0,
            records_left: 0,
            has_news: false,
            early_filled: 0,
            position: 0,
            commands_done: 0,
            dropped: false,
            octets_copied: 0,
        }
    }

    /// The position of the next octet in stream order.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Whether there is anything that the application has not read, and the core has no more.
    pub fn has_unread(&self) -> bool {
        self.dropped
            || self.filled != self.shared.consumed.load(Ordering::Acquire)
            || !self.shared.records.is_empty()
    }

    /// The counters of its transfers.
    pub const fn counters(&self) -> &TransferCounters {
        &self.transfers.counters
    }

    /// Carries out what the application has asked for. Returns true if there is a longer ring, and so more
    /// window to offer.
    pub fn receive_commands(&mut self) -> bool {
        let (mut done, ring_octets) = (0, self.ring.len());
        while done < limits::BYTE_STREAM_COMMANDS
            && let Some(command) = self.shared.commands.pop()
        {
            match command {
                // A name that is in use stays what it is.
                ReaderCommand::Expect { rid, memory, offset, octets } => {
                    if !self.transfers.expect(rid, memory, offset, octets) {
                        let told = self.shared.not_expected.push(rid);
                        debug_assert!(told.is_ok(), "the reader takes them before it asks for more");
                    }
                }
                ReaderCommand::Cancel(rid) => self.transfers.close(rid),
                ReaderCommand::Release(buffer) => self.transfers.release_buffer(buffer),
                ReaderCommand::ReplaceRing(longer) => self.replace_ring(longer),
            }
            done += 1;
        }
        if done > 0 {
            self.commands_done += done as u64;
            self.shared.commands_done.store(self.commands_done, Ordering::Release);
            self.shared.reader.wake();
        }
        self.ring.len() != ring_octets
    }

    /// Puts what comes next into a longer ring. The reader, which has both, reads the rest of the one before
    /// and drops it.
    fn replace_ring(&mut self, longer: Region) {
        debug_assert!(longer.len() > self.ring.len(), "what was offered has room");
        self.ring = longer;
        self.ring_from = self.filled;
        // The reader sees this before any octet of the new ring.
        self.shared.ring_from.store(self.ring_from, Ordering::Release);
    }

    /// Records that a message begins with the payload of a segment, if its application wants to be told. A
    /// copy of the segment says the same.
    // Requirements: TRO-3.1.6-01
    pub fn record_message_start(&mut self, arrived: &Arrived) {
        let position = arrived.payload;
        let is_kept = position >= self.position && position < arrived.kept.1;
        if !self.shared.message_starts || !is_kept || Some(position) == self.last_message_start {
            return;
        }
        if let Err(at) = self.message_starts.binary_search_by_key(&position, |start| start.position)
            && self.message_starts.len() < limits::MESSAGE_STARTS_PER_STREAM
        {
            // Octets are handed out once, also if they turn out to be two messages.
            let before = at.checked_sub(1).map_or(0, |before| self.message_starts[before].handed_out_to);
            let handed_out_to = if before > position { before } else { 0 };
            self.message_starts.insert(at, MessageStart { position, handed_out_to });
        }
    }

    /// Whether its application wants complete messages before their turn.
    pub fn wants_early_messages(&self) -> bool {
        self.shared.early.is_some()
    }

    /// Hands out the messages beyond a gap that a segment, of the octets at the positions of `segment`, may
    /// have completed. `is_entire` is called with the position of a first octet and the one after the last;
    /// `copy` as by [`place`](Self::place). Returns how many octets were handed out.
    ///
    /// A message ends where the next one begins: what two known beginnings enclose is handed out.
    // Requirements: TRO-3.1.6-03
    pub fn hand_out_early(
        &mut self,
        segment: Range<u64>,
        is_entire: impl Fn(u64, u64) -> bool,
        mut copy: impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) -> u64 {
        let Some(early) = &self.shared.early else { return 0 };
        if self.shared.abandoned.load(Ordering::Acquire) {
            return 0;
        }
        let filled_before = self.early_filled;
        // The first is the message that may end where the segment begins.
        let first =
            self.message_starts.partition_point(|start| start.position < segment.start).saturating_sub(1);
        for at in first..first + limits::EARLY_MESSAGES_PER_SEGMENT {
            let Some(next) = self.message_starts.get(at + 1).map(|next| next.position) else { break };
            let start = &mut self.message_starts[at];
            if start.position >= segment.end {
                break;
            }
            // The reader is not told of a beginning inside of a placement.
            let placed = self.placements.partition_point(|placement| placement.end() <= start.position);
            let is_inside =
                self.placements.get(placed).is_some_and(|placement| placement.at < start.position);
            if start.handed_out_to > 0 || is_inside || !is_entire(start.position, next) {
                continue;
            }
            let (position, octets) = (start.position, (next - start.position) as u32);
            let message = EarlyMessage { position, octets };
            let pushed = early.push(&mut self.early_filled, message, |write| {
                copy(position, octets as usize, write);
            });
            start.handed_out_to = if pushed { next } else { 0 };
            let counters = &mut self.transfers.counters;
            counters.messages_early += u64::from(pushed);
            counters.messages_early_refused += u64::from(!pushed);
        }
        self.publish_counters();
        if self.early_filled != filled_before {
            self.shared.reader.wake();
        }
        self.early_filled - filled_before
    }

    /// Places the octets of the transfer that `option` describes in a segment. `copy` is called with a
    /// position, a number of octets, and a function for the slices that make them up. Octets that are not
    /// placed, for any reason, are read from the stream.
    pub fn place(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        copy: impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) {
        self.place_fitting(option, arrived, copy);
        self.publish_counters();
    }

    /// As [`place`](Self::place), but the application is not told of the counters.
    #[inline]
    fn place_fitting(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        copy: impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) {
        if self.shared.abandoned.load(Ordering::Acquire) {
            return;
        }
        if option.fits(arrived.payload_octets) {
            self.place_new(option, arrived, copy);
        } else {
            self.transfers.counters.outside_payload += 1;
        }
    }

    /// Accepts `payload`, the next octets in stream order, all of one segment, with the octets of its RDMA
    /// option, or none: those of a transfer are placed, and all are handed over. The application
    /// [has room](Self::has_room) for them. [`tell`](Self::tell) follows.
    #[inline]
    pub fn receive(&mut self, payload: &[u8], option: &[u8]) {
        if let Some(words) = TransferWords::of(option)
            && let Some(continuation) = &mut self.continuation
            && continuation.is_continued_by(words, payload.len())
        {
            self.transfers.write(continuation.transfer, continuation.next.into(), payload);
            continuation.next += continuation.segment_octets;
            continuation.octets += continuation.segment_octets;
            return;
        }
        self.receive_next(payload, option);
    }

    /// As [`receive`](Self::receive), of a segment that continues nothing.
    fn receive_next(&mut self, payload: &[u8], option: &[u8]) {
        if let Some(continuation) = self.continuation {
            self.end_continuation(continuation);
        }
        let begin = self.position;
        let copy = |at: u64, octets: usize, write: &mut dyn FnMut(&[u8])| {
            let skip = (at - begin) as usize;
            if let Some(slice) = payload.get(skip..skip + octets) {
                write(slice);
            }
        };
        if let Some(parsed) = option.get(2..).and_then(RdmaOption::parse) {
            let kept = (begin, begin + payload.len() as u64);
            let arrived = Arrived { payload: begin, payload_octets: payload.len(), kept, in_order: true };
            if parsed.begins_message() {
                self.record_message_start(&arrived);
            }
            if let RdmaOption::Transfer(transfer) = &parsed {
                self.has_news = true;
                if let Some(placement) = self.place_next(transfer, &arrived, copy) {
                    self.begin_continuation(&placement, TransferWords::of(option));
                    return;
                }
            }
        }
        let octets = self.hand_over_next(payload.len(), true, |skip, octets, write| {
            copy(begin + skip as u64, octets, write);
        });
        debug_assert_eq!(octets, payload.len(), "there was room for all");
    }

    /// Records that the next segments may continue a placement that was handed over: all of the payload of
    /// its segment, which has the option `option`.
    fn begin_continuation(&mut self, placement: &Placement, option: Option<TransferWords>) {
        let Placement { range, transfer, .. } = *placement;
        // Where a message begins is told, segment by segment.
        let Some(option) = option.filter(|_| !self.shared.message_starts) else { return };
        let continues = self.placed_last.is_some() && range.octets() > 0;
        if continues && let Some(end) = self.transfers.continues_to(transfer, range) {
            let (segment_octets, next) = (range.octets(), range.end() as u32);
            self.continuation = Some(Continuation { transfer, option, segment_octets, next, end, octets: 0 });
        }
    }

    /// Gives the transfer what has continued it.
    fn end_continuation(&mut self, continuation: Continuation) {
        self.continuation = None;
        let Continuation { transfer, segment_octets, octets, .. } = continuation;
        if octets == 0 {
            return;
        }
        self.transfers.append(transfer, octets, octets / segment_octets);
        self.position += u64::from(octets);
        let placed = self.placed_last.as_mut().map(|record| &mut record.kind);
        debug_assert!(matches!(placed, Some(RecordKind::Placed { .. })), "it is of the transfer");
        if let Some(RecordKind::Placed { octets: placed, .. }) = placed {
            *placed += octets;
        }
    }

    /// Places the octets of a segment that are next in stream order. Returns their placement if they are
    /// handed over: the transfer has all of them, and nothing is to be told before.
    fn place_next(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        mut copy: impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) -> Option<Placement> {
        let has_all = option.data_offset == 0 && usize::from(option.data_octets) == arrived.payload_octets;
        let is_next = self.message_starts.is_empty() && self.placements.is_empty();
        if !has_all || !is_next || self.shared.abandoned.load(Ordering::Acquire) {
            self.place_fitting(option, arrived, copy);
            return None;
        }
        let (at, end) = arrived.kept;
        let placement = self.place_part(option, arrived, at, end, &mut copy)?;
        self.transfers.counters.segments_placed += 1;
        self.deliver(&placement).then_some(placement)
    }

    /// Places the octets of a segment that are not placed yet. Those that came beyond a gap, and were placed
    /// there by the same words, keep their place: to claim it again would revoke it.
    fn place_new(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        mut copy: impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) {
        // A segment is kept in part if some of its octets have come before: the rest is placed.
        let data = arrived.payload + u64::from(option.data_offset);
        let end = (data + u64::from(option.data_octets)).min(arrived.kept.1);
        let mut at = data.max(arrived.kept.0).max(self.position);
        if at > end || (at == end && option.data_octets > 0) {
            return;
        }
        let mut placed = 0;
        while let Some(same) = self.placed_alike(option, data, at, end) {
            if at < same.at {
                placed += u32::from(self.place_and_add(option, arrived, at, same.at, &mut copy));
            }
            at = same.end();
        }
        if at < end || option.data_octets == 0 {
            placed += u32::from(self.place_and_add(option, arrived, at, end, &mut copy));
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
        let rid = self.shared.rid_format.received(option.rid);
        let first = self.placements.partition_point(|placement| placement.end() <= at);
        let among = self.placements.range(first..).take_while(|placement| placement.at < end);
        let alike = |placement: &&Placement| {
            let described = u64::from(option.buffer_offset) + placement.at;
            let is_there = described == u64::from(placement.range.offset()) + data;
            let counts = self.transfers.counts(placement.transfer) && placement.range.octets() > 0;
            let name = self.transfers.names(placement.transfer).filter(|_| counts);
            is_there && name.is_some_and(|(name, _)| name == rid)
        };
        among.filter(|placement| placement.end() > at).find(alike).copied()
    }

    /// Places the octets of a segment from position `at` to `end`, whose turn comes. Returns false if they
    /// are refused.
    fn place_and_add(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        at: u64,
        end: u64,
        copy: &mut impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) -> bool {
        let placement = self.place_part(option, arrived, at, end, copy);
        if let Some(placement) = placement {
            self.add_placement(placement);
        }
        placement.is_some()
    }

    /// Places the octets of a segment from position `at` to `end`. Returns `None` if they are refused.
    #[inline]
    fn place_part(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        at: u64,
        end: u64,
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
        let option = &Transfer { rid: self.shared.rid_format.received(option.rid), ..*option };
        let transfer = self.transfers.claim(option, range, arrived.in_order)?;
        Some((transfer, range))
    }

    fn publish_counters(&self) {
        self.shared.transfer_counters.publish(self.counters());
    }

    /// Adds a placement to those whose turn has not come, as one with its neighbours where they continue each
    /// other: small segments of one burst need no more room than large ones.
    fn add_placement(&mut self, mut placement: Placement) {
        let Placement { at, .. } = placement;
        // Transfers of nothing go before others at their position, and have none for themselves.
        let mut index = self
            .placements
            .partition_point(|before| before.at < at || (before.at == at && before.range.octets() == 0));
        // A message that begins between two is told between them.
        let begins_message =
            |at: u64| self.message_starts.binary_search_by_key(&at, |start| start.position).is_ok();
        let after = self.placements.get(index).filter(|after| !begins_message(after.at));
        if let Some(joined) = after.and_then(|after| placement.joined(after)) {
            placement = joined;
            self.placements.remove(index);
        }
        let before = index.checked_sub(1).and_then(|before| self.placements.get(before));
        let before = before.filter(|_| !begins_message(at));
        if let Some(joined) = before.and_then(|before| before.joined(&placement)) {
            placement = joined;
            index -= 1;
            self.placements.remove(index);
        }
        self.placements.insert(index, placement);
    }

    fn has_room_for_placement(&mut self) -> bool {
        let room = self.placements.len() < limits::PLACEMENTS_PER_STREAM;
        self.transfers.counters.too_scattered += u64::from(!room);
        room
    }

    /// Hands the next `available` octets in stream order to the application, as many as it has room for.
    /// `copy` is called as by [`place`](Self::place), with numbers of octets from the next one on. Octets
    /// that were placed wait for room for their record if they `may_wait`. Otherwise they are copied to the
    /// ring, where the stream [allows it](Self::may_give_up). Returns how many octets were handed over.
    pub fn hand_over(
        &mut self,
        available: usize,
        may_wait: bool,
        copy: impl FnMut(usize, usize, &mut dyn FnMut(&[u8])),
    ) -> usize {
        debug_assert!(self.continuation.is_none(), "the application was told of a burst");
        let octets = self.hand_over_next(available, may_wait, copy);
        self.tell();
        octets
    }

    /// As [`hand_over`](Self::hand_over), but the application is not told yet.
    fn hand_over_next(
        &mut self,
        available: usize,
        may_wait: bool,
        mut copy: impl FnMut(usize, usize, &mut dyn FnMut(&[u8])),
    ) -> usize {
        let begin = self.position;
        let end = begin + available as u64;
        if self.shared.abandoned.load(Ordering::Acquire) {
            self.position = end;
            self.dropped |= available > 0;
            return available;
        }
        loop {
            let next = self.next_placement(end);
            let octets_end = next.map_or(end, |placement| placement.at);
            let start = self.next_message_start(octets_end).filter(|start| *start < end);
            let octets_end = start.unwrap_or(octets_end);
            if octets_end > self.position {
                let wanted = (octets_end - self.position) as usize;
                let taken = self.room_in_ring(wanted);
                let skip = (self.position - begin) as usize;
                let (ring, mut at) = (&self.ring, self.filled);
                copy(skip, taken, &mut |slice| {
                    let written = octet_ring::write(ring, at, slice);
                    debug_assert!(written, "a ring takes what there is room for");
                    at += slice.len() as u64;
                });
                self.filled += taken as u64;
                self.position += taken as u64;
                self.octets_copied += taken as u64;
                if taken < wanted {
                    break;
                }
            }
            if start.is_none() && next.is_none() {
                break;
            }
            // A record for the octets, and one for the end of the transfer.
            if !self.has_room_for_records(2) {
                if may_wait || !self.may_give_up() {
                    break;
                }
                self.give_up_placement();
                continue;
            }
            if start.is_some() {
                self.last_message_start = self.message_starts.pop_front().map(|start| start.position);
                self.push(Record { at: self.filled, kind: RecordKind::MessageStart, ..NO_TRANSFER });
                continue;
            }
            let Some(placement) = next else { break };
            self.placements.pop_front();
            self.deliver(&placement);
        }
        (self.position - begin) as usize
    }

    /// Tells the application what was handed over.
    pub fn tell(&mut self) {
        if let Some(continuation) = self.continuation {
            self.end_continuation(continuation);
        }
        let has_news = core::mem::take(&mut self.has_news);
        if has_news {
            self.push_placed();
            self.publish_counters();
        }
        // After the records: the reader may read all octets that it sees, up to the next record.
        let has_octets = self.filled != self.filled_told;
        if has_octets {
            self.filled_told = self.filled;
            self.shared.filled.store(self.filled, Ordering::Release);
        }
        if has_octets || has_news {
            self.shared.reader.wake();
        }
    }

    /// The first position up to `end` where a message begins. Those inside of placements are dropped.
    fn next_message_start(&mut self, end: u64) -> Option<u64> {
        while self.message_starts.front().is_some_and(|start| start.position < self.position) {
            self.message_starts.pop_front();
        }
        self.message_starts.front().map(|start| start.position).filter(|start| *start <= end)
    }

    /// The next placement that counts, if all of its octets come before `end`. Those that do not count are
    /// dropped: their octets are still in their frames.
    fn next_placement(&mut self, end: u64) -> Option<Placement> {
        while let Some(placement) = self.placements.front().copied() {
            if placement.at < self.position || !self.transfers.counts(placement.transfer) {
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

    /// Returns true if octets that were placed may be handed over in the ring: only their place is lost. A
    /// beginning of a message is told by a record only, so where the application wants it, octets wait.
    pub fn may_give_up(&self) -> bool {
        !self.shared.message_starts
    }

    /// Gives up the placement whose turn has come: its octets are read from the stream, where they still are.
    #[cold]
    fn give_up_placement(&mut self) {
        let Some(placement) = self.placements.pop_front() else { return };
        self.transfers.give_up(placement.transfer, placement.range, placement.beyond_gap);
        self.count_dropped(&placement);
    }

    /// Hands a placement to the application, whose turn has come. Returns false if it does not count after
    /// all; its octets follow from the stream then.
    #[inline]
    fn deliver(&mut self, placement: &Placement) -> bool {
        let Placement { range, transfer, beyond_gap, .. } = *placement;
        let Some((rid, buffer)) = self.transfers.names(transfer) else { return false };
        if !self.transfers.deliver(transfer, range, beyond_gap) {
            return false;
        }
        let (offset, octets) = (range.offset(), range.octets());
        self.position += u64::from(octets);
        let record = Record { at: self.filled, rid, buffer, kind: RecordKind::Placed { offset, octets } };
        if octets > 0 {
            self.push(record);
        }
        if let Some(total_octets) = self.transfers.end_if_complete(transfer) {
            self.push(Record { kind: RecordKind::Complete { total_octets }, ..record });
        }
        true
    }

    /// Pushes a record, as one with that before it where octets that were placed continue: the segments of a
    /// burst need no more room than one.
    fn push(&mut self, record: Record) {
        self.has_news = true;
        if let Some(longer) = self.placed_last.as_ref().and_then(|last| last.joined(&record)) {
            self.placed_last = Some(longer);
            return;
        }
        self.push_placed();
        if matches!(record.kind, RecordKind::Placed { .. }) {
            self.placed_last = Some(record);
        } else {
            self.push_now(record);
        }
    }

    /// Pushes the record that waited for octets to continue it.
    fn push_placed(&mut self) {
        if let Some(record) = self.placed_last.take() {
            self.push_now(record);
        }
    }

    fn push_now(&mut self, record: Record) {
        self.records_left = self.records_left.saturating_sub(1);
        let pushed = self.shared.records.push(record);
        debug_assert!(pushed.is_ok(), "room for two was seen, and nobody else pushes");
    }

    /// Whether there is room for `count` records more.
    #[inline]
    fn has_room_for_records(&mut self, count: usize) -> bool {
        let count = count + usize::from(self.placed_last.is_some());
        if count > self.records_left {
            let records = &self.shared.records;
            self.records_left = records.capacity() - records.len();
        }
        count <= self.records_left
    }

    /// Returns how many of `wanted` octets the ring has room for.
    #[inline]
    fn room_in_ring(&mut self, wanted: usize) -> usize {
        if self.fill_to - self.filled < wanted as u64 {
            self.fill_to = self.filled + self.ring_room() as u64;
        }
        wanted.min((self.fill_to - self.filled) as usize)
    }

    fn ring_room(&self) -> usize {
        // What is not consumed of a ring before this one takes no room in this one.
        let used = self.filled - self.shared.consumed.load(Ordering::Acquire).max(self.ring_from);
        self.ring.len() - used as usize
    }

    /// Octets that the ring holds.
    #[inline]
    pub fn ring_octets(&self) -> u32 {
        u32::try_from(self.ring.len()).unwrap_or(u32::MAX)
    }

    /// Returns true if a longer ring may replace this one.
    #[inline]
    pub fn may_grow(&self) -> bool {
        self.ring.len() < self.longest_ring
    }

    /// Octets of the stream that find room in the ring, whatever the application does.
    #[inline]
    pub fn room_octets(&self) -> u32 {
        u32::try_from(self.ring_room()).unwrap_or(u32::MAX)
    }

    /// Returns true if more than half of the records may still be pushed. Those that are left then suffice
    /// for a window of long segments, each of another transfer than the one before.
    #[inline]
    pub fn has_many_records(&mut self) -> bool {
        self.has_room_for_records(self.shared.records.capacity() / 2)
    }

    /// Whether all `octets` octets of a segment that are next in the stream can be handed over from where
    /// they lie, whatever it says about them: no placement prevents it.
    #[inline]
    pub fn has_room(&mut self, octets: usize) -> bool {
        self.placements.is_empty() && self.message_starts.is_empty() && self.takes(octets)
    }

    /// Whether `octets` octets of a segment that are next in the stream are handed over as they come,
    /// whatever lies beyond them.
    #[inline]
    pub fn takes(&mut self, octets: usize) -> bool {
        self.room_in_ring(octets) == octets && self.has_room_for_records(RECORDS_OF_SEGMENT)
    }

    /// Records that octets wait for room, or do no more. Returns true if there is room after all.
    pub fn record_stalled(&mut self, stalled: bool) -> bool {
        if !stalled {
            return false;
        }
        self.shared.stalled.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // The application may have made room before it could see that.
        self.ring_room() > 0 && self.has_room_for_records(2)
    }

    /// Tells the application that the peer sends nothing more.
    pub fn finish(&self) {
        self.shared.peer_finished.store(true, Ordering::Release);
        self.shared.reader.wake();
    }
}

#[cfg(test)]
mod tests;
