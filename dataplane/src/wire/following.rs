//! Segments that follow another of the same connection: their headers are compared with those of that one as
//! they lie in their frames, and not parsed.

use super::flow::Flow;
use super::segment::Segment;
use super::tcp::{Flags, Header, SeqNumber};
use super::{ethernet, ipv4, ipv6};

const LINK: usize = ethernet::Header::LEN;
const TAGGED: usize = LINK + ethernet::Tag::LEN;
const V4: usize = ipv4::Header::LEN;
const V6: usize = ipv6::Header::LEN;
/// Octets of a TCP header with the timestamps option and the two NOPs before it.
const CLOCKED: usize = Header::MIN_LEN + 12;

/// Octets of a frame that are compared: the longest headers, and of others some payload, which counts as
/// equal. A shorter frame is not compared.
const COMPARED: usize = 96;
const _: () = assert!(TAGGED + V6 + CLOCKED <= COMPARED);
const WORDS: usize = COMPARED / 8;

/// All places at which a header of IP or of TCP begins are at most this, a mask of bits.
const BEGIN_MAX: u8 = 0x3f;
const _: () = assert!(TAGGED + V6 <= BEGIN_MAX as usize);

/// Where a TCP header has its control bits.
const FLAGS: usize = 13;

/// The headers of a segment as they lie in its frame. Those of others are compared with it.
#[derive(Clone, Copy, Debug)]
pub struct HeaderImage {
    words: [u64; WORDS],
    form: Option<&'static Form>,
    /// Where in their frames the payload of all of them begins.
    payload_offset: usize,
    /// Kind and length of a TCP RDMA option.
    rdma_option: [u8; 2],
}

impl HeaderImage {
    /// The headers of no segment: none follows.
    pub const NONE: Self = Self { words: [0; WORDS], form: None, payload_offset: 0, rdma_option: [0; 2] };

    /// Makes this the headers of `segment`, which lies in `frame`. No other segment is compared with them if
    /// there are options besides timestamps and the TCP RDMA option, or the frame is shorter than 96 octets.
    #[inline]
    pub fn set(&mut self, segment: &Segment, frame: &[u8]) {
        self.form = None;
        let Some(headers) = frame.first_chunk().filter(|_| !segment.has_other_options) else { return };
        self.words = words(headers);
        let network = segment.transport - segment.flow.network_octets();
        let index = usize::from(network != LINK)
            | usize::from(matches!(segment.flow, Flow::V6(_))) << 1
            | usize::from(segment.timestamps.is_some()) << 2;
        self.form = Some(&FORMS[index]);
        self.payload_offset = segment.payload_offset;
        if segment.rdma_octets > 0 {
            self.rdma_option = self.rdma_option_of(segment, frame).unwrap_or_default();
        }
    }

    /// Makes `segment`, which is the one of this image or has followed it, the one in `frame`, if the headers
    /// there are the same but for sequence number, PSH, CWR, ECN bits of IP, length, checksums, the
    /// identification of IPv4 and what a TCP RDMA option of the same length says. Where `segment` has its
    /// payload before that makes no difference. Returns false, and changes nothing, if more differs, or the
    /// segment is not complete or its frame shorter than 96 octets. Checksums are left to the caller.
    #[expect(clippy::inline_always, reason = "a call costs two loops a tenth of what they do for a segment")]
    #[inline(always)]
    pub fn precedes(&self, segment: &mut Segment, frame: &[u8]) -> bool {
        let (Some(headers), Some(form)) = (frame.first_chunk::<COMPARED>(), self.form) else { return false };
        let others = words(headers);
        let mut differences = 0;
        let mut at = 0;
        // Not a range, whose iterator is not inlined where little is optimized.
        while at < WORDS {
            differences |= (self.words[at] ^ others[at]) & form.common[at];
            at += 1;
        }
        let length = usize::from(form.length & BEGIN_MAX);
        let packet = usize::from(u16::from_be_bytes([headers[length], headers[length + 1]]));
        let end = packet + usize::from(form.length_from);
        if differences != 0
            || end < self.payload_offset
            || end > frame.len()
            || segment.rdma_octets > 0 && self.rdma_option_of(segment, frame) != Some(self.rdma_option)
        {
            return false;
        }
        let tcp = usize::from(form.transport & BEGIN_MAX);
        segment.seq = SeqNumber(u32::from_be_bytes([
            headers[tcp + 4],
            headers[tcp + 5],
            headers[tcp + 6],
            headers[tcp + 7],
        ]));
        segment.flags = Flags::from_bits_retain(headers[tcp + FLAGS]);
        segment.payload_offset = self.payload_offset;
        segment.payload_octets = end - self.payload_offset;
        segment.ecn = headers[usize::from(form.ecn & BEGIN_MAX)] >> form.ecn_shift & 0x03;
        true
    }

