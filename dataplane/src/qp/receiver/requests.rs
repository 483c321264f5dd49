//! The messages that are rare: Read Requests and Atomic Requests of the peer (RFC 5040 §5.2, RFC 7306 §5),
//! its Atomic Responses, and its Terminate.

use super::fault::{Fault, ParsedUlpdu};
use super::{ReceiveContext, Received, Receiver};
use crate::ddp::DdpError;
use crate::memory::{Access, AccessError};
use crate::mpa::receiver::Ulpdu;
use crate::qp::error::StreamError;
use crate::qp::payload::Slice;
use crate::qp::reads::{OutboundRequest, ResponsePayload};
use crate::rdmap::{RdmapError, message};
use crate::wire::atomic::{AtomicRequest, AtomicResponse, VALUE_OCTETS};
use crate::wire::ddp::Untagged;
use crate::wire::rdmap::{Control, Opcode, ReadRequest, Terminate};

impl Receiver {
    /// Starts a request: in stream order it is Delivered now. This layer answers it; the ULP does not see it.
    // Requirements: RDMAP-5.5-04, RDMAPX-5-04, RDMAP-5.2.1-02
    pub(super) fn on_request<U: Ulpdu>(
        &mut self,
        header: &Untagged,
        ulpdu: &ParsedUlpdu<'_, U>,
        context: &mut ReceiveContext<'_>,
    ) -> Result<Received, Fault> {
        // The peer may ask again as soon as it has an answer, so what it acknowledges with the request
        // counts.
        context.reads.inbound.complete(context.stags, context.acknowledged);
        let opcode = self
            .check_request(header, ulpdu, context)
            .map_err(|error| request_fault(ulpdu, header, error))?;
        let started = if opcode == Opcode::AtomicRequest {
            self.on_atomic_request(ulpdu, context)
        } else {
            self.on_read_request(ulpdu, context)
        };
        started.map_err(|error| request_fault(ulpdu, header, error))?;
        self.expected_request = self.expected_request.wrapping_add(1);
        Ok(Received::RequestAccepted)
    }

