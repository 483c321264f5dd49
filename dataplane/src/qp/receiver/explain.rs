//! Why a segment is refused: the checks in the order of the RFCs. DDP's header and buffer come first (RFC
//! 5041 §7.1), then RDMAP's version and opcode (RFC 5040 §7.2).

use super::message::Memory;
use super::{ReceiveContext, Receiver};
use crate::ddp::DdpError;
use crate::memory::{Access, AccessError, StagTable, Target};
use crate::qp::error::StreamError;
use crate::qp::shared::SharedQp;
use crate::rdmap::RdmapError;
use crate::rdmap::message::{ATOMIC_RESPONSE_QUEUE, READ_REQUEST_QUEUE, SEND_QUEUE, TERMINATE_QUEUE};
use crate::wire::ddp::{Tagged, Untagged};
use crate::wire::rdmap::{Control, IMMEDIATE_OCTETS, Opcode};

impl Receiver {
    /// Returns the fault of a tagged segment that was not placed.
    pub(super) fn explain_tagged(
        &self,
        header: &Tagged,
        payload_octets: usize,
        context: &ReceiveContext<'_>,
    ) -> StreamError {
        let checked = self.check_tagged(header, payload_octets, context.shared, context.stags);
        match checked {
            Err(error) => error,
            Ok((Opcode::ReadResponse, _))
                if let Err(error) = context.reads.outbound.check_turn(header, payload_octets) =>
            {
                error
            }
            Ok((_, target)) => {
                debug_assert!(target.is_err(), "a segment without a fault was refused");
                StreamError::Ddp(DdpError::AccessRights)
            }
        }
    }

    /// Checks a tagged segment: the fields of DDP (RFC 5041 §7.1), then RDMAP's version and opcode (RFC 5040
    /// §7.2). Returns the opcode and the memory that the payload goes to, if it has any; an error instead of
    /// it if the right that this opcode needs is missing, which is the last check. STag and offset of an
    /// empty segment are ignored.
    // Requirements: DDP-5.2-09, DDP-5.2-10, RDMAP-4.1-04, RDMAP-7.2-01 to RDMAP-7.2-03
    pub(super) fn check_tagged<'t>(
        &self,
        header: &Tagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> Result<(Opcode, Result<Option<Target<'t>>, AccessError>), StreamError> {
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
            Ok(None)
        } else {
            // Requirements: DDP-7.1-10 to DDP-7.1-14
            match stags.check(header.stag, shared.accessor(), access, header.to, payload_octets) {
                Ok(target) => Ok(Some(target)),
                Err(error @ AccessError::Rights) => Err(error),
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

    /// Returns the fault of a segment on the queue of Sends, or on none, that passes all other checks: the
    /// STag of the last segment of a message, which was placed.
    // Requirements: RDMAP-7.2-04, A-17
    pub(super) fn refused_invalidation(&self, header: &Untagged) -> StreamError {
        let (_, invalidated) = Control::from_rsvd_ulp(header.rsvd_ulp);
        debug_assert!(
            header.last && self.message.begun && invalidated.is_some(),
            "a segment without a fault was refused"
        );
        StreamError::Rdmap(RdmapError::CannotInvalidate)
    }

    /// Makes the checks of a segment on the queue of Sends, or on none, but for the invalidation.
    pub(super) fn check_untagged(
        &mut self,
        header: &Untagged,
        payload_octets: usize,
        context: &ReceiveContext<'_>,
    ) -> Result<(), StreamError> {
        self.check_queue(header).map_err(StreamError::Ddp)?;
        // A message with another MSN is refused below, and needs no buffer.
        if header.msn == self.expected_msn {
            self.provide(context.shared, 1).inspect_err(|_| context.shared.completions_overflow())?;
        }
        if Control::from_octet(header.rsvd_ulp[0]).opcode.is_immediate() {
            return self.check_immediate(header, payload_octets, context.shared);
        }
        self.check_next(header, payload_octets, context.shared).map_err(StreamError::Ddp)?;
        let (request, stags) = (self.receive_of(context.shared, 0), &*context.stags);
        let may_write = request.is_some_and(|request| {
            Memory::none().add_receive(&request, header.mo, payload_octets, context.shared, stags)
        });
        if !may_write {
            // The application's buffer is not accessible. That is not the peer's fault, but there is no other
            // buffer.
            self.bad_buffer = true;
            return Err(StreamError::Ddp(DdpError::LocalCatastrophic));
        }
        self.check_send(header)
    }

    /// Checks that an untagged segment continues or begins the next message. In stream order only the
    /// expected MSN is acceptable (ambiguity A-15), and only the next offset.
    pub(super) fn check_next(
        &self,
        header: &Untagged,
        payload_octets: usize,
        shared: &SharedQp,
    ) -> Result<(), DdpError> {
        // Requirements: DDP-7.1-05
        if header.msn != self.expected_msn {
            return Err(DdpError::MsnRange);
        }
        // A missing buffer is an error that ends the stream, so there is at most one per stream.
        // Requirements: DDP-7.1-02, DDP-7.1-06, DDP-7.1-08, RDMAP-5.3-06
        let Some(request) = self.receive_of(shared, 0) else { return Err(DdpError::NoBuffer) };
        // Requirements: DDP-5.2-11, DDP-7.1-03, DDP-7.1-04, RDMAP-5.3-02, RDMAP-5.3-05
        let buffer_octets = request.longest_message();
        if u64::from(header.mo) > buffer_octets || header.mo != self.message.placed {
            return Err(DdpError::InvalidOffset);
        }
        if payload_octets as u64 > buffer_octets - u64::from(header.mo) {
            return Err(DdpError::TooLong);
        }
        Ok(())
    }

    fn check_immediate(
        &self,
        header: &Untagged,
        payload_octets: usize,
        shared: &SharedQp,
    ) -> Result<(), StreamError> {
        if header.msn != self.expected_msn {
            return Err(StreamError::Ddp(DdpError::MsnRange));
        }
        if self.message.begun {
            return Err(StreamError::Ddp(DdpError::InvalidOffset));
        }
        if self.receive_of(shared, 0).is_none() {
            return Err(StreamError::Ddp(DdpError::NoBuffer));
        }
        if header.mo != 0 {
            return Err(StreamError::Ddp(DdpError::InvalidOffset));
        }
        self.check_version(header.rsvd_ulp[0])?;
        if payload_octets != IMMEDIATE_OCTETS || !header.last {
            return Err(StreamError::Rdmap(RdmapError::UnspecifiedOperation));
        }
        Ok(())
    }

    /// RFC 5040 §7.2: the version, and an opcode that is valid on the queue of Sends.
    // Requirements: RDMAP-4.1-04, RDMAP-7.2-02
    pub(super) fn check_send(&self, header: &Untagged) -> Result<(), StreamError> {
        let control = self.check_version(header.rsvd_ulp[0])?;
        if control.opcode.is_send() { Ok(()) } else { Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode)) }
    }

