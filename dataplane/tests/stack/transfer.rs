//! Tests of transfers over a simulated network that loses, reorders, duplicates, corrupts and resegments: the
//! received data equals the sent data for every seed. A failure reports its seed.

use crate::common::{Pair, Setup, WINDOW_OCTETS, address_v6, all_succeeded, holds, pattern, region_of};
use warpline_dataplane::device::sim::{End, EndConfig, Impairments};
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::{CompletionKind, Slice};
use warpline_dataplane::ring::Event;
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::testing::ColdBranches;
use warpline_dataplane::time::MILLISECOND;

const SOURCE: STag = STag::new(1, 11);
const SINK: STag = STag::new(2, 22);
const INBOX: STag = STag::new(3, 33);
const MESSAGES: usize = 16;

/// Transfers `octets` octets from one end to the other by RDMA Writes, then a Send; asserts that the Send
/// arrives after all of them are placed.
fn transfer(seed: u64, impairments: Impairments, octets: usize, setup: Setup, mtu_octets: usize) -> Pair {
    let end = |config: EndConfig| EndConfig {
        mtu_bytes: mtu_octets,
        outbound: Impairments { corrupt_payload: 0.0, ..impairments },
        ..config
    };
    let mut pair = Pair::new(seed, end(EndConfig::a()), end(EndConfig::b()));
    // Half of the seeds, by a bit that nothing else goes by; the simulated network cuts and damages IPv4
    // only.
    let cut_or_damaged = impairments.corrupt_bits + impairments.corrupt_payload + impairments.resegment > 0.0;
    pair.over_ipv6 = seed % 8 >= 4 && !cut_or_damaged;
    transfer_over(pair, seed, octets, setup, impairments)
}

/// As [`transfer`], over a network that is already there.
fn transfer_over(mut pair: Pair, seed: u64, octets: usize, setup: Setup, impairments: Impairments) -> Pair {
    let data = pattern(seed, octets);
    let source = region_of(&data);
    let sink = Region::heap(octets).unwrap();
    let inbox = Region::heap(64).unwrap();
    pair.a.register(SOURCE, &source, Access::empty());
    pair.b.register(SINK, &sink, Access::REMOTE_WRITE);
    pair.b.register(INBOX, &inbox, Access::LOCAL_WRITE);
    let local = Slice { stag: INBOX, to: 0, len: 64 };
    pair.b.receive(77, local);
    pair.establish(setup);
    // MPA's startup frames carry no CRC, so they are not corrupted in a way that only a CRC can detect.
    pair.network.set_impairments(End::A, impairments);
    pair.network.set_impairments(End::B, impairments);
    let chunk = octets.div_ceil(MESSAGES);
    for (n, start) in (0..octets).step_by(chunk).enumerate() {
        let local = Slice { stag: SOURCE, to: start as u64, len: chunk.min(octets - start) as u32 };
        pair.a.write(n as u64, local, SINK, start as u64);
    }
    let done = Slice { stag: SOURCE, to: 0, len: 16 };
    pair.a.send(1000, done);
    let mut received = Vec::new();
    let arrived = pair.run_until(20_000, |pair| {
        received.extend(pair.b.poll_completions());
        !received.is_empty()
    });
    assert!(arrived, "seed {seed}: nothing arrived; {:?} {:?}", pair.a.events, pair.b.events);
    assert!(
        all_succeeded(&received),
        "seed {seed}: {received:?} {:?} {:?}",
        pair.a.statistics().tcp,
        pair.b.statistics()
    );
    assert_eq!(received.len(), 1, "seed {seed}: a Write is not delivered (RDMAP-5.1-02)");
    assert_eq!((received[0].kind, received[0].byte_len), (CompletionKind::Receive, 16), "seed {seed}");
    assert!(all_succeeded(&received), "seed {seed}: {received:?}");
    // The Send is Delivered after everything before it is placed.
    // Requirements: DDP-5.4-01, RDMAP-5.1-03, RDMAP-5.5-02
    assert!(holds(&sink, 0, &data), "seed {seed}: octets differ");
    assert!(holds(&inbox, 0, &data[..16]), "seed {seed}: the Send differs");
    let mut sent = Vec::new();
    let messages = octets.div_ceil(chunk) + 1;
    let complete = pair.run_until(20_000, |pair| {
        sent.extend(pair.a.poll_completions());
        sent.len() == messages
    });
    assert!(complete, "seed {seed}: {} of {messages} completed", sent.len());
    assert!(all_succeeded(&sent), "seed {seed}: {sent:?}");
    // Requirements: RDMAP-5.1-04, RDMAP-5.5-06, RDMAP-5.5-08
    assert!(sent.is_sorted_by_key(|completion| completion.id), "seed {seed}: completions out of order");
    pair
}

