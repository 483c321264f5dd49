//! Octets that are consumed where they lie, in the frame of the segment that brought them: nearly all of
//! them.
//!
//! MPA finds the FPDUs in the frame, and their payload is copied once, to its place. What is left of the
//! frame, the beginning of an FPDU or one that is not valid, goes to the receive queue ([`super::in_order`]).

use crate::device::Frame;
use crate::mpa::contiguous::{ContiguousFpdu, InFrame, Marked, Unmarked};
use crate::mpa::receiver::Ulpdu;
use crate::qp::receiver::{Fault, Placed, ReceiveContext, Received, Receiver};
use crate::tcp::{Refusal, Successors};
use crate::wire::segment::Segment;

use super::burst::Burst;
use super::context::Context;
use super::queue_pair::QueuePair;
use super::rdmap_stream::{FpduCounts, RdmapStream, Step};
use super::receive_wait::ReceiveWait;

/// How the consumption of segments in their frames has ended.
pub(super) enum InPlace<F> {
    /// With the last of them. TCP has refused that if there is a reason.
    Consumed(Option<Refusal>),
    /// With a segment that TCP did not expect.
    Unexpected(F),
    /// With octets that the receive queue keeps, or an FPDU that ends the stream.
    Rest {
        frame: F,
        /// Where the rest of the payload begins in the frame, if there is one.
        offset: Option<usize>,
        /// The result of the last FPDU.
        last: Step,
    },
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

impl<F: Frame> RdmapStream<'_, F> {
    /// Consumes the FPDUs of `segment`, which TCP [expected](crate::tcp::Connection::accept_expected), in its
    /// `frame`, and those of the segments that follow it in `burst`, and has TCP keep those of them that lie
    /// beyond a gap. `segment` is the last one that was looked at then.
    #[inline]
    pub(super) fn consume_in_place(
        &mut self,
        segment: &mut Segment,
        frame: F,
        burst: &mut impl Burst<F>,
    ) -> InPlace<F> {
        let mut counts = FpduCounts::default();
        let mut rest = Rest { frame, consumed: 0 };
        let (rest, last) = loop {
            let left = if self.operating.fpdus.has_markers() {
                self.place_segments::<Marked>(segment, rest, burst, &mut counts)
            } else {
                self.place_segments::<Unmarked>(segment, rest, burst, &mut counts)
            };
            self.account(&core::mem::take(&mut counts));
            match left {
                Left::Nothing(refusal) => {
                    self.tcp.owe_window();
                    return InPlace::Consumed(refusal);
                }
                Left::Unexpected(frame) => {
                    self.tcp.owe_window();
                    return InPlace::Unexpected(frame);
                }
                Left::Rest(rest) => break (rest, Step::Next),
                Left::Rare(next, received) => match self.step(received) {
                    Step::Next => rest = next,
                    last => break (next, last),
                },
            }
        };
        self.tcp.pass(rest.consumed);
        self.tcp.owe_window();
        let offset = segment.payload_offset + rest.consumed;
        InPlace::Rest { frame: rest.frame, offset: (offset < segment.end()).then_some(offset), last }
    }

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
                successors = Successors::after(tcp, segment, pools);
            }
            let next = loop {
                let Some(counted) = &mut successors else { break 'segments Left::Nothing(None) };
                let Some(next) = burst.next_after(segment) else { break 'segments Left::Nothing(None) };
                if counted.expect(segment) {
                    if !counted.add(segment) {
                        counted.count_with_marks(tcp, *now, segment, pools);
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
                successors = Successors::after(tcp, segment, pools);
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
        Err(fault)
            if receive_wait.is_allowed_for(context.shared) && receiver.lacks_receive(&fault, ulpdu) =>
        {
            None
        }
        received => Some(received),
    }
}