    /// Returns kind and length of the TCP RDMA option of `segment` in `frame`. If both are the same in two
    /// frames, as the headers before it are, then there is no option after it.
    #[inline(never)]
    fn rdma_option_of(&self, segment: &Segment, frame: &[u8]) -> Option<[u8; 2]> {
        let at = self.payload_offset - usize::from(segment.rdma_octets);
        frame.get(at..self.payload_offset)?.first_chunk().copied()
    }
}

/// Returns the first octets of a frame as words.
#[inline]
fn words(octets: &[u8; COMPARED]) -> [u64; WORDS] {
    let (chunks, _) = octets.as_chunks();
    let mut words = [0; WORDS];
    let mut at = 0;
    while at < WORDS {
        words[at] = u64::from_ne_bytes(chunks[at]);
        at += 1;
    }
    words
}

/// Where the fields of headers stand, and which bits are equal in segments that follow one another.
#[derive(Debug)]
struct Form {
    /// With zeros for what may differ, and for the payload.
    common: [u64; WORDS],
    /// Where the TCP header begins.
    transport: u8,
    /// Where the length of the packet stands, and the octet of the frame that it is counted from: that of
    /// IPv4 counts its header, that of IPv6 does not.
    length: u8,
    length_from: u8,
    /// The octet with the ECN bits, and the number of bits after them in it.
    ecn: u8,
    ecn_shift: u8,
}

/// The forms of headers: bit 0 of the index says that there is an IEEE 802.1Q tag, bit 1 that they are of
/// IPv6, bit 2 that there are timestamps.
static FORMS: [Form; 8] =
    [Form::of(0), Form::of(1), Form::of(2), Form::of(3), Form::of(4), Form::of(5), Form::of(6), Form::of(7)];

