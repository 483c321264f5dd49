//! Segments that follow another of the same connection: their headers are compared with those of the one
//! before as they lie in their frames, and not parsed.

use super::segment::Segment;
use super::tcp::{Flags, Header};
use super::tuple::Tuple;
use super::{ethernet, ipv4, ipv6};

const LINK: usize = ethernet::Header::LEN;
const TAGGED: usize = LINK + ethernet::Tag::LEN;
const V4: usize = ipv4::Header::LEN;
const V6: usize = ipv6::Header::LEN;
const TCP: usize = Header::MIN_LEN;
/// With the timestamps option and the two NOPs before it.
const CLOCKED: usize = TCP + 12;

/// Where a TCP header has its control bits.
const FLAGS: usize = 13;

impl Segment {
    /// Makes this segment, which lies in the frame `before`, the one in `frame`, if the headers there are the
    /// same but for sequence number, PSH, length, checksums and the identification of IPv4. Returns false,
    /// and changes nothing, if more differs, there are options besides timestamps, or the segment is not
    /// whole. Checksums are left to the caller.
    #[inline]
    pub fn follow(&mut self, before: &[u8], frame: &[u8]) -> bool {
        if self.has_other_options {
            return false;
        }
        let network = self.transport - self.tuple.network_octets();
        match (network, &self.tuple, self.timestamps.is_some()) {
            (LINK, Tuple::V4(_), true) => self.follow_in::<LINK, V4, { LINK + V4 + CLOCKED }>(before, frame),
            (LINK, Tuple::V4(_), false) => self.follow_in::<LINK, V4, { LINK + V4 + TCP }>(before, frame),
            (LINK, Tuple::V6(_), true) => self.follow_in::<LINK, V6, { LINK + V6 + CLOCKED }>(before, frame),
            (LINK, Tuple::V6(_), false) => self.follow_in::<LINK, V6, { LINK + V6 + TCP }>(before, frame),
            (_, Tuple::V4(_), true) => self.follow_in::<TAGGED, V4, { TAGGED + V4 + CLOCKED }>(before, frame),
            (_, Tuple::V4(_), false) => self.follow_in::<TAGGED, V4, { TAGGED + V4 + TCP }>(before, frame),
            (_, Tuple::V6(_), true) => self.follow_in::<TAGGED, V6, { TAGGED + V6 + CLOCKED }>(before, frame),
            (_, Tuple::V6(_), false) => self.follow_in::<TAGGED, V6, { TAGGED + V6 + TCP }>(before, frame),
        }
    }

    /// [`follow`](Self::follow) for `HEADERS` octets of headers, `NETWORK` of which come before those of IP,
    /// which are `IP`.
    #[inline]
    fn follow_in<const NETWORK: usize, const IP: usize, const HEADERS: usize>(
        &mut self,
        before: &[u8],
        frame: &[u8],
    ) -> bool {
        let common = const { common_bits::<NETWORK, IP, HEADERS>() };
        let before: Option<&[u8; HEADERS]> = before.first_chunk();
        let headers: Option<&[u8; HEADERS]> = frame.first_chunk();
        let Some((before, headers)) = before.zip(headers) else { return false };
        let mut differences = 0;
        let mut at = 0;
        // Not a range, whose iterator is not inlined where little is optimized.
        while at < HEADERS {
            differences |= (before[at] ^ headers[at]) & common[at];
            at += 1;
        }
        let half = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
        // The length of IPv4 counts its header, that of IPv6 does not.
        let packet_octets =
            if IP == V4 { usize::from(half(NETWORK + 2)) } else { V6 + usize::from(half(NETWORK + 4)) };
        let end = NETWORK + packet_octets;
        if differences != 0 || end < HEADERS || end > frame.len() {
            return false;
        }
        let tcp = NETWORK + IP;
        self.seq.0 = u32::from(half(tcp + 4)) << 16 | u32::from(half(tcp + 6));
        self.flags = Flags::from_bits_retain(headers[tcp + FLAGS]);
        self.payload_octets = end - HEADERS;
        true
    }
}

/// Returns the bits that are equal in the headers of segments that follow one another.
const fn common_bits<const NETWORK: usize, const IP: usize, const HEADERS: usize>() -> [u8; HEADERS] {
    let mut bits = [0xff; HEADERS];
    // Of IPv4 total length, identification and checksum; of IPv6 the length. Of TCP sequence number and
    // checksum.
    let own: &[usize] = if IP == V4 { &[2, 3, 4, 5, 10, 11] } else { &[4, 5] };
    let mut field = 0;
    while field < own.len() {
        bits[NETWORK + own[field]] = 0;
        field += 1;
    }
    let own = [4, 5, 6, 7, 16, 17];
    let mut field = 0;
    while field < own.len() {
        bits[NETWORK + IP + own[field]] = 0;
        field += 1;
    }
    bits[NETWORK + IP + FLAGS] = !Flags::PSH.bits();
    bits
}
