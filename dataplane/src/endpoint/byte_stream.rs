//! A connection whose octets are an application's byte stream (`crate::byte_stream`), with the TCP RDMA
//! option or without.

use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::byte_stream::{Arrived, ByteRun, SharedByteStream, TransferCounters};
use crate::device::Frame;
use crate::limits;
use crate::tcp::receive_queue::HeldPool;
use crate::tcp::{self, CloseReason, Disposition, Pools, Unusual};
use crate::wire::segment::Segment;
use crate::wire::tcp::{Header, SeqNumber, SeqRange};
use crate::wire::tcp_rdma::{RdmaOption, Transfer};

use super::chunk::Chunk;
use super::connection::{Connection, Mode};
use super::consume::Burst;
use super::stream_halves::StreamHalves;
use super::{Endpoint, Outcome};

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

impl<F: Frame> Endpoint<'_, F> {
    /// Gives the octets of the connection, which is in streaming mode, to the application of `shared`.
    pub(crate) fn attach(&mut self, shared: Arc<SharedByteStream>) -> Outcome {
        let connection = &mut *self.connection;
        if !matches!(connection.mode, Mode::Streaming) || connection.close_notified {
            shared.set_end(CloseReason::Aborted);
            return Outcome::NONE;
        }
        let annotates = connection.tcp.rdma_option_negotiated();
        shared.set_rdma_option(annotates);
        let start = connection.send_end();
        connection.mode = Mode::Bytes(Box::new(StreamHalves::new(shared, start, annotates)));
        connection.tcp.leave_startup(&mut self.context.pools);
        if let Mode::Bytes(stream) = &mut connection.mode {
            stream.renew_window(&mut connection.tcp, &mut self.context.pools);
        }
        connection.unconsumed_octets = 0;
        let finish_notified = connection.finish_notified;
        self.leave_backlog();
        let outcome = self.on_byte_stream_bell();
        if finish_notified && let Mode::Bytes(stream) = &self.connection.mode {
            // Control had its FIN before; what control has not consumed comes before it.
            stream.inbound.finish();
        }
        outcome
    }

    /// Handles the bell of the byte stream: there are octets to be sent, commands, or room.
    pub(crate) fn on_byte_stream_bell(&mut self) -> Outcome {
        let Connection { tcp, mode: Mode::Bytes(stream), .. } = &mut *self.connection else {
            return Outcome::NONE;
        };
        stream.shared.clear_bell();
        if stream.inbound.receive_commands() {
            stream.renew_window(tcp, &mut self.context.pools);
        }
        if self.connection.has_pending_octets() || self.connection.has_unnotified_finish() {
            self.resume_receive();
        }
        Outcome::SCHEDULE
    }

    /// Handles that the application has left. What it has not read is lost: the peer learns that by a RST
    /// (RFC 9293 §3.6.1, RFC 2525 §2.17). Else what it has written is sent, and the connection closes, while
    /// something moves within each `within_ns`, and by [`limits::ORPHAN_NS`].
    pub(crate) fn abandon(&mut self, within_ns: u64) -> Outcome {
        let connection = &mut *self.connection;
        if connection.close_notified || connection.is_orphan() {
            return Outcome::NONE;
        }
        let Mode::Bytes(stream) = &mut connection.mode else { return self.close(Some(within_ns)) };
        let all_read = !stream.inbound.has_unread() && connection.tcp.received().is_drained();
        if !all_read || !self.context.orphans.enter(connection.key.remote) {
            return self.abort();
        }
        stream.orphan_until = self.now + limits::ORPHAN_NS;
        connection.tcp.refuse_text();
        self.close(Some(within_ns.min(limits::ORPHAN_NS)))
    }

    /// Accepts what a segment says about its octets, now that TCP has it, with this result: places those of a
    /// transfer, and records where a message begins.
    // Requirements: TRO-3.1.2-01, TRO-3.1.3-01, TRO-6.1-01, TRO-6.1-02
    pub(super) fn accept_annotation(&mut self, segment: &AnnotatedSegment, result: &Disposition) {
        let queue = self.connection.tcp.received();
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
        let Connection { tcp, mode: Mode::Bytes(stream), .. } = &mut *self.connection else { return };
        let (queue, held) = (tcp.received(), &self.context.pools.held);
        let (unread, next) = (queue.unread(), stream.inbound.position());
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
            stream.inbound.record_message_start(&arrived);
        }
        let Some(option) = &segment.option else { return };
        let copied = &mut self.context.statistics.bytes_copied_rx;
        stream.inbound.place(option, &arrived, |at, octets, write| {
            *copied += octets as u64;
            queue.for_each_kept_slice(held, unread + (at - next) as u32, octets, write);
        });
    }

    /// Hands out the messages that a segment beyond a gap has completed, if the application accepts them
    /// before their turn.
    // Requirements: TRO-3.1.6-03
    #[cold]
    pub(super) fn hand_out_early(&mut self, seq: SeqNumber, octets: usize) {
        let Connection { tcp, mode: Mode::Bytes(stream), .. } = &mut *self.connection else { return };
        if !stream.inbound.wants_early_messages() {
            return;
        }
        let (queue, held) = (tcp.received(), &self.context.pools.held);
        let (unread, position) = (queue.unread(), stream.inbound.position());
        let at = |seq: SeqNumber| position.saturating_add_signed(i64::from(seq - unread));
        let sequence = |at: u64| unread + (at - position) as u32;
        let is_entire = |from: u64, end: u64| {
            from > at(queue.nxt()) && queue.new_run(held, sequence(from), sequence(end)).is_none()
        };
        let segment = at(seq)..at(seq + octets as u32);
        let copied = stream.inbound.hand_out_early(segment, is_entire, |at, octets, write| {
            queue.for_each_kept_slice(held, sequence(at), octets, write);
        });
        self.context.statistics.bytes_copied_rx += copied;
    }

    /// Hands octets that are in order to the application, as many as it has room for.
    pub(super) fn hand_over_bytes(&mut self) {
        if self.connection.close_notified {
            return self.discard_received();
        }
        let Connection { tcp, mode: Mode::Bytes(stream), .. } = &mut *self.connection else { return };
        loop {
            let (queue, held) = (tcp.received(), &self.context.pools.held);
            let available = queue.available();
            let copied = stream.inbound.octets_copied;
            // The ring has room for what the frames were not promised for.
            let may_wait = queue.frames() <= stream.promise.frames(held);
            let octets = stream.inbound.hand_over(available, may_wait, |skip, octets, write| {
                queue.for_each_slice(held, skip, octets, write);
            });
            self.context.statistics.bytes_copied_rx += stream.inbound.octets_copied - copied;
            tcp.consume_promised(&mut self.context.pools, octets);
            stream.renew_window(tcp, &mut self.context.pools);
            if !stream.inbound.record_stalled(octets < available) {
                return;
            }
        }
    }

    /// Frees what the peer has acknowledged.
    pub(super) fn release_bytes(&mut self) {
        let Connection { tcp, mode: Mode::Bytes(stream), .. } = &mut *self.connection else { return };
        stream.outbound.on_acknowledged(tcp.acknowledged());
        stream.outbound.release(tcp.oldest_kept(&self.context.pools));
    }

    /// Hands the octets of `segment`, which TCP [expected](tcp::Connection::accept_expected), from its
    /// `frame` to the application, which has room for them, and those of the segments that follow it in
    /// `burst`. Returns the frame of one that is not next in order, or for which there is no room; `segment`
    /// is that one then.
    // Requirements: TRO-3.1.2-01, TRO-3.1.3-01, TRO-6.1-01, TRO-6.1-02
    #[inline(never)]
    pub(super) fn consume_bytes(
        &mut self,
        segment: &mut Segment,
        mut frame: F,
        burst: &mut impl Burst<F>,
    ) -> Option<F> {
        let Connection { tcp, mode: Mode::Bytes(stream), .. } = &mut *self.connection else {
            debug_assert!(false, "a connection that carries bytes has halves of a stream");
            return Some(frame);
        };
        let pools = &mut self.context.pools;
        let annotated = tcp.rdma_option_negotiated();
        let (mut octets, mut segments, mut passed, mut successors) = (0, 0, 0, None);
        let unexpected = loop {
            let first = frame.piece(0).unwrap_or_default();
            let payload = first.get(segment.payload_offset..segment.end()).unwrap_or_default();
            let option = if annotated { segment.rdma_octets(first) } else { &[] };
            stream.inbound.receive(payload, option);
            passed += payload.len();
            octets += payload.len();
            segments += 1;
            burst.recycle(frame);
            if burst.is_empty() {
                break None;
            }
            if successors.is_none() {
                // TCP looks at its queue: what was consumed is not in it.
                tcp.pass(core::mem::take(&mut passed));
                successors = tcp.successors(segment, pools);
            }
            let Some(successors) = &mut successors else { break None };
            let Some(next) = burst.next_after(segment) else { break None };
            if !successors.expect(segment) || !stream.inbound.has_room(segment.payload_octets) {
                break Some(next);
            }
            if !successors.add(segment) {
                tcp.accept_marks(self.now, successors, segment, pools);
            }
            frame = next;
        };
        if let Some(successors) = &successors {
            tcp.accept_successors(successors);
        }
        tcp.pass(passed);
        stream.inbound.tell();
        stream.renew_window(tcp, pools);
        let statistics = &mut self.context.statistics;
        statistics.bytes_copied_rx += octets as u64;
        statistics.segments_predicted += segments;
        unexpected
    }
}

