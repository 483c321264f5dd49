//! Outstanding RDMA Reads and Atomic Operations: outbound, requested by this end and not answered, and
//! inbound, whose responses this end owes. The ends agree on the lengths of both queues (ORD, IRD).
//!
//! Memory for a queue is allocated when more are outstanding than ever before on its stream, twice as much
//! each time, so most queue pairs, which never use their depths, do not pay for them. Example: with an IRD of
//! 32, a peer that has up to four Reads outstanding makes this end allocate once, and one that has 32 four
//! times.

use std::collections::VecDeque;

use super::payload::Slice;
use crate::ddp::segmentation::Message;
use crate::memory::{STag, StagTable};
use crate::mpa::enhanced::{ReadDepths, ReadyToReceive, Rtr};
use crate::rdmap::RdmapError;
use crate::wire::ddp::Tagged;
use crate::wire::tcp::SeqNumber;

use super::error::StreamError;

/// A request of this end that the peer has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboundRequest {
    /// An RDMA Read Response.
    Read {
        /// The buffer that all of the response is placed in.
        // Requirements: RDMAP-5.2.2-06
        sink: Slice,
        /// Octets delivered so far.
        delivered: u32,
    },
    /// An Atomic Response.
    Atomic {
        /// The request identifier that the response must carry.
        identifier: u32,
        /// Where the original value goes.
        target: Slice,
    },
}

/// The requests of this end that are not answered, oldest first. Responses come in the order of the requests.
// Requirements: RDMAP-5.5-11
#[derive(Debug, Default)]
pub struct OutboundReads {
    queue: VecDeque<OutboundRequest>,
    /// ORD: how many may be outstanding.
    // Requirements: RDMAP-6.1-03
    depth: u16,
    /// This end's indication is a Read Request, which is one of them until it is answered (ambiguity A-16).
    indication_due: bool,
    /// Requests counted so far; it wraps.
    count: u32,
}

impl OutboundReads {
    /// Whether there is room for another request after `more` that are about to be sent.
    #[inline]
    pub fn has_room(&self, more: usize) -> bool {
        self.queue.len() + usize::from(self.indication_due) + more < usize::from(self.depth)
    }

    /// Whether all requests are answered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The Read Request that is this end's indication is answered, or never will be: another may take its
    /// place at the peer.
    pub const fn on_indication_answered(&mut self) {
        self.indication_due = false;
    }

    /// Adds a request that is sent. Returns the number of its response.
    pub(super) fn push(&mut self, awaited: OutboundRequest) -> u32 {
        debug_assert!(self.has_room(0), "has_room was asked");
        self.queue.push_back(awaited);
        self.count = self.count.wrapping_add(1);
        self.count.wrapping_sub(1)
    }

    /// Whether the response with this number was Delivered.
    pub(super) fn is_answered(&self, number: u32) -> bool {
        let behind = self.count.wrapping_sub(number) as usize;
        behind > self.queue.len()
    }

    pub(super) fn front(&self) -> Option<&OutboundRequest> {
        self.queue.front()
    }

