//! Tests of TCP in packet scripts: readable exchanges of segments in virtual time, each naming the section it
//! shows. `tests/scripts/README.md` describes the language; there is one test for each directory.

mod application;
mod expression;
mod flow;
mod frames;
mod matcher;
mod parser;
mod runner;
mod script;
mod segment;
mod setup;
mod tests;
mod values;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use script::{Script, Statement};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// The scripts of one area, by name.
fn scripts_of(area: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(area).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in &paths {
        assert_eq!(
            path.extension().and_then(|extension| extension.to_str()),
            Some("script"),
            "{}",
            path.display()
        );
    }
    paths
}

fn areas() -> Vec<PathBuf> {
    let paths = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_dir()).collect()
}

fn read(path: &Path) -> Result<Script, String> {
    let name = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(path);
    parser::parse(&name.to_string_lossy(), &fs::read_to_string(path).unwrap())
}

/// Plays every script of an area and reports all that fail.
fn play(area: &str) {
    let mut failures = Vec::new();
    for path in scripts_of(&root().join(area)) {
        if let Err(failure) = read(&path).and_then(|script| runner::run(&script).map_err(|f| f.to_string())) {
            failures.push(failure);
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

macro_rules! areas {
    ($($area:ident),* $(,)?) => {
        /// The areas that have a test.
        const AREAS: &[&str] = &[$(stringify!($area)),*];
        $(
            #[test]
            fn $area() {
                play(stringify!($area));
            }
        )*
    };
}

areas! {
    acknowledging,
    attacks,
    closing,
    congestion,
    ecn,
    fragments,
    ipv6,
    keepalive,
    nagle,
    opening,
    path_mtu,
    receiving,
    recovery,
    resets,
    retransmission,
    sack,
    segments,
    time_wait,
    timestamps,
    windows,
}

#[test]
fn every_area_is_played() {
    let mut names: Vec<_> =
        areas().iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    let mut played = AREAS.to_vec();
    played.sort_unstable();
    assert_eq!(names, played);
}

#[test]
fn there_are_many() {
    let scripts: usize = areas().iter().map(|area| scripts_of(area).len()).sum();
    assert!(scripts >= 100, "{scripts} scripts");
}

/// Each script names its section, injects a segment and checks an output.
#[test]
fn every_script_names_its_section_and_judges() {
    for path in areas().iter().flat_map(|area| scripts_of(area)) {
        let script = read(&path).unwrap();
        let (section, what) = script.title.split_once(": ").unwrap_or_default();
        let names_section = ["RFC ", "MPA", "DDP"].iter().any(|prefix| section.starts_with(prefix))
            && section.contains(['§', '.'])
            && !what.is_empty();
        assert!(names_section, "{}: the first line is no \"# RFC n §n: what\"", script.path);
        let has = |wanted: fn(&Statement) -> bool| script.lines.iter().any(|line| wanted(&line.statement));
        assert!(
            has(|statement| matches!(
                statement,
                Statement::Inject(_) | Statement::Icmp(_) | Statement::Establish(_)
            )),
            "{} injects nothing",
            script.path
        );
        assert!(
            has(|statement| matches!(statement, Statement::Expect(_))),
            "{} expects nothing",
            script.path
        );
    }
}
