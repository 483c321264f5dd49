//! The transfers of one connection: which names the application expects, where their octets go, and which of
//! them have come; and the buffers for those that it does not expect.

use std::collections::VecDeque;

use super::counters::TransferCounters;
use super::intervals::{BufferRange, Inserted, Intervals};
use crate::limits;
use crate::memory::Region;
use crate::wire::tcp_rdma::{Rid, Transfer};

/// Buffers of one size for unsolicited transfers (draft-csapuntz-tcprdma-00 §3.1.7, §6.1). What a peer can
/// occupy of its receiver is all of them, and no more.
// Requirements: TRO-6.1-03
#[derive(Clone, Debug)]
pub struct UnsolicitedPool {
    memory: Region,
    buffer_octets: usize,
}

impl UnsolicitedPool {
    /// As many buffers of `buffer_octets` octets as `memory` has room for, at most
    /// [`UNSOLICITED_BUFFERS_PER_STREAM`](limits::UNSOLICITED_BUFFERS_PER_STREAM). `None` if it has room for
    /// none.
    pub fn new(memory: Region, buffer_octets: usize) -> Option<Self> {
        (buffer_octets > 0 && buffer_octets <= memory.len()).then_some(Self { memory, buffer_octets })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        (self.memory.len() / self.buffer_octets).min(limits::UNSOLICITED_BUFFERS_PER_STREAM)
    }

    /// Octets of each.
    pub const fn buffer_octets(&self) -> usize {
        self.buffer_octets
    }

    /// The memory of all, and where buffer `index` begins in it.
    pub fn buffer(&self, index: u16) -> Option<(&Region, usize)> {
        (usize::from(index) < self.count()).then(|| (&self.memory, usize::from(index) * self.buffer_octets))
    }

    /// The numbers of all buffers.
    pub(super) fn all(&self) -> VecDeque<u16> {
        (0..self.count() as u16).collect()
    }
}

/// A buffer that octets of a transfer are placed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// The one that the application has named for the transfer.
    Expected,
    /// One of the buffers for unsolicited transfers.
    Unsolicited(u16),
}

/// What is in a stream beside octets that are read from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Octets of the ring before it, since the beginning.
    pub(super) at: u64,
    pub(super) rid: Rid,
    pub(super) buffer: Buffer,
    pub(super) kind: RecordKind,
}

impl Record {
    /// Returns that a message begins after `at` octets of the ring.
    pub(super) const fn message_start(at: u64) -> Self {
        const NO_NAME: Rid = Rid::new(0).expect("46 bits");
        Self { at, rid: NO_NAME, buffer: Buffer::Expected, kind: RecordKind::MessageStart }
    }

    /// Returns it and `next`, which comes right after it, as one, if both say that octets are placed, and
    /// those of `next` continue it in the stream and in the buffer.
    pub(super) fn joined(&self, next: &Self) -> Option<Self> {
        let (RecordKind::Placed { offset, octets }, RecordKind::Placed { offset: at, octets: more }) =
            (self.kind, next.kind)
        else {
            return None;
        };
        let continues = (self.at, self.rid, self.buffer) == (next.at, next.rid, next.buffer)
            && offset.checked_add(octets) == Some(at);
        let octets = octets.checked_add(more).filter(|_| continues)?;
        Some(Self { kind: RecordKind::Placed { offset, octets }, ..*self })
    }
}

/// What a [`Record`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// These octets of the stream are in the buffer.
    Placed {
        /// From this offset on.
        offset: u32,
        /// How many.
        octets: u32,
    },
    /// All octets of the transfer are in the buffer: its name is free.
    Complete {
        /// How many there are.
        total_octets: u32,
    },
    /// The octet after it begins a message. It is of no transfer: its name and buffer say nothing.
    MessageStart,
}

/// Which transfer a placement belongs to, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferId {
    pub(super) slot: u16,
    /// Changes when the transfer ends, and when its octets beyond gaps count no more.
    epoch: u32,
}

