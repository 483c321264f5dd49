//! The floor: the most that one core could do. It takes frames from a pool, runs a CRC pass over each payload
//! and a copy pass into the destination, with the engine and the copy that the data plane uses, and nothing
//! else.

mod arguments;

pub use arguments::Floor;

use std::hint::black_box;
use std::time::{Duration, Instant};

use dpdk::{Mbuf, Mempool, MempoolConfig};
use serde::Serialize;
use warpline::{Region, open};
use warpline_dataplane::crc32c;

use crate::error::BenchError;
use crate::json::write_json;
use crate::placement::{Placement, pin_to};
use crate::write_bw::sizes::region_bytes;

/// Bytes of IPv4 and TCP headers.
const HEADER_BYTES: usize = 40;
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
    /// Bytes of the destination.
    destination_bytes: usize,
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
    let eal = open::eal(&[], &args.eal)?;
    let [cpu, ..] = Placement::choose(&args.cpus)?.cpus()[..] else { return Err(BenchError::Pin(0)) };
    pin_to(cpu)?;
    let _lcore = eal.register_thread().ok();
    let payload_bytes = usize::from(args.mtu) - HEADER_BYTES;
    let config = MempoolConfig { mbufs: FRAMES, data_octets: args.mtu.max(2048), ..MempoolConfig::default() };
    let pool = Mempool::new(eal, config).map_err(open::OpenError::from)?;
    let frames = filled_frames(&pool, payload_bytes);
    let destination_bytes = region_bytes(args.size);
    let destination =
        Region::huge(eal, destination_bytes).map_err(|error| BenchError::Memory(error.to_string()))?;
    let batch = Duration::from_secs(u64::from(args.duration)) / BATCHES as u32;
    let mut rates: Vec<_> =
        (0..BATCHES).map(|_| measure(&frames, &destination, payload_bytes, batch)).collect();
    rates.sort_by(f64::total_cmp);
    let report = FloorReport {
        test: "floor",
        mtu: args.mtu,
        size: args.size,
        destination_bytes,
        gbit_per_s: rates[BATCHES / 2],
        min_gbit_per_s: rates[0],
        max_gbit_per_s: rates[BATCHES - 1],
    };
    println!(
        "floor: CRC pass and copy pass of one core over {payload_bytes} bytes a frame into \
         {destination_bytes} bytes: {:.2} Gb/s (median of {BATCHES}, {:.2} to {:.2})",
        report.gbit_per_s, report.min_gbit_per_s, report.max_gbit_per_s
    );
    if let Some(path) = &args.json {
        write_json(path, &[report], false)?;
    }
    Ok(())
}

fn filled_frames(pool: &Mempool, payload_bytes: usize) -> Vec<Mbuf> {
    let mut frames = Vec::new();
    while let Some(mut frame) = pool.allocate() {
        if let Some(octets) = frame.append(payload_bytes) {
            octets.fill(frames.len() as u8);
        }
        frames.push(frame);
    }
    frames
}

/// Returns the throughput in Gb/s of payload, measured over about `batch`.
fn measure(frames: &[Mbuf], destination: &Region, payload_bytes: usize, batch: Duration) -> f64 {
    let start = Instant::now();
    let mut octets = 0u64;
    let mut at = 0;
    while start.elapsed() < batch {
        for frame in frames {
            let payload = frame.first();
            black_box(crc32c::checksum(payload));
            if at + payload_bytes > destination.len() {
                at = 0;
            }
            black_box(destination.write(at, payload));
            at += payload_bytes;
        }
        octets += (frames.len() * payload_bytes) as u64;
    }
    octets as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9
}
