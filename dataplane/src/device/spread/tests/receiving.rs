//! Frames from a queue to their owners.

use std::collections::BTreeMap;

use super::super::BURSTS;
use super::frames::{self, flow, number_of, segment};
use super::*;
use crate::device::Capabilities;
use crate::limits;
use crate::wire::ethernet::{EtherType, MacAddress};
use crate::wire::flow::Flow;

/// Returns `count` flows over both families.
fn flows(count: u8) -> Vec<Flow> {
    (0..count).map(|host| flow(host + 2, 1000 + u16::from(host), host % 3 == 0)).collect()
}

/// Returns frames of all flows in turn, numbered.
fn numbered(flows: &[Flow], each: u32) -> Vec<Vec<u8>> {
    (0..each).flat_map(|number| flows.iter().map(move |flow| segment(flow, number))).collect()
}

/// Checks that each core has received all segments of the flows that it owns, in order, and no others.
fn check(steering: &Steering, flows: &[Flow], each: u32, received: &[Vec<Vec<u8>>]) {
    let mut next = BTreeMap::new();
    for (core, frames) in received.iter().enumerate() {
        for octets in frames {
            let Content::Segment(flow) = classify(octets) else { panic!("a segment") };
            assert_eq!(usize::from(steering.owner(&flow)), core);
            let next = next.entry((flow.source(), flow.source_port())).or_insert(0);
            assert_eq!(number_of(octets, &flow), *next, "in order");
            *next += 1;
        }
    }
    assert_eq!(next.len(), flows.len());
    assert!(next.values().all(|count| *count == each), "{next:?}");
}

#[test]
fn one_queue_brings_each_segment_to_its_owner() {
    let steering = steering(8, 1);
    let mut bench = Bench::new(&steering, None);
    let flows = flows(40);
    bench.inject(&numbered(&flows, 30));
    let received = bench.poll_all();
    check(&steering, &flows, 30, &received);
    assert_eq!(bench.dropped(), 0);
    assert!(received.iter().all(|frames| !frames.is_empty()), "all cores have flows");
}

#[test]
fn an_adapter_that_spreads_by_the_same_table_is_believed() {
    let steering = steering(4, 1);
    let mut bench = Bench::new(&steering, Some(&steering));
    let flows = flows(40);
    bench.inject(&numbered(&flows, 30));
    let received = bench.poll_all();
    check(&steering, &flows, 30, &received);
    assert!(!bench.cores[0].adapter_differs());
    for core in &bench.cores {
        let Way::Queue(sorter) = &core.way else { panic!("it has a queue") };
        assert!(!sorter.is_sorting(), "{} segments are enough", limits::FRAMES_COMPARED_WITH_ADAPTER);
    }
}

#[test]
fn an_adapter_that_spreads_otherwise_is_corrected() {
    let (ours, adapters) = (steering(4, 1), steering(4, 2));
    let mut bench = Bench::new(&ours, Some(&adapters));
    let watch = bench.cores[3].watch().expect("it has a queue");
    assert!(!watch.adapter_differs());
    let flows = flows(40);
    bench.inject(&numbered(&flows, 30));
    let received = bench.poll_all();
    check(&ours, &flows, 30, &received);
    assert!(bench.cores.iter().all(Device::adapter_differs) && watch.adapter_differs());
}

/// Queues that are filled in a way that is not known are sorted from the first frame on, and no difference is
/// reported: nothing else was expected of them.
#[test]
fn queues_of_an_unknown_hash_are_sorted() {
    let (ours, adapters) = (steering(4, 1), steering(4, 2));
    for adapter in [&adapters, &ours] {
        let mut bench = Bench::unsorted(&ours, adapter);
        let flows = flows(40);
        bench.inject(&numbered(&flows, 30));
        let received = bench.poll_all();
        check(&ours, &flows, 30, &received);
        assert_eq!(bench.dropped(), 0);
        for core in &bench.cores {
            let Way::Queue(sorter) = &core.way else { panic!("it has a queue") };
            assert!(sorter.is_sorting() && !core.adapter_differs());
        }
    }
}