#[derive(Debug)]
struct Slot {
    rid: Rid,
    buffer: Buffer,
    memory: Region,
    /// Where the buffer begins in `memory`, and its octets.
    offset: usize,
    octets: u64,
    total_octets: Option<u32>,
    /// Nothing more is placed: the peer contradicts itself.
    refused: bool,
    /// Offsets of octets in stream order, or whose segment came in order: they stay.
    kept: Intervals,
    /// A gap of `kept` was closed, or octets were given up: they are read from the stream, so the transfer is
    /// not complete.
    has_closed_gap: bool,
    /// Offsets of octets placed beyond a gap: whatever fills the gap may replace them.
    tentative: Intervals,
    /// Octets whose turn in the stream has come: all of them are kept.
    delivered: u64,
}

impl Slot {
    /// Accepts the total of an option. Returns false if the peer contradicts itself: the total is another
    /// than before, or octets beyond it have been placed. It is refused then, unless all of it has been
    /// placed: such a segment takes nothing away from a transfer that is complete, and when the application
    /// reads must not decide what becomes of it.
    ///
    /// Example: 200 to 249 are placed by an option of 16 octets. A total of 249 is a contradiction, 250 not.
    // Requirements: TRO-3.1.4-01
    fn accept_total(&mut self, total: u32) -> bool {
        let placed_end = self.kept.end().max(self.tentative.end());
        let fits = self.total_octets.map_or(u64::from(total) >= placed_end, |before| before == total);
        if fits {
            self.total_octets = Some(total);
        } else {
            self.refused = !self.is_entire();
        }
        fits
    }

    /// Returns true if all octets of the transfer have been placed, and stay. Those of a closed gap have not.
    fn is_entire(&self) -> bool {
        !self.has_closed_gap && self.total_octets.is_some_and(|total| self.kept.is_all_below(total))
    }

    /// Keeps octets where they are placed. Where there are too many gaps, one is given up: what belongs there
    /// is read from the stream, and all that follows is placed. Else a burst of losses, each of which leaves
    /// octets that found no interval, would end the placing of a long transfer for good.
    fn keep(&mut self, range: BufferRange) -> bool {
        let inserted = self.kept.insert_or_close_gap(range, &self.tentative);
        self.has_closed_gap |= inserted == Inserted::RangeAndGap;
        inserted != Inserted::Nothing
    }
}

/// The transfers of one connection.
// Requirements: TRO-6.1-02
#[derive(Debug)]
pub(super) struct Transfers {
    /// By name.
    names: Vec<(Rid, u16)>,
    /// The slot that was found last: most segments are of the same transfer as the one before.
    found_last: u16,
    slots: Vec<Option<Slot>>,
    epochs: Vec<u32>,
    free: Vec<u16>,
    pool: Option<UnsolicitedPool>,
    /// Unsolicited buffers that are free, the longest first.
    free_buffers: VecDeque<u16>,
    pub(super) counters: TransferCounters,
}

impl Transfers {
    /// Returns none yet. They have memory from the beginning if the stream is `annotated`: a core does not
    /// allocate while octets arrive. Otherwise no octet is placed, whatever is expected.
    pub(super) fn new(pool: Option<UnsolicitedPool>, annotated: bool) -> Self {
        let most = if annotated { limits::TRANSFERS_PER_STREAM } else { 0 };
        Self {
            names: Vec::with_capacity(most),
            found_last: 0,
            slots: Vec::with_capacity(most),
            epochs: Vec::with_capacity(most),
            free: Vec::with_capacity(most),
            free_buffers: pool.as_ref().map(UnsolicitedPool::all).unwrap_or_default(),
            pool,
            counters: TransferCounters::default(),
        }
    }

    #[inline]
    fn find(&mut self, rid: Rid) -> Option<u16> {
        let last = self.slots.get(usize::from(self.found_last)).and_then(Option::as_ref);
        if last.is_none_or(|last| last.rid != rid) {
            let at = self.names.binary_search_by_key(&rid, |name| name.0).ok()?;
            self.found_last = self.names[at].1;
        }
        Some(self.found_last)
    }

