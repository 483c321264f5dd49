//! Tests of the receive ring and of bursts on a tap, an interface whose other end the test reads and writes:
//! sizes, wrapping, a full ring, VLAN tags, offloads. They need root and `/dev/net/tun`.
#![allow(missing_docs)]
#![expect(unsafe_code, reason = "namespaces and taps have no safe interface")]

mod common;

use std::net::IpAddr;
use std::os::fd::AsFd;

use common::frames::{Segment, ethernet, parse_ip, pattern, pseudo_sum, sum, tagged, udp};
use common::tap::{Tap, in_namespace};
use common::{config, next, next_octets, offer, open, send, send_all};
use packet::{
    Checksum, Config, FRAME_MAX_OCTETS, NotPushed, Offload, PacketSocket, SLOT_SPARE_OCTETS, Segmentation,
    Sent, Statistics,
};
use rustix::event::{PollFd, PollFlags, poll};

/// A type that the kernel has no use for.
const EXPERIMENTAL: u16 = 0x88b5;

fn addresses(ipv6: bool) -> (IpAddr, IpAddr) {
    let (near, far) = if ipv6 { ("fd00::2", "fd00::1") } else { ("198.18.0.2", "198.18.0.1") };
    (near.parse().unwrap(), far.parse().unwrap())
}

fn segment(ipv6: bool, payload: Vec<u8>) -> Segment {
    let (near, far) = addresses(ipv6);
    Segment {
        source: (near, 4000),
        destination: (far, 5000),
        sequence: u32::MAX - 1000,
        acknowledgment: 77,
        flags: 0x18,
        payload,
    }
}

/// Returns what polling the socket's descriptor reports now.
fn polled(socket: &impl AsFd) -> PollFlags {
    let mut polled = [PollFd::new(socket, PollFlags::IN)];
    poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
    polled[0].revents()
}

#[test]
fn frames_of_all_sizes_arrive_whole() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket = open(&config("tap"));
        for octets in 14..=1518 {
            let frame = ethernet(EXPERIMENTAL, &pattern(octets - 14, octets));
            tap.inject(&frame);
            next(&mut socket, |received| {
                assert_eq!(received.octets(), frame);
                assert!(!received.is_cut());
                assert_eq!(received.vlan_tci(), None);
                assert_eq!(received.checksum(), Checksum::Unknown);
                assert_eq!(received.segment_octets(), None);
            });
        }
        let long = ethernet(EXPERIMENTAL, &pattern(3000, 1));
        tap.inject(&long);
        next(&mut socket, |received| {
            assert!(received.is_cut());
            assert!(received.octets().len() >= 1518);
            assert_eq!(received.octets(), &long[..received.octets().len()]);
        });
        let statistics = Statistics { received_frames: 1506, cut_frames: 1, ..Statistics::default() };
        assert_eq!(socket.statistics(), statistics);
        assert_eq!(socket.statistics(), statistics, "the counters of the kernel begin anew");
    });
}

#[test]
fn slots_hold_few_octets_more_than_the_largest_frame() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut most = 0;
        for frame_octets in 1518..1518 + 64 {
            let mut socket = open(&Config { frame_octets, ..config("tap") });
            let long = ethernet(EXPERIMENTAL, &pattern(3000, frame_octets));
            tap.inject(&long);
            let octets = next_octets(&mut socket).len();
            assert!((frame_octets..=frame_octets + SLOT_SPARE_OCTETS).contains(&octets), "{frame_octets}");
            most = most.max(octets - frame_octets);
        }
        assert_eq!(most, SLOT_SPARE_OCTETS, "no more than that is spared");
    });
}

#[test]
fn frames_of_all_sizes_leave_whole() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket = open(&config("tap"));
        let mut octets_sent = 0;
        for octets in 14..=1514 {
            let frame = ethernet(EXPERIMENTAL, &pattern(octets - 14, octets));
            send(&mut socket, &frame, None);
            assert_eq!(tap.next(), frame);
            octets_sent += 1;
        }
        let statistics = socket.statistics();
        assert_eq!((statistics.sent_frames, statistics.refused_frames), (octets_sent, 0));
        assert_eq!(statistics.received_frames, 0, "its own frames came back");
    });
}

