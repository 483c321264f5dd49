//! Checks of every frame the core sends: it is well formed, and it keeps the promises of its connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum;
use super::frames::{CORE, CORE6, ICMP, ICMPV6, TCP};

/// Octets of a stream that are stored, to compare them with retransmissions.
const REMEMBERED_OCTETS: usize = 1 << 17;
/// Segments a peer sent that are remembered.
const REMEMBERED_SEGMENTS: usize = 1024;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// The distance from `from` to `to` in a sequence space, as a signed number.
pub fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

/// A TCP segment of the core, taken apart.
#[derive(Debug)]
pub struct Sent<'f> {
    pub remote: IpAddr,
    pub remote_port: u16,
    pub local_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub window_scale: Option<u8>,
    pub timestamp: Option<u32>,
    pub sack: Vec<(u32, u32)>,
    pub payload: &'f [u8],
}

/// Parses a frame of the core. Returns `None` if it is no TCP segment.
///
/// # Panics
///
/// If the frame is not well formed or longer than the MTU.
pub fn dissect(frame: &[u8], mtu_octets: usize) -> Option<Sent<'_>> {
    assert!(frame.len() >= checksum::ETHERNET_OCTETS, "{} octets are no frame", frame.len());
    assert!(frame.len() <= checksum::ETHERNET_OCTETS + mtu_octets, "a frame of {} octets", frame.len());
    assert_eq!(frame[6..12], super::frames::CORE_MAC, "sent from another address");
    match frame[12..14] {
        [8, 6] => {
            assert_eq!(frame.len(), 14 + 28, "ARP");
            assert_eq!(frame[14..20], [0, 1, 8, 0, 6, 4], "ARP for Ethernet and IPv4");
            None
        }
        [8, 0] => dissect_ipv4(&frame[14..]),
        [0x86, 0xdd] => dissect_ipv6(&frame[14..]),
        _ => panic!("an Ethernet type of {:02x?}", &frame[12..14]),
    }
}

fn dissect_ipv4(packet: &[u8]) -> Option<Sent<'_>> {
    assert_eq!(packet[0], 0x45, "no options");
    assert_eq!(checksum::of(&packet[..20]), 0, "IPv4 header checksum");
    assert_eq!(packet[12..16], CORE.octets(), "sent from another address");
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    assert!(total <= packet.len(), "a packet of {total} octets in {}", packet.len());
    let remote = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
    match packet[9] {
        ICMP => {
            assert_eq!(checksum::of(&packet[20..total]), 0, "ICMP checksum");
            None
        }
        TCP => {
            assert_eq!(total, packet.len(), "padding is the device's");
            assert_eq!(packet[6..8], [0x40, 0], "MPA-A.5-01: not to be fragmented");
            Some(dissect_tcp(remote.into(), &packet[12..20], &packet[20..total]))
        }
        protocol => panic!("IP protocol {protocol}"),
    }
}

fn dissect_ipv6(packet: &[u8]) -> Option<Sent<'_>> {
    assert_eq!(packet[0] >> 4, 6, "an IPv6 header");
    let payload = &packet[40..];
    assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), payload.len(), "its length");
    let source = Ipv6Addr::from(<[u8; 16]>::try_from(&packet[8..24]).unwrap());
    let remote = Ipv6Addr::from(<[u8; 16]>::try_from(&packet[24..40]).unwrap());
    assert!(source == CORE6 || source.is_unspecified() && packet[6] == ICMPV6, "sent from {source}");
    match packet[6] {
        ICMPV6 => {
            assert_eq!(checksum::with_pseudo_header(&packet[8..40], ICMPV6, payload), 0, "ICMPv6 checksum");
            None
        }
        TCP => Some(dissect_tcp(remote.into(), &packet[8..40], payload)),
        protocol => panic!("IP protocol {protocol}"),
    }
}

