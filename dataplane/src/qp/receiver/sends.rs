//! The queue of Sends: messages into posted buffers, and Immediate Data, which completes one without touching
//! it.

use super::current::Current;
use super::ulpdu::{Memory, Ulpdu};
use super::{ReceiveContext, Received, Receiver};
use crate::ddp::DdpError;
use crate::memory::{Access, Invalidation, StagTable};
use crate::mpa::receiver::Octets;
use crate::qp::error::StreamError;
use crate::qp::shared::SharedQp;
use crate::qp::work::{Completion, ReceiveRequest, Status};
use crate::rdmap::RdmapError;
use crate::wire::ddp::Untagged;
use crate::wire::rdmap::{Control, IMMEDIATE_OCTETS, Opcode};

impl Receiver {
    pub(super) fn on_send<O: Octets>(
        &mut self,
        header: &Untagged,
        ulpdu: &Ulpdu<'_, O>,
        context: &mut ReceiveContext<'_>,
    ) -> Result<Received, StreamError> {
        let octets = ulpdu.payload_octets();
        self.check_queue(header).map_err(StreamError::Ddp)?;
        // A message with another MSN is refused below, and needs no buffer.
        if header.msn == self.expected_msn {
            self.provide(context.shared, 1).inspect_err(|_| context.shared.completions_overflow())?;
        }
        if Control::from_octet(header.rsvd_ulp[0]).opcode.is_immediate() {
            return self.on_immediate(header, ulpdu, context);
        }
        let current = self.in_turn(header, octets).map_err(StreamError::Ddp)?;
        self.place_send(&current, header, ulpdu, context)?;
        self.deliver(context.shared, context.stags, current, header, octets)?;
        Ok(Received::Placed { octets })
    }

    /// Places the next segment of a message.
    fn place_send<O: Octets>(
        &mut self,
        current: &Current,
        header: &Untagged,
        ulpdu: &Ulpdu<'_, O>,
        context: &ReceiveContext<'_>,
    ) -> Result<(), StreamError> {
        let (octets, shared) = (ulpdu.payload_octets(), context.shared);
        let Some(memory) = Self::buffer_memory(&current.request, header.mo, octets, shared, context.stags)
        else {
            // The application's buffer is not accessible. That is not the peer's fault, but there is no other
            // buffer.
            self.bad_buffer = true;
            return Err(StreamError::Ddp(DdpError::LocalCatastrophic));
        };
        self.check_send(header)?;
        ulpdu.place(&memory);
        Ok(())
    }

