//! Terminate Messages for errors (RFC 5040 §4.8, §7.1).

use arrayvec::ArrayVec;

use super::error::StreamError;
use super::receiver::Fault;
use crate::limits;
use crate::mpa::startup::Agreement;
use crate::mpa::{Framing, MpaError, fpdu};
use crate::rdmap::{self, RdmapError, layer};
use crate::wire::ddp::Untagged;
use crate::wire::rdmap::Terminate;

/// The Terminate that reports `error` to the peer; `None` if nothing is to be sent: TCP has failed, or the
/// peer has sent a Terminate. It contains length and header of the segment in error where they are known.
// Requirements: RDMAP-4.8-04, RDMAP-7.1-02
pub fn message(
    error: StreamError,
    fault: Option<&Fault>,
) -> Option<ArrayVec<u8, { limits::TERMINATE_BYTES }>> {
    let (layer, error_type, code, names_segment) = match error {
        StreamError::Tcp(_) | StreamError::NoFpdu | StreamError::Terminated { .. } => return None,
        // Errors of the lower layer carry no headers.
        // Requirements: RDMAP-4.8-04
        StreamError::Mpa(error) => (layer::LLP, 0, error.code(), false),
        // The peer learns only that this stream is over.
        StreamError::CompletionQueueOverflow => {
            let error = RdmapError::CatastrophicStream;
            (layer::RDMAP, error.error_type(), error.code(), false)
        }
        StreamError::Ddp(error) => (layer::DDP, error.error_type(), error.code(), error.error_type() != 0),
        StreamError::Rdmap(error) => {
            (layer::RDMAP, error.error_type(), error.code(), error.error_type() != 0)
        }
    };
    let bare = Terminate::bare(layer, error_type, code);
    let terminate = match fault.filter(|fault| names_segment && fault.header_octets > 0) {
        Some(fault) => Terminate {
            segment_len: Some(fault.segment_octets),
            ddp_header: &fault.header[..usize::from(fault.header_octets)],
            rdma_header: fault.read_request.as_ref().map_or(&[], |header| &header[..]),
            ..bare
        },
        None => bare,
    };
    let mut octets = ArrayVec::from([0; limits::TERMINATE_BYTES]);
    let len = terminate.emit(&mut octets);
    octets.truncate(len);
    Some(octets)
}

/// The Terminate that reports `error` to the Responder before anything else was sent, as the only FPDU of its
/// connection.
// Requirements: MPAv2-9.1-07, MPAv2-9.2-08, MPAv2-9.3-01
pub fn only_fpdu(error: MpaError, agreement: Agreement) -> ArrayVec<u8, ONLY_FPDU_OCTETS> {
    let message = message(StreamError::Mpa(error), None).unwrap_or_default();
    let segments = rdmap::message::terminate(agreement.version, message.len() as u32);
    let (segment, _) = segments.segment(0, fpdu::MULPDU_MIN);
    let mut header = [0; Untagged::LEN];
    let header_octets = segment.emit(&mut header);
    let header = &header[..header_octets];
    let framing = Framing { markers: agreement.markers_sent, crc: agreement.crc };
    let len = fpdu::wire_len(0, header.len() + message.len(), framing.markers);
    let mut out = ArrayVec::from([0; ONLY_FPDU_OCTETS]);
    out.truncate(len);
    let built = fpdu::encode(&mut out, 0, framing, header, message.len(), |at, out| {
        message.get(at..at + out.len()).is_some_and(|octets| {
            out.copy_from_slice(octets);
            true
        })
    });
    debug_assert!(built, "{len} octets are too few");
    out
}

/// Octets of a Terminate that names no segment, as an FPDU with a Marker before it.
const ONLY_FPDU_OCTETS: usize = 4 + 2 + Untagged::LEN + Terminate::CONTROL_LEN + fpdu::CRC_LEN;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::DdpError;
    use crate::tcp::CloseReason;

    fn fault(header_octets: u8) -> Fault {
        Fault {
            error: StreamError::Ddp(DdpError::BaseOrBounds),
            segment_octets: 1514,
            header: core::array::from_fn::<u8, { Untagged::LEN }, _>(|n| n as u8),
            header_octets,
            read_request: None,
        }
    }

    /// The fields of RFC 5040 figure 10, octet by octet.
    // Requirements: RDMAP-4.8-02, RDMAP-4.8-04
    #[test]
    fn says_what_the_figure_says() {
        let bytes = |error, fault: Option<&Fault>| message(error, fault).unwrap().to_vec();
        assert_eq!(bytes(StreamError::Mpa(MpaError::Crc), Some(&fault(14))), [0x20, 2, 0, 0]);
        let mut expected = vec![0x11, 1, 0xc0, 0, 0x05, 0xea];
        expected.extend(0..14);
        assert_eq!(bytes(StreamError::Ddp(DdpError::BaseOrBounds), Some(&fault(14))), expected);
        let mut expected = vec![0x02, 6, 0xc0, 0, 0x05, 0xea];
        expected.extend(0..18);
        assert_eq!(bytes(StreamError::Rdmap(RdmapError::UnexpectedOpcode), Some(&fault(18))), expected);
        assert_eq!(bytes(StreamError::Ddp(DdpError::LocalCatastrophic), Some(&fault(0))), [0x10, 0, 0, 0]);
    }

    #[test]
    fn some_errors_are_not_told() {
        assert!(message(StreamError::Tcp(CloseReason::Reset), None).is_none());
        let terminated = StreamError::Terminated { layer: 1, error_type: 1, code: 0 };
        assert!(message(terminated, None).is_none());
    }
}
