//! Tests of the simulated network.

use super::super::path::sample::{self, ACK, PSH, Sample};
use super::*;
use crate::device::IpVersion;
use crate::time::SECOND;

const LATER: Instant = Instant::from_nanos(1000 * SECOND);

fn one_way(seed: u64, outbound: Impairments) -> (SimDevice, SimDevice) {
    link(seed, EndConfig { outbound, ..EndConfig::a() }, EndConfig::b())
}

fn send(device: &mut SimDevice, now: Instant, octets: &[u8]) {
    let mut frame = device.allocate().expect("a free buffer");
    frame.append(octets.len()).expect("room for the frame").copy_from_slice(octets);
    assert_eq!(device.transmit(now, &mut vec![frame]), 1);
}

/// Sends 100-octet frames that begin with their number, `gap_ns` apart.
fn send_numbered(device: &mut SimDevice, frames: u32, gap_ns: u64) {
    for number in 0..frames {
        let mut octets = [0x5a; 100];
        octets[..4].copy_from_slice(&number.to_be_bytes());
        send(device, Instant::from_nanos(u64::from(number) * gap_ns), &octets);
    }
}

fn number(frame: &SimFrame) -> u32 {
    u32::from_be_bytes(frame.piece(0).unwrap()[..4].try_into().unwrap())
}

/// Everything still on its way, with the time each frame arrived.
fn drain(device: &mut SimDevice) -> Vec<(Instant, SimFrame)> {
    let mut arrived = Vec::new();
    while let Some(now) = device.next_arrival() {
        let mut frames = Vec::new();
        assert_eq!(device.receive(now, &mut frames, 1), 1, "what was announced arrives");
        arrived.push((now, frames.remove(0)));
    }
    arrived
}

fn numbers(device: &mut SimDevice) -> Vec<u32> {
    drain(device).iter().map(|(_, frame)| number(frame)).collect()
}

/// A stream of segments of 400 octets each, and the stream itself.
fn send_stream(device: &mut SimDevice, segments: u32) -> Vec<u8> {
    let stream: Vec<u8> =
        (0..segments * 400).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (index, payload) in stream.chunks(400).enumerate() {
        let sequence = (index as u32 * 400).wrapping_sub(1000);
        let frame = Sample { sequence, payload, flags: ACK | PSH, ..Sample::default() }.frame();
        send(device, Instant::from_nanos(index as u64 / 4 * 1000), &frame);
    }
    stream
}

fn assert_conserved(statistics: Statistics) {
    let Statistics { sent, duplicated, split, delivered, lost, filtered, .. } = statistics;
    let Statistics { oversize, queue_full, corrupted_lost, merged, no_buffer, .. } = statistics;
    let gone = lost + filtered + oversize + queue_full + corrupted_lost + merged + no_buffer;
    assert_eq!(sent + duplicated + split, delivered + gone, "{statistics:?}");
}

