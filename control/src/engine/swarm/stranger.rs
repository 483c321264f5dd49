//! A station that has nothing to do with anybody: it pings hosts, and sends what they must drop. Each frame
//! has one fate, which its kind decides.

use std::collections::BTreeMap;

use fastrand::Rng;
use warpline_dataplane::statistics::{DropCause, Statistics};

use super::draw::Draw;
use super::wire::checksum;

/// Its hardware address.
pub(super) const MAC: [u8; 6] = [0x02, 0, 0, 0, 3, 1];
const IPV4: [u8; 4] = [198, 18, 0, 201];
const NETWORK_V6: [u8; 8] = [0xfd, 0, 0, 0, 0, 0, 0, 0];
/// Octets that a short packet lacks to the least frame, and more.
const PADDING_OCTETS: u16 = 64;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// The next header of a fragment (RFC 8200 §4.5).
const FRAGMENT: u8 = 44;
/// Octets that each fragment but the last has a multiple of (RFC 791 §3.1).
const FRAGMENT_UNIT_OCTETS: usize = 8;
/// Octets of data that a ping has beyond the least, at most: the narrowest path carries them, and they are in
/// several pieces of some received frames.
const DATA_OCTETS_MAX: usize = 330;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Ping,
    PingV6,
    /// The host has its fragments in any order.
    PingInFragments,
    PingInFragmentsV6,
    /// Its second fragment begins within the first.
    Overlap,
    /// A fragment before others that does not end at a multiple of eight octets.
    FragmentLength,
    Source([u8; 4]),
    IcmpChecksum,
    Icmpv6Checksum,
    IpChecksum,
    TcpChecksum,
    Protocol,
    Address,
    TooLong,
    Version,
    HeaderLength,
    EtherType,
    Vlan,
    /// A frame for another station.
    OtherMac,
    /// A segment of no connection. A RST is not answered.
    NoConnection,
}

/// What it has sent, and what is to come of that.
#[derive(Debug, Default)]
pub(super) struct Stranger {
    /// Pings without a reply: the host, and the message that is the reply.
    waits: Vec<(usize, Vec<u8>)>,
    /// Replies that have come: paths may bring them twice.
    replies: Vec<(usize, Vec<u8>)>,
    /// Drops of each host, by cause.
    expected: BTreeMap<(usize, u8), u64>,
    /// Datagrams that it has sent in fragments: the number of the next.
    datagrams: u16,
}

impl Stranger {
    /// Returns the frames of a packet for a host, as chance decides.
    pub(super) fn frames(&mut self, draw: &Draw, rng: &mut Rng) -> (usize, Vec<Vec<u8>>) {
        let host = rng.usize(..draw.hosts.len());
        let kind = Self::kind(draw, rng, host);
        let cause = match kind {
            Kind::Ping | Kind::PingV6 | Kind::PingInFragments | Kind::PingInFragmentsV6 => None,
            Kind::Overlap => Some(DropCause::FragmentOverlap),
            Kind::FragmentLength => Some(DropCause::Fragment),
            Kind::Source(_) => Some(DropCause::BadSource),
            Kind::IcmpChecksum | Kind::Icmpv6Checksum => Some(DropCause::IcmpChecksum),
            Kind::IpChecksum => Some(DropCause::IpChecksum),
            Kind::TcpChecksum => Some(DropCause::TcpChecksum),
            Kind::Protocol | Kind::EtherType => Some(DropCause::OtherProtocol),
            Kind::Address => Some(DropCause::OtherAddress),
            Kind::TooLong | Kind::Version | Kind::HeaderLength => Some(DropCause::Malformed),
            Kind::Vlan => Some(DropCause::OtherVlan),
            Kind::OtherMac => Some(DropCause::OtherMac),
            Kind::NoConnection => Some(DropCause::NoConnection),
        };
        if let Some(cause) = cause {
            *self.expected.entry((host, cause as u8)).or_default() += 1;
        }
        (host, self.write(draw, rng, host, kind))
    }

