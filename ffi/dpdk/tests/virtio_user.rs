//! Tests of the receive interrupts of a port of `net_virtio_user`, whose peer is a port of `net_vhost`.
#![allow(missing_docs)]

mod common;

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use common::frame;
use dpdk::{Eal, MemoryMode, Mempool, MempoolConfig, Port, PortConfig, RxTrigger};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Waits for the next edge of the descriptor, for `seconds`; returns false if none came.
fn is_raised(set: &OwnedFd, seconds: i64) -> bool {
    let mut events = [MaybeUninit::uninit(); 1];
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    !epoll::wait(set, &mut events, Some(&timeout)).unwrap().0.is_empty()
}

const PATIENCE: Duration = Duration::from_mins(2);

#[test]
fn a_frame_of_its_peer_raises_the_interrupt() {
    let socket = std::env::temp_dir().join(format!("warpline-vhost-{}", std::process::id()));
    // A peer supports few regions of memory: the memory is one file, not one file per page.
    let eal = Eal::builder().memory_mib(64).argument("--single-file-segments").init().unwrap();
    if eal.memory_mode() != MemoryMode::Hugepages {
        eprintln!("skipped: needs hugepages, the only memory that a peer of vhost-user may share");
        return;
    }
    let pool = Mempool::new(
        eal,
        MempoolConfig { mbufs: 2047, data_octets: 2048, cache_mbufs: 32, ..MempoolConfig::default() },
    )
    .unwrap();
    let start = |vdev: &str| {
        eal.add_vdev(vdev).unwrap();
        let config =
            PortConfig { receive_descriptors: 256, transmit_descriptors: 256, ..PortConfig::default() };
        let name = vdev.split(',').next().unwrap();
        Port::open(eal, name).unwrap().start(&config, std::slice::from_ref(&pool)).unwrap()
    };
    let (_far_port, mut far) = start(&format!("net_vhost0,iface={},queues=1", socket.display()));
    let (_near_port, mut near) =
        start(&format!("net_virtio_user0,path={},queues=1,queue_size=256", socket.display()));
    assert!(far[0].receive.interrupt().is_none());
    let queue = &mut near[0].receive;
    let interrupt = queue.interrupt().expect("a receive interrupt");
    assert_eq!(interrupt.trigger, RxTrigger::Edge);
    let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
    epoll::add(&set, interrupt.fd, EventData::new_u64(0), EventFlags::IN | EventFlags::ET).unwrap();
    let begun = Instant::now();
    for round in 0..10 {
        is_raised(&set, 0);
        queue.enable_interrupt().unwrap();
        let mut frames = vec![frame(&pool, &[round; 60])];
        while far[0].transmit.transmit(&mut frames) == 0 {
            assert!(begun.elapsed() < PATIENCE, "its peer does not start");
        }
        assert!(is_raised(&set, 120), "no interrupt");
        queue.disable_interrupt();
        let mut received = Vec::new();
        while received.is_empty() {
            queue.receive(&mut received, 32);
        }
        assert_eq!(received[0].piece(0).unwrap()[0], round);
    }
}
