//! Octets that are consumed where they lie, in the frame of the segment that brought them: nearly all of
//! them.
//!
//! MPA finds the FPDUs in the frame, and their payload is copied once, to its place. What is left of the
//! frame, the beginning of an FPDU or one that is not valid, goes to the receive queue ([`super::receive`]).

use crate::device::Frame;
use crate::memory::StagTable;
use crate::mpa::receiver::FpduReceiver;
use crate::mpa::whole::{Ulpdu, Whole};
use crate::wire::segment::Segment;

use super::Endpoint;
use super::connection::Mode;
use super::context::Context;
use super::queue_pair::QueuePair;
use super::rdmap_stream::RdmapStream;
use super::receive::{Step, on_fpdu};

impl<F: Frame> Endpoint<'_, F> {
    /// Returns true if the octets of a segment can be consumed in its frame, if they are next: its connection
    /// takes FPDUs at once, or its byte stream has room for them.
    #[inline]
    pub(super) fn takes_in_place(&self, segment: &Segment, frame: &F) -> bool {
        let takes = match &self.connection.mode {
            Mode::FullOperation(operating) => {
                operating.receives
                    && !operating.failed
                    && !operating.awaits_receive
                    && self.queue_pair.is_some()
            }
            Mode::Bytes(stream) => {
                !self.connection.close_notified && stream.inbound.takes(segment.payload_octets)
            }
            Mode::Streaming | Mode::Lingering { .. } => false,
        };
        takes && frame.piece(0).is_some_and(|first| first.len() >= segment.end())
    }

    /// Consumes the FPDUs of `segment`, which TCP [expected](crate::tcp::Connection::take_expected), in its
    /// `frame`, and those of the segments that follow it in `burst`. Returns the frame of one that is not
    /// next in order; `segment` is that one then.
    #[inline(never)]
    pub(super) fn consume_fpdus(
        &mut self,
        segment: &mut Segment,
        mut frame: F,
        burst: &mut impl Burst<F>,
    ) -> Option<F> {
        let Some(mut stream) = self.rdmap() else {
            debug_assert!(false, "a connection that takes FPDUs has a queue pair");
            self.connection.tcp.keep(&mut self.context.pools, segment.payload_offset, frame);
            return None;
        };
        let mut run = Run::default();
        let mut leads = false;
        let left = loop {
            let octets = frame.piece(0).and_then(|first| first.get(segment.payload_offset..segment.end()));
            let (consumed, last) = stream.consume_fpdus(octets.unwrap_or_default(), &mut run);
            stream.tcp.pass(consumed);
            if consumed != segment.payload_octets || !matches!(last, Step::Next) {
                break Left::Rest { frame, consumed, last };
            }
            run.segments += 1;
            burst.recycle(frame);
            leads = leads || !burst.is_empty() && stream.tcp.leads(segment, &stream.context.pools);
            if !leads {
                break Left::Nothing;
            }
            let Some(next) = burst.next_after(segment) else { break Left::Nothing };
            if !stream.tcp.expects_following(segment) {
                break Left::Unexpected(next);
            }
            stream.tcp.take_following(segment);
            frame = next;
        };
        stream.note_run(&run);
        stream.tcp.owe_window();
        match left {
            Left::Nothing => None,
            Left::Unexpected(frame) => Some(frame),
            Left::Rest { frame, consumed, last } => {
                let rest = (consumed < segment.payload_octets).then_some(segment.payload_offset + consumed);
                self.keep_rest(frame, rest, &last);
                None
            }
        }
    }

    /// Keeps the rest of a segment's payload, which begins at `rest` of its frame, if there is one, and does
    /// what follows from the `last` FPDU before it.
    #[cold]
    fn keep_rest(&mut self, frame: F, rest: Option<usize>, last: &Step) {
        if let Some(offset) = rest {
            self.connection.tcp.keep(&mut self.context.pools, offset, frame);
        }
        match last {
            Step::Next | Step::Wait => self.receive_in_order(),
            ended => self.end_receive(ended),
        }
        self.connection.review();
    }
}

/// The frames of a burst after the one that is handled.
pub(crate) trait Burst<F> {
    /// Returns true if there are no more.
    fn is_empty(&self) -> bool;

