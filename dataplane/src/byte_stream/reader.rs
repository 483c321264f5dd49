//! The application's half of what is received.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::early::{EarlyMessage, EarlyReader};
use super::octet_ring;
use super::shared::{NOT_REPLACED, SharedByteStream};
use super::transfers::{Buffer, Record, RecordKind, UnsolicitedPool};
use crate::memory::Region;
use crate::sync::{Ordering, fence};
use crate::wire::tcp_rdma::Rid;

/// What an application asks of the core.
#[derive(Debug)]
pub(super) enum ReaderCommand {
    /// Octets of this transfer go there.
    Expect { rid: Rid, memory: Region, offset: usize, octets: usize },
    /// Nothing more is placed for this name.
    Cancel(Rid),
    /// This unsolicited buffer is free.
    Release(u16),
    /// Octets of the stream go to this ring from now on.
    ReplaceRing(Region),
}

/// The next part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadItem {
    /// So many octets, copied to the caller's slice.
    Octets(usize),
    /// So many octets of the stream are in a buffer, from `offset` on, and are not copied again.
    Placed {
        /// The name of the transfer.
        rid: Rid,
        /// The buffer.
        buffer: Buffer,
        /// Where in the buffer they begin: what the peer has said, and nothing else vouches for.
        offset: u32,
        /// How many.
        octets: u32,
    },
    /// All octets of the transfer are in its buffer, and were reported. The name is free for another; an
    /// unsolicited buffer stays the application's until it is [released](ByteReader::release).
    Complete {
        /// The name of the transfer.
        rid: Rid,
        /// The buffer.
        buffer: Buffer,
        /// How many octets it had; 0 for a transfer of nothing.
        total_octets: u32,
    },
    /// The next octet begins a message (draft-csapuntz-tcprdma-00 §3.1.6), as the peer has said; nothing else
    /// vouches for it. Only where [the stream](super::ByteStreamConfig::message_starts) says so.
    MessageStart,
    /// A complete message beyond octets that have not come: so many octets at this position of the stream.
    /// Its octets follow as [`EarlyOctets`](Self::EarlyOctets). Two messages come as one where the segment of
    /// the second did not say that it begins one. Only where the stream has an [early
    /// ring](super::ByteStreamConfig::early_ring).
    // Requirements: TRO-3.1.6-03
    EarlyMessage {
        /// The position of its first octet in the stream.
        position: u64,
        /// How many octets it has.
        octets: u32,
    },
    /// So many octets of the message, copied to the caller's slice.
    EarlyOctets(usize),
    /// The turn of an [`EarlyMessage`](Self::EarlyMessage) has come: of these octets of the stream, those
    /// that were not placed in a buffer are passed over.
    HandedOut {
        /// The position of its first octet in the stream.
        position: u64,
        /// How many octets it has.
        octets: u32,
    },
    /// The core does not [expect](ByteReader::expect) the transfer: an unsolicited one of its name is under
    /// way, or there are too many. Nothing is placed in the buffer that was named: it is the application's.
    NotExpected {
        /// The name of the transfer.
        rid: Rid,
    },
    /// The peer sends nothing more.
    Finished,
    /// There is nothing to read for now.
    Nothing,
}

/// A record that the reader has dequeued.
#[derive(Debug)]
struct Ahead {
    record: Record,
    /// Octets of it that were read.
    read: u32,
    /// The last octets of it, copied aside.
    saved: Option<Vec<u8>>,
}

/// What comes next in the stream, unless it is octets of the ring.
enum Due {
    Placed {
        rid: Rid,
        buffer: Buffer,
        offset: u32,
        octets: u32,
    },
    /// Placed, and copied aside since.
    Saved {
        octets: u32,
    },
    Complete {
        rid: Rid,
        buffer: Buffer,
        total_octets: u32,
    },
    MessageStart,
}

