//! Segments in: the frame of nearly every segment is parsed here, in one pass; any other frame, and one
//! that is not valid, by [`Host::receive`](super::Host::receive), which returns why.

use super::link::{IPV4, IPV6, LINK, Link, TAGGED_LINK};
use crate::device::{ChecksumStatus, Frame, ReceivedChecksums};
use crate::wire::checksum;
use crate::wire::flow::Flow;
use crate::wire::following::HeaderImage;
use crate::wire::ipv4::{self, Protocol};
use crate::wire::segment::Segment;
use crate::wire::tcp::Header;

/// Where a frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ingress {
    /// From the device.
    Wire,
    /// From the device, and its checksums are verified.
    Verified,
    /// From the host itself. No other station had the octets, so the checksums are not computed and not
    /// verified.
    Loopback,
}

impl Ingress {
    /// Returns true if no checksum needs another look.
    #[inline]
    pub(super) const fn is_verified(self) -> bool {
        matches!(self, Self::Verified | Self::Loopback)
    }

    /// Returns true for [`Loopback`](Self::Loopback).
    #[inline]
    pub(crate) const fn is_loopback(self) -> bool {
        matches!(self, Self::Loopback)
    }
}

/// Parses segments, each as the first of others or as one that follows another.
pub(crate) struct SegmentParser {
    link: Link,
    /// The kind of the TCP RDMA option.
    pub(crate) rdma_option_kind: u8,
    /// The headers that those of the next segments are compared with.
    header_image: HeaderImage,
}

impl SegmentParser {
    /// Returns a parser of the segments of a host on `link`.
    pub(super) const fn new(link: Link, rdma_option_kind: u8) -> Self {
        Self { link, rdma_option_kind, header_image: HeaderImage::NONE }
    }

    /// Makes `segment` the TCP segment in a frame to this host's hardware address: all of it lies in the
    /// first piece, its IP packet is no fragment and has neither options nor extension headers, and its
    /// checksums hold. Returns false, and what `segment` is then is unspecified, for any other frame, which
    /// [`Host::receive`](super::Host::receive) parses. The addresses are not checked.
    #[inline]
    pub(crate) fn find(&self, segment: &mut Segment, frame: &impl Frame, ingress: Ingress) -> bool {
        let Some(octets) = frame.piece(0) else { return false };
        let link = if self.link.vlan.is_none() { Some(LINK) } else { self.link.tagged(octets) };
        let (Some(link), Some(headers)) = (link, octets.first_chunk::<TAGGED_LINK>()) else { return false };
        let ([d0, d1, d2, d3, d4, d5, ..], [m0, m1, m2, m3, m4, m5]) = (*headers, self.link.mac.0);
        if [d0, d1, d2, d3] != [m0, m1, m2, m3] || [d4, d5] != [m4, m5] {
            return false;
        }
        let is_found = match [headers[link - 2], headers[link - 1]] {
            IPV4 => segment.read_ipv4(octets, link),
            IPV6 => segment.read_ipv6(octets, link),
            _ => false,
        };
        if !is_found {
            return false;
        }
        if segment.has_other_options {
            segment.find_rdma_option(octets, self.rdma_option_kind);
        }
        ingress.is_verified() || checksums_hold(frame, segment, link)
    }

    /// Has the next segments compared with `segment`, which was [found](Self::find) in `frame`.
    #[inline]
    pub(crate) fn begin_following(&mut self, segment: &Segment, frame: &impl Frame) {
        self.header_image.set(segment, frame.piece(0).unwrap_or_default());
    }

    /// Makes `segment`, which [others follow](Self::begin_following) or which has followed that one, the one
    /// in `frame`, if that follows: [`find`](Self::find) would find it. Returns false
    /// otherwise. If only its checksums do not hold, the fields of `segment` are those of the refused one.
    #[expect(clippy::inline_always, reason = "a call costs two loops a tenth of what they do for a segment")]
    #[inline(always)]
    pub(crate) fn follow(&self, segment: &mut Segment, frame: &impl Frame, ingress: Ingress) -> bool {
        let Some(octets) = frame.piece(0) else { return false };
        if !self.header_image.precedes(segment, octets) {
            return false;
        }
        let network = segment.transport - segment.flow.network_octets();
        ingress.is_verified() || checksums_hold(frame, segment, network)
    }

    /// Returns the header of a segment that was found in `frame`, with all options.
    pub(crate) fn header_of(&self, segment: &Segment, frame: &impl Frame) -> Header {
        segment.header(frame.piece(0).unwrap_or_default(), self.rdma_option_kind)
    }
}

/// Returns true if the checksums hold of the segment in `frame` whose IP header begins at `network`: the
/// device says so, or it does not know and they are correct.
#[inline]
fn checksums_hold(frame: &impl Frame, segment: &Segment, network: usize) -> bool {
    let device = frame.checksums();
    device.tcp == ChecksumStatus::Good
        && (device.ip == ChecksumStatus::Good || matches!(segment.flow, Flow::V6(_)))
        || unknown_checksums_hold(frame, segment, network)
}

#[inline(never)]
fn unknown_checksums_hold(frame: &impl Frame, segment: &Segment, network: usize) -> bool {
    unverified_checksums_hold(frame.checksums(), segment, network, frame.piece(0).unwrap_or_default())
}

/// [`checksums_hold`] of a segment in `frame` that the device has not verified, or not all of it.
fn unverified_checksums_hold(
    device: ReceivedChecksums,
    segment: &Segment,
    network: usize,
    frame: &[u8],
) -> bool {
    // The header of IPv6 has no checksum.
    let good_ip = device.ip == ChecksumStatus::Good || matches!(segment.flow, Flow::V6(_));
    (good_ip || ip_checksum_holds(device.ip, network, frame))
        && (device.tcp == ChecksumStatus::Good || tcp_checksum_holds(device.tcp, segment, network, frame))
}

/// Returns true if the device has not found the checksum of the IPv4 header in `frame` wrong, and it is
/// correct.
fn ip_checksum_holds(device: ChecksumStatus, network: usize, frame: &[u8]) -> bool {
    let header = frame.get(network..network + ipv4::Header::LEN);
    device == ChecksumStatus::Unknown && header.is_some_and(ipv4::verify_checksum)
}

/// Returns true if the device has not found the TCP checksum of the segment in `frame` wrong, and it is
/// correct.
fn tcp_checksum_holds(device: ChecksumStatus, segment: &Segment, network: usize, frame: &[u8]) -> bool {
    let transport = network + segment.flow.network_octets();
    let Some(octets) = frame.get(transport..segment.end()) else { return false };
    let length = octets.len() as u16;
    let protocol = Protocol::TCP.0;
    let mut sum = match &segment.flow {
        Flow::V4(flow) => checksum::ipv4_pseudo_header(flow.source(), flow.destination(), protocol, length),
        Flow::V6(flow) => {
            checksum::ipv6_pseudo_header(flow.source(), flow.destination(), protocol, length.into())
        }
    };
    device == ChecksumStatus::Unknown && {
        #[cfg(feature = "testing")]
        super::testing::record_sum();
        sum.add(octets);
        sum.finish() == 0
    }
}

#[cfg(test)]
mod tests;
