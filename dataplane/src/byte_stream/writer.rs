//! The application's half of what is sent.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use super::octet_ring;
use super::outbound::{Piece, PieceTransfer, Source};
use super::run::Section;
use super::shared::SharedByteStream;
use crate::memory::Region;
use crate::sync::Ordering;

/// The longest piece: its places have 32 bits. Tests have a shorter one, to fill it.
pub(super) const PIECE_OCTETS_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 31 };

/// What is said about octets that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotation {
    /// The first octet begins a message: with the option it begins a segment, whose A bit is 1. In ONC RPC it
    /// is the first of the record mark, in CIFS that of the `NetBIOS` length.
    // Requirements: TRO-5.1.4-01, TRO-5.3.3-01
    pub starts_message: bool,
    /// They are of a section, from this offset of the receiver's buffer on.
    pub section: Option<(Section, u32)>,
}

/// The end of a byte stream that writes.
#[derive(Debug)]
pub struct ByteWriter {
    shared: Arc<SharedByteStream>,
    ring: Region,
    /// Octets put into rings before this one.
    ring_from: u64,
    /// No memory was left for a longer ring.
    growth_refused: bool,
    /// Octets put into rings, since the beginning.
    written: u64,
    /// Pieces written, since the beginning.
    pieces: u64,
    /// The last of them, until another follows or it is committed: a transfer of nothing may go with it.
    last: Option<Piece>,
    /// Memory that the core may still read, by the number of its piece. Dropped here, so that the core does
    /// not have to free it.
    lent: VecDeque<(u64, Region)>,
    finished: bool,
}

impl ByteWriter {
    /// The end of `shared` that writes. There is one.
    pub fn new(shared: Arc<SharedByteStream>) -> Self {
        Self {
            ring: shared.send_ring.clone(),
            shared,
            ring_from: 0,
            growth_refused: false,
            written: 0,
            pieces: 0,
            last: None,
            lent: VecDeque::new(),
            finished: false,
        }
    }

    /// The stream.
    pub const fn shared(&self) -> &Arc<SharedByteStream> {
        &self.shared
    }

    /// Octets that can be written at once. With 0, one more write may also have to wait for pieces to be
    /// acknowledged.
    pub fn room(&self) -> usize {
        if self.finished || self.shared.end().is_some() || self.is_full() {
            return 0;
        }
        let released = self.shared.released_octets.load(Ordering::Acquire);
        match &self.shared.growth {
            Some(growth) => {
                let room = growth.room_to_send(self.written - released);
                if self.growth_refused { room.min(self.room_in_ring(released)) } else { room }
            }
            None => self.room_in_ring(released),
        }
    }

    /// Octets for which the ring has room, when so many octets of rings were released.
    fn room_in_ring(&self, released: u64) -> usize {
        // What is left of a ring before this one takes no room in this one.
        self.ring.len() - (self.written - released.max(self.ring_from)) as usize
    }

    /// Makes room for `wanted` octets, or for fewer if memory or the peer's acknowledgements are lacking.
    /// Returns how many have room, and whether they are the first ones of a longer ring.
    fn make_room(&mut self, wanted: usize) -> (usize, bool) {
        if self.finished || self.shared.end().is_some() || self.is_full() {
            return (0, false);
        }
        let released = self.shared.released_octets.load(Ordering::Acquire);
        let room = self.room_in_ring(released);
        let Some(growth) = &self.shared.growth else { return (wanted.min(room), false) };
        // Octets of rings before this one count as well.
        let wanted = wanted.min(growth.room_to_send(self.written - released));
        if wanted <= room {
            return (wanted, false);
        }
        let longer = growth.longer(self.ring.len(), wanted, growth.send_octets);
        self.growth_refused = longer.is_none() && self.ring.len() < growth.send_octets;
        let Some(longer) = longer else { return (room, false) };
        // The core keeps the one before until its octets are acknowledged.
        self.ring = longer;
        self.ring_from = self.written;
        (wanted.min(self.ring.len()), true)
    }

    /// Whether nothing written is kept any more: the peer has acknowledged all of it.
    pub fn is_acknowledged(&self) -> bool {
        self.shared.released_pieces.load(Ordering::Acquire) == self.pieces
    }

    /// Copies as many of `octets` as there is room for. Returns how many. The core learns of them with
    /// [`commit`](Self::commit).
    pub fn write(&mut self, octets: &[u8]) -> usize {
        self.write_annotated(Annotation::default(), octets)
    }

    /// Copies as many of `buffers`, one after the other, as there is room for. Returns how many octets.
    pub fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> usize {
        let mut written = 0;
        for buffer in buffers {
            let octets = self.write(buffer);
            written += octets;
            if octets < buffer.len() {
                break;
            }
        }
        written
    }

