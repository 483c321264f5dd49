//! Tests of frames over a wire in memory.
#![allow(unsafe_code, missing_docs)]

mod common;

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{eal, frame, pool};
use dpdk::{
    ChecksumStatus, ExternalBuffer, ExternalPieces, Headers, HugeRegion, IpVersion, Mbuf, Mempool,
    WireConfig, WireEnd, wire,
};

const HEADERS: Headers =
    Headers { ip: IpVersion::V4, ip_checksum: true, l2_octets: 14, l3_octets: 20, l4_octets: 20 };
const HEADERS_V6: Headers =
    Headers { ip: IpVersion::V6, ip_checksum: true, l2_octets: 14, l3_octets: 40, l4_octets: 20 };

fn ends(config: &WireConfig, pool: &Mempool) -> (WireEnd, WireEnd) {
    wire(eal(), config, [pool, pool]).unwrap()
}

fn octets(frame: &Mbuf) -> Vec<u8> {
    frame.pieces().flatten().copied().collect()
}

fn one(frame: Mbuf) -> Vec<Mbuf> {
    vec![frame]
}

fn receive_one(end: &mut WireEnd) -> Mbuf {
    let mut frames = Vec::new();
    assert_eq!(end.receive(&mut frames, 32), 1);
    frames.pop().unwrap()
}

/// Memory whose releases are counted.
fn counted(octets: &'static [u8]) -> (ExternalBuffer, Arc<AtomicUsize>) {
    let releases = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&releases);
    let release = move || {
        count.fetch_add(1, Ordering::SeqCst);
    };
    // SAFETY: the octets are static and never written.
    let buffer =
        unsafe { ExternalBuffer::from_raw_parts(NonNull::from(octets).cast(), octets.len(), release) };
    (buffer, releases)
}

#[test]
fn frames_cross_both_ways_unchanged_and_in_order() {
    let pool = pool(255, 2048);
    let (mut from, mut to) = ends(&WireConfig::default(), &pool);
    let mut frames = Vec::new();
    for _ in 0..2 {
        let mut sent: Vec<Mbuf> = (0..100u8).map(|n| frame(&pool, &[n; 60])).collect();
        assert_eq!(from.transmit(&mut sent), 100);
        assert_eq!(to.receive(&mut frames, 64), 64);
        assert_eq!(to.receive(&mut frames, 64), 36);
        assert_eq!(to.receive(&mut frames, 64), 0);
        for (n, received) in (0..100).zip(frames.drain(..)) {
            assert_eq!(octets(&received), [n; 60]);
        }
        assert_eq!(from.statistics().sent_frames, 100);
        assert_eq!(from.statistics().sent_bytes, 6000);
        assert_eq!(to.statistics().received_frames, 100);
        mem::swap(&mut from, &mut to);
    }
    drop(frames);
    assert_eq!(pool.available(), pool.capacity());
}

/// What was asked of the port can be read again by a device that is none of DPDK's.
#[test]
fn requests_are_read_as_they_were_written() {
    let pool = pool(1, 2048);
    let mut asked = frame(&pool, &[0; 60]);
    assert_eq!(asked.transmit_request(), None);
    asked.request_checksums(HEADERS);
    assert_eq!(asked.transmit_request(), Some((HEADERS, None)));
    drop(asked);
    for ip in [IpVersion::V4, IpVersion::V6] {
        let headers = Headers { ip, ip_checksum: false, l2_octets: 18, l3_octets: 255, l4_octets: 60 };
        let mut asked = frame(&pool, &[0; 60]);
        asked.request_segmentation(headers, 65_000);
        assert_eq!(asked.transmit_request(), Some((headers, Some(65_000))));
    }
}

#[test]
fn a_full_wire_leaves_the_rest_with_its_requests() {
    let pool = pool(63, 2048);
    let (mut a, mut b) = ends(&WireConfig { frames: 4, ..WireConfig::default() }, &pool);
    let mut sent: Vec<Mbuf> = (0..6u8).map(|n| frame(&pool, &[n; 60])).collect();
    for frame in &mut sent {
        frame.request_checksums(HEADERS);
    }
    assert_eq!(a.transmit(&mut sent), 4);
    assert_eq!(a.transmit(&mut sent), 0);
    let mut frames = Vec::new();
    assert_eq!(b.receive(&mut frames, 32), 4);
    assert_eq!(a.transmit(&mut sent), 2);
    assert_eq!(b.receive(&mut frames, 32), 2);
    for (n, received) in (0..6).zip(&frames) {
        assert_eq!(received.first(), [n; 60]);
        assert_eq!(received.l4_checksum(), ChecksumStatus::Good);
    }
}

