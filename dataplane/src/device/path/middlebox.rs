//! A middlebox: the little IPv4 and TCP that cutting, joining and damaging segments takes.
//!
//! Written from RFC 791, RFC 1071 and RFC 9293 alone and shared with no other code of this crate, so that it
//! judges the stack's frames independently.

use crate::device::{ChecksumRequest, IpVersion};

pub(super) mod rdma_option;
#[cfg(test)]
mod tests;

/// Octets of an Ethernet II header.
pub(in crate::device) const ETHERNET_OCTETS: usize = 14;
/// Octets of an IEEE 802.1Q tag.
pub(in crate::device) const TAG_OCTETS: usize = 4;
const IPV4_MIN_OCTETS: usize = 20;
const IPV6_OCTETS: usize = 40;
const TCP_MIN_OCTETS: usize = 20;
const PROTOCOL_TCP: u8 = 6;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;

/// Octets before the packet in `frame`: those of the Ethernet header, with its tag if it has one.
pub(super) fn link_octets(frame: &[u8]) -> usize {
    let tagged = frame.get(12..14) == Some(&[0x81, 0x00]);
    ETHERNET_OCTETS + if tagged { TAG_OCTETS } else { 0 }
}

/// Where the parts of a TCP/IPv4 frame begin. Ethernet padding lies after `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    tcp: usize,
    payload: usize,
    end: usize,
}

impl Segment {
    /// Finds the parts of `frame`; `None` for anything but an unfragmented TCP/IPv4 packet. Checksums are not
    /// looked at.
    pub(super) fn locate(frame: &[u8]) -> Option<Self> {
        let ip = frame.get(ETHERNET_OCTETS..)?;
        if !is_ipv4(frame) || ip.len() < IPV4_MIN_OCTETS || ip[0] >> 4 != 4 || ip[9] != PROTOCOL_TCP {
            return None;
        }
        // More Fragments, or an offset.
        if be16(ip, 6) & 0x3fff != 0 {
            return None;
        }
        let ip_header = usize::from(ip[0] & 0x0f) * 4;
        let total = usize::from(be16(ip, 2));
        if ip_header < IPV4_MIN_OCTETS || total > ip.len() || total < ip_header + TCP_MIN_OCTETS {
            return None;
        }
        let tcp_header = usize::from(ip[ip_header + 12] >> 4) * 4;
        if tcp_header < TCP_MIN_OCTETS || ip_header + tcp_header > total {
            return None;
        }
        let tcp = ETHERNET_OCTETS + ip_header;
        Some(Self { tcp, payload: tcp + tcp_header, end: ETHERNET_OCTETS + total })
    }

    /// Octets of TCP payload.
    pub(super) fn payload_octets(self) -> usize {
        self.end - self.payload
    }

    /// Whether both checksums hold.
    pub(super) fn checksums_hold(self, frame: &[u8]) -> bool {
        fold(sum(&frame[ETHERNET_OCTETS..self.tcp])) == 0xffff && self.tcp_sum(frame) == 0xffff
    }

    /// Whether cutting or joining leaves the meaning of the segment alone.
    fn resegmentable(self, frame: &[u8]) -> bool {
        self.flags(frame) & (SYN | RST | URG) == 0 && self.payload_octets() > 0
    }

    fn flags(self, frame: &[u8]) -> u8 {
        frame[self.tcp + 13]
    }

    fn sequence(self, frame: &[u8]) -> u32 {
        let at = self.tcp + 4;
        u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
    }

    fn set_sequence(self, frame: &mut [u8], sequence: u32) {
        frame[self.tcp + 4..self.tcp + 8].copy_from_slice(&sequence.to_be_bytes());
    }

    /// The sum over pseudo-header, TCP header and payload (RFC 9293 §3.1), folded to 16 bits.
    fn tcp_sum(self, frame: &[u8]) -> u16 {
        let addresses = sum(&frame[ETHERNET_OCTETS + 12..ETHERNET_OCTETS + 20]);
        let octets = (self.end - self.tcp) as u64;
        fold(addresses + u64::from(PROTOCOL_TCP) + octets + sum(&frame[self.tcp..self.end]))
    }

    /// Writes the length field and both checksums for a packet that ends at `self.end`.
    fn seal(self, frame: &mut [u8]) {
        let total = (self.end - ETHERNET_OCTETS) as u16;
        put16(frame, ETHERNET_OCTETS + 2, total);
        put16(frame, ETHERNET_OCTETS + 10, 0);
        let header = !fold(sum(&frame[ETHERNET_OCTETS..self.tcp]));
        put16(frame, ETHERNET_OCTETS + 10, header);
        put16(frame, self.tcp + 16, 0);
        let tcp = !self.tcp_sum(frame);
        put16(frame, self.tcp + 16, tcp);
    }
}