/// Options of IPv4, behind which an adapter may not find the ports, show no difference. Their segments are
/// sorted as long as there is nothing to compare.
#[test]
fn a_stranger_cannot_show_a_difference() {
    let (ours, adapters) = (steering(4, 1), steering(4, 2));
    let mut bench = Bench::new(&ours, Some(&adapters));
    let flows: Vec<_> = (2..80).map(|host| flow(host, 1000, false)).collect();
    let packets = flows.iter().map(|flow| frames::segment_packet(flow, 1, 2));
    let odd: Vec<_> = packets.map(|packet| frames::frame(None, EtherType::IPV4, &packet)).collect();
    bench.inject(&odd);
    let received = bench.poll_all();
    for (flow, octets) in flows.iter().zip(&odd) {
        assert!(received[usize::from(ours.owner(flow))].contains(octets));
    }
    assert!(!bench.cores[0].adapter_differs());
    bench.inject(&numbered(&flows, 1));
    let _ = bench.poll_all();
    assert!(bench.cores[0].adapter_differs());
}

/// Nor do frames whose IP header does not fit a segment: an adapter that verifies it finds no ports. They
/// come to the host core, which drops them.
#[test]
fn a_malformed_frame_shows_no_difference() {
    let (ours, adapters) = (steering(4, 1), steering(4, 2));
    let mut bench = Bench::new(&ours, Some(&adapters));
    let changed = |flow: &Flow, at: usize, octet: u8| {
        let mut packet = frames::segment_packet(flow, 1, 0);
        packet[at] = octet;
        frames::frame(None, frames::ethertype_of(flow.source()), &packet)
    };
    let malformed: Vec<_> = (2..80)
        .flat_map(|host| {
            let (v4, v6) = (flow(host, 1000, false), flow(host, 1000, true));
            [
                ("version 4 under IPv6's EtherType", changed(&v6, 0, 0x45)),
                ("IPv6, length too short for the ports", changed(&v6, 5, 3)),
                ("IPv4, length too short for the ports", changed(&v4, 3, 23)),
                ("IPv4, length too short for the header", changed(&v4, 3, 39)),
            ]
        })
        .collect();
    bench.inject(malformed.iter().map(|(_, octets)| octets));
    let received = bench.poll_all();
    for (what, octets) in &malformed {
        assert!(received[0].contains(octets), "{what}");
    }
    assert!(!bench.cores[0].adapter_differs());
    // Nor does one that a replica hands over to the owner of what looks like its flow.
    let at_1 = (2..80).map(|host| flow(host, 1000, true)).find(|flow| ours.owner(flow) == 1).expect("one");
    let octets = changed(&at_1, 0, 0x45);
    let mut frame = bench.cores[2].allocate().expect("a buffer");
    frame.append(octets.len()).expect("room").copy_from_slice(&octets);
    assert!(bench.cores[2].hand_over(1, frame).is_ok());
    assert!(!bench.cores[0].adapter_differs());
}

/// The first segments are of one flow, which is in its place by chance. A replica that has got a segment of
/// another core's, and hands it over, turns the sorting on.
#[test]
fn a_difference_that_shows_late_is_found() {
    let (ours, adapters) = (steering(4, 1), steering(4, 2));
    let all: Vec<_> = (0..200).map(|host| flow(host, 1000, false)).collect();
    let find = |is_wanted: &dyn Fn(u8, u8) -> bool| {
        *all.iter().find(|flow| is_wanted(ours.owner(flow), adapters.owner(flow))).expect("there is one")
    };
    let in_place = find(&|owner, queue| owner == 2 && queue == 2);
    let elsewhere = find(&|owner, queue| owner == 1 && queue == 2);
    let mut bench = Bench::new(&ours, Some(&adapters));
    bench.inject(&numbered(&[in_place], 100));
    assert_eq!(bench.poll_all()[2].len(), 100);
    bench.inject(&numbered(&[elsewhere], 1));
    let mut misplaced = Vec::new();
    assert_eq!(bench.cores[2].receive(NOW, &mut misplaced, 32), 1);
    assert!(!bench.cores[2].adapter_differs());
    assert!(bench.cores[2].hand_over(1, misplaced.remove(0)).is_ok());
    assert!(bench.cores[0].adapter_differs());
    bench.inject(&numbered(&[elsewhere], 5));
    assert_eq!(bench.poll_all()[1].len(), 6);
}

