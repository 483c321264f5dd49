//! Segments of a train: those whose headers are the headers of the first but for the fields in which the
//! segments of one series differ.

use super::plain_segment::PlainSegment;
use super::tcp::{Flags, Header, SeqNumber};
use super::tuple::Tuple;
use super::{ipv4, ipv6};

/// Octets of the timestamps option and the two NOPs before it.
const TIMESTAMPS: usize = 12;
const V4: usize = ipv4::Header::LEN;
const V6: usize = ipv6::Header::LEN;
const TCP: usize = Header::MIN_LEN;
const V4_TIMESTAMPS: usize = V4 + TCP + TIMESTAMPS;
const V6_TIMESTAMPS: usize = V6 + TCP + TIMESTAMPS;

impl PlainSegment {
    /// Returns the octets of payload of the segment in `packet`, if it begins at the sequence number `seq`
    /// and its headers are otherwise those of this segment, whose packet is `first`: it then has the usual
    /// form, too. Returns `None` for any other, and for one that is not whole. Checksums are left to the
    /// caller.
    ///
    /// Sequence number, length, PSH, checksums and the identification of IPv4 may differ. All else is equal:
    /// addresses, ports, acknowledgement number, window, timestamps and the ECN bits.
    #[inline]
    pub fn follower(&self, first: &[u8], packet: &[u8], seq: SeqNumber) -> Option<usize> {
        match (&self.tuple, self.timestamps) {
            (Tuple::V4(_), Some(_)) => follower::<V4, V4_TIMESTAMPS>(first, packet, seq),
            (Tuple::V4(_), None) => follower::<V4, { V4 + TCP }>(first, packet, seq),
            (Tuple::V6(_), Some(_)) => follower::<V6, V6_TIMESTAMPS>(first, packet, seq),
            (Tuple::V6(_), None) => follower::<V6, { V6 + TCP }>(first, packet, seq),
        }
    }
}

/// [`PlainSegment::follower`] for headers of `HEADERS` octets, `IP` of which are those of IP.
#[inline]
fn follower<const IP: usize, const HEADERS: usize>(
    first: &[u8],
    packet: &[u8],
    seq: SeqNumber,
) -> Option<usize> {
    let common = const { common_bits::<IP, HEADERS>() };
    let (first, headers): (&[u8; HEADERS], &[u8; HEADERS]) = (first.first_chunk()?, packet.first_chunk()?);
    let mut differences = 0;
    let mut at = 0;
    // Not a range, whose iterator is not inlined where little is optimized.
    while at < HEADERS {
        differences |= (first[at] ^ headers[at]) & common[at];
        at += 1;
    }
    let half = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
    // The length of IPv4 counts its header, that of IPv6 does not.
    let packet_octets = if IP == V4 { usize::from(half(2)) } else { V6 + usize::from(half(4)) };
    let begins_at = u32::from(half(IP + 4)) << 16 | u32::from(half(IP + 6));
    if differences != 0 || begins_at != seq.0 || packet_octets > packet.len() {
        return None;
    }
    packet_octets.checked_sub(HEADERS)
}

/// Where a TCP header has its control bits.
const FLAGS: usize = 13;