const MEBIBYTES_16: usize = 16 << 20;
const WITH_CRC: Setup = Setup { markers: false, crc: true };
const WITH_MARKERS: Setup = Setup { markers: true, crc: true };

/// Runs the transfer for every seed, half of them with Markers, on both cores.
fn over_seeds(impairments: Impairments, check: impl Fn(&Pair) + Sync) {
    // Octets that arrive twice, beyond gaps or not, are placed once.
    // Requirements: MPA-A.3-02
    let check = |pair: &Pair| {
        let copied = pair.b.statistics().bytes_copied_rx;
        assert_eq!(copied, MEBIBYTES_16 as u64 + 16, "each octet is copied once");
        check(pair);
    };
    let seeds: u64 = std::env::var("WARPLINE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    for seed in 0..seeds {
        let setup = if seed % 2 == 0 { WITH_CRC } else { WITH_MARKERS };
        let mtu_octets = if seed % 4 < 2 { 1500 } else { 9000 };
        check(&transfer(seed, impairments, MEBIBYTES_16, setup, mtu_octets));
    }
}

#[test]
fn intact_over_a_perfect_path() {
    let pair = transfer(1, Impairments::default(), MEBIBYTES_16, WITH_CRC, 1500);
    let (a, b) = (pair.a.statistics(), pair.b.statistics());
    assert_eq!(a.tcp.retransmitted_segments, 0);
    assert_eq!(a.bytes_copied_tx, MEBIBYTES_16 as u64 + 16, "each octet is copied once to send");
    assert_eq!(b.bytes_copied_rx, MEBIBYTES_16 as u64 + 16, "and once to place");
    assert_eq!(a.fpdus_sent, b.fpdus_received);
    // Every data segment holds whole FPDUs; and MPA-5.1-04 some hold two.
    // Requirements: MPA-A.1-01
    assert_eq!(a.tcp.cut_segments, 0);
    assert!(a.tcp.data_segments_sent < a.fpdus_sent, "{a:?}");
}

/// 5 % loss.
#[test]
fn intact_under_loss() {
    let impairments = Impairments { loss: 0.05, ..Impairments::default() };
    over_seeds(impairments, |pair| assert!(pair.a.statistics().tcp.retransmitted_segments > 0));
}

/// 5 % of the frames overtaken.
#[test]
fn intact_under_reordering() {
    let impairments = Impairments { reorder: 0.05, ..Impairments::default() };
    over_seeds(impairments, |pair| assert!(pair.b.statistics().tcp.out_of_order_segments > 0));
}

