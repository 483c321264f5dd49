//! Tests of ports with several queues: which drivers spread frames as can be predicted, and that the others
//! get by with one queue. Those of the kernel's interfaces need root.
#![allow(missing_docs)]

mod common;

use std::os::unix::fs::MetadataExt;
use std::{fs, process};

use common::{eal, frame, pool};
use dpdk::{
    Mempool, Mtu, Port, PortConfig, PortError, QueuePair, Rss, RssLayout, RunningPort, UnknownSpread,
};

const KEY: [u8; 40] = [0x3c; 40];

fn config() -> PortConfig {
    PortConfig {
        receive_descriptors: 64,
        transmit_descriptors: 64,
        rss: Rss { key: KEY },
        ..PortConfig::default()
    }
}

fn port(device: &str) -> Port {
    eal().add_vdev(device).unwrap_or_else(|error| panic!("{device}: {error}"));
    Port::open(eal(), device.split(',').next().unwrap()).unwrap()
}

/// Starts `device` with a queue for each of four pools, if it says that it can spread over as many as two,
/// by a table of so many entries; else as `unknown` says.
fn started(
    device: &str,
    table_entries: Option<u16>,
    config: &PortConfig,
    unknown: UnknownSpread,
) -> (RunningPort, Vec<QueuePair>, Vec<Mempool>) {
    let pools: Vec<Mempool> = (0..4).map(|_| pool(511, 2048)).collect();
    let port = port(device);
    assert_eq!(port.spreads(2).unwrap(), table_entries, "{device}");
    let (running, pairs) =
        port.start_spread(config, &pools, unknown).unwrap_or_else(|error| panic!("{error}"));
    (running, pairs, pools)
}

/// The driver says that it spreads, and each queue receives into the pool of its core.
#[test]
fn a_port_whose_hash_is_known_has_a_queue_for_each_pool() {
    let (running, mut pairs, pools) =
        started("net_null5,size=60", Some(128), &config(), UnknownSpread::OneQueue);
    assert_eq!(running.rss(), Some(RssLayout { key: KEY, table_entries: 128 }));
    assert_eq!((pairs.len(), running.capabilities().queues), (4, 4));
    let mut frames = Vec::new();
    for (pair, pool) in pairs.iter_mut().zip(&pools) {
        assert_eq!(pair.receive.receive(&mut frames, 8), 8);
        assert_eq!(pool.capacity() - pool.available(), 8, "frames are of the queue's own pool");
        assert_eq!(pair.transmit.transmit(&mut frames), 8);
        assert_eq!(pool.available(), pool.capacity());
    }
}

/// A port that cannot spread works with one queue, which takes frames of every pool.
#[test]
fn a_port_whose_hash_is_not_known_has_one_queue() {
    let own = process::id();
    let memif = format!("net_memif4,role=server,socket-abstract=yes,socket=warpline-spread-{own}");
    let socket = std::env::temp_dir().join(format!("warpline-spread-{own}.sock"));
    let vhost = format!("net_vhost4,iface={},queues=2", socket.display());
    for device in ["net_ring4", &memif, &vhost] {
        let (running, mut pairs, pools) = started(device, None, &config(), UnknownSpread::OneQueue);
        assert_eq!((running.rss(), pairs.len()), (None, 1), "{device}");
        assert_eq!(running.capabilities().queues, 1);
        let mut sent: Vec<_> = (0..4).map(|n| frame(&pools[usize::from(n)], &[n; 60])).collect();
        if device == "net_ring4" {
            // It loops.
            assert_eq!(pairs[0].transmit.transmit(&mut sent), 4);
            let mut frames = Vec::new();
            assert_eq!(pairs[0].receive.receive(&mut frames, 32), 4);
            assert_eq!(frames[3].first(), [3; 60]);
        }
        drop(sent);
        assert!(pools.iter().all(|pool| pool.available() + 64 >= pool.capacity()), "{device}");
    }
    let _ = fs::remove_file(socket);
}

/// The kernel spreads what such ports receive, by a hash of its own: over all queues that a port has, if that
/// is asked for.
#[test]
fn the_kernels_interfaces_have_the_queues_asked_for() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        eprintln!("not run: it needs root");
        return;
    }
    let own = process::id() % 10_000;
    let tap = |number| format!("net_tap{number},iface=wlsp{own}");
    let packet = |number, pairs| format!("net_af_packet{number},iface=lo,qpairs={pairs}");
    for (device, unknown, queues) in [
        (tap(4), UnknownSpread::OneQueue, 1),
        (tap(5), UnknownSpread::QueueEach, 4),
        (packet(4, 1), UnknownSpread::OneQueue, 1),
        (packet(5, 4), UnknownSpread::QueueEach, 4),
    ] {
        let mtu = if device.contains("packet") { Mtu::Assume(1500) } else { Mtu::Set(1500) };
        let (running, pairs, _) = started(&device, None, &PortConfig { mtu, ..config() }, unknown);
        assert_eq!((running.rss(), pairs.len()), (None, queues), "{device}");
    }
    // What the kernel gives to the sockets of other queues would be lost.
    for (device, has, unknown) in [
        (packet(6, 4), 4, UnknownSpread::OneQueue),
        (packet(7, 3), 3, UnknownSpread::QueueEach),
        (packet(8, 5), 5, UnknownSpread::QueueEach),
    ] {
        let pools: Vec<Mempool> = (0..4).map(|_| pool(511, 2048)).collect();
        let config = PortConfig { mtu: Mtu::Assume(1500), ..config() };
        let refused = port(&device).start_spread(&config, &pools, unknown).err();
        match refused {
            Some(PortError::UnusedQueues { asked, has: offered, .. }) => {
                assert_eq!((asked, offered), (1, has));
            }
            other => panic!("{device}: {other:?}"),
        }
    }
}

#[test]
fn virtual_devices_are_at_no_node_or_at_the_first() {
    let port = port("net_null6");
    assert!(port.node().is_none_or(|node| node == 0), "{:?}", port.node());
}
