//! What other cores notice of one that is not polled.
//!
//! The last core of the far device stalls. Each other core of it has a lane from the near core with the same
//! number, whose messages count. Every near core also sends a little to the core that stalls, so that what
//! waits for that core is in the way of all, if it can be.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpline::open::Eal;
use warpline::{Access, DeregisterError, DeviceName, ProtectionDomain};

use super::comparison::Comparison;
use super::course::{Course, Stage, Variant};
use super::joined::Joined;
use super::opening::{Opened, Opening, Route};
use super::session::{self, dealt};
use super::settings::{Extent, Share, Traffic};
use super::worker::{Load, Work};
use crate::endpoint::PATIENCE;
use crate::error::BenchError;

/// The time between two Writes to the core that stalls.
const PACE: Duration = Duration::from_millis(1);
/// How long a core is stalled before memory is deregistered beside it.
const STALLED: Duration = Duration::from_millis(10);
/// How long a deregistration waits for a core that is stalled.
const DEREGISTER_PATIENCE: Duration = Duration::from_millis(200);
/// Bytes of that memory.
const REGION_BYTES: usize = 4096;

/// What other cores notice.
#[derive(Serialize, Debug)]
pub struct StallReport {
    cores: usize,
    /// The core of the far device that was not polled.
    stalled_core: u8,
    mtu: u16,
    #[serde(flatten)]
    traffic: Traffic,
    /// The goodput of the other cores, beside the same while all are polled.
    #[serde(flatten)]
    comparison: Comparison,
    #[serde(flatten)]
    deregistration: Deregistration,
}

/// A deregistration beside a stalled core.
#[derive(Serialize, Clone, Copy, Debug)]
struct Deregistration {
    /// How long it was to wait, and how long it took to fail. It named the core.
    deregister_patience_ms: f64,
    deregister_failed_in_ms: f64,
}

impl StallReport {
    /// Returns the report in words.
    pub fn line(&self) -> String {
        let Self { stalled_core, comparison, deregistration, .. } = self;
        let Deregistration { deregister_patience_ms, deregister_failed_in_ms } = deregistration;
        format!(
            "stall of core {stalled_core}, goodput of the others: {}; a deregistration with a patience of \
             {deregister_patience_ms:.0} ms failed in {deregister_failed_in_ms:.1} ms and named the core",
            comparison.words()
        )
    }
}

/// Measures the ratio to `extent`.
///
/// # Errors
///
/// [`BenchError`]; [`BenchError::Peer`] if a deregistration does not end for want of the core, or names
/// another.
pub fn measure(
    eal: Eal,
    ring: &DeviceName,
    Extent { cores, pairs }: Extent,
    cpus: &[usize],
    traffic: Traffic,
) -> Result<StallReport, BenchError> {
    let stalled_core = (cores - 1) as u8;
    let mut joined = Joined::start(eal, ring, cores)?;
    let loads = loads(&mut joined, cpus.len());
    let open = || {
        let mut routes = Route::straight(cores - 1, traffic);
        let little = Traffic { size: traffic.size.min(64), depth: traffic.depth, qps: 1 };
        routes.extend((0..cores as u8).map(|core| Route {
            cores: [core, stalled_core],
            traffic: little,
            pace: Some(PACE),
        }));
        let opened = Opening::new(&joined).open(&routes, Share::Domain)?;
        let [_, far] = opened.domains.clone();
        Ok((work(opened, cores, cpus.len()), far))
    };
    let measured = session::run(cpus, loads, open, |course, far| {
        if course.run_pairs(pairs)?.is_break() {
            return Ok(None);
        }
        deregister(course, &far, stalled_core).map(Some)
    })?;
    let deregistration = measured.value.ok_or_else(BenchError::interrupted)?;
    let comparison = Comparison::of(&measured.slices, traffic.size)?;
    Ok(StallReport { cores, stalled_core, mtu: ring.mtu(), traffic, comparison, deregistration })
}

/// Returns what each thread polls; one has the core that stalls.
fn loads(joined: &mut Joined, threads: usize) -> Vec<Vec<Load>> {
    let mut stalls = joined.far.cores.pop();
    let last = joined.near.cores.len() - 1;
    let [near, far] = [&mut joined.near, &mut joined.far].map(|end| dealt(end.cores.drain(..), threads));
    let loads = near.into_iter().zip(far).enumerate().map(|(thread, (near, far))| {
        let stalls = if thread == last % threads { stalls.take() } else { None };
        vec![Load { drivers: near.into_iter().chain(far).collect(), stalls, ..Load::default() }]
    });
    loads.collect()
}

/// Returns the work of each thread: the lanes of its near cores.
fn work(opened: Opened, cores: usize, threads: usize) -> Vec<Vec<Work>> {
    let mut lanes = opened.lanes;
    let beside = dealt(lanes.split_off(cores - 1), threads);
    let lanes = dealt(lanes, threads).into_iter().zip(beside);
    lanes.map(|(lanes, beside)| vec![Work { lanes, beside, collector: None }]).collect()
}

/// Deregisters memory of `domain`, which `stalled` has too, while that core is not polled; and again when it
/// is.
fn deregister(course: &Course, domain: &ProtectionDomain, stalled: u8) -> Result<Deregistration, BenchError> {
    let wrong = |what: String| BenchError::Peer(format!("a deregistration beside a stalled core {what}"));
    let region = domain.allocate(REGION_BYTES, Access::REMOTE_WRITE);
    let region = region.map_err(|error| BenchError::Memory(error.to_string()))?;
    course.enter(Stage::Settle(Variant::Measured));
    thread::sleep(STALLED);
    let start = Instant::now();
    let deregistered = region.deregister(DEREGISTER_PATIENCE);
    let time = start.elapsed();
    let region = match deregistered {
        Err(DeregisterError::Unanswered { region, cores }) if cores.iter().eq([stalled]) => region,
        Err(error) => return Err(wrong(format!("failed otherwise: {error}"))),
        Ok(()) => return Err(wrong("did not wait for it".into())),
    };
    if course.drain(Variant::Measured)?.is_continue() {
        let again = region.deregister(PATIENCE);
        again.map_err(|error| wrong(format!("failed when the core was polled again: {error}")))?;
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Deregistration { deregister_patience_ms: ms(DEREGISTER_PATIENCE), deregister_failed_in_ms: ms(time) })
}
