//! The core's half of what is received: octets of transfers are placed when their segment arrives, and in
//! stream order everything is handed to the application, as octets of the ring or as records.

use core::ops::Range;
use std::sync::Arc;

use super::counters::TransferCounters;
use super::early::EarlyMessage;
use super::message_starts::MessageStarts;
use super::placements::Placement;
use super::placing::{Arrived, Placing, Turn};
use super::receive_ring::ReceiveRing;
use super::record_writer::RecordWriter;
use super::shared::{ReaderCommand, SharedByteStream};
use super::transfers::{Record, RecordKind, TransferId, Transfers};
use crate::limits;
use crate::sync::{Ordering, fence};
use crate::wire::tcp_rdma::{RdmaOption, Transfer, TransferWords};

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

/// What an application receives, at its core.
#[derive(Debug)]
pub struct Inbound {
    shared: Arc<SharedByteStream>,
    placing: Placing,
    message_starts: MessageStarts,
    ring: ReceiveRing,
    records: RecordWriter,
    /// The transfer that the segments of a burst continue.
    continuation: Option<Continuation>,
    /// There are records or counts that were not reported to the application.
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
        let placing = Placing::new(transfers, placements, shared.rid_format);
        let ring = ReceiveRing::of(&shared);
        Self {
            shared,
            placing,
            message_starts: MessageStarts::default(),
            ring,
            records: RecordWriter::default(),
            continuation: None,
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
            || self.ring.filled() != self.shared.consumed.load(Ordering::Acquire)
            || !self.shared.records.is_empty()
            || self.shared.left_unread.load(Ordering::Acquire)
    }

    /// The counters of its transfers.
    pub const fn counters(&self) -> &TransferCounters {
        &self.placing.transfers.counters
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
                    if !self.placing.transfers.expect(rid, memory, offset, octets) {
                        let pushed = self.shared.not_expected.push(rid);
                        debug_assert!(pushed.is_ok(), "the reader takes them before it asks for more");
                    }
                }
                ReaderCommand::Cancel(rid) => self.placing.transfers.cancel(rid),
                ReaderCommand::Release(buffer) => self.placing.transfers.release_buffer(buffer),
                ReaderCommand::ReplaceRing(longer) => self.ring.replace(longer, &self.shared),
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

