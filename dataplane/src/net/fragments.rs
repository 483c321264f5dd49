//! Fragments of IP packets in, and the packets that they make up.

use super::Host;
use super::inbound::Inbound;
use super::input::Ingress;
use super::reassembly::{DatagramId, Fragment};
use crate::device::{Device, Frame};
use crate::drops::DropCause;
use crate::time::Instant;
use crate::wire::ipv4::{self, Protocol};
use crate::wire::ipv6::{self, Dead, Upper};
use crate::wire::{icmp, tcp};

impl<D: Device> Host<D> {
    /// Handles a fragment of an IPv4 datagram. A datagram that it completes is received like any other
    /// packet.
    // Requirements: MPA-A.5-02
    pub(super) fn on_ipv4_fragment(
        &mut self,
        now: Instant,
        frame: &D::Frame,
        network: usize,
        header: ipv4::Header,
        header_octets: usize,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let fragment = Fragment {
            id: DatagramId {
                source: header.source.into(),
                destination: header.destination.into(),
                protocol: header.protocol.0,
                identification: header.identification.into(),
            },
            offset: header.fragment_offset.into(),
            octets: usize::from(header.total_len) - header_octets,
            more: header.more_fragments,
            ecn: header.ecn,
            first_octets_min: upper_octets_min(header.protocol),
        };
        let accepted = self.reassembly.accept(
            now,
            &fragment,
            frame,
            network + header_octets,
            &mut self.interface.counters.drops,
        )?;
        let Some(reassembled) = accepted else { return Ok(Inbound::Done) };
        let mut datagram = self.interface.device.allocate().ok_or(DropCause::NoRoomForFrame)?;
        let octets = ipv4::Header::LEN + reassembled.payload.len();
        let room = datagram.append(network + octets).ok_or(DropCause::Fragment)?;
        let (link, room) = room.split_at_mut(network);
        link.copy_from_slice(frame.piece(0).and_then(|piece| piece.get(..network)).unwrap_or_default());
        ipv4::Header {
            total_len: octets as u16,
            more_fragments: false,
            fragment_offset: 0,
            ecn: reassembled.ecn,
            ..header
        }
        .emit(room);
        room[ipv4::Header::LEN..].copy_from_slice(reassembled.payload);
        self.interface.counters.datagrams_reassembled += 1;
        self.on_ipv4(now, datagram, network, Ingress::Wire)
    }

    /// Handles a fragment of an IPv6 packet (RFC 8200 §4.5). A packet that it completes is received without
    /// the Fragment header and any before it. The protocol is part of the packet's identity: fragments that
    /// differ in it do not go together.
    pub(super) fn on_ipv6_fragment(
        &mut self,
        now: Instant,
        frame: &D::Frame,
        network: usize,
        header: ipv6::Header,
        upper: &Upper,
        fragment: ipv6::Fragment,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        let octets = (ipv6::Header::LEN + usize::from(header.payload_len)).checked_sub(upper.offset);
        let first_octets_min = if fragment.offset == 0 {
            let packet = frame.piece(0).unwrap_or_default().get(network..).unwrap_or_default();
            headers_octets(&header, upper, packet)?
        } else {
            upper_octets_min(upper.protocol)
        };
        let fragment = Fragment {
            id: DatagramId {
                source: header.source.into(),
                destination: header.destination.into(),
                protocol: upper.protocol.0,
                identification: fragment.identification,
            },
            offset: fragment.offset.into(),
            octets: octets.ok_or(DropCause::Malformed)?,
            more: fragment.more,
            ecn: header.ecn,
            first_octets_min,
        };
        let accepted = self.reassembly.accept(
            now,
            &fragment,
            frame,
            network + upper.offset,
            &mut self.interface.counters.drops,
        )?;
        let Some(reassembled) = accepted else { return Ok(Inbound::Done) };
        let mut datagram = self.interface.device.allocate().ok_or(DropCause::NoRoomForFrame)?;
        let octets = ipv6::Header::LEN + reassembled.payload.len();
        let room = datagram.append(network + octets).ok_or(DropCause::Fragment)?;
        let (link, room) = room.split_at_mut(network);
        link.copy_from_slice(frame.piece(0).and_then(|piece| piece.get(..network)).unwrap_or_default());
        ipv6::Header {
            next_header: upper.protocol,
            payload_len: reassembled.payload.len() as u16,
            ecn: reassembled.ecn,
            ..header
        }
        .emit(room);
        room[ipv6::Header::LEN..].copy_from_slice(reassembled.payload);
        self.interface.counters.datagrams_reassembled += 1;
        self.on_ipv6(now, datagram, network, true, Ingress::Wire)
    }
}

/// Returns the octets that the first fragment of an IPv6 packet must have after its Fragment header: the
/// extension headers, and the first of what follows them (RFC 8200 §4.5, RFC 7112 §5).
fn headers_octets(header: &ipv6::Header, fragment: &Upper, packet: &[u8]) -> Result<usize, DropCause> {
    match ipv6::upper_of_first_fragment(header, fragment, packet) {
        Ok(Upper { protocol, offset, fragment: None, .. }) => {
            Ok(offset - fragment.offset + upper_octets_min(protocol))
        }
        Ok(_) | Err(Dead::Malformed | Dead::TooMany) => Err(DropCause::Fragment),
        Err(Dead::Unsupported) => Err(DropCause::OtherProtocol),
    }
}

/// Returns the octets of an upper layer that a first fragment must have: the ports and flags that a filter
/// looks at (RFC 1858 §3.2).
const fn upper_octets_min(protocol: Protocol) -> usize {
    match protocol {
        Protocol::TCP => tcp::Header::MIN_LEN,
        _ => icmp::HEADER_LEN,
    }
}