    /// Copies as many of `octets` as there is room for, annotated. Returns how many. The rest is written with
    /// an offset that is larger by as many, and does not start a message.
    ///
    /// Without octets nothing is written: see [`write_nothing`](Self::write_nothing).
    pub fn write_annotated(&mut self, annotation: Annotation, octets: &[u8]) -> usize {
        let (room, is_first) = self.make_room(octets.len().min(PIECE_OCTETS_MAX));
        let Some(taken) = octets.get(..room) else { return 0 };
        if taken.is_empty() {
            return 0;
        }
        if !octet_ring::write(&self.ring, self.written, taken) {
            debug_assert!(false, "a ring takes what there is room for");
            return 0;
        }
        let source = if is_first {
            Source::LongerRing(self.ring.clone(), self.written)
        } else {
            Source::Ring(self.written)
        };
        self.written += taken.len() as u64;
        self.push(annotation, source, taken.len() as u32);
        taken.len()
    }

    /// Sends a transfer of nothing (draft-csapuntz-tcprdma-00 §5.1.2), whose total is 0, with the last octet
    /// written. A segment has one option, so that octet is of no section, no other transfer of nothing goes
    /// with it, and it is not [committed](Self::commit) yet. Returns false, and sends nothing, if there is no
    /// such octet.
    // Requirements: TRO-5.1.2-02, TRO-3.1.3-03
    pub fn write_nothing(&mut self, section: Section, buffer_offset: u32) -> bool {
        match &mut self.last {
            Some(Piece { transfer: transfer @ PieceTransfer::None, .. }) => {
                *transfer = PieceTransfer::ThenNothing(section, buffer_offset);
                true
            }
            _ => false,
        }
    }

    /// Sends the `octets` octets at `offset` of `memory` without copying them before they go into frames.
    /// They must not change until [`is_acknowledged`](Self::is_acknowledged) says so of all that is written,
    /// or [`released_pieces`](Self::released_pieces) has passed the number that this returns: a
    /// retransmission reads them again. `None`, and nothing is sent, if there is no room for another piece,
    /// the range does not lie inside, or it is longer than 2^31.
    pub fn write_memory(
        &mut self,
        annotation: Annotation,
        memory: &Region,
        offset: usize,
        octets: usize,
    ) -> Option<u64> {
        let inside = memory.contains(offset, octets) && octets > 0 && octets <= PIECE_OCTETS_MAX;
        if self.finished || self.shared.end().is_some() || self.is_full() || !inside {
            return None;
        }
        self.free_lent();
        self.lent.push_back((self.pieces, memory.clone()));
        self.push(annotation, Source::Memory(memory.clone(), offset), octets as u32);
        Some(self.pieces)
    }

    /// How many pieces the core holds no more, since the beginning.
    pub fn released_pieces(&self) -> u64 {
        self.shared.released_pieces.load(Ordering::Acquire)
    }

    /// Whether as many pieces wait as may.
    fn is_full(&self) -> bool {
        self.shared.pieces.len() + usize::from(self.last.is_some()) >= self.shared.pieces.capacity()
    }

    fn push(&mut self, annotation: Annotation, source: Source, octets: u32) {
        let Annotation { starts_message, section } = annotation;
        let transfer =
            section.map_or(PieceTransfer::None, |(section, offset)| PieceTransfer::Section(section, offset));
        let before = self.last.replace(Piece { octets, source, starts_message, transfer });
        self.hand_over(before);
        self.pieces += 1;
    }

    fn hand_over(&self, piece: Option<Piece>) {
        if let Some(piece) = piece {
            let pushed = self.shared.pieces.push(piece);
            debug_assert!(pushed.is_ok(), "room for it was seen, and nobody else pushes");
        }
    }

    fn free_lent(&mut self) {
        let released = self.released_pieces();
        while self.lent.front().is_some_and(|(number, _)| *number < released) {
            self.lent.pop_front();
        }
    }

    /// Hands what was written to the core.
    pub fn commit(&mut self) {
        if self.shared.committed.load(Ordering::Relaxed) != self.pieces {
            let last = self.last.take();
            self.hand_over(last);
            self.shared.committed.store(self.pieces, Ordering::Release);
            self.shared.ring();
        }
    }

    /// Hands what was written to the core, and a FIN after it: nothing more can be written.
    pub fn finish(&mut self) {
        self.finished = true;
        let last = self.last.take();
        self.hand_over(last);
        self.shared.committed.store(self.pieces, Ordering::Release);
        self.shared.finished.store(true, Ordering::Release);
        self.shared.ring();
    }

    /// Whether [`finish`](Self::finish) was called.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Has the notify of the writer called once when something that was written is acknowledged, which makes
    /// room, or the connection is closed. Look once more after this before you sleep. Returns false if the
    /// stream has none.
    pub fn arm(&self) -> bool {
        self.shared.writer.arm()
    }
}

impl Drop for ByteWriter {
    fn drop(&mut self) {
        self.finish();
    }
}
