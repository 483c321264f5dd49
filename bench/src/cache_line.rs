//! `cache-line`: the time that a cache line takes from one core to another and back.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use crossbeam::utils::CachePadded;
use hdrhistogram::Histogram;
use serde::Serialize;
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, say};

use crate::error::BenchError;
use crate::placement::{Placement, parse_cpu, pin_to};

/// Round trips between two readings of the clock, which takes about as long as one of them.
const ROUND_TRIPS: u64 = 100;
/// The longest mean round trip that is recorded as it is, in picoseconds: a second.
const LONGEST_PS: u64 = 1_000_000_000_000;

/// `cache-line`.
#[derive(Args, Debug)]
pub struct CacheLine {
    /// How long to measure, in seconds.
    #[arg(long, short = 'D', value_name = "S", default_value = "1",
          value_parser = clap::value_parser!(u64).range(1..=60))]
    duration: u64,
    /// The two CPUs. Without it, the idlest two.
    #[arg(long, value_name = "CPU", value_delimiter = ',', num_args = 1..=2, value_parser = parse_cpu)]
    cpus: Vec<usize>,
    /// Write the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The result: of the means of [`ROUND_TRIPS`] round trips each.
#[derive(Serialize, Debug)]
struct Report {
    test: &'static str,
    cpus: [usize; 2],
    round_trips: u64,
    min_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
}

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &CacheLine) -> Result<(), BenchError> {
    let json = OutputFile::open_some(args.json.as_deref())?;
    let [near, far] = Placement::choose(&args.cpus)?.cpus()[..] else {
        return Err(BenchError::options(
            "a cache line moves between two CPUs: name both with --cpus, as two are not free",
        ));
    };
    let times = measure(near, far, Duration::from_secs(args.duration))?;
    let ns = |picoseconds: u64| picoseconds as f64 / 1e3;
    let report = Report {
        test: "cache-line",
        cpus: [near, far],
        round_trips: times.len() * ROUND_TRIPS,
        min_ns: ns(times.min()),
        p50_ns: ns(times.value_at_quantile(0.5)),
        p99_ns: ns(times.value_at_quantile(0.99)),
    };
    say!(
        "a cache line from CPU {near} to CPU {far} and back: {:.0} ns (median of the means of {ROUND_TRIPS}; \
         {:.0} at least)",
        report.p50_ns,
        report.min_ns
    );
    Ok(json.map_or(Ok(()), |file| file.write_json(&[report], false))?)
}

/// Returns the means of [`ROUND_TRIPS`] round trips each, in picoseconds.
fn measure(near: usize, far: usize, duration: Duration) -> Result<Histogram<u64>, BenchError> {
    // The near end makes the number odd, the far end the next even one.
    let ball = CachePadded::new(AtomicU64::new(0));
    let stop = CachePadded::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let returning = scope.spawn(|| {
            let pinned = pin_to(far);
            while !stop.load(Ordering::Relaxed) {
                let number = ball.load(Ordering::Acquire);
                if number % 2 == 1 {
                    ball.store(number + 1, Ordering::Release);
                } else {
                    std::hint::spin_loop();
                }
            }
            pinned
        });
        // In a thread of its own, so that the caller stays where it may run.
        let serving = scope.spawn(|| {
            let times = pin_to(near).map(|()| serve(&ball, duration));
            stop.store(true, Ordering::Relaxed);
            times
        });
        let times = serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        returning.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(times)
    })
}

/// Sends the line for `duration`, and waits for it each time.
fn serve(ball: &AtomicU64, duration: Duration) -> Histogram<u64> {
    let mut times =
        Histogram::new_with_max(LONGEST_PS, 3).expect("the bounds are in order, the digits at most five");
    let begin = Instant::now();
    let mut number = 0;
    while times.is_empty() || interrupt::goes_on(begin, duration) {
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            ball.store(number + 1, Ordering::Release);
            number += 2;
            while ball.load(Ordering::Acquire) != number {
                std::hint::spin_loop();
            }
        }
        let mean_ps = start.elapsed().as_nanos() * 1000 / u128::from(ROUND_TRIPS);
        times.saturating_record(u64::try_from(mean_ps).unwrap_or(LONGEST_PS));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads on one CPU take turns by the scheduler's time slices; they do end.
    #[test]
    fn a_line_comes_back() {
        let cpus: Vec<_> = core_affinity::get_core_ids().unwrap().iter().map(|cpu| cpu.id).collect();
        if let [near, far, ..] = cpus[..] {
            let times = measure(near, far, Duration::ZERO).unwrap();
            assert_eq!(times.len(), 1);
            assert!(times.min() > 0, "light takes time");
        }
        assert!(matches!(measure(cpus[0], usize::MAX, Duration::ZERO), Err(BenchError::Pin(usize::MAX))));
    }
}