impl Connection {
    /// Returns what a segment says about its octets, if that counts: the ends have agreed on the option, an
    /// application reads the stream, and the segment is an ordinary one.
    // Requirements: A-23, TRO-3.2-01
    pub(super) fn annotation<F>(
        &self,
        held: &HeldPool<F>,
        header: &Header,
        payload_octets: usize,
    ) -> Option<AnnotatedSegment> {
        if !self.carries_bytes() || payload_octets == 0 {
            return None;
        }
        let (option, message_aligned) = match self.tcp.received_rdma_option(header)? {
            RdmaOption::Transfer(option) => (Some(option), option.message_aligned),
            RdmaOption::Aligned { message_aligned, .. } => (None, message_aligned),
            RdmaOption::Permitted => return None,
        };
        let queue = self.tcp.received();
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

    /// Returns what became of the segments with the TCP RDMA option that it has received.
    pub fn transfer_counters(&self) -> TransferCounters {
        match &self.mode {
            Mode::Bytes(stream) => *stream.inbound.counters(),
            _ => TransferCounters::default(),
        }
    }

    /// Returns true if its application has written octets that TCP does not have yet.
    pub(super) fn has_unqueued_bytes(&self) -> bool {
        matches!(&self.mode, Mode::Bytes(stream) if stream.outbound.unqueued_octets() > 0)
    }
}

/// Moves octets of a byte stream to TCP in runs of one segment each: those that can be sent at once, and one
/// more, so that TCP has data waiting. After the last the connection closes.
pub(super) fn queue_bytes<F>(connection: &mut Connection, pools: &mut Pools<Chunk, F>) {
    let Connection { tcp, mode: Mode::Bytes(stream), stream: before, closing, .. } = connection else {
        return;
    };
    stream.outbound.accept_pieces();
    if before.unqueued_octets() > 0 {
        return;
    }
    let segment_octets = tcp.emss_octets() as u32;
    while tcp.may_send()
        && let Some(next) = stream.outbound.next_run(segment_octets)
    {
        if !queue_run(tcp, pools, next.run) {
            return;
        }
        stream.outbound.on_queued(&next);
        let alike = stream.outbound.runs_alike(&next.run, segment_octets);
        if alike > 0 {
            let fit = (tcp.send_room() / next.run.octets as usize).min(alike as usize);
            let queued = tcp.queue_more(pools, fit as u32);
            stream.outbound.on_queued_alike(&next.run, queued);
            if queued < alike {
                return;
            }
        }
        stream.outbound.accept_pieces();
    }
    if stream.outbound.is_finished() {
        *closing = true;
        tcp.unusual |= Unusual::CLOSING;
    }
}

fn queue_run<F>(tcp: &mut tcp::Connection, pools: &mut Pools<Chunk, F>, run: ByteRun) -> bool {
    if tcp.has_unsent() && tcp.send_room() < run.octets as usize {
        return false;
    }
    tcp.queue(pools, Chunk::Bytes(run), 0, run.octets)
}
