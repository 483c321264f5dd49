//! Tests of FPDUs: their size, their Markers, and all ways of writing them.

use proptest::prelude::*;

use super::*;
use crate::crc32c::{Digest, Engine};

const BOTH: Framing = Framing { markers: true, crc: true };

/// A payload that counts the octets that it is asked to sum.
struct Counted<'p>(&'p [u8], &'p mut usize);

impl Payload for Counted<'_> {
    fn octets(&self) -> usize {
        self.0.len()
    }

    fn read(&mut self, at: usize, out: &mut [u8]) -> bool {
        out.copy_from_slice(&self.0[at..at + out.len()]);
        true
    }

    fn read_summed(&mut self, out: &mut [u8], digest: &mut Digest) -> bool {
        *self.1 += out.len();
        digest.copy(self.0, out);
        true
    }
}

/// An FPDU that is summed as it is copied is the same as one that is summed at last.
#[test]
fn one_pass_writes_the_same_fpdu() {
    let payload: Vec<u8> = (0..9000_usize).map(|at| (at * 7 + at / 251) as u8).collect();
    for (one, len) in
        [false, true].into_iter().flat_map(|one| [0, 511, 512, 1411, 1412, 8999].map(|len| (one, len)))
    {
        let payload = &payload[..len];
        let mut out = vec![0xee; unmarked_len(18 + len)];
        let mut summed = 0;
        let put_header = |room: &mut [u8]| room.copy_from_slice(&[1; 18]);
        let passes = Passes { engine: Some(Engine::best()), one };
        assert!(encode_unmarked(&mut out, passes, 18, put_header, Counted(payload, &mut summed)));
        assert_eq!(out, encoded(0, false, true, &[1; 18], payload), "{one}, {len}");
        assert_eq!(summed, if one { len } else { 0 }, "{len}");
    }
}

/// At every phase an FPDU with Markers is what it is octet by octet: each Marker that is due, and between
/// them length, header, payload, PAD and CRC.
// Requirements: MPA-4.3-02, MPA-4.3-03, MPA-4.4-09
#[test]
fn markers_and_octets_have_their_places() {
    let pattern: Vec<u8> = (0..1600_usize).map(|at| (at * 7 + at / 251) as u8).collect();
    for (phase, len) in (0..128)
        .flat_map(|phase| (0..6).chain(470..500).chain([1000, 1411, 1600]).map(move |len| (phase * 4, len)))
    {
        let header = [0xc1; 14];
        let mut plain = ((14 + len) as u16).to_be_bytes().to_vec();
        plain.extend(header);
        plain.extend(&pattern[..len]);
        plain.resize(plain.len().next_multiple_of(4), 0);
        let mut expected: Vec<u8> = Vec::new();
        let mut length_at = None;
        for four in plain.chunks(4).map(Some).chain([None]) {
            if (phase as usize + expected.len()).is_multiple_of(512) {
                let pointer = length_at.map_or(0, |length_at| expected.len() - length_at);
                expected.extend((pointer as u32).to_be_bytes());
            }
            length_at.get_or_insert(expected.len());
            expected.extend(four.unwrap_or_default());
        }
        expected.extend(crc32c::crc32c(&expected).to_le_bytes());
        assert_eq!(encoded(phase, true, true, &header, &pattern[..len]), expected, "{len} at {phase}");
    }
}

fn encoded(position: u64, markers: bool, crc: bool, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0xee; wire_len(position, header.len() + payload.len(), markers)];
    assert!(encode(&mut out, position, Framing { markers, crc }, header, payload.len(), |at, out| {
        out.copy_from_slice(&payload[at..at + out.len()]);
        true
    }));
    out
}

/// At every phase the FPDU of a MULPDU fits its segment. One octet more does not fit at some phase,
/// except for the three sizes where the formula itself leaves four octets unused.
// Requirements: MPA-4.5-01, MPA-4.5-02
#[test]
fn mulpdu_fits_at_every_phase() {
    let worst =
        |ulpdu_len, markers| (0..128).map(|phase| wire_len(phase * 4, ulpdu_len, markers)).max().unwrap();
    for emss in (140..1600).chain([2048, 4052, 4312, 8948, 8960, 9000]) {
        assert!(worst(mulpdu(emss, true), true) <= emss, "{emss}");
        assert!(worst(mulpdu(emss, false), false) <= emss, "{emss}");
        assert!(worst(mulpdu(emss, false) + 1, false) > emss, "{emss}");
        if !matches!(emss % 512, 1..=3) {
            assert!(worst(mulpdu(emss, true) + 1, true) > emss, "{emss}");
        }
    }
}

