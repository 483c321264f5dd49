//! What a frame leaves to the kernel or the NIC, and the header that says so before each frame
//! (`struct virtio_net_hdr`, 5.1.6 of the Virtio specification).

/// Octets of the header.
pub(crate) const OFFLOAD_HEADER_OCTETS: usize = 10;

/// Octets at the front of a frame that the kernel keeps in a row, where its headers are looked at: all of a
/// TCP segment, 14 + 4 + 40 + 60, fit.
const LINEAR_OCTETS: usize = 128;

// Of linux/virtio_net.h.
pub(crate) const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;
pub(crate) const VIRTIO_NET_HDR_F_DATA_VALID: u8 = 2;
const VIRTIO_NET_HDR_GSO_NONE: u8 = 0;
const VIRTIO_NET_HDR_GSO_TCPV4: u8 = 1;
const VIRTIO_NET_HDR_GSO_TCPV6: u8 = 4;

/// The work on a frame that its sender leaves to the kernel, which leaves it to the interface if that can do
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Bytes before the part of the frame that the checksum covers, which reaches to the end: those before
    /// the TCP header.
    pub checksum_start: u16,
    /// Bytes between `checksum_start` and the checksum field: 16 for TCP, 6 for UDP. The field holds the sum
    /// of the pseudo-header, folded and not inverted.
    pub checksum_offset: u16,
    /// The frame is a super-frame of TCP: it leaves as several segments.
    pub segmentation: Option<Segmentation>,
}

/// How a super-frame of TCP is cut into segments. Each of them gets the headers with its own lengths,
/// sequence number, IPv4 identification and checksums; PSH and FIN stay with the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Bytes of payload in each segment but the last. Not 0.
    pub segment_octets: u16,
    /// Bytes of all headers: Ethernet, VLAN tag, IP, TCP with options.
    pub header_octets: u16,
    /// The packet is IPv6, rather than IPv4.
    pub ipv6: bool,
}

impl Offload {
    /// Returns true if all that it refers to is inside a frame of `octets` octets.
    #[inline]
    const fn is_inside(&self, octets: usize) -> bool {
        let field_end = self.checksum_start as usize + self.checksum_offset as usize + 2;
        field_end <= octets
            && match self.segmentation {
                Some(Segmentation { segment_octets, header_octets, .. }) => {
                    segment_octets > 0
                        && header_octets as usize >= field_end
                        && header_octets as usize <= octets
                }
                None => true,
            }
    }
}

/// Returns the header for a frame of `octets` octets; `None` if `offload` is not possible with it.
#[inline]
pub(crate) fn header(octets: usize, offload: Option<&Offload>) -> Option<[u8; OFFLOAD_HEADER_OCTETS]> {
    let mut header = [0; OFFLOAD_HEADER_OCTETS];
    let mut linear = octets.min(LINEAR_OCTETS) as u16;
    if let Some(offload) = offload {
        if !offload.is_inside(octets) {
            return None;
        }
        header[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM;
        header[6..8].copy_from_slice(&offload.checksum_start.to_ne_bytes());
        header[8..10].copy_from_slice(&offload.checksum_offset.to_ne_bytes());
        if let Some(segmentation) = &offload.segmentation {
            header[1] = if segmentation.ipv6 { VIRTIO_NET_HDR_GSO_TCPV6 } else { VIRTIO_NET_HDR_GSO_TCPV4 };
            linear = segmentation.header_octets;
            header[4..6].copy_from_slice(&segmentation.segment_octets.to_ne_bytes());
        }
    }
    header[2..4].copy_from_slice(&linear.to_ne_bytes());
    Some(header)
}

/// Returns true if the kernel has left the checksum of a received frame with this header for later.
#[inline]
pub(crate) const fn is_checksum_partial(header: &[u8; OFFLOAD_HEADER_OCTETS]) -> bool {
    header[0] & VIRTIO_NET_HDR_F_NEEDS_CSUM != 0
}

/// Returns true if the checksum of a received frame with this header was compared with its contents.
#[inline]
pub(crate) const fn is_checksum_good(header: &[u8; OFFLOAD_HEADER_OCTETS]) -> bool {
    header[0] & VIRTIO_NET_HDR_F_DATA_VALID != 0
}

/// Returns the octets of payload in a segment, if a received frame with this header is several.
#[inline]
pub(crate) const fn received_segment_octets(header: &[u8; OFFLOAD_HEADER_OCTETS]) -> Option<u16> {
    if header[1] == VIRTIO_NET_HDR_GSO_NONE {
        return None;
    }
    Some(u16::from_ne_bytes([header[4], header[5]]))
}