    /// Takes the next frame if its segment follows `segment`, which lies in the frame that was recycled last,
    /// and makes `segment` that one.
    fn next_after(&mut self, segment: &mut Segment) -> Option<F>;

    /// Takes a frame that is of no more use.
    fn recycle(&mut self, frame: F);
}

/// What is left of a burst when the consumption of its segments ends.
enum Left<F> {
    Nothing,
    /// A segment that TCP did not expect.
    Unexpected(F),
    /// What follows `consumed` octets of a segment, after the `last` FPDU.
    Rest {
        frame: F,
        consumed: usize,
        last: Step,
    },
}

/// Places the FPDUs that `octets` begin with, as long as each is the segment of a Write, one in the middle of
/// a message, or a Send of one segment, and counts them in `run`. Returns how many octets they have. The FPDU
/// after them, with which nothing has been done, is in `next` if it is whole and valid for MPA.
#[inline(never)]
fn place_run<'o>(
    fpdus: &mut FpduReceiver,
    qp: &mut QueuePair,
    stags: &StagTable,
    octets: &'o [u8],
    run: &mut Run,
    next: &mut Option<Whole<'o>>,
) -> usize {
    let mut consumed = 0;
    while let Some(rest) = octets.get(consumed..)
        && let Some(fpdu) = fpdus.next_in(rest)
    {
        let written = match fpdu.ulpdu {
            Ulpdu::InOnePiece(ulpdu) => qp.receiver.on_write(ulpdu, &qp.shared, stags),
            Ulpdu::Cut(_) => None,
        };
        let placed = match written {
            Some(payload_octets) => Some(payload_octets),
            // A copy: the FPDU of a Write then need not be in memory.
            None => place_message(qp, stags, &{ fpdu }),
        };
        let Some(payload_octets) = placed else {
            *next = Some(fpdu);
            break;
        };
        // Where the next FPDU begins says where its Markers stand.
        fpdus.pass(fpdu.wire_len);
        consumed += fpdu.wire_len;
        run.fpdus += 1;
        run.wire_octets += fpdu.wire_len;
        run.payload_octets += payload_octets;
    }
    consumed
}

/// Places an FPDU if it is the segment of a Write that Markers cut, one in the middle of a message, or a Send
/// of one segment. Returns the octets of its payload.
#[inline(never)]
fn place_message(qp: &mut QueuePair, stags: &StagTable, fpdu: &Whole<'_>) -> Option<usize> {
    let (ulpdu, outbound) = (&fpdu.ulpdu, &mut qp.reads.outbound);
    let cut = match ulpdu {
        Ulpdu::Cut(ulpdu) => qp.receiver.on_cut_write(ulpdu, &qp.shared, stags),
        Ulpdu::InOnePiece(_) => None,
    };
    cut.or_else(|| qp.receiver.on_middle(ulpdu, &qp.shared, stags, outbound))
        .or_else(|| qp.receiver.on_whole_send(ulpdu, &qp.shared, stags))
}

/// Segments whose FPDUs were placed in a run, and are not counted yet.
#[derive(Default)]
struct Run {
    segments: u64,
    fpdus: u64,
    wire_octets: usize,
    payload_octets: usize,
}

impl<F: Frame> RdmapStream<'_, F> {
    /// Takes the FPDUs that `octets`, the next in order, begin with, as long as they are whole and valid;
    /// those that are placed in `run` are counted there. Returns how many octets they have, and the result of
    /// the last.
    #[inline]
    fn consume_fpdus(&mut self, octets: &[u8], run: &mut Run) -> (usize, Step) {
        let mut consumed = 0;
        loop {
            let rest = octets.get(consumed..).unwrap_or_default();
            let (qp, stags) = (&mut *self.qp, &self.context.stags);
            let mut next = None;
            let placed = place_run(&mut self.operating.fpdus, qp, stags, rest, run, &mut next);
            consumed += placed;
            let Some(fpdu) = next else { return (consumed, Step::Next) };
            let rest = rest.get(placed..).unwrap_or_default();
            self.note_run(&core::mem::take(run));
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
    }

    /// Counts the segments of a run, as [`on_fpdu`] counts any FPDU.
    #[inline]
    fn note_run(&mut self, run: &Run) {
        let statistics = &mut self.context.statistics;
        statistics.segments_predicted += run.segments;
        if run.fpdus == 0 {
            return;
        }
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
