//! Tests of TCP over bottlenecks of many kinds: throughput, fairness, and progress at all times.
//!
//! `WARPLINE_MATRIX_RUNS` sets the number of runs of the matrix, 500 by default, and `WARPLINE_MATRIX_FIRST`
//! the number of the first: a failed run is repeated by its number.

pub mod bottleneck;
mod runs;
mod sharing;
mod theory;
mod watch;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use warpline_dataplane::tcp::congestion::Algorithm;

use runs::{Cell, Outcome, cell_of, run};

/// Octets of a transfer: enough to leave slow start on every path here.
const OCTETS: usize = 2 << 20;
/// A group of fewer runs has no meaningful mean.
const RUNS_FOR_A_MEAN: usize = 20;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect(name))
}

/// Results of the runs of one algorithm under one probability of loss, relative to theory.
#[derive(Default)]
struct Group {
    ratios: Vec<f64>,
    segments: u64,
    lost_frames: u64,
    retransmitted: u64,
    timeouts: u64,
    longest_wait_ns: u64,
}

impl Group {
    fn add(&mut self, outcome: &Outcome) {
        self.ratios.push(outcome.ratio);
        self.segments += outcome.segments;
        self.lost_frames += outcome.lost_frames;
        self.retransmitted += outcome.retransmitted;
        self.timeouts += outcome.timeouts;
        self.longest_wait_ns = self.longest_wait_ns.max(outcome.longest_wait_ns);
    }

    /// The geometric mean: a run twice as fast and one half as fast make one as fast.
    fn mean(&self) -> f64 {
        (self.ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / self.ratios.len() as f64).exp()
    }

    fn report(&self, name: &str) {
        println!(
            "{name:20} {:5} runs, of theory {:.3} in the mean, {:.3} at least; of {} segments {} were \
            lost, {} sent again; {} timeouts, longest wait {:.3} s",
            self.ratios.len(),
            self.mean(),
            self.ratios.iter().copied().fold(f64::MAX, f64::min),
            self.segments,
            self.lost_frames,
            self.retransmitted,
            self.timeouts,
            self.longest_wait_ns as f64 / 1e9,
        );
    }

    /// Returns a description of the group's fault, if it has one.
    fn fault(&self, floor: f64) -> Option<String> {
        if self.ratios.len() < RUNS_FOR_A_MEAN {
            return None;
        }
        if self.mean() < floor {
            return Some(format!("{:.3} of what theory gives, not {floor}", self.mean()));
        }
        // One in a hundred overtaken for so long that it is taken for lost.
        let needless = self.retransmitted.saturating_sub(self.lost_frames);
        (needless * 100 > self.segments)
            .then(|| format!("{needless} of {} segments sent again for nothing", self.segments))
    }
}

/// Runs `work` on each number on all processors.
pub fn on_all_processors(numbers: core::ops::Range<u64>, work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(numbers.start);
    let take = || {
        let mut numbers =
            core::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|n| *n < numbers.end);
        numbers.by_ref().for_each(&work);
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(take))));
}

/// Among the paths are some with a round trip of 50 ms, which the window must fill.
// Requirements: DDP-A-01
#[test]
fn every_run_of_the_matrix_arrives_in_time() {
    let first = from_environment("WARPLINE_MATRIX_FIRST", 0);
    let end = first + from_environment("WARPLINE_MATRIX_RUNS", 500);
    let groups: Mutex<BTreeMap<String, (Cell, Group)>> = Mutex::default();
    let failures: Mutex<Vec<String>> = Mutex::default();
    on_all_processors(first..end, |number| {
        let cell = cell_of(number);
        match run(cell, number, OCTETS) {
            Ok(outcome) => {
                let name = format!("{} at {} %", cell.algorithm, cell.line.loss * 100.0);
                let mut groups = groups.lock().unwrap();
                groups.entry(name).or_insert_with(|| (cell, Group::default())).1.add(&outcome);
            }
            Err(what) => failures.lock().unwrap().push(format!("run {number}, {cell:?}: {what}")),
        }
    });
    let mut failures = failures.into_inner().unwrap();
    for (name, (cell, group)) in groups.into_inner().unwrap() {
        group.report(&name);
        failures.extend(group.fault(floor(cell)).map(|fault| format!("{name}: {fault}")));
    }
    let again = "have a run again with WARPLINE_MATRIX_FIRST=number WARPLINE_MATRIX_RUNS=1";
    assert!(failures.is_empty(), "{} failures; {again}\n{}", failures.len(), failures.join("\n"));
}

/// The least fraction of the theoretical throughput that runs must reach on average. The theory ignores the
/// losses that end slow start, and that DCTCP's first mark halves the window (RFC 8257 §3.3: alpha begins at
/// 1), which then grows as NewReno's. Where frames are lost, slow start ends later than in theory, so that
/// most runs take less time than predicted.
fn floor(cell: Cell) -> f64 {
    match (cell.algorithm, cell.line.loss > 0.0) {
        (Algorithm::Cubic | Algorithm::NewReno, true) => 1.0,
        (Algorithm::NewReno, false) => 0.9,
        (Algorithm::Cubic, false) | (Algorithm::Dctcp, true) => 0.85,
        (Algorithm::Dctcp, false) => 0.7,
        (other, _) => panic!("there is no theory of {other:?} here"),
    }
}
