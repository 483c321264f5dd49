//! How fast one device of several cores is, beside as many devices of one core each, on the same threads.
//!
//! Each thread polls a core of the near device and one of the far device, and posts on the lane between them:
//! frames cross no CPU, so that what the cores of a device cost each other is all that there is to see.

use serde::Serialize;
use warpline::DeviceName;
use warpline::open::Eal;

use super::comparison::Comparison;
use super::joined::Joined;
use super::opening::{Opened, Opening, Route};
use super::session::{self, dealt};
use super::settings::{Extent, Share, Traffic};
use super::worker::{Load, Work};
use crate::error::BenchError;

/// One ratio.
#[derive(Serialize, Debug)]
pub struct ScaleReport {
    share: Share,
    cores: usize,
    mtu: u16,
    #[serde(flatten)]
    traffic: Traffic,
    #[serde(flatten)]
    comparison: Comparison,
}

impl ScaleReport {
    /// Returns the report in words.
    pub fn line(&self) -> String {
        let shared = match self.share {
            Share::Nothing => "nothing shared",
            Share::Domain => "one domain and region",
            Share::Queue => "one completion queue",
        };
        format!("scale, {shared}: {}", self.comparison.words())
    }
}

/// Measures the ratio to `extent`.
///
/// # Errors
///
/// [`BenchError`].
pub fn measure(
    eal: Eal,
    ring: &DeviceName,
    Extent { cores, pairs }: Extent,
    cpus: &[usize],
    traffic: Traffic,
    share: Share,
) -> Result<ScaleReport, BenchError> {
    let mut together = Joined::start(eal, ring, cores)?;
    let mut apart = (0..cores).map(|_| Joined::start(eal, ring, 1)).collect::<Result<Vec<_>, _>>()?;
    let loads = loads(&mut together, &mut apart, cpus.len());
    let open = || {
        let opened = Opening::new(&together).open(&Route::straight(cores, traffic), share)?;
        let route = Route::straight(1, traffic);
        let alone = apart.iter().map(|joined| Opening::new(joined).open(&route, Share::Nothing));
        let alone = alone.collect::<Result<Vec<_>, _>>()?;
        Ok((work(opened, alone, cpus.len()), ()))
    };
    let measured = session::run(cpus, loads, open, |course, ()| course.run_pairs(pairs))?;
    let comparison = Comparison::of(&measured.slices, traffic.size)?;
    Ok(ScaleReport { share, cores, mtu: ring.mtu(), traffic, comparison })
}

/// Returns what each thread polls: some cores of both ends of `together`, and both ends of some of `apart`.
fn loads(together: &mut Joined, apart: &mut [Joined], threads: usize) -> Vec<Vec<Load>> {
    let cores = together.near.cores.drain(..).zip(together.far.cores.drain(..));
    let singles = apart.iter_mut().map(|joined| joined.near.cores.drain(..).zip(joined.far.cores.drain(..)));
    let singles = dealt(singles.flatten(), threads);
    let load = |pairs: Vec<_>| Load {
        drivers: pairs.into_iter().flat_map(|(near, far)| [near, far]).collect(),
        ..Load::default()
    };
    dealt(cores, threads)
        .into_iter()
        .zip(singles)
        .map(|(pairs, singles)| vec![load(pairs), load(singles)])
        .collect()
}

/// Returns the work of each thread, in the order of its loads.
fn work(together: Opened, apart: Vec<Opened>, threads: usize) -> Vec<Vec<Work>> {
    let Opened { lanes, mut collector, .. } = together;
    let singles = dealt(apart.into_iter().flat_map(|opened| opened.lanes), threads);
    let parts = dealt(lanes, threads).into_iter().zip(singles);
    let parts = parts.map(|(lanes, singles)| {
        // The first thread polls for all.
        let several = Work { lanes, collector: collector.take(), ..Work::default() };
        vec![several, Work { lanes: singles, ..Work::default() }]
    });
    parts.collect()
}
