//! Measures the sender's cost of segments that begin with FPDUs (RFC 5044 appendix B.2): segments that are
//! not full.

use crate::common::{Pair, Setup, all_succeeded, pattern, region_of};
use warpline_dataplane::device::sim::EndConfig;
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::Slice;

const SOURCE: STag = STag::new(1, 1);
const SINK: STag = STag::new(2, 2);
/// Octets of a segment's payload, with timestamps.
const EMSS: u64 = 1448;
const MESSAGES: u64 = 2000;

/// The number of segments for `MESSAGES` RDMA Writes of `octets` octets, relative to the number that the
/// octets of their FPDUs would fill.
fn growth(octets: u32) -> f64 {
    let mut pair = Pair::new(1, EndConfig::a(), EndConfig::b());
    let source = region_of(&pattern(1, octets as usize));
    let sink = Region::heap(octets as usize).unwrap();
    pair.a.register(SOURCE, &source, Access::empty());
    pair.b.register(SINK, &sink, Access::REMOTE_WRITE);
    pair.establish(Setup { markers: false, crc: true });
    let before = pair.a.statistics().tcp.data_segments_sent;
    let (mut posted, mut completed) = (0, 0);
    while completed < MESSAGES {
        while posted < MESSAGES && posted - completed < 500 {
            pair.a.write(posted, Slice { stag: SOURCE, to: 0, len: octets }, SINK, 0);
            posted += 1;
        }
        pair.step();
        let completions = pair.a.poll_completions();
        assert!(all_succeeded(&completions));
        completed += completions.len() as u64;
    }
    let statistics = pair.a.statistics();
    assert_eq!(statistics.tcp.retransmitted_segments, 0);
    // ULPDU_Length, the tagged header, PAD and CRC.
    let fpdu_octets = (u64::from(octets) + 2 + 14).next_multiple_of(4) + 4;
    let full = (MESSAGES * fpdu_octets).div_ceil(EMSS);
    (statistics.tcp.data_segments_sent - before) as f64 / full as f64
}

/// At worst, with FPDUs just over half a segment, about two segments for each that would be full; with FPDUs
/// that fill them, none more.
// Requirements: MPA-B.2-01
#[test]
fn alignment_costs_at_most_a_factor_of_two() {
    let (full, half) = (growth(1428), growth(708));
    println!("FPDUs that fill segments: {full:.3}; just over half a segment: {half:.3}");
    assert!((1.0..1.01).contains(&full), "{full}");
    assert!((1.0..2.01).contains(&half), "{half}");
    for octets in [100, 500, 724, 1000, 1300, 1429, 2200, 5000] {
        let growth = growth(octets);
        assert!((1.0..2.01).contains(&growth), "{octets}: {growth}");
    }
}
