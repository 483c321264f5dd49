//! The core's half of what is sent: pieces of the application become runs for TCP, and are kept until the
//! peer has acknowledged them.

use core::cell::Cell;
use core::mem;
use std::collections::VecDeque;
use std::sync::Arc;

use super::octet_ring;
use super::run::{ByteRun, Section, SectionPart};
use super::shared::SharedByteStream;
use crate::memory::Region;
use crate::sync::Ordering;
use crate::wire::tcp::SeqNumber;

/// Pieces for which there is room at first. Few streams have more at a time.
const PIECES_AT_FIRST: usize = 16;

/// Where the octets of a piece are.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// In the send ring, from this position on.
    Ring(u64),
    /// The same, the first octets of a longer ring.
    LongerRing(Region, u64),
    /// In memory that the application has lent, from this offset on.
    Memory(Region, usize),
}

/// Octets that were written in one go, with one annotation.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) octets: u32,
    pub(super) source: Source,
    /// The first octet begins a message.
    pub(super) starts_message: bool,
    pub(super) transfer: PieceTransfer,
}

/// What a piece has of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceTransfer {
    /// Nothing: its octets are of no section.
    None,
    /// Its octets are of this section, from this offset of the receiver's buffer on.
    Section(Section, u32),
    /// Its octets are of no section, and a transfer of nothing goes with the last of them.
    // Requirements: TRO-5.1.2-02
    ThenNothing(Section, u32),
}

/// A piece with its place in the stream.
#[derive(Debug)]
struct Placed {
    piece: Piece,
    /// The position of its first octet.
    at: u64,
}

/// How far TCP has the pieces: all before the one with this number, and so many octets of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    number: u64,
    octets: u32,
}

/// A ring that octets are sent from.
#[derive(Debug)]
struct SendRing {
    memory: Region,
    /// The position of its first octet: those before it are in other rings.
    from: u64,
}

/// A run to be sent, and where the one after it begins.
#[derive(Clone, Copy, Debug)]
pub struct NextRun {
    /// The run.
    pub run: ByteRun,
    after: Cursor,
}

/// What an application sends, at its core.
#[derive(Debug)]
pub struct Outbound {
    shared: Arc<SharedByteStream>,
    /// The ring that was written last.
    ring: SendRing,
    /// Rings before it, of which octets are not acknowledged.
    rings_before: VecDeque<SendRing>,
    /// Octets of rings that were released.
    released_octets: u64,
    /// Those that are not acknowledged.
    pieces: VecDeque<Placed>,
    /// The number of the first of them.
    first: u64,
    cursor: Cursor,
    /// The position after all pieces.
    end: u64,
    /// Positions of the stream and sequence numbers: this one of each is the same octet.
    anchor: (u64, SeqNumber),
    /// Messages begin segments, and sections are annotated: the ends have agreed on the option.
    annotates: bool,
    /// The number of the piece that octets were copied from last: most that are copied next are of it.
    copied_last: Cell<u64>,
}

impl Outbound {
    /// What the application of `shared` sends from the sequence number `start` on. Its annotations are used
    /// if `annotates` is true.
    pub fn new(shared: Arc<SharedByteStream>, start: SeqNumber, annotates: bool) -> Self {
        let ring = SendRing { memory: shared.send_ring.clone(), from: 0 };
        Self {
            shared,
            ring,
            rings_before: VecDeque::new(),
            released_octets: 0,
            pieces: VecDeque::with_capacity(PIECES_AT_FIRST),
            first: 0,
            cursor: Cursor::default(),
            end: 0,
            anchor: (0, start),
            annotates,
            copied_last: Cell::new(0),
        }
    }

    /// Accepts what the application has written.
    pub fn accept_pieces(&mut self) {
        let committed = self.shared.committed.load(Ordering::Acquire);
        while self.pieces.len() < self.shared.pieces.capacity()
            && self.first + (self.pieces.len() as u64) < committed
        {
            let Some(mut piece) = self.shared.pieces.pop() else { return };
            let octets = u64::from(piece.octets);
            if let Source::LongerRing(memory, from) = piece.source {
                self.rings_before.push_back(mem::replace(&mut self.ring, SendRing { memory, from }));
                piece.source = Source::Ring(from);
            }
            self.pieces.push_back(Placed { piece, at: self.end });
            self.end += octets;
        }
    }

