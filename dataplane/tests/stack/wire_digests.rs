//! Digests of every frame that both ends of a fixed set of seeded simulations send: a change of structure
//! must not change the wire.
//!
//! `wire_digests.txt` holds one line per simulation. A digest covers, for each frame in the order of sending,
//! the end that sends it, the virtual time and the octets. The digests are the same in every build profile
//! and in every run.
//!
//! They may change only on purpose: when a commit is meant to change what is sent or when it is sent. Such a
//! commit says in its body what changes on the wire and why, and carries the new file. A commit that only
//! moves or renames code must leave the file as it is. A simulation that is new or changed in this test also
//! changes its line.
//!
//! - `WARPLINE_DIGESTS=write` rewrites the file.
//! - `WARPLINE_FRAMES=DIR` writes the frames of each simulation to `DIR/NAME.txt`, one line per frame, so
//!   that `diff` shows the first frame in which two revisions differ.

mod capture;
mod connections;
mod frames_by_hand;
mod work;

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use capture::Capture;
use warpline_dataplane::testing::ColdBranches;

/// A simulation, by its name in the file.
struct Case {
    name: String,
    run: Box<dyn Fn(&Capture) + Sync>,
}

impl Case {
    fn new(name: impl Into<String>, run: impl Fn(&Capture) + Sync + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stack/wire_digests.txt")
}

const HEADING: &str = "\
# Simulation, frames sent by both ends, octets in them, SHA-256 of ends, times and octets.
# Written by WARPLINE_DIGESTS=write; wire_digests.rs says when a line may change.
";

/// Replaces the digest of a simulation that panicked.
const PANICKED: &str = "panicked";

/// Runs every simulation and returns its line of the file, in the order of `cases`.
fn lines_of(cases: &[Case]) -> Vec<String> {
    let lines = Mutex::new(vec![String::new(); cases.len()]);
    crate::matrix::on_all_processors(0..cases.len() as u64, |index| {
        let case = &cases[index as usize];
        let capture = Capture::new(&case.name);
        let panicked = catch_unwind(AssertUnwindSafe(|| (case.run)(&capture))).is_err();
        let outcome = if panicked { PANICKED.to_owned() } else { capture.finish() };
        lines.lock().unwrap()[index as usize] = format!("{} {outcome}", case.name);
    });
    lines.into_inner().unwrap()
}

fn cases() -> Vec<Case> {
    let mut cases = connections::cases();
    cases.extend(frames_by_hand::cases());
    cases
}

/// The cases, with every step in its cold branch.
fn by_cold_branches(cases: Vec<Case>) -> Vec<Case> {
    let cold = |case: Case| {
        Case::new(case.name, move |capture| {
            let _cold = ColdBranches::begin();
            (case.run)(capture);
        })
    };
    cases.into_iter().map(cold).collect()
}

/// What a step does in its cold branch is answered as what it does in its first: the frames are the same.
#[test]
fn cold_branches_send_the_same_frames() {
    let lines = lines_of(&by_cold_branches(cases()));
    let expected = std::fs::read_to_string(file()).unwrap();
    for line in &lines {
        assert!(expected.lines().any(|other| other == line), "cold branches, other frames: {line}");
    }
}

/// Whatever FPDUs a stream has, wherever Markers fall into them, and whatever the path damages or cuts: both
/// branches of each step send the same frames and count the same.
#[test]
fn random_streams_are_received_alike_either_way() {
    let seeds = std::env::var("WARPLINE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let short = lines_of(&connections::cases_of_chance(seeds));
    let cold = lines_of(&by_cold_branches(connections::cases_of_chance(seeds)));
    assert!(!short.iter().any(|line| line.ends_with(PANICKED)), "{short:#?}");
    for (short, cold) in short.iter().zip(&cold) {
        assert_eq!(short, cold);
    }
}

#[test]
fn every_frame_is_as_it_was() {
    let cases = cases();
    let lines = lines_of(&cases);
    assert!(!lines.iter().any(|line| line.ends_with(PANICKED)), "{lines:#?}");
    if std::env::var("WARPLINE_DIGESTS").is_ok_and(|value| value == "write") {
        std::fs::write(file(), format!("{HEADING}{}\n", lines.join("\n"))).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(file()).unwrap();
    let expected: Vec<&str> = expected.lines().filter(|line| !line.starts_with('#')).collect();
    let mut differences = String::new();
    for (line, case) in lines.iter().zip(&cases) {
        let name = format!("{} ", case.name);
        match expected.iter().find(|other| other.starts_with(&name)) {
            Some(same) if same == line => {}
            Some(other) => writeln!(differences, "  {line}\n  was  {other}").unwrap(),
            None => writeln!(differences, "  {line}\n  is not in the file").unwrap(),
        }
    }
    assert!(
        differences.is_empty(),
        "the wire has changed; WARPLINE_FRAMES=DIR writes the frames\n{differences}"
    );
    assert_eq!(expected.len(), lines.len(), "a line of the file belongs to no simulation");
}
