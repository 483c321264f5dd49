//! Segments that follow another of the same connection: their headers are compared with those of the one
//! before as they lie in their frames, and not parsed.

use super::segment::Segment;
use super::tcp::{Flags, Header, SeqNumber};
use super::tuple::Tuple;
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

/// Where a TCP header has its control bits.
const FLAGS: usize = 13;

impl Segment {
    /// Makes this segment, which lies in the frame `before`, the one in `frame`, if the headers there are the
    /// same but for sequence number, PSH, length, checksums, the identification of IPv4 and what a TCP RDMA
    /// option of the same length says. Returns false, and changes nothing, if more differs, there are other
    /// options besides timestamps, or the segment is not whole or its frame shorter than 96 octets. Checksums
    /// are left to the caller.
    #[expect(clippy::inline_always, reason = "a call costs two loops a tenth of what they do for a segment")]
    #[inline(always)]
    pub fn follow(&mut self, before: &[u8], frame: &[u8]) -> bool {
        let network = self.transport - self.tuple.network_octets();
        let is_ipv6 = matches!(self.tuple, Tuple::V6(_));
        let form = Form { is_tagged: network != LINK, is_ipv6, has_clock: self.timestamps.is_some() };
        let common = &COMMON[form.index()];
        let before_headers: Option<&[u8; COMPARED]> = before.first_chunk();
        let headers: Option<&[u8; COMPARED]> = frame.first_chunk();
        let (Some(before_headers), Some(headers)) = (before_headers, headers) else { return false };
        let mut differences = 0;
        let mut at = 0;
        // Not a range, whose iterator is not inlined where little is optimized.
        while at < COMPARED {
            differences |= (before_headers[at] ^ headers[at]) & common[at];
            at += 1;
        }
        let ip = headers.get(network..).and_then(|ip| ip.first_chunk::<8>());
        let tcp = headers.get(self.transport..).and_then(|tcp| tcp.first_chunk::<{ Header::MIN_LEN }>());
        let (Some(ip), Some(tcp)) = (ip, tcp) else { return false };
        // The length of IPv4 counts its header, that of IPv6 does not.
        let packet_octets = if is_ipv6 {
            V6 + usize::from(u16::from_be_bytes([ip[4], ip[5]]))
        } else {
            usize::from(u16::from_be_bytes([ip[2], ip[3]]))
        };
        let end = network + packet_octets;
        if differences != 0
            || self.has_other_options
            || end < self.payload_offset
            || end > frame.len()
            || self.rdma_octets > 0 && !self.has_same_option(before, frame)
        {
            return false;
        }
        self.seq = SeqNumber(u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]));
        self.flags = Flags::from_bits_retain(tcp[FLAGS]);
        self.payload_octets = end - self.payload_offset;
        true
    }

    /// Returns true if kind and length of the TCP RDMA option are the same in both frames, as the headers
    /// before it are: then there is no option after it.
    #[inline(never)]
    fn has_same_option(&self, before: &[u8], frame: &[u8]) -> bool {
        let at = self.payload_offset - usize::from(self.rdma_octets);
        let kind = |frame: &[u8]| frame.get(at..self.payload_offset)?.first_chunk::<2>().copied();
        kind(before).is_some_and(|before| kind(frame) == Some(before))
    }
}

/// What decides where the fields of headers stand.
struct Form {
    /// There is an IEEE 802.1Q tag.
    is_tagged: bool,
    is_ipv6: bool,
    /// There are timestamps.
    has_clock: bool,
}

/// The bits that are equal in the headers of segments that follow one another, by the
/// [index](Form::index) of their form.
static COMMON: [[u8; COMPARED]; 8] = {
    let mut all = [[0; COMPARED]; 8];
    let mut index = 0;
    while index < all.len() {
        all[index] = common_bits(&Form::of(index));
        index += 1;
    }
    all
};

impl Form {
    #[inline]
    fn index(&self) -> usize {
        usize::from(self.is_tagged) | usize::from(self.is_ipv6) << 1 | usize::from(self.has_clock) << 2
    }

    const fn of(index: usize) -> Self {
        Self { is_tagged: index & 1 != 0, is_ipv6: index & 2 != 0, has_clock: index & 4 != 0 }
    }
}

/// Returns the bits that are equal in headers of this form, with zeros for the payload.
const fn common_bits(form: &Form) -> [u8; COMPARED] {
    let network = if form.is_tagged { TAGGED } else { LINK };
    let transport = network + if form.is_ipv6 { V6 } else { V4 };
    let headers = transport + if form.has_clock { CLOCKED } else { Header::MIN_LEN };
    let mut bits = [0; COMPARED];
    let mut at = 0;
    while at < headers {
        bits[at] = 0xff;
        at += 1;
    }
    // Of IPv4 total length, identification and checksum; of IPv6 the length. Of TCP sequence number and
    // checksum.
    let own: &[usize] = if form.is_ipv6 { &[4, 5] } else { &[2, 3, 4, 5, 10, 11] };
    let mut field = 0;
    while field < own.len() {
        bits[network + own[field]] = 0;
        field += 1;
    }
    let own = [4, 5, 6, 7, 16, 17];
    let mut field = 0;
    while field < own.len() {
        bits[transport + own[field]] = 0;
        field += 1;
    }
    bits[transport + FLAGS] = !Flags::PSH.bits();
    bits
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
            let mut segment = if self.over_ipv6 {
                Segment::parse_ipv6(frame, self.network())?
            } else {
                Segment::parse_ipv4(frame, self.network())?
            };
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

    /// Makes `segment` the one in `frame`, if that follows. Fails if a segment that is refused changes it.
    fn followed(segment: &Segment, before: &[u8], frame: &[u8]) -> Option<Segment> {
        let mut next = *segment;
        let follows = next.follow(before, frame);
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
                let Segment { seq, flags, payload_octets, .. } = found;
                assert_eq!(found, Segment { seq, flags, payload_octets, ..segment }, "{form:?}: bit {bit}");
                assert_eq!(flags - Flags::PSH, Flags::ACK);
            }
            // PSH, the checksum and the sequence number of TCP, what the RDMA option says, and of IPv4 the
            // checksum and the identification; and lengths that are shorter.
            let of_ip = if form.over_ipv6 { 0 } else { 32 };
            let length = next.len() - form.network() - if form.over_ipv6 { V6 } else { 0 };
            let still_whole = (0..16).filter(|bit| length >> bit & 1 == 1 && PAYLOAD >= 1 << bit).count();
            let of_option = if form.rdma { RDMA_BITS } else { 0 };
            assert_eq!(bits.len(), 1 + 16 + 32 + of_option + of_ip + still_whole, "{form:?}: {bits:?}");
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
                assert!(segment.follow(&before, &frame), "{form:?}: {number}");
                assert_eq!(Some(segment), form.parse(&frame));
                assert_eq!(segment.payload_octets, PAYLOAD - number as usize);
                before = frame;
            }
        }
    }

    /// A segment is whole, with padding after it or not, and has all its headers.
    #[test]
    fn what_follows_is_whole() {
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
