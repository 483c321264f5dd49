//! What the core and an application take beside many connections that are open and idle: the longest poll,
//! and registering memory and deregistering it.

use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use warpline::{MemorySource, ProtectionDomain};
use warpline_tools::interrupt;

use super::{POLLS, Pair};
use crate::endpoint::PATIENCE;
use crate::error::BenchError;
use crate::registrations::{RegistrationTimes, Registrations};

/// How long neither end may have anything to do before the connections are idle: longer than the last
/// acknowledgement may be delayed.
const QUIET: Duration = Duration::from_millis(200);
/// How long the polls of an idle core are measured.
const WATCHED: Duration = Duration::from_secs(1);
/// How often memory is registered.
const REGISTRATIONS: u32 = 1000;

/// What was measured beside connections that are idle.
#[derive(Serialize, Debug)]
pub struct IdleReport {
    /// Polls of the idle core.
    idle_polls: u64,
    /// The longest of them, in CPU time of its thread: what else runs on the CPU does not count.
    longest_idle_poll_us: f64,
    /// What memory takes, registered on a thread beside the one that polls.
    #[serde(flatten)]
    registrations: RegistrationTimes,
    /// The longest poll meanwhile, in CPU time.
    longest_registering_poll_us: f64,
}

impl IdleReport {
    /// Returns the report in words.
    pub fn line(&self) -> String {
        let Self { idle_polls, longest_idle_poll_us, registrations, longest_registering_poll_us } = self;
        format!(
            "beside them, idle: the longest of {idle_polls} polls took {longest_idle_poll_us:.1} us; {}, and \
             the longest poll took {longest_registering_poll_us:.1} us",
            registrations.words()
        )
    }
}

/// A thread that registers memory and deregisters it, once the connections are idle.
pub struct Registrar<'s> {
    begin: mpsc::Sender<()>,
    thread: ScopedJoinHandle<'s, Result<Registrations, BenchError>>,
}

impl<'s> Registrar<'s> {
    /// Starts the thread, on the CPUs of the calling one, which waits until it is to [begin](measure). The
    /// memory is of `memory`, and registered in `domain`.
    pub fn start<'e>(scope: &'s Scope<'s, 'e>, domain: ProtectionDomain, memory: MemorySource) -> Self {
        let (begin, begun) = mpsc::channel();
        let thread = scope.spawn(move || match begun.recv() {
            Ok(()) => Registrations::measure(&domain, &memory, REGISTRATIONS, PATIENCE),
            // The connections were not opened.
            Err(mpsc::RecvError) => Ok(Registrations::default()),
        });
        Self { begin, thread }
    }
}

/// Waits until the connections of all `ends` are idle, and measures beside them. This thread polls all cores.
///
/// # Errors
///
/// [`BenchError`].
pub fn measure(ends: &mut [Pair], registrar: Registrar<'_>) -> Result<IdleReport, BenchError> {
    let (mut busy_at, deadline) = (Instant::now(), Instant::now() + PATIENCE);
    poll(ends, |polls| {
        let now = Instant::now();
        if polls.worked {
            busy_at = now;
        }
        if interrupt::is_requested() {
            return Err(BenchError::interrupted());
        }
        if now > deadline {
            let waited = PATIENCE.as_secs();
            return Err(BenchError::Setup(format!("the connections were not idle in {waited} s")));
        }
        Ok(now - busy_at > QUIET)
    })?;
    let end = Instant::now() + WATCHED;
    let idle = poll(ends, |polls| Ok(polls.count.is_multiple_of(u64::from(POLLS)) && Instant::now() > end))?;
    let Registrar { begin, thread } = registrar;
    // Fails only when the thread has ended early, which it reports.
    let _ = begin.send(());
    // Whatever happens: a call of that thread returns only if the core is polled.
    let registering = poll(ends, |_| Ok(thread.is_finished()))?;
    // No connection has failed meanwhile.
    for pair in ends {
        _ = pair.client.step()?;
        pair.target.step()?;
    }
    let times = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    if interrupt::is_requested() {
        return Err(BenchError::interrupted());
    }
    Ok(IdleReport {
        idle_polls: idle.count,
        longest_idle_poll_us: microseconds(idle.longest),
        registrations: times.report(),
        longest_registering_poll_us: microseconds(registering.longest),
    })
}

/// Polls of the clients' cores.
#[derive(Clone, Copy, Debug, Default)]
struct Polls {
    count: u64,
    /// The longest of them.
    longest: Duration,
    /// One of the last round, or of the targets after them, found something to do.
    worked: bool,
}

/// Polls all cores in turn until it `is_over`.
fn poll(
    ends: &mut [Pair],
    mut is_over: impl FnMut(&Polls) -> Result<bool, BenchError>,
) -> Result<Polls, BenchError> {
    let mut polls = Polls::default();
    loop {
        polls.worked = false;
        for pair in &mut *ends {
            let (worked, time) = pair.client.poll_timed();
            polls.count += 1;
            polls.longest = polls.longest.max(time);
            polls.worked |= worked | pair.target.poll();
        }
        if is_over(&polls)? {
            return Ok(polls);
        }
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