    /// Octets of accepted pieces that TCP does not have yet.
    fn unqueued_octets(&self) -> u64 {
        self.end - self.queued()
    }

    /// Whether the application has written anything that TCP does not have yet.
    pub fn has_unqueued(&self) -> bool {
        self.shared.committed.load(Ordering::Acquire) != self.first + self.pieces.len() as u64
            || self.unqueued_octets() > 0
    }

    /// Whether the application sends nothing more than what TCP has.
    pub fn is_finished(&self) -> bool {
        // In this order: what was written before the end is committed.
        self.shared.finished.load(Ordering::Acquire) && !self.has_unqueued()
    }

    /// The position after what TCP has.
    fn queued(&self) -> u64 {
        match self.pieces.get((self.cursor.number - self.first) as usize) {
            Some(placed) => placed.at + u64::from(self.cursor.octets),
            None => self.end,
        }
    }

    /// Returns the next run, of a segment that has room for `room` octets of payload and options together;
    /// `None` if there is no octet to be sent.
    // Requirements: TRO-3.1.8-03, TRO-4-01, TRO-4-02, TRO-4-03
    pub fn next_run(&self, room: u32) -> Option<NextRun> {
        self.cut(room).map(|(run, after)| NextRun { run, after })
    }

    /// Records that TCP has `next`, which [`next_run`](Self::next_run) has returned last.
    pub const fn on_queued(&mut self, next: &NextRun) {
        self.cursor = next.after;
    }

    /// Returns how many runs follow `run`, the last that TCP has, which are like it, for segments with as
    /// much `room`: [`next_run`](Self::next_run) would return them one by one, each equal to the one before
    /// [moved on](ByteRun::move_on) by one. Most octets are in the middle of a long piece.
    ///
    /// Example: of a piece of 65536 octets and runs of 1448 the second has 43 like it after it. The first is
    /// none if it begins a message, the last if it is shorter.
    pub fn runs_alike(&self, run: &ByteRun, room: u32) -> u32 {
        let Some(Placed { piece, .. }) = self.pieces.get((self.cursor.number - self.first) as usize) else {
            return 0;
        };
        let (left, is_full) = (piece.octets - self.cursor.octets, run.room_of(room) == 0);
        // All of it lies in this piece, and has all that is said of it.
        if run.starts_message || self.cursor.octets < run.octets || !is_full {
            return 0;
        }
        let octets = match (piece.transfer, &run.part) {
            (PieceTransfer::ThenNothing(..), _) if self.annotates => left - 1,
            (_, Some(part)) => left.min((u32::MAX - part.buffer_offset).saturating_sub(run.octets)),
            _ => left,
        };
        octets / run.octets
    }

    /// Records that TCP has `count` runs more after `run`, the last that it had: some of those that are
    /// [alike](Self::runs_alike).
    pub fn on_queued_alike(&mut self, run: &ByteRun, count: u32) {
        let Cursor { number, octets } = self.cursor;
        let octets = octets + count * run.octets;
        let piece = self.pieces.get((number - self.first) as usize);
        let ends = piece.is_some_and(|placed| placed.piece.octets == octets);
        self.cursor = if ends { Cursor { number: number + 1, octets: 0 } } else { Cursor { number, octets } };
    }

    /// The next run, and where the one after it begins.
    fn cut(&self, room: u32) -> Option<(ByteRun, Cursor)> {
        let mut run = ByteRun::default();
        let mut cursor = self.cursor;
        let begin = (self.cursor.number - self.first) as usize;
        for Placed { piece, .. } in self.pieces.range(begin.min(self.pieces.len())..) {
            let Some(longer) = self.with(&run, piece, cursor.octets, room) else { break };
            let added = longer.octets - run.octets;
            run = longer;
            cursor.octets += added;
            if cursor.octets < piece.octets {
                break;
            }
            cursor = Cursor { number: cursor.number + 1, octets: 0 };
        }
        (run.octets > 0).then_some((run, cursor))
    }

