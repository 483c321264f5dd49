//! `cores`: what the cores of one device cost each other.
//!
//! Both ends are in this process, devices of several cores on wires in memory. Threads poll a core of each
//! end, or several, and post RDMA Writes on the queue pairs between them. What is compared is measured in
//! slices of 50 ms, one and the other in turn: results are ratios, with their spread.

mod comparison;
mod course;
mod deregister;
mod hand_over;
mod joined;
mod lane;
mod opening;
mod scale;
mod session;
mod settings;
mod stall;
mod worker;

use serde::Serialize;
use warpline::DeviceName;
use warpline::open::{self, Eal};
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, say};

use crate::error::BenchError;
use crate::placement::{for_cores, keep_off, least_idle_percent, ranges};
use deregister::DeregisterReport;
use hand_over::HandOverReport;
use scale::ScaleReport;
pub use settings::CoresCommand;
use settings::{Extent, Measurement};
use stall::StallReport;

/// All results.
#[derive(Serialize, Debug)]
struct Report {
    test: &'static str,
    /// The CPUs whose threads poll.
    cpus: Vec<usize>,
    /// Idle time of the least idle of them before the run, in percent.
    idle_percent: Option<f64>,
    scale: Vec<ScaleReport>,
    deregister: Option<DeregisterReport>,
    stall: Option<StallReport>,
    /// Takes two CPUs.
    hand_over: Option<HandOverReport>,
}

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &CoresCommand) -> Result<(), BenchError> {
    args.check()?;
    let json = OutputFile::open_some(args.json.as_deref())?;
    let ring: DeviceName = "ring".parse()?;
    let ring = ring.with_option("mtu", args.mtu)?;
    let cpus = for_cores(&args.cpus, args.cores_at_most())?;
    let eal = open::eal(&[], &args.eal)?;
    let idle_percent = least_idle_percent(&cpus);
    let idle = idle_percent.map_or_else(|| "unknown".into(), |percent| format!("{percent:.0} %"));
    say!("polling: CPU {}, idle before: {idle}", ranges(&cpus));
    keep_off(&cpus);
    let mut report = Report {
        test: "cores",
        cpus,
        idle_percent,
        scale: Vec::new(),
        deregister: None,
        stall: None,
        hand_over: None,
    };
    for measurement in &args.only {
        match measure(eal, &ring, args, *measurement, &mut report) {
            // What was measured before counts.
            Err(_) if interrupt::is_requested() && !report.is_empty() => break,
            measured => measured?,
        }
    }
    Ok(json.map_or(Ok(()), |file| file.write_json(&[report], false))?)
}

/// Measures one thing, and adds it to `report`.
fn measure(
    eal: Eal,
    ring: &DeviceName,
    args: &CoresCommand,
    measurement: Measurement,
    report: &mut Report,
) -> Result<(), BenchError> {
    let extent = Extent { cores: args.cores_for(measurement), pairs: args.pairs() };
    // No thread is without a core.
    let cpus = &report.cpus[..report.cpus.len().min(extent.cores)];
    match measurement {
        Measurement::Scale => {
            for &share in &args.share {
                let scale = scale::measure(eal, ring, extent, cpus, args.traffic, share)?;
                say!("{}", scale.line());
                report.scale.push(scale);
            }
        }
        Measurement::Deregister => {
            let deregister = deregister::measure(eal, ring, extent, cpus)?;
            say!("{}", deregister.line());
            report.deregister = Some(deregister);
        }
        Measurement::Stall => {
            let stall = stall::measure(eal, ring, extent, cpus, args.traffic)?;
            say!("{}", stall.line());
            report.stall = Some(stall);
        }
        Measurement::HandOver => match *cpus {
            [near, far] => {
                let hand_over = hand_over::measure(eal, extent.pairs, [near, far])?;
                say!("{}", hand_over.line());
                report.hand_over = Some(hand_over);
            }
            _ => say!("hand-over: not measured, which takes two CPUs"),
        },
    }
    Ok(())
}

impl Report {
    const fn is_empty(&self) -> bool {
        self.scale.is_empty() && self.deregister.is_none() && self.stall.is_none() && self.hand_over.is_none()
    }
}
