//! How long memory that several idle cores have takes to register and to deregister.

use serde::Serialize;
use warpline::DeviceName;
use warpline::open::Eal;

use super::course::{PATIENCE, Stage, Variant};
use super::joined::Joined;
use super::opening::{Opening, Route};
use super::session::{self, dealt};
use super::settings::{Share, Traffic};
use super::worker::{Load, Work};
use crate::error::BenchError;
use crate::registrations::{REGION_BYTES, Registrations};

/// The times.
#[derive(Serialize, Debug)]
pub struct DeregisterReport {
    /// Cores that have the memory, and threads that poll them.
    cores: usize,
    threads: usize,
    registrations: u64,
    region_bytes: usize,
    /// From the call to its return.
    register_p50_us: f64,
    register_p99_us: f64,
    deregister_p50_us: f64,
    deregister_p99_us: f64,
}

impl DeregisterReport {
    /// Returns the report in words.
    pub fn line(&self) -> String {
        let Self { cores, threads, registrations, region_bytes, .. } = self;
        let Self { register_p50_us, register_p99_us, deregister_p50_us, deregister_p99_us, .. } = self;
        format!(
            "deregister, {cores} idle cores on {threads} threads: a region of {region_bytes} bytes was \
             registered in {register_p50_us:.1} us (99 %: {register_p99_us:.1}) and deregistered in \
             {deregister_p50_us:.1} us (99 %: {deregister_p99_us:.1}), {registrations} times"
        )
    }
}

/// Measures `count` times with `cores` cores.
///
/// # Errors
///
/// [`BenchError`].
pub fn measure(
    eal: Eal,
    ring: &DeviceName,
    [cores, count]: [usize; 2],
    cpus: &[usize],
) -> Result<DeregisterReport, BenchError> {
    let mut joined = Joined::start(eal, ring, cores)?;
    let pairs = dealt(joined.near.cores.drain(..).zip(joined.far.cores.drain(..)), cpus.len());
    let loads = pairs.into_iter().map(|pairs| {
        let drivers = pairs.into_iter().flat_map(|(near, far)| [near, far]).collect();
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
        Registrations::measure(&near, memory, count as u32, PATIENCE)
    })?;
    let times = measured.value;
    if times.deregister.count() == 0 {
        return Err(BenchError::interrupted());
    }
    Ok(DeregisterReport {
        cores,
        threads: cpus.len(),
        registrations: times.deregister.count(),
        region_bytes: REGION_BYTES,
        register_p50_us: times.register.quantile_us(0.5),
        register_p99_us: times.register.quantile_us(0.99),
        deregister_p50_us: times.deregister.quantile_us(0.5),
        deregister_p99_us: times.deregister.quantile_us(0.99),
    })
}