/// Whether the frame says it carries IPv4.
pub(super) fn is_ipv4(frame: &[u8]) -> bool {
    frame.len() >= ETHERNET_OCTETS && be16(frame, 12) == 0x0800
}

/// Whether [`split`] may cut `frame`: it carries at least two octets of payload.
pub(super) fn can_split(frame: &[u8], segment: Segment) -> bool {
    segment.resegmentable(frame) && segment.payload_octets() >= 2
}

/// Cuts the segment in `head` after `at` octets of payload and writes the rest as a segment of its own into
/// `tail`. Returns the lengths of the two frames. `at` lies strictly inside the payload and `tail` holds at
/// least as much as `head`.
pub(super) fn split(head: &mut [u8], segment: Segment, at: usize, tail: &mut [u8]) -> (usize, usize) {
    debug_assert!(at > 0 && at < segment.payload_octets());
    let cut = segment.payload + at;
    let tail_segment = Segment { end: segment.end - at, ..segment };
    tail[..segment.payload].copy_from_slice(&head[..segment.payload]);
    tail[segment.payload..tail_segment.end].copy_from_slice(&head[cut..segment.end]);
    let sequence = segment.sequence(head).wrapping_add(at as u32);
    tail_segment.set_sequence(tail, sequence);
    let identification = be16(tail, ETHERNET_OCTETS + 4).wrapping_add(1);
    put16(tail, ETHERNET_OCTETS + 4, identification);
    // CWR speaks of the first octet sent after the window was cut (RFC 3168 §6.1.2), FIN and PSH of the last.
    tail[segment.tcp + 13] &= !CWR;
    tail_segment.seal(tail);

    let head_segment = Segment { end: cut, ..segment };
    head[segment.tcp + 13] &= !(FIN | PSH);
    head_segment.seal(head);
    (head_segment.end, tail_segment.end)
}

/// Joins the segment in `next` to the one in `first` when it continues it, and the sum is an IP packet of at
/// most `mtu_octets`; returns the length of the joined frame. Both checksums of both frames must hold
/// already.
pub(super) fn merge(first: &mut [u8], next: &[u8], mtu_octets: usize) -> Option<usize> {
    let left = Segment::locate(first)?;
    let right = Segment::locate(next)?;
    let joined = Segment { end: left.end + right.payload_octets(), ..left };
    let fits = joined.end - ETHERNET_OCTETS <= mtu_octets && joined.end <= first.len();
    if !fits || !continues(first, left, next, right) {
        return None;
    }
    first[left.end..joined.end].copy_from_slice(&next[right.payload..right.end]);
    // Acknowledgment and window are the newer ones.
    first[left.tcp + 8..left.tcp + 12].copy_from_slice(&next[right.tcp + 8..right.tcp + 12]);
    first[left.tcp + 14..left.tcp + 16].copy_from_slice(&next[right.tcp + 14..right.tcp + 16]);
    first[left.tcp + 13] |= right.flags(next);
    joined.seal(first);
    Some(joined.end)
}

/// Whether `next` is the segment right after `first` on the same connection, with the same headers otherwise.
fn continues(first: &[u8], left: Segment, next: &[u8], right: Segment) -> bool {
    let same_headers = left.tcp == right.tcp
        && left.payload == right.payload
        && first[..ETHERNET_OCTETS + 2] == next[..ETHERNET_OCTETS + 2]
        && first[ETHERNET_OCTETS + 6..ETHERNET_OCTETS + 10]
            == next[ETHERNET_OCTETS + 6..ETHERNET_OCTETS + 10]
        && first[ETHERNET_OCTETS + 12..left.tcp + 4] == next[ETHERNET_OCTETS + 12..right.tcp + 4]
        && first[left.tcp + 20..left.payload] == next[right.tcp + 20..right.payload];
    same_headers
        && left.resegmentable(first)
        && right.resegmentable(next)
        && left.flags(first) & FIN == 0
        && left.sequence(first).wrapping_add(left.payload_octets() as u32) == right.sequence(next)
}

/// Inverts bit `bit` of the frame, counted from the end of the Ethernet header.
pub(super) fn invert_bit(frame: &mut [u8], bit: usize) {
    frame[ETHERNET_OCTETS + bit / 8] ^= 0x80 >> (bit % 8);
}