/// The end of a byte stream that reads.
#[derive(Debug)]
pub struct ByteReader {
    shared: Arc<SharedByteStream>,
    ring: ReceiveRing,
    consumed: u64,
    /// The position in the stream: octets of the ring, and those that were placed.
    position: u64,
    early: EarlyReader,
    /// The end of octets that are passed over: the application has read them before their turn.
    passed_to: u64,
    /// Dequeued from the records, and not read yet.
    ahead: VecDeque<Ahead>,
    /// The buffers of the transfers that the application expects.
    expected: HashMap<Rid, (Region, usize)>,
    /// Names that the core does not expect, not yet reported to the application.
    not_expected: VecDeque<Rid>,
    commands: u64,
    /// Octets copied from the ring and from buffers.
    copied: u64,
}

impl ByteReader {
    /// The end of `shared` that reads. There is one.
    pub fn new(shared: Arc<SharedByteStream>) -> Self {
        let ring = ReceiveRing::new(&shared);
        Self {
            shared,
            ring,
            consumed: 0,
            position: 0,
            early: EarlyReader::default(),
            passed_to: 0,
            ahead: VecDeque::new(),
            expected: HashMap::new(),
            not_expected: VecDeque::new(),
            commands: 0,
            copied: 0,
        }
    }

    /// The stream.
    pub const fn shared(&self) -> &Arc<SharedByteStream> {
        &self.shared
    }

    /// The position of the next octet in stream order: how many were read, wherever they were, or passed
    /// over.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Octets copied to the caller's slices so far.
    pub const fn octets_copied(&self) -> u64 {
        self.copied
    }

    /// Has octets of the transfer `rid` placed in the `octets` octets at `offset` of `memory`, as their
    /// segments arrive. Ask before the peer can know the name. Returns false if the range does not lie
    /// inside, the memory is constant, the transfer is expected already, or too much was asked that the core
    /// has not seen yet. If the core cannot expect it, [`ReadItem::NotExpected`] says so.
    pub fn expect(&mut self, rid: Rid, memory: &Region, offset: usize, octets: usize) -> bool {
        if !memory.contains(offset, octets) || memory.is_constant() || self.expected.contains_key(&rid) {
            return false;
        }
        let asked = self.ask(ReaderCommand::Expect { rid, memory: memory.clone(), offset, octets });
        if asked {
            self.expected.insert(rid, (memory.clone(), offset));
        }
        asked
    }

    /// Ends a transfer: its name is free, and nothing more is placed for it once the core has
    /// [seen this](Self::has_settled). Returns false if too much was asked that it has not seen yet.
    pub fn cancel(&mut self, rid: Rid) -> bool {
        self.ask(ReaderCommand::Cancel(rid))
    }

    /// Gives an unsolicited buffer back, when its transfer is complete, or, if its total is not known, when
    /// all of it was read: another transfer may have the buffer from then on. Returns false as
    /// [`cancel`](Self::cancel) does.
    pub fn release(&mut self, buffer: u16) -> bool {
        self.ask(ReaderCommand::Release(buffer))
    }

    /// Dequeues the names that the core does not expect.
    fn accept_unexpected(&mut self) {
        while let Some(rid) = self.shared.not_expected.pop() {
            self.not_expected.push_back(rid);
        }
    }

    fn ask(&mut self, command: ReaderCommand) -> bool {
        // As many commands as there may be find room for their answers.
        self.accept_unexpected();
        let asked = self.shared.commands.push(command).is_ok();
        if asked {
            self.commands += 1;
            self.shared.ring();
        }
        asked
    }

    /// Whether the connection has ended: the core accepts no commands any more, and places nothing.
    pub fn has_ended(&self) -> bool {
        self.shared.end().is_some()
    }

    /// Whether the core has seen all that was asked: the buffers of transfers that were cancelled are the
    /// application's only.
    pub fn has_settled(&self) -> bool {
        self.shared.commands_done.load(Ordering::Acquire) == self.commands || self.shared.end().is_some()
    }

    /// The buffers for unsolicited transfers.
    pub fn unsolicited(&self) -> Option<&UnsolicitedPool> {
        self.shared.unsolicited.as_ref()
    }

