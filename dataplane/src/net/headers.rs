//! The Ethernet, IP and TCP headers of segments out.

use std::net::IpAddr;

use super::Host;
use super::flow::FlowKey;
use crate::device::{Capabilities, ChecksumRequest, Device, Frame, IpVersion};
use crate::limits;
use crate::wire::checksum;
use crate::wire::ethernet::{EtherType, MacAddress};
use crate::wire::ipv4::{self, Protocol};
use crate::wire::ipv6;
use crate::wire::tcp::{self, Header};

/// Where a frame leaves the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Through the device, to the station with this hardware address.
    Wire(MacAddress),
    /// To the host itself. The hardware address alone does not say so: the kernel's end of a net_tap has that
    /// of the port.
    Loopback,
}

impl Egress {
    /// Returns true for [`Loopback`](Self::Loopback).
    #[inline]
    pub const fn is_loopback(self) -> bool {
        matches!(self, Self::Loopback)
    }
}

/// The way of a flow's packets out of the host.
#[derive(Clone, Copy, Debug)]
pub struct FlowPath {
    /// The addresses and ports.
    pub key: FlowKey,
    /// The flow label, over IPv6.
    pub flow_label: u32,
    /// Where they leave the host.
    pub egress: Egress,
}

/// Returns the octets of the IP header and of a TCP header without options.
pub const fn min_headers_octets(remote: IpAddr) -> u16 {
    (network_octets(remote) + Header::MIN_LEN) as u16
}

/// Returns the octets of the IP header of packets to `remote`.
pub(super) const fn network_octets(remote: IpAddr) -> usize {
    if remote.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN }
}

/// The payload that a super-frame takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperFrameRoom {
    /// Octets of payload.
    pub octets: usize,
    /// Segments whose payload may go by reference.
    pub references: usize,
}

impl<D: Device> Host<D> {
    /// Returns the MSS of segments to `remote` on the host's link, which leaves room for the headers without
    /// options (RFC 9293 §3.7.1, RFC 8200 §8.3).
    pub fn mss_octets(&self, remote: IpAddr) -> u16 {
        let mss_octets = self.capabilities.mtu_bytes.saturating_sub(min_headers_octets(remote).into());
        mss_octets.min(usize::from(u16::MAX)) as u16
    }

    /// Returns true if payload may go by reference: only where the device computes the TCP checksum, because
    /// nothing else reads the octets then.
    pub fn takes_references(&self, egress: Egress) -> bool {
        let offloads = self.capabilities.gather && self.capabilities.transmit_checksums;
        offloads && !egress.is_loopback()
    }

    /// Returns the octets of all headers of a segment of `key`.
    pub fn headers_octets(&self, key: FlowKey, header: &Header) -> usize {
        self.link_octets() + network_octets(key.remote) + header.header_len()
    }

    /// Returns the hardware address of frames that leave by `egress`.
    pub(super) const fn destination_mac(&self, egress: Egress) -> MacAddress {
        match egress {
            Egress::Wire(mac) => mac,
            Egress::Loopback => self.mac,
        }
    }

    /// Writes the Ethernet, IP and TCP headers before the payload, which is already in the frame. The ports
    /// are those of the flow, whatever `header` has; `ecn` are the two ECN bits of the IP header.
    pub fn write_headers(
        &self,
        frame: &mut D::Frame,
        path: &FlowPath,
        header: &Header,
        payload_octets: usize,
        ecn: u8,
    ) {
        let FlowPath { key, egress, .. } = *path;
        let (link, rest) = frame.first_mut().split_at_mut(self.link_octets());
        let ethertype = if key.remote.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        self.write_link(link, self.destination_mac(egress), ethertype);
        let (ip, segment) = rest.split_at_mut(network_octets(key.remote));
        let tcp_octets = header.emit_with(segment, self.rdma_option_kind);
        let segment_octets = tcp_octets + payload_octets;
        self.write_network(ip, path, segment_octets, ecn);
        tcp::set_ports(segment, key.local_port, key.remote_port);
        let checksum = self.segment_checksum(path, tcp_octets, segment_octets);
        checksum.begin(segment);
        checksum.finish(frame, self.link_octets() + network_octets(key.remote));
    }

