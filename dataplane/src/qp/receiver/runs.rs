//! Segments that come in runs: those of RDMA Writes, and those in the middle of a Send or a Read Response.
//! They are nearly all segments of large messages, and neither begin nor end anything, so each is a few
//! comparisons and the copy of its payload.
//!
//! Everything else, and what is not valid, is left to [`Receiver::on_ulpdu`], which says why; for a segment
//! that is taken here, it would place the same octets and change the same fields.

use super::Receiver;
use crate::memory::{Access, StagTable, Target};
use crate::mpa::whole::{self, CutUlpdu};
use crate::qp::reads::OutboundReads;
use crate::qp::shared::SharedQp;
use crate::rdmap::message::SEND_QUEUE;
use crate::wire::ddp::{Header, Tagged};
use crate::wire::rdmap::{Control, Opcode};

impl Receiver {
    /// Checks and places the segment of an RDMA Write in `ulpdu`, the next in stream order. Returns the octets
    /// of its payload; `None`, and nothing has changed, if it is anything else, or not valid.
    #[inline]
    pub fn on_write(&self, ulpdu: &whole::Ulpdu<'_>, shared: &SharedQp, stags: &StagTable) -> Option<usize> {
        match ulpdu {
            whole::Ulpdu::InOnePiece(ulpdu) => {
                let header = Tagged::parse(ulpdu)?;
                let payload = ulpdu.get(Tagged::LEN..)?;
                let target = self.check_write(&header, payload.len(), shared, stags)?;
                target.write(0, payload).then_some(payload.len())
            }
            whole::Ulpdu::Cut(ulpdu) => {
                let header = Tagged::parse(&ulpdu.first_octets::<{ Tagged::LEN }>()?)?;
                let payload_octets = ulpdu.octets() - Tagged::LEN;
                let target = self.check_write(&header, payload_octets, shared, stags)?;
                write_pieces(&target, ulpdu, Tagged::LEN).then_some(payload_octets)
            }
        }
    }

    /// Returns the memory of an RDMA Write of `payload_octets` octets, as `check_tagged` does; `None` if it
    /// is anything else, has no payload, or is not valid.
    #[inline]
    fn check_write<'t>(
        &self,
        header: &Tagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> Option<Target<'t>> {
        let control = Control::from_octet(header.rsvd_ulp);
        if payload_octets == 0 || control.opcode != Opcode::Write || !self.expects(header.version, control) {
            return None;
        }
        stags.check(header.stag, shared.accessor(), Access::REMOTE_WRITE, header.to, payload_octets).ok()
    }

    /// Checks, places and delivers the segment in `ulpdu`, the next in stream order, if it continues the Send
    /// or the Read Response under way and is not its last. Returns the octets of its payload; `None`, and
    /// nothing has changed, if it is anything else, or not valid.
    #[inline]
    pub fn on_middle(
        &mut self,
        ulpdu: &whole::Ulpdu<'_>,
        shared: &SharedQp,
        stags: &StagTable,
        outbound: &mut OutboundReads,
    ) -> Option<usize> {
        match ulpdu {
            whole::Ulpdu::InOnePiece(ulpdu) => {
                let (header, header_octets) = Header::parse(ulpdu, ulpdu.len()).ok()?;
                let payload = ulpdu.get(header_octets..)?;
                let target = self.check_middle(&header, payload.len(), shared, stags, outbound)?;
                target.write(0, payload).then_some(())?;
                Some(self.deliver_middle(&header, payload.len(), outbound))
            }
            whole::Ulpdu::Cut(ulpdu) => {
                let prefix = ulpdu.first_octets::<{ Header::MAX_LEN }>()?;
                let (header, header_octets) = Header::parse(&prefix, prefix.len()).ok()?;
                let payload_octets = ulpdu.octets() - header_octets;
                let target = self.check_middle(&header, payload_octets, shared, stags, outbound)?;
                write_pieces(&target, ulpdu, header_octets).then_some(())?;
                Some(self.deliver_middle(&header, payload_octets, outbound))
            }
        }
    }

    /// Returns the memory of a segment that continues a message and does not end it; `None` if it does not,
    /// or is not valid.
    #[inline]
    fn check_middle<'t>(
        &self,
        header: &Header,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
        outbound: &OutboundReads,
    ) -> Option<Target<'t>> {
        let control = Control::from_octet(header.ulp_control());
        if payload_octets == 0 || header.last() || !self.expects(header.version(), control) {
            return None;
        }
        let (stag, to) = match header {
            Header::Tagged(header) => {
                let is_next = control.opcode == Opcode::ReadResponse
                    && outbound.check_turn(header, payload_octets).is_ok();
                is_next.then_some((header.stag, header.to))?
            }
            Header::Untagged(header) => {
                let current = self.current.as_ref()?;
                let is_next = control.opcode.is_send()
                    && header.queue == SEND_QUEUE
                    && header.msn == self.expected_msn
                    && header.mo == current.placed;
                // A buffer of several ranges goes the general way.
                let [buffer] = current.request.local.as_slice() else { return None };
                let fits = payload_octets <= buffer.len.saturating_sub(current.placed) as usize;
                let to = buffer.to.wrapping_add(u64::from(current.placed));
                (is_next && fits).then_some((buffer.stag, to))?
            }
        };
        stags.check(stag, shared.accessor(), Access::LOCAL_WRITE, to, payload_octets).ok()
    }

    /// Delivers a segment that [`check_middle`](Self::check_middle) was asked about and that is placed.
    /// Returns the octets of its payload.
    #[inline]
    fn deliver_middle(&mut self, header: &Header, octets: usize, outbound: &mut OutboundReads) -> usize {
        match (header, &mut self.current) {
            (Header::Tagged(_), _) => outbound.deliver(false, octets),
            (Header::Untagged(_), Some(current)) => current.placed += octets as u32,
            (Header::Untagged(_), None) => debug_assert!(false, "no message is under way"),
        }
        octets
    }

    /// Returns true if a segment with these versions is of this stream, and no indication is expected.
    #[inline]
    const fn expects(&self, version: u8, control: Control) -> bool {
        version == self.version && control.version == self.version && !self.indications.are_due()
    }
}

/// Writes the payload of a segment that Markers cut, which begins after `header_octets`. Returns false if
/// nothing was written.
fn write_pieces(target: &Target<'_>, ulpdu: &CutUlpdu<'_>, header_octets: usize) -> bool {
    let mut placed = 0;
    ulpdu.pieces(header_octets).all(|piece| {
        let written = target.write(placed, piece);
        debug_assert!(written || placed == 0, "all of the segment was checked before");
        placed += piece.len();
        written
    })
}