/// With Markers and FPDUs that fill segments, no frame is ever held under any loss or reordering, and each
/// octet is copied once. Without Markers octets beyond a gap are held.
// Requirements: MPA-B.1-01, MPA-A.3-01, MPA-A.3-03
#[test]
fn with_markers_no_frame_is_held() {
    const OCTETS: usize = 4 << 20;
    for seed in 0..8 {
        for (loss, reorder) in [(0.0, 0.05), (0.03, 0.0), (0.02, 0.02)] {
            for setup in [WITH_MARKERS, WITH_CRC] {
                let mut pair = Pair::new(seed, EndConfig::a(), EndConfig::b());
                let data = pattern(seed, OCTETS);
                let sink = Region::heap(OCTETS).unwrap();
                pair.a.register(SOURCE, &region_of(&data), Access::empty());
                pair.b.register(SINK, &sink, Access::REMOTE_WRITE);
                pair.establish(setup);
                pair.network.set_impairments(End::A, Impairments { loss, reorder, ..Impairments::default() });
                pair.a.write(1, Slice { stag: SOURCE, to: 0, len: OCTETS as u32 }, SINK, 0);
                // Up to where the last FPDU, which fills no segment and may have no Marker, cannot have been
                // sent yet.
                let most = OCTETS - 2 * WINDOW_OCTETS as usize;
                let arrived = |pair: &mut Pair| pair.b.statistics().bytes_copied_rx > most as u64;
                assert!(pair.run_until(1000, arrived), "seed {seed}");
                let statistics = pair.b.statistics();
                assert_eq!(statistics.held_frames_peak == 0, setup.markers, "seed {seed}: {statistics:?}");
                assert_eq!(
                    statistics.fpdus_placed_out_of_order > 100,
                    setup.markers,
                    "seed {seed}: {statistics:?}"
                );
                let beyond_gaps = statistics.tcp.out_of_order_bytes;
                let expected = if setup.markers { beyond_gaps } else { 0 };
                assert_eq!(statistics.tcp.placed_bytes, expected, "seed {seed}");
                let sent = |pair: &mut Pair| !pair.a.poll_completions().is_empty();
                assert!(pair.run_until(1000, sent), "seed {seed}");
                assert_eq!(pair.b.statistics().bytes_copied_rx, OCTETS as u64, "seed {seed}: copied once");
                assert!(holds(&sink, 0, &data), "seed {seed}");
            }
        }
    }
}

/// 5 % of the frames twice.
#[test]
fn intact_under_duplication() {
    let impairments = Impairments { duplicate: 0.05, ..Impairments::default() };
    over_seeds(impairments, |pair| {
        let statistics = pair.b.statistics();
        assert!(statistics.dropped(DropCause::Duplicate) > 0);
        assert_eq!(statistics.bytes_copied_rx, MEBIBYTES_16 as u64 + 16, "a duplicate is not placed again");
    });
}

/// 2 % of the frames corrupted: half caught by the checksums, half by MPA's CRC alone (MPA-8-08). The length
/// of an FPDU is spared: when it is wrong, octets of later segments may be acknowledged before the CRC is
/// known to be, and the stream must fail (`a_wrong_crc_across_acknowledged_segments` in errors.rs).
#[test]
fn intact_under_corruption() {
    let impairments = Impairments {
        corrupt_bits: 0.01,
        corrupt_payload: 0.01,
        corrupt_payload_spares: 8,
        ..Impairments::default()
    };
    over_seeds(impairments, |pair| {
        let statistics = pair.b.statistics();
        assert!(statistics.dropped(DropCause::TcpChecksum) > 0);
        assert!(statistics.dropped(DropCause::FpduCrc) > 0);
    });
}

/// Segments cut and joined at random (MPA-5.1-05, MPA-A.4-01).
#[test]
fn intact_under_resegmentation() {
    let impairments = Impairments { resegment: 0.5, ..Impairments::default() };
    over_seeds(impairments, |pair| assert!(pair.b.statistics().tcp.held_frames_peak > 0));
}

/// All impairments together, except corruption that the TCP checksum cannot detect: where a middlebox has cut
/// the FPDU, its first part may be acknowledged before the CRC is known to be wrong, and then the stream must
/// fail (MPA-8-02).
#[test]
fn intact_under_all_together() {
    let impairments = Impairments {
        loss: 0.05,
        reorder: 0.05,
        duplicate: 0.05,
        corrupt_bits: 0.02,
        resegment: 0.2,
        ..Impairments::default()
    };
    over_seeds(impairments, |pair| assert!(pair.a.statistics().tcp.retransmitted_segments > 0));
}

