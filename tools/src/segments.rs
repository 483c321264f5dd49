//! Frames and FPDUs of peers that speak a part of TCP and MPA of their own.

use std::net::Ipv4Addr;

use warpline::MacAddress;
use warpline_dataplane::mpa::{Framing, fpdu};
use warpline_dataplane::wire::ddp::{Header as DdpHeader, Tagged};
use warpline_dataplane::wire::ethernet::{self, EtherType};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::Header;

/// Octets of the headers before TCP's.
pub const LOWER_OCTETS: usize = ethernet::Header::LEN + ipv4::Header::LEN;

/// A host on an Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Its station address.
    pub mac: MacAddress,
    /// Its address.
    pub address: Ipv4Addr,
}

/// Writes the headers of a segment from `source` to the front of `frame`, which has the length of the whole.
/// Checksums of TCP are left to the caller.
pub fn emit(source: Host, destination: Host, header: &Header, frame: &mut [u8]) {
    let packet_octets = frame.len() - ethernet::Header::LEN;
    ethernet::Header { destination: destination.mac, source: source.mac, ethertype: EtherType::IPV4 }
        .emit(frame);
    ipv4::Header {
        source: source.address,
        destination: destination.address,
        protocol: Protocol::TCP,
        ttl: 64,
        total_len: packet_octets as u16,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        identification: 0,
        ecn: 0,
        dscp: 0,
    }
    .emit(&mut frame[ethernet::Header::LEN..]);
    header.emit(&mut frame[LOWER_OCTETS..]);
}

/// Returns the TCP header in a frame, the octets of payload that the packet has, and those of them that lie
/// in `first`, the front of the frame; `None` if it is something else.
pub fn parse(first: &[u8]) -> Option<(Header, usize, &[u8])> {
    let (link, network) = ethernet::Header::parse(first).ok()?;
    let packet = first.get(network..).filter(|_| link.ethertype == EtherType::IPV4)?;
    let (ip, transport) = ipv4::Header::parse(packet).ok()?;
    let segment = packet.get(transport..)?;
    let (header, payload) = Header::parse(segment).ok()?;
    let octets = usize::from(ip.total_len).checked_sub(transport + payload)?;
    let payload = &segment[payload..];
    Some((header, octets, &payload[..octets.min(payload.len())]))
}

/// Writes the FPDU of a tagged DDP segment with `payload` to the front of `out`. It begins `position` octets
/// into the stream. Returns its octets; `None`, and nothing written, if they do not fit.
pub fn write_fpdu(
    out: &mut [u8],
    position: u64,
    framing: Framing,
    tagged: Tagged,
    payload: &[u8],
) -> Option<usize> {
    let octets = fpdu::wire_len(position, Tagged::LEN + payload.len(), framing.markers);
    let out = out.get_mut(..octets)?;
    let mut header = [0; DdpHeader::MAX_LEN];
    let header_octets = DdpHeader::Tagged(tagged).emit(&mut header);
    let done = fpdu::encode(out, position, framing, &header[..header_octets], payload.len(), |at, out| {
        out.copy_from_slice(&payload[at..at + out.len()]);
        true
    });
    debug_assert!(done, "room for the FPDU");
    Some(octets)
}
