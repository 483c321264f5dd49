//! RDMA Reads and Atomic Operations under way: those this end has asked for and that are not answered, and
//! the answers it owes the peer. Both queues are as long as the ends agreed on (ORD, IRD) and no longer.

use std::collections::VecDeque;

use super::payload::Slice;
use crate::ddp::segmentation::Message;
use crate::memory::StagTable;
use crate::mpa::enhanced::ReadDepths;
use crate::rdmap::RdmapError;
use crate::wire::ddp::Tagged;
use crate::wire::tcp::SeqNumber;

use super::error::StreamError;

/// What this end waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboundRequest {
    /// An RDMA Read Response.
    Read {
        /// Where it goes: all of it.
        // Requirements: RDMAP-5.2.2-06
        sink: Slice,
        /// Octets of it that were delivered.
        delivered: u32,
    },
    /// An Atomic Response.
    Atomic {
        /// The number it must carry.
        identifier: u32,
        /// Where the original value goes.
        target: Slice,
    },
}

/// What this end has asked for, oldest first. Answers come in the order of the requests.
// Requirements: RDMAP-5.5-11
#[derive(Debug, Default)]
pub struct OutboundReads {
    queue: VecDeque<OutboundRequest>,
    /// ORD: how many there may be.
    // Requirements: RDMAP-6.1-03
    depth: usize,
    /// How many there have been; it wraps.
    count: u32,
}

impl OutboundReads {
    /// Whether another may be asked for while `more` are about to be.
    #[inline]
    pub fn has_room(&self, more: usize) -> bool {
        self.queue.len() + more < self.depth
    }

    /// Whether all are answered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The peer is asked. Gives the number of the answer.
    pub(super) fn push(&mut self, awaited: OutboundRequest) -> u32 {
        debug_assert!(self.queue.len() < self.depth, "has_room was asked");
        self.queue.push_back(awaited);
        self.count = self.count.wrapping_add(1);
        self.count.wrapping_sub(1)
    }

    /// Whether the answer of that number has been Delivered.
    pub(super) fn is_answered(&self, number: u32) -> bool {
        let behind = self.count.wrapping_sub(number) as usize;
        behind > self.queue.len()
    }

    pub(super) fn front(&self) -> Option<&OutboundRequest> {
        self.queue.front()
    }

    /// The oldest is answered.
    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// Checks that a segment of a Response is the next of the oldest Read: where its payload belongs and, if
    /// it is the last, that nothing is missing.
    ///
    /// # Errors
    ///
    /// Always of RDMAP: DDP's numbers stand for its own checks (RFC 5041 §7.2), and it is RDMAP that knows
    /// the Read. Of RDMAP's, a Response can cause an operation error and no protection error (RFC 5040 figure
    /// 10, ambiguity A-32).
    // Requirements: DDP-7.2-01, RDMAP-5.2.2-03, RDMAP-7.2-01, RDMAP-7.2-02
    pub(super) fn check_turn(&self, header: &Tagged, payload_octets: usize) -> Result<(), StreamError> {
        let Some(OutboundRequest::Read { sink, delivered }) = self.queue.front() else {
            // An answer to nothing.
            // Requirements: RDMAP-7.2-02
            return Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode));
        };
        let left = (sink.octets - delivered) as usize;
        // Of an empty segment neither STag nor offset is looked at.
        // Requirements: DDP-5.2-09
        let in_place = payload_octets == 0
            || header.stag == sink.stag && header.to == sink.to.wrapping_add(u64::from(*delivered));
        // The Response has the size that was asked for.
        // Requirements: RDMAP-5.2.2-04
        if in_place && payload_octets <= left && header.last == (payload_octets == left) {
            Ok(())
        } else {
            Err(StreamError::Rdmap(RdmapError::UnspecifiedOperation))
        }
    }

    /// Whether a segment of a Response lies inside the sink of any Read that is not answered.
    pub(super) fn has_sink(&self, header: &Tagged, payload_octets: usize) -> bool {
        self.queue.iter().any(|awaited| match awaited {
            OutboundRequest::Read { sink, .. } if header.stag == sink.stag => {
                let at = header.to.checked_sub(sink.to);
                at.and_then(|at| at.checked_add(payload_octets as u64))
                    .is_some_and(|end| end <= u64::from(sink.octets))
            }
            _ => false,
        })
    }

    /// A segment of the oldest Response is Delivered.
    // Requirements: RDMAP-5.5-03
    pub(super) fn deliver(&mut self, last: bool, payload_octets: usize) {
        if let Some(OutboundRequest::Read { delivered, .. }) = self.queue.front_mut() {
            *delivered += payload_octets as u32;
        }
        if last {
            self.pop();
        }
    }
}

/// Where the octets of an answer come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponsePayload {
    /// The memory that the peer reads.
    Memory(Slice),
    /// The header of an Atomic Response.
    Atomic {
        /// From the request.
        identifier: u32,
        /// The value before the operation.
        original: u64,
    },
}

