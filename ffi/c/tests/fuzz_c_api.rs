//! Replays the seeds and regressions of the fuzz target `c_api`, and random inputs.
#![allow(unsafe_code, reason = "it calls functions for C")]
#![allow(missing_docs)]
#![allow(clippy::cast_possible_wrap, clippy::verbose_bit_mask, reason = "inputs are cut to what fits")]

use std::collections::BTreeSet;

mod calls;
#[path = "../../../fuzz/harness/inputs.rs"]
mod inputs;

use calls::Reached;
use inputs::Inputs;

/// Connections come about, messages and bytes pass, and calls that make no sense are refused.
fn reaches_everything(reached: &Reached) {
    // Each run begins with these, whatever the input is.
    let families = [
        "accept",
        "byte-stream-create",
        "connect",
        "post-recv",
        "post-send",
        "stream-accept",
        "stream-listen",
        "stream-open",
    ];
    for family in families {
        assert!(reached.successes.contains_key(family), "{family}: {reached:?}");
    }
    for code in [libc::EINVAL, libc::E2BIG] {
        assert!(reached.results.contains_key(&-code), "{code}: {reached:?}");
    }
    assert!(reached.completions.contains_key(&0), "none succeeded: {reached:?}");
}

/// The functions that a C program finds in the header.
fn declared(header: &str) -> BTreeSet<&str> {
    // Comments and macros name functions too, and lines of parameters name none.
    let code = header.lines().filter(|line| !line.starts_with(['#', '/', ' ']));
    code.filter_map(|line| {
        let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
        name.starts_with("warpline_").then_some(name)
    })
    .collect()
}

/// A function that is new in the header is called here, too.
#[test]
fn every_function_of_the_header_is_called() {
    let functions = declared(include_str!("../include/warpline.h"));
    assert!(functions.len() > 100 && functions.contains("warpline_device_inspect"), "{functions:?}");
    let sources = [
        include_str!("calls/program.rs"),
        include_str!("calls/questions.rs"),
        include_str!("calls/world.rs"),
    ];
    let code = sources.iter().flat_map(|source| source.lines());
    let code = code.filter(|line| !line.trim_start().starts_with("//") && !line.starts_with("use "));
    let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let words: BTreeSet<&str> = words.collect();
    let missing: Vec<_> = functions.difference(&words).collect();
    assert!(missing.is_empty(), "not called: {missing:?}");
}

#[test]
fn seeds_and_regressions_run() {
    let Inputs { seeds, regressions } = inputs::inputs("c_api");
    let mut reached = Reached::default();
    for (name, octets) in seeds.into_iter().chain(regressions) {
        println!("{name}");
        reached.add(calls::run(&octets));
    }
    reaches_everything(&reached);
}

#[test]
fn random_inputs_run() {
    let mut reached = Reached::default();
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut octets = vec![0; rng.usize(100..800)];
        rng.fill(&mut octets);
        println!("seed {seed}");
        reached.add(calls::run(&octets));
    }
    reaches_everything(&reached);
}
