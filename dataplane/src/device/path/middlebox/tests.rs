//! Tests of the middlebox of simulated paths.

use super::super::sample::{self, ACK, CWR, FIN, PSH, SYN, Sample, URG};
use super::*;

const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8];

fn counting(octets: usize) -> Vec<u8> {
    (0..octets).map(|index| (index * 7 + index / 256) as u8).collect()
}

fn located(frame: &[u8]) -> Segment {
    Segment::locate(frame).expect("a TCP/IPv4 frame")
}

#[test]
fn locates_the_parts_and_ignores_padding() {
    let payload = counting(3);
    let mut frame = Sample { payload: &payload, ..Sample::default() }.frame();
    frame.resize(60, 0xee);
    assert_eq!(located(&frame), Segment { tcp: 34, payload: 54, end: 57 });
    assert!(located(&frame).checksums_hold(&frame));
}

#[test]
fn leaves_everything_else_alone() {
    let frame = Sample { payload: b"abcd", ..Sample::default() }.frame();
    assert!((0..frame.len()).all(|octets| Segment::locate(&frame[..octets]).is_none()));
    for (at, value, what) in [
        (13, 0x06, "ARP"),
        (14, 0x65, "version 6"),
        (14, 0x44, "header below 20 octets"),
        (14, 0x4f, "header beyond the packet"),
        (17, 0xff, "longer than the frame"),
        (20, 0x20, "more fragments"),
        (21, 0x01, "fragment offset"),
        (23, 17, "UDP"),
        (46, 0x40, "TCP header below 20 octets"),
        (46, 0xf0, "TCP header beyond the packet"),
    ] {
        let mut other = frame.clone();
        other[at] = value;
        assert_eq!(Segment::locate(&other), None, "{what}");
    }
}

#[test]
fn checksums_agree_with_the_plainest_sum() {
    for octets in 0..70 {
        let bytes = counting(octets);
        assert_eq!(fold(sum(&bytes)), sample::ones_complement_sum(&bytes), "{octets} octets");
        let payload = counting(octets);
        let mut frame = Sample { payload: &payload, options: &TIMESTAMPS, ..Sample::default() }.frame();
        assert!(located(&frame).checksums_hold(&frame));
        frame[40] ^= 1;
        assert!(!located(&frame).checksums_hold(&frame));
    }
}

#[test]
fn every_cut_gives_two_valid_segments() {
    let payload = counting(33);
    let flags = ACK | PSH | FIN | CWR;
    let whole = Sample {
        sequence: u32::MAX - 10,
        payload: &payload,
        options: &TIMESTAMPS,
        flags,
        ..Sample::default()
    };
    for at in 1..payload.len() {
        let mut head = whole.frame();
        let mut tail = vec![0; head.len()];
        let segment = located(&head);
        assert!(can_split(&head, segment));
        let (head_octets, tail_octets) = split(&mut head, segment, at, &mut tail);
        let head = sample::read(&head[..head_octets]).expect("a valid head");
        let tail = sample::read(&tail[..tail_octets]).expect("a valid tail");
        assert_eq!((head.sequence, head.flags), (u32::MAX - 10, ACK | CWR));
        assert_eq!((tail.sequence, tail.flags), ((u32::MAX - 10).wrapping_add(at as u32), ACK | PSH | FIN));
        assert_eq!((head.options, tail.options), (&TIMESTAMPS[..], &TIMESTAMPS[..]));
        assert_eq!((head.payload, tail.payload), payload.split_at(at));
    }
}

#[test]
fn cutting_needs_two_octets_and_plain_data() {
    for (flags, payload, may) in [
        (ACK, &b"ab"[..], true),
        (ACK | FIN, b"ab", true),
        (ACK, b"a", false),
        (ACK, b"", false),
        (SYN, b"ab", false),
        (ACK | URG, b"ab", false),
        (0x04, b"ab", false),
    ] {
        let frame = Sample { flags, payload, ..Sample::default() }.frame();
        assert_eq!(can_split(&frame, located(&frame)), may, "flags {flags:#x}, {} octets", payload.len());
    }
}

/// The frames of two consecutive segments, the first in a buffer with room for both.
fn consecutive(first: Sample<'_>, next: Sample<'_>) -> (Vec<u8>, Vec<u8>) {
    let mut buffer = first.frame();
    buffer.resize(1514, 0);
    let sequence = first.sequence.wrapping_add(first.payload.len() as u32);
    (buffer, Sample { sequence, ..next }.frame())
}