    fn kind(draw: &Draw, rng: &mut Rng, host: usize) -> Kind {
        let group = [224, 0, 0, rng.u8(..)];
        let sources = [group, [198, 18, 0, 255], [198, 18, 0, 1 + host as u8], [127, 0, 0, 1], [255; 4]];
        let kinds = [
            Kind::Source(sources[rng.usize(..sources.len())]),
            Kind::IcmpChecksum,
            Kind::IpChecksum,
            Kind::TcpChecksum,
            Kind::Protocol,
            Kind::Address,
            Kind::TooLong,
            Kind::Version,
            Kind::HeaderLength,
            Kind::EtherType,
            Kind::OtherMac,
            Kind::NoConnection,
            Kind::Overlap,
            Kind::FragmentLength,
            if draw.vlan.is_some() { Kind::Vlan } else { Kind::Protocol },
            if draw.ipv6 { Kind::Icmpv6Checksum } else { Kind::IcmpChecksum },
        ];
        match rng.u8(..4) {
            0 if draw.ipv6 => [Kind::PingV6, Kind::PingInFragmentsV6][rng.usize(..2)],
            0 | 1 => [Kind::Ping, Kind::PingInFragments][rng.usize(..2)],
            _ => kinds[rng.usize(..kinds.len())],
        }
    }

    fn write(&mut self, draw: &Draw, rng: &mut Rng, host: usize, kind: Kind) -> Vec<Vec<u8>> {
        let link = Self::link_header(draw, host, kind);
        let packet = match kind {
            Kind::PingV6 | Kind::PingInFragmentsV6 | Kind::Icmpv6Checksum => self.packet_v6(rng, host, kind),
            _ => self.packet(rng, host, kind),
        };
        let packets = match kind {
            Kind::PingInFragments | Kind::PingInFragmentsV6 | Kind::Overlap | Kind::FragmentLength => {
                self.datagrams += 1;
                fragments(rng, kind, &packet, self.datagrams)
            }
            _ => vec![packet],
        };
        packets.into_iter().map(|packet| [&link[..], &packet].concat()).collect()
    }

    fn link_header(draw: &Draw, host: usize, kind: Kind) -> Vec<u8> {
        let mut frame = vec![0x02, 0, 0, 0, if kind == Kind::OtherMac { 9 } else { 1 }, host as u8];
        frame.extend(MAC);
        match (kind, draw.vlan) {
            (Kind::Vlan, Some(own)) => frame.extend(tag(if own == 1 { 2 } else { own - 1 })),
            (_, Some(own)) => frame.extend(tag(own)),
            (_, None) => {}
        }
        let is_v6 = matches!(kind, Kind::PingV6 | Kind::PingInFragmentsV6 | Kind::Icmpv6Checksum);
        let ether_type: u16 = match kind {
            Kind::EtherType => 0x88cc,
            _ if is_v6 => 0x86dd,
            _ => 0x0800,
        };
        frame.extend(ether_type.to_be_bytes());
        frame
    }