    /// Returns `run` with as much of `piece`, from `skip` octets into it on, as fits; `None` if another run
    /// begins there.
    fn with(&self, run: &ByteRun, piece: &Piece, skip: u32, room: u32) -> Option<ByteRun> {
        let mut longer = *run;
        if self.annotates && piece.starts_message && skip == 0 {
            // Requirements: TRO-3.1.6-01
            if run.octets > 0 {
                return None;
            }
            longer.starts_message = true;
        }
        let left = piece.octets - skip;
        let added = match piece.transfer {
            PieceTransfer::Section(section, buffer_offset) if self.annotates => {
                longer.add_section(section, buffer_offset, skip, left, room)?
            }
            PieceTransfer::ThenNothing(section, buffer_offset) if self.annotates => {
                longer.add_before_empty_transfer(section, buffer_offset, left, room)
            }
            _ => left.min(longer.room_of(room)),
        };
        if added == 0 || run.octets > room.saturating_sub(longer.option_octets()) {
            return None;
        }
        longer.octets += added;
        Some(longer)
    }

    /// Frees the pieces whose octets all come before `kept_from`, the first that may be sent again.
    pub fn release(&mut self, kept_from: SeqNumber) {
        let kept_from = self.position(kept_from);
        let before = self.first;
        let mut ring_octets = 0;
        while let Some(Placed { piece, at }) = self.pieces.front() {
            if self.first >= self.cursor.number || at + u64::from(piece.octets) > kept_from {
                break;
            }
            if matches!(piece.source, Source::Ring(_)) {
                ring_octets += u64::from(piece.octets);
            }
            self.pieces.pop_front();
            self.first += 1;
        }
        if self.first == before {
            return;
        }
        // The memory of a piece is let go before its owner may know.
        self.released_octets += ring_octets;
        while !self.rings_before.is_empty() && self.released_octets >= self.second_ring_from() {
            self.rings_before.pop_front();
        }
        self.shared.released_octets.store(self.released_octets, Ordering::Release);
        self.shared.released_pieces.store(self.first, Ordering::Release);
        self.shared.writer.wake();
    }

    /// The position where the first ring ends and the second begins.
    fn second_ring_from(&self) -> u64 {
        self.rings_before.get(1).unwrap_or(&self.ring).from
    }

    fn position(&self, seq: SeqNumber) -> u64 {
        let (position, anchor) = self.anchor;
        position.saturating_add_signed(i64::from(seq - anchor))
    }

    /// Records what the peer has acknowledged: sequence numbers are compared with it from now on.
    pub fn on_acknowledged(&mut self, una: SeqNumber) {
        if una - self.anchor.1 > 0 {
            self.anchor = (self.position(una), una);
        }
    }

    /// Copies the octets from `seq` on to `out`. Returns false if they are not all kept.
    pub fn copy(&self, seq: SeqNumber, out: &mut [u8]) -> bool {
        let position = self.position(seq);
        let first = self.piece_at(position);
        self.copied_last.set(self.first + first as u64);
        // Most segments lie in one piece.
        if let Some(Placed { piece, at }) = self.pieces.get(first)
            && let Some(skip) = position.checked_sub(*at)
            && skip + out.len() as u64 <= u64::from(piece.octets)
        {
            return self.read(&piece.source, skip as usize, out);
        }
        self.copy_pieces(first, position, out)
    }

    /// Copies octets of several pieces, those from `position` on, which lie in piece `first` and those after.
    #[cold]
    fn copy_pieces(&self, first: usize, mut position: u64, out: &mut [u8]) -> bool {
        let mut filled = 0;
        for Placed { piece, at } in self.pieces.range(first..) {
            let Some(skip) = position.checked_sub(*at) else { return false };
            let octets = (u64::from(piece.octets) - skip).min((out.len() - filled) as u64) as usize;
            let Some(room) = out.get_mut(filled..filled + octets) else { return false };
            if !self.read(&piece.source, skip as usize, room) {
                return false;
            }
            filled += octets;
            position += octets as u64;
            if filled == out.len() {
                return true;
            }
        }
        filled == out.len()
    }