    /// RFC 5040 §7.2: the version, and an opcode that is valid on this queue.
    // Requirements: RDMAP-4.1-04, RDMAP-7.2-02
    pub(super) fn check_send(&self, header: &Untagged) -> Result<(), StreamError> {
        let control = self.check_version(header.rsvd_ulp[0])?;
        if control.opcode.is_send() { Ok(()) } else { Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode)) }
    }

    /// The message that an untagged segment continues or begins. In stream order only the expected MSN is
    /// acceptable (ambiguity A-15).
    pub(super) fn in_turn(&self, header: &Untagged, payload_octets: usize) -> Result<Current, DdpError> {
        // Requirements: DDP-7.1-05
        if header.msn != self.expected_msn {
            return Err(DdpError::MsnRange);
        }
        // An empty message needs a buffer too. A missing buffer is an error that ends the stream, so there is
        // at most one per stream.
        // Requirements: DDP-7.1-02, DDP-7.1-06, DDP-7.1-08, RDMAP-5.3-06
        let current = match self.current {
            Some(current) => current,
            None => match self.buffers.front() {
                Some(&request) => Current::new(request, header),
                None => return Err(DdpError::NoBuffer),
            },
        };
        // The peer sends the segments of a message in the order of their offsets, and TCP keeps the order: in
        // stream order any offset but the next is an error, even one inside the buffer. A message that is
        // Delivered is therefore complete, though RFC 5041 §5.2 does not ask the receiver to check that. It
        // may be shorter than the buffer, or empty, but not longer.
        // Requirements: DDP-5.2-11, DDP-7.1-03, DDP-7.1-04, RDMAP-5.3-02, RDMAP-5.3-05
        let buffer_octets = current.request.longest_message();
        if u64::from(header.mo) > buffer_octets || header.mo != current.placed {
            return Err(DdpError::InvalidOffset);
        }
        if payload_octets as u64 > buffer_octets - u64::from(header.mo) {
            return Err(DdpError::TooLong);
        }
        Ok(current)
    }

    /// The memory of a posted buffer for `payload_octets` octets from `mo`; `None` if the application may not
    /// write it.
    pub(super) fn buffer_memory<'t>(
        request: &ReceiveRequest,
        mo: u32,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> Option<Memory<'t>> {
        let mut memory = Memory::none();
        for (at, part) in request.local.parts(u64::from(mo), payload_octets) {
            let octets = part.len as usize;
            let target = stags.check(part.stag, shared.accessor(), Access::LOCAL_WRITE, part.to, octets);
            memory.0.push((at, target.ok()?));
        }
        Some(memory)
    }

    /// Delivers a segment that is placed: everything before it is placed and delivered. RDMAP gets the header
    /// with its own fields in it; those of the last segment count for the message.
    ///
    /// # Errors
    ///
    /// If the message invalidates an STag that cannot be invalidated.
    // Requirements: DDP-1-02, DDP-4.1-07, DDP-5.3-06, DDP-5.3-07, DDP-5.4-01, RDMAP-5.5-02
    pub(super) fn deliver(
        &mut self,
        shared: &SharedQp,
        stags: &mut StagTable,
        mut current: Current,
        header: &Untagged,
        payload_octets: usize,
    ) -> Result<(), StreamError> {
        if self.current.is_none() {
            self.buffers.pop_front();
        }
        current.placed += payload_octets as u32;
        self.current = Some(current);
        if !header.last {
            return Ok(());
        }
        // Requirements: DDP-4.3-03, DDP-4.3-05, DDP-5.4-03
        let (control, invalidated) = Control::from_rsvd_ulp(header.rsvd_ulp);
        if let Some(stag) = invalidated {
            // RDMAP-5.3-08, RDMAP-7.2-04, A-17.
            let done = stags.invalidate(stag, shared.accessor(), Invalidation::Remote);
            done.map_err(|_| StreamError::Rdmap(RdmapError::CannotInvalidate))?;
        }
        // In stream order, the last segment of the oldest message is its Delivery.
        // Requirements: DDP-5.4-01, DDP-5.4-02
        self.current = None;
        self.expected_msn = self.expected_msn.wrapping_add(1);
        shared.complete_receive(Completion {
            invalidated,
            solicited: control.opcode.solicits_event(),
            ..current.request.completion(shared.number, Status::Success, current.placed)
        });
        Ok(())
    }

    /// Immediate Data completes a receive of any length and does not touch its buffer.
    // Requirements: RDMAPX-6-01
    fn on_immediate<O: Octets>(
        &mut self,
        header: &Untagged,
        ulpdu: &Ulpdu<'_, O>,
        context: &ReceiveContext<'_>,
    ) -> Result<Received, StreamError> {
        let octets = ulpdu.payload_octets();
        if header.msn != self.expected_msn {
            return Err(StreamError::Ddp(DdpError::MsnRange));
        }
        let Some(request) = self.buffers.front().copied().filter(|_| self.current.is_none()) else {
            let error = if self.current.is_some() { DdpError::InvalidOffset } else { DdpError::NoBuffer };
            return Err(StreamError::Ddp(error));
        };
        if header.mo != 0 {
            return Err(StreamError::Ddp(DdpError::InvalidOffset));
        }
        let opcode = self.check_version(header.rsvd_ulp[0])?.opcode;
        if octets != IMMEDIATE_OCTETS || !header.last {
            return Err(StreamError::Rdmap(RdmapError::UnspecifiedOperation));
        }
        self.buffers.pop_front();
        self.expected_msn = self.expected_msn.wrapping_add(1);
        context.shared.complete_receive(Completion {
            immediate: Some(ulpdu.immediate()),
            solicited: opcode == Opcode::ImmediateDataWithSolicitedEvent,
            ..request.completion(context.shared.number, Status::Success, 0)
        });
        Ok(Received::Placed { octets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::STag;
    use crate::qp::work::{Slice, SliceList};
    use crate::rdmap::message::SEND_QUEUE;

    /// A message ends at 2^32 - 1 octets even in a longer buffer.
    // Requirements: DDP-5.2-02, DDP-7.1-04
    #[test]
    fn no_message_outgrows_its_offsets() {
        let part = Slice { stag: STag::new(1, 0), to: 0, len: u32::MAX };
        let request = ReceiveRequest::new(7, SliceList::try_from(&[part, part][..]).unwrap());
        let mut receiver = Receiver::new(1);
        receiver.buffers.push_back(request);
        let mo = u32::MAX - 4;
        let header =
            Untagged { last: false, version: 1, rsvd_ulp: [0x43, 0, 0, 0, 0], queue: SEND_QUEUE, msn: 1, mo };
        let mut current = Current::new(request, &header);
        current.placed = mo;
        receiver.current = Some(current);
        assert_eq!(receiver.in_turn(&header, 4).map(|current| current.placed), Ok(mo));
        assert_eq!(receiver.in_turn(&header, 5).map(|current| current.placed), Err(DdpError::TooLong));
    }
}
