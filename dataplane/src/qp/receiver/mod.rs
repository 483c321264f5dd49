//! The receive half of a queue pair: the payload of a verified ULPDU is placed in a buffer and, at Delivery,
//! becomes a completion.
//!
//! Three steps: everything is checked before the first octet is placed; the payload is placed; and the
//! segment is delivered. In stream order they follow one another, for messages of any kind (`place`). Only a
//! segment that is refused is checked in the order of the RFCs, for the fault to be named (`explain`). Beyond
//! a gap in the stream, Delivery waits until the gap has closed (`out_of_order`).

mod explain;
mod fault;
mod message;
mod out_of_order;
mod place;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::error::StreamError;
use super::indication::Indications;
use super::reads::Reads;
use super::shared::SharedQp;
use super::work::{ReceiveRequest, Status};
use crate::ddp::DdpError;
use crate::memory::{STag, StagTable};
use crate::mpa::enhanced::ReadyToReceive;
use crate::mpa::receiver::Ulpdu;
use crate::ordered::{OrderedPool, OrderedSet};
use crate::rdmap::message::SEND_QUEUE;
use crate::wire::ddp::{DDP_VERSION, Header};
use crate::wire::rdmap::Control;
use crate::wire::tcp::SeqNumber;
use fault::ParsedUlpdu;
use message::Message;

pub use fault::Fault;
pub use out_of_order::{OutOfOrder, PlacedSegment};

/// A payload that was placed and delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Octets that were copied.
    pub octets: usize,
    /// It is the end of the answer to a Read of this end.
    pub answers_read: bool,
}

/// The result of a ULPDU that is not only a payload, or is one that came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is only a payload. It is the first, which could have been a message of the provider; or it found
    /// no receive, and one has been posted since.
    First(Placed),
    /// It is the answer to an Atomic Operation of this end; `octets` were copied.
    AtomicAnswered {
        /// Octets of payload.
        octets: usize,
    },
    /// It is a request; this end now owes a response.
    RequestAccepted,
    /// It is a ready-to-receive indication, or the response to ours: nothing for the ULP.
    RtrReceived,
    /// It is a ready-to-receive indication that requires a response: an RDMA Read Response without payload.
    RtrReadReceived {
        /// The buffer of the peer.
        stag: STag,
        /// The Tagged Offset in that buffer.
        to: u64,
    },
    /// The peer has terminated the stream.
    Terminated(StreamError),
}

/// The receive half of a queue pair at its core. What each segment needs comes first, then what each message
/// needs.
#[derive(Debug)]
#[repr(C)]
pub struct Receiver {
    /// The version of DDP and RDMAP.
    // Requirements: RDMAC-C.1-02
    version: u8,
    /// The ready-to-receive indications that may come.
    indications: Indications,
    /// The oldest buffer is not accessible: that has ended the stream.
    bad_buffer: bool,
    /// The MSN expected next on queue 0.
    // Requirements: DDP-4.3-08
    expected_msn: u32,
    /// Segments placed out of order that wait for their Delivery, in stream order.
    placed: OrderedSet,
    /// The next message on queue 0, that of Sends.
    message: Message,
    /// The MSN expected next on queue 1, that of Read Requests and Atomic Requests.
    expected_request: u32,
    /// The MSN expected next on queue 3, that of Atomic Responses.
    expected_response: u32,
    /// Receives that were moved here from a shared receive queue, oldest first, at most the queue's depth.
    /// Most messages need none, so memory is allocated when one does.
    moved: VecDeque<ReceiveRequest>,
}

/// The state that a receiver works on besides its own.
pub struct ReceiveContext<'a> {
    /// The part of the queue pair that the application shares.
    pub shared: &'a SharedQp,
    /// The STags of the core.
    pub stags: &'a mut StagTable,
    /// The outstanding Reads, shared with the sender.
    pub reads: &'a mut Reads,
    /// What the peer has acknowledged.
    pub acknowledged: SeqNumber,
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new()
    }
}

impl Receiver {
    /// A receiver of a stream that has not begun.
    pub fn new() -> Self {
        Self {
            message: Message::new(),
            moved: VecDeque::new(),
            bad_buffer: false,
            expected_msn: 1,
            expected_request: 1,
            expected_response: 1,
            version: DDP_VERSION,
            indications: Indications::default(),
            placed: OrderedSet::new(),
        }
    }

    /// Begins a stream.
    pub fn begin(&mut self, version: u8, ready: ReadyToReceive) {
        self.version = version;
        self.indications = Indications::of(ready);
    }

    /// Sets the MSN expected next on each queue to `next`.
    pub fn continue_message_numbers(&mut self, next: u32) {
        (self.expected_msn, self.expected_request, self.expected_response) = (next, next, next);
    }