/// Returns the bits that are equal in the headers of all segments of a train.
const fn common_bits<const IP: usize, const HEADERS: usize>() -> [u8; HEADERS] {
    let mut bits = [0xff; HEADERS];
    // Of IPv4 total length, identification and checksum; of IPv6 the length. Of TCP sequence number and
    // checksum.
    let own: &[usize] = if IP == V4 { &[2, 3, 4, 5, 10, 11] } else { &[4, 5] };
    let mut field = 0;
    while field < own.len() {
        bits[own[field]] = 0;
        field += 1;
    }
    let own = [4, 5, 6, 7, 16, 17];
    let mut field = 0;
    while field < own.len() {
        bits[IP + own[field]] = 0;
        field += 1;
    }
    bits[IP + FLAGS] = !Flags::PSH.bits();
    bits
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::wire::ipv4::Protocol;
    use crate::wire::tcp::{Options, Timestamps};

    const SEQ: SeqNumber = SeqNumber(0xffff_ff00);
    const PAYLOAD: usize = 700;

    /// A packet with `PAYLOAD` octets from `seq` on.
    fn packet(
        over_ipv6: bool,
        timestamps: bool,
        seq: SeqNumber,
        flags: Flags,
        identification: u16,
    ) -> Vec<u8> {
        let options = Options {
            timestamps: timestamps.then_some(Timestamps { value: 9, echo: 8 }),
            ..Options::default()
        };
        let header = Header { source_port: 7, seq, flags, window: 501, options, ..Header::default() };
        let segment_octets = header.header_len() + PAYLOAD;
        let mut octets = vec![0; if over_ipv6 { V6 } else { V4 } + segment_octets];
        if over_ipv6 {
            ipv6::Header {
                source: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
                destination: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
                next_header: Protocol::TCP,
                hop_limit: 64,
                payload_len: segment_octets as u16,
                flow_label: 5,
                ecn: 2,
                dscp: 0,
            }
            .emit(&mut octets);
            header.emit(&mut octets[V6..]);
        } else {
            ipv4::Header {
                source: Ipv4Addr::new(198, 18, 0, 1),
                destination: Ipv4Addr::new(198, 18, 0, 2),
                protocol: Protocol::TCP,
                ttl: 64,
                total_len: octets.len() as u16,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                identification,
                ecn: 2,
                dscp: 0,
            }
            .emit(&mut octets);
            header.emit(&mut octets[V4..]);
        }
        octets
    }

    fn parse(over_ipv6: bool, packet: &[u8]) -> Option<PlainSegment> {
        if over_ipv6 { PlainSegment::parse_ipv6(packet, 0) } else { PlainSegment::parse_ipv4(packet, 0) }
    }

    /// A segment follows if it begins where it must, and only then. Of segments with one bit changed those
    /// that follow are those that parse as the first does, but for its own fields, with the same length.
    #[test]
    fn a_follower_differs_in_its_own_fields_only() {
        for (over_ipv6, timestamps) in [(false, false), (false, true), (true, false), (true, true)] {
            let first = packet(over_ipv6, timestamps, SEQ, Flags::ACK, 1);
            let plain = parse(over_ipv6, &first).expect("it is plain");
            let seq = SEQ + PAYLOAD as u32;
            let next = packet(over_ipv6, timestamps, seq, Flags::ACK | Flags::PSH, 2);
            assert_eq!(plain.follower(&first, &next, seq), Some(PAYLOAD));
            assert_eq!(plain.follower(&first, &next, seq + 1), None);
            assert_eq!(plain.follower(&first, &next[..next.len() - 1], seq), None, "it is not whole");
            let headers = next.len() - PAYLOAD;
            let mut followers = 0;
            for bit in 0..8 * headers {
                let mut changed = next.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let Some(octets) = plain.follower(&first, &changed, seq) else { continue };
                followers += 1;
                let parsed = parse(over_ipv6, &changed).expect("it is plain");
                let own = PlainSegment { seq, push: parsed.push, payload_octets: octets, ..plain };
                assert_eq!(parsed, own, "bit {bit}");
            }
            // PSH, the checksum of TCP, and of IPv4 the checksum and the identification; and lengths that are
            // shorter.
            let of_ip = if over_ipv6 { 0 } else { 32 };
            let lengths = (0..16).filter(|bit| (next.len() - if over_ipv6 { V6 } else { 0 }) >> bit & 1 == 1);
            let still_whole = lengths.filter(|bit| PAYLOAD >= 1 << bit).count();
            assert_eq!(followers, 1 + 16 + of_ip + still_whole, "{over_ipv6} {timestamps}");
        }
    }
}
