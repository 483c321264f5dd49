//! Waiting for a measurement: with a bar on a terminal, and with a line for each interval of a run without
//! end.

use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use warpline_tools::output::say;

use super::client::{Answer, Run};
use super::report::{Rate, rate_line};
use super::snapshot::gbit_per_s;
use crate::error::BenchError;

/// How often the bar moves, and a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for `count` answers.
///
/// # Errors
///
/// [`BenchError::Setup`] if fewer come.
pub fn wait(
    answers: &mpsc::Receiver<Answer>,
    count: usize,
    run: &Run,
    qps: u32,
) -> Result<Vec<Answer>, BenchError> {
    if !std::io::stderr().is_terminal() {
        return collect(answers, count, || ());
    }
    let size = u64::from(run.plan.size);
    let bar = match run.messages {
        Some(messages) => ProgressBar::new(messages.saturating_mul(qps.into()).saturating_mul(size)),
        None => ProgressBar::new_spinner(),
    };
    let style = ProgressStyle::with_template("{spinner} {msg} {bar:40} {bytes} {binary_bytes_per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(format!("{size} bytes"));
    let collected =
        collect(answers, count, || bar.set_position(run.progress.messages().saturating_mul(size)))?;
    bar.finish_and_clear();
    Ok(collected)
}

/// Prints a line for each `interval` until `count` answers have come: the run stops when the command is to
/// end.
///
/// # Errors
///
/// [`BenchError::Setup`] if fewer come.
pub fn wait_for_signal(
    answers: &mpsc::Receiver<Answer>,
    count: usize,
    run: &Run,
    interval: Duration,
) -> Result<Vec<Answer>, BenchError> {
    let (mut since, mut before, mut peak) = (Instant::now(), 0, 0.0);
    collect(answers, count, || {
        if since.elapsed() >= interval {
            let (now, seconds) = (run.progress.messages(), since.elapsed().as_secs_f64());
            let messages = now - before;
            let average = gbit_per_s(messages, run.plan.size, seconds);
            peak = average.max(peak);
            let mmsg_per_s = messages as f64 / seconds / 1e6;
            let rate = Rate { gbit_per_s: average, peak_gbit_per_s: peak, mmsg_per_s };
            say!("{}", rate_line(run.plan.size, messages, &rate).trim_end());
            (since, before) = (Instant::now(), now);
        }
    })
}

/// Returns `count` answers in the order of their cores; calls `look` from time to time until they are there.
fn collect(
    answers: &mpsc::Receiver<Answer>,
    count: usize,
    mut look: impl FnMut(),
) -> Result<Vec<Answer>, BenchError> {
    let mut collected = Vec::with_capacity(count);
    while collected.len() < count {
        match answers.recv_timeout(LOOK) {
            Ok(answer) => collected.push(answer),
            Err(mpsc::RecvTimeoutError::Timeout) => look(),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(BenchError::Setup("a core of this end has stopped".into()));
            }
        }
    }
    collected.sort_by_key(|answer: &Answer| answer.core);
    Ok(collected)
}