#[test]
fn a_perfect_path_keeps_order_and_contents() {
    let (mut a, mut b) = one_way(1, Impairments::default());
    send_numbered(&mut a, 50, 0);
    assert_eq!(b.next_arrival(), Some(Instant::from_nanos(1000)));
    let mut frames = Vec::new();
    assert_eq!(b.receive(Instant::from_nanos(999), &mut frames, 32), 0, "nothing arrives early");
    assert_eq!(b.receive(Instant::from_nanos(1000), &mut frames, 32), 32, "the limit holds");
    assert_eq!(b.receive(Instant::from_nanos(1000), &mut frames, 32), 18);
    assert_eq!(frames.iter().map(number).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
    assert!(frames.iter().all(|frame| frame.len() == 100 && frame.piece(1).is_none()));
    assert_eq!(b.next_arrival(), None);
    assert_eq!(a.next_arrival(), None, "nothing comes back");
}

#[test]
fn loss_is_near_its_probability() {
    let (mut a, mut b) = one_way(2, Impairments { loss: 0.05, ..Impairments::default() });
    send_numbered(&mut a, 10_000, 10);
    let arrived = numbers(&mut b);
    let statistics = a.network().statistics(End::A);
    assert_eq!(arrived.len() as u64, statistics.delivered);
    assert!((400..600).contains(&statistics.lost), "{statistics:?}");
    assert!(arrived.is_sorted());
    assert_conserved(statistics);
}

/// Ten frames of 976 octets with their line overhead make 1000 each. One waits for those before it: those
/// that find more than 4000 octets waiting are marked, if they may be.
#[test]
fn a_long_queue_marks() {
    const CAPABLE: [u8; 2] = [0b10, 0b01];
    let line = Impairments {
        rate_bits_per_second: Some(8_000_000),
        mark_octets: Some(4000),
        queue_octets: 100_000,
        ..Impairments::default()
    };
    for (ecn, marked) in [(0b00, 0), (CAPABLE[0], 5), (CAPABLE[1], 5), (0b11, 5)] {
        let (mut a, mut b) = one_way(4, line);
        for _ in 0..10 {
            let mut octets = Sample { payload: &[7; 976 - 54], ..Sample::default() }.frame();
            octets[15] = ecn;
            octets[24..26].fill(0);
            let checksum = !sample::ones_complement_sum(&octets[14..34]);
            octets[24..26].copy_from_slice(&checksum.to_be_bytes());
            send(&mut a, Instant::ZERO, &octets);
        }
        let frames = drain(&mut b);
        for (n, (_, frame)) in frames.iter().enumerate() {
            let octets = frame.piece(0).unwrap();
            let expected = if ecn == 0 || n < 5 { ecn } else { 0b11 };
            assert_eq!(octets[15], expected, "frame {n}");
            assert!(sample::read(octets).is_some(), "frame {n}: a checksum is wrong");
        }
        assert_eq!((frames.len(), a.network().statistics(End::A).marked), (10, marked));
    }
}

/// IPv6: ECN is the end of the Traffic Class (RFC 8200 §3).
#[test]
fn a_long_queue_marks_ipv6() {
    let line =
        Impairments { rate_bits_per_second: Some(8_000_000), mark_octets: Some(0), ..Impairments::default() };
    for (first_octets, expected) in
        [([0x6b, 0xa5], [0x6b, 0xb5]), ([0x6b, 0x95], [0x6b, 0xb5]), ([0x6b, 0x85], [0x6b, 0x85])]
    {
        let (mut a, mut b) = one_way(4, line);
        for _ in 0..2 {
            let mut octets = [0; 100];
            octets[12..16].copy_from_slice(&[0x86, 0xdd, first_octets[0], first_octets[1]]);
            send(&mut a, Instant::ZERO, &octets);
        }
        let frames = drain(&mut b);
        let version_and_class = |n: usize| frames[n].1.piece(0).unwrap()[14..16].to_vec();
        assert_eq!(version_and_class(0), first_octets, "the first finds nobody waiting");
        assert_eq!(version_and_class(1), expected);
    }
}

#[test]
fn reordered_frames_are_overtaken_and_no_other() {
    let (mut a, mut b) = one_way(3, Impairments { reorder: 0.1, ..Impairments::default() });
    send_numbered(&mut a, 1000, 1000);
    let arrived = numbers(&mut b);
    let overtaken = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
    let statistics = a.network().statistics(End::A);
    assert!(overtaken > 50 && overtaken <= statistics.reordered, "{overtaken} of {statistics:?}");
    let mut all = arrived;
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

#[test]
fn varying_delay_keeps_the_order_and_its_bounds() {
    let delays = Impairments { delay_min_ns: 5_000, delay_max_ns: 90_000, ..Impairments::default() };
    let (mut a, mut b) = one_way(4, delays);
    send_numbered(&mut a, 1000, 20_000);
    let arrived = drain(&mut b);
    let mut differing = 0;
    for (expected, (arrival, frame)) in arrived.iter().enumerate() {
        assert_eq!(number(frame), expected as u32);
        let delay_ns = *arrival - Instant::from_nanos(expected as u64 * 20_000);
        assert!((5_000..=90_000).contains(&delay_ns));
        differing += usize::from(delay_ns != 5_000);
    }
    assert!(differing > 900);
}

#[test]
fn duplicates_come_as_often_as_told() {
    let (mut a, mut b) = one_way(5, Impairments { duplicate: 1.0, ..Impairments::default() });
    send_numbered(&mut a, 3, 10);
    assert_eq!(numbers(&mut b), [0, 0, 1, 1, 2, 2]);
    assert_conserved(a.network().statistics(End::A));
}

#[test]
fn a_rate_paces_and_its_queue_overflows() {
    // 100 octets and 24 around them at 1 Gb/s take 992 ns.
    let paced = Impairments {
        rate_bits_per_second: Some(1_000_000_000),
        queue_octets: 500,
        ..Impairments::default()
    };
    let (mut a, mut b) = one_way(6, paced);
    send_numbered(&mut a, 10, 0);
    let arrivals: Vec<u64> = drain(&mut b).iter().map(|(at, _)| at.as_nanos()).collect();
    // One on the line and four that found at most 500 octets before them.
    assert_eq!(arrivals, [1992, 2984, 3976, 4968, 5960]);
    assert_eq!(a.network().statistics(End::A).queue_full, 5);
    assert_conserved(a.network().statistics(End::A));
}

#[test]
fn frames_on_their_way_are_bounded() {
    let (mut a, mut b) = one_way(7, Impairments { in_flight_frames: 4, ..Impairments::default() });
    send_numbered(&mut a, 9, 0);
    assert_eq!(a.network().in_flight(End::A), 4);
    assert_eq!(numbers(&mut b), [0, 1, 2, 3]);
    assert_eq!(a.network().statistics(End::A).queue_full, 5);
}

#[test]
fn frames_over_the_path_mtu_are_lost() {
    let (mut a, mut b) = one_way(8, Impairments { mtu_octets: Some(576), ..Impairments::default() });
    send(&mut a, Instant::ZERO, &[1; 14 + 576]);
    send(&mut a, Instant::ZERO, &[2; 14 + 577]);
    assert_eq!(drain(&mut b).len(), 1);
    assert_eq!(a.network().statistics(End::A).oversize, 1);

    let (mut a, mut b) = link(8, EndConfig { mtu_bytes: 9000, ..EndConfig::a() }, EndConfig::b());
    assert_eq!((a.capabilities().mtu_bytes, b.capabilities().mtu_bytes), (9000, 1500));
    send(&mut a, Instant::ZERO, &[3; 9014]);
    assert_eq!(drain(&mut b).len(), 0, "the other device takes 1500");
}

#[test]
fn short_frames_arrive_padded_with_zeros() {
    let (mut a, mut b) = one_way(9, Impairments::default());
    send(&mut a, Instant::ZERO, &[9; 1514]);
    drop(drain(&mut b));
    send(&mut a, Instant::ZERO, &[7; 42]);
    let arrived = drain(&mut b);
    assert_eq!(arrived[0].1.piece(0).unwrap(), [[7; 42].as_slice(), &[0; 18]].concat());
}

#[test]
fn bit_errors_break_the_checksums_of_ip_and_lose_the_rest() {
    let (mut a, mut b) = one_way(10, Impairments { corrupt_bits: 1.0, ..Impairments::default() });
    let frame = Sample { payload: &[0x42; 300], ..Sample::default() }.frame();
    for _ in 0..200 {
        send(&mut a, Instant::ZERO, &frame);
    }
    send_numbered(&mut a, 1, 0);
    let arrived = drain(&mut b);
    assert_eq!(arrived.len(), 200);
    assert!(arrived.iter().all(|(_, damaged)| sample::read(damaged.piece(0).unwrap()).is_none()));
    let statistics = a.network().statistics(End::A);
    assert_eq!((statistics.corrupted_bits, statistics.corrupted_lost), (200, 1));
    assert_conserved(statistics);
}

#[test]
fn payload_errors_pass_the_checksum() {
    let (mut a, mut b) = one_way(11, Impairments { corrupt_payload: 1.0, ..Impairments::default() });
    send_stream(&mut a, 100);
    send(&mut a, Instant::ZERO, &Sample::default().frame());
    let clean = (0..100u32).map(|index| (index * 400).wrapping_sub(1000)).zip(drain(&mut b));
    for (sequence, (_, frame)) in clean {
        let reading = sample::read(frame.piece(0).unwrap()).expect("the checksums hold");
        assert_eq!((reading.sequence, reading.payload.len()), (sequence, 400));
    }
    assert_eq!(a.network().statistics(End::A).corrupted_payload, 100, "a bare ACK has no payload to alter");
}

#[test]
fn resegmentation_keeps_the_stream() {
    for seed in 0..20 {
        let (mut a, mut b) = one_way(seed, Impairments { resegment: 0.7, ..Impairments::default() });
        let stream = send_stream(&mut a, 300);
        let mut received = Vec::new();
        for (_, frame) in drain(&mut b) {
            let reading = sample::read(frame.piece(0).unwrap()).expect("a valid segment");
            assert_eq!(reading.sequence.wrapping_add(1000), received.len() as u32, "seed {seed}");
            assert!(frame.len() <= 1514);
            received.extend_from_slice(reading.payload);
        }
        assert!(received == stream, "seed {seed}");
        let statistics = a.network().statistics(End::A);
        assert!(statistics.split > 50 && statistics.merged > 20, "seed {seed}: {statistics:?}");
        assert_conserved(statistics);
    }
}

#[test]
fn resegmentation_never_mends_a_damaged_segment() {
    let hostile = Impairments { resegment: 0.5, corrupt_bits: 0.5, duplicate: 0.3, ..Impairments::default() };
    let (mut a, mut b) = one_way(13, hostile);
    let stream = send_stream(&mut a, 500);
    let mut sound = 0;
    for (_, frame) in drain(&mut b) {
        if let Some(reading) = sample::read(frame.piece(0).unwrap()) {
            let start = reading.sequence.wrapping_add(1000) as usize;
            assert_eq!(reading.payload, &stream[start..start + reading.payload.len()]);
            sound += 1;
        }
    }
    assert!(sound > 100);
    assert_conserved(a.network().statistics(End::A));
}

#[test]
fn a_senders_own_bad_checksum_is_counted_and_kept() {
    let (mut a, mut b) = one_way(14, Impairments { resegment: 1.0, ..Impairments::default() });
    let mut frame = Sample { payload: &[1; 100], ..Sample::default() }.frame();
    frame[50] ^= 0x10;
    send(&mut a, Instant::ZERO, &frame);
    assert_eq!(drain(&mut b)[0].1.piece(0).unwrap(), frame);
    assert_eq!(a.network().statistics(End::A).bad_checksums, 1);
}

#[test]
fn a_filter_decides_frame_by_frame() {
    let (mut a, mut b) = one_way(15, Impairments::default());
    let network = a.network();
    network.set_filter(End::A, |now, frame| match frame[3] {
        0 => Verdict::Pass,
        1 => Verdict::Drop,
        2 => Verdict::Delay(10_000),
        3 => Verdict::Duplicate,
        4 => Verdict::Replace(vec![0, 0, 0, 44]),
        5 => Verdict::Replace(vec![0; 4000]),
        _ => {
            frame[0] = now.as_nanos() as u8;
            Verdict::Pass
        }
    });
    send_numbered(&mut a, 7, 0);
    assert_eq!(numbers(&mut b), [0, 3, 3, 44, 6, 2]);
    let statistics = network.statistics(End::A);
    assert_eq!((statistics.filtered, statistics.duplicated, statistics.oversize), (1, 1, 1));
    assert_conserved(statistics);

    network.clear_filter(End::A);
    send_numbered(&mut a, 2, 0);
    assert_eq!(numbers(&mut b), [0, 1]);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_does_not() {
    let hostile = Impairments {
        loss: 0.1,
        duplicate: 0.1,
        reorder: 0.1,
        corrupt_bits: 0.1,
        corrupt_payload: 0.1,
        resegment: 0.3,
        delay_max_ns: 50_000,
        ..Impairments::default()
    };
    let run = |seed| {
        let (mut a, mut b) = one_way(seed, hostile);
        send_stream(&mut a, 500);
        let frames = drain(&mut b);
        assert_conserved(a.network().statistics(End::A));
        frames.iter().map(|(at, frame)| (*at, frame.piece(0).unwrap().to_vec())).collect::<Vec<_>>()
    };
    assert!(run(16) == run(16));
    assert!(run(16) != run(17));
}

#[test]
fn buffers_are_bounded_returned_and_used_again() {
    let (mut a, mut b) = link(18, EndConfig { frame_limit: 3, ..EndConfig::a() }, EndConfig::b());
    let network = a.network();
    let held: Vec<_> = core::iter::from_fn(|| a.allocate()).collect();
    assert_eq!((held.len(), network.held_frames(End::A)), (3, 3));
    drop(held);
    assert_eq!(network.held_frames(End::A), 0);

    // Frames in flight count for neither end; received frames count for the receiver.
    network.set_frame_limit(End::B, 2);
    send_numbered(&mut a, 5, 0);
    assert_eq!((network.held_frames(End::A), network.in_flight(End::A)), (0, 5));
    let mut frames = Vec::new();
    assert_eq!(b.receive(LATER, &mut frames, 32), 2);
    assert_eq!((network.held_frames(End::B), network.statistics(End::A).no_buffer), (2, 3));
    assert_conserved(network.statistics(End::A));
    assert!(b.allocate().is_none());
    frames.clear();
    assert!(b.allocate().is_some());

    let before = network.lock().buffers.made;
    for _ in 0..100 {
        send_numbered(&mut a, 2, 0);
        drop(drain(&mut b));
    }
    assert_eq!(network.lock().buffers.made, before, "no buffer is made in a steady state");
}

#[test]
fn a_frame_grows_to_the_mtu_and_no_further() {
    let (mut a, _b) = link(19, EndConfig { mtu_bytes: 9000, ..EndConfig::a() }, EndConfig::b());
    let mut frame = a.allocate().unwrap();
    assert!(frame.is_empty());
    frame.append(14).unwrap().fill(1);
    assert!(frame.append(9005).is_none());
    assert!(frame.append(usize::MAX).is_none());
    assert_eq!(frame.len(), 14, "a refused append changes nothing");
    frame.append(9000).unwrap().fill(2);
    frame.first_mut()[0] = 3;
    assert_eq!((frame.len(), frame.piece(0).unwrap()[0], frame.piece(0).unwrap()[14]), (9014, 3, 2));
    assert!(frame.append(5).is_none(), "room for a tag, and no more");
}

#[test]
fn a_full_transmit_ring_leaves_frames_with_the_caller() {
    let (mut a, mut b) = one_way(20, Impairments::default());
    let network = a.network();
    network.set_transmit_credit(End::A, Some(2));
    let mut frames: Vec<_> = (0..3).map(|_| a.allocate().unwrap()).collect();
    assert_eq!((a.transmit(Instant::ZERO, &mut frames), frames.len()), (2, 1));
    assert_eq!(a.transmit(Instant::ZERO, &mut frames), 0);
    network.set_transmit_credit(End::A, None);
    assert_eq!(a.transmit(Instant::ZERO, &mut frames), 1);
    assert_eq!(drain(&mut b).len(), 3);
    assert_eq!(network.held_frames(End::A), 0);
}

#[test]
fn checksums_are_filled_in_where_offered() {
    let good = Sample { payload: b"payload", ..Sample::default() }.frame();
    let request =
        ChecksumRequest { ip: IpVersion::V4, ip_checksum: true, l2_octets: 14, l3_octets: 20, l4_octets: 20 };
    for offered in [false, true] {
        let (mut a, mut b) =
            link(21, EndConfig { transmit_checksums: offered, ..EndConfig::a() }, EndConfig::b());
        assert_eq!(a.capabilities().transmit_checksums, offered);
        let mut frame = a.allocate().unwrap();
        let octets = frame.append(good.len()).unwrap();
        octets.copy_from_slice(&good);
        octets[24..26].fill(0);
        let pseudo = [&good[26..34], &[0, 6, 0, 27]].concat();
        octets[50..52].copy_from_slice(&sample::ones_complement_sum(&pseudo).to_be_bytes());
        frame.request_checksums(request);
        a.transmit(Instant::ZERO, &mut vec![frame]);
        let arrived = drain(&mut b);
        assert_eq!(sample::read(arrived[0].1.piece(0).unwrap()).is_some(), offered);
    }
}

#[test]
#[should_panic(expected = "the link it was made for")]
fn frames_of_another_link_are_refused() {
    let (mut a, _b) = one_way(22, Impairments::default());
    let (mut other, _) = one_way(23, Impairments::default());
    let foreign = other.allocate().unwrap();
    a.transmit(Instant::ZERO, &mut vec![foreign]);
}
