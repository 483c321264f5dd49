//! Tests of FPDU framing against an oracle written from RFC 5044 alone: it works octet by octet, shares no
//! code with the crate and follows the document's definitions literally.

use proptest::collection::vec;
use proptest::prelude::*;
use warpline_dataplane::mpa::receiver::{FpduReceiver, Octets, Ulpdu};
use warpline_dataplane::mpa::{Framing, fpdu};

/// CRC32c bit by bit, most significant bit first, with the reflections spelled out.
fn crc32c(octets: &[u8]) -> u32 {
    let mut remainder = 0xffff_ffffu32;
    for octet in octets {
        remainder ^= u32::from(octet.reverse_bits()) << 24;
        for _ in 0..8 {
            let carry = remainder >> 31 == 1;
            remainder <<= 1;
            if carry {
                remainder ^= 0x1edc_6f41;
            }
        }
    }
    !remainder.reverse_bits()
}

/// A stream in Full Operation as RFC 5044 §4 describes it.
struct Oracle {
    markers: bool,
    crc: bool,
    stream: Vec<u8>,
}

impl Oracle {
    /// Adds a Marker, if one is due here. `length_at` is the position of ULPDU_Length, once it has one.
    fn mark(&mut self, length_at: Option<usize>) {
        if self.markers && self.stream.len().is_multiple_of(512) {
            let distance = length_at.map_or(0, |at| self.stream.len() - at);
            self.stream.extend([0, 0, (distance >> 8) as u8, distance as u8]);
        }
    }

    fn octet(&mut self, octet: u8, length_at: Option<usize>) {
        self.mark(length_at);
        self.stream.push(octet);
    }

    fn fpdu(&mut self, ulpdu: &[u8]) {
        let start = self.stream.len();
        self.octet((ulpdu.len() >> 8) as u8, None);
        let length_at = self.stream.len() - 1;
        self.octet(ulpdu.len() as u8, Some(length_at));
        for octet in ulpdu {
            self.octet(*octet, Some(length_at));
        }
        let mut framed = 2 + ulpdu.len();
        while !framed.is_multiple_of(4) {
            self.octet(0, Some(length_at));
            framed += 1;
        }
        // A Marker between PAD and CRC is covered.
        self.mark(Some(length_at));
        let crc = if self.crc { crc32c(&self.stream[start..]) } else { 0 };
        self.stream.extend(crc.to_le_bytes());
    }

    fn stream(markers: bool, crc: bool, ulpdus: &[Vec<u8>]) -> Vec<u8> {
        let mut oracle = Self { markers, crc, stream: Vec::new() };
        for ulpdu in ulpdus {
            oracle.fpdu(ulpdu);
        }
        oracle.stream
    }
}

fn encoded(markers: bool, crc: bool, header_len: usize, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = Vec::new();
    for ulpdu in ulpdus {
        let (header, payload) = ulpdu.split_at(header_len.min(ulpdu.len()));
        let position = stream.len() as u64;
        let start = stream.len();
        stream.resize(start + fpdu::wire_len(position, ulpdu.len(), markers), 0xee);
        let filled = fpdu::encode(
            &mut stream[start..],
            position,
            Framing { markers, crc },
            header,
            payload.len(),
            |at, out| {
                out.copy_from_slice(&payload[at..at + out.len()]);
                true
            },
        );
        assert!(filled);
    }
    stream
}

/// Octets that arrived in segments of `segment` octets.
struct Segments<'a> {
    octets: &'a [u8],
    segment: usize,
}

impl Octets for Segments<'_> {
    fn for_each_slice(&self, start: usize, len: usize, f: impl FnMut(&[u8])) {
        self.octets[start..start + len].chunks(self.segment).for_each(f);
    }

    fn available(&self) -> usize {
        self.octets.len()
    }
}