    /// The memory of a buffer, and where it begins there, until its transfer is over and was read.
    pub fn buffer(&self, rid: Rid, buffer: Buffer) -> Option<(&Region, usize)> {
        match buffer {
            Buffer::Expected => self.expected.get(&rid).map(|(memory, offset)| (memory, *offset)),
            Buffer::Unsolicited(index) => self.shared.unsolicited.as_ref()?.buffer(index),
        }
    }

    /// Consumes the next part of the stream, at most `most` octets: those that were not placed are copied to
    /// `out`, as many as fit. Complete messages beyond a gap come first.
    pub fn read(&mut self, out: &mut [u8], most: usize) -> ReadItem {
        let room = out.len().min(most);
        match self.read_early(&mut out[..room]) {
            Some(item) => item,
            None => self.read_in_order(out, most),
        }
    }

    /// Consumes the next part of a message beyond a gap, or passes over one that was read so.
    fn read_early(&mut self, out: &mut [u8]) -> Option<ReadItem> {
        self.pass_over();
        let ring = self.shared.early.as_ref()?;
        if self.early.is_readable(ring, self.position) {
            if let Some(EarlyMessage { position, octets }) = self.early.dequeue_message() {
                return Some(ReadItem::EarlyMessage { position, octets });
            }
            let octets = self.early.read(ring, out);
            self.copied += octets as u64;
            return Some(if octets > 0 { ReadItem::EarlyOctets(octets) } else { ReadItem::Nothing });
        }
        // Its beginning, and the ends of transfers before it, are reported first.
        let is_octet = match self.due() {
            Some(Due::Placed { .. } | Due::Saved { .. }) => true,
            Some(Due::Complete { .. } | Due::MessageStart) => false,
            None => self.ready() > 0,
        };
        if !is_octet {
            return None;
        }
        let EarlyMessage { position, octets } = self.early.dequeue_reported(self.position)?;
        self.passed_to = position + u64::from(octets);
        Some(ReadItem::HandedOut { position, octets })
    }

    /// Passes over octets that the application has read before their turn, those that have come. Placed
    /// ones among them are reported as usual.
    fn pass_over(&mut self) {
        while self.position < self.passed_to {
            let left = (self.passed_to - self.position) as usize;
            match self.due() {
                Some(Due::Placed { .. } | Due::Complete { .. }) => return,
                Some(Due::Saved { octets }) => self.consume_due((octets as usize).min(left) as u32),
                // Inside of a message none begins.
                Some(Due::MessageStart) => self.consume_due(0),
                None => {
                    let octets = self.ready().min(left);
                    if octets == 0 {
                        return;
                    }
                    self.consume_from_ring(octets);
                }
            }
        }
    }

    /// Consumes the next part of the stream as [`read`](Self::read) does, in stream order: messages that were
    /// read early come again.
    pub fn read_in_order(&mut self, out: &mut [u8], most: usize) -> ReadItem {
        self.pass_over();
        let finished = self.shared.peer_finished.load(Ordering::Acquire) || self.shared.end().is_some();
        let room = out.len().min(most);
        self.accept_unexpected();
        if let Some(rid) = self.not_expected.pop_front() {
            // Only now may the name be expected again, or the application could not tell the two apart.
            self.expected.remove(&rid);
            return ReadItem::NotExpected { rid };
        }
        match self.due() {
            Some(Due::Placed { rid, buffer, offset, octets }) if most > 0 => {
                let octets = (octets as usize).min(most) as u32;
                self.consume_due(octets);
                ReadItem::Placed { rid, buffer, offset, octets }
            }
            Some(Due::Complete { rid, buffer, total_octets }) => {
                self.consume_due(0);
                ReadItem::Complete { rid, buffer, total_octets }
            }
            Some(Due::MessageStart) => {
                self.consume_due(0);
                ReadItem::MessageStart
            }
            Some(Due::Saved { octets }) if room > 0 => {
                let octets = (octets as usize).min(room);
                self.copy_due(&mut out[..octets]);
                ReadItem::Octets(octets)
            }
            Some(_) => ReadItem::Nothing,
            None => {
                let octets = room.min(self.ready());
                if octets > 0 {
                    self.copy(&mut out[..octets]);
                    ReadItem::Octets(octets)
                } else if finished && self.ready() == 0 && self.due().is_none() {
                    ReadItem::Finished
                } else {
                    ReadItem::Nothing
                }
            }
        }
    }

