//! Replays the seeds and regressions of the fuzz target `byte_stream`, and random inputs.

#[path = "../../fuzz/harness/byte_stream/mod.rs"]
mod byte_stream;
#[path = "../../fuzz/harness/inputs.rs"]
mod inputs;

use byte_stream::Outcome;
use inputs::Inputs;

/// Adds a run up.
fn add(sum: &mut Outcome, one: &Outcome) {
    sum.counters.add(&one.counters);
    sum.complete += one.complete;
    sum.saved += one.saved;
    sum.not_expected += one.not_expected;
    sum.message_starts += one.message_starts;
    sum.handed_out += one.handed_out;
}

#[track_caller]
fn reaches_everything(sum: &Outcome, at_least: u64) {
    let counters = &sum.counters;
    for count in [
        counters.segments_placed,
        counters.segments_placed_out_of_order,
        counters.outside_payload,
        counters.unknown_rid,
        counters.out_of_bounds,
        counters.total_changed,
        counters.overlapping,
        counters.over_quota,
        counters.placements_revoked,
        sum.complete,
        sum.saved,
        sum.not_expected,
        sum.message_starts,
        counters.messages_early,
        counters.messages_early_refused,
        sum.handed_out,
    ] {
        assert!(count >= at_least, "{sum:?}");
    }
}

// Requirements: A-25, TRO-3.1.2-01, TRO-3.1.3-01, TRO-3.1.4-01, TRO-6.1-01, TRO-6.1-03
#[test]
fn seeds_and_regressions_run() {
    let Inputs { seeds, regressions } = inputs::inputs("byte_stream");
    let mut sum = Outcome::default();
    for (name, octets) in seeds.into_iter().chain(regressions) {
        println!("{name}");
        add(&mut sum, &byte_stream::run(&octets));
    }
    reaches_everything(&sum, 1);
}

/// Steps that often, but not always, make sense together.
// Requirements: A-25, TRO-3.1.2-01, TRO-3.1.3-01, TRO-3.1.4-01, TRO-6.1-01, TRO-6.1-03
#[test]
fn random_inputs_run() {
    let mut sum = Outcome::default();
    for seed in 0..3000 {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let rng = &mut rng;
        let mut octets: Vec<u8> = (0..3).map(|_| rng.u8(..)).collect();
        for _ in 0..rng.usize(5..120) {
            match rng.u8(..12) {
                0..6 => {
                    // A segment near the first octet that is missing, with an option that often describes a
                    // part of a short transfer.
                    let from = if rng.u8(..4) > 0 { 0 } else { rng.i16(-30..100) };
                    octets.push(0);
                    octets.extend(from.to_be_bytes());
                    if rng.u8(..4) == 0 {
                        octets.push(rng.u8(..));
                        octets.push(rng.u8(..) | 1);
                        octets.extend([rng.u8(..3), rng.u8(..), rng.u8(..20), rng.u8(..100), rng.u8(..)]);
                    } else {
                        // All of 20 octets, with a total or without.
                        let total = rng.u8(..3);
                        octets.extend([19, 0x11 | rng.u8(..2) << 1 | u8::from(total > 0) << 6]);
                        octets.extend([rng.u8(..3), rng.u8(..4) * 20, 0]);
                        if total > 0 {
                            octets.push([40, 40, 60][usize::from(total)]);
                        }
                    }
                }
                6 | 7 => octets.extend([4, rng.u8(..3), rng.u8(..), [39, 59, 60, 200][rng.usize(..4)], 6]),
                8 => octets.extend([8, rng.u8(..), rng.u8(..)]),
                9 => octets.extend([7, 9, rng.u8(..)]),
                10 => octets.extend([5, rng.u8(..3), 6]),
                _ => octets.push(rng.u8(..)),
            }
        }
        add(&mut sum, &byte_stream::run(&octets));
    }
    reaches_everything(&sum, 20);
}
