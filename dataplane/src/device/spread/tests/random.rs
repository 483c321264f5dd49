//! Random bursts: each frame reaches exactly the core that it is for, in the order of its flow, or is
//! counted.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::frames::{echo_request, error_about, flow, fragment, segment};
use super::*;

/// Returns a frame of some kind, numbered.
fn some_frame(rng: &mut fastrand::Rng, number: u32) -> Vec<u8> {
    let v6 = rng.bool();
    let flow = flow(rng.u8(2..10), rng.u16(1..4), v6);
    match rng.u8(0..10) {
        0 => error_about(&flow, number),
        1 => echo_request(&flow, number),
        2 if !v6 => fragment(&flow, number, rng.bool()),
        _ => segment(&flow, number),
    }
}

/// A run with `cores` cores and an adapter with the same key, another one, or one queue; or with queues that
/// are filled in a way that is not known.
fn run(seed: u64, cores: u8, adapter: u8) -> Result<(), TestCaseError> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let ours = steering(cores, seed);
    let theirs = steering(cores, seed ^ 1);
    let mut bench = match adapter {
        0 => Bench::new(&ours, None),
        1 => Bench::new(&ours, Some(&ours)),
        2 => Bench::new(&ours, Some(&theirs)),
        _ => Bench::unsorted(&ours, &theirs),
    };
    let mut sent: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let mut received: Vec<Vec<Vec<u8>>> = vec![Vec::new(); cores.into()];
    let stalled = rng.usize(0..=usize::from(cores));
    for number in 0..rng.u32(1..3000) {
        let octets = some_frame(&mut rng, number);
        bench.inject([&octets]);
        sent.insert(octets, number as usize);
        if rng.u8(0..20) == 0 {
            let core = rng.usize(0..cores.into());
            if core != stalled {
                let frames = bench.poll(core);
                received[core].extend(frames);
            }
        }
    }
    for (frames, more) in received.iter_mut().zip(bench.poll_all()) {
        frames.extend(more);
    }
    let count = received.iter().map(Vec::len).sum::<usize>() as u64;
    let overflows = bench.network.statistics(bench.peer.end()).no_buffer;
    prop_assert_eq!(count + bench.dropped() + overflows, sent.len() as u64, "each is received or counted");
    for (core, frames) in received.iter().enumerate() {
        let mut last = BTreeMap::new();
        for octets in frames {
            prop_assert_eq!(expected_core(&ours, octets), core);
            let number = sent.remove(octets).expect("it was sent, and received once");
            if let Content::Segment(flow) = classify(octets) {
                let before = last.insert(format!("{flow:?}"), number);
                prop_assert!(before.is_none_or(|before| before < number), "in order");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn each_frame_reaches_its_owner(seed in any::<u64>(), cores in 2u8..9, adapter in 0u8..4) {
        run(seed, cores, adapter)?;
    }
}
