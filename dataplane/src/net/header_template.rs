//! The headers of a segment as a template for those after it in a train, which differ in sequence number,
//! length and PSH alone.

use super::Host;
use super::flow::FlowKey;
use super::headers::{FlowPath, network_octets};
use super::segment_checksum::SegmentChecksum;
use crate::device::{Device, Frame};
use crate::wire::ipv4;
use crate::wire::tcp::{self, Flags, Header, SeqNumber};
use crate::wire::{ethernet, ipv6};

/// Octets of the longest headers: Ethernet with a VLAN tag, IPv6, TCP with all options.
const ROOM: usize = ethernet::Header::LEN + ethernet::Tag::LEN + ipv6::Header::LEN + Header::MAX_LEN;

/// The headers of a train of segments.
#[derive(Clone, Debug)]
pub struct HeaderTemplate {
    /// The Ethernet, IP and TCP headers, without PSH, of a segment with `payload_octets`, and zeros after
    /// them.
    headers: [u8; ROOM],
    /// Octets of the headers.
    octets: usize,
    payload_octets: usize,
    key: FlowKey,
    /// The octets before the IP header, and before the TCP header.
    network_at: usize,
    tcp_at: usize,
    /// The host computes the checksum of IPv4.
    computes_ip: bool,
    checksum: SegmentChecksum,
}

impl HeaderTemplate {
    /// Returns the octets of the headers.
    pub const fn octets(&self) -> usize {
        self.octets
    }

    /// Writes the headers of the segment of a train that begins at `seq`, as
    /// [`Host::write_headers`] would, before its payload, which is already in the frame.
    #[inline]
    pub fn write<F: Frame>(&mut self, frame: &mut F, seq: SeqNumber, push: bool, payload_octets: usize) {
        self.fit(payload_octets);
        let octets = frame.first_mut();
        debug_assert!(octets.len() >= self.octets, "there is room for headers");
        if let Some((room, headers)) = octets.get_mut(..self.octets).zip(self.headers.get(..self.octets)) {
            room.copy_from_slice(headers);
            self.patch(room, seq, push);
        }
        self.finish(frame);
    }

    /// Writes the headers of the segment of a train that begins at `seq`, of the length that the template
    /// [fits](Self::fit), to the front of `frame`, whose payload is longer than any headers and still to be
    /// written after them. Afterwards the first octets of the payload are unspecified. The caller
    /// [finishes](Self::finish) the frame.
    #[inline]
    pub fn begin(&self, frame: &mut [u8], seq: SeqNumber, push: bool) {
        debug_assert!(frame.len() >= ROOM, "a segment with a short payload");
        // A copy of a length that the compiler knows takes few instructions.
        if let Some(room) = frame.first_chunk_mut() {
            *room = self.headers;
            self.patch(room, seq, push);
        }
    }

    #[inline]
    fn patch(&self, frame: &mut [u8], seq: SeqNumber, push: bool) {
        if let Some(segment) = frame.get_mut(self.tcp_at..) {
            tcp::patch(segment, seq, if push { Flags::PSH } else { Flags::empty() });
        }
    }

    /// Has the checksum of the segment in `frame`, headers and payload, filled in.
    #[inline]
    pub fn finish<F: Frame>(&self, frame: &mut F) {
        self.checksum.finish(frame, self.tcp_at);
    }

    /// Makes it the template of segments with `payload_octets` of payload.
    #[inline]
    pub fn fit(&mut self, payload_octets: usize) {
        if payload_octets != self.payload_octets {
            self.resize(payload_octets);
        }
    }

    // Not inlined: most segments of a train are equally long.
    #[inline(never)]
    fn resize(&mut self, payload_octets: usize) {
        self.payload_octets = payload_octets;
        let headers = self.headers.get_mut(..self.octets);
        let Some((before, tcp)) = headers.and_then(|headers| headers.split_at_mut_checked(self.tcp_at))
        else {
            return;
        };
        let Some(ip) = before.get_mut(self.network_at..) else { return };
        let segment_octets = tcp.len() + payload_octets;
        if self.key.remote.is_ipv4() {
            ipv4::set_total_len(ip, (ipv4::Header::LEN + segment_octets) as u16, self.computes_ip);
        } else {
            ipv6::set_payload_len(ip, segment_octets as u16);
        }
        self.checksum.resize(&self.key, segment_octets);
        self.checksum.begin(tcp);
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
        let key = path.key;
        let mut headers = [0; ROOM];
        headers.get_mut(..octets)?.copy_from_slice(frame.piece(0)?.get(..octets)?);
        let network_at = self.link_octets();
        let tcp_at = network_at + network_octets(key.remote);
        let tcp = headers.get_mut(tcp_at..octets)?;
        *tcp.get_mut(tcp::FLAGS_OFFSET)? &= !Flags::PSH.bits();
        let tcp_octets = tcp.len();
        let checksum = self.segment_checksum(path, tcp_octets, tcp_octets + payload_octets);
        checksum.begin(tcp);
        let computes_ip = !self.capabilities.transmit_ip_checksums;
        Some(HeaderTemplate {
            headers,
            octets,
            payload_octets,
            key,
            network_at,
            tcp_at,
            computes_ip,
            checksum,
        })
    }
}