    fn packet(&mut self, rng: &mut Rng, host: usize, kind: Kind) -> Vec<u8> {
        let to = [198, 18, 0, 1 + host as u8];
        let (protocol, mut message) = match kind {
            Kind::Protocol => (UDP, vec![0; 8]),
            Kind::TcpChecksum | Kind::NoConnection => (TCP, reset(rng)),
            _ => (ICMP, echo(rng, 8)),
        };
        let source = if let Kind::Source(source) = kind { source } else { IPV4 };
        let octets = 20 + message.len() as u16 + if kind == Kind::TooLong { PADDING_OCTETS } else { 0 };
        let mut packet = vec![0x45, 0];
        packet.extend(octets.to_be_bytes());
        packet.extend([rng.u8(..), rng.u8(..), 0, 0, rng.u8(1..), protocol, 0, 0]);
        packet.extend(source);
        packet.extend(if kind == Kind::Address { [198, 18, 0, 202] } else { to });
        match kind {
            Kind::Version => packet[0] = 0x55,
            Kind::HeaderLength => packet[0] = 0x44,
            _ => {}
        }
        let wrong = |is: bool| u16::from(is);
        let sum = checksum(&packet) ^ wrong(kind == Kind::IpChecksum);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        if protocol == TCP {
            let pseudo = [&packet[12..20], &[0, TCP, 0, message.len() as u8]].concat();
            let sum = checksum(&[&pseudo[..], &message].concat()) ^ wrong(kind == Kind::TcpChecksum);
            message[16..18].copy_from_slice(&sum.to_be_bytes());
        } else if protocol == ICMP {
            if matches!(kind, Kind::Ping | Kind::PingInFragments) {
                self.waits.push((host, reply(&message, 0, &[])));
            }
            let sum = checksum(&message) ^ wrong(kind == Kind::IcmpChecksum);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        packet.extend(message);
        packet
    }

    fn packet_v6(&mut self, rng: &mut Rng, host: usize, kind: Kind) -> Vec<u8> {
        let address = |last: u8| [&NETWORK_V6[..], &[0, 0, 0, 0, 0, 0, 0, last]].concat();
        let (own, to) = (address(201), address(1 + host as u8));
        let mut message = echo(rng, 128);
        let octets = (message.len() as u16).to_be_bytes();
        let pseudo = [&own[..], &to, &[0, 0], &octets, &[0, 0, 0, ICMPV6]].concat();
        if kind != Kind::Icmpv6Checksum {
            self.waits.push((host, reply(&message, 129, &pseudo)));
        }
        let sum = checksum(&[&pseudo[..], &message].concat()) ^ u16::from(kind == Kind::Icmpv6Checksum);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        [&[0x60, 0, 0, 0], &octets[..], &[ICMPV6, rng.u8(1..)], &own, &to, &message].concat()
    }

    /// A host has sent `frame` to it: a reply, as it must be (RFC 1122 §3.2.2.6, RFC 4443 §4.2).
    pub(super) fn on_frame(&mut self, draw: &Draw, host: usize, frame: &[u8]) -> Result<(), String> {
        let link = if draw.vlan.is_some() { 18 } else { 14 };
        let packet = frame.get(link..).unwrap_or_default();
        if draw.impairments.corrupt_bits > 0.0 {
            // What does not match may have been altered.
            self.waits.clear();
            return Ok(());
        }
        let octets_at = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let (header, end, protocol) = match packet.first() {
            Some(0x45) if checksum(&packet[..20]) == 0 => (20, octets_at(2), packet[9]),
            Some(0x60) => (40, 40 + octets_at(4), packet[6]),
            _ => return Err(format!("no header that holds: {frame:x?}")),
        };
        let message = (host, packet[header..end].to_vec());
        let is_icmp = protocol == if header == 20 { ICMP } else { ICMPV6 };
        if let Some(at) = self.waits.iter().position(|wait| is_icmp && *wait == message) {
            self.waits.remove(at);
            self.replies.push(message);
        } else if draw.clean || !self.replies.contains(&message) {
            return Err(format!("no reply of its own: {frame:x?}"));
        }
        Ok(())
    }

    /// Returns what `host` has dropped, but for what this station has sent it.
    pub(super) fn other_drops(&self, host: usize, statistics: &Statistics) -> BTreeMap<String, i64> {
        let count = |cause: DropCause| {
            let expected = self.expected.get(&(host, cause as u8)).copied().unwrap_or(0);
            statistics.dropped(cause).cast_signed() - expected.cast_signed()
        };
        let all = DropCause::ALL.into_iter().map(|cause| (format!("drops.{}", cause.name()), count(cause)));
        all.filter(|(_, count)| *count != 0).collect()
    }

    /// Returns how many pings were not answered.
    pub(super) const fn unanswered(&self) -> usize {
        self.waits.len()
    }

    /// Returns how many pings `host` did not answer.
    pub(super) fn unanswered_by(&self, host: usize) -> i64 {
        self.waits.iter().filter(|(of, _)| *of == host).count().cast_signed() as i64
    }

    /// A host has started again: it has forgotten its counters, and pings to it are lost.
    pub(super) fn restart(&mut self, host: usize) {
        self.expected.retain(|(of, _), _| *of != host);
        self.replies.extend(self.waits.extract_if(.., |(of, _)| *of == host));
    }
}

/// Returns the fragments of a packet that is the datagram with this number, in some order.
fn fragments(rng: &mut Rng, kind: Kind, packet: &[u8], number: u16) -> Vec<Vec<u8>> {
    let is_v6 = packet[0] >> 4 == 6;
    let (header, payload) = packet.split_at(if is_v6 { 40 } else { 20 });
    let units = payload.len().div_ceil(FRAGMENT_UNIT_OCTETS);
    // What overlaps is not all there is.
    let first_cut = if kind == Kind::Overlap { 2 } else { 1 };
    let cut = rng.usize(first_cut..units) * FRAGMENT_UNIT_OCTETS;
    // The first may not end at a multiple of eight octets.
    let end = if kind != Kind::FragmentLength {
        cut
    } else if cut + 1 < payload.len() {
        cut + 1
    } else {
        cut - 1
    };
    let mut pieces = Vec::from([core::ops::Range { start: 0, end }]);
    match kind {
        Kind::FragmentLength => {}
        Kind::Overlap => pieces.push(cut - FRAGMENT_UNIT_OCTETS..payload.len()),
        _ => pieces.push(cut..payload.len()),
    }
    if let [_, rest] = &pieces[..]
        && kind != Kind::Overlap
        && rest.len() > FRAGMENT_UNIT_OCTETS
        && rng.bool()
    {
        let (begin, end) = (rest.start, rest.end);
        let again = begin + rng.usize(1..rest.len().div_ceil(FRAGMENT_UNIT_OCTETS)) * FRAGMENT_UNIT_OCTETS;
        pieces.splice(1.., [begin..again, again..end]);
    }
    if kind != Kind::Overlap {
        rng.shuffle(&mut pieces);
    }
    let fragment = |piece: core::ops::Range<usize>| {
        let more = u16::from(piece.end < payload.len());
        let octets = &payload[piece.clone()];
        let mut fragment = header.to_vec();
        if is_v6 {
            fragment[4..6]
                .copy_from_slice(&(FRAGMENT_UNIT_OCTETS as u16 + octets.len() as u16).to_be_bytes());
            fragment[6] = FRAGMENT;
            fragment.extend([ICMPV6, 0]);
            fragment.extend((piece.start as u16 | more).to_be_bytes());
            fragment.extend(u32::from(number).to_be_bytes());
        } else {
            fragment[2..4].copy_from_slice(&(20 + octets.len() as u16).to_be_bytes());
            fragment[4..6].copy_from_slice(&number.to_be_bytes());
            let offset = (piece.start / FRAGMENT_UNIT_OCTETS) as u16;
            fragment[6..8].copy_from_slice(&(more << 13 | offset).to_be_bytes());
            fragment[10..12].fill(0);
            let sum = checksum(&fragment);
            fragment[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        fragment.extend(octets);
        fragment
    };
    pieces.into_iter().map(fragment).collect()
}

fn tag(vlan: u16) -> [u8; 4] {
    let [high, low] = vlan.to_be_bytes();
    [0x81, 0, high, low]
}

/// An echo request, without its checksum.
fn echo(rng: &mut Rng, kind: u8) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    // Three units of fragments at least.
    message.extend((0..16 + rng.usize(..DATA_OCTETS_MAX)).map(|_| rng.u8(..)));
    message
}

/// The reply to an echo request.
fn reply(request: &[u8], kind: u8, pseudo: &[u8]) -> Vec<u8> {
    let mut reply = request.to_vec();
    reply[0] = kind;
    let (from, to) = pseudo.split_at(pseudo.len().min(16));
    // The sum of both addresses is that of both the other way round.
    let sum = checksum(&[from, to, &reply].concat());
    reply[2..4].copy_from_slice(&sum.to_be_bytes());
    reply
}

/// A RST, without its checksum.
fn reset(rng: &mut Rng) -> Vec<u8> {
    let mut segment: Vec<u8> = (0..20).map(|_| rng.u8(..)).collect();
    (segment[12], segment[13]) = (0x50, 0x04);
    segment[16..20].fill(0);
    segment
}
