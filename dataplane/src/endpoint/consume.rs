//! Octets that are consumed where they lie, in the frame of the segment that brought them: nearly all of
//! them.
//!
//! MPA finds the FPDUs in the frame, and their payload is copied once, to its place. What is left of the
//! frame, the beginning of an FPDU or one that is not valid, goes to the receive queue ([`super::receive`]).

use crate::device::Frame;
use crate::mpa::contiguous::{ContiguousFpdu, InFrame, Marked, Unmarked};
use crate::mpa::receiver::Ulpdu;
use crate::qp::receiver::{Fault, Placed, ReceiveContext, Received, Receiver};
use crate::tcp::Refusal;
use crate::wire::segment::Segment;

use super::Endpoint;
use super::burst::Burst;
use super::connection::Mode;
use super::context::Context;
use super::queue_pair::QueuePair;
use super::rdmap_stream::RdmapStream;
use super::receive::Step;
use super::receive_wait::ReceiveWait;

impl<F: Frame> Endpoint<'_, F> {
    /// Returns true if the octets of a segment, without a [rare condition](crate::tcp::Unusual::RECEIVE), can
    /// be consumed in its frame, if they are next: its connection carries FPDUs, or its byte stream has room
    /// for them and waits for no octets before others.
    #[inline]
    pub(super) fn accepts_in_place(&mut self, segment: &Segment) -> bool {
        if let Mode::FullOperation(_) = self.connection.mode { true } else { self.accepts_bytes(segment) }
    }

    #[inline(never)]
    fn accepts_bytes(&mut self, segment: &Segment) -> bool {
        self.byte_stream().is_some_and(|mut bytes| bytes.accepts_in_place(segment))
    }

    /// Consumes the FPDUs of `segment`, which TCP [expected](crate::tcp::Connection::accept_expected), in its
    /// `frame`, and those of the segments that follow it in `burst`, and has TCP keep those of them that lie
    /// beyond a gap. What waited for one of them is consumed after it. Returns why TCP refused one, or the
    /// frame of one that is to be handled in another way; `segment` is that one then.
    #[inline(never)]
    pub(super) fn consume_fpdus(
        &mut self,
        segment: &mut Segment,
        frame: F,
        burst: &mut impl Burst<F>,
    ) -> (Option<Refusal>, Option<F>) {
        let Some(mut stream) = self.rdmap() else {
            debug_assert!(false, "a connection that takes FPDUs has a queue pair");
            self.connection.tcp.keep(&mut self.context.pools, segment.payload_offset, frame);
            return (None, None);
        };
        let mut counts = FpduCounts::default();
        let mut rest = Rest { frame, consumed: 0 };
        let (rest, last) = loop {
            let left = if stream.operating.fpdus.has_markers() {
                stream.place_segments::<Marked>(segment, rest, burst, &mut counts)
            } else {
                stream.place_segments::<Unmarked>(segment, rest, burst, &mut counts)
            };
            stream.account(&core::mem::take(&mut counts));
            match left {
                Left::Nothing(refusal) => {
                    stream.tcp.owe_window();
                    if !stream.tcp.received().is_drained() {
                        self.close_gap();
                    }
                    return (refusal, None);
                }
                Left::Unexpected(frame) => {
                    stream.tcp.owe_window();
                    return (None, Some(frame));
                }
                Left::Rest(rest) => break (rest, Step::Next),
                Left::Rare(next, received) => match stream.step(received) {
                    Step::Next => rest = next,
                    last => break (next, last),
                },
            }
        };
        stream.tcp.pass(rest.consumed);
        stream.tcp.owe_window();
        let offset = segment.payload_offset + rest.consumed;
        self.keep_rest(rest.frame, (offset < segment.end()).then_some(offset), &last);
        (None, None)
    }

    /// Handles the octets that waited for a segment that was consumed in its frame, if there are any.
    #[inline(never)]
    fn close_gap(&mut self) {
        self.connection.tcp.close_gap(&self.context.pools);
        if self.connection.tcp.received().available() > 0 {
            self.receive_in_order();
            self.connection.review();
        }
    }

    /// Keeps the rest of a segment's payload, which begins at `rest` of its frame, if there is one, and does
    /// what follows from the `last` FPDU before it.
    #[cold]
    fn keep_rest(&mut self, frame: F, rest: Option<usize>, last: &Step) {
        if let Some(offset) = rest {
            self.connection.tcp.keep(&mut self.context.pools, offset, frame);
        }
        self.connection.tcp.close_gap(&self.context.pools);
        match last {
            Step::Next | Step::Wait => self.receive_in_order(),
            ended => self.end_receive(ended),
        }
        self.connection.review();
    }
}

/// A segment in its frame, of whose payload the first `consumed` octets are consumed.
struct Rest<F> {
    frame: F,
    consumed: usize,
}

/// What is left of a burst when the consumption of its segments ends.
enum Left<F> {
    /// Nothing. TCP has refused the last segment if there is a reason.
    Nothing(Option<Refusal>),
    /// A segment that TCP did not expect.
    Unexpected(F),
    /// Octets that are not complete, valid FPDUs, or a message that waits for a receive.
    Rest(Rest<F>),
    /// What follows an FPDU that was not only a payload, and its result.
    Rare(Rest<F>, Result<Received, Fault>),
}

/// FPDUs that were placed, and segments that were consumed, which are not counted yet.
#[derive(Default)]
pub(super) struct FpduCounts {
    pub(super) segments: u64,
    pub(super) fpdus: u64,
    pub(super) wire_octets: usize,
    pub(super) payload_octets: usize,
}