#[test]
fn joining_undoes_cutting() {
    let (left, right) = (counting(700), counting(760));
    let first = Sample { sequence: u32::MAX - 3, payload: &left, flags: ACK | CWR, ..Sample::default() };
    let next = Sample { payload: &right, flags: ACK | PSH | FIN, ..Sample::default() };
    let (mut buffer, next) = consecutive(first, next);
    let octets = merge(&mut buffer, &next, 1500).expect("they fit exactly");
    assert_eq!(octets, 1514);
    let joined = sample::read(&buffer).expect("a valid segment");
    assert_eq!((joined.sequence, joined.flags), (u32::MAX - 3, ACK | CWR | PSH | FIN));
    assert_eq!(joined.payload, [left, right].concat());
}

#[test]
fn joins_only_what_belongs_together() {
    let base = Sample { payload: b"abcdef", ..Sample::default() };
    let (mut buffer, next) = consecutive(base, base);
    assert!(merge(&mut buffer.clone(), &next, 52).is_some());
    assert_eq!(merge(&mut buffer, &next, 51), None, "over the MTU");

    for (first, next, what) in [
        (Sample { flags: ACK | FIN, ..base }, base, "data after FIN"),
        (Sample { flags: SYN, ..base }, base, "SYN"),
        (base, Sample { flags: ACK | URG, ..base }, "urgent"),
        (base, Sample { source_port: 4712, ..base }, "another connection"),
        (base, Sample { options: &TIMESTAMPS, ..base }, "other options"),
        (base, Sample { payload: b"", ..base }, "no payload"),
    ] {
        let (mut buffer, next) = consecutive(first, next);
        assert_eq!(merge(&mut buffer, &next, 1500), None, "{what}");
    }
    let (mut buffer, _) = consecutive(base, base);
    let gap = Sample { sequence: base.sequence + 7, ..base }.frame();
    assert_eq!(merge(&mut buffer, &gap, 1500), None, "a gap");
}

#[test]
fn every_single_bit_error_is_caught() {
    let payload = counting(21);
    let frame = Sample { payload: &payload, options: &TIMESTAMPS, ..Sample::default() }.frame();
    for bit in 0..(frame.len() - ETHERNET_OCTETS) * 8 {
        let mut damaged = frame.clone();
        invert_bit(&mut damaged, bit);
        assert_ne!(damaged, frame);
        // The strict reader accepts only frames that the writer could have written.
        assert!(sample::read(&damaged).is_none(), "bit {bit}");
    }
}

#[test]
fn payload_damage_keeps_the_checksum() {
    let mut rng = fastrand::Rng::with_seed(5);
    for payload in
        [counting(64), counting(5), vec![0; 8], vec![0xff; 8], vec![0x55; 9], vec![0, 0, 0xff, 0xff]]
    {
        for _ in 0..100 {
            let mut frame = Sample { payload: &payload, options: &TIMESTAMPS, ..Sample::default() }.frame();
            let segment = located(&frame);
            assert!(corrupt_payload(&mut frame, segment, 0, |bound| rng.usize(0..bound)));
            let damaged = sample::read(&frame).expect("the checksum holds");
            assert_ne!(damaged.payload, payload);
        }
    }
    let mut short = Sample { payload: b"abc", ..Sample::default() }.frame();
    let segment = located(&short);
    assert!(!corrupt_payload(&mut short, segment, 0, |_| 0), "one word cannot be altered unseen");
}

#[test]
fn offload_completes_the_sum_left_in_the_field() {
    let payload = counting(29);
    let expected = Sample { payload: &payload, options: &TIMESTAMPS, ..Sample::default() }.frame();
    let mut frame = expected.clone();
    let octets = (frame.len() - 34) as u16;
    let pseudo = [&frame[26..34], &[0, 6], &octets.to_be_bytes()].concat();
    let partial = sample::ones_complement_sum(&pseudo);
    frame[50..52].copy_from_slice(&partial.to_be_bytes());
    frame[24..26].fill(0xaa);
    let request =
        ChecksumRequest { ip: IpVersion::V4, ip_checksum: true, l2_octets: 14, l3_octets: 20, l4_octets: 32 };
    offload_checksums(&mut frame, request);
    assert_eq!(frame, expected);

    let before = frame[..40].to_vec();
    offload_checksums(&mut frame[..40], request);
    assert_eq!(frame[..40], before, "a frame too short for its headers is left alone");
}

