//! Replays the seeds and regressions of the fuzz target `fpdu`, and random inputs.

#[path = "../../fuzz/harness/fpdu/mod.rs"]
mod fpdu;
#[path = "../../fuzz/harness/inputs.rs"]
mod inputs;

use fpdu::Summary;
use inputs::Inputs;

// Requirements: C00-7.1-04, D08-A.3-01, MPA-4.4-16, MPA-8-02, MPA-8-03, MPA-8-09
#[test]
fn seeds_and_regressions_run() {
    let Inputs { seeds, regressions } = inputs::inputs("fpdu");
    assert!(seeds.len() > 50, "{} seeds", seeds.len());
    let mut summaries = Vec::new();
    for (name, octets) in seeds.into_iter().chain(regressions) {
        println!("{name}");
        summaries.push(fpdu::run(&octets));
    }
    reaches_everything(&summaries, 2);
}

/// A change of the encoding of steps may make the seeds meaningless; random inputs still reach every end.
#[test]
fn random_inputs_run() {
    let mut summaries = Vec::new();
    for seed in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut octets = vec![0; rng.usize(16..600)];
        rng.fill(&mut octets);
        if seed % 2 == 0 {
            // Few FPDUs, none of them damaged.
            octets[2] = 3;
            octets.iter_mut().skip(3).take(12).for_each(|octet| *octet &= 0xef);
        }
        println!("seed {seed}");
        summaries.push(fpdu::run(&octets));
    }
    reaches_everything(&summaries, 50);
}

/// Asserts that every mode reached each of its possible ends.
fn reaches_everything(summaries: &[Summary], at_least: usize) {
    for (markers, crc) in [(false, false), (false, true), (true, false), (true, true)] {
        for error in [0, 2, 3] {
            let possible = match error {
                2 => crc,
                3 => markers,
                _ => true,
            };
            let reached = summaries.iter().filter(|summary| {
                summary.markers == markers
                    && summary.crc == crc
                    && summary.error == error
                    && summary.fpdus > 1
            });
            let reached = reached.count();
            assert!(!possible || reached >= at_least, "{markers} {crc} {error}: {reached}");
        }
    }
}
