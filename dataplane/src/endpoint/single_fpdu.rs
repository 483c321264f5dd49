//! Segments that are one FPDU, whose payload is copied from registered memory or referred to.

use crate::device::Frame;
use crate::limits;
use crate::memory::Target;
use crate::mpa::Framing;
use crate::mpa::encode::{ConstantPayload, FpduWriter, PayloadIn};
use crate::mpa::fpdu;
use crate::qp::run::{FpduDescriptor, Source};
use crate::statistics::Statistics;
use crate::tcp::send_queue::Segment;
use crate::wire::ddp;

use super::build::FpduSources;
use super::chunk::Chunk;

/// An FPDU that has a segment of its own, and whose payload is copied from registered memory.
pub(super) struct SingleFpdu<'e> {
    header: ddp::Header,
    payload: Target<'e>,
    /// Where it begins in the stream of Full Operation.
    position: u64,
    framing: Framing,
}

impl<'e> SingleFpdu<'e> {
    /// Returns the FPDU of `segment`, if it is the usual one: the only one of its segment, not cut, its
    /// payload copied from registered memory.
    #[inline]
    pub(super) fn of(sources: FpduSources<'e>, segment: &Segment<Chunk>, by_reference: bool) -> Option<Self> {
        let Chunk::Fpdus(run) = &segment.payload else { return None };
        let FpduSources { operating, qp, stags } = sources;
        if run.fpdus() > 1 || run.octets != segment.octets || run.first_octets == 0 {
            return None;
        }
        let FpduDescriptor { header, source: Source::Memory(slice), .. } =
            qp.sender.first_of(run, &qp.reads)?
        else {
            return None;
        };
        let payload = stags.retained(slice.stag, slice.to, slice.len as usize)?;
        if by_reference && !operating.markers_sent && payload.constant().is_some() {
            return None;
        }
        let position = operating.position_of(segment.seq);
        Some(Self { header, payload, position, framing: operating.send_framing() })
    }

    /// Builds the FPDU in `out`, of which it takes all. Returns false if that is another length.
    #[inline]
    pub(super) fn build(self, out: &mut [u8], statistics: &mut Statistics) -> bool {
        let payload_octets = self.payload.octets();
        let mut writer = FpduWriter::new(out, self.position, self.framing);
        let built = writer.push_segment(&self.header, self.payload) && writer.is_full();
        statistics.fpdus_sent += 1;
        statistics.bytes_copied_tx += payload_octets as u64;
        built
    }
}

/// An FPDU whose payload a frame may refer to.
pub(super) struct Reference<'e> {
    header: ddp::Header,
    payload: ConstantPayload<'e>,
    crc: bool,
}

impl<'e> Reference<'e> {
    /// Returns the FPDU of `segment`, if its payload may go by reference: one complete FPDU, without Markers,
    /// long enough that a reference costs less than a copy, and from constant memory.
    ///
    /// A device reads what a frame refers to when it sends the frame: after the CRC was computed, and perhaps
    /// after the peer's acknowledgement of an earlier copy has completed the request. Memory that the
    /// application, a peer or another of our requests can still write to would go out with a CRC that does
    /// not fit, or show the peer data that was never meant for it. RFC 5040 §5.5 (8) leaves the contents
    /// indeterminate in such a case, not the stream. So all other memory is copied, and the CRC computed over
    /// the copy.
    pub(super) fn of(sources: FpduSources<'e>, segment: &Segment<Chunk>) -> Option<Self> {
        let Chunk::Fpdus(run) = &segment.payload else { return None };
        let FpduSources { operating, qp, stags } = sources;
        // The segment has the first FPDU only: others after it would make it longer.
        let is_entire = segment.skip == 0
            && segment.octets as usize == fpdu::wire_len(0, run.first_ulpdu_octets(), false)
            && !operating.markers_sent;
        if !is_entire || run.first_octets < limits::BY_REFERENCE_MIN_BYTES {
            return None;
        }
        let FpduDescriptor { header, source: Source::Memory(slice), .. } =
            qp.sender.first_of(run, &qp.reads)?
        else {
            return None;
        };
        let target = stags.retained(slice.stag, slice.to, slice.len as usize)?;
        let (region, offset) = target.region();
        let payload = ConstantPayload { octets: target.constant()?, region, offset };
        Some(Self { header, payload, crc: operating.crc })
    }

    /// Builds the FPDU, after room for `headers` octets. Returns false if a part of it cannot be had.
    pub(super) fn write<F: Frame>(&self, headers: usize, frame: &mut F, statistics: &mut Statistics) -> bool {
        let mut header = [0; ddp::Untagged::LEN];
        let header_octets = self.header.emit(&mut header);
        let payload_in = self.payload.append_fpdu(frame, headers, &header[..header_octets], self.crc);
        statistics.fpdus_sent += u64::from(payload_in.is_some());
        if payload_in == Some(PayloadIn::Copy) {
            statistics.bytes_copied_tx += self.payload.octets.len() as u64;
        }
        payload_in.is_some()
    }
}
