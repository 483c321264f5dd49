//! Replays the seeds and regressions of the fuzz target `receive`, and random inputs.

#[path = "../../fuzz/harness/inputs.rs"]
mod inputs;
#[path = "../../fuzz/harness/receive/mod.rs"]
mod receive;

use inputs::Inputs;

#[test]
fn seeds_and_regressions_run() {
    let Inputs { seeds, regressions } = inputs::inputs("receive");
    assert!(seeds.len() > 100, "{} seeds", seeds.len());
    assert!(regressions.len() >= 12, "{} regressions", regressions.len());
    for (name, octets) in seeds.into_iter().chain(regressions) {
        println!("{name}");
        receive::run(&octets);
    }
}

/// A change of the encoding of steps may make the seeds meaningless; random inputs still reach most steps.
#[test]
fn random_inputs_run() {
    // 6405: a ping longer than the link may carry back.
    for seed in (0..2000).chain([6405]) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut octets = vec![0; rng.usize(16..1500)];
        rng.fill(&mut octets);
        println!("seed {seed}");
        receive::run(&octets);
    }
}
