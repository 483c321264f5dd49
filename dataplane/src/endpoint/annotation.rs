//! What the segments of a byte stream say about their octets, by the TCP RDMA option: octets of a transfer
//! are placed, and messages begin.

use arrayvec::ArrayVec;

use crate::byte_stream::Arrived;
use crate::device::Frame;
use crate::limits;
use crate::tcp::Disposition;
use crate::wire::tcp::{Header, SeqNumber, SeqRange};
use crate::wire::tcp_rdma::{RdmaOption, Transfer};

use super::byte_stream::ByteStream;
use super::stream_halves::StreamHalves;

/// A segment that describes octets of a transfer, or begins a message.
pub(super) struct AnnotatedSegment {
    option: Option<Transfer>,
    message_aligned: bool,
    seq: SeqNumber,
    payload_octets: usize,
    /// RCV.NXT before it.
    expected: SeqNumber,
    /// The runs of its octets that have not come before, the first ones.
    new_runs: NewRuns,
}

/// Runs of octets.
type NewRuns = ArrayVec<SeqRange, { limits::NEW_RUNS_PER_SEGMENT }>;

impl<F: Frame> ByteStream<'_, F> {
    /// Returns what a segment says about its octets, if that counts: the ends have agreed on the option, an
    /// application reads the stream, and the segment is an ordinary one.
    // Requirements: A-23, TRO-3.2-01
    pub(super) fn annotation(&self, header: &Header, payload_octets: usize) -> Option<AnnotatedSegment> {
        if payload_octets == 0 {
            return None;
        }
        let (option, message_aligned) = match self.tcp.rdma_option().received(header)? {
            RdmaOption::Transfer(option) => (Some(option), option.message_aligned),
            RdmaOption::Aligned { message_aligned, .. } => (None, message_aligned),
            RdmaOption::Permitted => return None,
        };
        let (queue, held) = (self.tcp.received(), &self.context.pools.held);
        let (mut new_runs, mut from, end) = (NewRuns::new(), header.seq, header.seq + payload_octets as u32);
        while option.is_some()
            && !new_runs.is_full()
            && let Some((first, to)) = queue.new_run(held, from, end)
        {
            new_runs.push(SeqRange { from: first, to });
            from = to;
        }
        let expected = queue.nxt();
        Some(AnnotatedSegment {
            option,
            message_aligned,
            seq: header.seq,
            payload_octets,
            expected,
            new_runs,
        })
    }

    /// Accepts what a segment says about its octets, now that TCP has it, with this result: places those of a
    /// transfer, and records where a message begins.
    // Requirements: TRO-3.1.2-01, TRO-3.1.3-01, TRO-6.1-01, TRO-6.1-02
    pub(super) fn accept_annotation(&mut self, segment: &AnnotatedSegment, result: &Disposition) {
        let queue = self.tcp.received();
        let end = segment.seq + segment.payload_octets as u32;
        let has_data = segment.option.as_ref().is_some_and(|option| option.data_octets > 0);
        match result.beyond_gap {
            // All that is new of it is kept; the first to come have the place in the buffer.
            Some(_) if result.refusal.is_none() && has_data => {
                let kept_to = queue.end();
                for run in segment.new_runs.iter().filter(|run| run.from < kept_to) {
                    let kept = SeqRange { to: run.to.earlier(kept_to), ..*run };
                    self.accept_run(segment, kept, false);
                }
            }
            Some(kept) => self.accept_run(segment, kept, false),
            None if queue.nxt() != segment.expected => {
                let (from, to) = (segment.seq.later(segment.expected), end.earlier(queue.nxt()));
                let kept = SeqRange { from, to };
                self.accept_run(segment, kept, true);
            }
            // Nothing in it is new, or it was refused.
            None => {}
        }
    }

    /// Accepts what a segment says about `kept`, a run of octets that TCP keeps of it.
    fn accept_run(&mut self, segment: &AnnotatedSegment, kept: SeqRange, in_order: bool) {
        let Self { tcp, halves: StreamHalves { inbound, .. }, context, .. } = self;
        let (queue, held) = (tcp.received(), &context.pools.held);
        let (unread, next) = (queue.unread(), inbound.position());
        let position = |seq: SeqNumber| next.saturating_add_signed(i64::from(seq - unread));
        if segment.seq - unread < 0 && next < u64::from((unread - segment.seq).unsigned_abs()) {
            // It begins before the stream did.
            return;
        }
        let arrived = Arrived {
            payload: position(segment.seq),
            payload_octets: segment.payload_octets,
            kept: (position(kept.from), position(kept.to)),
            in_order,
        };
        if segment.message_aligned {
            inbound.record_message_start(&arrived);
        }
        let Some(option) = &segment.option else { return };
        let copied = &mut context.statistics.bytes_copied_rx;
        inbound.place(option, &arrived, |at, octets, write| {
            *copied += octets as u64;
            queue.for_each_kept_slice(held, unread + (at - next) as u32, octets, write);
        });
    }

    /// Hands out the messages that a segment beyond a gap has completed, if the application accepts them
    /// before their turn.
    // Requirements: TRO-3.1.6-03
    #[cold]
    pub(super) fn hand_out_early(&mut self, seq: SeqNumber, octets: usize) {
        let Self { tcp, halves: StreamHalves { inbound, .. }, context, .. } = self;
        if !inbound.wants_early_messages() {
            return;
        }
        let (queue, held) = (tcp.received(), &context.pools.held);
        let (unread, position) = (queue.unread(), inbound.position());
        let at = |seq: SeqNumber| position.saturating_add_signed(i64::from(seq - unread));
        let sequence = |at: u64| unread + (at - position) as u32;
        let is_entire = |from: u64, end: u64| {
            from > at(queue.nxt()) && queue.new_run(held, sequence(from), sequence(end)).is_none()
        };
        let segment = at(seq)..at(seq + octets as u32);
        let copied = inbound.hand_out_early(segment, is_entire, |at, octets, write| {
            queue.for_each_kept_slice(held, sequence(at), octets, write);
        });
        context.statistics.bytes_copied_rx += copied;
    }
}
