//! The headers of a segment as a template for those after it in a train, which differ in sequence number,
//! length and PSH alone.

use arrayvec::ArrayVec;

use super::Host;
use super::flow::FlowKey;
use super::headers::{Egress, FlowPath, network_octets};
use crate::device::{ChecksumRequest, Device, Frame};
use crate::wire::checksum::{self, Sum};
use crate::wire::ipv4::{self, Protocol};
use crate::wire::tcp::{self, Flags, Header, SeqNumber};
use crate::wire::{ethernet, ipv6};

/// Octets of the longest headers: Ethernet with a VLAN tag, IPv6, TCP with all options.
const ROOM: usize = ethernet::Header::LEN + ethernet::Tag::LEN + ipv6::Header::LEN + Header::MAX_LEN;

/// The headers of a train of segments.
#[derive(Clone, Debug)]
pub struct HeaderTemplate {
    /// The Ethernet, IP and TCP headers, without PSH, of a segment with this many octets of payload.
    headers: ArrayVec<u8, ROOM>,
    payload_octets: usize,
    key: FlowKey,
    /// The octets before the IP header, and before the TCP header.
    network_at: usize,
    tcp_at: usize,
    /// The host computes the checksum of IPv4.
    computes_ip: bool,
    checksum: Checksum,
}

/// The TCP checksum of the segments.
#[derive(Clone, Copy, Debug)]
enum Checksum {
    /// It stays as it is in the template: the sum of the pseudo-header, and nobody looks at it.
    Unused,
    /// The device completes it.
    Offloaded(ChecksumRequest),
    /// It is computed over the segment, after this sum of the pseudo-header.
    Computed(Sum),
}

impl HeaderTemplate {
    /// Returns the octets of the headers.
    pub const fn octets(&self) -> usize {
        self.headers.len()
    }

    /// Writes the headers of the segment of a train that begins at `seq`, as
    /// [`Host::write_headers`] would, before its payload, which is already in the frame.
    #[inline]
    pub fn write<F: Frame>(&mut self, frame: &mut F, seq: SeqNumber, push: bool, payload_octets: usize) {
        if payload_octets != self.payload_octets {
            self.resize(payload_octets);
        }
        let octets = frame.first_mut();
        debug_assert!(octets.len() >= self.headers.len(), "there is room for headers");
        let Some(headers) = octets.get_mut(..self.headers.len()) else { return };
        headers.copy_from_slice(&self.headers);
        let Some(segment) = octets.get_mut(self.tcp_at..) else { return };
        tcp::patch(segment, seq, if push { Flags::PSH } else { Flags::empty() });
        match self.checksum {
            Checksum::Unused => {}
            Checksum::Offloaded(request) => frame.request_checksums(request),
            Checksum::Computed(mut sum) => {
                sum.add(segment);
                tcp::set_checksum(segment, sum.finish());
            }
        }
    }

    /// Makes it the template of segments with `payload_octets` of payload.
    // Not inlined: most segments of a train are equally long.
    #[inline(never)]
    fn resize(&mut self, payload_octets: usize) {
        self.payload_octets = payload_octets;
        let Some((before, tcp)) = self.headers.split_at_mut_checked(self.tcp_at) else { return };
        let Some(ip) = before.get_mut(self.network_at..) else { return };
        let segment_octets = tcp.len() + payload_octets;
        if self.key.remote.is_ipv4() {
            ipv4::set_total_len(ip, (ipv4::Header::LEN + segment_octets) as u16, self.computes_ip);
        } else {
            ipv6::set_payload_len(ip, segment_octets as u16);
        }
        let FlowKey { local, remote, .. } = self.key;
        let sum = checksum::pseudo_header(local, remote, Protocol::TCP.0, segment_octets as u16);
        match &mut self.checksum {
            Checksum::Unused | Checksum::Offloaded(_) => tcp::set_checksum(tcp, !sum.finish()),
            Checksum::Computed(before) => *before = sum,
        }
    }
}

impl<D: Device> Host<D> {
    /// Returns the headers of the segment in `frame` as a template: `octets` of them, written for `path`,
    /// before `payload_octets` of payload. `None` if they are no headers of a segment.
    pub fn header_template(
        &self,
        frame: &D::Frame,
        path: &FlowPath,
        octets: usize,
        payload_octets: usize,
    ) -> Option<HeaderTemplate> {
        let FlowPath { key, egress, .. } = *path;
        let mut headers = ArrayVec::new();
        headers.try_extend_from_slice(frame.piece(0)?.get(..octets)?).ok()?;
        let network_at = self.link_octets();
        let tcp_at = network_at + network_octets(key.remote);
        let tcp = headers.get_mut(tcp_at..)?;
        *tcp.get_mut(tcp::FLAGS_OFFSET)? &= !Flags::PSH.bits();
        let tcp_octets = tcp.len();
        let checksum = if egress == Egress::Loopback {
            Checksum::Unused
        } else if self.capabilities.transmit_checksums {
            Checksum::Offloaded(self.checksum_request(key.remote, tcp_octets))
        } else {
            tcp::set_checksum(tcp, 0);
            let segment_octets = (tcp_octets + payload_octets) as u16;
            Checksum::Computed(checksum::pseudo_header(
                key.local,
                key.remote,
                Protocol::TCP.0,
                segment_octets,
            ))
        };
        let computes_ip = !self.capabilities.transmit_checksums;
        Some(HeaderTemplate { headers, payload_octets, key, network_at, tcp_at, computes_ip, checksum })
    }
}
