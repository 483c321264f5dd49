//! Partial checksums: a sender that leaves the TCP checksum to its device puts the sum of the pseudo-header
//! into the field, for the device to go on with. Where there is no device (a veth pair, a tap, a ring), the
//! segment arrives like that, and nothing has damaged it.

use core::net::IpAddr;

use crate::wire::checksum;
use crate::wire::ethernet::{self, EtherType};
use crate::wire::ipv4::{self, Protocol};
use crate::wire::ipv6;

/// Where the checksum of a segment lies in its TCP header.
pub(super) const TCP_FIELD: usize = 16;

/// A packet that carries TCP, and where its parts lie in its frame.
pub(super) struct TcpPacket {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) network: usize,
    pub(super) transport: usize,
    pub(super) end: usize,
}

/// A checksum field that holds the sum of the pseudo-header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartialChecksum {
    /// What the length still adds: nothing, or in a super-frame all of it.
    pub(super) missing_length: u16,
}

impl TcpPacket {
    /// Returns the packet in a frame of `octets` octets that begins with `first`, unless it is something else
    /// than a segment of TCP or a part of one.
    pub(super) fn locate(first: &[u8], octets: usize) -> Option<Self> {
        let (link, mut network) = ethernet::Header::parse(first).ok()?;
        let mut ethertype = link.ethertype;
        if ethertype == EtherType::VLAN {
            ethertype = ethernet::Tag::parse(first.get(network..)?).ok()?.ethertype;
            network += ethernet::Tag::LEN;
        }
        let packet = first.get(network..)?;
        match ethertype {
            EtherType::IPV4 => {
                let (header, header_octets) = ipv4::Header::parse_for(packet, octets - network).ok()?;
                (header.protocol == Protocol::TCP && !header.is_fragment()).then_some(Self {
                    source: header.source.into(),
                    destination: header.destination.into(),
                    network,
                    transport: network + header_octets,
                    end: network + usize::from(header.total_len),
                })
            }
            EtherType::IPV6 => {
                let header = ipv6::Header::parse_for(packet, octets - network).ok()?;
                let upper = ipv6::upper(&header, packet).ok()?;
                (upper.protocol == Protocol::TCP && upper.fragment.is_none()).then_some(Self {
                    source: header.source.into(),
                    destination: header.destination.into(),
                    network,
                    transport: network + upper.offset,
                    end: network + ipv6::Header::LEN + usize::from(header.payload_len),
                })
            }
            _ => None,
        }
    }

    /// Returns the octets of the segment.
    pub(super) const fn segment_octets(&self) -> usize {
        self.end.saturating_sub(self.transport)
    }

    /// Returns the partial checksum of the segment, whose frame begins with `first`; `None` if the field
    /// holds something else.
    pub(super) fn partial_checksum(&self, first: &[u8]) -> Option<PartialChecksum> {
        let field = first.get(self.transport + TCP_FIELD..self.transport + TCP_FIELD + 2)?;
        let field = u16::from_be_bytes([field[0], field[1]]);
        let octets = self.segment_octets() as u16;
        let sum_with = |length: u16| {
            checksum::pseudo_header(self.source, self.destination, Protocol::TCP.0, length).folded()
        };
        let missing_length = if field == sum_with(octets) {
            0
        } else if field == sum_with(0) {
            octets
        } else {
            return None;
        };
        Some(PartialChecksum { missing_length })
    }
}

/// Returns true if the frame of `octets` octets that begins with `first` carries a TCP segment whose
/// checksum is that of its pseudo-header alone. One damaged segment of 65,536 looks like that, too.
pub(crate) fn is_partial(first: &[u8], octets: usize) -> bool {
    let packet = TcpPacket::locate(first, octets);
    packet
        .and_then(|packet| packet.partial_checksum(first))
        .is_some_and(|partial| partial.missing_length == 0)
}
