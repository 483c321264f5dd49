//! Tests of wires in memory between ends with several cores: each frame comes to the core that owns its flow.
#![cfg(feature = "dpdk")]
#![allow(missing_docs)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dpdk::{Eal, Mbuf, Mempool, MempoolConfig, WireConfig};
use warpline_dataplane::device::Device;
use warpline_dataplane::device::dpdk::{DpdkDevice, core_wires};
use warpline_dataplane::limits::CORE_STALL_NS;
use warpline_dataplane::notify::Notify;
use warpline_dataplane::steering::Steering;
use warpline_dataplane::steering::classify::flow_of_frame;
use warpline_dataplane::time::Instant;
use warpline_dataplane::waker::Waker;

const POOL_MBUFS: u32 = 511;

fn eal() -> Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    *EAL.get_or_init(|| Eal::builder().memory_mib(64).init().unwrap())
}

/// Two ends, each with its cores.
struct Ends {
    devices: [Vec<DpdkDevice>; 2],
    steering: [Arc<Steering>; 2],
    pools: [Vec<Mempool>; 2],
}

impl Ends {
    fn new(cores: [u8; 2], frames: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(u64::from(cores[0]) << 8 | u64::from(cores[1]));
        let steering = cores.map(|cores| Arc::new(Steering::new(cores, 128, |key| rng.fill(key))));
        let config = MempoolConfig { mbufs: POOL_MBUFS, cache_mbufs: 0, ..MempoolConfig::default() };
        let pool = || Mempool::new(eal(), config).unwrap();
        let pools = cores.map(|cores| (0..cores).map(|_| pool()).collect::<Vec<_>>());
        let config = WireConfig { frames, ..WireConfig::default() };
        let [near, far] = &pools;
        let devices = core_wires(eal(), &config, [near, far], [&steering[0], &steering[1]]).unwrap();
        Self { devices, steering, pools }
    }

    /// Returns all that arrives at a core.
    fn received(&mut self, end: usize, core: usize) -> Vec<Mbuf> {
        let mut frames = Vec::new();
        while self.devices[end][core].receive(Instant::ZERO, &mut frames, 32) > 0 {}
        frames
    }

    /// Returns a frame in a buffer of a core.
    fn frame(&self, end: usize, core: usize, octets: &[u8]) -> Mbuf {
        let mut frame = self.pools[end][core].allocate().unwrap();
        frame.append(octets.len()).unwrap().copy_from_slice(octets);
        frame
    }

    /// Returns a segment of a flow that a core of an end owns; `number` is in its payload.
    fn segment_for(&self, end: usize, core: u8, number: u8) -> Vec<u8> {
        let segments = (1024..=u16::MAX).map(|port| segment(port, number));
        let mut segments = segments.filter(|octets| self.steering[end].owner_of_frame(octets) == Some(core));
        segments.next().expect("every core owns some flow")
    }
}

/// An Ethernet frame with a TCP segment from `port`, and `number` as its last octet.
fn segment(port: u16, number: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
    frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
    frame[23] = 6;
    frame[26..34].copy_from_slice(&[198, 18, 0, 2, 198, 18, 0, 1]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..38].copy_from_slice(&7471_u16.to_be_bytes());
    frame[59] = number;
    frame
}

/// An Ethernet frame with an ARP packet.
fn arp() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    frame
}

/// From every core of one end to every core of the other, in both directions: each frame comes to its owner,
/// those without a flow to core 0, and the frames of a flow in their order.
#[test]
fn each_frame_comes_to_the_core_that_owns_its_flow() {
    for cores in [[2, 2], [1, 2], [2, 1], [3, 5]] {
        let mut ends = Ends::new(cores, 256);
        for (from, to) in [(0, 1), (1, 0)] {
            for sender in 0..usize::from(cores[from]) {
                let mut sent = vec![ends.frame(from, sender, &arp())];
                for number in 0..3 {
                    sent.extend((0..40).map(|port| ends.frame(from, sender, &segment(1024 + port, number))));
                }
                // A core has no room for all of them at once.
                let (mut arrived, mut total) = (vec![Vec::new(); 40], 0);
                while !sent.is_empty() {
                    assert!(ends.devices[from][sender].transmit(Instant::ZERO, &mut sent) > 0);
                    for core in 0..usize::from(cores[to]) {
                        for frame in ends.received(to, core) {
                            total += 1;
                            let owner = ends.steering[to].owner_of_frame(frame.first()).unwrap_or(0);
                            assert_eq!(usize::from(owner), core, "{cores:?}");
                            if let Some(flow) = flow_of_frame(frame.first()) {
                                arrived[usize::from(flow.source_port()) - 1024].push(frame.first()[59]);
                            }
                        }
                    }
                }
                assert_eq!(total, 121);
                assert!(arrived.iter().all(|numbers| *numbers == [0, 1, 2]), "{cores:?}: {arrived:?}");
            }
        }
        for pool in ends.pools.iter().flatten() {
            assert_eq!(pool.available(), pool.capacity());
        }
    }
}

