//! Who computes the TCP checksum of a segment out: the device, the host, or nobody.

use super::Host;
use super::flow::FlowKey;
use super::headers::FlowPath;
use crate::device::{ChecksumRequest, Device, Frame};
use crate::wire::checksum::{self, Sum};
use crate::wire::ipv4::Protocol;
use crate::wire::tcp;

/// The TCP checksum of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentChecksum {
    /// The sum of its pseudo-header.
    pseudo_header: Sum,
    by: By,
}

/// Who computes a checksum.
#[derive(Clone, Copy, Debug)]
enum By {
    /// Nobody: no other station gets the octets, and the host does not verify the checksums of frames to
    /// itself.
    Nobody,
    /// The device.
    Device(ChecksumRequest),
    /// The host. The whole segment lies in the first piece of the frame: payload goes by reference only with
    /// the device's checksums.
    Host,
}

impl<D: Device> Host<D> {
    /// Returns the checksum of a segment of `segment_octets` for `path`, `tcp_octets` of them its header.
    #[inline]
    pub(super) fn segment_checksum(
        &self,
        path: &FlowPath,
        tcp_octets: usize,
        segment_octets: usize,
    ) -> SegmentChecksum {
        let by = if path.egress.is_loopback() {
            By::Nobody
        } else if self.capabilities.transmit_checksums {
            By::Device(self.checksum_request(path.key.remote, tcp_octets))
        } else {
            By::Host
        };
        SegmentChecksum { pseudo_header: pseudo_header(&path.key, segment_octets), by }
    }
}

impl SegmentChecksum {
    /// Makes it that of a segment of `segment_octets` between the same ends.
    #[inline]
    pub(super) fn resize(&mut self, key: &FlowKey, segment_octets: usize) {
        self.pseudo_header = pseudo_header(key, segment_octets);
    }

    /// Writes what the checksum field holds before the checksum is computed to the header at the start of
    /// `segment`: the sum of the pseudo-header, which a device completes over the segment, or zero.
    #[inline]
    pub(super) fn begin(&self, segment: &mut [u8]) {
        let field = if matches!(self.by, By::Host) { 0 } else { self.pseudo_header.folded() };
        tcp::set_checksum(segment, field);
    }

    /// Has the checksum of the segment that lies in `frame` from `tcp_at` on filled in.
    #[inline]
    pub(super) fn finish<F: Frame>(&self, frame: &mut F, tcp_at: usize) {
        match self.by {
            By::Nobody => {}
            By::Device(request) => frame.request_checksums(request),
            By::Host => {
                if let Some(segment) = frame.first_mut().get_mut(tcp_at..) {
                    self.compute(segment);
                }
            }
        }
    }

    // Not inlined: most devices compute it.
    #[inline(never)]
    fn compute(&self, segment: &mut [u8]) {
        let mut sum = self.pseudo_header;
        sum.add(segment);
        tcp::set_checksum(segment, sum.finish());
    }
}

fn pseudo_header(key: &FlowKey, segment_octets: usize) -> Sum {
    checksum::pseudo_header(key.local, key.remote, Protocol::TCP.0, segment_octets as u16)
}
