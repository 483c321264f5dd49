//! Frames to send of cores without a queue.

use super::frames::{flow, segment};
use super::*;
use crate::device::sim::End;
use crate::limits;

/// Returns the numbers of what the peer has received, each with the core that has sent it.
fn arrived(bench: &mut Bench) -> Vec<(usize, u32)> {
    let mut frames = Vec::new();
    while bench.peer.receive(NOW, &mut frames, 32) > 0 {}
    let read = |octets: Vec<u8>| {
        let number = u32::from_be_bytes(*octets[38..].first_chunk().expect("a segment"));
        (usize::from(octets[29]), number)
    };
    frames.iter().map(|frame| read(octets_of(frame))).collect()
}

/// Sends a numbered frame by a core. Returns true if its device has taken it.
fn send(bench: &mut Bench, core: usize, number: u32) -> bool {
    transmit(&mut bench.cores[core], &segment(&flow(core as u8, 1, false), number))
}

#[test]
fn core_0_sends_for_all() {
    let mut bench = Bench::new(&steering(4, 1), None);
    for number in 0..100 {
        for core in 0..4 {
            assert!(send(&mut bench, core, number));
        }
    }
    assert_eq!(arrived(&mut bench).len(), 100, "those of core 0");
    assert!(bench.cores[0].may_have_frames());
    assert_eq!(bench.cores[0].next_arrival(), Some(Instant::ZERO), "they wait for its poll");
    while bench.cores[0].next_arrival().is_some() {
        assert!(bench.poll(0).is_empty());
    }
    let arrived = arrived(&mut bench);
    for core in 1..4 {
        let numbers = arrived.iter().filter(|(from, _)| *from == core).map(|(_, number)| *number);
        assert_eq!(numbers.collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }
    assert_eq!(arrived.len(), 300);
}

/// Once core 0 has ended the others find no room, and do not wait for any: their frames are dropped and
/// counted.
#[test]
fn nobody_waits_for_a_core_that_has_ended() {
    let mut bench = Bench::new(&steering(3, 1), None);
    let ended = bench.cores.remove(0);
    let mut sent = 0;
    let send = |bench: &mut Bench| transmit(&mut bench.cores[0], &segment(&flow(1, 1, false), 0));
    while sent < limits::FRAMES_BETWEEN_CORES && send(&mut bench) {
        sent += 1;
    }
    assert!(!send(&mut bench), "the ring is full");
    drop(ended);
    assert!(send(&mut bench) && send(&mut bench));
    assert_eq!(bench.cores[0].frames_not_handed_over(), 2);
}

/// With a queue of its own each core sends by it.
#[test]
fn a_core_with_a_queue_sends_by_it() {
    let steering = steering(4, 1);
    let mut bench = Bench::new(&steering, Some(&steering));
    assert!((0..4).all(|core| send(&mut bench, core, 7)));
    assert_eq!(arrived(&mut bench), [(0, 7), (1, 7), (2, 7), (3, 7)]);
}

/// At a full device frames wait in order, the rings fill, and then their cores have to keep them. Nothing is
/// lost.
#[test]
fn a_full_device_loses_nothing() {
    let mut bench = Bench::new(&steering(3, 1), None);
    bench.network.set_transmit_credit(End::A, Some(0));
    let mut sent = 0;
    while send(&mut bench, 1, sent) {
        sent += 1;
    }
    assert_eq!(sent as usize, limits::FRAMES_BETWEEN_CORES);
    for _ in 0..10 {
        assert!(bench.poll(0).is_empty());
        assert_eq!(bench.cores[0].next_arrival(), Some(Instant::ZERO), "the loop goes on");
    }
    // A burst has left the ring, and waits at core 0.
    let mut more = 0;
    while send(&mut bench, 1, sent + more) {
        more += 1;
    }
    assert_eq!(more as usize, limits::RECEIVE_BURST_FRAMES);
    assert!(arrived(&mut bench).is_empty());
    bench.network.set_transmit_credit(End::A, None);
    while bench.cores[0].next_arrival().is_some() {
        let _ = bench.poll(0);
    }
    let numbers: Vec<_> = arrived(&mut bench).into_iter().map(|(_, number)| number).collect();
    assert_eq!(numbers, (0..sent + more).collect::<Vec<_>>());
    assert_eq!(bench.network.held_frames(End::A), 0);
}

/// One call moves a bounded number of frames.
#[test]
fn a_poll_sends_some_bursts_at_most() {
    let mut bench = Bench::new(&steering(8, 1), None);
    for number in 0..100 {
        assert!((1..8).all(|core| send(&mut bench, core, number)));
    }
    let _ = bench.poll(0);
    assert_eq!(arrived(&mut bench).len(), 4 * limits::RECEIVE_BURST_FRAMES);
}

/// A device that is always full: core 0 and three others each have their part of the room.
#[test]
fn cores_have_equal_parts_of_a_slow_device() {
    let mut bench = Bench::new(&steering(4, 1), None);
    let mut next = [0; 4];
    let mut kept = Vec::new();
    for _ in 0..400 {
        bench.network.set_transmit_credit(End::A, Some(8));
        for (core, next) in next.iter_mut().enumerate().skip(1) {
            while send(&mut bench, core, *next) {
                *next += 1;
            }
        }
        let _ = bench.poll(0);
        while kept.len() < 32 {
            let octets = segment(&flow(0, 1, false), next[0]);
            let mut frame = bench.cores[0].allocate().expect("a buffer");
            frame.append(octets.len()).expect("room").copy_from_slice(&octets);
            kept.push(frame);
            next[0] += 1;
        }
        bench.cores[0].transmit(NOW, &mut kept);
    }
    let arrived = arrived(&mut bench);
    assert_eq!(arrived.len(), 3200);
    for core in 0..4 {
        let count = arrived.iter().filter(|(from, _)| *from == core).count();
        assert!((700..=900).contains(&count), "core {core} has sent {count} of 3200");
    }
}
