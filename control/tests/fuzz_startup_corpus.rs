//! Replays the corpus of fuzzed MPA startup, and as many inputs made up from a seed.

mod fuzz_startup;

use std::collections::BTreeMap;
use std::path::Path;

use fuzz_startup::End;

/// Every end that startup can come to.
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
fn the_corpus_runs() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataplane/tests/corpus/startup");
    let mut files: Vec<_> = corpus.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut reached = BTreeMap::new();
    for file in files {
        println!("{}", file.display());
        *reached.entry(fuzz_startup::run(&std::fs::read(&file).unwrap())).or_default() += 1;
    }
    reaches_everything(&reached, 2);
}

/// Inputs of chance, so that a change of the steps' encoding does not leave the test without any that matter.
#[test]
fn inputs_of_chance_run() {
    let mut reached = BTreeMap::new();
    for seed in 0..60_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut octets = vec![0; rng.usize(8..80)];
        rng.fill(&mut octets);
        println!("seed {seed}");
        *reached.entry(fuzz_startup::run(&octets)).or_default() += 1;
    }
    reaches_everything(&reached, 50);
}
