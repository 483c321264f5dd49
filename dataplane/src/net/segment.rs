//! TCP segments in: the checksum and the header.

use std::net::SocketAddr;

use super::ip::Packet;
use crate::device::partial_checksum::is_partial;
use crate::device::{ChecksumStatus, Frame};
use crate::drops::DropCause;
use crate::wire::checksum::{self, Sum};
use crate::wire::flow::Flow;
use crate::wire::ipv4::Protocol;
use crate::wire::segment::Segment;
use crate::wire::tcp::Header;

/// Returns the TCP segment in a packet. RDMA options have the kind `rdma_option_kind`.
///
/// # Errors
///
/// [`DropCause::TcpChecksum`], [`DropCause::PartialChecksum`], [`DropCause::Malformed`].
#[inline]
pub(super) fn receive<F: Frame>(
    frame: &F,
    packet: &Packet,
    rdma_option_kind: u8,
) -> Result<(Segment, Header), DropCause> {
    let segment_octets = packet.end - packet.transport;
    match frame.checksums().tcp {
        _ if packet.ingress.is_verified() => {}
        ChecksumStatus::Good => {}
        ChecksumStatus::Unknown if checksum_holds(frame, packet, segment_octets) => {}
        ChecksumStatus::Bad | ChecksumStatus::Unknown => return Err(checksum_fault(frame)),
    }
    let first = frame.piece(0).unwrap_or_default();
    let head = first.get(packet.transport..packet.end.min(first.len())).ok_or(DropCause::Malformed)?;
    let (header, header_octets) =
        Header::parse_with(head, rdma_option_kind).map_err(|_| DropCause::Malformed)?;
    let source = SocketAddr::new(packet.source, header.source_port);
    let destination = SocketAddr::new(packet.destination, header.destination_port);
    let flow = Flow::new(source, destination).ok_or(DropCause::Malformed)?;
    let payload_octets = segment_octets - header_octets;
    let segment =
        Segment::with_header(flow, &header, packet.ecn, packet.transport, header_octets, payload_octets);
    Ok((segment, header))
}

/// Returns what is wrong with a checksum that does not hold.
#[cold]
fn checksum_fault(frame: &impl Frame) -> DropCause {
    if is_partial(frame.piece(0).unwrap_or_default(), frame.len()) {
        DropCause::PartialChecksum
    } else {
        DropCause::TcpChecksum
    }
}

/// Returns true if the checksum over the pseudo-header and the segment, in all the pieces of the frame, is
/// correct.
fn checksum_holds(frame: &impl Frame, packet: &Packet, segment_octets: usize) -> bool {
    #[cfg(feature = "testing")]
    super::testing::record_sum();
    let mut sum: Sum =
        checksum::pseudo_header(packet.source, packet.destination, Protocol::TCP.0, segment_octets as u16);
    let (mut skip, mut left) = (packet.transport, segment_octets);
    let mut index = 0;
    while left > 0 {
        let Some(piece) = frame.piece(index) else { return false };
        index += 1;
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let take = left.min(piece.len() - skip);
        sum.add(&piece[skip..skip + take]);
        left -= take;
        skip = 0;
    }
    sum.finish() == 0
}
