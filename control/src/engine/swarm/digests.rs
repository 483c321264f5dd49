//! Digests of the first seeds: of every frame that reaches the switch with its time and port, of all that
//! applications have had reported, and of what hosts have counted. What the oracles of a swarm leave open,
//! such as how fast a window grows, when something is sent again or which octets go to their place at once,
//! is held fast by them.
//!
//! They may change only on purpose, as those of the data plane's `wire_digests.txt`: a commit that is meant
//! to change what is sent, when, what applications see, or what is counted, such as polls or segments that
//! arrived as predicted, says so in its body and carries the new file. One that only moves code, or makes a
//! step shorter, leaves the file as it is. A change of what the swarm draws changes all lines.
//!
//! `WARPLINE_DIGESTS=write` rewrites the file; `WARPLINE_SWARM_SHOW` prints the frames of a seed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::digest::Trace;
use super::run::Report;

/// Seeds that have a line.
pub(super) const SEEDS: u64 = 500;

const HEADING: &str = "\
# Seed, frames at the switch, digest of their times, ports and octets, of all that applications have had
# reported, and of counters.
# Written by WARPLINE_DIGESTS=write; digests.rs says when a line may change.
";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine/swarm/digests.txt")
}

/// The lines of the seeds that have run, of those that the file is for.
#[derive(Default)]
pub(super) struct Digests(BTreeMap<u64, String>);

impl Digests {
    /// Records what a seed came to.
    pub(super) fn record(&mut self, seed: u64, report: &Report) {
        let Report { trace: Trace { frames, wire }, reported, counts, .. } = report;
        if seed < SEEDS {
            self.0.insert(seed, format!("{seed} {frames} {wire:016x} {reported:016x} {counts:016x}"));
        }
    }

    /// Asserts that each seed came to what the file says, or writes the file.
    ///
    /// # Panics
    ///
    /// When a line differs, or there is none.
    pub(super) fn expect_as_before(&self) {
        if std::env::var("WARPLINE_DIGESTS").is_ok_and(|value| value == "write") {
            assert_eq!(self.0.len() as u64, SEEDS, "the file is of all seeds below {SEEDS}");
            let lines: Vec<_> = self.0.values().map(String::as_str).collect();
            std::fs::write(file(), format!("{HEADING}{}\n", lines.join("\n"))).expect("the file of digests");
            return;
        }
        let expected = std::fs::read_to_string(file()).expect("the file of digests");
        let expected: Vec<&str> = expected.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(expected.len() as u64, SEEDS, "a line for each seed");
        let mut differences = String::new();
        for (seed, line) in &self.0 {
            let before = expected[*seed as usize];
            if line != before {
                writeln!(differences, "  {line}\n  was  {before}").expect("a string has room");
            }
        }
        assert!(
            differences.is_empty(),
            "the wire has changed, or what applications see, or counters:\n{differences}"
        );
    }
}
