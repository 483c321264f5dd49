//! Tests of super-frames between a port of `net_vhost` and one of `net_virtio_user`.
#![allow(missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::frame;
use dpdk::{
    ChecksumStatus, Eal, Headers, IpVersion, Mbuf, MemoryMode, Mempool, MempoolConfig, Port, PortConfig,
    QueuePair, RunningPort,
};

const PATIENCE: Duration = Duration::from_mins(2);
const HEADERS: Headers =
    Headers { ip: IpVersion::V4, ip_checksum: false, l2_octets: 14, l3_octets: 20, l4_octets: 20 };
const HEADER_OCTETS: usize = 54;
const SEGMENT_OCTETS: u16 = 1400;
/// Octets of a buffer of the pool.
const DATA_OCTETS: usize = 9216;

/// The headers of an IPv4 packet with a TCP segment of `payload` octets. The checksum of the IP header is
/// there, for these ports do not fill it in; that of the segment is the pseudo-header's, without the length.
fn headers(payload: usize) -> Vec<u8> {
    let mut octets = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let length = (40 + payload) as u16;
    octets.extend([0x45, 0, (length >> 8) as u8, length as u8, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    octets.extend([198, 18, 0, 1, 198, 18, 0, 2]);
    let header = !sum(&octets[14..34]);
    octets[24..26].copy_from_slice(&header.to_be_bytes());
    octets.extend([0x1d, 0x2f, 0x1d, 0x2f, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0xff, 0xff]);
    let pseudo_header = sum(&[0xc6, 0x12, 0, 1, 0xc6, 0x12, 0, 2, 0, 6]);
    octets.extend(pseudo_header.to_be_bytes());
    octets.extend([0, 0]);
    octets
}

/// Returns the one's complement sum of the octets.
fn sum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// A super-frame whose segments lie in buffers of their own, as `payload` has them.
fn super_frame(pool: &Mempool, payload: &[u8]) -> Mbuf {
    let mut sent = frame(pool, &headers(payload.len()));
    for segment in payload.chunks(SEGMENT_OCTETS.into()) {
        if sent.tailroom() < segment.len() {
            sent.append_piece(segment.len()).unwrap().copy_from_slice(segment);
        } else {
            sent.append(segment.len()).unwrap().copy_from_slice(segment);
        }
    }
    sent.request_segmentation(HEADERS, SEGMENT_OCTETS);
    sent
}

/// Sends `frame` to the other end, and returns it as it arrives there.
fn carry(from: &mut QueuePair, to: &mut QueuePair, frame: Mbuf) -> Mbuf {
    let (mut frames, mut received) = (vec![frame], Vec::new());
    let begun = Instant::now();
    while received.is_empty() {
        from.transmit.transmit(&mut frames);
        // The peer works in both directions.
        to.receive.receive(&mut received, 1);
        assert!(begun.elapsed() < PATIENCE, "nothing arrives");
    }
    assert_eq!(from.transmit.rejected_frames(), 0);
    received.remove(0)
}

fn start(eal: Eal, pool: &Mempool, vdev: &str, super_frames: bool) -> (RunningPort, QueuePair) {
    eal.add_vdev(vdev).unwrap();
    let descriptors = 256;
    let config = PortConfig {
        receive_descriptors: descriptors,
        transmit_descriptors: descriptors,
        super_frames,
        ..PortConfig::default()
    };
    let name = vdev.split(',').next().unwrap();
    let (port, mut pairs) =
        Port::open(eal, name).unwrap().start(&config, std::slice::from_ref(pool)).unwrap();
    (port, pairs.remove(0))
}

/// One test: the EAL starts once per process.
#[test]
fn super_frames_cross_both_ways() {
    // A peer supports few regions of memory: the memory is one file, not one file per page.
    let eal = Eal::builder().memory_mib(64).argument("--single-file-segments").init().unwrap();
    if eal.memory_mode() != MemoryMode::Hugepages {
        eprintln!("skipped: needs hugepages, the only memory that a peer of vhost-user may share");
        return;
    }
    let data_octets = DATA_OCTETS as u16;
    let pool = Mempool::new(
        eal,
        MempoolConfig { mbufs: 1023, data_octets, cache_mbufs: 32, ..MempoolConfig::default() },
    )
    .unwrap();
    for (number, super_frames) in [false, true].into_iter().enumerate() {
        let socket = std::env::temp_dir().join(format!("warpline-super-{number}-{}", std::process::id()));
        let tso = u8::from(super_frames);
        let far = format!("net_vhost{number},iface={},queues=1,tso={tso}", socket.display());
        let (far_port, mut far) = start(eal, &pool, &far, super_frames);
        let near = format!("net_virtio_user{number},path={},queues=1,queue_size=256", socket.display());
        let (near_port, mut near) = start(eal, &pool, &near, super_frames);
        for port in [&far_port, &near_port] {
            let offered = port.capabilities();
            assert!(offered.transmit_checksums && !offered.transmit_ip_checksums && offered.gather);
            assert_eq!((offered.segmentation, offered.joins_received), (super_frames, super_frames));
            assert!((32..=64).contains(&offered.pieces), "{offered:?}");
        }
        if super_frames {
            cross(&pool, &mut near, &mut far);
            cross(&pool, &mut far, &mut near);
        }
        drop((near, near_port, far, far_port));
    }
}

/// Super-frames of all lengths cross whole from one port to the other, with checksums that are good.
fn cross(pool: &Mempool, from: &mut QueuePair, to: &mut QueuePair) {
    for payload_octets in [1401, DATA_OCTETS - HEADER_OCTETS, DATA_OCTETS, 30_000, 64_900] {
        let payload: Vec<u8> = (0..payload_octets).map(|at| ((at * 7) >> 4) as u8).collect();
        let arrived = carry(from, to, super_frame(pool, &payload));
        assert_eq!(arrived.len(), HEADER_OCTETS + payload_octets, "it crosses whole");
        let octets: Vec<u8> = arrived.pieces().flatten().copied().collect();
        assert!(octets[HEADER_OCTETS..] == payload, "{payload_octets} octets");
        assert_eq!(arrived.l4_checksum(), ChecksumStatus::Good);
        // That of the IP header crosses as it is, and holds.
        assert_eq!(arrived.ip_checksum(), ChecksumStatus::Unknown);
        assert_eq!(sum(&octets[14..34]), 0xffff);
    }
}
