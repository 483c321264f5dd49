//! Transfers whose instructions can be counted: `scripts/bench instructions` runs them under callgrind.
//!
//! Two cores at the ends of a wire in memory take turns. Each has a thread, so that each has its own cache of
//! packet buffers, but only one of the threads runs at a time, and each poll happens at a virtual time that
//! advances by the same step. So no poll depends on the speed of the machine, no poll waits for the other
//! end, and the counts of two runs are the same to a fraction of a percent.
//!
//! [`turn::writer_turn`] and [`turn::target_turn`] hold all that is measured, `end_of_phase` marks where
//! callgrind writes its counts out, and `disturb_burst` and `disturb_acknowledgements` are the network's, not
//! an end's: their names are known to `scripts/bench`.

mod baton;
mod bytes;
mod case;
mod counts;
mod lane;
mod network;
mod pings;
mod queue_pairs;
mod setup;
mod turn;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use warpline::open::{self, Eal};
use warpline_tools::output::{OutputFile, say};

use crate::error::BenchError;
use baton::Phase;
use case::{AMONG_IDLE, CASES, Case, SPREAD};
use counts::Counts;

/// `instructions`.
#[derive(Args, Debug, Clone)]
pub struct Instructions {
    /// Arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// The cases to run; without this, those that --list prints.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub cases: Vec<String>,
    /// Print the names of the cases that run without --cases, and end.
    #[arg(long)]
    pub list: bool,
    /// Write the counts of each phase as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// What the two ends did in a phase.
#[derive(Serialize, Debug)]
struct PhaseReport {
    /// The case, or `idle`.
    name: &'static str,
    /// The case that it differs from in one thing.
    resembles: Option<&'static str>,
    /// What the instructions are divided by: `segment`, `message`, `ping` or `poll`.
    unit: &'static str,
    size: u32,
    mtu: u16,
    packing: bool,
    writer: Counts,
    /// `None` if the writer's core is both ends.
    target: Option<Counts>,
}

/// Runs the cases, a phase of callgrind's each, and the polls that find nothing to do.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &Instructions) -> Result<(), BenchError> {
    let known = || CASES.iter().chain([&SPREAD]).chain(&AMONG_IDLE);
    if let Some(name) = args.cases.iter().find(|name| known().all(|case| case.name != **name)) {
        let names: Vec<_> = known().map(|case| case.name).collect();
        return Err(BenchError::Setup(format!("there is no case '{name}', only {}", names.join(", "))));
    }
    if args.list {
        for case in &CASES {
            say!("{}", case.name);
        }
        return Ok(());
    }
    let json = OutputFile::open_some(args.json.as_deref())?;
    let eal = open::eal(&[], &args.eal)?;
    let mut reports = Vec::new();
    let is_asked_for = |case: &&Case| match args.cases.as_slice() {
        [] => CASES.iter().any(|usual| usual.name == case.name),
        names => names.iter().any(|name| name == case.name),
    };
    for case in known().filter(is_asked_for) {
        reports.extend(transfer(eal, case)?);
    }
    Ok(json.map_or(Ok(()), |file| file.write_json(&reports, true))?)
}

/// Runs a case, and then as many idle polls at either end.
fn transfer(eal: Eal, case: &'static Case) -> Result<[PhaseReport; 2], BenchError> {
    let (writer, target) = setup::connect(eal, case)?;
    let report = |name, resembles, unit, (writer, target)| PhaseReport {
        name,
        resembles,
        unit,
        size: case.size,
        mtu: case.mtu,
        packing: case.packing,
        writer,
        target,
    };
    baton::pass(eal, writer, target, |baton| {
        baton.warm_up(case.warm_up_messages)?;
        let busy = baton.count(Phase::Measured, case.turns)?;
        baton.drain()?;
        let idle = baton.count(Phase::Idle, case.turns)?;
        Ok([report(case.name, case.resembles, case.unit, busy), report("idle", None, "poll", idle)])
    })
}