/// Frames keep their order where the wire holds a number that no line of slots divides, lap after lap, and at
/// every length of what is sent together.
#[test]
fn a_wire_of_any_length_goes_round() {
    let pool = pool(63, 2048);
    for length in [1, 5, 8, 13, 24] {
        let (mut a, mut b) = ends(&WireConfig { frames: length, ..WireConfig::default() }, &pool);
        let (mut next, mut expected) = (0u8, 0u8);
        let mut frames = Vec::new();
        for round in 0..100 {
            let mut sent: Vec<Mbuf> = Vec::new();
            for _ in 0..=round % length {
                sent.push(frame(&pool, &[next; 60]));
                next = next.wrapping_add(1);
            }
            assert_eq!(a.transmit(&mut sent) as u32, 1 + round % length);
            // A part now, the rest later.
            let part = b.receive(&mut frames, 3);
            assert_eq!(part + b.receive(&mut frames, 32), 1 + (round % length) as usize);
            for received in frames.drain(..) {
                assert_eq!(received.first(), [expected; 60], "{length} {round}");
                expected = expected.wrapping_add(1);
            }
        }
    }
    assert_eq!(pool.available(), pool.capacity());
}

/// A frame longer than the MTU crosses whole if it is to be cut into segments and the wire takes such.
#[test]
fn super_frames_cross_where_they_are_taken() {
    let pool = pool(63, 9000);
    for (super_frame_bytes, segments, crosses) in
        [(0, true, false), (5000, false, false), (5000, true, true), (4900, true, false)]
    {
        let (mut a, mut b) = ends(&WireConfig { super_frame_bytes, ..WireConfig::default() }, &pool);
        let mut sent = frame(&pool, &[7; 5000]);
        if segments {
            sent.request_segmentation(HEADERS, 1448);
        }
        assert_eq!(a.transmit(&mut vec![sent]), 1);
        let mut frames = Vec::new();
        assert_eq!(b.receive(&mut frames, 32), usize::from(crosses), "{super_frame_bytes} {segments}");
        assert_eq!(a.statistics().oversize_frames, u64::from(!crosses));
        if let Some(received) = frames.first() {
            assert_eq!((received.first(), received.l4_checksum()), (&[7; 5000][..], ChecksumStatus::Good));
        }
    }
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn checksum_requests_become_good_checksums_only_with_offload() {
    let pool = pool(63, 2048);
    for (offload, status) in [(true, ChecksumStatus::Good), (false, ChecksumStatus::Unknown)] {
        let (mut a, mut b) = ends(&WireConfig { checksum_offload: offload, ..WireConfig::default() }, &pool);
        let mut asked = frame(&pool, &[1; 60]);
        asked.request_checksums(HEADERS);
        a.transmit(&mut one(asked));
        let received = receive_one(&mut b);
        assert_eq!((received.ip_checksum(), received.l4_checksum()), (status, status));
        assert_eq!(received.rss_hash(), None);

        // A received frame that is sent on keeps no offload state of its reception.
        b.transmit(&mut one(received));
        let again = receive_one(&mut a);
        assert_eq!(
            (again.ip_checksum(), again.l4_checksum()),
            (ChecksumStatus::Unknown, ChecksumStatus::Unknown)
        );
    }
}

/// The checksum request of the sender appears as the receiver's checksum state: IPv6 has no header checksum,
/// even if TCP is to be segmented.
#[test]
fn an_ipv6_header_has_no_checksum_to_ask_for() {
    let pool = pool(63, 2048);
    let (mut a, mut b) = ends(&WireConfig::default(), &pool);
    for segmented in [false, true] {
        for (headers, ip) in [(HEADERS, ChecksumStatus::Good), (HEADERS_V6, ChecksumStatus::Unknown)] {
            let mut asked = frame(&pool, &[1; 80]);
            if segmented {
                asked.request_segmentation(headers, 1000);
            } else {
                asked.request_checksums(headers);
            }
            a.transmit(&mut one(asked));
            let received = receive_one(&mut b);
            assert_eq!((received.ip_checksum(), received.l4_checksum()), (ip, ChecksumStatus::Good));
        }
    }
}

/// A port may cut super-frames and offer no checksum of IPv4: it refuses frames that ask for one.
#[test]
fn a_super_frame_asks_for_the_checksum_of_its_header_only_if_told() {
    let pool = pool(63, 2048);
    let (mut a, mut b) = ends(&WireConfig::default(), &pool);
    for (ip_checksum, ip) in [(true, ChecksumStatus::Good), (false, ChecksumStatus::Unknown)] {
        let mut asked = frame(&pool, &[1; 80]);
        asked.request_segmentation(Headers { ip_checksum, ..HEADERS }, 1000);
        a.transmit(&mut one(asked));
        let received = receive_one(&mut b);
        assert_eq!((received.ip_checksum(), received.l4_checksum()), (ip, ChecksumStatus::Good));
    }
}

#[test]
fn frames_over_the_mtu_are_refused() {
    let pool = pool(63, 9300);
    let (mut a, mut b) = ends(&WireConfig { mtu_bytes: 9000, ..WireConfig::default() }, &pool);
    let mut sent = vec![frame(&pool, &[1; 9015]), frame(&pool, &[2; 9014])];
    assert_eq!(a.transmit(&mut sent), 2);
    assert_eq!(octets(&receive_one(&mut b)), [2; 9014]);
    assert_eq!(a.statistics().oversize_frames, 1);
    assert_eq!(pool.available(), pool.capacity());
}

/// A VLAN tag is no part of the IP packet that the MTU limits.
#[test]
fn a_tag_may_come_on_top_of_the_mtu() {
    let pool = pool(63, 2048);
    let (mut a, mut b) = ends(&WireConfig { mtu_bytes: 1500, ..WireConfig::default() }, &pool);
    let tagged = |len: usize| {
        let mut octets = vec![1; len];
        octets[12..14].copy_from_slice(&[0x81, 0x00]);
        octets
    };
    let mut sent = vec![frame(&pool, &tagged(1519)), frame(&pool, &tagged(1518))];
    assert_eq!(a.transmit(&mut sent), 2);
    assert_eq!(octets(&receive_one(&mut b)), tagged(1518));
    assert_eq!(a.statistics().oversize_frames, 1);
}

#[test]
fn chains_cross_as_they_are() {
    let pool = pool(63, 64);
    let (mut a, mut b) = ends(&WireConfig::default(), &pool);
    let mut sent = frame(&pool, &[1; 50]);
    sent.append_piece(40).unwrap().fill(2);
    sent.chain(frame(&pool, &[3; 30])).unwrap();
    assert!(a.transmit(&mut one(sent)) == 1);
    let received = receive_one(&mut b);
    let pieces: Vec<&[u8]> = received.pieces().collect();
    assert_eq!(pieces, [&[1; 50][..], &[2; 40], &[3; 30]]);
    assert_eq!(received.piece(2), Some(&[3; 30][..]));
    assert_eq!(received.piece(3), None);
    assert_eq!(received.len(), 120);
    drop(received);
    assert_eq!(pool.available(), pool.capacity());
}

/// The receiver must not see writes that the sender makes after it has sent.
#[test]
fn copied_pieces_are_the_receivers_own() {
    let pool = pool(63, 2048);
    let (mut a, mut b) = ends(&WireConfig::default(), &pool);
    let region = HugeRegion::new(eal(), 4096).unwrap();
    let start = region.start();
    let buffer = ExternalBuffer::of_region(region);
    let mut sent = frame(&pool, &[1; 54]);
    assert!(sent.append_external(&buffer, 100, 1000));
    sent.append(4).unwrap().fill(9);
    sent.request_checksums(HEADERS);
    assert_eq!(sent.piece_count(), 3, "octets after a reference lie in a piece of their own");
    a.transmit(&mut one(sent));
    assert_eq!(buffer.attachments(), 0, "references end at the crossing");
    // SAFETY: nothing refers to the region any more; `buffer` keeps it.
    unsafe { start.as_ptr().write_bytes(7, 4096) };
    let received = receive_one(&mut b);
    assert_eq!(received.l4_checksum(), ChecksumStatus::Good);
    let mut expected = vec![1; 54];
    expected.extend([0; 1000]);
    expected.extend([9; 4]);
    assert_eq!(octets(&received), expected);
    drop(received);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn shared_pieces_keep_their_owner_until_the_last_is_dropped() {
    let pool = pool(63, 2048);
    let (mut a, mut b) =
        ends(&WireConfig { external_pieces: ExternalPieces::Shared, ..WireConfig::default() }, &pool);
    let (buffer, releases) = counted(&[5; 3000]);
    let mut sent = Vec::new();
    for offset in [0, 1000, 2000] {
        let mut frame = frame(&pool, &[1; 54]);
        assert!(frame.append_external(&buffer, offset, 1000));
        sent.push(frame);
    }
    assert_eq!(buffer.attachments(), 3);
    assert_eq!(a.transmit(&mut sent), 3);
    drop(buffer);
    let mut frames = Vec::new();
    assert_eq!(b.receive(&mut frames, 32), 3);
    assert_eq!(frames[2].piece(1), Some(&[5; 1000][..]));
    let last = frames.pop().unwrap();
    drop(frames);
    assert_eq!(releases.load(Ordering::SeqCst), 0);
    thread::spawn(|| drop(last)).join().unwrap();
    assert_eq!(releases.load(Ordering::SeqCst), 1);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn ranges_outside_an_external_buffer_are_refused() {
    let pool = pool(63, 2048);
    let (buffer, releases) = counted(&[5; 3000]);
    let mut sent = frame(&pool, &[1; 54]);
    assert!(!sent.append_external(&buffer, 2001, 1000));
    assert!(!sent.append_external(&buffer, usize::MAX, 2));
    assert!(sent.append_external(&buffer, 3000, 0));
    assert_eq!((sent.len(), sent.piece_count(), buffer.attachments()), (54, 2, 1));
    drop(buffer);
    assert_eq!(releases.load(Ordering::SeqCst), 0);
    drop(sent);
    assert_eq!(releases.load(Ordering::SeqCst), 1);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn frames_that_cannot_be_copied_are_dropped_and_counted() {
    let senders = pool(63, 2048);
    let receivers = pool(1, 2048);
    let (mut a, mut b) = wire(eal(), &WireConfig::default(), [&senders, &receivers]).unwrap();
    let (buffer, _) = counted(&[5; 3000]);
    let mut sent = Vec::new();
    for _ in 0..2 {
        let mut frame = frame(&senders, &[1; 54]);
        assert!(frame.append_external(&buffer, 0, 100));
        sent.push(frame);
    }
    assert_eq!(a.transmit(&mut sent), 2);
    assert_eq!(receive_one(&mut b).len(), 154);
    assert_eq!(a.statistics().no_buffer_frames, 1);
    assert_eq!(senders.available(), senders.capacity());
    assert_eq!(receivers.available(), receivers.capacity());
}

#[test]
fn a_dropped_wire_gives_back_what_was_on_its_way() {
    let pool = pool(63, 2048);
    let (mut a, b) = ends(&WireConfig::default(), &pool);
    a.transmit(&mut one(frame(&pool, &[1; 60])));
    assert_eq!(pool.available(), pool.capacity() - 1);
    drop((a, b));
    assert_eq!(pool.available(), pool.capacity());
}

/// Both ends at work on threads of their own: nothing is lost, doubled or reordered.
#[test]
fn two_threads_share_a_wire() {
    const FRAMES: u32 = 20_000;
    let pool = pool(1023, 2048);
    let (mut a, mut b) = ends(&WireConfig { frames: 64, ..WireConfig::default() }, &pool);
    let sender_pool = pool.clone();
    let sender = thread::spawn(move || {
        let _registered = eal().register_thread().unwrap();
        let mut sent = Vec::new();
        let mut next = 0u32;
        while next < FRAMES || !sent.is_empty() {
            while next < FRAMES && sent.len() < 32 {
                let Some(mut frame) = sender_pool.allocate() else {
                    break;
                };
                frame.append(60).unwrap()[..4].copy_from_slice(&next.to_be_bytes());
                sent.push(frame);
                next += 1;
            }
            if a.transmit(&mut sent) == 0 {
                thread::yield_now();
            }
        }
        a
    });
    let receiver = thread::spawn(move || {
        let _registered = eal().register_thread().unwrap();
        let mut frames = Vec::new();
        let mut next = 0u32;
        while next < FRAMES {
            if b.receive(&mut frames, 32) == 0 {
                thread::yield_now();
            }
            for frame in frames.drain(..) {
                assert_eq!(frame.first()[..4], next.to_be_bytes());
                next += 1;
            }
        }
        b
    });
    let ends = (sender.join().unwrap(), receiver.join().unwrap());
    assert_eq!(ends.0.statistics().sent_frames, FRAMES.into());
    assert_eq!(pool.available(), pool.capacity());
}