    /// Expects a transfer: its octets go to the `octets` octets at `offset` of `memory`. Returns false if
    /// there are too many, or one of this name has begun: an unsolicited one uses it.
    pub(super) fn expect(&mut self, rid: Rid, memory: Region, offset: usize, octets: usize) -> bool {
        self.open(rid, Buffer::Expected, memory, offset, octets)
    }

    /// Returns the number of the transfer, if it is an unsolicited one of which nothing was delivered.
    pub(super) fn undelivered(&self, transfer: TransferId) -> Option<u16> {
        let slot = self.slots[usize::from(transfer.slot)].as_ref()?;
        (slot.buffer != Buffer::Expected && slot.delivered == 0).then_some(transfer.slot)
    }

    /// Ends an unsolicited transfer that was never reported to the application, and frees its buffer.
    pub(super) fn forget(&mut self, slot: u16) {
        let slot = self.slots[usize::from(slot)].as_ref();
        if let Some(Slot { buffer: Buffer::Unsolicited(buffer), .. }) = slot {
            self.release_buffer(*buffer);
        }
    }

    // Two requests at once do not share a name.
    // Requirements: TRO-5.3.1-01
    fn open(&mut self, rid: Rid, buffer: Buffer, memory: Region, offset: usize, octets: usize) -> bool {
        let Err(at) = self.names.binary_search_by_key(&rid, |name| name.0) else { return false };
        let Some(slot) = self.free.pop().or_else(|| self.add_slot()) else { return false };
        self.names.insert(at, (rid, slot));
        self.slots[usize::from(slot)] = Some(Slot {
            rid,
            buffer,
            memory,
            offset,
            octets: octets as u64,
            total_octets: None,
            refused: false,
            kept: Intervals::default(),
            has_closed_gap: false,
            tentative: Intervals::default(),
            delivered: 0,
        });
        true
    }

    /// Adds a slot, if there may be more.
    fn add_slot(&mut self) -> Option<u16> {
        let slot = self.slots.len();
        if slot == limits::TRANSFERS_PER_STREAM {
            return None;
        }
        self.slots.push(None);
        self.epochs.push(0);
        Some(slot as u16)
    }

    /// Ends the transfer: nothing more is placed for its name.
    pub(super) fn close(&mut self, rid: Rid) {
        if let Ok(at) = self.names.binary_search_by_key(&rid, |name| name.0) {
            let (_, slot) = self.names.remove(at);
            self.end(slot);
        }
    }

    /// Ends the transfer as its application asks. An unsolicited one of which nothing was delivered gives its
    /// buffer back: the application has not heard of that buffer, and could not. One that it has heard of, or
    /// will when it reads, it [releases](Self::release_buffer) itself.
    // Requirements: TRO-6.1-03
    pub(super) fn cancel(&mut self, rid: Rid) {
        let slot = self.find(rid).and_then(|slot| self.slots[usize::from(slot)].as_ref());
        match slot {
            Some(&Slot { buffer: Buffer::Unsolicited(buffer), delivered: 0, .. }) => {
                self.release_buffer(buffer);
            }
            _ => self.close(rid),
        }
    }

    fn end(&mut self, slot: u16) {
        let at = usize::from(slot);
        self.slots[at] = None;
        self.epochs[at] = self.epochs[at].wrapping_add(1);
        self.free.push(slot);
    }

    /// Frees an unsolicited buffer, and ends the transfer that has it.
    pub(super) fn release_buffer(&mut self, buffer: u16) {
        let of = |slot: &&Slot| slot.buffer == Buffer::Unsolicited(buffer);
        if let Some(rid) = self.slots.iter().flatten().find(of).map(|slot| slot.rid) {
            self.close(rid);
        }
        let known = self.pool.as_ref().is_some_and(|pool| usize::from(buffer) < pool.count());
        if known && !self.free_buffers.contains(&buffer) {
            self.free_buffers.push_back(buffer);
        }
    }

