//! A TCP segment as it lies in a frame, read by the documents alone (RFC 791, RFC 8200, RFC 9293, RFC 7323,
//! RFC 2018), so that the stack's own parsers are judged too.

use std::net::{IpAddr, SocketAddr};

/// Flags of the TCP header.
pub(in super::super) mod flag {
    pub(in super::super::super) const FIN: u8 = 0x01;
    pub(in super::super::super) const SYN: u8 = 0x02;
    pub(in super::super::super) const RST: u8 = 0x04;
    pub(in super::super::super) const PSH: u8 = 0x08;
    pub(in super::super::super) const ACK: u8 = 0x10;
    pub(in super::super::super) const URG: u8 = 0x20;
    pub(in super::super::super) const ECE: u8 = 0x40;
    pub(in super::super::super) const CWR: u8 = 0x80;
}

/// The ECN field of a packet that met congestion (RFC 3168 §5).
pub(super) const CONGESTION_EXPERIENCED: u8 = 3;
const TCP: u8 = 6;
/// Octets of a TCP header without options.
pub(super) const HEADER_OCTETS: usize = 20;

/// One direction of a connection: addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Flow {
    from: ([u8; 16], u16),
    to: ([u8; 16], u16),
}

impl Flow {
    /// Returns the direction from one end to the other.
    pub(in super::super) fn between(from: SocketAddr, to: SocketAddr) -> Self {
        let end = |end: SocketAddr| {
            let mut address = [0; 16];
            match end.ip() {
                IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => address = ip.octets(),
            }
            (address, end.port())
        };
        Self { from: end(from), to: end(to) }
    }

    pub(in super::super) const fn reversed(self) -> Self {
        Self { from: self.to, to: self.from }
    }

    /// Returns the addresses of the sender and of the receiver; one of IPv4 is in the first four octets.
    pub(in super::super) const fn addresses(self) -> [[u8; 16]; 2] {
        [self.from.0, self.to.0]
    }

    /// Returns the ports of the sender and of the receiver.
    pub(in super::super) const fn ports(self) -> [u16; 2] {
        [self.from.1, self.to.1]
    }
}

/// The options that are judged.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Options {
    pub(super) mss: Option<u16>,
    pub(in super::super) scale: Option<u8>,
    pub(in super::super) sack_permitted: bool,
    /// The value and the echo.
    pub(in super::super) timestamps: Option<(u32, u32)>,
    pub(super) blocks: Vec<(u32, u32)>,
    /// An option has a length that cannot be; those after it are not read.
    pub(super) is_malformed: bool,
}

#[derive(Clone, Debug)]
pub(in super::super) struct Segment<'f> {
    pub(in super::super) flow: Flow,
    pub(in super::super) seq: u32,
    pub(in super::super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(in super::super) options: Options,
    pub(super) options_octets: usize,
    pub(super) payload: &'f [u8],
    pub(super) ecn: u8,
    /// The checksums hold.
    pub(in super::super) is_intact: bool,
}

impl<'f> Segment<'f> {
    /// Returns the segment in `frame`, or `None` for anything else.
    pub(in super::super) fn in_frame(frame: &'f [u8]) -> Option<Self> {
        let tagged = frame.get(12..14)? == [0x81, 0];
        let (ether_type, packet) = if tagged { (16, 18) } else { (12, 14) };
        let packet_octets = frame.get(packet..)?;
        match frame.get(ether_type..ether_type + 2)? {
            [0x08, 0x00] => Self::in_ipv4(packet_octets),
            [0x86, 0xdd] => Self::in_ipv6(packet_octets),
            _ => None,
        }
    }