    /// Records that a message begins with the payload of a segment, if its application asks for that. A
    /// copy of the segment says the same.
    // Requirements: TRO-3.1.6-01
    pub fn record_message_start(&mut self, arrived: &Arrived) {
        let position = arrived.payload;
        let is_kept = position >= self.position && position < arrived.kept.1;
        if self.shared.message_starts && is_kept {
            self.message_starts.add(position);
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
        let first = self.message_starts.index_before(segment.start);
        for at in first..first + limits::EARLY_MESSAGES_PER_SEGMENT {
            let Some((start, next)) = self.message_starts.with_next(at) else { break };
            if start.position >= segment.end {
                break;
            }
            // A beginning inside of a placement is not reported.
            let is_inside = self.placing.placements.encloses(start.position);
            if start.handed_out_to > 0 || is_inside || !is_entire(start.position, next) {
                continue;
            }
            let (position, octets) = (start.position, (next - start.position) as u32);
            let message = EarlyMessage { position, octets };
            let pushed = early.push(&mut self.early_filled, message, |write| {
                copy(position, octets as usize, write);
            });
            start.handed_out_to = if pushed { next } else { 0 };
            let counters = &mut self.placing.transfers.counters;
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

    /// As [`place`](Self::place), but the counters are not reported to the application.
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
            let turn = Turn { position: self.position, starts: &self.message_starts };
            self.placing.place_new(option, arrived, &turn, copy);
        } else {
            self.placing.transfers.counters.outside_payload += 1;
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
            self.placing.transfers.write(continuation.transfer, continuation.next.into(), payload);
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
        // Where a message begins is reported, segment by segment.
        let Some(option) = option.filter(|_| !self.shared.message_starts) else { return };
        let continues = self.records.may_continue() && range.octets() > 0;
        if continues && let Some(end) = self.placing.transfers.continues_to(transfer, range) {
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
        self.placing.transfers.append(transfer, octets, octets / segment_octets);
        self.position += u64::from(octets);
        self.records.continue_by(octets);
    }

    /// Places the octets of a segment that are next in stream order. Returns their placement if they are
    /// handed over: the transfer has all of them, and nothing is to be reported before.
    fn place_next(
        &mut self,
        option: &Transfer,
        arrived: &Arrived,
        mut copy: impl FnMut(u64, usize, &mut dyn FnMut(&[u8])),
    ) -> Option<Placement> {
        let has_all = option.data_offset == 0 && usize::from(option.data_octets) == arrived.payload_octets;
        let is_next = self.message_starts.is_empty() && self.placing.placements.is_empty();
        if !has_all || !is_next || self.shared.abandoned.load(Ordering::Acquire) {
            self.place_fitting(option, arrived, copy);
            return None;
        }
        let (at, end) = arrived.kept;
        let placement = self.placing.place_part(option, arrived, at..end, &mut copy)?;
        self.placing.transfers.counters.segments_placed += 1;
        self.deliver(&placement).then_some(placement)
    }

    fn publish_counters(&self) {
        self.shared.transfer_counters.publish(self.counters());
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
        debug_assert!(self.continuation.is_none(), "the burst was reported");
        let octets = self.hand_over_next(available, may_wait, copy);
        self.tell();
        octets
    }

    /// As [`hand_over`](Self::hand_over), but not reported to the application yet.
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
            let next = self.placing.next(self.position, end);
            let octets_end = next.map_or(end, |placement| placement.at);
            let start = self.message_starts.next(self.position, octets_end).filter(|start| *start < end);
            let octets_end = start.unwrap_or(octets_end);
            if octets_end > self.position {
                let wanted = (octets_end - self.position) as usize;
                let taken = self.ring.room_for(wanted, &self.shared);
                let skip = (self.position - begin) as usize;
                self.ring.append(taken, |write| copy(skip, taken, write));
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
            if !self.records.has_room_for(2, &self.shared) {
                if may_wait || !self.may_give_up() {
                    break;
                }
                self.placing.give_up_next();
                continue;
            }
            if start.is_some() {
                self.message_starts.tell_first();
                self.write(Record::message_start(self.ring.filled()));
                continue;
            }
            let Some(placement) = next else { break };
            self.placing.placements.pop_front();
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
            self.records.flush(&self.shared);
            self.publish_counters();
        }
        // After the records: the reader may read all octets that it sees, up to the next record.
        let has_octets = self.ring.publish(&self.shared);
        if has_octets || has_news {
            self.shared.reader.wake();
        }
    }

    /// Returns true if octets that were placed may be handed over in the ring: only their place is lost. A
    /// beginning of a message is reported by a record only, so where the application wants it, octets wait.
    pub fn may_give_up(&self) -> bool {
        !self.shared.message_starts
    }

    /// Hands a placement to the application, whose turn has come. Returns false if it does not count after
    /// all; its octets follow from the stream then.
    #[inline]
    fn deliver(&mut self, placement: &Placement) -> bool {
        let Placement { range, transfer, beyond_gap, .. } = *placement;
        let Some((rid, buffer)) = self.placing.transfers.names(transfer) else { return false };
        if !self.placing.transfers.deliver(transfer, range, beyond_gap) {
            return false;
        }
        let (offset, octets) = (range.offset(), range.octets());
        self.position += u64::from(octets);
        let record =
            Record { at: self.ring.filled(), rid, buffer, kind: RecordKind::Placed { offset, octets } };
        if octets > 0 {
            self.write(record);
        }
        if let Some(total_octets) = self.placing.transfers.end_if_complete(transfer) {
            self.write(Record { kind: RecordKind::Complete { total_octets }, ..record });
        }
        true
    }

    /// Writes a record, which is to be reported to the application.
    fn write(&mut self, record: Record) {
        self.has_news = true;
        self.records.write(record, &self.shared);
    }

    /// Octets that the ring holds.
    #[inline]
    pub fn ring_octets(&self) -> u32 {
        u32::try_from(self.ring.len()).unwrap_or(u32::MAX)
    }

    /// Returns true if a longer ring may replace this one.
    #[inline]
    pub fn may_grow(&self) -> bool {
        self.ring.may_grow()
    }

    /// Octets of the stream that find room in the ring, whatever the application does.
    #[inline]
    pub fn room_octets(&self) -> u32 {
        u32::try_from(self.ring.room(&self.shared)).unwrap_or(u32::MAX)
    }

    /// Returns true if more than half of the records may still be pushed. Those that are left then suffice
    /// for a window of long segments, each of another transfer than the one before.
    #[inline]
    pub fn has_many_records(&mut self) -> bool {
        self.records.has_room_for(self.shared.records.capacity() / 2, &self.shared)
    }

    /// Whether all `octets` octets of a segment that are next in the stream can be handed over from where
    /// they lie, whatever it says about them: no placement prevents it.
    #[inline]
    pub fn has_room(&mut self, octets: usize) -> bool {
        self.placing.placements.is_empty() && self.message_starts.is_empty() && self.takes(octets)
    }

    /// Whether `octets` octets of a segment that are next in the stream are handed over as they come,
    /// whatever lies beyond them.
    #[inline]
    pub fn takes(&mut self, octets: usize) -> bool {
        self.ring.room_for(octets, &self.shared) == octets
            && self.records.has_room_for(RECORDS_OF_SEGMENT, &self.shared)
    }

    /// Records that octets wait for room, or do no more. Returns true if there is room after all.
    pub fn record_stalled(&mut self, stalled: bool) -> bool {
        if !stalled {
            return false;
        }
        self.shared.stalled.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // The application may have made room before it could see that.
        self.ring.room(&self.shared) > 0 && self.records.has_room_for(2, &self.shared)
    }

    /// Tells the application that the peer sends nothing more.
    pub fn finish(&self) {
        self.shared.peer_finished.store(true, Ordering::Release);
        self.shared.reader.wake();
    }
}

#[cfg(test)]
mod tests;
