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
/// Most octets of data of a ping: those of the narrowest path carry it, and it is in several pieces of some
/// received frames.
const DATA_OCTETS_MAX: usize = 330;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Ping,
    PingV6,
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
}

impl Stranger {
    /// Returns a frame for a host, as chance decides.
    pub(super) fn frame(&mut self, draw: &Draw, rng: &mut Rng) -> (usize, Vec<u8>) {
        let host = rng.usize(..draw.hosts.len());
        let kind = Self::kind(draw, rng, host);
        let cause = match kind {
            Kind::Ping | Kind::PingV6 => None,
            Kind::Source(_) => Some(DropCause::BadSource),
            Kind::IcmpChecksum | Kind::Icmpv6Checksum => Some(DropCause::IcmpChecksum),
            Kind::IpChecksum => Some(DropCause::IpChecksum),
            Kind::TcpChecksum => Some(DropCause::TcpChecksum),
            Kind::Protocol | Kind::EtherType => Some(DropCause::OtherProtocol),
            Kind::Address => Some(DropCause::OtherAddress),
            Kind::TooLong | Kind::Version | Kind::HeaderLength => Some(DropCause::Malformed),
            Kind::Vlan => Some(DropCause::OtherVlan),
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
            Kind::NoConnection,
            if draw.vlan.is_some() { Kind::Vlan } else { Kind::Protocol },
            if draw.ipv6 { Kind::Icmpv6Checksum } else { Kind::IcmpChecksum },
        ];
        match rng.u8(..4) {
            0 if draw.ipv6 => Kind::PingV6,
            0 | 1 => Kind::Ping,
            _ => kinds[rng.usize(..kinds.len())],
        }
    }

    fn write(&mut self, draw: &Draw, rng: &mut Rng, host: usize, kind: Kind) -> Vec<u8> {
        let mut frame = vec![0x02, 0, 0, 0, 1, host as u8];
        frame.extend(MAC);
        match (kind, draw.vlan) {
            (Kind::Vlan, Some(own)) => frame.extend(tag(if own == 1 { 2 } else { own - 1 })),
            (_, Some(own)) => frame.extend(tag(own)),
            (_, None) => {}
        }
        let is_v6 = matches!(kind, Kind::PingV6 | Kind::Icmpv6Checksum);
        let ether_type: u16 = match kind {
            Kind::EtherType => 0x88cc,
            _ if is_v6 => 0x86dd,
            _ => 0x0800,
        };
        frame.extend(ether_type.to_be_bytes());
        if is_v6 {
            frame.extend(self.packet_v6(rng, host, kind));
        } else {
            frame.extend(self.packet(rng, host, kind));
        }
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
            if kind == Kind::Ping {
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
        if kind == Kind::PingV6 {
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

    /// A host has started again: it has forgotten its counters, and pings to it are lost.
    pub(super) fn restart(&mut self, host: usize) {
        self.expected.retain(|(of, _), _| *of != host);
        self.replies.extend(self.waits.extract_if(.., |(of, _)| *of == host));
    }
}

fn tag(vlan: u16) -> [u8; 4] {
    let [high, low] = vlan.to_be_bytes();
    [0x81, 0, high, low]
}

/// An echo request, without its checksum.
fn echo(rng: &mut Rng, kind: u8) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend((0..4 + rng.usize(..DATA_OCTETS_MAX)).map(|_| rng.u8(..)));
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
