//! Replays the corpus of the fuzzed FPDU stream, and as many inputs made up from a seed.

mod fuzz_fpdu;

use std::path::Path;

use fuzz_fpdu::Summary;

// Requirements: C00-7.1-04, D08-A.3-01, MPA-4.4-16, MPA-8-02, MPA-8-03, MPA-8-09
#[test]
fn the_corpus_runs() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/fpdu");
    let mut files: Vec<_> = corpus.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 50, "a corpus of {} files", files.len());
    let mut summaries = Vec::new();
    for file in files {
        println!("{}", file.display());
        summaries.push(fuzz_fpdu::run(&std::fs::read(&file).unwrap()));
    }
    reaches_everything(&summaries, 2);
}

/// Inputs of chance, so that a change of the steps' encoding does not leave the test without any that matter.
#[test]
fn inputs_of_chance_run() {
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
        summaries.push(fuzz_fpdu::run(&octets));
    }
    reaches_everything(&summaries, 50);
}

/// Every mode came to every end it can come to.
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