#[test]
fn largest_frames_fit_their_slots() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let config = Config { frame_octets: FRAME_MAX_OCTETS, receive_frames: 8, ..config("tap") };
        let mut socket = open(&config);
        let far_beyond = 3 * socket.receive_frames();
        for count in 0..far_beyond {
            // The kernel does not compare what arrives with the MTU.
            let octets = FRAME_MAX_OCTETS - count;
            let frame = ethernet(EXPERIMENTAL, &pattern(octets - 14, count));
            tap.inject(&frame);
            next(&mut socket, |received| {
                assert!(!received.is_cut(), "{octets}");
                assert_eq!(received.octets(), frame);
            });
        }
    });
}

#[test]
fn full_receive_ring_drops_the_newest() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket = open(&Config { receive_frames: 3, ..config("tap") });
        let room = socket.receive_frames();
        let frame = |number: usize| ethernet(EXPERIMENTAL, &pattern(100, number));
        let mut expected = Statistics::default();
        for round in 0..5 {
            assert_eq!(polled(&socket), PollFlags::empty());
            for number in 0..room + 7 {
                tap.inject(&frame(round + number));
            }
            for number in 0..room {
                assert!(polled(&socket).contains(PollFlags::IN), "readable while a frame waits");
                assert_eq!(socket.receive().unwrap().octets(), frame(round + number));
            }
            assert!(!socket.has_frames());
            assert!(socket.receive().is_none());
            expected.received_frames += room as u64;
            expected.dropped_frames += 7;
            assert_eq!(socket.statistics(), expected);
        }
    });
}

#[test]
fn the_ring_wraps_and_bursts_follow_each_other() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket = open(&Config { receive_frames: 5, ..config("tap") });
        let (receive, transmit) = (socket.receive_frames(), 64);
        let frame = |number: usize| ethernet(EXPERIMENTAL, &pattern(60 + number % 900, number));
        let (mut injected, mut left) = (0, 0);
        for round in 0..300 {
            let burst = 1 + round % receive;
            (injected..injected + burst).for_each(|number| tap.inject(&frame(number)));
            for number in injected..injected + burst {
                assert_eq!(next_octets(&mut socket), frame(number));
            }
            injected += burst;
            let burst = 1 + round % transmit;
            let frames: Vec<Vec<u8>> = (left..left + burst).map(frame).collect();
            let frames: Vec<_> = frames.iter().map(|frame| (&frame[..], None)).collect();
            send_all(&mut socket, &frames);
            for number in left..left + burst {
                assert_eq!(tap.next(), frame(number));
            }
            left += burst;
        }
        assert!(injected > 3 * receive && left > 3 * transmit);
        let expected = Statistics {
            received_frames: injected as u64,
            sent_frames: left as u64,
            ..Statistics::default()
        };
        assert_eq!(socket.statistics(), expected);
    });
}

/// Adds a frame of `pieces` to a burst, which has room for it.
fn push<'f>(burst: &mut packet::Burst<'_, 'f>, pieces: &[&'f [u8]]) {
    burst.push(pieces.iter().copied(), None).unwrap();
}

#[test]
fn full_burst_takes_no_more() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket = open(&config("tap"));
        let frames: Vec<_> = (0..64).map(|number| ethernet(EXPERIMENTAL, &pattern(300, number))).collect();
        let mut burst = socket.burst();
        for frame in &frames {
            push(&mut burst, &[frame]);
        }
        assert_eq!(burst.push([&frames[0][..]].into_iter(), None), Err(NotPushed::Full));
        assert_eq!(burst.frames(), 64);
        assert!(tap.try_next().is_none(), "sent before its time");
        assert_eq!(burst.send(), Sent { frames: 64, stopped: None });
        for frame in &frames {
            assert_eq!(&tap.next(), frame);
        }
        assert_eq!(offer(&mut socket, &[]), Sent { frames: 0, stopped: None });
        // What is in a burst that is not sent is not sent with the next.
        push(&mut socket.burst(), &[&frames[1]]);
        send(&mut socket, &frames[2], None);
        assert_eq!(tap.next(), frames[2]);
        assert_eq!(socket.statistics(), Statistics { sent_frames: 65, ..Statistics::default() });
    });
}