    /// Removes the oldest request: its response was Delivered.
    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// Checks that a segment of a Response is the next one of the oldest Read, and that the last flag is
    /// where the payload ends.
    ///
    /// # Errors
    ///
    /// Always an error of RDMAP, which keeps the Reads; the errors of DDP belong to the checks of RFC 5041
    /// §7.1 (§7.2). A Response can cause an operation error of RDMAP, but no protection error (RFC 5040
    /// figure 10, ambiguity A-32).
    // Requirements: DDP-7.2-01, RDMAP-5.2.2-03, RDMAP-7.2-01, RDMAP-7.2-02
    pub(super) fn check_turn(&self, header: &Tagged, payload_octets: usize) -> Result<(), StreamError> {
        let Some(OutboundRequest::Read { sink, delivered }) = self.queue.front() else {
            // A Response without a Read.
            // Requirements: RDMAP-7.2-02
            return Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode));
        };
        let left = (sink.len - delivered) as usize;
        // STag and offset of an empty segment are ignored.
        // Requirements: DDP-5.2-09
        let in_place = payload_octets == 0
            || header.stag == sink.stag && header.to == sink.to.wrapping_add(u64::from(*delivered));
        // The Response is as long as the Read.
        // Requirements: RDMAP-5.2.2-04
        if in_place && payload_octets <= left && header.last == (payload_octets == left) {
            Ok(())
        } else {
            Err(StreamError::Rdmap(RdmapError::UnspecifiedOperation))
        }
    }

    /// Whether a segment of a Response lies inside the sink of an outstanding Read.
    pub(super) fn has_sink(&self, header: &Tagged, payload_octets: usize) -> bool {
        self.queue.iter().any(|awaited| match awaited {
            OutboundRequest::Read { sink, .. } if header.stag == sink.stag => {
                let at = header.to.checked_sub(sink.to);
                at.and_then(|at| at.checked_add(payload_octets as u64))
                    .is_some_and(|end| end <= u64::from(sink.len))
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

/// The payload of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponsePayload {
    /// The memory that the peer reads.
    Memory(Slice),
    /// The fields of an Atomic Response.
    Atomic {
        /// From the request.
        identifier: u32,
        /// The value before the operation.
        original: u64,
    },
}

/// A response that this end owes the peer, or has sent and may have to retransmit.
#[derive(Clone, Copy, Debug)]
pub struct Response {
    /// The message, without its payload.
    pub message: Message,
    /// Its payload.
    pub payload: ResponsePayload,
    /// The sequence number after its last octet, once all of it is queued.
    end: Option<SeqNumber>,
}

/// The responses that this end owes, in the order of the requests. There may be IRD Reads and as many Atomic
/// Operations: RFC 7306 §5.2.2 item 4 adds the buffers of the two kinds (ambiguity A-34). Example: with an
/// IRD of 2, two Reads and two Atomic Operations may be outstanding, but no third of either kind.
// Requirements: RDMAP-5.2.2-05
#[derive(Debug, Default)]
pub struct InboundReads {
    queue: VecDeque<Response>,
    /// IRD: how many of each kind may be outstanding.
    depth: u32,
    /// How many entries of `queue` answer Reads.
    reads: u32,
    /// How many entries are completely queued to TCP.
    queued: u32,
    /// How many entries there were before these; it wraps.
    completed: u32,
    /// Octets of the next entry that are queued.
    offset: u32,
    /// Atomic Responses so far; it wraps.
    atomics: u32,
}

impl InboundReads {
    /// The MSN of the next Atomic Response.
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
        (self.queue.len() as u32) - self.reads < self.depth
    }

    /// Returns how many responses there are that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if one of them reads from the slot of `stag`.
    pub fn reads_from(&self, stag: STag) -> bool {
        let reads = |response: &Response| {
            matches!(response.payload, ResponsePayload::Memory(source)
                if source.len > 0 && source.stag.index() == stag.index())
        };
        self.queue.iter().any(reads)
    }

    /// Adds a response. Its memory is retained until the peer has acknowledged it.
    pub(super) fn push(&mut self, stags: &mut StagTable, message: Message, payload: ResponsePayload) {
        match payload {
            ResponsePayload::Memory(source) => {
                debug_assert!(self.has_room_for_read(), "has_room_for_read was asked");
                self.reads += 1;
                if source.len > 0 {
                    stags.retain(source.stag);
                }
            }
            ResponsePayload::Atomic { .. } => {
                debug_assert!(self.has_room_for_atomic(), "has_room_for_atomic was asked");
            }
        }
        self.queue.push_back(Response { message, payload, end: None });
    }

    /// The response to send next, and how many octets of it are queued.
    #[inline]
    pub(super) fn next(&self) -> Option<(&Response, u32)> {
        self.queue.get(self.queued as usize).map(|response| (response, self.offset))
    }

    /// Whether there is a [next](Self::next) response.
    #[inline]
    pub(super) fn has_next(&self) -> bool {
        (self.queued as usize) < self.queue.len()
    }

    /// The number of the [next](Self::next) response.
    #[inline]
    pub(super) const fn next_number(&self) -> u32 {
        self.completed.wrapping_add(self.queued)
    }

    /// The response with this number, which the peer has not acknowledged yet.
    #[inline]
    pub(super) fn numbered(&self, number: u32) -> Option<&Response> {
        self.queue.get(number.wrapping_sub(self.completed) as usize)
    }

    /// Records that another `octets` octets of the next response are queued and end at `end`. Returns true if
    /// that completes it.
    pub(super) fn advance(&mut self, octets: u32, end: SeqNumber) -> bool {
        let Some(response) = self.queue.get_mut(self.queued as usize) else { return true };
        self.offset += octets;
        if self.offset < response.message.octets {
            return false;
        }
        response.end = Some(end);
        self.queued += 1;
        self.offset = 0;
        true
    }

    /// Records that another `octets` octets of the next response are queued, which do not complete it.
    #[inline]
    pub(super) const fn advance_inside(&mut self, octets: u32) {
        self.offset += octets;
    }

    /// Removes the responses that the peer has acknowledged, up to `acknowledged`.
    #[inline]
    pub fn complete(&mut self, stags: &mut StagTable, acknowledged: SeqNumber) {
        while self.queue.front().and_then(|response| response.end).is_some_and(|end| end <= acknowledged) {
            self.forget_front(stags);
        }
    }

    /// Sets the MSN of the next Atomic Response to `next`.
    pub fn continue_message_numbers(&mut self, next: u32) {
        self.atomics = next.wrapping_sub(1);
    }

    fn forget_front(&mut self, stags: &mut StagTable) {
        let Some(response) = self.queue.pop_front() else { return };
        self.completed = self.completed.wrapping_add(1);
        self.queued = self.queued.saturating_sub(1);
        if let ResponsePayload::Memory(source) = response.payload {
            self.reads -= 1;
            if source.len > 0 {
                stags.release(source.stag);
            }
        }
    }
}

/// The RDMA Reads and Atomic Operations of a queue pair, in both directions. Each time a queue pair is served
/// it asks for those of the peer: they come second, where they lie on one cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Reads {
    /// Requested by this end.
    pub outbound: OutboundReads,
    /// Requested by the peer.
    pub inbound: InboundReads,
}

impl Reads {
    /// Begins a stream with the depths that the ends have agreed on, and what lets the Responder send.
    // Requirements: RDMAP-6.1-02, RDMAP-6.1-03
    pub fn begin(&mut self, depths: ReadDepths, ready: ReadyToReceive) {
        let indication_due = matches!(ready, ReadyToReceive::Send(Rtr::Read));
        self.outbound = OutboundReads { depth: depths.ord, indication_due, ..OutboundReads::default() };
        self.inbound = InboundReads { depth: depths.ird.into(), ..InboundReads::default() };
    }

    /// Ends the stream: no response comes or goes any more.
    pub fn flush(&mut self, stags: &mut StagTable) {
        self.outbound.queue.clear();
        while !self.inbound.queue.is_empty() {
            self.inbound.forget_front(stags);
        }
        self.inbound.offset = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the indication is, no more than ORD are outstanding, before its answer and after: none where
    /// ORD is 0.
    // Requirements: RDMAP-6.1-03
    #[test]
    fn an_indication_adds_nothing_to_ord() {
        for ord in 0..3 {
            let mut reads = Reads::default();
            reads.begin(ReadDepths { ird: 1, ord }, ReadyToReceive::Send(Rtr::Read));
            let room = |reads: &Reads| (0..9).take_while(|more| reads.outbound.has_room(*more)).count();
            assert_eq!(room(&reads), usize::from(ord.saturating_sub(1)));
            reads.outbound.on_indication_answered();
            assert_eq!(room(&reads), usize::from(ord));
        }
    }
}
