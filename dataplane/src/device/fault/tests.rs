//! Tests of the fault-injecting device.

use super::super::path::sample::{self, Sample};
use super::super::sim::{self, End, EndConfig, Network, SimDevice, SimFrame};
use super::*;

/// A path without delay that applies only the configured impairments.
fn at_once() -> Impairments {
    Impairments { delay_min_ns: 0, delay_max_ns: 0, ..Impairments::default() }
}

/// A fault-injecting device on a perfect link, and the device at the link's other end.
fn rig(seed: u64, inbound: Impairments, outbound: Impairments) -> (Fault<SimDevice>, SimDevice, Network) {
    let (inner, peer) = sim::link(
        1,
        EndConfig { outbound: at_once(), transmit_checksums: true, ..EndConfig::a() },
        EndConfig { outbound: at_once(), ..EndConfig::b() },
    );
    let network = peer.network();
    (Fault::new(inner, seed, inbound, outbound), peer, network)
}

fn send(device: &mut impl Device<Frame = SimFrame>, now: Instant, octets: &[u8]) {
    let mut frame = device.allocate().expect("a free buffer");
    frame.append(octets.len()).expect("room for the frame").copy_from_slice(octets);
    assert_eq!(device.transmit(now, &mut vec![frame]), 1);
}

fn send_numbered(device: &mut impl Device<Frame = SimFrame>, frames: u32, gap_ns: u64) {
    for number in 0..frames {
        let mut octets = [0x5a; 100];
        octets[..4].copy_from_slice(&number.to_be_bytes());
        send(device, Instant::from_nanos(u64::from(number) * gap_ns), &octets);
    }
}

/// Returns the frames that arrive at `left` and `right` until none is in flight: for each end, arrival times
/// and numbers.
fn drain(left: &mut Fault<SimDevice>, right: &mut SimDevice) -> [Vec<(u64, u32)>; 2] {
    let mut arrived = [Vec::new(), Vec::new()];
    while let Some(now) = left.next_arrival().into_iter().chain(right.next_arrival()).min() {
        let mut frames = [Vec::new(), Vec::new()];
        left.receive(now, &mut frames[0], 8);
        right.receive(now, &mut frames[1], 8);
        for (arrived, frames) in arrived.iter_mut().zip(&frames) {
            let numbers = frames.iter().map(|frame| frame.piece(0).unwrap()[..4].try_into().unwrap());
            arrived.extend(numbers.map(|number| (now.as_nanos(), u32::from_be_bytes(number))));
        }
    }
    arrived
}

fn numbers(arrived: &[(u64, u32)]) -> Vec<u32> {
    arrived.iter().map(|(_, number)| *number).collect()
}

fn assert_conserved(statistics: Statistics) {
    let Statistics { sent, duplicated, delivered, lost, queue_full, corrupted_lost, .. } = statistics;
    assert_eq!(sent + duplicated, delivered + lost + queue_full + corrupted_lost, "{statistics:?}");
}

#[test]
fn without_faults_everything_passes_at_once() {
    let (mut left, mut right, network) = rig(1, at_once(), at_once());
    send_numbered(&mut left, 40, 0);
    send_numbered(&mut right, 40, 0);
    let [inward, outward] = drain(&mut left, &mut right);
    assert_eq!(inward, (0..40).map(|number| (0, number)).collect::<Vec<_>>());
    assert_eq!(outward, inward);
    assert_eq!((left.inbound().delivered, left.outbound().delivered, left.in_flight()), (40, 40, 0));
    assert_eq!((network.held_frames(End::A), network.held_frames(End::B)), (0, 0), "every buffer is back");
}

#[test]
fn octets_pass_unchanged_and_nothing_is_offered_that_copies_cannot_keep() {
    let (mut left, mut right, _) = rig(2, at_once(), at_once());
    let offered = left.capabilities();
    assert!(left.inner().capabilities().transmit_checksums && !offered.transmit_checksums);
    assert_eq!((offered.gather, offered.mtu_bytes, left.mac()), (false, 1500, EndConfig::a().mac));
    let octets: Vec<u8> = (0..1514u32).map(|at| (at * 7) as u8).collect();
    send(&mut right, Instant::ZERO, &octets);
    send(&mut left, Instant::ZERO, &octets);
    let mut frames = Vec::new();
    assert_eq!(left.receive(Instant::ZERO, &mut frames, 9) + right.receive(Instant::ZERO, &mut frames, 9), 2);
    assert!(frames.iter().all(|frame| frame.piece(0).unwrap() == octets));
    assert_eq!(frames[0].checksums(), super::super::ReceivedChecksums::default());
}