/// Alters the TCP payload so that its checksum still holds, at two places picked by `pick` (given a bound, it
/// returns a number below it). Returns false if the payload has no room for it.
///
/// The ones' complement sum (RFC 1071) sees neither the order of its words, nor a unit moved from one word to
/// another, nor the difference between 0x0000 and 0xffff.
pub(super) fn corrupt_payload(
    frame: &mut [u8],
    segment: Segment,
    spared_octets: usize,
    mut pick: impl FnMut(usize) -> usize,
) -> bool {
    let spared_words = spared_octets.div_ceil(2);
    let words = (segment.payload_octets() / 2).saturating_sub(spared_words);
    if words < 2 {
        return false;
    }
    let first = pick(words);
    let second = (first + 1 + pick(words - 1)) % words;
    let start = segment.payload + 2 * spared_words;
    let (at, other) = (start + 2 * first, start + 2 * second);
    let (left, right) = (be16(frame, at), be16(frame, other));
    let (new_left, new_right) = match (left, right) {
        (0x0000, 0x0000) => (0xffff, 0x0000),
        (0xffff, 0xffff) => (0x0000, 0xffff),
        (left, right) if left == right => (left + 1, right - 1),
        (left, right) => (right, left),
    };
    put16(frame, at, new_left);
    put16(frame, other, new_right);
    true
}

/// Does what a sending port with checksum offload does: the IPv4 header checksum in full, if requested, and
/// the TCP checksum over header, payload and the pseudo-header sum that the sender left in its field. As
/// such a port it goes by the request alone, and never looks whether the headers are there that it speaks
/// of.
pub(in crate::device) fn offload_checksums(frame: &mut [u8], request: ChecksumRequest) {
    let (l2_octets, l3_octets) = (usize::from(request.l2_octets), usize::from(request.l3_octets));
    let tcp = l2_octets + l3_octets;
    if frame.len() < tcp + TCP_MIN_OCTETS || l3_octets < IPV4_MIN_OCTETS {
        return;
    }
    let end = match request.ip {
        IpVersion::V4 => l2_octets + usize::from(be16(frame, l2_octets + 2)),
        IpVersion::V6 => l2_octets + IPV6_OCTETS + usize::from(be16(frame, l2_octets + 4)),
    };
    if end > frame.len() || end < tcp + TCP_MIN_OCTETS {
        return;
    }
    if request.ip == IpVersion::V4 && request.ip_checksum {
        put16(frame, l2_octets + 10, 0);
        let header = !fold(sum(&frame[l2_octets..tcp]));
        put16(frame, l2_octets + 10, header);
    }
    let segment = !fold(sum(&frame[tcp..end]));
    put16(frame, tcp + 16, segment);
}

/// Sets Congestion Experienced in the IP header, if the sender is ECN-capable (RFC 3168 §5). Returns true if
/// it is set. The checksum of an IPv4 header follows by the difference (RFC 1624), so that a wrong one stays
/// wrong.
pub(super) fn mark(frame: &mut [u8]) -> bool {
    const NOT_CAPABLE: u8 = 0b00;
    const EXPERIENCED: u8 = 0b11;
    if frame.len() < ETHERNET_OCTETS + IPV4_MIN_OCTETS {
        return false;
    }
    match be16(frame, 12) {
        0x0800 if frame[ETHERNET_OCTETS + 1] & EXPERIENCED != NOT_CAPABLE => {
            let before = be16(frame, ETHERNET_OCTETS);
            let after = before | u16::from(EXPERIENCED);
            put16(frame, ETHERNET_OCTETS, after);
            let checksum = be16(frame, ETHERNET_OCTETS + 10);
            let sum = u64::from(!checksum) + u64::from(!before) + u64::from(after);
            put16(frame, ETHERNET_OCTETS + 10, !fold(sum));
            true
        }
        // The Traffic Class lies four bits further on (RFC 8200 §3).
        0x86dd if frame[ETHERNET_OCTETS + 1] >> 4 & EXPERIENCED != NOT_CAPABLE => {
            frame[ETHERNET_OCTETS + 1] |= EXPERIENCED << 4;
            true
        }
        _ => false,
    }
}

fn be16(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

fn put16(octets: &mut [u8], at: usize, value: u16) {
    octets[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The sum of 16-bit words, folded; an odd last octet counts as the high half of a word.
///
/// Added up as little-endian words, four octets at a time, and turned round at the end: the ones' complement
/// sum does not depend on the order of octets (RFC 1071 §2), and this order needs no swap on the machines we
/// run on.
fn sum(octets: &[u8]) -> u64 {
    let mut fours = octets.chunks_exact(4);
    let mut total: u64 =
        fours.by_ref().map(|four| u64::from(u32::from_le_bytes([four[0], four[1], four[2], four[3]]))).sum();
    let mut last = [0; 4];
    let rest = fours.remainder();
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_le_bytes(last));
    u64::from(fold(total).swap_bytes())
}

/// Folds a sum to 16 bits with end-around carry.
fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}
