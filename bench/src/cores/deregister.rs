//! How long memory that several idle cores have takes to register and to deregister.

use serde::Serialize;
use warpline::DeviceName;
use warpline::open::Eal;

use super::course::{Stage, Variant};
use super::joined::Joined;
use super::opening::{Opening, Route};
use super::session::{self, dealt};
use super::settings::{Extent, Share, Traffic};
use super::worker::{Load, Work};
use crate::endpoint::PATIENCE;
use crate::error::BenchError;
use crate::registrations::{RegistrationTimes, Registrations};

/// Registrations for each pair of slices that a ratio has.
const REGISTRATIONS: u32 = 50;

/// The times.
#[derive(Serialize, Debug)]
pub struct DeregisterReport {
    /// Cores that have the memory, and threads that poll them.
    cores: usize,
    threads: usize,
    #[serde(flatten)]
    registrations: RegistrationTimes,
}

impl DeregisterReport {
    /// Returns the report in words.
    pub fn line(&self) -> String {
        let Self { cores, threads, registrations } = self;
        format!("deregister, {cores} idle cores on {threads} threads: {}", registrations.words())
    }
}

/// Measures as often as there are [`REGISTRATIONS`] for each pair of slices that `extent` has.
///
/// # Errors
///
/// [`BenchError`].
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
        let traffic = Traffic { size: 64, depth: 1, qps: 1 };
        let opened = Opening::new(&joined).open(&Route::straight(cores, traffic), Share::Domain)?;
        let work =
            dealt(opened.lanes, cpus.len()).into_iter().map(|lanes| vec![Work { lanes, ..Work::default() }]);
        Ok((work.collect(), opened.domains))
    };
    let memory = &joined.near.device.config().memory;
    let measured = session::run(cpus, loads.collect(), open, |course, [near, _]| {
        // A stage in which nothing is posted.
        course.enter(Stage::Drain(Variant::Reference));
        Registrations::measure(&near, memory, pairs * REGISTRATIONS, PATIENCE)
    })?;
    let times = measured.value;
    if times.deregister.count() == 0 {
        return Err(BenchError::interrupted());
    }
    Ok(DeregisterReport { cores, threads: cpus.len(), registrations: times.report() })
}
