//! The Tagged Buffer Model: RDMA Writes of the peer, and its Read Responses.

use super::ulpdu::{Memory, Ulpdu};
use super::{ReceiveContext, Received, Receiver};
use crate::ddp::DdpError;
use crate::memory::{Access, AccessError, StagTable};
use crate::mpa::receiver::Octets;
use crate::qp::error::StreamError;
use crate::qp::reads::OutboundReads;
use crate::qp::shared::SharedQp;
use crate::rdmap::RdmapError;
use crate::wire::ddp::Tagged;
use crate::wire::rdmap::{Control, Opcode};

impl Receiver {
    /// Checks, places and delivers the segment that is next in stream order.
    // Requirements: DDP-4.2-03, DDP-4.2-07, DDP-5.2-04, DDP-5.4-03
    pub(super) fn on_tagged<O: Octets>(
        &self,
        header: &Tagged,
        ulpdu: &Ulpdu<'_, O>,
        context: &mut ReceiveContext<'_>,
    ) -> Result<Received, StreamError> {
        let octets = ulpdu.payload_octets();
        let (opcode, memory) = self.check_tagged(header, octets, context.shared, context.stags)?;
        if opcode == Opcode::ReadResponse {
            context.reads.outbound.check_turn(header, octets)?;
        }
        let memory = memory.ok_or(StreamError::Ddp(DdpError::AccessRights))?;
        ulpdu.place(&memory);
        if opcode != Opcode::ReadResponse {
            // The ULP does not see a Write.
            // Requirements: RDMAP-5.1-02
            return Ok(Received::Placed { octets });
        }
        context.reads.outbound.deliver(header.last, octets);
        Ok(if header.last { Received::ResponseCompleted { octets } } else { Received::Placed { octets } })
    }

    /// Checks a tagged segment: the fields of DDP (RFC 5041 §7.1), then RDMAP's version and opcode (RFC 5040
    /// §7.2), then the right that this opcode needs. Returns the opcode and the memory that the payload goes
    /// to, `None` if that right is missing. STag and offset of an empty segment are ignored.
    // Requirements: DDP-5.2-09, DDP-5.2-10, RDMAP-4.1-04, RDMAP-7.2-01 to RDMAP-7.2-03
    fn check_tagged<'t>(
        &self,
        header: &Tagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> Result<(Opcode, Option<Memory<'t>>), StreamError> {
        // The version of DDP is checked first, also in an empty segment.
        // Requirements
        if header.version != self.version {
            return Err(StreamError::Ddp(DdpError::TaggedVersion));
        }
        let opcode = Control::from_octet(header.rsvd_ulp).opcode;
        // A Response writes to the sink of a Read of ours only, which `OutboundReads` checks: the sink needs
        // the right of this end, and none of the peer.
        // Requirements: RDMAP-8.1.1-01
        let access = if opcode == Opcode::ReadResponse { Access::LOCAL_WRITE } else { Access::REMOTE_WRITE };
        let memory = if payload_octets == 0 {
            Some(Memory::none())
        } else {
            // Requirements: DDP-7.1-10 to DDP-7.1-14
            match stags.check(header.stag, shared.accessor(), access, header.to, payload_octets) {
                Ok(target) => Some(Memory::one(target)),
                Err(AccessError::Rights) => None,
                Err(AccessError::InvalidStag) => return Err(StreamError::Ddp(DdpError::InvalidStag)),
                Err(AccessError::NotAssociated) => return Err(StreamError::Ddp(DdpError::NotAssociated)),
                Err(AccessError::Wrap) => return Err(StreamError::Ddp(DdpError::ToWrap)),
                Err(AccessError::Bounds) => return Err(StreamError::Ddp(DdpError::BaseOrBounds)),
            }
        };
        self.check_version(header.rsvd_ulp)?;
        if opcode.is_tagged() {
            Ok((opcode, memory))
        } else {
            Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode))
        }
    }

    /// Returns the memory that a tagged segment is placed in out of order, and whether its Delivery must be
    /// remembered; `None` if it cannot be placed before its turn. A Read Response must lie inside the sink of
    /// one of the outstanding Reads; that it continues the oldest one is checked at its Delivery.
    pub(super) fn tagged_out_of_order<'t>(
        &self,
        header: &Tagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
        outbound: &OutboundReads,
    ) -> Option<(Memory<'t>, bool)> {
        let (opcode, memory) = self.check_tagged(header, payload_octets, shared, stags).ok()?;
        let response = opcode == Opcode::ReadResponse;
        if response && payload_octets > 0 && !outbound.has_sink(header, payload_octets) {
            return None;
        }
        Some((memory?, response))
    }
}