    /// Returns the room for payload in a super-frame by `egress` after `headers` octets of headers; `None` if
    /// the device takes no super-frames.
    pub fn super_frame_room(&self, egress: Egress, headers: usize) -> Option<SuperFrameRoom> {
        let Capabilities { super_frame_bytes, super_frame_pieces, mtu_bytes, .. } = self.capabilities;
        let taken =
            super_frame_bytes > mtu_bytes && self.capabilities.transmit_checksums && !egress.is_loopback();
        let most = super_frame_bytes.min(usize::from(u16::MAX)) + self.link_octets();
        let octets = most.saturating_sub(headers);
        // The headers are in the first piece, and each FPDU by reference adds its payload and what follows.
        let references = super_frame_pieces.saturating_sub(1) / 2;
        taken.then_some(SuperFrameRoom { octets, references })
    }

    /// Writes the headers of a super-frame, as [`write_headers`](Self::write_headers) does for a segment of
    /// `payload_octets`, which is to be sent in segments of `segment_octets`.
    pub fn write_super_headers(
        &self,
        frame: &mut D::Frame,
        path: &FlowPath,
        header: &Header,
        payload_octets: usize,
        (ecn, segment_octets): (u8, u16),
    ) {
        let FlowPath { key, .. } = *path;
        let tcp_octets = header.header_len();
        self.write_headers(frame, path, header, payload_octets, ecn);
        if let Some(segment) = frame.first_mut().get_mut(self.link_octets() + network_octets(key.remote)..) {
            // Each segment has another length, which the device adds to the sum of the pseudo-header.
            let sum = checksum::pseudo_header(key.local, key.remote, Protocol::TCP.0, 0);
            tcp::set_checksum(segment, !sum.finish());
        }
        frame.request_segmentation(self.checksum_request(key.remote, tcp_octets), segment_octets);
    }

    /// Returns the request to complete the checksums of a segment to `remote` with a TCP header of
    /// `tcp_octets`.
    pub(super) const fn checksum_request(&self, remote: IpAddr, tcp_octets: usize) -> ChecksumRequest {
        ChecksumRequest {
            ip: if remote.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 },
            ip_checksum: self.capabilities.transmit_ip_checksums,
            l2_octets: self.link_octets() as u8,
            l3_octets: network_octets(remote) as u8,
            l4_octets: tcp_octets as u8,
        }
    }

    /// Writes the IP header before a segment of `segment_octets`. A device may complete IPv4's
    /// checksum.
    // Requirements: MPA-A.5-01
    fn write_network(&self, out: &mut [u8], path: &FlowPath, segment_octets: usize, ecn: u8) {
        match (path.key.local, path.key.remote) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = ipv4::Header {
                    source,
                    destination,
                    protocol: Protocol::TCP,
                    ttl: limits::TIME_TO_LIVE,
                    total_len: (ipv4::Header::LEN + segment_octets) as u16,
                    // RFC 5044 §A.5: segments are not fragmented.
                    dont_fragment: true,
                    more_fragments: false,
                    fragment_offset: 0,
                    // RFC 6864 §4.1: a datagram that is never fragmented may have any identification. A
                    // counter would show strangers how much the host sends. Zero needs no state, receivers
                    // coalesce segments that have it (Linux's GRO), and no path refuses it: Linux answers
                    // every SYN with it.
                    identification: 0,
                    ecn,
                    dscp: 0,
                };
                if self.capabilities.transmit_ip_checksums {
                    header.emit_without_checksum(out);
                } else {
                    header.emit(out);
                }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Header {
                source,
                destination,
                next_header: Protocol::TCP,
                hop_limit: limits::TIME_TO_LIVE,
                payload_len: segment_octets as u16,
                flow_label: path.flow_label,
                ecn,
                dscp: 0,
            }
            .emit(out),
            _ => debug_assert!(false, "a flow between two families: {:?}", path.key),
        }
    }
}