/// Returns the result of a receiver for `stream` when `arrival` octets arrive at a time.
fn decoded(markers: bool, crc: bool, stream: &[u8], arrival: usize, segment: usize) -> Vec<Vec<u8>> {
    let mut receiver = FpduReceiver::new(Framing { markers, crc });
    let mut ulpdus = Vec::new();
    let mut arrived = 0;
    while arrived < stream.len() {
        arrived = stream.len().min(arrived + arrival);
        loop {
            let octets = Segments { octets: &stream[receiver.position() as usize..arrived], segment };
            let Some(located) = receiver.next(&octets).expect("a good stream") else {
                break;
            };
            let mut ulpdu = vec![0; located.ulpdu_len()];
            let header_len = located.ulpdu(&octets).copy_prefix(&mut ulpdu[..located.ulpdu_len().min(14)]);
            located.ulpdu(&octets).for_each_piece(header_len, |at, slice| {
                ulpdu[header_len + at..][..slice.len()].copy_from_slice(slice);
            });
            receiver.advance(&located);
            ulpdus.push(ulpdu);
        }
    }
    assert_eq!(receiver.position() as usize, stream.len());
    ulpdus
}

/// Octets that look like Markers, lengths and zeros more often than chance would have it.
fn octet() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), Just(0), Just(4), Just(0x2a)]
}

fn ulpdus(lengths: impl Strategy<Value = usize>, count: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(lengths.prop_flat_map(|len| vec(octet(), len)), 1..count)
}

/// The oracle's own CRC is that of the documents.
// Requirements: MPA-4.4-11
#[test]
fn the_oracle_knows_the_check_value() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

/// The largest ULPDU there may be, at every phase.
// Requirements: MPA-3-06
#[test]
fn the_largest_ulpdu_at_every_phase() {
    for phase in (0..508).step_by(36) {
        let ulpdus = [vec![1; phase], vec![2; fpdu::MULPDU_MAX]];
        let stream = Oracle::stream(true, true, &ulpdus);
        assert_eq!(encoded(true, true, 18, &ulpdus), stream);
        assert_eq!(decoded(true, true, &stream, stream.len(), 1460), ulpdus);
    }
}

proptest! {
    // Requirements: MPA-4.1-01, MPA-4.1-02, MPA-4.3-03, MPA-4.3-05, MPA-4.4-13, MPA-4.4-14
    #[test]
    fn encoder_and_oracle_agree(
        ulpdus in ulpdus(1usize..3000, 6), markers: bool, crc: bool, tagged: bool
    ) {
        let header_len = if tagged { 14 } else { 18 };
        prop_assert_eq!(encoded(markers, crc, header_len, &ulpdus), Oracle::stream(markers, crc, &ulpdus));
    }

    /// However the stream arrives.
    // Requirements: MPA-1.2-03, MPA-4.3-09, C00-5.2-05, C00-7.1-08, C00-7.1-09, DDP-3-04
    #[test]
    fn receivers_recover_what_the_oracle_framed(
        ulpdus in ulpdus(0usize..3000, 6), markers: bool, crc: bool,
        arrival in 1usize..4000, segment in 1usize..2000,
    ) {
        let stream = Oracle::stream(markers, crc, &ulpdus);
        prop_assert_eq!(decoded(markers, crc, &stream, arrival, segment), ulpdus);
    }

    /// Many small FPDUs share the intervals between Markers.
    // Requirements: MPA-4.3-08, MPA-4.3-11
    #[test]
    fn small_fpdus_share_intervals(ulpdus in ulpdus(18usize..=40, 120), arrival in 1usize..100) {
        let stream = Oracle::stream(true, true, &ulpdus);
        prop_assert_eq!(&encoded(true, true, 18, &ulpdus), &stream);
        prop_assert_eq!(decoded(true, true, &stream, arrival, 64), ulpdus);
    }

    /// A CRC that is not in use may hold anything.
    // Requirements: MPA-4.4-09, MPA-7.1.1-09
    #[test]
    fn unused_crcs_are_not_looked_at(ulpdus in ulpdus(0usize..600, 6), markers: bool) {
        let stream = Oracle::stream(markers, true, &ulpdus);
        prop_assert_eq!(decoded(markers, false, &stream, 100, 50), ulpdus);
    }
}
