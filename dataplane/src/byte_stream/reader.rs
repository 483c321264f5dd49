//! The application's half of what is received.

mod stream_order;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::early::{EarlyMessage, EarlyReader};
use super::shared::{ReaderCommand, SharedByteStream};
use super::transfers::{Buffer, UnsolicitedPool};
use crate::memory::Region;
use crate::sync::Ordering;
use crate::wire::tcp_rdma::Rid;
use stream_order::{Ahead, Due, ReceiveRing};

/// The next part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadItem {
    /// So many octets, copied to the caller's slice: 0 if it is empty, and octets are next.
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
    /// So many octets of the message, copied to the caller's slice: 0 if it is empty.
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
    /// `out`, as many as fit. If it is empty they are told of all the same, as 0 octets. Complete messages
    /// beyond a gap come first.
    pub fn read(&mut self, out: &mut [u8], most: usize) -> ReadItem {
        if let Some(item) = self.read_early(out, most) {
            return item;
        }
        // Octets of an early message that come now are for the next call, which says that they were handed
        // out.
        let most = if self.early.has_reported(self.position) { 0 } else { most };
        self.read_in_order(out, most)
    }

    /// Consumes the next part of a message beyond a gap, or passes over one that was read so.
    fn read_early(&mut self, out: &mut [u8], most: usize) -> Option<ReadItem> {
        self.pass_over();
        let ring = self.shared.early.as_ref()?;
        if self.early.is_readable(ring, self.position) {
            if let Some(EarlyMessage { position, octets }) = self.early.dequeue_message() {
                return Some(ReadItem::EarlyMessage { position, octets });
            }
            let room = out.len().min(most);
            let octets = self.early.read(ring, &mut out[..room]);
            self.copied += octets as u64;
            return Some(if most > 0 { ReadItem::EarlyOctets(octets) } else { ReadItem::Nothing });
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
            Some(Due::Saved { octets }) if most > 0 => {
                let octets = (octets as usize).min(room);
                self.copy_due(&mut out[..octets]);
                ReadItem::Octets(octets)
            }
            Some(_) => ReadItem::Nothing,
            None => {
                let ready = self.ready();
                if ready > 0 && most > 0 {
                    let octets = room.min(ready);
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
        self.read_octets_with(out, |_| ())
    }

    /// Reads octets as [`read_octets`](Self::read_octets) does, and calls `given_back` with each unsolicited
    /// buffer that is given back.
    pub fn read_octets_with(&mut self, out: &mut [u8], mut given_back: impl FnMut(u16)) -> usize {
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
                    if let Buffer::Unsolicited(buffer) = buffer {
                        if !self.release(buffer) {
                            break;
                        }
                        given_back(buffer);
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

    /// Whether everything was read and the peer sends nothing more.
    pub fn is_finished(&mut self) -> bool {
        // In this order: what came before the end is there.
        let finished = self.shared.peer_finished.load(Ordering::Acquire) || self.shared.end().is_some();
        self.pass_over();
        finished && self.due().is_none() && self.ready() == 0
    }

    /// Whether there is something to read, the end of the stream included.
    pub fn is_readable(&mut self) -> bool {
        let has_not_expected = !self.not_expected.is_empty() || !self.shared.not_expected.is_empty();
        self.pass_over();
        let early = self.shared.early.as_ref();
        let is_early = early.is_some_and(|ring| self.early.is_readable(ring, self.position));
        has_not_expected || is_early || self.due().is_some() || self.ready() > 0 || self.is_finished()
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

    /// The octets read from here on are dropped: nobody reads them.
    fn abandon(&self) {
        self.shared.left_unread.store(self.has_unread_ahead(), Ordering::Release);
        self.shared.abandoned.store(true, Ordering::Release);
        self.shared.ring();
    }
}

impl Drop for ByteReader {
    fn drop(&mut self) {
        self.abandon();
    }
}
