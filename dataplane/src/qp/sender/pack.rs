//! Entries become the FPDUs of segments: those that share one, and those that follow one another in a message
//! (RFC 5044 §4.5, App. A.2). Requests go in the order of posting, offsets rising, responses between them.

use super::entry::SendEntry;
use super::{FpduRun, Origin, ProviderMessage, Reads, SegmentRoom, Sender};
use crate::limits;
use crate::mpa::fpdu::Markers;
use crate::qp::indication;
use crate::qp::reads::{InboundReads, OutboundReads};
use crate::rdmap::message;
use crate::wire::mpa::Marker;
use crate::wire::tcp::SeqNumber;

impl Sender {
    /// The FPDUs of the next segment: requests in the order of posting, offsets rising; responses between
    /// them. The caller queues them and calls [`advance`](Self::advance), or calls this again later.
    // Requirements: DDP-5.3-02, RDMAP-5.1-04, RDMAP-5.2.1-03, RDMAP-5.3-03, RDMAP-5.5-06, DDP-5.3-03
    #[inline]
    pub fn peek(&self, room: &SegmentRoom, reads: &Reads) -> Option<FpduRun> {
        if self.has_others(reads) {
            return self.peek_among_others(room, reads);
        }
        self.peek_requests(room, &reads.outbound)
    }

    /// Whether anything but a request may go next: a message of the provider, a Terminate, or a response.
    #[inline]
    fn has_others(&self, reads: &Reads) -> bool {
        self.provider_message.is_some() || self.terminate.is_some() || reads.inbound.has_next()
    }

    /// The FPDUs of the next segment, of requests or of anything else.
    #[inline(never)]
    fn peek_among_others(&self, room: &SegmentRoom, reads: &Reads) -> Option<FpduRun> {
        let version = self.numbers.version;
        if let Some(provided) = self.provider_message {
            let origin = match provided {
                ProviderMessage::Indication(rtr) => Origin::Indication(rtr),
                ProviderMessage::Response { .. } => Origin::IndicationResponse,
            };
            return Some(FpduRun::one(origin, &indication::message(version, provided), 0, room));
        }
        if self.terminate.is_some() {
            return self.peek_terminate(room);
        }
        let request = self.peek_requests(room, &reads.outbound);
        match reads.inbound.next() {
            // A message is finished before another begins.
            Some((_, offset))
                if offset > 0 || self.response_next && self.offset == 0 || request.is_none() =>
            {
                next_response(&reads.inbound, room)
            }
            _ => request,
        }
    }

    /// The FPDUs of the next requests, at the beginning of a segment.
    #[inline]
    fn peek_requests(&self, room: &SegmentRoom, outbound: &OutboundReads) -> Option<FpduRun> {
        let entry = self.entries.get(self.queued)?;
        if entry.is_gated() && !self.may_go(entry, self.queued, 0, outbound) {
            return None;
        }
        let (header_len, offset) = (usize::from(entry.header_len), self.offset);
        let most_octets = room.mulpdu() - header_len;
        let first_octets = (entry.message_octets - offset).min(most_octets as u32);
        let is_all = entry.is_all_in(first_octets);
        let run = FpduRun {
            origin: Origin::Requests(self.number(self.queued)),
            offset,
            first_octets,
            octets: if is_all && !room.markers {
                entry.fpdu_octets
            } else {
                room.with(0, header_len + first_octets as usize) as u32
            },
            last_octets: 0,
            more: 0,
            header_len: entry.header_len,
            by_request: is_all && first_octets < limits::SMALL_MESSAGE_BYTES && !entry.is_gated(),
            markers: Markers::of(room.position, room.markers),
        };
        let ends = offset + first_octets == entry.message_octets;
        if !(ends && room.packing) {
            return Some(run);
        }
        let pending = usize::from(entry.is_gated() && entry.expects_response());
        Some(self.pack(run, self.queued + 1, pending, room, outbound))
    }

    /// Whether the entry at `index` may be sent now, if all before it are. `pending` counts the entries
    /// before it that expect a response and are not queued yet.
    #[inline(never)]
    fn may_go(&self, entry: &SendEntry, index: usize, pending: usize, outbound: &OutboundReads) -> bool {
        let waits = (entry.request.fenced() && !(outbound.is_empty() && pending == 0))
            || (entry.expects_response() && !outbound.has_room(pending));
        entry.sends_message() && (!waits || (index == self.queued && self.offset > 0))
    }

    /// The Terminate Message, if there is one that is not queued.
    pub fn peek_terminate(&self, room: &SegmentRoom) -> Option<FpduRun> {
        let terminate = self.terminate.as_ref().filter(|_| !self.terminate_queued)?;
        let message = message::terminate(self.numbers.version, terminate.len() as u32);
        Some(FpduRun::one(Origin::Terminate, &message, 0, room))
    }