/// A device without wire: what it transmits is what it receives, uncut.
struct Mirror {
    frames: SimDevice,
    waiting: Vec<SimFrame>,
}

impl Device for Mirror {
    type Frame = SimFrame;

    fn capabilities(&self) -> Capabilities {
        self.frames.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.frames.mac()
    }

    fn receive(&mut self, _: Instant, frames: &mut Vec<SimFrame>, limit: usize) -> usize {
        let taken = self.waiting.len().min(limit);
        frames.extend(self.waiting.drain(..taken));
        taken
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        self.frames.allocate()
    }

    fn transmit(&mut self, _: Instant, frames: &mut Vec<SimFrame>) -> usize {
        let taken = frames.len();
        self.waiting.append(frames);
        taken
    }
}

/// A peer on the same wire without a NIC may send super-frames, although this device offers none.
#[test]
fn super_frames_of_the_peer_pass() {
    const SUPER_FRAME_BYTES: usize = 65_024;
    let (frames, _) = sim::link(
        1,
        EndConfig { transmit_checksums: true, super_frame_bytes: SUPER_FRAME_BYTES, ..EndConfig::a() },
        EndConfig::b(),
    );
    let mut device = Fault::new(Mirror { frames, waiting: Vec::new() }, 1, at_once(), at_once());
    let offered = device.capabilities();
    assert_eq!(offered.super_frame_bytes, offered.mtu_bytes);
    let octets: Vec<u8> = (0..14 + SUPER_FRAME_BYTES).map(|at| (at * 7) as u8).collect();
    let mut frame = device.allocate().unwrap();
    frame.append(octets.len()).unwrap().copy_from_slice(&octets);
    device.inner.waiting.push(frame);
    let mut frames = Vec::new();
    assert_eq!(device.receive(Instant::ZERO, &mut frames, 8), 1);
    assert!(frames[0].piece(0).unwrap() == octets);
    assert_eq!((device.inbound().delivered, device.inbound().oversize), (1, 0));
}

#[test]
fn each_direction_has_its_own_faults() {
    let lossy = Impairments { loss: 0.05, ..at_once() };
    let doubling = Impairments { duplicate: 0.1, ..at_once() };
    let (mut left, mut right, _) = rig(3, lossy, doubling);
    send_numbered(&mut right, 10_000, 10);
    let [inward, _] = drain(&mut left, &mut right);
    send_numbered(&mut left, 10_000, 10);
    let [_, outward] = drain(&mut left, &mut right);
    let (inbound, outbound) = (left.inbound(), left.outbound());
    assert!((400..600).contains(&inbound.lost) && inbound.duplicated == 0, "{inbound:?}");
    assert!((850..1150).contains(&outbound.duplicated) && outbound.lost == 0, "{outbound:?}");
    assert_eq!(
        (inward.len() as u64, outward.len() as u64),
        (10_000 - inbound.lost, 10_000 + outbound.duplicated)
    );
    assert_conserved(inbound);
    assert_conserved(outbound);
}

#[test]
fn delay_holds_frames_in_both_directions_for_as_long_as_told() {
    let near = Impairments { delay_min_ns: 5_000, delay_max_ns: 5_000, ..Impairments::default() };
    let far = Impairments { delay_min_ns: 70_000, delay_max_ns: 70_000, ..Impairments::default() };
    let (mut left, mut right, network) = rig(4, near, far);
    send(&mut left, Instant::ZERO, &[0; 60]);
    assert_eq!(network.held_frames(End::A), 0, "a frame on its way takes no buffer");
    assert_eq!(left.next_arrival(), Some(Instant::from_nanos(70_000)));
    // Its own frames are received when it is polled, and on their way from then on.
    send(&mut right, Instant::from_nanos(10), &[0; 60]);
    assert_eq!(left.receive(Instant::from_nanos(20), &mut Vec::new(), 8), 0);
    assert_eq!((left.next_arrival(), left.in_flight()), (Some(Instant::from_nanos(5_020)), 2));
    assert_eq!(left.receive(Instant::from_nanos(5_019), &mut Vec::new(), 8), 0);
    assert_eq!(left.receive(Instant::from_nanos(5_020), &mut Vec::new(), 8), 1);
    assert_eq!(right.next_arrival(), None);
    left.receive(Instant::from_nanos(70_000), &mut Vec::new(), 8);
    assert_eq!(right.next_arrival(), Some(Instant::from_nanos(70_000)));
}