    /// Finds the transfer of an option, which begins with it if it is unsolicited and has octets, or is of
    /// nothing: only then is it reported to the application. Its octets are those of `range`.
    fn find_or_open(&mut self, option: &Transfer, range: BufferRange) -> Option<u16> {
        if let Some(slot) = self.find(option.rid) {
            return Some(slot);
        }
        if !option.unsolicited {
            self.counters.unknown_rid += 1;
            return None;
        }
        if range.octets() == 0 && option.total_octets != Some(0) {
            return None;
        }
        let end = range.end();
        // The application could not release a buffer that is never reported to it.
        // Requirements: TRO-6.1-01
        let total = option.total_octets.map(u64::from);
        let longest = self.pool.as_ref().map_or(u64::MAX, |pool| pool.buffer_octets() as u64);
        if end > longest || total.is_some_and(|total| total > longest) {
            self.counters.out_of_bounds += 1;
            return None;
        }
        let opened = self.open_unsolicited(option.rid);
        self.counters.over_quota += u64::from(opened.is_none());
        opened
    }

    fn open_unsolicited(&mut self, rid: Rid) -> Option<u16> {
        let pool = self.pool.as_ref()?;
        let buffer = *self.free_buffers.front()?;
        let (memory, offset) = pool.buffer(buffer)?;
        let (memory, octets) = (memory.clone(), pool.buffer_octets());
        if !self.open(rid, Buffer::Unsolicited(buffer), memory, offset, octets) {
            return None;
        }
        self.free_buffers.pop_front();
        self.find(rid)
    }

    /// Checks that the octets `range` of the buffer of `option` may be written for a segment that is
    /// `in_order`, or beyond a gap, and claims them. Returns the transfer.
    pub(super) fn claim(
        &mut self,
        option: &Transfer,
        range: BufferRange,
        in_order: bool,
    ) -> Option<TransferId> {
        if option.total_octets.is_some_and(|total| range.end() > u64::from(total)) {
            // It contradicts itself: nothing that it says counts.
            self.counters.out_of_bounds += 1;
            return None;
        }
        let at = usize::from(self.find_or_open(option, range)?);
        let (counters, slot) = (&mut self.counters, self.slots[at].as_mut()?);
        if slot.refused || option.total_octets.is_some_and(|total| !slot.accept_total(total)) {
            counters.total_changed += 1;
            return None;
        }
        // Requirements: TRO-6.1-01
        let most = slot.total_octets.map_or(slot.octets, u64::from);
        if range.end() > most || most > slot.octets {
            counters.out_of_bounds += 1;
            return None;
        }
        let transfer = TransferId { slot: at as u16, epoch: self.epochs[at] };
        // Most segments continue the one before.
        if in_order && slot.tentative.is_empty() && slot.kept.append(range) {
            return Some(transfer);
        }
        if slot.kept.overlaps(range) || (!in_order && slot.tentative.overlaps(range)) {
            counters.overlapping += 1;
            return None;
        }
        if in_order && slot.tentative.overlaps(range) {
            // What is earlier in the stream has the place. What was placed beyond the gap is read from the
            // stream.
            counters.placements_revoked += 1;
            slot.tentative.clear();
            self.epochs[at] = self.epochs[at].wrapping_add(1);
        }
        let claimed = if in_order { slot.keep(range) } else { slot.tentative.insert(range) };
        if !claimed {
            counters.too_scattered += 1;
            return None;
        }
        Some(TransferId { slot: at as u16, epoch: self.epochs[at] })
    }

    /// Returns how far octets in order may continue `range`, which was kept last, if nothing that is known of
    /// the transfer changes by them: they lie in its buffer and before its last octet, and none is taken.
    pub(super) fn continues_to(&self, transfer: TransferId, range: BufferRange) -> Option<u32> {
        let slot = self.slots[usize::from(transfer.slot)].as_ref().filter(|_| self.counts(transfer))?;
        let is_last = slot.tentative.is_empty() && !slot.refused && slot.kept.end() == range.end();
        let end = slot.total_octets.map_or(slot.octets, |total| slot.octets.min(u64::from(total) - 1));
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        (is_last && range.end() < u64::from(end)).then_some(end)
    }

