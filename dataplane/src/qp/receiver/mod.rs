//! The receive half of a queue pair: the payload of a verified ULPDU is placed in a buffer and, at Delivery,
//! becomes a completion.
//!
//! Three steps: everything is checked before the first octet is placed, DDP's header and buffer (RFC 5041
//! §7.1), then RDMAP's version and opcode (RFC 5040 §7.2); the payload is placed; and the segment is
//! delivered. In stream order they follow one another. Beyond a gap in the stream, Delivery waits until the
//! gap has closed (`out_of_order`).

mod current;
mod out_of_order;
mod placed;
mod received;
mod requests;
mod rnr;
mod runs;
mod sends;
mod tagged;
mod ulpdu;
mod whole_sends;

use std::collections::VecDeque;

use super::error::StreamError;
use super::indication::Indications;
use super::reads::Reads;
use super::shared::SharedQp;
use super::work::{ReceiveRequest, Status};
use crate::ddp::DdpError;
use crate::memory::StagTable;
use crate::mpa::enhanced::ReadyToReceive;
use crate::mpa::receiver::{Located, Octets};
use crate::ordered::{OrderedPool, OrderedSet};
use crate::rdmap::RdmapError;
use crate::rdmap::message::{ATOMIC_RESPONSE_QUEUE, READ_REQUEST_QUEUE, SEND_QUEUE, TERMINATE_QUEUE};
use crate::wire::ddp::{DDP_VERSION, Header, Untagged};
use crate::wire::rdmap::{Control, Opcode, Terminate};
use current::Current;
use ulpdu::Ulpdu;

pub use placed::{OutOfOrder, PlacedSegment};
pub use received::Received;
pub use ulpdu::Fault;

/// The receive half of a queue pair at its core.
#[derive(Debug)]
#[repr(C)]
pub struct Receiver {
    current: Option<Current>,
    /// Buffers, oldest first. At most the queue's depth.
    buffers: VecDeque<ReceiveRequest>,
    /// Segments placed out of order that wait for their Delivery, in stream order.
    placed: OrderedSet,
    /// The MSN expected next on queue 0, that of Sends.
    // Requirements: DDP-4.3-08
    expected_msn: u32,
    /// The MSN expected next on queue 1, that of Read Requests and Atomic Requests.
    expected_request: u32,
    /// The MSN expected next on queue 3, that of Atomic Responses.
    expected_response: u32,
    /// The oldest buffer is not accessible: that has ended the stream.
    bad_buffer: bool,
    /// The version of DDP and RDMAP.
    // Requirements: RDMAC-C.1-02
    version: u8,
    /// The ready-to-receive indications that may come.
    indications: Indications,
}

/// The state that a receiver works on besides its own.
pub struct ReceiveContext<'a> {
    /// The part of the queue pair that the application shares.
    pub shared: &'a SharedQp,
    /// The STags of the core.
    pub stags: &'a mut StagTable,
    /// The Reads under way, shared with the sender.
    pub reads: &'a mut Reads,
}