    /// The checks of DDP, then those of RDMAP. The queue has as many buffers as the ends agreed on, each for
    /// one header; Atomic Requests have buffers apart from those of Read Requests.
    // Requirements: RDMAP-5.2.1-01, RDMAP-5.2.2-02, RDMAP-6.1-03, RDMAP-8.1.1-06, RDMAP-8.1.2-04, RDMAPX-5-04
    fn check_request<U: Ulpdu>(
        &self,
        header: &Untagged,
        ulpdu: &ParsedUlpdu<'_, U>,
        context: &ReceiveContext<'_>,
    ) -> Result<Opcode, StreamError> {
        self.check_queue(header).map_err(StreamError::Ddp)?;
        let octets = ulpdu.payload_octets();
        let refused = if header.msn != self.expected_request {
            Some(DdpError::MsnRange)
        } else if !context.reads.inbound.has_room() {
            Some(DdpError::NoBuffer)
        } else if header.mo != 0 {
            Some(DdpError::InvalidOffset)
        } else if octets > AtomicRequest::LEN {
            Some(DdpError::TooLong)
        } else {
            None
        };
        if let Some(error) = refused {
            return Err(StreamError::Ddp(error));
        }
        let opcode = self.check_version(header.rsvd_ulp[0])?.opcode;
        let responses = &context.reads.inbound;
        let (expected_octets, room) = match opcode {
            Opcode::ReadRequest => (ReadRequest::LEN, responses.has_room_for_read()),
            Opcode::AtomicRequest => (AtomicRequest::LEN, responses.has_room_for_atomic()),
            _ => return Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode)),
        };
        if !room {
            return Err(StreamError::Ddp(DdpError::NoBuffer));
        }
        if octets != expected_octets || !header.last {
            return Err(StreamError::Rdmap(RdmapError::UnspecifiedOperation));
        }
        Ok(opcode)
    }

    /// Checks the memory to be read, and queues the Response.
    // Requirements: RDMAP-5.2-01, RDMAP-5.2.1-03 to RDMAP-5.2.1-06
    fn on_read_request<U: Ulpdu>(
        &self,
        ulpdu: &ParsedUlpdu<'_, U>,
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), StreamError> {
        let request = ReadRequest::parse(ulpdu.after_header())
            .map_err(|_| StreamError::Rdmap(RdmapError::UnspecifiedOperation))?;
        // RFC 5040 §5.2.1: the source of a request for no octets is not checked.
        // Requirements: RDMAP-5.2.1-07 to RDMAP-5.2.1-10
        if request.size > 0 {
            let size = request.size as usize;
            // Requirements: RDMAP-7.2-05 to RDMAP-7.2-08
            let (accessor, access) = (context.shared.accessor(), Access::REMOTE_READ);
            let source = context.stags.check(request.source_stag, accessor, access, request.source_to, size);
            source.map_err(|error| StreamError::Rdmap(refused(error)))?;
        }
        // The sink is checked by the peer.
        // Requirements: RDMAP-4.4-02
        let response = message::read_response(self.version, request.sink_stag, request.sink_to, request.size);
        let source = Slice { stag: request.source_stag, to: request.source_to, len: request.size };
        context.reads.inbound.push(context.stags, response, ResponsePayload::Memory(source));
        Ok(())
    }

    /// Carries out an Atomic Operation, and queues the Response.
    // Requirements: RDMAPX-5-01, RDMAPX-5-02
    fn on_atomic_request<U: Ulpdu>(
        &self,
        ulpdu: &ParsedUlpdu<'_, U>,
        context: &mut ReceiveContext<'_>,
    ) -> Result<(), StreamError> {
        let rdmap = StreamError::Rdmap;
        let request = AtomicRequest::parse(ulpdu.after_header())
            .map_err(|_| rdmap(RdmapError::UnspecifiedOperation))?;
        if request.apply(0).is_none() {
            // RFC 7306 §5.2.1 item 4, RDMAPX-8-01.
            return Err(rdmap(RdmapError::UnexpectedOpcode));
        }
        let (accessor, access) = (context.shared.accessor(), Access::REMOTE_ATOMIC);
        let target = context
            .stags
            .check(request.stag, accessor, access, request.to, VALUE_OCTETS)
            .map_err(|error| rdmap(refused(error)))?;
        let original = target
            .fetch_modify(|value| request.apply(value).unwrap_or(value))
            .ok_or(rdmap(RdmapError::CatastrophicStream))?;
        let identifier = request.identifier;
        let msn = context.reads.inbound.next_atomic();
        let response = message::atomic_response(self.version, msn);
        context.reads.inbound.push(context.stags, response, ResponsePayload::Atomic { identifier, original });
        Ok(())
    }

    /// Accepts the response to the oldest request, which must be an Atomic Operation.
    // Requirements: RDMAPX-5-03, RDMAPX-5-04
    pub(super) fn on_atomic_response<U: Ulpdu>(
        &mut self,
        header: &Untagged,
        ulpdu: &ParsedUlpdu<'_, U>,
        context: &mut ReceiveContext<'_>,
    ) -> Result<Received, StreamError> {
        self.check_queue(header).map_err(StreamError::Ddp)?;
        let octets = ulpdu.payload_octets();
        if header.msn != self.expected_response {
            return Err(StreamError::Ddp(DdpError::MsnRange));
        }
        let Some(OutboundRequest::Atomic { identifier, target }) = context.reads.outbound.front().copied()
        else {
            return Err(StreamError::Ddp(DdpError::NoBuffer));
        };
        if header.mo != 0 {
            return Err(StreamError::Ddp(DdpError::InvalidOffset));
        }
        if octets > AtomicResponse::LEN {
            return Err(StreamError::Ddp(DdpError::TooLong));
        }
        if self.check_version(header.rsvd_ulp[0])?.opcode != Opcode::AtomicResponse {
            return Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode));
        }
        let response = AtomicResponse::parse(ulpdu.after_header())
            .ok()
            .filter(|response| header.last && response.identifier == identifier)
            .ok_or(StreamError::Rdmap(RdmapError::UnspecifiedOperation))?;
        let (accessor, access) = (context.shared.accessor(), Access::LOCAL_WRITE);
        let written = context
            .stags
            .check(target.stag, accessor, access, target.to, VALUE_OCTETS)
            .is_ok_and(|memory| memory.write(0, &response.original.to_ne_bytes()));
        if !written {
            return Err(StreamError::Rdmap(RdmapError::LocalCatastrophic));
        }
        context.reads.outbound.pop();
        self.expected_response = self.expected_response.wrapping_add(1);
        Ok(Received::AtomicAnswered { octets: VALUE_OCTETS })
    }

    /// Accepts the peer's Terminate. It is checked as any Untagged message (RFC 5041 §7.1, RFC 5040 §7.2):
    /// its queue has one buffer, which holds the longest Terminate there is and one message (RFC 5040 §5.4).
    /// Its error is kept with the queue pair, for the application.
    // Requirements: DDP-7.1-03 to DDP-7.1-05, RDMAP-5.4-02, RDMAP-5.4-03, RDMAP-7.2-01
    pub(super) fn on_terminate<U: Ulpdu>(
        &self,
        header: &Untagged,
        ulpdu: &ParsedUlpdu<'_, U>,
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
}

/// The fault of a request in error. For a Read Request that RDMAP refuses, the Terminate carries the header
/// of the request, whatever the error (RFC 5040 §7.1 item 3, ambiguity A-33). DDP refuses a segment before
/// its Delivery, when there is no RDMA Message yet, and RFC 7306 §8.1 omits the header of an Atomic Request.
// Requirements: RDMAP-4.8-04, RDMAP-4.8-08, RDMAP-7.1-02
fn request_fault<U: Ulpdu>(ulpdu: &ParsedUlpdu<'_, U>, header: &Untagged, error: StreamError) -> Fault {
    let by_rdmap = matches!(error, StreamError::Rdmap(_));
    let read = Control::from_octet(header.rsvd_ulp[0]).opcode == Opcode::ReadRequest;
    let read_request = if by_rdmap && read { ulpdu.after_header().first_chunk().copied() } else { None };
    Fault { read_request, ..ulpdu.fault(error) }
}

/// The error of RDMAP for a request that is refused its memory (RFC 5040 §7.2).
const fn refused(error: AccessError) -> RdmapError {
    match error {
        AccessError::InvalidStag => RdmapError::InvalidStag,
        AccessError::NotAssociated => RdmapError::NotAssociated,
        AccessError::Rights => RdmapError::AccessRights,
        AccessError::Wrap => RdmapError::ToWrap,
        AccessError::Bounds => RdmapError::BaseOrBounds,
    }
}