/// With Markers the segments of a message are as long as each other, wherever Markers fall, but where one
/// would end with a Marker; and an FPDU is at most a Marker shorter than MULPDU.
// Requirements: MPA-4.5-03, MPA-4.5-05
#[test]
fn segments_with_markers_are_equally_long() {
    for emss in (140..1600).chain([2048, 4052, 4312, 8948, 8960, 9000]) {
        let most = mulpdu(emss, true);
        assert_eq!(mulpdu_at(8, emss, false), mulpdu(emss, false));
        for position in (0..512).step_by(4) {
            let here = mulpdu_at(position, emss, true);
            assert!((MULPDU_MIN..=most).contains(&here) && most - here <= 4, "{emss} at {position}");
            let (octets, full) = (wire_len(position, here, true), full_octets(emss));
            assert!(octets <= emss && full <= emss, "{emss} at {position}");
            // Next to the least MULPDU, that counts more.
            if most >= MULPDU_MIN + 4 {
                let ends_with_marker = !Markers::of(position, true).may_end_after(full as u32);
                assert_eq!(octets, full - if ends_with_marker { 4 } else { 0 }, "{emss} at {position}");
            }
        }
    }
    assert_eq!((mulpdu(1448, true), full_octets(1448)), (1430, 1444));
    assert_eq!([496, 0, 4].map(|position| mulpdu_at(position, 1448, true)), [1426, 1426, 1430]);
}

/// The rest of a segment is used if an FPDU of 128 octets fits. It is never exceeded, and is filled up to
/// a few octets that rounding and a Marker need.
// Requirements: MPA-4.5-04, MPA-4.5-07
#[test]
fn what_is_left_of_a_segment_has_a_mulpdu_of_its_own() {
    for markers in [false, true] {
        for position in (0..512).step_by(4) {
            for octets in 0..1600 {
                let Some(mulpdu) = mulpdu_within(position, octets, markers) else {
                    assert!(octets < 128 + 6 + 4 + 3 + 4, "{octets} at {position}");
                    continue;
                };
                assert!(mulpdu >= MULPDU_MIN);
                assert!(wire_len(position, mulpdu, markers) <= octets, "{octets} at {position}");
                assert!(wire_len(position, mulpdu + 8, markers) > octets, "{octets} at {position}");
            }
        }
    }
    assert_eq!(mulpdu_within(0, 1448, false), Some(mulpdu(1448, false)));
    assert_eq!(mulpdu_within(0, usize::MAX, false), Some(MULPDU_MAX));
}

// Requirements: MPA-3-04, MPA-4.5-06, C00-5.2-02, D08-X-03
#[test]
fn mulpdu_stays_within_its_bounds() {
    for emss in (0..=65535).chain([usize::MAX]) {
        for markers in [false, true] {
            assert!((128..=64768).contains(&mulpdu(emss, markers)));
        }
    }
    for emss in 0..140 {
        assert_eq!(mulpdu(emss, true), 128);
    }
}

// Requirements: MPA-3-13
#[test]
fn the_greatest_mulpdu_is_derived() {
    let segment = 65535 - 60 - 60;
    let ulpdu = segment - (6 + Marker::LEN * 128 + 3);
    assert_eq!(MULPDU_MAX, ulpdu / 128 * 128);
}

/// Both encoders refuse a longer one.
// Requirements: MPA-3-05, MPA-3-06, C00-5.2-03, C00-5.2-04
#[test]
fn no_ulpdu_is_longer_than_64768_octets() {
    let mut out = vec![0; 70000];
    let mut fits = |payload_len| encode(&mut out, 0, BOTH, &[0; 18], payload_len, |_, _| true);
    assert!(fits(64768 - 18));
    assert!(!fits(64769 - 18));
    assert!(!fits(usize::MAX));
    assert_eq!(encode_head(&mut [0; 20], &[0; 18], 64769 - 18), None);
    assert_eq!(encode_head(&mut [0; 20], &[0; 18], usize::MAX), None);
}