impl Form {
    const fn of(index: usize) -> Self {
        let (is_tagged, is_ipv6, has_clock) = (index & 1 != 0, index & 2 != 0, index & 4 != 0);
        let network = if is_tagged { TAGGED } else { LINK };
        let transport = network + if is_ipv6 { V6 } else { V4 };
        let headers = transport + if has_clock { CLOCKED } else { Header::MIN_LEN };
        let ecn_shift = if is_ipv6 { 4 } else { 0 };
        let mut bits = [0; COMPARED];
        let mut at = 0;
        while at < headers {
            bits[at] = 0xff;
            at += 1;
        }
        // Of IPv4 total length, identification and checksum; of IPv6 the length. Of TCP sequence number and
        // checksum.
        let own: &[usize] = if is_ipv6 { &[4, 5] } else { &[2, 3, 4, 5, 10, 11] };
        let mut field = 0;
        while field < own.len() {
            bits[network + own[field]] = 0;
            field += 1;
        }
        bits[network + 1] = !(0x03 << ecn_shift);
        let own = [4, 5, 6, 7, 16, 17];
        let mut field = 0;
        while field < own.len() {
            bits[transport + own[field]] = 0;
            field += 1;
        }
        bits[transport + FLAGS] = !Flags::PSH.union(Flags::CWR).bits();
        let (chunks, _) = bits.as_chunks();
        let mut common = [0; WORDS];
        let mut at = 0;
        while at < WORDS {
            common[at] = u64::from_ne_bytes(chunks[at]);
            at += 1;
        }
        Self {
            common,
            transport: transport as u8,
            length: network as u8 + if is_ipv6 { 4 } else { 2 },
            length_from: network as u8 + if is_ipv6 { V6 as u8 } else { 0 },
            ecn: network as u8 + 1,
            ecn_shift,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::wire::ethernet::{EtherType, MacAddress, Tag};
    use crate::wire::ipv4::Protocol;
    use crate::wire::tcp::{Options, SeqNumber, Timestamps};
    use crate::wire::tcp_rdma::{DEFAULT_KIND, RdmaOption};

    const SEQ: SeqNumber = SeqNumber(0xffff_ff00);
    const PAYLOAD: usize = 700;

    /// The form of a frame.
    #[derive(Clone, Copy, Debug)]
    struct Form {
        tagged: bool,
        over_ipv6: bool,
        timestamps: bool,
        /// With a TCP RDMA option.
        rdma: bool,
    }

    /// Bits of the option that say something of a transfer.
    const RDMA_BITS: usize = 18 * 8;

    impl Form {
        fn all() -> impl Iterator<Item = Self> {
            (0..16).map(|bits| Self {
                tagged: bits & 1 != 0,
                over_ipv6: bits & 2 != 0,
                timestamps: bits & 4 != 0,
                rdma: bits & 8 != 0,
            })
        }

        /// Where the IP header begins.
        const fn network(self) -> usize {
            if self.tagged { TAGGED } else { LINK }
        }

        /// A frame with `PAYLOAD` octets from `seq` on.
        fn frame(self, seq: SeqNumber, flags: Flags, identification: u16) -> Vec<u8> {
            let timestamps = self.timestamps.then_some(Timestamps { value: 9, echo: 8 });
            let rdma = self.rdma.then(|| RdmaOption::parse(&[identification as u8; 18]).expect("a transfer"));
            self.frame_with(Options { timestamps, rdma, ..Options::default() }, seq, flags, identification)
        }

        fn frame_with(self, options: Options, seq: SeqNumber, flags: Flags, identification: u16) -> Vec<u8> {
            let header = Header { source_port: 7, seq, flags, window: 501, options, ..Header::default() };
            let segment_octets = header.header_len() + PAYLOAD;
            let transport = self.network() + if self.over_ipv6 { V6 } else { V4 };
            let mut octets = vec![0; transport + segment_octets];
            let ip = if self.over_ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
            let (destination, source) = (MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1]));
            let ethertype = if self.tagged { EtherType::VLAN } else { ip };
            ethernet::Header { destination, source, ethertype }.emit(&mut octets);
            if self.tagged {
                Tag { vlan: 7, ethertype: ip }.emit(&mut octets[LINK..]);
            }
            let network = &mut octets[self.network()..];
            if self.over_ipv6 {
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
                .emit(network);
            } else {
                ipv4::Header {
                    source: Ipv4Addr::new(198, 18, 0, 1),
                    destination: Ipv4Addr::new(198, 18, 0, 2),
                    protocol: Protocol::TCP,
                    ttl: 64,
                    total_len: (V4 + segment_octets) as u16,
                    dont_fragment: true,
                    more_fragments: false,
                    fragment_offset: 0,
                    identification,
                    ecn: 2,
                    dscp: 0,
                }
                .emit(network);
            }
            header.emit(&mut octets[transport..]);
            octets
        }

        fn parse(self, frame: &[u8]) -> Option<Segment> {
            let mut segment = Segment::NONE;
            let is_found = if self.over_ipv6 {
                segment.read_ipv6(frame, self.network())
            } else {
                segment.read_ipv4(frame, self.network())
            };
            if !is_found {
                return None;
            }
            if segment.has_other_options {
                segment.find_rdma_option(frame, DEFAULT_KIND);
                assert_eq!(segment.rdma_option(frame).is_some(), self.rdma && !segment.has_other_options);
            }
            Some(segment)
        }

        /// Sets the length of the packet in `frame`.
        fn set_packet_octets(self, frame: &mut [u8], octets: usize) {
            let (at, octets) = if self.over_ipv6 { (4, octets - V6) } else { (2, octets) };
            let at = self.network() + at;
            frame[at..at + 2].copy_from_slice(&(octets as u16).to_be_bytes());
        }
    }

    /// The headers of `segment`, which lies in `frame`.
    fn image(segment: &Segment, frame: &[u8]) -> HeaderImage {
        let mut image = HeaderImage::NONE;
        image.set(segment, frame);
        image
    }

    /// Makes `segment` the one in `frame`, if that follows. Fails if a segment that is refused changes it.
    fn followed(segment: &Segment, before: &[u8], frame: &[u8]) -> Option<Segment> {
        let mut next = *segment;
        let follows = image(segment, before).precedes(&mut next, frame);
        assert!(follows || next == *segment, "a refused frame has changed the segment");
        follows.then_some(next)
    }

    /// A frame follows if nothing but its own fields differs, and only then. Of frames with one bit changed
    /// those that follow are those that parse as the first does, but for these fields.
    #[test]
    fn what_follows_differs_in_its_own_fields_only() {
        for form in Form::all() {
            let first = form.frame(SEQ, Flags::ACK, 1);
            let segment = form.parse(&first).expect("a segment");
            let next = form.frame(SEQ + PAYLOAD as u32, Flags::ACK | Flags::PSH, 2);
            let second = followed(&segment, &first, &next).expect("it follows");
            assert_eq!(Some(second), form.parse(&next), "{form:?}");
            assert_eq!((second.seq, second.payload_octets), (SEQ + PAYLOAD as u32, PAYLOAD));
            let headers = next.len() - PAYLOAD;
            let mut bits = Vec::new();
            for bit in 0..8 * headers {
                let mut changed = next.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let Some(found) = followed(&segment, &first, &changed) else { continue };
                bits.push(bit);
                assert_eq!(form.parse(&changed), Some(found), "{form:?}: bit {bit}");
                let Segment { seq, flags, ecn, payload_octets, .. } = found;
                let expected = Segment { seq, flags, ecn, payload_octets, ..segment };
                assert_eq!(found, expected, "{form:?}: bit {bit}");
                assert_eq!(flags - Flags::PSH - Flags::CWR, Flags::ACK);
            }
            // PSH, CWR, the checksum and the sequence number of TCP, what the RDMA option says, the ECN bits,
            // and of IPv4 the checksum and the identification; and lengths that are shorter.
            let of_ip = if form.over_ipv6 { 0 } else { 32 };
            let length = next.len() - form.network() - if form.over_ipv6 { V6 } else { 0 };
            let still_entire = (0..16).filter(|bit| length >> bit & 1 == 1 && PAYLOAD >= 1 << bit).count();
            let of_option = if form.rdma { RDMA_BITS } else { 0 };
            assert_eq!(bits.len(), 2 + 16 + 32 + 2 + of_option + of_ip + still_entire, "{form:?}: {bits:?}");
        }
    }