    /// Completes every receive as failed or flushed: the stream is over.
    pub fn flush(
        &mut self,
        shared: &SharedQp,
        pool: &mut OrderedPool<PlacedSegment>,
        error: Option<StreamError>,
    ) {
        pool.clear(&mut self.placed);
        let begun = self.message.begun.then_some(self.message.request);
        self.message.end();
        let mut status = match error {
            _ if self.bad_buffer => Status::LocalProtection,
            Some(error) if begun.is_some() => Status::Failed(error),
            _ => Status::Flushed,
        };
        self.bad_buffer = false;
        let mut flush = |request: ReceiveRequest| {
            shared.complete_receive(request.completion(shared.number, status, 0));
            status = Status::Flushed;
        };
        begun.into_iter().for_each(&mut flush);
        self.moved.drain(..).for_each(&mut flush);
        // At most as many as the queue holds, so that an application that keeps posting cannot keep the core
        // here.
        for _ in 0..shared.receive_depth() {
            let Some(request) = shared.dequeue_receive() else { break };
            flush(request);
        }
        if shared.has_posted_receives() {
            shared.ring();
        }
        shared.receives_are_flushed();
    }

    /// Copies the receive of the message that begins from where it lies. One of a shared receive queue is
    /// dequeued, or another core might dequeue it before the message has begun: a caller that does not begin
    /// the message calls [`keep_loaded`](Self::keep_loaded). Returns false if there is none, or if there is
    /// no entry for its completion.
    #[expect(clippy::inline_always, reason = "the other caller is for segments beyond a gap")]
    #[inline(always)]
    fn load_receive(&mut self, shared: &SharedQp) -> bool {
        match self.moved.front() {
            None if shared.shares_receives() => {
                shared.dequeue_shared_receive_to(&mut self.message.request) == Ok(true)
            }
            None => shared.read_front_receive(&mut self.message.request),
            Some(moved) => {
                self.message.request = *moved;
                true
            }
        }
    }

    /// Consumes the receive that was [loaded](Self::load_receive): the message has begun.
    #[inline]
    fn begin_message(&mut self, shared: &SharedQp) {
        if !self.moved.is_empty() {
            self.moved.pop_front();
        } else if !shared.shares_receives() {
            shared.consume_front_receive();
        }
        self.message.begun = true;
    }

    /// Keeps the receive that was [loaded](Self::load_receive), of a message that has not begun: it is
    /// refused.
    #[cold]
    fn keep_loaded(&mut self, shared: &SharedQp) {
        if !self.message.begun && self.moved.is_empty() && shared.shares_receives() {
            self.moved.push_back(self.message.request);
        }
    }

    /// Moves receives of a shared receive queue here for the next `messages` messages, the one that has begun
    /// included, if there are so many. No more are moved than that, in the order in which the messages
    /// will be Delivered: the rest is for other queue pairs.
    // Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
    fn provide(&mut self, shared: &SharedQp, messages: usize) -> Result<(), StreamError> {
        while shared.shares_receives() && self.moved.len() + usize::from(self.message.begun) < messages {
            let Some(request) = shared.dequeue_shared_receive()? else { break };
            self.moved.push_back(request);
        }
        Ok(())
    }

    /// Returns the receive of the message `ahead` messages after the next one, if it is posted, and
    /// [provided](Self::provide) if it is shared.
    fn receive_of(&self, shared: &SharedQp, ahead: usize) -> Option<ReceiveRequest> {
        if self.message.begun && ahead == 0 {
            return Some(self.message.request);
        }
        let index = ahead - usize::from(self.message.begun);
        if shared.shares_receives() { self.moved.get(index).copied() } else { shared.posted_receive(index) }
    }

    /// Whether the next ULPDU, verified by MPA, which was refused for `fault`, begins a valid message for
    /// which no receive was posted. A ULPDU with any other error does not wait. One may be posted by now:
    /// then the wait is over at once.
    // Requirements: DDP-7.1-02
    #[cold]
    pub fn lacks_receive(&self, fault: &Fault, ulpdu: &impl Ulpdu) -> bool {
        if fault.error != StreamError::Ddp(DdpError::NoBuffer) {
            return false;
        }
        let Ok(ulpdu) = ParsedUlpdu::parse(ulpdu) else { return false };
        let Header::Untagged(header) = ulpdu.header else { return false };
        let control = Control::from_octet(header.rsvd_ulp[0]);
        let begins = header.queue == SEND_QUEUE
            && header.msn == self.expected_msn
            && header.mo == 0
            && header.version == self.version
            && control.version == self.version
            && (control.opcode.is_send() || control.opcode.is_immediate());
        // The provider has the buffer for a ready-to-receive indication.
        let mut indications = self.indications;
        begins && indications.consume(self.version, &ulpdu.header, ulpdu.octets).is_none()
    }

    /// Whether a receive is posted for a message that waits for one.
    pub fn has_receive(&self, shared: &SharedQp) -> bool {
        !self.moved.is_empty()
            || shared.has_posted_receives()
            || shared.shared_receives().is_some_and(|queue| !queue.is_empty())
    }
}