    /// RFC 5040 §7.2: the version of RDMAP.
    // Requirements: RDMAP-7.2-03
    pub(super) fn check_version(&self, control: u8) -> Result<Control, StreamError> {
        let control = Control::from_octet(control);
        if control.version == self.version {
            Ok(control)
        } else {
            Err(StreamError::Rdmap(RdmapError::InvalidVersion))
        }
    }

    /// DDP-4.1-09, DDP-4.1-10, DDP-7.1-01, A-13, A-30: version, then queue; MSN, offset and length come
    /// later.
    pub(super) fn check_queue(&self, header: &Untagged) -> Result<(), DdpError> {
        if header.version != self.version {
            return Err(DdpError::UntaggedVersion);
        }
        match header.queue {
            SEND_QUEUE | READ_REQUEST_QUEUE | TERMINATE_QUEUE | ATOMIC_RESPONSE_QUEUE => Ok(()),
            _ => Err(DdpError::InvalidQueue),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::{ProtectionDomainId, STag};
    use crate::qp::doorbells::Doorbells;
    use crate::qp::shared::{CompletionRing, CompletionRings, QueueDepths};
    use crate::qp::work::{QpNumber, ReceiveRequest, Slice, SliceList};

    /// A message ends at 2^32 - 1 octets even in a longer buffer.
    // Requirements: DDP-5.2-02, DDP-7.1-04
    #[test]
    fn no_message_outgrows_its_offsets() {
        let part = Slice { stag: STag::new(1, 0), to: 0, len: u32::MAX };
        let mut receiver = Receiver::new();
        receiver.message.request = ReceiveRequest::new(7, SliceList::try_from(&[part, part][..]).unwrap());
        receiver.message.begun = true;
        receiver.message.placed = u32::MAX - 4;
        let rings = CompletionRings::shared(Arc::new(CompletionRing::new(1)));
        let depths = QueueDepths { send: 1, receive: 1 };
        let (pd, bells) = (ProtectionDomainId(1), Arc::new(Doorbells::new(1)));
        let shared = SharedQp::new(QpNumber(1), pd, depths, rings, bells);
        let mo = u32::MAX - 4;
        let header =
            Untagged { last: false, version: 1, rsvd_ulp: [0x43, 0, 0, 0, 0], queue: SEND_QUEUE, msn: 1, mo };
        assert_eq!(receiver.check_next(&header, 4, &shared), Ok(()));
        assert_eq!(receiver.check_next(&header, 5, &shared), Err(DdpError::TooLong));
    }
}
