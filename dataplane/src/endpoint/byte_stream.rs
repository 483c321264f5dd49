//! A connection whose octets are an application's byte stream (`crate::byte_stream`), with the TCP RDMA
//! option or without.

use crate::byte_stream::ByteRun;
use crate::device::Frame;
use crate::tcp::{self, Pools, Successors};
use crate::time::Instant;
use crate::wire::segment::Segment;

use super::burst::Burst;
use super::chunk::Chunk;
use super::context::Context;
use super::send_stream::SendStream;
use super::stream_halves::StreamHalves;

/// A connection that carries a byte stream.
pub(super) struct ByteStream<'e, F> {
    pub(super) now: Instant,
    pub(super) tcp: &'e mut tcp::Connection,
    pub(super) halves: &'e mut StreamHalves,
    /// Streaming octets that go before the first octet of the application.
    pub(super) stream: &'e SendStream,
    /// The context that the endpoints of a core share.
    pub(super) context: &'e mut Context<F>,
}

impl<F: Frame> ByteStream<'_, F> {
    /// Returns true if the octets of a segment can be consumed in its frame, if they are next: the
    /// application has room for them, and no octets wait.
    #[inline]
    pub(super) fn accepts_in_place(&mut self, segment: &Segment) -> bool {
        self.halves.inbound.has_room(segment.payload_octets) && self.tcp.received().is_drained()
    }

    /// Hands the octets of `segment`, which TCP [expected](tcp::Connection::accept_expected), from its
    /// `frame` to the application, which has room for them, and those of the segments that follow it in
    /// `burst`. Returns the frame of one that is not next in order, or for which there is no room; `segment`
    /// is that one then.
    // Requirements: TRO-3.1.2-01, TRO-3.1.3-01, TRO-6.1-01, TRO-6.1-02
    #[inline]
    pub(super) fn consume_in_place(
        &mut self,
        segment: &mut Segment,
        mut frame: F,
        burst: &mut impl Burst<F>,
    ) -> Option<F> {
        let Self { now, tcp, halves, context, .. } = self;
        let pools = &mut context.pools;
        let annotated = tcp.rdma_option().is_agreed();
        let (mut octets, mut segments, mut passed, mut successors) = (0, 0, 0, None);
        let unexpected = loop {
            let first = frame.piece(0).unwrap_or_default();
            let payload = first.get(segment.payload_offset..segment.end()).unwrap_or_default();
            let option = if annotated { segment.rdma_octets(first) } else { &[] };
            halves.inbound.receive(payload, option);
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
                successors = Successors::after(tcp, segment, pools);
            }
            let Some(successors) = &mut successors else { break None };
            let Some(next) = burst.next_after(segment) else { break None };
            if !successors.expect(segment) || !halves.inbound.has_room(segment.payload_octets) {
                break Some(next);
            }
            if !successors.add(segment) {
                successors.count_with_marks(tcp, *now, segment, pools);
            }
            frame = next;
        };
        if let Some(successors) = &successors {
            successors.count(tcp);
        }
        tcp.pass(passed);
        halves.inbound.tell();
        halves.renew_window(tcp, pools);
        let statistics = &mut context.statistics;
        statistics.bytes_copied_rx += octets as u64;
        statistics.segments_predicted += segments;
        unexpected
    }

    /// Hands octets that are in order to the application, as many as it has room for.
    pub(super) fn hand_over(&mut self) {
        let Self { tcp, halves, context, .. } = self;
        loop {
            let (queue, held) = (tcp.received(), &context.pools.held);
            let available = queue.available();
            let copied = halves.inbound.octets_copied;
            // The ring has room for what the frames were not promised for.
            let may_wait = queue.frames() <= halves.promise.frames(held);
            let octets = halves.inbound.hand_over(available, may_wait, |skip, octets, write| {
                queue.for_each_slice(held, skip, octets, write);
            });
            context.statistics.bytes_copied_rx += halves.inbound.octets_copied - copied;
            tcp.consume_promised(&mut context.pools, octets);
            halves.renew_window(tcp, &mut context.pools);
            if !halves.inbound.record_stalled(octets < available) {
                return;
            }
        }
    }

    /// Moves octets to TCP in runs of one segment each: those that can be sent at once, and one more, so
    /// that TCP has data waiting. Returns true after the last octet of the application: the connection then
    /// closes.
    #[inline]
    pub(super) fn queue_octets(&mut self) -> bool {
        let Self { tcp, halves: StreamHalves { outbound, .. }, stream, context, .. } = self;
        let pools = &mut context.pools;
        outbound.accept_pieces();
        if stream.unqueued_octets() > 0 {
            return false;
        }
        let segment_octets = tcp.emss_octets() as u32;
        while tcp.may_send()
            && let Some(next) = outbound.next_run(segment_octets)
        {
            if !queue_run(tcp, pools, next.run) {
                return false;
            }
            outbound.on_queued(&next);
            let alike = outbound.runs_alike(&next.run, segment_octets);
            if alike > 0 {
                let fit = (tcp.send_room() / next.run.octets as usize).min(alike as usize);
                let queued = tcp.queue_more(pools, fit as u32);
                outbound.on_queued_alike(&next.run, queued);
                if queued < alike {
                    return false;
                }
            }
            outbound.accept_pieces();
        }
        outbound.is_finished()
    }
}

/// Queues a run, unless TCP has data waiting and no room for it. Returns false if it could not.
fn queue_run<F>(tcp: &mut tcp::Connection, pools: &mut Pools<Chunk, F>, run: ByteRun) -> bool {
    if tcp.has_unsent() && tcp.send_room() < run.octets as usize {
        return false;
    }
    tcp.queue(pools, Chunk::Bytes(run), 0, run.octets)
}
