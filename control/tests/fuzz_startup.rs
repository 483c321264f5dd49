//! Replays the seeds and regressions of the fuzz target `startup`, and random inputs.

#[path = "../../fuzz/harness/inputs.rs"]
mod inputs;
#[path = "../../fuzz/harness/startup/mod.rs"]
mod startup;

use std::collections::BTreeMap;

use inputs::Inputs;
use startup::End;

/// Every possible end of a startup.
const ENDS: [End; 12] = [
    End::Incomplete,
    End::Malformed,
    End::Extra,
    End::Revision,
    End::OurPrivateData,
    End::OurReads,
    End::WeRejected,
    End::Rejected,
    End::Unmet,
    End::Accepted { version: 0, enhanced: false },
    End::Accepted { version: 1, enhanced: false },
    End::Accepted { version: 1, enhanced: true },
];

fn reaches_everything(reached: &BTreeMap<End, usize>, at_least: usize) {
    for end in ENDS {
        assert!(reached.get(&end).is_some_and(|count| *count >= at_least), "{end:?}: {reached:?}");
    }
}

// Requirements: MPA-7.1.1-17, MPA-7.1.2-22, MPA-7.1.2-23, MPAv2-6-05, MPAv2-10-01, MPAv2-12-01
#[test]
fn seeds_and_regressions_run() {
    let Inputs { seeds, regressions } = inputs::inputs("startup");
    let mut reached = BTreeMap::new();
    for (name, octets) in seeds.into_iter().chain(regressions) {
        println!("{name}");
        *reached.entry(startup::run(&octets)).or_default() += 1;
    }
    reaches_everything(&reached, 2);
}

/// A change of the encoding of steps may make the seeds meaningless; random inputs still reach every end.
#[test]
fn random_inputs_run() {
    let mut reached = BTreeMap::new();
    for seed in 0..60_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut octets = vec![0; rng.usize(8..80)];
        rng.fill(&mut octets);
        println!("seed {seed}");
        *reached.entry(startup::run(&octets)).or_default() += 1;
    }
    reaches_everything(&reached, 50);
}
