//! The time that a small frame takes from one core to the other: a frame of 150 bytes goes to and fro over a
//! bare ring, each core reads all of it, and writes the first of its bytes.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dpdk::{HandoffReceiver, HandoffSender, Mbuf, Mempool, handoff};
use serde::Serialize;
use warpline_tools::interrupt;

use crate::error::BenchError;
use crate::placement::pin_to;

/// Bytes of the frame: an FPDU of 64 bytes of payload with all headers.
const FRAME_BYTES: usize = 150;
/// Round trips between two readings of the clock.
const ROUND_TRIPS: u32 = 64;

/// Half round trips, each the mean of some in a row.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct HalfRoundTrip {
    pub frame_bytes: usize,
    /// The fastest.
    pub min_ns: f64,
    pub median_ns: f64,
    pub p99_ns: f64,
}

/// Measures for about `duration`.
///
/// # Errors
///
/// [`BenchError::Pin`], [`BenchError::Memory`].
pub fn measure(pool: &Mempool, cpus: [usize; 2], duration: Duration) -> Result<HalfRoundTrip, BenchError> {
    let mut frame = pool.allocate().ok_or_else(|| BenchError::Memory("no frame".into()))?;
    frame.append(FRAME_BYTES).ok_or_else(|| BenchError::Memory("no room in a frame".into()))?.fill(1);
    let (there, arriving) = handoff(8);
    let (back, returning) = handoff(8);
    let stop = AtomicBool::new(false);
    let mut times = thread::scope(|scope| {
        let far = scope.spawn(|| {
            let pinned = pin_to(cpus[1]);
            // Without the CPU too: the other end waits.
            reflect(arriving, back, &stop);
            pinned
        });
        let near = scope.spawn(|| {
            let times = pin_to(cpus[0]).map(|()| exchange(there, returning, frame, duration));
            stop.store(true, Ordering::Relaxed);
            times
        });
        let times = near.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        far.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(times)
    })?;
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len() - 1)).copied();
    let ends = (at(0), at(50), at(99));
    let (Some(min_ns), Some(median_ns), Some(p99_ns)) = ends else {
        return Err(BenchError::Setup("no round trip".into()));
    };
    Ok(HalfRoundTrip { frame_bytes: FRAME_BYTES, min_ns, median_ns, p99_ns })
}

/// Reads all of a frame, and writes its first byte.
fn touch(frame: &mut Mbuf) {
    let sum = frame.first().iter().fold(0u8, |sum, octet| sum.wrapping_add(*octet));
    frame.first_mut()[0] = sum;
}

fn reflect(mut arriving: HandoffReceiver, mut back: HandoffSender, stop: &AtomicBool) {
    let mut frames = Vec::with_capacity(8);
    while !stop.load(Ordering::Relaxed) {
        if arriving.receive(&mut frames, 8) == 0 {
            std::hint::spin_loop();
        }
        frames.iter_mut().for_each(touch);
        back.send(&mut frames);
    }
}

fn exchange(
    mut there: HandoffSender,
    mut returning: HandoffReceiver,
    frame: Mbuf,
    duration: Duration,
) -> Vec<f64> {
    let mut frames = vec![frame];
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.is_empty() || interrupt::goes_on(begin, duration) {
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            frames.iter_mut().for_each(touch);
            there.send(&mut frames);
            while returning.receive(&mut frames, 8) == 0 {
                std::hint::spin_loop();
            }
        }
        times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(2 * ROUND_TRIPS));
    }
    black_box(frames);
    times
}
