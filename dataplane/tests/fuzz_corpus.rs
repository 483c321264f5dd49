//! Replays the corpus of the fuzzed receive path, and as many inputs made up from a seed.

mod fuzz;

use std::path::Path;

#[test]
fn the_corpus_runs() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/receive");
    let mut files: Vec<_> = corpus.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 100, "a corpus of {} files", files.len());
    for file in files {
        println!("{}", file.display());
        fuzz::run(&std::fs::read(&file).unwrap());
    }
}

/// Inputs of chance, so that a change of the steps' encoding does not leave the test without any that matter.
#[test]
fn inputs_of_chance_run() {
    // 6405: a ping longer than the link may carry back.
    for seed in (0..2000).chain([6405]) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut octets = vec![0; rng.usize(16..1500)];
        rng.fill(&mut octets);
        println!("seed {seed}");
        fuzz::run(&octets);
    }
}