    fn in_ipv4(packet: &'f [u8]) -> Option<Self> {
        let header_octets = usize::from(packet.first()? & 0x0f) * 4;
        let header = packet.get(..header_octets.max(20))?;
        if header[9] != TCP || be16(header, 6) & 0x3fff != 0 {
            return None;
        }
        let addresses = [12, 16].map(|at| {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&header[at..at + 4]);
            address
        });
        let segment = packet.get(header_octets..usize::from(be16(header, 2)))?;
        let pseudo = sum(&header[12..20]);
        let mut this = Self::from_octets(segment, addresses, pseudo)?;
        this.is_intact &= fold(sum(header)) == 0xffff;
        this.ecn = header[1] & 3;
        Some(this)
    }

    fn in_ipv6(packet: &'f [u8]) -> Option<Self> {
        let header = packet.get(..40)?;
        if header[6] != TCP {
            return None;
        }
        let addresses = [8, 24].map(|at| header[at..at + 16].try_into().expect("16 octets"));
        let segment = packet.get(40..40 + usize::from(be16(header, 4)))?;
        let mut this = Self::from_octets(segment, addresses, sum(&header[8..40]))?;
        this.ecn = header[1] >> 4 & 3;
        Some(this)
    }

    fn from_octets(segment: &'f [u8], addresses: [[u8; 16]; 2], pseudo: u64) -> Option<Self> {
        let header_octets = usize::from(segment.get(12)? >> 4) * 4;
        let header = segment.get(..header_octets.max(HEADER_OCTETS))?;
        let total = pseudo + u64::from(TCP) + segment.len() as u64 + sum(segment);
        let [from, to] = addresses;
        Some(Self {
            flow: Flow { from: (from, be16(header, 0)), to: (to, be16(header, 2)) },
            seq: be32(header, 4),
            ack: be32(header, 8),
            flags: header[13],
            window: be16(header, 14),
            options: Options::parse(header.get(HEADER_OCTETS..header_octets)?),
            options_octets: header_octets - HEADER_OCTETS,
            payload: &segment[header_octets..],
            ecn: 0,
            is_intact: fold(total) == 0xffff,
        })
    }

    pub(in super::super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Options {
    /// Returns the timestamps and blocks, as text.
    pub(super) fn describe(&self) -> String {
        let clock = self.timestamps.map(|(value, echo)| format!(" ts {value}/{echo}")).unwrap_or_default();
        let blocks: Vec<_> = self.blocks.iter().map(|(from, to)| format!("{from}-{to}")).collect();
        if blocks.is_empty() { clock } else { format!("{clock} sack {}", blocks.join(" ")) }
    }

    fn parse(mut octets: &[u8]) -> Self {
        let mut options = Self::default();
        while let [kind, rest @ ..] = octets {
            match kind {
                0 => break,
                1 => {
                    octets = rest;
                    continue;
                }
                _ => {}
            }
            let len = usize::from(rest.first().copied().unwrap_or(0));
            let Some(body) = octets.get(2..len) else {
                options.is_malformed = true;
                break;
            };
            match (kind, body.len()) {
                (2, 2) => options.mss = Some(be16(body, 0)),
                (3, 1) => options.scale = Some(body[0]),
                (4, 0) => options.sack_permitted = true,
                (5, _) => {
                    options.blocks = body.chunks_exact(8).map(|it| (be32(it, 0), be32(it, 4))).collect();
                }
                (8, 8) => options.timestamps = Some((be32(body, 0), be32(body, 4))),
                _ => {}
            }
            octets = &octets[len..];
        }
        options
    }
}

/// The Internet checksum (RFC 1071) of `octets`.
pub(in super::super) fn checksum(octets: &[u8]) -> u16 {
    !fold(sum(octets))
}

fn be16(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

/// The sum of 16-bit words (RFC 1071 §1), two at a time (§2 C); an odd last octet is the high half of a word.
fn sum(octets: &[u8]) -> u64 {
    let (pairs, rest) = octets.as_chunks();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    pairs.iter().chain([&last]).map(|pair| u64::from(u32::from_be_bytes(*pair))).sum()
}

const fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}
