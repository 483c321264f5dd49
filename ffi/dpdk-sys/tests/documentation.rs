//! The bindings that documentation is made with have every function and constant of those that a build
//! generates.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

/// The bindings of this build.
const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// Returns the bindings without the checks of layout: what is only documented has none.
fn without_checks(bindings: &str) -> String {
    let mut kept = Vec::new();
    let mut in_check = false;
    for line in bindings.lines() {
        if line == "const _: () = {" {
            in_check = true;
            // The attribute above it.
            assert!(kept.pop().is_some_and(|attribute: &str| attribute.starts_with("#[allow(")));
        }
        if !in_check {
            kept.push(line);
        }
        in_check &= line != "};";
    }
    kept.join("\n") + "\n"
}

/// Returns the names of functions and constants that build.rs lists. An enumeration, whose constants are in a
/// module and so indented, may have more of them in a later release.
fn names(bindings: &str) -> BTreeSet<&str> {
    bindings
        .lines()
        .filter_map(|line| line.strip_prefix("    pub fn ").or_else(|| line.strip_prefix("pub const ")))
        .filter_map(|rest| rest.split(['(', ':']).next())
        .collect()
}

/// With `WARPLINE_BINDINGS=write` they are made anew.
#[test]
fn the_bindings_of_documentation_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/documentation.rs");
    if env::var_os("WARPLINE_BINDINGS").is_some_and(|wish| wish == "write") {
        fs::write(&path, without_checks(GENERATED)).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    let missing: Vec<_> = names(GENERATED).difference(&names(&kept)).copied().collect();
    let remedy = "WARPLINE_BINDINGS=write cargo test --package warpline-dpdk-sys";
    assert!(missing.is_empty(), "make them anew: {remedy}; missing: {missing:?}");
}