    /// The index of the piece that has the octet at `position`.
    #[inline]
    fn piece_at(&self, position: u64) -> usize {
        let last = self.copied_last.get().wrapping_sub(self.first) as usize;
        if let Some(Placed { piece, at }) = self.pieces.get(last)
            && (*at..*at + u64::from(piece.octets)).contains(&position)
        {
            return last;
        }
        self.pieces.partition_point(|placed| placed.at + u64::from(placed.piece.octets) <= position)
    }

    /// The ring that a piece at `position` of the rings lies in.
    #[inline]
    fn ring_at(&self, position: u64) -> &SendRing {
        if self.ring.from <= position {
            return &self.ring;
        }
        let before = self.rings_before.iter().rev().find(|ring| ring.from <= position);
        debug_assert!(before.is_some(), "a ring is kept while octets of it are");
        before.unwrap_or(&self.ring)
    }

    fn read(&self, source: &Source, skip: usize, out: &mut [u8]) -> bool {
        match source {
            Source::Memory(region, offset) => region.read(offset + skip, out),
            Source::Ring(position) | Source::LongerRing(_, position) => {
                let at = *position;
                octet_ring::read(&self.ring_at(at).memory, at + skip as u64, out)
            }
        }
    }
}

impl ByteRun {
    /// Octets that fit beside its own in a segment with room for `room` octets of payload and options.
    const fn room_of(&self, room: u32) -> u32 {
        room.saturating_sub(self.option_octets()).saturating_sub(self.octets)
    }

    /// Annotates octets of a section, `skip` octets into a piece, that come next, as many of `left` as fit.
    /// Returns how many; `None` if it has a part of another section.
    fn add_section(
        &mut self,
        section: Section,
        buffer_offset: u32,
        skip: u32,
        left: u32,
        room: u32,
    ) -> Option<u32> {
        // Octets beyond what an offset can say go without annotation. The last has offset 2^32 - 1.
        let Some(buffer_offset) = buffer_offset.checked_add(skip) else {
            return Some(left.min(self.room_of(room)));
        };
        let next = SectionPart { section, at: self.octets, octets: 0, buffer_offset };
        let part = match self.part {
            None => next,
            Some(part) if part.is_continued_by(&next) => part,
            Some(_) => return None,
        };
        self.part = Some(part);
        let in_buffer = (u32::MAX - buffer_offset).saturating_add(1);
        let added = left.min(self.room_of(room)).min(in_buffer);
        self.part = Some(SectionPart { octets: part.octets + added, ..part });
        Some(added)
    }

    /// Adds the `left` octets of a piece that come next, and the transfer of nothing that goes with the last
    /// of them. If its option does not fit, or a part of a section has the one of this segment, the last
    /// octet is left for the next segment, so that it always has one to go with. Returns how many octets it
    /// adds.
    fn add_before_empty_transfer(
        &mut self,
        section: Section,
        buffer_offset: u32,
        left: u32,
        room: u32,
    ) -> u32 {
        if self.part.is_none() {
            let nothing = SectionPart { section, at: self.octets + left, octets: 0, buffer_offset };
            let annotated = Self { part: Some(nothing), ..*self };
            if left <= annotated.room_of(room) {
                *self = annotated;
                return left;
            }
        }
        (left - 1).min(self.room_of(room))
    }
}

impl SectionPart {
    /// Whether `next`, which comes right after this part in a run, is more of the same.
    fn is_continued_by(&self, next: &Self) -> bool {
        self.section == next.section
            && self.octets > 0
            && self.at + self.octets == next.at
            && self.buffer_offset.checked_add(self.octets) == Some(next.buffer_offset)
    }
}

#[cfg(test)]
mod tests;
