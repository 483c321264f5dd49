//! Vectors of FPDUs: the figures of the documents, Markers at every edge, PAD, damage; and the MULPDU table.

use warpline_dataplane::memory::STag;
use warpline_dataplane::mpa::receiver::{FpduReceiver, Octets};
use warpline_dataplane::mpa::{Framing, MpaError, fpdu};
use warpline_dataplane::wire::ddp::{Header, Tagged};
use warpline_dataplane::wire::mpa::Marker;
use warpline_dataplane::wire::rdmap::{Control, Opcode};

use super::messages::untagged;
use super::{both_ways, counting, decode, encode, load, segment};

// Requirements: MPA-4.3-10, MPA-4.4-13, MPA-4.4-14, DDP-4.3-11, D08-X-01, D08-X-02
#[test]
fn the_figures_of_rfc_5044() {
    let [figure5] = load("rfc5044-fig5");
    let [figure6] = load("rfc5044-fig6");
    for (record, position, msn) in [(figure5, 0, 1), (figure6, 0x1ec, 2)] {
        let ulpdu = both_ways(&record.octets, position, true);
        assert_eq!(ulpdu.len(), 42);
        let (header, control, payload) = segment(&ulpdu);
        assert_eq!((header, control), untagged(Opcode::Send, STag(0), 0, msn));
        assert_eq!(payload, [0; 24]);
    }
    let [figure4] = load("rfc5044-fig4");
    assert_eq!(both_ways(&figure4.octets, 500, true), counting(0, 16));
}

/// The second FPDU begins where the length of the first points.
// Requirements: MPA-5.2-01
#[test]
fn the_stream_of_figure_6() {
    let [first, second] = load("mpa-stream-fig6");
    assert_eq!(both_ways(&first.octets, 0, true).len(), 482);
    both_ways(&second.octets, first.octets.len() as u64, true);
    let stream = [first.octets, second.octets].concat();
    assert_eq!(ulpdu_lengths(&stream), [482, 42]);
}

/// The ULPDU lengths of a whole stream with Markers and CRCs.
fn ulpdu_lengths(stream: &[u8]) -> Vec<usize> {
    let mut receiver = FpduReceiver::new(Framing { markers: true, crc: true });
    let mut lengths = Vec::new();
    while let octets = &stream[receiver.position() as usize..]
        && octets.available() > 0
    {
        let located = receiver.next(&octets).unwrap().expect("complete");
        lengths.push(located.ulpdu_len());
        receiver.advance(&located);
    }
    lengths
}

// Requirements: MPA-4.1-01, MPA-4.1-06, MPA-4.3-12, MPA-7.1.1-09, MPA-7.1.2-19
#[test]
fn figure_5_without_markers_and_without_crc() {
    let [figure5] = load("rfc5044-fig5");
    let ulpdu = decode(&figure5.octets, 0, true, true).unwrap();
    let [no_markers] = load("mpa-fig5-nomarkers");
    assert_eq!(both_ways(&no_markers.octets, 0, false), ulpdu);
    let [no_crc] = load("mpa-fig5-crcoff");
    assert_eq!(decode(&no_crc.octets, 0, false, false).as_ref(), Ok(&ulpdu));
    assert_eq!(decode(&no_crc.octets, 0, false, true), Err(MpaError::Crc));
    let encoded = encode(&ulpdu, 0, false, false);
    assert_eq!(encoded[..44], no_crc.octets[..44]);
    assert_eq!(encoded[44..], [0; 4]);
}

// Requirements: C00-6-01, C00-7.1-01, C00-7.2-02, C00-8.1-03, C00-8.1-04, C00-X-01
#[test]
fn the_figures_of_culley_00() {
    let [figure5] = load("culley00-fig5");
    let [figure6] = load("culley00-fig6");
    assert_eq!(figure5.octets[..4], [0; 4]);
    for (record, position) in [(figure5, 0), (figure6, 0x1ec)] {
        let ulpdu = both_ways(&record.octets, position, true);
        let (header, control, _) = segment(&ulpdu);
        assert_eq!((header.version(), control.version, control.opcode), (0, 0, Opcode::Send));
    }
}

// Requirements: MPA-4.3-05, MPA-4.4-12, MPA-4.4-13
#[test]
fn markers_at_the_edges_of_fpdus() {
    let [before, after] = load("mpa-marker-between");
    assert_eq!(both_ways(&before.octets, 0, true).len(), 0x1f6);
    assert_eq!(both_ways(&after.octets, 512, true), counting(0, 16));
    assert_eq!(ulpdu_lengths(&[before.octets, after.octets].concat()), [0x1f6, 16]);
    let [before_crc] = load("mpa-marker-before-crc");
    assert_eq!(both_ways(&before_crc.octets, 480, true), counting(0, 30));
}

// Requirements: MPA-4.3-03, MPA-4.3-07, MPA-4.5-01, C00-7.1-02
#[test]
fn mpa_three_markers() {
    let [record] = load("mpa-three-markers");
    let ulpdu = both_ways(&record.octets, 0, true);
    assert_eq!(ulpdu, counting(0, fpdu::mulpdu(1460, true)));
    for (at, fpdu_ptr) in [(0, 0), (512, 508), (1024, 1020)] {
        let octets: [u8; 4] = record.octets[at..at + 4].try_into().unwrap();
        assert_eq!(Marker::parse(octets), Marker { fpdu_ptr });
        assert_eq!(Marker { fpdu_ptr }.emit(), octets);
    }
}