/// What the host core has reassembled looks like a segment that the adapter could have spread.
#[test]
fn the_host_core_may_hand_segments_over() {
    let steering = steering(4, 1);
    let mut bench = Bench::new(&steering, Some(&steering));
    let flow = flows(40).into_iter().find(|flow| steering.owner(flow) == 3).expect("there is one");
    let octets = segment(&flow, 1);
    let mut frame = bench.cores[0].allocate().expect("a buffer");
    frame.append(octets.len()).expect("room").copy_from_slice(&octets);
    assert!(bench.cores[0].hand_over(3, frame).is_ok());
    assert!(bench.cores[3].may_have_frames());
    assert_eq!(bench.poll(3), [octets]);
    assert!(!bench.cores[0].adapter_differs());
    // Nobody takes a frame to itself, or to a core that does not exist.
    for core in [0, 4] {
        let frame = bench.cores[0].allocate().expect("a buffer");
        assert!(bench.cores[0].hand_over(core, frame).is_err());
    }
}

/// A port that is restricted to a core is unknown to the adapter, and no difference.
#[test]
fn restricted_ports_are_sorted_whatever_the_adapter_does() {
    let steering = steering(4, 1);
    let mut bench = Bench::new(&steering, Some(&steering));
    let flows = flows(40);
    bench.inject(&numbered(&flows, 30));
    let _ = bench.poll_all();
    steering.restrict(7471, Some(3));
    bench.inject(&numbered(&flows, 10));
    check(&steering, &flows, 10, &bench.poll_all());
    assert!(!bench.cores[0].adapter_differs());
}

#[test]
fn what_is_of_no_flow_comes_to_the_host_core() {
    let steering = steering(4, 1);
    for adapter in [None, Some(&steering)] {
        let mut bench = Bench::new(&steering, adapter);
        let flows = flows(40);
        // Beyond the comparison, too.
        bench.inject(&numbered(&flows, 20));
        let _ = bench.poll_all();
        let others: Vec<_> = (flows.iter().zip(0..))
            .map(|(flow, number)| match number % 2 {
                1 if flow.source().is_ipv4() => frames::fragment(flow, number, number % 4 == 1),
                _ => frames::echo_request(flow, number),
            })
            .collect();
        bench.inject(&others);
        let mut received = bench.poll_all();
        received[0].sort_unstable();
        let mut expected = others;
        expected.sort_unstable();
        assert_eq!(received[0], expected);
        assert!(received[1..].iter().all(Vec::is_empty));
        // An error goes where the segments of its flow go.
        let errors: Vec<_> = flows.iter().map(|flow| frames::error_about(flow, 5)).collect();
        bench.inject(&errors);
        let received = bench.poll_all();
        for (flow, error) in flows.iter().zip(&errors) {
            assert!(received[usize::from(steering.owner(flow))].contains(error));
        }
        assert_eq!(received.iter().map(Vec::len).sum::<usize>(), errors.len());
    }
}

/// A core that does not poll loses frames, each of which is counted; the others lose none.
#[test]
fn a_full_ring_drops_and_counts() {
    let steering = steering(4, 1);
    let mut bench = Bench::new(&steering, None);
    let flows = flows(40);
    let owned = |core: u8| flows.iter().filter(|flow| steering.owner(flow) == core).count();
    let each = 200;
    let mut received = [0; 4];
    for frames in numbered(&flows, each).chunks(32) {
        bench.inject(frames);
        for core in [0, 1, 2] {
            received[core] += bench.poll(core).len();
        }
    }
    for core in 0..3 {
        assert_eq!(received[usize::from(core)], owned(core) * each as usize, "core {core}");
    }
    let sent = owned(3) * each as usize;
    assert!(sent > limits::FRAMES_BETWEEN_CORES);
    let late: usize = std::iter::from_fn(|| Some(bench.poll(3).len()).filter(|count| *count > 0)).sum();
    assert_eq!(late, limits::FRAMES_BETWEEN_CORES);
    assert_eq!(bench.cores[0].frames_not_handed_over(), (sent - late) as u64);
    assert_eq!(bench.network.held_frames(crate::device::sim::End::A), 0, "no buffer is lost");
}