/// An answer this end owes the peer, or has sent and may have to send again.
#[derive(Clone, Copy, Debug)]
pub struct Response {
    /// How it goes.
    pub message: Message,
    /// Its payload.
    pub payload: ResponsePayload,
    /// Where it ends in the TCP stream, once all of it is queued.
    end: Option<SeqNumber>,
}

/// The answers this end owes, in the order of the requests. There may be IRD Reads, and as many Atomic
/// Operations beside them: RFC 7306 §5.2.2 item 4 adds the buffers of the one to those of the other
/// (ambiguity A-34). Example: with an IRD of 2, two Reads and two Atomic Operations may be outstanding here,
/// and no third of either.
// Requirements: RDMAP-5.2.2-05
#[derive(Debug, Default)]
pub struct InboundReads {
    queue: VecDeque<Response>,
    /// IRD: how many of either kind there may be.
    depth: usize,
    /// How many of `queue` answer Reads.
    reads: usize,
    /// How many are queued whole.
    queued: usize,
    /// How much of the next one is queued, in octets.
    offset: u32,
    /// How many Atomic Responses there have been; it wraps.
    atomics: u32,
}

impl InboundReads {
    /// The number of the next Atomic Response.
    // Requirements: DDP-4.3-07, DDP-4.3-08
    pub(super) fn next_atomic(&mut self) -> u32 {
        self.atomics = self.atomics.wrapping_add(1);
        self.atomics
    }

    /// Whether the peer may have another request of any kind outstanding here.
    // Requirements: RDMAP-5.2.2-02
    pub fn has_room(&self) -> bool {
        self.has_room_for_read() || self.has_room_for_atomic()
    }

    /// Whether the peer may have another RDMA Read Request outstanding here.
    pub fn has_room_for_read(&self) -> bool {
        self.reads < self.depth
    }

    /// Whether the peer may have another Atomic Request outstanding here.
    pub fn has_room_for_atomic(&self) -> bool {
        self.queue.len() - self.reads < self.depth
    }

    /// Owes another answer. The memory it reads is kept until the peer has it.
    pub(super) fn push(&mut self, stags: &mut StagTable, message: Message, payload: ResponsePayload) {
        match payload {
            ResponsePayload::Memory(source) => {
                debug_assert!(self.has_room_for_read(), "has_room_for_read was asked");
                self.reads += 1;
                if source.octets > 0 {
                    stags.retain(source.stag);
                }
            }
            ResponsePayload::Atomic { .. } => {
                debug_assert!(self.has_room_for_atomic(), "has_room_for_atomic was asked");
            }
        }
        self.queue.push_back(Response { message, payload, end: None });
    }

    /// The answer to send next, and how much of it is queued.
    #[inline]
    pub(super) fn next(&self) -> Option<(&Response, u32)> {
        self.queue.get(self.queued).map(|response| (response, self.offset))
    }

    /// Another `octets` octets of the next one are queued and end at `end`. Gives whether that is all of it.
    pub(super) fn advance(&mut self, octets: u32, end: SeqNumber) -> bool {
        let Some(response) = self.queue.get_mut(self.queued) else { return true };
        self.offset += octets;
        if self.offset < response.message.octets {
            return false;
        }
        response.end = Some(end);
        self.queued += 1;
        self.offset = 0;
        true
    }

    /// The peer has all up to `acknowledged`: what was sent before may be forgotten.
    #[inline]
    pub fn complete(&mut self, stags: &mut StagTable, acknowledged: SeqNumber) {
        while self.queue.front().and_then(|response| response.end).is_some_and(|end| end <= acknowledged) {
            self.forget_front(stags);
        }
    }

    /// The next Atomic Response is number `next`.
    pub fn continue_message_numbers(&mut self, next: u32) {
        self.atomics = next.wrapping_sub(1);
    }

    fn forget_front(&mut self, stags: &mut StagTable) {
        let Some(response) = self.queue.pop_front() else { return };
        self.queued = self.queued.saturating_sub(1);
        if let ResponsePayload::Memory(source) = response.payload {
            self.reads -= 1;
            if source.octets > 0 {
                stags.release(source.stag);
            }
        }
    }
}

/// Both.
#[derive(Debug, Default)]
pub struct Reads {
    /// What this end waits for.
    pub outbound: OutboundReads,
    /// What it owes.
    pub inbound: InboundReads,
}

impl Reads {
    /// The stream begins, with as many as the ends agreed on.
    // Requirements: RDMAP-6.1-02
    pub fn begin(&mut self, depths: ReadDepths) {
        let (inbound, outbound) = (usize::from(depths.ird), usize::from(depths.ord));
        self.outbound = OutboundReads { queue: VecDeque::with_capacity(outbound), depth: outbound, count: 0 };
        self.inbound = InboundReads {
            queue: VecDeque::with_capacity(2 * inbound),
            depth: inbound,
            ..InboundReads::default()
        };
    }

    /// The stream is over: nothing comes any more, and nothing goes.
    pub fn flush(&mut self, stags: &mut StagTable) {
        self.outbound.queue.clear();
        while !self.inbound.queue.is_empty() {
            self.inbound.forget_front(stags);
        }
        self.inbound.offset = 0;
    }
}