#[test]
fn reordered_frames_are_overtaken() {
    let reordering = Impairments { reorder: 0.1, ..at_once() };
    let (mut left, mut right, _) = rig(5, reordering, at_once());
    for number in 0..1000u32 {
        let now = Instant::from_nanos(u64::from(number) * 1000);
        send(&mut right, now, &number.to_be_bytes().repeat(15));
        left.take_in(now);
    }
    let mut arrived = numbers(&drain(&mut left, &mut right)[0]);
    let overtaken = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(overtaken > 50, "{overtaken} of {:?}", left.inbound());
    arrived.sort_unstable();
    assert_eq!(arrived, (0..1000).collect::<Vec<_>>());
}

#[test]
fn corruption_is_seen_by_the_checksums() {
    let corrupting = Impairments { corrupt_bits: 1.0, ..at_once() };
    let (mut left, mut right, _) = rig(6, at_once(), corrupting);
    let segment = Sample { payload: &[0x42; 300], ..Sample::default() }.frame();
    send(&mut left, Instant::ZERO, &segment);
    let mut frames = Vec::new();
    assert_eq!(right.receive(Instant::ZERO, &mut frames, 8), 1);
    assert!(sample::read(&segment).is_some() && sample::read(frames[0].piece(0).unwrap()).is_none());
    assert_eq!(left.outbound().corrupted_bits, 1);
}

#[test]
fn the_seed_decides_which_frames_are_hit() {
    let hostile = Impairments { loss: 0.2, duplicate: 0.2, reorder: 0.2, ..Impairments::default() };
    let run = |seed| {
        let (mut left, mut right, _) = rig(seed, hostile, hostile);
        send_numbered(&mut left, 200, 100);
        send_numbered(&mut right, 200, 100);
        drain(&mut left, &mut right)
    };
    let [inward, outward] = run(7);
    assert_eq!([inward.clone(), outward.clone()], run(7));
    assert_ne!(inward, run(8)[0]);
    assert_ne!(numbers(&inward), numbers(&outward), "the directions are hit independently");
}

#[test]
fn what_the_device_has_no_room_for_waits_and_is_not_lost() {
    let (mut left, mut right, network) = rig(9, at_once(), at_once());
    network.set_transmit_credit(End::A, Some(10));
    send_numbered(&mut left, 100, 0);
    assert_eq!((network.in_flight(End::A), left.in_flight()), (10, 90));
    assert!(network.held_frames(End::A) <= RECEIVE_BURST_FRAMES, "what waits holds few buffers");
    network.set_transmit_credit(End::A, None);
    left.receive(Instant::ZERO, &mut Vec::new(), 8);
    assert_eq!(numbers(&drain(&mut left, &mut right)[1]), (0..100).collect::<Vec<_>>());

    // No buffer to deliver to: the application holds all there are.
    send_numbered(&mut right, 20, 0);
    left.take_in(Instant::ZERO);
    network.set_frame_limit(End::A, 4);
    let mut held = Vec::new();
    assert_eq!(left.receive(Instant::ZERO, &mut held, 32), 4);
    assert_eq!(left.receive(Instant::ZERO, &mut held, 32), 0);
    held.clear();
    assert_eq!(left.receive(Instant::ZERO, &mut held, 32), 4);
    network.set_frame_limit(End::A, 100);
    assert_eq!(left.receive(Instant::ZERO, &mut held, 32), 12);
    assert_conserved(left.inbound());
    assert_conserved(left.outbound());
}

#[test]
fn frames_on_their_way_are_bounded() {
    let narrow = Impairments { in_flight_frames: 4, ..Impairments::default() };
    let (mut left, mut right, _) = rig(10, at_once(), narrow);
    send_numbered(&mut left, 9, 0);
    assert_eq!((left.in_flight(), left.outbound().queue_full), (4, 5));
    assert_eq!(numbers(&drain(&mut left, &mut right)[1]), [0, 1, 2, 3]);
}

#[test]
fn a_caller_that_takes_little_is_not_flooded() {
    let (mut left, mut right, network) = rig(11, at_once(), at_once());
    send_numbered(&mut right, 2000, 0);
    let mut frames = Vec::new();
    for _ in 0..10 {
        assert_eq!(left.receive(Instant::ZERO, &mut frames, 32), 32);
    }
    assert!(left.in_flight() < RECEIVE_BURSTS * RECEIVE_BURST_FRAMES, "{}", left.in_flight());
    assert_eq!(network.in_flight(End::B) + left.in_flight() + frames.len(), 2000, "the rest waits outside");
}