    /// `run`, which is queued, extended by the FPDUs that are ready and fit; `None` if there are none.
    /// [`advance`](Self::advance) accepts the result like any other run.
    pub fn extend(&self, run: FpduRun, room: &SegmentRoom, reads: &Reads) -> Option<FpduRun> {
        // After a part of a message only its next part may follow, and that belongs to the next segment.
        // A message that is not of the send queue has a segment of its own.
        let is_single = !matches!(run.origin, Origin::Requests(_));
        let inside = self.offset > 0 || reads.inbound.next().is_some_and(|(_, offset)| offset > 0);
        if inside || self.terminate.is_some() || self.provider_message.is_some() || is_single {
            return None;
        }
        let longer = self.pack(run, self.queued, 0, room, &reads.outbound);
        (longer.more > run.more).then_some(longer)
    }

    /// `run` extended by the requests from index `next` on that fit. `pending` counts requests of the run
    /// that expect a response and are not queued yet.
    // Requirements: MPA-5.1-04, MPA-A.2-01
    fn pack(
        &self,
        mut run: FpduRun,
        next: usize,
        mut pending: usize,
        room: &SegmentRoom,
        outbound: &OutboundReads,
    ) -> FpduRun {
        if next >= self.entries.len() || run.first_octets >= room.single_from && self.refers(&run) {
            return run;
        }
        let most = limits::FPDUS_PER_SEGMENT.saturating_sub(run.fpdus());
        let mut index = next;
        for in_a_row in self.entries.in_a_row(next..next + most) {
            for entry in in_a_row {
                if entry.is_gated() {
                    if !self.may_go(entry, index, pending, outbound) {
                        return run;
                    }
                    pending += usize::from(entry.expects_response());
                }
                let end = if room.markers {
                    let ulpdu_octets = usize::from(entry.header_len) + entry.message_octets as usize;
                    room.with(run.octets as usize, ulpdu_octets)
                } else {
                    (run.octets + entry.fpdu_octets) as usize
                };
                // A small FPDU may fit where a longer one may not begin.
                let fits = end <= room.emss_octets && entry.is_one_fpdu();
                if !fits {
                    return pack_beginning(run, entry, room);
                }
                if entry.refers() && entry.message_octets >= room.single_from {
                    return run;
                }
                (run.octets, run.last_octets) = (end as u32, entry.message_octets);
                run.more += 1;
                index += 1;
            }
        }
        run
    }

    /// Whether frames can refer to the payload of the first FPDU of a run that is not yet acknowledged.
    fn refers(&self, run: &FpduRun) -> bool {
        let Origin::Requests(number) = run.origin else { return false };
        let first = self.entries.get(number.wrapping_sub(self.completed) as usize);
        first.is_some_and(SendEntry::refers)
    }

    /// Records that `run` is queued and ends at `end` in the stream; `before` of its FPDUs were queued
    /// before. Its requests complete together when all of the segment is acknowledged: until then it may have
    /// to be built again.
    pub fn advance(&mut self, run: &FpduRun, before: usize, end: SeqNumber, reads: &mut Reads) {
        let Origin::Requests(number) = run.origin else { return self.advance_other(run, end, reads) };
        if before > 0 {
            let from = number.wrapping_sub(self.completed) as usize;
            for entry in self.entries.range_mut(from.min(self.queued)..self.queued) {
                entry.end = end;
            }
        }
        let count = run.fpdus() - before;
        // Only the last may be a part of its message.
        let last_end = if run.more == 0 { run.offset + run.first_octets } else { run.last_octets };
        let last = self.entries.get(self.queued + count - 1);
        let is_part = last.is_some_and(|entry| last_end < entry.message_octets);
        let ended = self.queued..self.queued + count - usize::from(is_part);
        self.queued = ended.end;
        self.offset = if is_part { last_end } else { 0 };
        self.response_next = !is_part;
        for index in ended {
            let number = self.number(index);
            let Some(entry) = self.entries.get_mut(index) else { return };
            entry.end = end;
            if entry.is_gated() {
                entry.await_response(number, &mut reads.outbound);
            }
        }
    }

    /// Records that a run which does not belong to requests is queued and ends at `end` in the stream.
    fn advance_other(&mut self, run: &FpduRun, end: SeqNumber, reads: &mut Reads) {
        match run.origin {
            Origin::Requests(_) => {}
            Origin::Terminate => self.terminate_queued = true,
            Origin::Indication(_) | Origin::IndicationResponse => self.provider_message = None,
            Origin::Response(_) => {
                if reads.inbound.advance(run.first_octets, end) {
                    self.response_next = false;
                }
            }
        }
    }

