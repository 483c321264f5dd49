//! The stream in its order, as the reader finds and consumes it: the octets of a ring, and between them
//! records, which stand for octets that were placed, ends of transfers and beginnings of messages. The reader
//! asks for a longer ring when it has read as many octets as its ring has.

use super::ByteReader;
use crate::byte_stream::octet_ring;
use crate::byte_stream::shared::{NOT_REPLACED, ReaderCommand, SharedByteStream};
use crate::byte_stream::transfers::{Buffer, Record, RecordKind};
use crate::memory::Region;
use crate::sync::{Ordering, fence};
use crate::wire::tcp_rdma::Rid;

/// A record that the reader has dequeued.
#[derive(Debug)]
pub(super) struct Ahead {
    record: Record,
    /// Octets of it that were read.
    read: u32,
    /// The last octets of it, copied aside.
    saved: Option<Vec<u8>>,
}

/// What comes next in the stream, unless it is octets of the ring.
pub(super) enum Due {
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

impl ByteReader {
    /// Copies the octets aside that were placed for `rid`, and not read yet, so that its buffer can be
    /// written. The transfer was cancelled, and the core [has seen that](Self::has_settled): nothing more is
    /// placed in it.
    pub fn save_placed(&mut self, rid: Rid) {
        self.save_placed_in(rid, Buffer::Expected);
        self.accept_unexpected();
        self.not_expected.retain(|name| *name != rid);
        self.expected.remove(&rid);
    }

    /// The same of the unsolicited buffer `buffer`, which `rid` had, so that it can be
    /// [released](Self::release).
    pub fn save_unsolicited(&mut self, rid: Rid, buffer: u16) {
        self.save_placed_in(rid, Buffer::Unsolicited(buffer));
    }

    fn save_placed_in(&mut self, rid: Rid, buffer: Buffer) {
        while let Some(record) = self.shared.records.pop() {
            self.ahead.push_back(Ahead { record, read: 0, saved: None });
        }
        for at in 0..self.ahead.len() {
            let Ahead { record, read, saved } = &self.ahead[at];
            let RecordKind::Placed { offset, octets } = record.kind else { continue };
            if (record.rid, record.buffer) != (rid, buffer) || saved.is_some() {
                continue;
            }
            let mut copy = vec![0; (octets - read) as usize];
            self.copy_placed(rid, buffer, offset + *read, &mut copy);
            self.ahead[at].saved = Some(copy);
        }
        // Its end is not reported either: the name may be another transfer's by then.
        let is_its_end = |next: &Ahead| {
            let Record { rid: name, buffer: of, kind, .. } = next.record;
            (name, of) == (rid, buffer) && matches!(kind, RecordKind::Complete { .. })
        };
        self.ahead.retain(|next| !is_its_end(next));
    }

    /// What comes next in the stream, if it is not octets of the ring.
    pub(super) fn due(&mut self) -> Option<Due> {
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

    /// Whether records that were dequeued have octets that were not read.
    pub(super) fn has_unread_ahead(&self) -> bool {
        self.ahead.iter().any(|next| next.read < placed_octets(&next.record))
    }

    /// Consumes `octets` octets of what is due, or all of it if it has none.
    pub(super) fn consume_due(&mut self, octets: u32) {
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
    pub(super) fn copy_due(&mut self, out: &mut [u8]) {
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
    pub(super) fn ready(&mut self) -> usize {
        // The octets first: the records before them are there then.
        let filled = self.shared.filled.load(Ordering::Acquire);
        self.due();
        let end = self.ahead.front().map_or(filled, |next| next.record.at.min(filled));
        (end - self.consumed) as usize
    }

    pub(super) fn copy(&mut self, out: &mut [u8]) {
        self.copy_from_ring(out);
        self.copied += out.len() as u64;
        self.consume_from_ring(out.len());
    }

    pub(super) fn consume_from_ring(&mut self, octets: usize) {
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

    pub(super) fn copy_from_ring(&self, out: &mut [u8]) {
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
}

/// The ring that octets are read from.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    ring: Region,
    /// The longer one that was given to the core to replace it. What is in `ring` is read first.
    next: Option<Region>,
    /// Octets consumed when its length was thought about last.
    since: u64,
    /// No other will replace it.
    is_final: bool,
}

impl ReceiveRing {
    pub(super) fn new(shared: &SharedByteStream) -> Self {
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
