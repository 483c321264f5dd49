//! The Tagged model: RDMA Writes of the peer, and its answers to Reads of this end.

use super::ulpdu::{Memory, Ulpdu};
use super::{Reach, Received, Receiver};
use crate::ddp::DdpError;
use crate::memory::{Access, AccessError, StagTable};
use crate::mpa::receiver::Octets;
use crate::qp::error::StreamError;
use crate::qp::reads::Asked;
use crate::qp::shared::SharedQp;
use crate::rdmap::RdmapError;
use crate::wire::ddp::Tagged;
use crate::wire::rdmap::Opcode;

impl Receiver {
    /// Places a segment and delivers it: RDMAP has its header, with STag and what DDP carries for it.
    // DDP-4.2-03, DDP-4.2-07, DDP-5.2-04, DDP-5.4-03
    pub(super) fn on_tagged<O: Octets>(
        &self,
        header: &Tagged,
        ulpdu: &Ulpdu<'_, O>,
        reach: &mut Reach<'_>,
    ) -> Result<Received, StreamError> {
        let octets = ulpdu.payload_octets();
        let opcode = self.tagged_opcode(header)?;
        if opcode == Opcode::ReadResponse {
            reach.reads.asked.check_turn(header, octets)?;
        }
        let memory = self.tagged_memory(opcode, header, octets, reach.shared, reach.stags)?;
        ulpdu.place(&memory);
        if opcode != Opcode::ReadResponse {
            // A Write is not delivered to anybody (RDMAP-5.1-02).
            return Ok(Received::Placed { octets });
        }
        reach.reads.asked.deliver(header.last, octets);
        Ok(if header.last { Received::Answered { octets } } else { Received::Placed { octets } })
    }

    /// the version of DDP comes first, also of an empty segment.
    fn tagged_opcode(&self, header: &Tagged) -> Result<Opcode, StreamError> {
        if header.version != self.version {
            return Err(StreamError::Ddp(DdpError::TaggedVersion));
        }
        Ok(crate::wire::rdmap::Control::from_octet(header.rsvd_ulp).opcode)
    }

    /// The memory a tagged segment goes to. Of an empty one STag and offset are not looked at (DDP-5.2-09, DDP-5.2-10).
    fn tagged_memory<'t>(
        &self,
        opcode: Opcode,
        header: &Tagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> Result<Memory<'t>, StreamError> {
        // RDMAP-8.1.1-01: what a Response may write is what a Read of ours named; the sink need not be open to others.
        let access = if opcode == Opcode::ReadResponse { Access::LOCAL_WRITE } else { Access::REMOTE_WRITE };
        let memory = if payload_octets == 0 {
            Memory::none()
        } else {
            // DDP-7.1-10 to DDP-7.1-14.
            let target = stags.check(header.stag, shared.accessor(), access, header.to, payload_octets);
            Memory::one(target.map_err(|error| match error {
                AccessError::InvalidStag => StreamError::Ddp(DdpError::InvalidStag),
                AccessError::NotAssociated => StreamError::Ddp(DdpError::NotAssociated),
                // DDP has no number for it; RDMAP has (RFC 5040 §4.8).
                AccessError::Rights => StreamError::Rdmap(RdmapError::AccessRights),
                AccessError::Wrap => StreamError::Ddp(DdpError::ToWrap),
                AccessError::Bounds => StreamError::Ddp(DdpError::BaseOrBounds),
            })?)
        };
        self.check_version(header.rsvd_ulp)?;
        // RDMAP-4.1-04, RDMAP-7.2-02.
        if opcode.is_tagged() { Ok(memory) } else { Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode)) }
    }

    /// The memory that a tagged segment goes to before its turn, and whether its Delivery must be remembered. The answers to
    /// Reads come in their order, so which Read an answer belongs to is checked in its turn; that it is one of those that
    /// wait, here.
    pub(super) fn early_tagged<'t>(
        &self,
        header: &Tagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
        asked: &Asked,
    ) -> Option<(Memory<'t>, bool)> {
        let opcode = self.tagged_opcode(header).ok()?;
        let response = opcode == Opcode::ReadResponse;
        if response && payload_octets > 0 && !asked.has_sink(header, payload_octets) {
            return None;
        }
        let memory = self.tagged_memory(opcode, header, payload_octets, shared, stags).ok()?;
        Some((memory, response))
    }
}