    /// Returns how many FPDUs follow `run`, the last one queued, that are like it: its continuations, except
    /// the one that ends the message, whose segments are as long; or, after a small message that has a
    /// segment of its own, the messages that are as long. [`peek`](Self::peek) would return them next, one by
    /// one, each equal to the one before but for what [`FpduRun::move_on`] changes: nothing goes between the
    /// FPDUs of a message.
    ///
    /// Example: of a message of 65536 octets whose first FPDU has 1428 octets of payload, 44 follow, and then
    /// the last one with 1276.
    #[inline]
    pub fn count_equal(&self, run: &FpduRun, segment: &SegmentRoom, reads: &Reads) -> u32 {
        if run.more > 0 || self.terminate.is_some() || self.provider_message.is_some() {
            return 0;
        }
        if run.by_request {
            return self.messages_alike(run, segment, reads);
        }
        let (octets, offset) = match run.origin {
            Origin::Requests(_) => {
                let next = if self.offset > 0 { self.entries.get(self.queued) } else { None };
                (next.map_or(0, |entry| entry.message_octets), self.offset)
            }
            Origin::Response(_) => {
                reads.inbound.next().map_or((0, 0), |(response, offset)| (response.message.octets, offset))
            }
            Origin::Terminate | Origin::Indication(_) | Origin::IndicationResponse => return 0,
        };
        if offset == 0 {
            // The run has ended its message.
            return 0;
        }
        let left = octets.saturating_sub(offset).saturating_sub(1);
        if segment.markers {
            // One may have more payload than another, by a Marker.
            let most = left / (run.first_octets + Marker::LEN as u32);
            return if segment.is_filled_by(run) { run.count_alike(most) } else { 0 };
        }
        left / run.first_octets.max(1)
    }

    /// Returns how many of the next messages are as long as that of `run`, the last one queued, and go into
    /// segments of their own after it: nothing goes between them.
    fn messages_alike(&self, run: &FpduRun, segment: &SegmentRoom, reads: &Reads) -> u32 {
        let has_own_segments = !segment.packing && !segment.markers;
        if !has_own_segments || self.queued == self.entries.len() || reads.inbound.has_next() {
            return 0;
        }
        // Those with longer or shorter headers differ in the length of the FPDU.
        let is_like = |entry: &&SendEntry| {
            !entry.is_gated() && entry.fpdu_octets == run.octets && entry.is_all_in(run.first_octets)
        };
        self.entries.from(self.queued).take_while(is_like).count() as u32
    }

    /// Records that `count` more FPDUs after `run`, which ends at `end`, are queued: the next of those that
    /// are [alike](Self::count_equal).
    #[inline]
    pub fn advance_equal(&mut self, run: &FpduRun, count: u32, end: SeqNumber, reads: &mut Reads) {
        if run.by_request {
            return self.advance_messages(run, count, end);
        }
        let mut next = *run;
        next.move_on(1);
        let octets = next.group_octets(count);
        match run.origin {
            Origin::Requests(_) => self.offset += octets,
            Origin::Response(_) => reads.inbound.advance_inside(octets),
            Origin::Terminate | Origin::Indication(_) | Origin::IndicationResponse => {
                debug_assert_eq!(octets, 0, "it has no continuations");
            }
        }
    }

    /// Records that the next `count` requests, which are [alike](Self::messages_alike), are queued, each in a
    /// segment of its own after `end`, where `run` ends.
    fn advance_messages(&mut self, run: &FpduRun, count: u32, mut end: SeqNumber) {
        let queued = self.queued..self.queued + count as usize;
        self.queued = queued.end;
        for entry in self.entries.range_mut(queued) {
            end += run.octets;
            entry.end = end;
        }
    }
}

/// `run` extended by the beginning of the message of `entry`, which does not fit the segment, if there is
/// room for an FPDU.
fn pack_beginning(mut run: FpduRun, entry: &SendEntry, room: &SegmentRoom) -> FpduRun {
    let octets = run.octets as usize;
    let Some(mulpdu) = room.mulpdu_after(octets) else { return run };
    let header_len = usize::from(entry.header_len);
    let part_octets = entry.message_octets.min((mulpdu - header_len) as u32);
    if entry.refers() && part_octets >= room.single_from {
        return run;
    }
    run.octets = room.with(octets, header_len + part_octets as usize) as u32;
    run.last_octets = part_octets;
    run.more += 1;
    run
}

/// The next FPDU of the oldest response. A response has segments of its own.
fn next_response(inbound: &InboundReads, room: &SegmentRoom) -> Option<FpduRun> {
    let (response, offset) = inbound.next()?;
    Some(FpduRun::one(Origin::Response(inbound.next_number()), &response.message, offset, room))
}