impl<F: Frame> RdmapStream<'_, F> {
    /// Places the FPDUs in what is left of `segment`, and in the segments that follow it in `burst`, up to
    /// one that is not only a payload; `counts` counts them.
    #[inline]
    fn place_segments<I: InFrame>(
        &mut self,
        segment: &mut Segment,
        rest: Rest<F>,
        burst: &mut impl Burst<F>,
        counts: &mut FpduCounts,
    ) -> Left<F> {
        let Self { now, tcp, operating, .. } = self;
        let QueuePair { shared, receiver, sender, reads, receive_wait, .. } = &mut *self.qp;
        let Context { stags, pools, .. } = &mut *self.context;
        let acknowledged = tcp.acknowledged();
        let context = &mut ReceiveContext { shared, stags, reads, acknowledged };
        let Rest { mut frame, mut consumed } = rest;
        let mut successors = None;
        let left = 'segments: loop {
            let octets = frame.piece(0).and_then(|first| first.get(segment.payload_offset..segment.end()));
            let octets = octets.unwrap_or_default();
            while let Some(rest) = octets.get(consumed..)
                && let Some(ContiguousFpdu { wire_len, ulpdu }) = I::next(&operating.fpdus, rest)
            {
                let placed = receiver.place(context, &ulpdu);
                let rare = match placed {
                    Some(_) => None,
                    None => match handle_rare(receiver, context, receive_wait, &ulpdu) {
                        // It waits in the receive queue, where it is placed again.
                        None => break 'segments Left::Rest(Rest { frame, consumed }),
                        rare => rare,
                    },
                };
                // Where the next FPDU begins says where its Markers stand.
                operating.fpdus.pass(wire_len);
                consumed += wire_len;
                counts.fpdus += 1;
                counts.wire_octets += wire_len;
                if let Some(received) = rare {
                    break 'segments Left::Rare(Rest { frame, consumed }, received);
                }
                if let Some(Placed { octets, answers_read }) = placed {
                    counts.payload_octets += octets;
                    if answers_read {
                        sender.complete(shared, context.stags, context.reads, context.acknowledged);
                    }
                }
            }
            if consumed != segment.payload_octets {
                break Left::Rest(Rest { frame, consumed });
            }
            counts.segments += 1;
            burst.recycle(frame);
            if !tcp.received().is_drained() {
                tcp.accept_consumed(successors.take(), 0);
                if let Some((held, payload)) = tcp.accept_held(pools) {
                    (segment.payload_offset, segment.payload_octets) = (payload.start, payload.len());
                    (frame, consumed) = (held, 0);
                    continue;
                }
            }
            if burst.is_empty() {
                break Left::Nothing(None);
            }
            if successors.is_none() {
                // TCP looks at its queue: what was consumed is not in it.
                tcp.accept_consumed(None, 0);
                successors = tcp.successors(segment, pools);
            }
            let next = loop {
                let Some(counted) = &mut successors else { break 'segments Left::Nothing(None) };
                let Some(next) = burst.next_after(segment) else { break 'segments Left::Nothing(None) };
                if counted.expect(segment) {
                    if !counted.add(segment) {
                        tcp.accept_marks(*now, counted, segment, pools);
                    }
                    break next;
                }
                tcp.accept_consumed(successors.take(), 0);
                // Those with Markers may be placed beyond the gap.
                if operating.fpdus.has_markers() || !tcp.expects_beyond_gap(*now, segment, pools) {
                    break 'segments Left::Unexpected(next);
                }
                let kept = tcp.accept_beyond_gap(*now, segment, next, pools);
                debug_assert!(kept.changes.is_empty(), "it says what those before it say");
                if kept.refusal.is_some() || burst.is_empty() {
                    break 'segments Left::Nothing(kept.refusal);
                }
                successors = tcp.successors(segment, pools);
            };
            (frame, consumed) = (next, 0);
        };
        let left_octets = match left {
            Left::Nothing(_) | Left::Unexpected(_) => 0,
            Left::Rest(_) | Left::Rare(..) => segment.payload_octets,
        };
        tcp.accept_consumed(successors, left_octets);
        left
    }

    /// Counts FPDUs that are valid for MPA, and the segments whose last they are. They let us send, whether
    /// or not they are valid for DDP.
    #[inline]
    pub(super) fn account(&mut self, counts: &FpduCounts) {
        let statistics = &mut self.context.statistics;
        statistics.segments_predicted += counts.segments;
        if counts.fpdus == 0 {
            return;
        }
        statistics.bytes_verified += counts.wire_octets as u64;
        statistics.fpdus_received += counts.fpdus;
        statistics.bytes_copied_rx += counts.payload_octets as u64;
        self.operating.crc_retries = 0;
        self.operating.on_fpdu(&self.qp.shared);
        self.qp.receive_wait.end();
    }
}

/// Handles a ULPDU that is not only a payload, or not valid. Returns `None` for a message that may wait for a
/// receive.
#[cold]
#[inline(never)]
pub(super) fn handle_rare<U: Ulpdu>(
    receiver: &mut Receiver,
    context: &mut ReceiveContext<'_>,
    receive_wait: &ReceiveWait,
    ulpdu: &U,
) -> Option<Result<Received, Fault>> {
    match receiver.on_rare(context, ulpdu) {
        Err(fault) if receive_wait.is_allowed() && receiver.lacks_receive(&fault, ulpdu) => None,
        received => Some(received),
    }
}
