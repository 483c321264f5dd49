//! A router: it says what is too large for the link to a host (RFC 1191 §4, RFC 4443 §3.2), which hosts
//! believe of 552 octets and more, and in its name somebody says what is not true of segments that are not
//! outstanding (RFC 5927).

use fastrand::Rng;

use super::draw::Draw;
use super::packets::{ICMP, ICMPV6, Ip, Link, TCP};
use super::wire::Target;

/// Its hardware address.
const MAC: [u8; 6] = [0x02, 0, 0, 0, 3, 4];
/// The last octet of its addresses.
const LAST: u8 = 250;
/// Octets of a transport header that are quoted at least.
const QUOTED_OCTETS: usize = 8;
/// A segment so far from those that are outstanding is none of them, however large the window.
const FAR_OCTETS: core::ops::Range<u32> = 16 << 20..64 << 20;

/// What it says of a packet.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// No more octets than this pass.
    TooBig(u16),
    /// A code of Destination Unreachable.
    Unreachable(u8),
}

/// Returns what it says to `host` of `frame`, which a link with an MTU of `mtu_octets` does not carry; `None`
/// if it does.
pub(super) fn too_big(draw: &Draw, host: usize, frame: &[u8], mtu_octets: usize) -> Option<Vec<u8>> {
    let packet = frame.get(if draw.vlan.is_some() { 18 } else { 14 }..)?;
    let octets_at = |at: usize| packet.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    let (octets, header) = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&TCP) => (usize::from(octets_at(2)?), 20),
        6 if packet.get(6) == Some(&TCP) => (40 + usize::from(octets_at(4)?), 40),
        _ => return None,
    };
    let quote = packet.get(..header + QUOTED_OCTETS)?;
    (octets > mtu_octets).then(|| message(draw, host, Verdict::TooBig(mtu_octets as u16), quote))
}

/// Returns a forged message of it about a segment of a connection that is not outstanding.
pub(super) fn forged(draw: &Draw, rng: &mut Rng, target: &Target) -> Vec<u8> {
    let codes: &[u8] = if draw.ipv6 { &[0, 1, 3, 4] } else { &[0, 1, 2, 3, 13] };
    let verdict = if rng.bool() {
        Verdict::TooBig(rng.u16(500..1500))
    } else {
        Verdict::Unreachable(codes[rng.usize(..codes.len())])
    };
    let far = rng.u32(FAR_OCTETS);
    let seq = match rng.u8(..4) {
        // The last octet that is acknowledged.
        0 => target.una.wrapping_sub(1),
        1 => target.ack.wrapping_sub(far),
        _ => target.ack.wrapping_add(far),
    };
    // What the host sends, to its peer.
    let ([peer, own], [peer_port, own_port]) = (target.flow.addresses(), target.flow.ports());
    let octets = rng.u16(40..=draw.mtu_octets as u16);
    let (address_octets, header_octets) = if draw.ipv6 { (16, 40) } else { (4, 20) };
    let ip = Ip { source: &own[..address_octets], destination: &peer[..address_octets], protocol: TCP };
    let header = ip.header(octets - header_octets);
    let ports = [own_port.to_be_bytes(), peer_port.to_be_bytes()].concat();
    message(draw, target.host, verdict, &[&header[..], &ports, &seq.to_be_bytes()].concat())
}

fn message(draw: &Draw, host: usize, verdict: Verdict, quote: &[u8]) -> Vec<u8> {
    let is_v6 = quote[0] >> 4 == 6;
    let mut message = match verdict {
        Verdict::TooBig(mtu_octets) if is_v6 => {
            vec![2, 0, 0, 0, 0, 0, (mtu_octets >> 8) as u8, mtu_octets as u8]
        }
        Verdict::TooBig(mtu_octets) => vec![3, 4, 0, 0, 0, 0, (mtu_octets >> 8) as u8, mtu_octets as u8],
        Verdict::Unreachable(code) if is_v6 => vec![1, code, 0, 0, 0, 0, 0, 0],
        Verdict::Unreachable(code) => vec![3, code, 0, 0, 0, 0, 0, 0],
    };
    message.extend(quote);
    let link = Link { draw, station: MAC, host };
    let last = 1 + host as u8;
    if is_v6 {
        let address = |last: u8| [&[0xfd][..], &[0; 14], &[last]].concat();
        link.frame(Ip { source: &address(LAST), destination: &address(last), protocol: ICMPV6 }, message)
    } else {
        let (source, destination) = ([198, 18, 0, LAST], [198, 18, 0, last]);
        link.frame(Ip { source: &source, destination: &destination, protocol: ICMP }, message)
    }
}
