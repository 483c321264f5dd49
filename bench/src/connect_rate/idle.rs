//! What the core and an application take beside many connections that are open and idle: the longest poll,
//! and registering memory and deregistering it.

use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use warpline::{MemorySource, ProtectionDomain};
use warpline_tools::interrupt;

use super::ends::{Client, Target};
use super::{PATIENCE, POLLS};
use crate::error::BenchError;
use crate::registrations::{REGION_BYTES, Registrations};

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
    /// How often memory was registered and deregistered.
    registrations: u64,
    /// Its bytes.
    region_bytes: usize,
    /// The time from the call to its return, on a thread beside the one that polls.
    register_p50_us: f64,
    register_p99_us: f64,
    deregister_p50_us: f64,
    deregister_p99_us: f64,
    /// The longest poll meanwhile, in CPU time.
    longest_registering_poll_us: f64,
}

impl IdleReport {
    /// Returns the report in words.
    pub fn line(&self) -> String {
        let Self { idle_polls, longest_idle_poll_us, registrations, region_bytes, .. } = self;
        let Self { register_p50_us, register_p99_us, deregister_p50_us, deregister_p99_us, .. } = self;
        let Self { longest_registering_poll_us, .. } = self;
        format!(
            "beside them, idle: the longest of {idle_polls} polls took {longest_idle_poll_us:.1} us; a \
             region of {region_bytes} bytes was registered in {register_p50_us:.1} us (99 %: \
             {register_p99_us:.1}) \
             and deregistered in {deregister_p50_us:.1} us (99 %: {deregister_p99_us:.1}), {registrations} \
             times, and the longest poll took {longest_registering_poll_us:.1} us"
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

/// Waits until the connections of both ends are idle, and measures beside them. This thread polls both ends.
///
/// # Errors
///
/// [`BenchError`].
pub fn measure(
    client: &mut Client,
    target: &mut Target,
    registrar: Registrar<'_>,
) -> Result<IdleReport, BenchError> {
    let (mut busy_at, deadline) = (Instant::now(), Instant::now() + PATIENCE);
    poll(client, target, |polls| {
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
    let idle = poll(client, target, |polls| {
        Ok(polls.count.is_multiple_of(u64::from(POLLS)) && Instant::now() > end)
    })?;
    let Registrar { begin, thread } = registrar;
    // Fails only when the thread has ended early, which it reports.
    let _ = begin.send(());
    // Whatever happens: a call of that thread returns only if the core is polled.
    let registering = poll(client, target, |_| Ok(thread.is_finished()))?;
    // No connection has failed meanwhile.
    _ = client.step()?;
    target.step()?;
    let times = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    if interrupt::is_requested() {
        return Err(BenchError::interrupted());
    }
    Ok(IdleReport {
        idle_polls: idle.count,
        longest_idle_poll_us: microseconds(idle.longest),
        registrations: times.deregister.count(),
        region_bytes: REGION_BYTES,
        register_p50_us: times.register.quantile_us(0.5),
        register_p99_us: times.register.quantile_us(0.99),
        deregister_p50_us: times.deregister.quantile_us(0.5),
        deregister_p99_us: times.deregister.quantile_us(0.99),
        longest_registering_poll_us: microseconds(registering.longest),
    })
}

/// Polls of the client's core.
#[derive(Clone, Copy, Debug, Default)]
struct Polls {
    count: u64,
    /// The longest of them.
    longest: Duration,
    /// The last one, or that of the target after it, found something to do.
    worked: bool,
}

/// Polls both ends until `ends` says so.
fn poll(
    client: &mut Client,
    target: &mut Target,
    mut ends: impl FnMut(&Polls) -> Result<bool, BenchError>,
) -> Result<Polls, BenchError> {
    let mut polls = Polls::default();
    loop {
        let (worked, time) = client.poll_timed();
        polls.count += 1;
        polls.longest = polls.longest.max(time);
        polls.worked = worked | target.poll();
        if ends(&polls)? {
            return Ok(polls);
        }
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
