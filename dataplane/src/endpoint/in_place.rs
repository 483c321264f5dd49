//! Segments whose payload is consumed where it lies: the way of nearly all data through an endpoint.
//!
//! TCP takes the header of a segment that it has [predicted](crate::tcp), MPA finds the FPDUs in the frame,
//! and their payload is copied once, to its place. What is left of the frame, the beginning of an FPDU or one
//! that is not valid, goes to the receive queue, and from there the general way ([`super::receive`]).

use crate::device::Frame;
use crate::mpa::whole::Whole;
use crate::tcp::{Arrivals, Changes};
use crate::wire::plain_segment::PlainSegment;

use super::connection::Mode;
use super::context::Context;
use super::rdmap_stream::RdmapStream;
use super::receive::{Step, on_fpdu};
use super::{Endpoint, Outcome};

/// The result of a segment in the usual form.
pub enum Plain<F> {
    /// Nothing has changed: the segment goes the general way.
    General(F),
    /// It had no payload. The frame is of no more use.
    Acknowledged(F, Outcome),
    /// All of its payload is consumed. The frame is of no more use; this has changed in TCP.
    Consumed(F, Changes),
    /// The rest of it is in the receive queue.
    Kept(Outcome),
}

impl<F: Frame> Endpoint<'_, F> {
    /// Handles a segment in the usual form, if it is the next one in order and its connection takes FPDUs.
    #[inline]
    pub fn on_plain_segment(&mut self, segment: &PlainSegment, frame: F) -> Plain<F> {
        let payload = frame.piece(0).and_then(|first| first.get(segment.payload_offset..segment.end()));
        if self.connection.carries_bytes() {
            return self.on_plain_bytes(segment, frame);
        }
        let pools = &mut self.context.pools;
        let expected = self.connection.takes_fpdus()
            && self.queue_pair.is_some()
            && self.connection.tcp.predicts(self.now, segment, pools);
        let Some(payload) = payload.filter(|_| expected) else { return Plain::General(frame) };
        let changes = self.connection.tcp.take_predicted(self.now, segment, pools);
        self.connection.note_changes(self.now, changes);
        if changes.contains(Changes::ACKNOWLEDGED) {
            self.complete_sends();
        }
        let Some(mut stream) = self.rdmap() else {
            debug_assert!(false, "a connection that takes FPDUs has a queue pair");
            self.connection.tcp.keep(&mut self.context.pools, segment.payload_offset, frame);
            return Plain::Kept(Outcome { dirty: true, changes, ..Outcome::NONE });
        };
        let (consumed, last) = stream.consume_fpdus(payload);
        stream.tcp.pass(consumed);
        if consumed == segment.payload_octets && matches!(last, Step::Next) {
            return Plain::Consumed(frame, changes);
        }
        let rest = (consumed < segment.payload_octets).then_some(segment.payload_offset + consumed);
        let dropped_surplus = self.keep_rest(frame, rest, &last);
        Plain::Kept(Outcome { dirty: true, changes, dropped_surplus, ..Outcome::NONE })
    }

    /// Keeps the rest of a segment's payload, which begins at `rest` of its frame, if there is one, and does
    /// what follows from the `last` FPDU before it. Returns true if octets beyond a gap were dropped.
    fn keep_rest(&mut self, frame: F, rest: Option<usize>, last: &Step) -> bool {
        if let Some(offset) = rest {
            self.connection.tcp.keep(&mut self.context.pools, offset, frame);
        }
        match last {
            Step::Next | Step::Wait => self.receive_in_order(),
            ended => self.end_receive(ended),
        }
        self.drop_unacked_surplus()
    }

    /// Handles the segments of a train after `first`, which was [consumed](Plain::Consumed): nothing but
    /// RCV.NXT and what follows from their payload changes. Returns true if octets beyond a gap were dropped.
    #[inline]
    pub fn on_followers(&mut self, first: &PlainSegment, followers: &mut impl Followers<F>) -> bool {
        let takes_fpdus = self.connection.takes_fpdus();
        let arrivals = self.connection.tcp.arrivals_after(first, &self.context.pools);
        let Some(mut arrivals) = arrivals.filter(|_| takes_fpdus) else { return false };
        let Some(mut stream) = self.rdmap() else { return false };
        let mut octets = 0;
        let mut kept = None;
        while let Some((payload_octets, frame)) = followers.next(&arrivals) {
            arrivals.take(payload_octets);
            let payload =
                frame.piece(0).and_then(|piece| piece.get(first.payload_offset..)?.get(..payload_octets));
            let (consumed, last) = stream.consume_fpdus(payload.unwrap_or_default());
            octets += consumed;
            if consumed < payload_octets || !matches!(last, Step::Next) {
                let rest = (consumed < payload_octets).then_some(first.payload_offset + consumed);
                kept = Some((frame, rest, last));
                break;
            }
            followers.is_consumed(frame);
            stream.context.statistics.segments_predicted += 1;
        }
        stream.tcp.end_arrivals(&arrivals, octets);
        kept.is_some_and(|(frame, rest, last)| self.keep_rest(frame, rest, &last))
    }
}