impl Receiver {
    /// A receiver for up to `depth` buffers.
    pub fn new(depth: usize) -> Self {
        Self {
            buffers: VecDeque::with_capacity(depth),
            current: None,
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

    /// Takes posted receives.
    pub fn take_posted(&mut self, shared: &SharedQp) {
        while self.buffers.len() < shared.receive_depth() {
            let Some(request) = shared.take_receive() else { return };
            self.buffers.push_back(request);
        }
    }

    /// Provides buffers for the next `messages` messages, the one under way included, as far as there are
    /// any. From a shared receive queue no more are taken than that, in the order in which the messages will
    /// be Delivered: the rest is for other queue pairs.
    // Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
    fn provide(&mut self, shared: &SharedQp, messages: usize) -> Result<(), StreamError> {
        if !shared.shares_receives() {
            self.take_posted(shared);
            return Ok(());
        }
        while self.buffers.len() + usize::from(self.current.is_some()) < messages {
            let Some(request) = shared.take_shared_receive()? else { break };
            self.buffers.push_back(request);
        }
        Ok(())
    }

    /// Takes one ULPDU, verified by MPA, in stream order.
    ///
    /// # Errors
    ///
    /// [`Fault`] if a check fails; nothing is placed then.
    // Requirements: DDP-7.1-09, DDP-7.1-15
    pub fn on_ulpdu(
        &mut self,
        context: &mut ReceiveContext<'_>,
        octets: &impl Octets,
        located: &Located,
    ) -> Result<Received, Fault> {
        let ulpdu = Ulpdu::parse(octets, located)?;
        if let Some(received) = self.take_indication(&ulpdu) {
            return Ok(received);
        }
        match ulpdu.header {
            Header::Tagged(header) => {
                self.on_tagged(&header, &ulpdu, context).map_err(|error| ulpdu.fault(error))
            }
            Header::Untagged(header) => match header.queue {
                TERMINATE_QUEUE => self.on_terminate(&header, &ulpdu).map_err(|error| ulpdu.fault(error)),
                READ_REQUEST_QUEUE => self.on_request(&header, &ulpdu, context),
                ATOMIC_RESPONSE_QUEUE => {
                    self.on_atomic_response(&header, &ulpdu, context).map_err(|error| ulpdu.fault(error))
                }
                _ => self.on_send(&header, &ulpdu, context).map_err(|error| ulpdu.fault(error)),
            },
        }
    }

    /// Takes a ULPDU if it is a message of the peer's provider.
    fn take_indication<O: Octets>(&mut self, ulpdu: &Ulpdu<'_, O>) -> Option<Received> {
        let received = self.indications.take(self.version, &ulpdu.header, ulpdu.octets, ulpdu.located)?;
        // Ambiguity A-16: the provider has the buffer for it, and it uses an MSN.
        match (received, ulpdu.header) {
            (Received::RtrReceived, Header::Untagged(_)) => {
                self.expected_msn = self.expected_msn.wrapping_add(1);
            }
            (Received::RtrReadReceived { .. }, _) => {
                self.expected_request = self.expected_request.wrapping_add(1);
            }
            _ => {}
        }
        Some(received)
    }

    /// Takes the peer's Terminate. It is checked as any Untagged message (RFC 5041 §7.1, RFC 5040 §7.2): its
    /// queue has one buffer, which takes the longest Terminate there is and one message (RFC 5040 §5.4). Its
    /// error is kept with the queue pair, for the application.
    // Requirements: DDP-7.1-03 to DDP-7.1-05, RDMAP-5.4-02, RDMAP-5.4-03, RDMAP-7.2-01
    fn on_terminate<O: Octets>(
        &self,
        header: &Untagged,
        ulpdu: &Ulpdu<'_, O>,
    ) -> Result<Received, StreamError> {
        self.check_queue(header).map_err(StreamError::Ddp)?;
        let refused = if header.msn != 1 {
            Some(DdpError::MsnRange)
        } else if header.mo != 0 {
            Some(DdpError::InvalidOffset)
        } else if ulpdu.payload_octets() > Terminate::MAX_LEN {
            Some(DdpError::TooLong)
        } else {
            None
        };
        if let Some(error) = refused {
            return Err(StreamError::Ddp(error));
        }
        if self.check_version(header.rsvd_ulp[0])?.opcode != Opcode::Terminate {
            return Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode));
        }
        let terminate = Terminate::parse(ulpdu.after_header())
            .ok()
            .filter(|_| header.last)
            .ok_or(StreamError::Rdmap(RdmapError::UnspecifiedOperation))?;
        Ok(Received::Terminated(StreamError::Terminated {
            layer: terminate.layer,
            error_type: terminate.error_type,
            code: terminate.code,
        }))
    }

    /// RFC 5040 §7.2: the version of RDMAP.
    // Requirements: RDMAP-7.2-03
    fn check_version(&self, control: u8) -> Result<Control, StreamError> {
        let control = Control::from_octet(control);
        if control.version == self.version {
            Ok(control)
        } else {
            Err(StreamError::Rdmap(RdmapError::InvalidVersion))
        }
    }

    /// DDP-4.1-09, DDP-4.1-10, DDP-7.1-01, A-13, A-30: version, then queue; MSN, offset and length come
    /// later.
    fn check_queue(&self, header: &Untagged) -> Result<(), DdpError> {
        if header.version != self.version {
            return Err(DdpError::UntaggedVersion);
        }
        match header.queue {
            SEND_QUEUE | READ_REQUEST_QUEUE | TERMINATE_QUEUE | ATOMIC_RESPONSE_QUEUE => Ok(()),
            _ => Err(DdpError::InvalidQueue),
        }
    }

    /// Completes every receive as failed or flushed: the stream is over.
    pub fn flush(
        &mut self,
        shared: &SharedQp,
        pool: &mut OrderedPool<PlacedSegment>,
        error: Option<StreamError>,
    ) {
        pool.clear(&mut self.placed);
        let current = self.current.take().map(|current| current.request);
        let mut status = match error {
            _ if self.bad_buffer => Status::LocalProtection,
            Some(error) if current.is_some() => Status::Failed(error),
            _ => Status::Flushed,
        };
        self.bad_buffer = false;
        let mut flush = |request: ReceiveRequest| {
            shared.complete_receive(request.completion(shared.number, status, 0));
            status = Status::Flushed;
        };
        current.into_iter().for_each(&mut flush);
        self.buffers.drain(..).for_each(&mut flush);
        // At most as many as the queue holds, so that an application that keeps posting cannot keep the core
        // here.
        for _ in 0..shared.receive_depth() {
            let Some(request) = shared.take_receive() else { break };
            flush(request);
        }
        if shared.has_posted_receives() {
            shared.ring();
        }
        shared.receives_are_flushed();
    }
}