    /// Congestion marks change from segment to segment (RFC 3168 §5).
    #[test]
    fn marks_differ_among_those_that_follow() {
        for form in Form::all() {
            let first = form.frame(SEQ, Flags::ACK, 1);
            let mut segment = form.parse(&first).expect("a segment");
            let image = image(&segment, &first);
            for ecn in [3, 2, 0, 1, 3] {
                let mut next = form.frame(SEQ + 7, Flags::ACK, 2);
                let (octet, shift) = (form.network() + 1, if form.over_ipv6 { 4 } else { 0 });
                next[octet] = next[octet] & !(3 << shift) | ecn << shift;
                assert!(image.precedes(&mut segment, &next), "{form:?}: {ecn}");
                assert_eq!((Some(segment), segment.ecn), (form.parse(&next), ecn));
            }
        }
    }

    /// The segment before may itself have followed another.
    #[test]
    fn segments_follow_one_after_the_other() {
        for form in Form::all() {
            let mut before = form.frame(SEQ, Flags::ACK, 0);
            let mut segment = form.parse(&before).expect("a segment");
            for number in 1..4 {
                let flags = if number == 2 { Flags::ACK | Flags::PSH } else { Flags::ACK };
                let mut frame = form.frame(SEQ + number * 7, flags, number as u16);
                let packet_octets = frame.len() - form.network() - number as usize;
                form.set_packet_octets(&mut frame, packet_octets);
                let image = image(&segment, &before);
                assert!(image.precedes(&mut segment, &frame), "{form:?}: {number}");
                assert_eq!(Some(segment), form.parse(&frame));
                assert_eq!(segment.payload_octets, PAYLOAD - number as usize);
                before = frame;
            }
        }
    }

    /// A segment is complete, with padding after it or not, and has all its headers.
    #[test]
    fn what_follows_is_complete() {
        for form in Form::all() {
            let first = form.frame(SEQ, Flags::ACK, 1);
            let segment = form.parse(&first).expect("a segment");
            let next = form.frame(SEQ + PAYLOAD as u32, Flags::ACK, 2);
            for octets in 0..next.len() {
                assert_eq!(followed(&segment, &first, &next[..octets]), None, "{octets}");
            }
            let headers = next.len() - PAYLOAD;
            for octets in 0..headers {
                assert_eq!(followed(&segment, &first[..octets], &next), None, "{octets}");
            }
            for payload in [0, 1, PAYLOAD - 1] {
                let mut shorter = next.clone();
                form.set_packet_octets(&mut shorter, headers - form.network() + payload);
                let found = followed(&segment, &first, &shorter);
                assert!(found.is_some() && found == form.parse(&shorter), "{form:?}: {payload}");
            }
            for octets in [headers - 1, headers - 12, next.len() + 1] {
                let mut wrong = next.clone();
                form.set_packet_octets(&mut wrong, octets - form.network());
                assert_eq!(followed(&segment, &first, &wrong), None, "{form:?}: {octets}");
            }
        }
    }

    /// Nothing follows a segment with options besides timestamps: they are not compared.
    #[test]
    fn nothing_follows_other_options() {
        let timestamps = Some(Timestamps { value: 9, echo: 8 });
        for form in Form::all() {
            for timestamps in [None, timestamps] {
                let mut options = Options { timestamps, ..Options::default() };
                options.sack.push((SeqNumber(5), SeqNumber(9)));
                let first = form.frame_with(options, SEQ, Flags::ACK, 1);
                let segment = form.parse(&first).expect("a segment");
                assert!(segment.has_other_options);
                assert_eq!(followed(&segment, &first, &first), None, "{form:?}");
            }
        }
    }
}
