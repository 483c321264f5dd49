//! Tests of random streams over a random path: segments that overlap, overtake, repeat, are damaged in a way
//! that only the CRC detects, or repeat received octets with other contents. A failed run reports its seed.

use fastrand::Rng;

use super::receiver::{BUFFER_OCTETS, BUFFERS, Receiver, Run, Ulpdu};
use super::{Arrived, take_deliveries};

const SEEDS: u64 = 400;
const STREAMS_PER_SEED: usize = 8;
const SEGMENT_OCTETS_MAX: usize = 1460;

/// Writes that do not overlap, and Sends in several segments.
fn ulpdus(rng: &mut Rng) -> Vec<Ulpdu> {
    let (mut to, mut message) = (rng.usize(..100), 0);
    let mut ulpdus = Vec::new();
    for _ in 0..rng.usize(2..9) {
        let octets = if rng.bool() { rng.usize(..120) } else { rng.usize(..1500) };
        if rng.bool() {
            ulpdus.push(Ulpdu::Write { to, octets });
            to += octets;
        } else if message < BUFFERS {
            let parts = rng.usize(1..4);
            let octets = octets.min(BUFFER_OCTETS / parts);
            ulpdus.extend((0..parts).map(|n| Ulpdu::Send {
                message,
                mo: n * octets,
                octets,
                last: n + 1 == parts,
            }));
            message += 1;
        }
    }
    if ulpdus.is_empty() {
        ulpdus.push(Ulpdu::Write { to, octets: 5 });
    }
    ulpdus
}

/// A segment somewhere around octets that are missing.
fn segment(rng: &mut Rng, arrived: &Arrived, run: &Run) -> (usize, usize) {
    let near = arrived.in_order();
    let from =
        if rng.u32(..3) == 0 { near } else { (near + rng.usize(..3000)).saturating_sub(rng.usize(..300)) };
    let from = from.min(run.octets.len() - 1);
    let aligned = run.fpdus.iter().map(|fpdu| fpdu.end).find(|end| *end > from).unwrap_or(from + 1);
    let to = if rng.bool() { aligned } else { from + 1 + rng.usize(..SEGMENT_OCTETS_MAX) };
    (from, to.min(from + SEGMENT_OCTETS_MAX).min(run.octets.len()))
}

/// Octets that have arrived, in whole FPDUs or in parts, may arrive again with arbitrary contents.
fn altered(rng: &mut Rng, arrived: &Arrived, run: &Run, (from, to): (usize, usize)) -> Vec<u8> {
    let mut octets = run.octets[from..to].to_vec();
    if rng.u32(..4) == 0 {
        for (octet, arrived) in octets.iter_mut().zip(&arrived.0[from..to]) {
            if *arrived {
                *octet = rng.u8(..);
            }
        }
    }
    octets
}

/// One stream: under any behaviour of the path, all of it arrives once, in order, intact, and nothing else is
/// written.
fn stream(rng: &mut Rng, receiver: &mut Receiver) {
    let run = receiver.begin(&ulpdus(rng));
    let before = receiver.statistics();
    let mut arrived = Arrived::nothing_of(&run);
    let mut delivered = 0;
    while arrived.in_order() < run.octets.len() {
        let (from, to) = segment(rng, &arrived, &run);
        let octets = altered(rng, &arrived, &run, (from, to));
        receiver.arrive_as(from, &octets);
        note(&mut arrived, receiver, from, to);
        delivered = take_deliveries(receiver, &run, delivered);
        for fpdu in run.fpdus.iter().filter(|fpdu| fpdu.ulpdu.payload_octets() > 0) {
            let in_order = fpdu.end <= arrived.in_order();
            let holds = receiver.holds(&run, fpdu);
            assert!(holds || !in_order, "{fpdu:?}");
            assert!(!holds || in_order || receiver.stream.markers, "A-21: {fpdu:?}");
        }
    }
    receiver.expect_memory(&run, |_| true);
    let payload: usize = run.fpdus.iter().map(|fpdu| fpdu.ulpdu.payload_octets()).sum();
    let after = receiver.statistics();
    assert_eq!(after.bytes_copied_rx - before.bytes_copied_rx, payload as u64, "each octet is copied once");
    let usage = receiver.usage();
    assert_eq!((usage.held_frames, usage.placed_runs, usage.placed_sends), (0, 0, 0));
    assert_eq!(receiver.error(), None);
    receiver.finish(&run);
}

/// Records the octets of `from..to`, all of which the core has now, whatever of them has arrived before.
fn note(arrived: &mut Arrived, receiver: &Receiver, from: usize, to: usize) {
    arrived.add(from, to);
    let next = (receiver.next_expected() - receiver.seq) as usize;
    assert_eq!(arrived.in_order(), next, "the judge and TCP agree on what has come");
}

// Requirements: MPA-A.3-02, MPA-A.4-01, MPA-6-01, DDP-5.3-06, DDP-5.3-07, DDP-3-05
#[test]
fn random_streams_arrive_once_and_intact() {
    let (mut placed, mut held) = (0, 0);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let mut receiver = Receiver::new(seed % 4 != 0);
        for _ in 0..STREAMS_PER_SEED {
            stream(&mut rng, &mut receiver);
        }
        placed += receiver.statistics().fpdus_placed_out_of_order;
        held += receiver.statistics().held_frames_peak;
    }
    assert!(placed > 1000 && held > SEEDS, "{placed} FPDUs placed beyond gaps, {held} frames held");
}

/// Octets damaged beyond TCP's checksum: as long as TCP has not acknowledged them, the stream recovers
/// (MPA-8-08); otherwise it fails with the documented error. Placed octets always equal the sent ones.
#[test]
fn damage_is_never_placed() {
    let (mut recovered, mut failed) = (0, 0);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let mut receiver = Receiver::new(seed % 4 != 0);
        let run = receiver.begin(&ulpdus(&mut rng));
        let arrived = Arrived::nothing_of(&run);
        for _ in 0..40 {
            let (from, to) = segment(&mut rng, &arrived, &run);
            let mut octets = run.octets[from..to].to_vec();
            if rng.u32(..3) == 0 {
                let at = rng.usize(..octets.len());
                octets[at] ^= 1 << rng.u32(..8);
            }
            receiver.arrive_as(from, &octets);
        }
        for fpdu in &run.fpdus {
            for (from, to) in [(fpdu.start, fpdu.end), (0, fpdu.end.min(SEGMENT_OCTETS_MAX))] {
                for from in (from..to).step_by(SEGMENT_OCTETS_MAX) {
                    receiver.arrive(&run, from, to.min(from + SEGMENT_OCTETS_MAX));
                }
            }
        }
        let all_came = receiver.next_expected() == receiver.seq + run.octets.len() as u32;
        // A damaged length that was acknowledged may wait for octets that the stream does not have yet.
        if all_came && receiver.error().is_none() && receiver.usage().held_frames == 0 {
            receiver.expect_memory(&run, |_| true);
            recovered += 1;
        } else {
            // Each FPDU is in place as it was sent, or not at all.
            receiver.expect_memory(&run, |fpdu| receiver.holds(&run, fpdu));
            failed += 1;
        }
    }
    assert!(recovered > 50 && failed > 50, "{recovered} recovered, {failed} failed");
}