    /// Reads octets of the stream wherever they are: those that were placed are copied from their buffer. A
    /// reader that does not know the option reads so. Returns how many; 0 if there are none for now, or the
    /// peer [has finished](Self::is_finished).
    ///
    /// The buffer of an unsolicited transfer whose end is read so is given back.
    // Requirements: A-25
    pub fn read_octets(&mut self, out: &mut [u8]) -> usize {
        self.pass_over();
        self.accept_unexpected();
        for rid in self.not_expected.drain(..) {
            self.expected.remove(&rid);
        }
        let mut filled = 0;
        while filled < out.len() {
            let room = out.len() - filled;
            let octets = match self.due() {
                Some(Due::Placed { octets, .. } | Due::Saved { octets }) => {
                    let octets = (octets as usize).min(room);
                    self.copy_due(&mut out[filled..filled + octets]);
                    octets
                }
                Some(Due::Complete { buffer, .. }) => {
                    // Nobody else learns of it, so nobody else could give the buffer back.
                    if let Buffer::Unsolicited(buffer) = buffer
                        && !self.release(buffer)
                    {
                        break;
                    }
                    self.consume_due(0);
                    continue;
                }
                Some(Due::MessageStart) => {
                    self.consume_due(0);
                    continue;
                }
                None => {
                    let octets = room.min(self.ready());
                    self.copy(&mut out[filled..filled + octets]);
                    octets
                }
            };
            if octets == 0 {
                break;
            }
            filled += octets;
        }
        filled
    }

    /// Copies the octets aside that were placed for `rid`, and not read yet, so that its buffer can be
    /// written. The transfer was cancelled, and the core [has seen that](Self::has_settled): nothing more is
    /// placed in it.
    pub fn save_placed(&mut self, rid: Rid) {
        while let Some(record) = self.shared.records.pop() {
            self.ahead.push_back(Ahead { record, read: 0, saved: None });
        }
        for at in 0..self.ahead.len() {
            let Ahead { record, read, saved } = &self.ahead[at];
            let RecordKind::Placed { offset, octets } = record.kind else { continue };
            if record.rid != rid || record.buffer != Buffer::Expected || saved.is_some() {
                continue;
            }
            let mut copy = vec![0; (octets - read) as usize];
            let (read, rid, buffer) = (*read, record.rid, record.buffer);
            self.copy_placed(rid, buffer, offset + read, &mut copy);
            self.ahead[at].saved = Some(copy);
        }
        // Its end is not reported either: the name may be another transfer's by then.
        let is_its_end = |next: &Ahead| {
            let Record { rid: name, buffer, kind, .. } = next.record;
            (name, buffer) == (rid, Buffer::Expected) && matches!(kind, RecordKind::Complete { .. })
        };
        self.ahead.retain(|next| !is_its_end(next));
        self.accept_unexpected();
        self.not_expected.retain(|name| *name != rid);
        self.expected.remove(&rid);
    }

    /// Whether everything was read and the peer sends nothing more.
    pub fn is_finished(&mut self) -> bool {
        // In this order: what came before the end is there.
        let finished = self.shared.peer_finished.load(Ordering::Acquire) || self.shared.end().is_some();
        self.pass_over();
        finished && self.due().is_none() && self.ready() == 0
    }