fn dissect_tcp<'f>(remote: IpAddr, addresses: &[u8], segment: &'f [u8]) -> Sent<'f> {
    assert_eq!(checksum::with_pseudo_header(addresses, TCP, segment), 0, "TCP checksum");
    let header = usize::from(segment[12] >> 4) * 4;
    assert!((20..=segment.len()).contains(&header), "a TCP header of {header} octets");
    let word = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
    let half = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    let mut sent = Sent {
        remote,
        remote_port: half(2),
        local_port: half(0),
        seq: word(4),
        ack: word(8),
        flags: segment[13],
        window: half(14),
        window_scale: None,
        timestamp: None,
        sack: Vec::new(),
        payload: &segment[header..],
    };
    let mut at = 20;
    while at < header {
        let octets = match segment[at] {
            0 => break,
            1 => 1,
            kind => {
                let octets = usize::from(segment[at + 1]);
                assert!(octets >= 2 && at + octets <= header, "option {kind} of {octets} octets");
                match (kind, octets) {
                    (3, 3) => sent.window_scale = Some(segment[at + 2]),
                    (5, _) => {
                        assert_eq!(octets % 8, 2, "whole blocks");
                        sent.sack =
                            (at + 2..at + octets).step_by(8).map(|at| (word(at), word(at + 4))).collect();
                    }
                    (8, 10) => sent.timestamp = Some(word(at + 2)),
                    (2 | 4, _) => {}
                    _ => panic!("option {kind} of {octets} octets"),
                }
                octets
            }
        };
        at += octets;
    }
    sent
}

/// One connection as its peer sees it, from the core's SYN on.
#[derive(Debug)]
pub struct Tracker {
    /// The core's first sequence number.
    pub iss: u32,
    /// The place after the last octet the core has sent.
    pub nxt: u32,
    /// The core's last acknowledgement, once it has acknowledged anything.
    pub ack: Option<u32>,
    /// The right edge of the window it has offered.
    pub edge: Option<u32>,
    /// It has acknowledged with another segment than a SYN-ACK.
    acknowledged_alone: bool,
    pub timestamp: Option<u32>,
    /// The shift of the core's window; `None` while the peer cannot have received it.
    scale: Option<u8>,
    offered_scale: Option<u8>,
    /// The core's stream as sent so far; `None` where nothing was sent yet.
    stream: Vec<Option<u8>>,
    /// The end of the window the peer has offered, as a distance from `iss`.
    pub peer_edge: u32,
}

/// The segments a peer has sent on one connection, as far as the core's promises depend on them.
#[derive(Debug, Default)]
pub struct Said {
    /// Sequence ranges, SYN and FIN included.
    segments: Vec<(u32, u32)>,
    forgot: bool,
    /// The places after its FINs.
    ends: Vec<u32>,
    /// SYNs with and without a window scale.
    scaled_syns: u32,
    plain_syns: u32,
    /// The largest scale it named.
    pub scale: u8,
}

impl Said {
    pub fn note(&mut self, seq: u32, octets: u32) {
        if self.segments.len() == REMEMBERED_SEGMENTS {
            self.forgot = true;
            self.segments.remove(0);
        }
        self.segments.push((seq, seq.wrapping_add(octets)));
    }

    /// Notes a FIN, the place after which is `end`.
    pub fn note_fin(&mut self, end: u32) {
        if !self.ends.contains(&end) && self.ends.len() < REMEMBERED_SEGMENTS {
            self.ends.push(end);
        }
    }

    pub fn note_syn(&mut self, scale: Option<u8>) {
        match scale {
            Some(scale) => {
                self.scaled_syns += 1;
                self.scale = self.scale.max(scale.min(14));
            }
            None => self.plain_syns += 1,
        }
    }

    fn may_acknowledge(&self, ack: u32) -> bool {
        let inside = |&(start, end): &(u32, u32)| distance(start, ack) >= 0 && distance(ack, end) >= 0;
        self.forgot || self.segments.iter().any(inside)
    }
}

impl Tracker {
    /// From the core's SYN.
    pub fn new(syn: &Sent<'_>) -> Self {
        Self {
            iss: syn.seq,
            nxt: syn.seq.wrapping_add(1),
            ack: None,
            edge: None,
            acknowledged_alone: false,
            timestamp: None,
            scale: None,
            offered_scale: None,
            stream: Vec::new(),
            peer_edge: 1,
        }
    }

    /// Restarts from the core's SYN: a cookie may be returned twice.
    pub fn again(self, peer_edge: u32) -> Self {
        let nxt = self.iss.wrapping_add(1);
        let acknowledged_alone = false;
        Self {
            nxt,
            ack: None,
            edge: None,
            acknowledged_alone,
            timestamp: None,
            stream: Vec::new(),
            peer_edge,
            ..self
        }
    }

    /// Restarts if `sent` goes back behind what the connection has sent or acknowledged, and forgets the
    /// window in any case: a second one, from the same cookie, begins there, and its segments may follow
    /// those of the first that have waited for the device.
    pub fn restarted_if_before(self, sent: &Sent<'_>) -> Self {
        let acknowledges_less = self.ack.is_some_and(|ack| distance(ack, sent.ack) < 0);
        if distance(self.nxt, sent.seq) < 0 || sent.flags & ACK != 0 && acknowledges_less {
            let peer_edge = self.peer_edge;
            return self.again(peer_edge);
        }
        Self { edge: None, ..self }
    }

