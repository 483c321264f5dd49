//! The floor: what one core could do at most. It takes frames from a pool, runs a CRC pass over each payload and a copy
//! pass into the destination, with the engine and the copy that the data plane uses, and nothing else.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dpdk::{Mbuf, Mempool, MempoolConfig};
use serde::Serialize;
use warpline::open;
use warpline_dataplane::crc32c;
use warpline_dataplane::memory::Region;

use crate::BenchError;
use crate::cli::Floor;
use crate::placement::{Placement, pin_to};
use crate::report;
use crate::write_bw::region_octets;

/// Octets of IPv4 and TCP headers.
const HEADER_OCTETS: usize = 40;
/// Frames in flight: a window's worth, as the benchmark has.
const FRAMES: u32 = 255;
/// Batches measured; the median is reported.
const BATCHES: usize = 9;

/// The result.
#[derive(Serialize, Debug)]
pub struct FloorReport {
    test: &'static str,
    mtu: u16,
    size: u32,
    /// Octets of the destination.
    destination_octets: usize,
    /// Median over the batches.
    gbit_per_s: f64,
    /// Slowest batch.
    min_gbit_per_s: f64,
    /// Fastest batch.
    max_gbit_per_s: f64,
}

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &Floor) -> Result<(), BenchError> {
    let eal = open::eal(&args.eal)?;
    let [cpu, ..] = Placement::choose(&args.cpus)?.cpus()[..] else { return Err(BenchError::Pin(0)) };
    pin_to(cpu)?;
    let _lcore = eal.register_thread().ok();
    let payload_octets = usize::from(args.mtu) - HEADER_OCTETS;
    let config = MempoolConfig { mbufs: FRAMES, data_octets: args.mtu.max(2048), ..MempoolConfig::default() };
    let pool = Mempool::new(eal, config).map_err(open::OpenError::from)?;
    let frames = filled_frames(&pool, payload_octets);
    let destination_octets = region_octets(args.size);
    let destination =
        Region::huge(eal, destination_octets).map_err(|error| BenchError::Memory(error.to_string()))?;
    let batch = Duration::from_secs(u64::from(args.duration)) / BATCHES as u32;
    let mut rates: Vec<_> =
        (0..BATCHES).map(|_| measure(&frames, &destination, payload_octets, batch)).collect();
    rates.sort_by(f64::total_cmp);
    let report = FloorReport {
        test: "floor",
        mtu: args.mtu,
        size: args.size,
        destination_octets,
        gbit_per_s: rates[BATCHES / 2],
        min_gbit_per_s: rates[0],
        max_gbit_per_s: rates[BATCHES - 1],
    };
    println!(
        "floor: CRC pass and copy pass of one core over {payload_octets} octets a frame into {destination_octets} octets: \
         {:.2} Gb/s (median of {BATCHES}, {:.2} to {:.2})",
        report.gbit_per_s, report.min_gbit_per_s, report.max_gbit_per_s
    );
    if let Some(path) = &args.json {
        report::write_json(path, &[report], false)?;
    }
    Ok(())
}

fn filled_frames(pool: &Mempool, payload_octets: usize) -> Vec<Mbuf> {
    let mut frames = Vec::new();
    while let Some(mut frame) = pool.allocate() {
        if let Some(octets) = frame.append(payload_octets) {
            octets.fill(frames.len() as u8);
        }
        frames.push(frame);
    }
    frames
}

/// Gb/s of payload over about `batch`.
fn measure(frames: &[Mbuf], destination: &Region, payload_octets: usize, batch: Duration) -> f64 {
    let start = Instant::now();
    let mut octets = 0u64;
    let mut at = 0;
    while start.elapsed() < batch {
        for frame in frames {
            let payload = frame.first();
            black_box(crc32c::checksum(payload));
            if at + payload_octets > destination.len() {
                at = 0;
            }
            black_box(destination.write(at, payload));
            at += payload_octets;
        }
        octets += (frames.len() * payload_octets) as u64;
    }
    octets as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9
}