    /// Whether there is something to read, the end of the stream included.
    pub fn is_readable(&mut self) -> bool {
        let has_unexpected = !self.not_expected.is_empty() || !self.shared.not_expected.is_empty();
        self.pass_over();
        let early = self.shared.early.as_ref();
        let is_early = early.is_some_and(|ring| self.early.is_readable(ring, self.position));
        has_unexpected || is_early || self.due().is_some() || self.ready() > 0 || self.is_finished()
    }

    /// Copies the next octets to `out` without consuming them, those that are in the ring and before which
    /// nothing was placed. Returns how many.
    pub fn peek(&mut self, out: &mut [u8]) -> usize {
        self.pass_over();
        let octets = out.len().min(self.ready());
        self.copy_from_ring(&mut out[..octets]);
        octets
    }

    /// Has the notify of the reader called once when there is more to read. Look once more after this before
    /// you sleep. Returns false if the stream has none.
    pub fn arm(&self) -> bool {
        self.shared.reader.arm()
    }

    /// What comes next in the stream, if it is not octets of the ring.
    fn due(&mut self) -> Option<Due> {
        if self.ahead.is_empty() && !self.shared.records.is_empty() {
            let next = self.shared.records.pop();
            self.ahead.extend(next.map(|record| Ahead { record, read: 0, saved: None }));
        }
        let Ahead { record, read, saved } = self.ahead.front()?;
        if record.at != self.consumed {
            return None;
        }
        let Record { rid, buffer, .. } = *record;
        Some(match record.kind {
            RecordKind::Placed { octets, .. } if saved.is_some() => Due::Saved { octets: octets - read },
            RecordKind::Placed { offset, octets } => {
                Due::Placed { rid, buffer, offset: offset + read, octets: octets - read }
            }
            RecordKind::Complete { total_octets } => Due::Complete { rid, buffer, total_octets },
            RecordKind::MessageStart => Due::MessageStart,
        })
    }

    /// Consumes `octets` octets of what is due, or all of it if it has none.
    fn consume_due(&mut self, octets: u32) {
        let Some(Ahead { record, read, .. }) = self.ahead.front_mut() else { return };
        *read += octets;
        self.position += u64::from(octets);
        let (record, read) = (*record, *read);
        if matches!(record.kind, RecordKind::Placed { octets, .. } if read < octets) {
            return;
        }
        if matches!(record.kind, RecordKind::Complete { .. }) && record.buffer == Buffer::Expected {
            self.expected.remove(&record.rid);
        }
        self.ahead.pop_front();
        self.record_room();
    }

    /// Consumes the next octets of what is due, which has as many, and copies them to `out`.
    fn copy_due(&mut self, out: &mut [u8]) {
        let Some(Ahead { record, read, saved }) = self.ahead.front() else { return };
        if let Some(saved) = saved {
            let from = saved.len() - (placed_octets(record) - read) as usize;
            out.copy_from_slice(&saved[from..from + out.len()]);
        } else if let RecordKind::Placed { offset, .. } = record.kind {
            self.copy_placed(record.rid, record.buffer, offset + read, out);
        }
        self.copied += out.len() as u64;
        self.consume_due(out.len() as u32);
    }

    fn copy_placed(&self, rid: Rid, buffer: Buffer, offset: u32, out: &mut [u8]) {
        let read =
            self.buffer(rid, buffer).is_some_and(|(memory, at)| memory.read(at + offset as usize, out));
        debug_assert!(read, "a placement lies in its buffer");
    }

    /// Octets of the ring before the next record.
    fn ready(&mut self) -> usize {
        // The octets first: the records before them are there then.
        let filled = self.shared.filled.load(Ordering::Acquire);
        self.due();
        let end = self.ahead.front().map_or(filled, |next| next.record.at.min(filled));
        (end - self.consumed) as usize
    }

    fn copy(&mut self, out: &mut [u8]) {
        self.copy_from_ring(out);
        self.copied += out.len() as u64;
        self.consume_from_ring(out.len());
    }