/// An IPv6 header has no checksum: all of it stays as it is, and TCP's is filled in.
#[test]
fn offload_over_ipv6_touches_the_segment_alone() {
    let request =
        ChecksumRequest { ip: IpVersion::V6, ip_checksum: true, l2_octets: 14, l3_octets: 40, l4_octets: 20 };
    let mut frame = vec![0; 14];
    frame.extend([0x60, 0, 0, 0, 0, 23, 6, 64]);
    frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    let pseudo = [&frame[22..54], &[0, 0, 0, 23, 0, 0, 0, 6]].concat();
    frame.extend([0x12, 0x67, 0x13, 0x89, 0, 0, 3, 0xe8, 0, 0, 0, 77, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    frame.extend(b"abc");
    let headers = frame[..54].to_vec();
    frame[70..72].copy_from_slice(&sample::ones_complement_sum(&pseudo).to_be_bytes());
    offload_checksums(&mut frame, request);
    assert_eq!(frame[..54], headers);
    let whole = [pseudo, frame[54..].to_vec()].concat();
    assert_eq!(sample::ones_complement_sum(&whole), 0xffff);
}

/// A transfer's option of 20 octets, a total of 4000.
const OPTION: [u8; 20] = [25, 20, 0x80, 0, 0, 0, 0, 7, 0, 0, 3, 0xe8, 0, 10, 0, 20, 0, 0, 0x0f, 0xa0];

fn with_option(payload: &[u8]) -> (Vec<u8>, Segment) {
    let options = [&TIMESTAMPS[..], &OPTION].concat();
    let frame = Sample { payload, options: &options, ..Sample::default() }.frame();
    let segment = located(&frame);
    (frame, segment)
}

#[test]
fn options_are_found_taken_away_and_changed() {
    let payload = counting(50);
    let (frame, segment) = with_option(&payload);
    let option = rdma_option::locate(&frame, segment).expect("an option");
    assert_eq!(frame[option.clone()], OPTION);
    let mut stripped = frame.clone();
    rdma_option::strip(&mut stripped, segment, option.clone());
    assert_eq!(rdma_option::locate(&stripped, segment), None);
    let reading = sample::read(&stripped).expect("a valid segment");
    assert_eq!((reading.options, reading.payload), (&[&TIMESTAMPS[..], &[1; 20]].concat()[..], &payload[..]));

    let mut rng = fastrand::Rng::with_seed(1);
    let mut changed = [0; 20];
    for _ in 0..2000 {
        let mut altered = frame.clone();
        rdma_option::alter(&mut altered, segment, option.clone(), |bound| rng.usize(0..bound));
        let reading = sample::read(&altered).expect("a valid segment");
        assert_eq!((&reading.options[..12], reading.payload), (&TIMESTAMPS[..], &payload[..]));
        assert_ne!(reading.options[12..], OPTION, "something is changed");
        for (count, (octet, before)) in changed.iter_mut().zip(reading.options[12..].iter().zip(&OPTION)) {
            *count += u32::from(octet != before);
        }
    }
    // All but the kind, and the high bits of the name.
    assert_eq!(changed.map(|count| count == 0), core::array::from_fn(|at| at == 0 || at == 3));
}

#[test]
fn options_are_put_on_other_segments() {
    let payload = counting(50);
    let (frame, segment) = with_option(&payload);
    let copied = rdma_option::copy(&frame, rdma_option::locate(&frame, segment).expect("an option"));
    for (options, mtu_octets, may) in [
        (&[][..], 110, true),
        (&[][..], 109, false),
        (&TIMESTAMPS[..], 1500, true),
        (&[1; 20], 1500, true),
        (&[1; 24], 1500, false),
        (&[25, 4, 0x80, 0], 1500, false),
    ] {
        let mut buffer = Sample { payload: &payload, options, ..Sample::default() }.frame();
        let segment = located(&buffer);
        buffer.resize(1514, 0);
        let octets = rdma_option::put(&mut buffer, segment, &copied, mtu_octets);
        assert_eq!(octets.is_some(), may, "{options:?}, {mtu_octets}");
        let Some(octets) = octets else { continue };
        let reading = sample::read(&buffer[..octets]).expect("a valid segment");
        assert_eq!((reading.options, reading.payload), (&[options, &OPTION].concat()[..], &payload[..]));
    }
    let mut buffer = frame;
    buffer[segment.tcp + 20 + 12 + 11] ^= 0xff;
    let octets = rdma_option::put(&mut buffer, segment, &copied, 1500).expect("in the place of its own");
    let reading = sample::read(&buffer[..octets]).expect("a valid segment");
    assert_eq!(reading.options[12..], OPTION);
}
