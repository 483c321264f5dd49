//! Replays the seeds and regressions of the fuzz target `verbs`, and random inputs.
#![allow(unsafe_code, reason = "it calls functions for C")]
#![allow(missing_docs)]
#![allow(clippy::cast_possible_wrap, reason = "C's numbers have a sign where Rust's have none")]
#![allow(clippy::verbose_bit_mask, reason = "inputs are cut to what fits")]

use std::collections::BTreeSet;

mod calls;
#[path = "../../../fuzz/harness/inputs.rs"]
mod inputs;

use calls::Reached;
use inputs::Inputs;
use warpline_verbs::abi::{IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_SEND};

/// Messages pass, what is posted on a connection that ends is flushed, and calls that make no sense are
/// refused.
fn reaches_everything(reached: &Reached) {
    for operation in [IBV_WC_SEND, IBV_WC_RECV, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ] {
        assert!(reached.operations.contains_key(&operation), "{operation}: {reached:?}");
    }
    let calls = [
        ("rdma_accept", 0),
        ("ibv_post_send", 0),
        ("ibv_post_send", libc::EINVAL),
        ("ibv_post_recv", 0),
        ("ibv_post_recv", libc::EINVAL),
        ("ibv_destroy_cq", libc::EBUSY),
        ("ibv_modify_qp", libc::EOPNOTSUPP),
    ];
    for call in calls {
        assert!(reached.calls.contains_key(&call), "{call:?}: {reached:?}");
    }
}

/// The functions that programs find in the library.
fn exported(code: &str) -> impl Iterator<Item = &str> {
    let mut lines = code.lines().map(str::trim_start);
    std::iter::from_fn(move || {
        lines.find(|line| *line == "#[unsafe(no_mangle)]")?;
        lines.next()?.split_once("fn ")?.1.split('(').next()
    })
}

/// A function that is new in the library is called here, too.
#[test]
fn every_function_of_the_library_is_called() {
    let folder = |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let sources = |name: &str| {
        let files = folder(name).read_dir().expect("a folder");
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect::<String>()
    };
    let library = sources("src/verbs") + &sources("src/cm");
    let functions: BTreeSet<&str> = exported(&library).collect();
    assert!(functions.len() > 100 && functions.contains("ibv_dereg_mr"), "{functions:?}");
    let calls = sources("tests/calls");
    let code = calls.lines().filter(|line| !line.trim_start().starts_with("//"));
    let words: BTreeSet<&str> =
        code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
    // The headers for programs do not declare them.
    let not_called = [
        "ibv_dofork_range",
        "ibv_dontfork_range",
        "ibv_get_sysfs_path",
        "ibv_query_gid_type",
        "ibv_read_ibdev_sysfs_file",
        "ibv_read_sysfs_file",
    ];
    let missing: Vec<_> = functions.difference(&words).filter(|name| !not_called.contains(*name)).collect();
    assert!(missing.is_empty(), "not called: {missing:?}");
}

#[test]
fn inputs_run() {
    let mut reached = Reached::default();
    let Inputs { seeds, regressions } = inputs::inputs("verbs");
    for (name, octets) in seeds.into_iter().chain(regressions) {
        println!("{name}");
        reached.add(calls::run(&octets));
    }
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut octets = vec![0; rng.usize(100..800)];
        rng.fill(&mut octets);
        println!("seed {seed}");
        reached.add(calls::run(&octets));
    }
    reaches_everything(&reached);
}