    fn consume_from_ring(&mut self, octets: usize) {
        self.consumed += octets as u64;
        self.position += octets as u64;
        self.shared.consumed.store(self.consumed, Ordering::Release);
        if !self.ring.is_final {
            self.grow_ring();
        }
        self.record_room();
    }

    /// Drops a ring that was read to its end, and asks the core to fill a longer one, if this one is short.
    #[cold]
    fn grow_ring(&mut self) {
        self.ring.drop_read(&self.shared, self.consumed);
        let Some(longer) = self.ring.longer(&self.shared, self.consumed) else { return };
        self.shared.ring_from.store(NOT_REPLACED, Ordering::Relaxed);
        // With too many commands on their way another read asks again.
        if self.ask(ReaderCommand::ReplaceRing(longer.clone())) {
            self.ring.next = Some(longer);
        }
    }

    fn copy_from_ring(&self, out: &mut [u8]) {
        let read = self.ring.read(&self.shared, self.consumed, out);
        debug_assert!(read, "a ring has its own octets");
    }

    /// Tells a core that waits for it that there is room.
    fn record_room(&self) {
        fence(Ordering::SeqCst);
        if self.shared.stalled.load(Ordering::Relaxed) && self.shared.stalled.swap(false, Ordering::AcqRel) {
            self.shared.ring();
        }
    }

    /// The octets read from here on are dropped: nobody reads them.
    fn abandon(&self) {
        self.shared.abandoned.store(true, Ordering::Release);
        self.shared.ring();
    }
}

/// The ring that octets are read from.
#[derive(Debug)]
struct ReceiveRing {
    ring: Region,
    /// The longer one that was given to the core to replace it. What is in `ring` is read first.
    next: Option<Region>,
    /// Octets consumed when its length was thought about last.
    since: u64,
    /// No other will replace it.
    is_final: bool,
}

impl ReceiveRing {
    fn new(shared: &SharedByteStream) -> Self {
        let ring = shared.receive_ring.clone();
        let is_final = ring.len() >= shared.receive_bytes();
        Self { ring, next: None, since: 0, is_final }
    }

    /// Copies the octets from `position` on to `out`; the core has put as many into its rings.
    fn read(&self, shared: &SharedByteStream, position: u64, out: &mut [u8]) -> bool {
        let Some(next) = &self.next else { return octet_ring::read(&self.ring, position, out) };
        let from = shared.ring_from.load(Ordering::Acquire);
        let in_ring = usize::try_from(from - position).unwrap_or(usize::MAX).min(out.len());
        let (first, second) = out.split_at_mut(in_ring);
        octet_ring::read(&self.ring, position, first)
            && octet_ring::read(next, position + in_ring as u64, second)
    }

    /// Drops the ring before the next one if it was read to its end, up to `consumed`.
    fn drop_read(&mut self, shared: &SharedByteStream, consumed: u64) {
        if consumed >= shared.ring_from.load(Ordering::Acquire)
            && let Some(next) = self.next.take()
        {
            self.ring = next;
            self.is_final = self.ring.len() >= shared.receive_bytes();
            self.since = consumed;
        }
    }

    /// Returns a longer ring once as many octets were read as this one has: while it may grow, it is all that
    /// the window offers. Example: 64 KiB are offered for the first 64 KiB, then 256 KiB, then 1 MiB.
    fn longer(&mut self, shared: &SharedByteStream, consumed: u64) -> Option<Region> {
        if self.next.is_some() || consumed - self.since < self.ring.len() as u64 {
            return None;
        }
        // If no memory is left, others may return some while as many octets are read.
        self.since = consumed;
        let growth = shared.growth.as_ref()?;
        growth.longer(self.ring.len(), 0, growth.receive_octets)
    }
}

/// Octets that were placed for a record.
const fn placed_octets(record: &Record) -> u32 {
    match record.kind {
        RecordKind::Placed { octets, .. } => octets,
        RecordKind::Complete { .. } | RecordKind::MessageStart => 0,
    }
}

impl Drop for ByteReader {
    fn drop(&mut self) {
        self.abandon();
    }
}
