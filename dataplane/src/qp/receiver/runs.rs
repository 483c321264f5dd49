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
use crate::wire::ddp::{Header, Tagged, Untagged};
use crate::wire::rdmap::{Control, Opcode};

impl Receiver {
    /// Checks and places the segment of an RDMA Write in `ulpdu`, the next in stream order. Returns the
    /// octets of its payload; `None`, and nothing has changed, if it is anything else, or not valid.
    #[inline]
    pub fn on_write(&self, ulpdu: &[u8], shared: &SharedQp, stags: &StagTable) -> Option<usize> {
        let header = Tagged::parse(ulpdu)?;
        let payload = ulpdu.get(Tagged::LEN..)?;
        let target = self.check_write(&header, payload.len(), shared, stags)?;
        target.write(0, payload).then_some(payload.len())
    }

    /// [`on_write`](Self::on_write) of a segment that Markers cut.
    pub fn on_cut_write(&self, ulpdu: &CutUlpdu<'_>, shared: &SharedQp, stags: &StagTable) -> Option<usize> {
        let header = Tagged::parse(&ulpdu.first_octets::<{ Tagged::LEN }>()?)?;
        let payload_octets = ulpdu.octets() - Tagged::LEN;
        let target = self.check_write(&header, payload_octets, shared, stags)?;
        write_pieces(&target, ulpdu, Tagged::LEN).then_some(payload_octets)
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
                let header = ulpdu.first_chunk()?;
                let write = |target: &Target<'_>, from: usize| target.write(0, &ulpdu[from..]);
                self.continue_message(header, ulpdu.len(), (shared, stags, outbound), write)
            }
            whole::Ulpdu::Cut(ulpdu) => {
                let header = ulpdu.first_octets()?;
                let write = |target: &Target<'_>, from| write_pieces(target, ulpdu, from);
                self.continue_message(&header, ulpdu.octets(), (shared, stags, outbound), write)
            }
        }
    }

    /// Takes a segment of `ulpdu_octets` octets that begins with `header`, if it continues a message; `write`
    /// writes its payload from that octet of it on.
    #[inline]
    fn continue_message(
        &mut self,
        header: &[u8; Header::MAX_LEN],
        ulpdu_octets: usize,
        (shared, stags, outbound): (&SharedQp, &StagTable, &mut OutboundReads),
        write: impl FnOnce(&Target<'_>, usize) -> bool,
    ) -> Option<usize> {
        if let Some(tagged) = Tagged::parse(header) {
            let octets = ulpdu_octets - Tagged::LEN;
            let target = self.check_response(&tagged, octets, shared, stags, outbound)?;
            write(&target, Tagged::LEN).then_some(())?;
            outbound.deliver(false, octets);
            return Some(octets);
        }
        let octets = ulpdu_octets - Untagged::LEN;
        let current = self.current.as_mut()?;
        let to = current.continued_by(header, octets)?;
        let local = Access::LOCAL_WRITE;
        let target = stags.check(to.stag, shared.accessor(), local, to.to, octets).ok()?;
        write(&target, Untagged::LEN).then_some(())?;
        current.placed += octets as u32;
        Some(octets)
    }

    /// Returns the memory of a segment in the middle of the Read Response under way; `None` if it is anything
    /// else, or not valid.
    #[inline]
    fn check_response<'t>(
        &self,
        header: &Tagged,
        octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
        outbound: &OutboundReads,
    ) -> Option<Target<'t>> {
        let control = Control::from_octet(header.rsvd_ulp);
        let is_next = control.opcode == Opcode::ReadResponse
            && self.expects(header.version, control)
            && !header.last
            && octets > 0
            && outbound.check_turn(header, octets).is_ok();
        if !is_next {
            return None;
        }
        stags.check(header.stag, shared.accessor(), Access::LOCAL_WRITE, header.to, octets).ok()
    }

    /// Returns true if a segment with these versions is of this stream, and no indication is expected.
    #[inline]
    pub(super) const fn expects(&self, version: u8, control: Control) -> bool {
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
