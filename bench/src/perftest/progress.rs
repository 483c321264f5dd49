//! Waiting for a measurement: with a bar on a terminal, and with a line for each interval of a run without
//! end.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use warpline_tools::output::say;

use super::client::{Measured, Run};
use super::lane::Lane;
use super::report::{Rate, rate_line};
use super::snapshot::gbit_per_s;
use crate::error::BenchError;

/// The queue pairs of a measurement, and its result.
pub type Answer = (Vec<Lane>, Result<Measured, BenchError>);

/// How often the bar moves, and a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for `answer`.
///
/// # Errors
///
/// [`BenchError::Setup`] if there comes none.
pub fn wait(answer: &mpsc::Receiver<Answer>, run: &Run, qps: u32) -> Result<Answer, BenchError> {
    if !std::io::stderr().is_terminal() {
        return answer.recv().map_err(|_| stopped());
    }
    let size = u64::from(run.plan.size);
    let bar = match run.messages {
        Some(messages) => ProgressBar::new(messages.saturating_mul(qps.into()).saturating_mul(size)),
        None => ProgressBar::new_spinner(),
    };
    let style = ProgressStyle::with_template("{spinner} {msg} {bar:40} {bytes} {binary_bytes_per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(format!("{size} bytes"));
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(measured) => {
                bar.finish_and_clear();
                return Ok(measured);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bar.set_position(run.progress.load(Ordering::Relaxed).saturating_mul(size));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(stopped()),
        }
    }
}

/// Prints a line for each `interval` until `answer` comes: the run stops when the command is to end.
///
/// # Errors
///
/// [`BenchError::Setup`] if there comes none.
pub fn wait_for_signal(
    answer: &mpsc::Receiver<Answer>,
    run: &Run,
    interval: Duration,
) -> Result<Answer, BenchError> {
    let (mut since, mut before, mut peak) = (Instant::now(), 0, 0.0);
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(measured) => return Ok(measured),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(stopped()),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if since.elapsed() >= interval {
            let (now, seconds) = (run.progress.load(Ordering::Relaxed), since.elapsed().as_secs_f64());
            let messages = now - before;
            let average = gbit_per_s(messages, run.plan.size, seconds);
            peak = average.max(peak);
            let mmsg_per_s = messages as f64 / seconds / 1e6;
            let rate = Rate { gbit_per_s: average, peak_gbit_per_s: peak, mmsg_per_s };
            say!("{}", rate_line(run.plan.size, messages, &rate).trim_end());
            (since, before) = (Instant::now(), now);
        }
    }
}

fn stopped() -> BenchError {
    BenchError::Setup("the core of this end has stopped".into())
}