/// A call that has taken full bursts of other cores' frames only returns none. The device below is not one in
/// virtual time: it does not say when the next frame comes. What is left in the queue is asked for at once.
#[test]
fn frames_left_in_the_queue_are_polled_for() {
    let steering = steering(2, 1);
    let outbound = Impairments { delay_min_ns: 0, delay_max_ns: 0, ..Impairments::default() };
    let (end, mut peer) =
        link(1, EndConfig { outbound, ..EndConfig::a() }, EndConfig { outbound, ..EndConfig::b() });
    let devices = end.sharing(2).into_iter().map(Untimed).collect();
    let mut cores = spread(devices, Queues::One, &steering);
    let flow = flows(40).into_iter().find(|flow| steering.owner(flow) == 1).expect("there is one");
    let sent = BURSTS * limits::RECEIVE_BURST_FRAMES + 1;
    for number in 0..sent {
        assert!(transmit(&mut peer, &segment(&flow, number as u32)));
    }
    assert_eq!(cores[0].next_arrival(), None);
    let mut receive = |core: usize| {
        let mut frames = Vec::new();
        cores[core].receive(NOW, &mut frames, limits::RECEIVE_BURST_FRAMES);
        (frames.len(), cores[core].next_arrival())
    };
    assert_eq!(receive(0), (0, Some(Instant::ZERO)), "one is left");
    assert_eq!(receive(0), (0, None));
    let received: usize = (0..=BURSTS).map(|_| receive(1).0).sum();
    assert_eq!(received, sent);
}

/// A device that does not know when frames arrive, as adapters do not.
struct Untimed(SimDevice);

impl Device for Untimed {
    type Frame = SimFrame;

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.0.mac()
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<SimFrame>, limit: usize) -> usize {
        self.0.receive(now, frames, limit)
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        self.0.allocate()
    }

    fn transmit(&mut self, now: Instant, frames: &mut Vec<SimFrame>) -> usize {
        self.0.transmit(now, frames)
    }
}

/// Of the frames that each of four cores may keep, a ring to it takes a quarter, but a burst if that is no
/// more than half of them.
#[test]
fn rings_leave_frames_to_the_device() {
    let steering = steering(4, 1);
    let flow = flows(40).into_iter().find(|flow| steering.owner(flow) == 3).expect("there is one");
    for (frames, in_ring) in [(20, 10), (64, 32), (80, 32), (200, 50)] {
        let mut bench = Bench::with_frames(&steering, None, 4 * frames);
        bench.inject(&numbered(&[flow], 80));
        for _ in 0..3 {
            assert!(bench.poll(0).is_empty());
        }
        assert_eq!(bench.network.held_frames(crate::device::sim::End::A), in_ring, "of {frames}");
        assert_eq!(bench.dropped(), 80 - in_ring as u64, "of {frames}");
    }
}

/// Of an adapter with several queues all rings to the other cores are filled from a core's own pool.
#[test]
fn the_rings_of_a_pool_have_a_burst_each() {
    let steering = steering(4, 1);
    let (end, _) = link(1, EndConfig { frame_limit: 4 * 300, ..EndConfig::a() }, EndConfig::b());
    let devices = end.queues(&steering);
    assert_eq!(devices[0].capabilities().frames, 300);
    assert_eq!(super::super::ring_frames(&devices[0], Queues::PerCore, 4), 32);
    assert_eq!(super::super::ring_frames(&devices[0], Queues::PerCore, 8), 18, "half of them in eight");
    assert_eq!(super::super::ring_frames(&devices[0], Queues::One, 4), 75);
}

/// Three sources that always have frames have an equal part of a core's bursts.
#[test]
fn no_source_starves_another() {
    let (ours, adapters) = (steering(4, 1), steering(4, 2));
    let mut bench = Bench::new(&ours, Some(&adapters));
    let all: Vec<_> = (0..200).map(|host| flow(host, 1000, false)).collect();
    let by_queue = |queue: u8| {
        *all.iter().find(|flow| ours.owner(flow) == 1 && adapters.owner(flow) == queue).expect("one")
    };
    let sources = [1, 2, 3].map(by_queue);
    bench.inject(&numbered(&sources, 300));
    for _ in 0..20 {
        // The others hand over what they have.
        let _ = (bench.poll(2), bench.poll(3));
    }
    let mut received = [0; 3];
    for _ in 0..6 {
        for octets in bench.poll(1) {
            received[sources.iter().position(|flow| octets[29] == flow_octet(flow)).expect("one of them")] +=
                1;
        }
    }
    assert_eq!(received, [64; 3]);
}

/// Returns the last octet of a flow's IPv4 source, which a frame without a tag has at 29.
fn flow_octet(flow: &Flow) -> u8 {
    let std::net::IpAddr::V4(address) = flow.source() else { panic!("IPv4") };
    address.octets()[3]
}

use super::super::Way;