/// One stream with every PAD.
// Requirements: DDP-3-07, MPA-3-07, MPA-4.1-01, MPA-4.1-03, MPA-4.1-04
#[test]
fn mpa_padding() {
    let records = load::<8>("mpa-padding");
    let lengths = [18, 19, 20, 21, 14, 128, 1, 64];
    let mut stream = Vec::new();
    for (record, len) in records.iter().zip(lengths) {
        assert_eq!(
            both_ways(&record.octets, stream.len() as u64, true),
            counting(len, len),
            "{}",
            record.label
        );
        stream.extend(&record.octets);
    }
    assert_eq!(stream.len(), 348);
    assert_eq!(ulpdu_lengths(&stream), lengths);
}

// Requirements: MPA-4.4-16, MPA-5.2-02, MPA-8-02, MPA-8-03, C00-7.1-04, C00-7.2-01
#[test]
fn mpa_negative() {
    let [crc, pointer, reserved, low_bits] = load("mpa-negative");
    assert_eq!(decode(&crc.octets, 0, true, true).map_err(MpaError::code), Err(2));
    assert_eq!(decode(&pointer.octets, 0x1ec, true, true).map_err(MpaError::code), Err(3));
    assert_eq!(decode(&reserved.octets, 0x1ec, true, true).map(|ulpdu| ulpdu.len()), Ok(42));
    assert_eq!(decode(&low_bits.octets, 0x1ec, true, true).map(|ulpdu| ulpdu.len()), Ok(42));
}

// Requirements: MPA-3-12, DDP-4.1-09, RDMAP-4.1-07, RDMAC-C.2.5-02
#[test]
fn rdmac_v0() {
    let [send, write] = load("rdmac-v0");
    let ulpdu = both_ways(&send.octets, 0, true);
    let (header, control, payload) = segment(&ulpdu);
    assert_eq!((header.version(), control), (0, Control { version: 0, opcode: Opcode::Send }));
    assert_eq!(payload, [0; 24]);
    let ulpdu = both_ways(&write.octets, 0, true);
    let (header, control, payload) = segment(&ulpdu);
    let expected = Tagged { last: true, version: 0, rsvd_ulp: 0, stag: STag(0x0102_0304), to: 4096 };
    assert_eq!((header, control.version, payload), (Header::Tagged(expected), 0, &b"hello"[..]));
}

/// EMSS; MULPDU with Markers by formula and as reported, without Markers likewise; the FPDU of the reported
/// MULPDU with Markers at the worst phase.
const MULPDU: [(usize, usize, usize, usize, usize, usize); 35] = [
    (128, 118, 128, 122, 128, 140),
    (134, 122, 128, 126, 128, 140),
    (135, 122, 128, 126, 128, 140),
    (136, 126, 128, 130, 130, 140),
    (139, 126, 128, 130, 130, 140),
    (140, 130, 130, 134, 134, 140),
    (141, 130, 130, 134, 134, 140),
    (144, 134, 134, 138, 138, 144),
    (256, 246, 246, 250, 250, 256),
    (512, 502, 502, 506, 506, 512),
    (513, 498, 498, 506, 506, 508),
    (536, 522, 522, 530, 530, 536),
    (576, 562, 562, 570, 570, 576),
    (1024, 1010, 1010, 1018, 1018, 1024),
    (1025, 1006, 1006, 1018, 1018, 1020),
    (1220, 1202, 1202, 1214, 1214, 1220),
    (1400, 1382, 1382, 1394, 1394, 1400),
    (1440, 1422, 1422, 1434, 1434, 1440),
    (1448, 1430, 1430, 1442, 1442, 1448),
    (1456, 1438, 1438, 1450, 1450, 1456),
    (1460, 1442, 1442, 1454, 1454, 1460),
    (1500, 1482, 1482, 1494, 1494, 1500),
    (2048, 2026, 2026, 2042, 2042, 2048),
    (4052, 4014, 4014, 4046, 4046, 4052),
    (4312, 4270, 4270, 4306, 4306, 4312),
    (8948, 8870, 8870, 8942, 8942, 8948),
    (8960, 8882, 8882, 8954, 8954, 8960),
    (9000, 8922, 8922, 8994, 8994, 9000),
    (16384, 16250, 16250, 16378, 16378, 16384),
    (32768, 32506, 32506, 32762, 32762, 32768),
    (65415, 64894, 64768, 65406, 64768, 65288),
    (65483, 64962, 64768, 65474, 64768, 65288),
    (65495, 64974, 64768, 65486, 64768, 65288),
    (65515, 64994, 64768, 65506, 64768, 65288),
    (65535, 65014, 64768, 65526, 64768, 65288),
];

// Requirements: MPA-3-04, MPA-4.5-01, MPA-4.5-02, MPA-4.5-06, C00-7.3.1-01, C00-7.3.1-03
#[test]
fn mulpdu() {
    for (emss, formula_with, with, formula_without, without, worst) in MULPDU {
        assert_eq!(emss - (6 + 4 * emss.div_ceil(512) + emss % 4), formula_with);
        assert_eq!(emss - (6 + emss % 4), formula_without);
        assert_eq!(fpdu::mulpdu(emss, true), with, "{emss}");
        assert_eq!(fpdu::mulpdu(emss, false), without, "{emss}");
        let phases = (0..128).map(|phase| fpdu::wire_len(phase * 4, with, true));
        assert_eq!(phases.max(), Some(worst), "{emss}");
    }
}