/// Over IPv6, by a device that completes checksums and by software: loss, reordering and duplicates.
#[test]
fn intact_over_ipv6() {
    let impairments = Impairments { loss: 0.02, reorder: 0.02, duplicate: 0.02, ..Impairments::default() };
    for (seed, transmit_checksums) in [(1, false), (2, true)] {
        let end = |config: EndConfig| EndConfig { transmit_checksums, outbound: impairments, ..config };
        let mut pair = Pair::new(seed, end(EndConfig::a()), end(EndConfig::b()));
        pair.over_ipv6 = true;
        let pair = transfer_over(pair, seed, MEBIBYTES_16, WITH_MARKERS, impairments);
        let (a, b) = (pair.a.statistics(), pair.b.statistics());
        assert!(a.tcp.retransmitted_segments > 0);
        assert_eq!(b.dropped(DropCause::TcpChecksum), 0);
        let remote = pair.b.events.iter().find_map(|event| match event {
            Event::Accepted { flow, .. } => Some(flow.remote),
            _ => None,
        });
        assert_eq!(remote, Some(address_v6(1).into()));
    }
}

/// Few frames at both ends: frames held beyond a gap never use up those that the gap's octets need. The peer
/// is slowed, nothing is lost, and failed allocations are counted.
#[test]
fn a_shortage_of_frames_slows_and_loses_nothing() {
    let impairments = Impairments { loss: 0.02, ..Impairments::default() };
    let end = |config: EndConfig| EndConfig { frame_limit: 20, outbound: impairments, ..config };
    let mut shortages = 0;
    for seed in 0..20 {
        let pair = Pair::new(seed, end(EndConfig::a()), end(EndConfig::b()));
        let pair = transfer_over(pair, seed, 2 << 20, WITH_CRC, impairments);
        assert!(pair.b.statistics().tcp.held_frames_peak <= 10, "seed {seed}");
        shortages += pair.network.statistics(End::A).no_buffer;
    }
    assert!(shortages > 0, "nothing was ever short");
}

/// A device without a frame for the next segment of a message gives it no time of its pace: the round trip is
/// so long that segments have one, and the frames are so few that they end within every group of segments.
#[test]
fn frames_that_run_out_between_paced_segments_take_no_time() {
    let delay = Impairments {
        delay_min_ns: 2 * MILLISECOND,
        delay_max_ns: 2 * MILLISECOND,
        ..Impairments::default()
    };
    for frame_limit in 2..6 {
        let end = |config: EndConfig| EndConfig { frame_limit, outbound: delay, ..config };
        let pair = Pair::new(1, end(EndConfig::a()), EndConfig { outbound: delay, ..EndConfig::b() });
        let pair = transfer_over(pair, 1, 1 << 20, WITH_CRC, delay);
        let statistics = pair.a.statistics();
        assert!(statistics.dropped(DropCause::NoTransmitBuffer) > 0, "{frame_limit}: {statistics:?}");
        assert_eq!(statistics.tcp.retransmitted_segments, 0, "{frame_limit}: {statistics:?}");
    }
}

/// On a path without faults nearly all data is consumed where it lies, with Markers and without, over IPv4
/// and IPv6; none is when that is turned off. Either way the receiver places and counts the same.
#[test]
fn data_in_order_is_consumed_where_it_lies() {
    for (seed, over_ipv6, setup) in
        [(1, false, WITH_CRC), (1, false, WITH_MARKERS), (4, true, WITH_CRC), (4, true, WITH_MARKERS)]
    {
        let received = |cold: bool| {
            let _cold = cold.then(ColdBranches::begin);
            let pair = transfer(seed, Impairments::default(), 300_000, setup, 1500);
            assert_eq!(pair.over_ipv6, over_ipv6);
            let statistics = pair.b.core.statistics();
            let segments = statistics.segments_predicted;
            (segments, statistics.fpdus_received, statistics.bytes_copied_rx, statistics.bytes_verified)
        };
        let [short, cold] = [false, true].map(received);
        assert!(short.0 > 190, "{short:?}");
        assert_eq!(cold.0, 0);
        assert_eq!((short.1, short.2, short.3), (cold.1, cold.2, cold.3));
    }
}