#[test]
fn frames_of_pieces_leave_whole() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket = open(&config("tap"));
        let frame = ethernet(EXPERIMENTAL, &pattern(1500, 3));
        for piece_octets in [30, 100, 127, 128, 129, 700, 1513, 1514] {
            let mut burst = socket.burst();
            for _ in 0..3 {
                let mut pieces: Vec<_> = frame.chunks(piece_octets).collect();
                pieces.insert(1, &[]);
                push(&mut burst, &pieces);
            }
            assert_eq!(burst.send(), Sent { frames: 3, stopped: None });
            (0..3).for_each(|_| assert_eq!(tap.next(), frame, "{piece_octets}"));
        }
        // The front can be changed, in what is sent alone.
        let mut burst = socket.burst();
        burst.push([&frame[..]].into_iter(), None).unwrap()[..6].fill(9);
        push(&mut burst, &[&frame]);
        assert_eq!(burst.send().frames, 2);
        let changed = [&[9; 6][..], &frame[6..]].concat();
        assert!([tap.next(), tap.next()] == [changed, frame.clone()]);
        // There is room for 256 pieces beside the fronts.
        let mut burst = socket.burst();
        let short: Vec<_> = frame[..14 + 200].chunks(1).skip(13).collect();
        let pieces = [&[&frame[..14]][..], &short[1..]].concat();
        push(&mut burst, &pieces);
        assert_eq!(burst.push(pieces.iter().copied(), None), Err(NotPushed::Full));
        push(&mut burst, &pieces[..57]);
        assert_eq!(burst.push([&frame[..]].into_iter(), None), Err(NotPushed::Full));
        push(&mut burst, &[&frame[..128]]);
        assert_eq!(burst.send(), Sent { frames: 3, stopped: None });
        assert!([tap.next(), tap.next(), tap.next()] == [&frame[..214], &frame[..70], &frame[..128]]);
        let mut burst = socket.burst();
        let many = frame[14..].chunks(1).take(257);
        assert_eq!(burst.push([&frame[..14]].into_iter().chain(many), None), Err(NotPushed::Refused));
        assert_eq!(socket.statistics().refused_frames, 1);
    });
}

#[test]
fn malformed_frames_are_refused_and_stop_nothing() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket = open(&Config { frame_octets: FRAME_MAX_OCTETS, ..config("tap") });
        let octets_of_all = vec![0; FRAME_MAX_OCTETS + 1];
        let refused = |socket: &mut PacketSocket, octets: usize, offload: Option<Offload>| {
            let mut burst = socket.burst();
            let pushed = burst.push([&octets_of_all[..octets]].into_iter(), offload.as_ref());
            assert_eq!(pushed, Err(NotPushed::Refused), "{octets} {offload:?}");
        };
        refused(&mut socket, 13, None);
        refused(&mut socket, FRAME_MAX_OCTETS + 1, None);
        let checksum =
            |checksum_start, checksum_offset| Offload { checksum_start, checksum_offset, segmentation: None };
        refused(&mut socket, 60, Some(checksum(50, 9)));
        refused(&mut socket, 60, Some(checksum(u16::MAX, u16::MAX)));
        let segmentation = |segment_octets, header_octets| {
            let segmentation = Some(Segmentation { segment_octets, header_octets, ipv6: false });
            Some(Offload { segmentation, ..checksum(34, 16) })
        };
        refused(&mut socket, 60, segmentation(0, 54));
        refused(&mut socket, 60, segmentation(10, 51));
        refused(&mut socket, 60, segmentation(10, 61));
        assert_eq!(socket.statistics().refused_frames, 7);
        // What only the kernel finds out: a super-frame that ends in its TCP header.
        let bad = ethernet(0x0800, &pattern(38, 0));
        let good = ethernet(EXPERIMENTAL, &pattern(60, 0));
        let frames = [(&good[..], None), (&bad, segmentation(10, 52)), (&good, None)];
        assert_eq!(offer(&mut socket, &frames), Sent { frames: 3, stopped: None });
        assert!([tap.next(), tap.next()] == [good.clone(), good], "other frames");
        let statistics = socket.statistics();
        assert_eq!((statistics.refused_frames, statistics.sent_frames), (8, 2));
    });
}

