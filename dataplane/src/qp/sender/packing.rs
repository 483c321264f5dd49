//! FPDUs that share a segment, and FPDUs that follow one another in a message (RFC 5044 §4.5, App. A.2).

use super::{FpduDescriptor, FpduRun, Origin, OutboundReads, Reads, SegmentRoom, Sender};
use crate::limits;
use crate::mpa;
use crate::wire::tcp::SeqNumber;

impl Sender {
    /// `run`, which is queued, extended by the FPDUs that are ready and fit; `None` if there are none.
    /// [`advance`](Self::advance) takes the result like any other run.
    pub fn extend(&self, run: FpduRun, room: &SegmentRoom, reads: &Reads) -> Option<FpduRun> {
        // After a part of a message only its next part may follow, and that belongs to the next segment.
        // Messages that are not of the send queue go alone.
        let alone = !matches!(run.origin, Origin::Requests(_));
        let inside = self.offset > 0 || reads.inbound.next().is_some_and(|(_, offset)| offset > 0);
        if inside || self.terminate.is_some() || self.provider_message.is_some() || alone {
            return None;
        }
        let longer = self.pack(run, self.queued, 0, room, &reads.outbound);
        (longer.more > run.more).then_some(longer)
    }

    /// `run` extended by the requests from index `next` on that fit. `pending` counts requests of the run
    /// that expect a response and are not queued yet.
    // Requirements: MPA-5.1-04, MPA-A.2-01
    pub(super) fn pack(
        &self,
        mut run: FpduRun,
        next: usize,
        mut pending: usize,
        room: &SegmentRoom,
        outbound: &OutboundReads,
    ) -> FpduRun {
        if !room.packing || next >= self.active.len() {
            return run;
        }
        let first = match run.origin {
            Origin::Requests(number) => self.active.get(number.wrapping_sub(self.completed) as usize),
            _ => None,
        };
        if first.is_some_and(|wqe| wqe.refers) && run.first_octets >= room.alone_from {
            return run;
        }
        let short = if room.markers { 0 } else { self.pack_short_messages(&mut run, next, room.emss_octets) };
        for index in next + short..self.active.len() {
            if run.fpdus() == limits::FPDUS_PER_SEGMENT {
                break;
            }
            let Some((wqe, message)) = self.ready(index, pending, outbound) else { break };
            let octets = run.octets as usize;
            // A small FPDU may fit where no part of a larger one may begin.
            let whole_octets = message.part_octets(0, mpa::fpdu::MULPDU_MAX);
            let whole_end = room.with(octets, message.header_len() + whole_octets as usize);
            let fits = whole_octets == message.octets && whole_end <= room.emss_octets;
            let (fpdu_octets, end) = if fits {
                (whole_octets, whole_end)
            } else {
                let Some(mulpdu) = room.mulpdu_behind(octets) else { break };
                let part_octets = message.part_octets(0, mulpdu);
                (part_octets, room.with(octets, message.header_len() + part_octets as usize))
            };
            if wqe.refers && fpdu_octets >= room.alone_from {
                break;
            }
            pending += usize::from(wqe.expects_response());
            run.octets = end as u32;
            run.more += 1;
            run.last_octets = fpdu_octets;
            if !fits {
                break;
            }
        }
        run
    }

    /// The FPDUs of a run that is not yet acknowledged, in order.
    #[cfg(test)]
    pub(super) fn fpdus(&self, run: FpduRun, reads: &Reads) -> impl Iterator<Item = FpduDescriptor> {
        let mut fpdus: Vec<_> = self.first_of(&run, reads).into_iter().collect();
        assert!(self.all_behind(&run, 1, |fpdu| {
            fpdus.push(*fpdu);
            true
        }));
        fpdus.into_iter()
    }

    /// Calls `f` for the FPDUs of a run that is not yet acknowledged, in order, but for the first `from`, one
    /// at least. Returns false if `f` does, and calls it no more.
    #[inline]
    pub fn all_behind(&self, run: &FpduRun, from: usize, mut f: impl FnMut(&FpduDescriptor) -> bool) -> bool {
        let Origin::Requests(number) = run.origin else { return true };
        let mut number = number.wrapping_add(from as u32);
        let mut left = run.fpdus() - from;
        let index = number.wrapping_sub(self.completed) as usize;
        if left == 0 || index > self.active.len() {
            return true;
        }
        for wqe in self.active.from(index) {
            let Some(message) = wqe.message(self.numbers.version) else { continue };
            left -= 1;
            // Only the last may be a part of its message.
            let mulpdu = match left {
                0 => message.header_len() + run.last_octets as usize,
                _ => mpa::fpdu::MULPDU_MAX,
            };
            if !f(&wqe.fpdu(&message, number, 0, mulpdu)) {
                return false;
            }
            number = number.wrapping_add(1);
            if left == 0 {
                break;
            }
        }
        true
    }

    /// Returns how many FPDUs follow `run`, the last one queued, that are like it: in its message those that
    /// have as much payload as it and do not end the message; after a short message alone in its segment, the
    /// short messages that are as long. [`peek`](Self::peek) would return them next, one by one, each equal
    /// to the one before but for the offsets, or the number of the request, and in a stream with Markers for
    /// their number: nothing goes between the parts of a message, and the MULPDU at the beginning of a
    /// segment has room for as many Markers as may fall into any.
    ///
    /// Example: of a message of 65536 octets whose first FPDU has 1428 octets of payload, 44 follow, and then
    /// the last one with 1276.
    #[inline]
    pub fn parts_alike(&self, run: &FpduRun, segment: &SegmentRoom, reads: &Reads) -> u32 {
        if run.more > 0 || self.terminate.is_some() || self.provider_message.is_some() {
            return 0;
        }
        if run.by_request {
            return self.messages_alike(run, segment, reads);
        }
        let (octets, offset) = match run.origin {
            Origin::Requests(_) => {
                let next = if self.offset > 0 { self.active.get(self.queued) } else { None };
                let message = next.and_then(|wqe| wqe.message(self.numbers.version));
                (message.map_or(0, |message| message.octets), self.offset)
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
        octets.saturating_sub(offset).saturating_sub(1) / run.first_octets.max(1)
    }

    /// Notes that `count` more FPDUs after `run`, which ends at `end`, are queued: the next of those that are
    /// [alike](Self::parts_alike).
    #[inline]
    pub fn advance_parts(&mut self, run: &FpduRun, count: u32, end: SeqNumber, reads: &mut Reads) {
        if run.by_request {
            return self.advance_messages(run, count, end);
        }
        let octets = count * run.first_octets;
        match run.origin {
            Origin::Requests(_) => self.offset += octets,
            Origin::Response(_) => reads.inbound.advance_inside(octets),
            Origin::Terminate | Origin::Indication(_) | Origin::IndicationResponse => {
                debug_assert_eq!(octets, 0, "it has no parts");
            }
        }
    }
}