#[test]
fn short_output_and_failing_sources_are_reported() {
    let mut out = [0; 51];
    assert!(!encode(&mut out, 0, BOTH, &[0; 18], 24, |_, _| true));
    assert!(!encode(&mut [0; 52], 0, BOTH, &[0; 18], 24, |_, _| false));
    assert_eq!(encode_head(&mut out[..19], &[0; 18], 1), None);
    assert_eq!(encode_head(&mut out, &[0; 17], 1), None, "the payload would not be aligned");
}

/// SeqStart 11 puts Markers at 11, 523, 1035; and MPA-4.3-03 their pointers.
// Requirements: MPA-4.3-06
#[test]
fn markers_stand_512_apart() {
    let markers = Markers::of(0, true);
    let offsets: Vec<_> = markers.offsets(1442).collect();
    assert_eq!(offsets, [0, 512, 1024]);
    let pointers: Vec<_> = offsets.iter().map(|at| markers.marker_at(*at).fpdu_ptr).collect();
    assert_eq!(pointers, [0, 508, 1020]);
    assert_eq!(Markers::of(492, true).offsets(42).collect::<Vec<_>>(), [20]);
    assert_eq!(Markers::of(492, false).offsets(42).count(), 0);
}

/// Runs are those between the Markers, and all octets lie in one, from whichever octet on.
#[test]
fn runs_are_what_markers_leave() {
    let runs: Vec<_> = Markers::of(492, true).runs(2, 600).collect();
    assert_eq!(runs, [2..20, 24..532, 536..608]);
    assert_eq!(Markers::of(492, false).runs(2, 600).next(), Some(2..600));
    assert_eq!(Markers::of(0, true).runs(5, 5).count(), 0);
    for position in (0..1024).step_by(4) {
        let markers = Markers::of(position, true);
        for (first, end) in [(0, 1200), (2, 3), (16, 1100), (507, 508), (508, 509), (511, 1500)] {
            let offsets: Vec<_> = markers.runs(first, end).flatten().collect();
            let expected: Vec<_> = (first..end).map(|octet| markers.offset_of(octet)).collect();
            assert_eq!(offsets, expected, "{first} to {end} at {position}");
        }
    }
}

/// The pointer of the last Marker of the longest FPDU fits its field.
#[test]
fn pointers_fit_sixteen_bits() {
    for phase in 0..128 {
        let markers = Markers::of(phase * 4, true);
        let last = markers.offsets(MULPDU_MAX).last().unwrap();
        assert_eq!(usize::from(markers.marker_at(last).fpdu_ptr), last - markers.offset_of(0));
    }
}

proptest! {
    // Requirements: MPA-4.1-03, MPA-4.1-07
    #[test]
    fn fpdus_are_multiples_of_four(ulpdu_len in 0usize..=MULPDU_MAX, phase in 0u64..128, markers: bool) {
        prop_assert_eq!((2 + ulpdu_len + pad_len(ulpdu_len)) % 4, 0);
        prop_assert!(pad_len(ulpdu_len) < 4);
        prop_assert_eq!(wire_len(phase * 4, ulpdu_len, markers) % 4, 0);
    }

    /// A payload by reference produces the same octets as a copied payload.
    #[test]
    fn both_ways_of_sending_agree(
        payload in proptest::collection::vec(any::<u8>(), 0..3000), tagged: bool, crc: bool
    ) {
        let header = &[0xc1; 18][..if tagged { 14 } else { 18 }];
        let mut pieces = vec![0; 20];
        let head_len = encode_head(&mut pieces, header, payload.len()).unwrap();
        pieces.truncate(head_len);
        pieces.extend(&payload);
        let digest = crc.then(|| {
            let mut digest = Digest::new();
            digest.update(&pieces);
            digest
        });
        let (tail, tail_len) = tail(digest, payload.len());
        pieces.extend(&tail[..tail_len]);
        prop_assert_eq!(pieces, encoded(4, false, crc, header, &payload));
    }
}