#[test]
fn tags_come_apart_from_the_frame_and_leave_in_it() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket = open(&config("tap"));
        let plain = ethernet(EXPERIMENTAL, &pattern(200, 3));
        for (tpid, tci, expected) in [
            (0x8100, 0xa005, Some(0xa005)),
            (0x8100, 0, Some(0)),
            (0x8100, 0xffff, Some(0xffff)),
            (0x88a8, 5, None),
        ] {
            tap.inject(&tagged(&plain, tpid, tci));
            next(&mut socket, |received| {
                assert_eq!(received.octets(), plain);
                assert_eq!(received.vlan_tci(), expected);
            });
        }
        // A second tag stays.
        let inner = tagged(&plain, 0x8100, 6);
        tap.inject(&tagged(&inner, 0x8100, 5));
        next(&mut socket, |received| {
            assert_eq!(received.octets(), inner);
            assert_eq!(received.vlan_tci(), Some(5));
        });
        let longest = tagged(&ethernet(EXPERIMENTAL, &pattern(1500, 3)), 0x8100, 5);
        send(&mut socket, &longest, None);
        assert_eq!(tap.next(), longest);
    });
}

#[test]
fn kernel_completes_checksums() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket = open(&config("tap"));
        for ipv6 in [false, true] {
            let (near, far) = addresses(ipv6);
            for octets in [0, 1, 2, 100, 1001, 1400] {
                let sent = segment(ipv6, pattern(octets, octets));
                send(&mut socket, &sent.frame(), Some(sent.offload(0, 0)));
                assert_eq!(Segment::parse(&tap.next(), false), Some(sent.clone()));
                // As partial as it was when no work is asked for.
                send(&mut socket, &sent.frame(), None);
                assert_eq!(tap.next(), sent.frame());

                let datagram = udp((near, 1), (far, 2), &pattern(octets, 0), true);
                let checksum_start = if ipv6 { 54 } else { 34 };
                let offload = Offload { checksum_start, checksum_offset: 6, segmentation: None };
                send(&mut socket, &datagram, Some(offload));
                let arrived = tap.next();
                let (.., transport) = parse_ip(&arrived).unwrap();
                assert_eq!(transport[8..], pattern(octets, 0));
                let pseudo = pseudo_sum(near, far, 17, transport.len());
                assert_eq!(sum(&[&pseudo.to_be_bytes(), transport].concat()), 0xffff);
            }
        }
    });
}

#[test]
fn super_frames_leave_as_segments() {
    in_namespace(|| {
        let mut tap = Tap::new("tap");
        let mut socket =
            open(&Config { frame_octets: FRAME_MAX_OCTETS, transmit_frames: 8, ..config("tap") });
        for (ipv6, tag) in [(false, None), (true, None), (false, Some(0x2005)), (true, Some(0x2005))] {
            let most = if ipv6 { 65_535 - 60 } else { 65_535 - 40 };
            for octets in [1401, 2800, 30_000, most] {
                let whole = segment(ipv6, pattern(octets, octets));
                let frame = tag.map_or(whole.frame(), |tci| tagged(&whole.frame(), 0x8100, tci));
                send(&mut socket, &frame, Some(whole.offload(1400, if tag.is_some() { 4 } else { 0 })));
                let mut sequence = whole.sequence;
                for piece in whole.payload.chunks(1400) {
                    let mut arrived = tap.next();
                    if let Some(tci) = tag {
                        assert_eq!(arrived[12..14], [0x81, 0x00]);
                        assert_eq!(arrived[14..16], u16::to_be_bytes(tci));
                        arrived.drain(12..16);
                    }
                    let is_last = sequence.wrapping_sub(whole.sequence) as usize + piece.len() == octets;
                    let expected = Segment {
                        sequence,
                        flags: if is_last { 0x18 } else { 0x10 },
                        payload: piece.to_vec(),
                        ..whole.clone()
                    };
                    assert_eq!(Segment::parse(&arrived, false), Some(expected));
                    sequence = sequence.wrapping_add(piece.len() as u32);
                }
            }
        }
        assert_eq!(socket.statistics().refused_frames, 0);
    });
}