    /// Returns true if `syn` is a retransmission of this connection's SYN: not if its number or contents
    /// differ, nor if this connection has made further progress. At one instant, two connections of the same
    /// ports have the same number (RFC 6528).
    pub fn is_opened_by(&self, syn: &Sent<'_>) -> bool {
        let acknowledges_the_same = syn.flags & ACK == 0 || self.ack.is_none_or(|ack| ack == syn.ack);
        let offers_the_same = self.offered_scale == syn.window_scale || self.ack.is_none();
        let first = self.nxt == self.iss.wrapping_add(1);
        syn.seq == self.iss && first && acknowledges_the_same && offers_the_same
    }

    /// Checks one segment of the core against all it sent before and all segments of the peer.
    ///
    /// # Panics
    ///
    /// If the segment breaks a promise.
    pub fn check(&mut self, sent: &Sent<'_>, said: &Said) {
        if sent.flags & RST != 0 {
            return;
        }
        self.timestamp = sent.timestamp.or(self.timestamp);
        self.learn_scale(sent, said);
        if sent.flags & ACK != 0 {
            self.check_ack(sent, said);
        }
        for (left, right) in &sent.sack {
            assert!(distance(*left, *right) > 0, "an empty block");
            assert!(said.may_acknowledge(*left) && said.may_acknowledge(*right), "a block nobody sent");
        }
        self.check_data(sent);
    }

    /// RFC 7323 §2.2: both must have offered it.
    fn learn_scale(&mut self, sent: &Sent<'_>, said: &Said) {
        if sent.flags & SYN != 0 {
            self.offered_scale = sent.window_scale;
            if sent.flags & ACK != 0 {
                self.scale = Some(sent.window_scale.unwrap_or(0));
            }
        } else if self.scale.is_none() {
            self.scale = match (said.scaled_syns > 0, said.plain_syns > 0) {
                (true, false) => Some(self.offered_scale.unwrap_or(0)),
                (false, true) => Some(0),
                _ => None,
            };
        }
    }

    fn check_ack(&mut self, sent: &Sent<'_>, said: &Said) {
        assert!(said.may_acknowledge(sent.ack), "acknowledges what nobody sent: {sent:?}");
        if let Some(ack) = self.ack {
            assert!(distance(ack, sent.ack) >= 0, "acknowledges less than before: {self:?} {sent:?}");
        }
        self.ack = Some(sent.ack);
        let scale = if sent.flags & SYN == 0 { self.scale } else { Some(0) };
        let Some(scale) = scale else { return };
        if said.ends.contains(&sent.ack) {
            // A core that has finished needs no window: TIME-WAIT advertises none.
            return;
        }
        let edge = sent.ack.wrapping_add(u32::from(sent.window) << scale);
        if sent.flags & SYN != 0 && self.acknowledged_alone {
            // A SYN-ACK that comes again, whose window is not scaled: the peer has a later segment, and does
            // not take it (RFC 9293 §3.10.7.4, SND.WL1).
            return;
        }
        self.acknowledged_alone |= sent.flags & SYN == 0;
        if let Some(known) = self.edge {
            assert!(distance(known, edge) >= 0, "DDP-A-04: the right edge went back: {self:?} {sent:?}");
        }
        self.edge = Some(edge);
    }

    fn check_data(&mut self, sent: &Sent<'_>) {
        let begin = distance(self.iss.wrapping_add(1), sent.seq);
        let octets = sent.payload.len() as u32;
        let control = u32::from(sent.flags & SYN != 0) + u32::from(sent.flags & FIN != 0);
        let end = sent.seq.wrapping_add(octets + control);
        if distance(self.nxt, end) > 0 {
            self.nxt = end;
        }
        if sent.payload.is_empty() {
            return;
        }
        let begin = usize::try_from(begin).expect("data before the stream");
        let data_end = sent.seq.wrapping_add(octets);
        assert!(data_end.wrapping_sub(self.iss) <= self.peer_edge, "data beyond the peer's window: {sent:?}");
        let last = (begin + sent.payload.len()).min(REMEMBERED_OCTETS);
        if self.stream.len() < last {
            self.stream.resize(last, None);
        }
        for (known, octet) in self.stream.iter_mut().skip(begin).zip(sent.payload) {
            assert!(known.is_none_or(|known| known == *octet), "sent again with other octets");
            *known = Some(*octet);
        }
    }
}