/// One core at both ends: a single wire as long as configured, on which a frame of any kind keeps its place.
#[test]
fn single_cores_have_one_wire() {
    let mut ends = Ends::new([1, 1], 8);
    let capabilities = ends.devices[0][0].capabilities();
    assert_eq!(capabilities.frames, POOL_MBUFS as usize, "no other core shares the buffers");
    let mut sent: Vec<Mbuf> = (0..12).map(|n| ends.frame(0, 0, &[n; 60])).collect();
    assert_eq!(ends.devices[0][0].transmit(Instant::ZERO, &mut sent), 8);
    let late = Instant::from_nanos(10 * CORE_STALL_NS);
    assert_eq!(ends.devices[0][0].transmit(late, &mut sent), 0, "nothing is dropped");
    let received = ends.received(1, 0);
    assert!(received.iter().zip(0..8).all(|(frame, n)| frame.first() == [n; 60]) && received.len() == 8);
    assert_eq!(ends.devices[0][0].stalled_frames(), 0);
}

/// The cores of an end share the buffers of each core that sends to them.
#[test]
fn each_core_may_keep_its_part_of_a_senders_buffers() {
    let ends = Ends::new([1, 4], 256);
    let frames = |end: usize, core: usize| ends.devices[end][core].capabilities().frames;
    assert_eq!(frames(0, 0), POOL_MBUFS as usize);
    assert!((0..4).all(|core| frames(1, core) == POOL_MBUFS as usize / 4));
}

/// A core that takes nothing holds up others for a while only. Then its frames are dropped, until it goes on.
#[test]
fn frames_for_a_core_that_has_stalled_are_dropped() {
    let mut ends = Ends::new([1, 2], 64);
    let [other, stalled] = [0, 1].map(|core| ends.segment_for(1, core, 1));
    let burst = |ends: &Ends, octets: &[u8], count| -> Vec<Mbuf> {
        (0..count).map(|_| ends.frame(0, 0, octets)).collect()
    };
    let at = |nanos| Instant::from_nanos(1 + nanos);
    let mut sent = burst(&ends, &stalled, 40);
    sent.extend(burst(&ends, &other, 2));
    // 64 frames in two equal parts: 8 have no room, and those after them wait.
    assert_eq!(ends.devices[0][0].transmit(at(0), &mut sent), 32);
    assert_eq!(ends.devices[0][0].transmit(at(CORE_STALL_NS - 1), &mut sent), 0);
    assert_eq!(ends.received(1, 0).len(), 0);
    assert_eq!(ends.devices[0][0].transmit(at(CORE_STALL_NS), &mut sent), 10);
    assert_eq!((ends.devices[0][0].stalled_frames(), ends.received(1, 0).len()), (8, 2));
    // It is given no more time by what follows.
    let mut sent = burst(&ends, &stalled, 3);
    assert_eq!(ends.devices[0][0].transmit(at(2 + CORE_STALL_NS), &mut sent), 3);
    assert_eq!(ends.devices[0][0].stalled_frames(), 11);
    // It goes on, and has all the time again.
    assert_eq!(ends.received(1, 1).len(), 32);
    let mut sent = burst(&ends, &stalled, 33);
    assert_eq!(ends.devices[0][0].transmit(at(3 + CORE_STALL_NS), &mut sent), 32);
    assert_eq!(ends.devices[0][0].transmit(at(4 + CORE_STALL_NS), &mut sent), 0);
    assert_eq!((ends.devices[0][0].stalled_frames(), ends.received(1, 1).len()), (11, 32));
}

/// A receiver takes the wires in turn: a sender with many frames does not keep out another.
#[test]
fn no_sender_keeps_out_another() {
    let mut ends = Ends::new([2, 2], 256);
    let octets = ends.segment_for(1, 0, 1);
    for (sender, count) in [(0, 100), (1, 4)] {
        let mut sent: Vec<Mbuf> = (0..count).map(|_| ends.frame(0, sender, &octets)).collect();
        assert_eq!(ends.devices[0][sender].transmit(Instant::ZERO, &mut sent), count);
    }
    let mut frames = Vec::new();
    assert_eq!(ends.devices[1][0].receive(Instant::ZERO, &mut frames, 32), 32);
    assert_eq!(ends.pools[0][1].capacity() - ends.pools[0][1].available(), 4);
    assert_eq!(ends.devices[1][0].receive(Instant::ZERO, &mut frames, 32), 32);
    drop(frames);
    assert_eq!(ends.pools[0][1].available(), ends.pools[0][1].capacity(), "both bursts have had the second");
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Notify for Count {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Frames wake the core that they are for, and no other.
#[test]
fn frames_wake_their_core() {
    let mut ends = Ends::new([2, 2], 256);
    let counts = [0, 1].map(|_| Arc::new(Count::default()));
    let wakers = [0, 1].map(|core: usize| Arc::new(Waker::new(counts[core].clone())));
    for (device, waker) in ends.devices[1].iter_mut().zip(&wakers) {
        assert!(!device.may_have_frames() && device.wake_on_arrival(waker));
        waker.arm();
    }
    let octets = ends.segment_for(1, 1, 1);
    let mut sent = vec![ends.frame(0, 0, &octets)];
    assert_eq!(ends.devices[0][0].transmit(Instant::ZERO, &mut sent), 1);
    assert_eq!(counts.each_ref().map(|count| count.0.load(Ordering::SeqCst)), [0, 1]);
    assert_eq!(ends.devices[1].iter().map(Device::may_have_frames).collect::<Vec<_>>(), [false, true]);
}