    /// Keeps and delivers the `octets` octets that continue what was kept last of the transfer: those of
    /// `segments` segments.
    pub(super) fn append(&mut self, transfer: TransferId, octets: u32, segments: u32) {
        let Some(slot) = self.slots[usize::from(transfer.slot)].as_mut() else { return };
        let range = u32::try_from(slot.kept.end()).ok().and_then(|next| BufferRange::new(next, octets));
        let appended = range.is_some_and(|range| slot.kept.append(range));
        debug_assert!(appended, "it continues what was kept last");
        slot.delivered += u64::from(octets);
        self.counters.segments_placed += u64::from(segments);
        self.counters.octets_placed += u64::from(octets);
        self.counters.octets_delivered += u64::from(octets);
    }

    /// Writes `octets` to `at` of the transfer's buffer, which it has claimed.
    #[inline]
    pub(super) fn write(&self, transfer: TransferId, at: u64, octets: &[u8]) {
        let Some(slot) = &self.slots[usize::from(transfer.slot)] else { return };
        let written = slot.memory.write(slot.offset + at as usize, octets);
        debug_assert!(written, "bounds were checked");
    }

    /// Whether a placement still counts.
    pub(super) fn counts(&self, transfer: TransferId) -> bool {
        let at = usize::from(transfer.slot);
        self.epochs[at] == transfer.epoch && self.slots[at].is_some()
    }

    /// The name and the buffer of a placement that counts.
    pub(super) fn names(&self, transfer: TransferId) -> Option<(Rid, Buffer)> {
        self.slots[usize::from(transfer.slot)].as_ref().map(|slot| (slot.rid, slot.buffer))
    }

    /// Records that the turn of a placement has come, which counts, and was made beyond a gap or not. Returns
    /// false if it cannot be kept. The octets are then read from the stream.
    pub(super) fn deliver(&mut self, transfer: TransferId, range: BufferRange, beyond_gap: bool) -> bool {
        let Some(slot) = self.slots[usize::from(transfer.slot)].as_mut() else { return false };
        if beyond_gap {
            // Its place among the tentative ones is free for others, if there is room for two halves.
            slot.tentative.remove(range);
            if !slot.keep(range) {
                self.counters.too_scattered += 1;
                return false;
            }
        }
        slot.delivered += u64::from(range.octets());
        self.counters.octets_delivered += u64::from(range.octets());
        true
    }

    /// Records that octets that were placed, beyond a gap or not, are read from the stream: the transfer is
    /// not complete without them.
    pub(super) fn give_up(&mut self, transfer: TransferId, range: BufferRange, beyond_gap: bool) {
        self.counters.too_scattered += 1;
        let Some(slot) = self.slots[usize::from(transfer.slot)].as_mut() else { return };
        if beyond_gap {
            slot.tentative.remove(range);
        }
        slot.has_closed_gap = true;
    }

    /// Ends the transfer if all of its octets are delivered. Returns how many. One without a total, whose
    /// option has 16 octets, is ended by the application.
    // Requirements: TRO-5.2.2-02
    pub(super) fn end_if_complete(&mut self, transfer: TransferId) -> Option<u32> {
        let slot = self.slots[usize::from(transfer.slot)].as_ref()?;
        // What is kept covers the transfer, and nothing of what is kept waits for its turn. The number of
        // octets would not do: 50 from 200 on and 50 from 0 on are not a transfer of 100.
        let total = slot.total_octets.filter(|total| slot.delivered == u64::from(*total))?;
        if !slot.is_entire() {
            return None;
        }
        let rid = slot.rid;
        self.close(rid);
        Some(total)
    }
}
