//! How long memory that several idle cores have takes to register and to deregister; and whether all of them
//! have it in between, and none afterwards.

use std::thread;
use std::time::Instant;

use serde::Serialize;
use warpline::open::Eal;
use warpline::{Access, DeviceName, ProtectionDomain};
use warpline_tools::interrupt;

use super::course::{Stage, Variant};
use super::joined::Joined;
use super::lane::Lane;
use super::opening::{Opening, Route};
use super::session::{self, dealt};
use super::settings::{Extent, Share, Traffic};
use super::worker::{Load, Work};
use crate::endpoint::{NAP, PATIENCE};
use crate::error::BenchError;
use crate::registrations::{RegistrationTimes, Registrations};

/// Registrations for each pair of slices that a ratio has.
const REGISTRATIONS: u32 = 50;
/// Bytes that are written to each core.
const CHECKED_BYTES: u32 = 64;

/// The times.
#[derive(Serialize, Debug)]
pub struct DeregisterReport {
    /// Cores that have the memory, and threads that poll them.
    cores: usize,
    threads: usize,
    #[serde(flatten)]
    registrations: RegistrationTimes,
    /// Cores that took a peer's Write to a region while it was registered, and refused the next.
    cores_checked: usize,
}

impl DeregisterReport {
    /// Returns the report in words.
    pub fn line(&self) -> String {
        let Self { cores, threads, registrations, .. } = self;
        format!("deregister, {cores} idle cores on {threads} threads: {}", registrations.words())
    }
}

/// Measures as often as there are [`REGISTRATIONS`] for each pair of slices that `extent` has.
///
/// # Errors
///
/// [`BenchError`]; [`BenchError::Peer`] if a core lacks memory that is registered, or has some that is not.
pub fn measure(
    eal: Eal,
    ring: &DeviceName,
    Extent { cores, pairs }: Extent,
    cpus: &[usize],
) -> Result<DeregisterReport, BenchError> {
    let mut joined = Joined::start(eal, ring, cores)?;
    let ends = dealt(joined.near.cores.drain(..).zip(joined.far.cores.drain(..)), cpus.len());
    let loads = ends.into_iter().map(|ends| {
        let drivers = ends.into_iter().flat_map(|(near, far)| [near, far]).collect();
        vec![Load { drivers, ..Load::default() }]
    });
    let open = || {
        // Nobody polls for completions: their queue holds all.
        let traffic = Traffic { size: CHECKED_BYTES, depth: 2, qps: 1 };
        let opened = Opening::new(&joined).open(&Route::straight(cores, traffic), Share::Domain)?;
        // The cores are idle: the calling thread writes to each once.
        Ok((cpus.iter().map(|_| vec![Work::default()]).collect(), (opened.lanes, opened.domains)))
    };
    let memory = &joined.near.device.config().memory;
    let measured = session::run(cpus, loads.collect(), open, |course, (lanes, [near, far])| {
        // A stage in which nothing is posted.
        course.enter(Stage::Drain(Variant::Reference));
        let times = Registrations::measure(&near, memory, pairs * REGISTRATIONS, PATIENCE)?;
        check(&lanes, &far)?;
        Ok(times)
    })?;
    let times = measured.value;
    if times.deregister.count() == 0 {
        return Err(BenchError::interrupted());
    }
    Ok(DeregisterReport { cores, threads: cpus.len(), registrations: times.report(), cores_checked: cores })
}

/// Checks that the far core of each of `lanes` has memory of `domain` once it is registered, and not when it
/// is deregistered.
fn check(lanes: &[Lane], domain: &ProtectionDomain) -> Result<(), BenchError> {
    let region = domain.allocate(CHECKED_BYTES as usize, Access::REMOTE_WRITE);
    let region = region.map_err(|error| BenchError::Memory(error.to_string()))?;
    let sink = region.advertisement(0, CHECKED_BYTES);
    let sink = sink.ok_or_else(|| BenchError::Memory("no range".into()))?;
    for (core, lane) in (0u8..).zip(lanes) {
        let written = [core + 1; CHECKED_BYTES as usize];
        let fits = lane.memory.source.write(lane.memory.start, &written);
        debug_assert!(fits, "a lane has as many bytes");
        lane.write_once(&sink)?;
        let arrived = || region.to_vec(0, written.len()).is_some_and(|bytes| bytes == written);
        wait_until(arrived, core, "does not take a Write to memory that is registered")?;
    }
    let deregistered = region.deregister(PATIENCE);
    deregistered.map_err(|error| BenchError::Setup(error.to_string()))?;
    for (core, lane) in (0u8..).zip(lanes) {
        lane.write_once(&sink)?;
        let refused = || lane.qps[0].error().is_some();
        wait_until(refused, core, "takes a Write to memory that is deregistered")?;
    }
    Ok(())
}

/// Waits until `holds` does.
fn wait_until(holds: impl Fn() -> bool, core: u8, otherwise: &str) -> Result<(), BenchError> {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if interrupt::is_requested() {
            return Err(BenchError::interrupted());
        }
        if Instant::now() > deadline {
            return Err(BenchError::Peer(format!("core {core} {otherwise}")));
        }
        thread::sleep(NAP);
    }
    Ok(())
}
