//! Segmentation in the simulated device, as a NIC does it (TSO).

use std::ops::Range;

use crate::device::{ChecksumRequest, IpVersion};
use crate::wire::checksum;
use crate::wire::ipv4::{self, Protocol};
use crate::wire::ipv6;
use crate::wire::tcp::{self, Flags, Header};

/// A frame that is sent as several TCP segments.
pub(super) struct SuperFrame<'f> {
    /// The frame.
    pub(super) octets: &'f [u8],
    /// Where its headers end.
    pub(super) request: ChecksumRequest,
    /// Octets of payload of each segment.
    pub(super) segment_octets: u16,
}

impl SuperFrame<'_> {
    /// Octets of all headers.
    fn headers(&self) -> usize {
        let ChecksumRequest { l2_octets, l3_octets, l4_octets, .. } = self.request;
        usize::from(l2_octets) + usize::from(l3_octets) + usize::from(l4_octets)
    }

    /// Whether the packet's length, as its IP header says it, is that of the frame.
    pub(super) fn has_its_length(&self) -> bool {
        let packet = &self.octets[usize::from(self.request.l2_octets)..];
        let octets = match self.request.ip {
            IpVersion::V4 => {
                ipv4::Header::parse_for(packet, packet.len()).map(|(header, _)| usize::from(header.total_len))
            }
            IpVersion::V6 => ipv6::Header::parse_for(packet, packet.len())
                .map(|header| ipv6::Header::LEN + usize::from(header.payload_len)),
        };
        octets == Ok(packet.len())
    }

    /// Returns where in the payload each segment lies.
    pub(super) fn segments(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (payload, step) = (self.octets.len() - self.headers(), usize::from(self.segment_octets).max(1));
        (0..payload).step_by(step).map(move |begin| begin..(begin + step).min(payload))
    }

    /// Writes the frame of the segment with these octets of payload to the front of `out`, its checksums
    /// left to be completed. Returns its octets.
    pub(super) fn write(&self, payload: &Range<usize>, out: &mut [u8]) -> usize {
        let headers = self.headers();
        let (network, tcp_at) = (
            usize::from(self.request.l2_octets),
            usize::from(self.request.l2_octets) + usize::from(self.request.l3_octets),
        );
        let end = headers + payload.len();
        out[..headers].copy_from_slice(&self.octets[..headers]);
        out[headers..end].copy_from_slice(&self.octets[headers..][payload.clone()]);
        let segment_octets = (end - tcp_at) as u16;
        let sum = match self.request.ip {
            IpVersion::V4 => {
                out[network + 2..network + 4].copy_from_slice(&((end - network) as u16).to_be_bytes());
                let (ip, _) = ipv4::Header::parse(&out[network..end]).expect("our own header");
                checksum::ipv4_pseudo_header(ip.source, ip.destination, Protocol::TCP.0, segment_octets)
            }
            IpVersion::V6 => {
                out[network + 4..network + 6].copy_from_slice(&segment_octets.to_be_bytes());
                let ip = ipv6::Header::parse_for(&out[network..end], end - network).expect("our own header");
                let octets = u32::from(segment_octets);
                checksum::ipv6_pseudo_header(ip.source, ip.destination, Protocol::TCP.0, octets)
            }
        };
        let segment = &mut out[tcp_at..end];
        let (header, _) = Header::parse(segment).expect("our own header");
        let last = headers + payload.end == self.octets.len();
        segment[tcp::FLAGS_OFFSET] &= if last { 0xff } else { !Flags::PSH.bits() };
        tcp::patch(segment, header.seq + payload.start as u32, Flags::empty());
        tcp::set_checksum(segment, sum.folded());
        end
    }
}