/// The segments that follow one in the usual form in a burst.
pub trait Followers<F> {
    /// Takes the next frame, if it has the segment that `arrivals` expects, and that fits the window. Returns
    /// the octets of its payload, too, which begins where that of the first does.
    fn next(&mut self, arrivals: &Arrivals) -> Option<(usize, F)>;

    /// Takes a frame that is of no more use.
    fn is_consumed(&mut self, frame: F);
}

impl super::Connection {
    /// Returns true if octets that arrive in order are FPDUs that are taken at once.
    #[inline]
    const fn takes_fpdus(&self) -> bool {
        matches!(&self.mode, Mode::FullOperation(operating)
            if operating.receives && !operating.failed && !operating.awaits_receive)
    }
}

/// Segments that were placed in a run, and are not counted yet.
#[derive(Default)]
struct Run {
    fpdus: u64,
    wire_octets: usize,
    payload_octets: usize,
}

impl<F: Frame> RdmapStream<'_, F> {
    /// Takes the FPDUs that `octets`, the next in order, begin with, as long as they are whole and valid.
    /// Returns how many octets they have, and the result of the last.
    fn consume_fpdus(&mut self, octets: &[u8]) -> (usize, Step) {
        let mut run = Run::default();
        let mut consumed = 0;
        while let Some(rest) = octets.get(consumed..).filter(|rest| !rest.is_empty())
            && let Some(fpdu) = self.operating.fpdus.next_in(rest)
        {
            let (qp, stags) = (&mut *self.qp, &self.context.stags);
            let (ulpdu, outbound) = (&fpdu.ulpdu, &mut qp.reads.outbound);
            let placed = qp
                .receiver
                .on_write(ulpdu, &qp.shared, stags)
                .or_else(|| qp.receiver.on_middle(ulpdu, &qp.shared, stags, outbound))
                .or_else(|| qp.receiver.on_whole_send(ulpdu, &qp.shared, stags));
            if let Some(payload_octets) = placed {
                consumed += fpdu.wire_len;
                // Where the next FPDU begins says where its Markers stand.
                self.operating.fpdus.pass(fpdu.wire_len);
                run.fpdus += 1;
                run.wire_octets += fpdu.wire_len;
                run.payload_octets += payload_octets;
                continue;
            }
            self.note_run(&core::mem::take(&mut run));
            if self.qp.receive_wait.is_allowed()
                && self.qp.receiver.lacks_receive(&self.qp.shared, &rest, &fpdu.located)
            {
                // It waits for a receive in the receive queue.
                return (consumed, Step::Next);
            }
            self.qp.receive_wait.end();
            consumed += fpdu.wire_len;
            match self.take_fpdu(rest, &fpdu) {
                Step::Next => {}
                last => return (consumed, last),
            }
        }
        self.note_run(&run);
        (consumed, Step::Next)
    }

    /// Counts the segments of a run, as [`on_fpdu`] counts any FPDU.
    #[inline]
    fn note_run(&mut self, run: &Run) {
        if run.fpdus == 0 {
            return;
        }
        let statistics = &mut self.context.statistics;
        statistics.bytes_verified += run.wire_octets as u64;
        statistics.fpdus_received += run.fpdus;
        statistics.bytes_copied_rx += run.payload_octets as u64;
        self.operating.crc_retries = 0;
        self.operating.on_fpdu(&self.qp.shared);
        self.qp.receive_wait.end();
    }

    /// Takes an FPDU at the front of `octets`.
    fn take_fpdu(&mut self, octets: &[u8], fpdu: &Whole<'_>) -> Step {
        let acknowledged = self.tcp.acknowledged();
        let Context { stags, statistics, .. } = &mut *self.context;
        statistics.bytes_verified += fpdu.wire_len as u64;
        let counted = (stags, statistics);
        let received = on_fpdu(self.operating, self.qp, counted, acknowledged, &octets, &fpdu.located);
        self.step(received)
    }
}
