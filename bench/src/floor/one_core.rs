//! The most that one core can do: it takes frames from a pool, runs a CRC pass over each payload and a copy
//! pass into the destination, with the engine and the copy that the data plane uses, and nothing else.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dpdk::Mbuf;
use warpline::Region;
use warpline_dataplane::crc32c;
use warpline_tools::interrupt;

use super::rates::{REPEATS, Rates, gbit_per_s};

/// Measures for about `duration`.
pub fn measure(frames: &[Mbuf], destination: &Region, crc: bool, duration: Duration) -> Rates {
    Rates::of((0..REPEATS).map(|_| repeat(frames, destination, crc, duration / REPEATS)).collect())
}

fn repeat(frames: &[Mbuf], destination: &Region, crc: bool, duration: Duration) -> f64 {
    let start = Instant::now();
    let mut octets = 0;
    let mut at = 0;
    while interrupt::goes_on(start, duration) {
        for frame in frames {
            let payload = frame.first();
            if crc {
                black_box(crc32c::checksum(payload));
            }
            if at + payload.len() > destination.len() {
                at = 0;
            }
            black_box(destination.write(at, payload));
            at += payload.len();
            octets += payload.len() as u64;
        }
    }
    gbit_per_s(octets, start.elapsed().as_secs_f64())
}
