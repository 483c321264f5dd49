//! The end that connects, and measures.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use warpline::{Advertisement, ConnectConfig, ConnectError, Device, Revision};
use warpline_tools::interrupt;

use super::lane::{Lane, Role};
use super::latency::{self, Alone, Pings};
use super::plan::{Figure, Plan};
use super::rotation::Rotation;
use super::settings::Settings;
use super::supplies::Supplies;
use crate::at_core::LocalPorts;
use crate::endpoint::{Driver, received};
use crate::error::BenchError;

/// Turns of the loop between two looks at the clock.
const TURNS: u32 = 64;
/// The time over which the peak rate is taken.
const PEAK_WINDOW: Duration = Duration::from_millis(10);

/// Connects the queue pairs of `plan` to `peers`, each to one, and agrees with the target on their buffers.
/// They are at the core of either end that the plan names, if it does, from one of `ports` each.
///
/// # Errors
///
/// [`BenchError`].
pub fn connect(
    device: &Device,
    peers: &[SocketAddr],
    settings: &Settings,
    plan: &Plan,
    ports: &mut LocalPorts,
) -> Result<Vec<Lane>, BenchError> {
    let supplies = Supplies::new(device, plan).reporting_together(peers.len());
    peers.iter().map(|peer| connect_one(device, *peer, settings, &supplies, ports)).collect()
}

fn connect_one(
    device: &Device,
    peer: SocketAddr,
    settings: &Settings,
    supplies: &Supplies,
    ports: &mut LocalPorts,
) -> Result<Lane, BenchError> {
    let mut lane = Lane::new(supplies, settings, Role::Connecting)?;
    let core = supplies.plan.core;
    let config = ConnectConfig {
        core,
        markers: settings.common.markers.is_on(),
        private_data: supplies.plan.encode(lane.advertisement()?),
        timeout: lane.timeout(),
        ..ConnectConfig::default()
    };
    let config = settings.common.setup.connect(Revision::TwoThenOne, config);
    let connected = match core {
        None => lane.qp.connect(peer, &config),
        Some(_) => ports.connect(device, &lane.qp, peer, &config),
    };
    let connected = connected.map_err(|error| match &error {
        ConnectError::Rejected { private_data, .. } if !private_data.is_empty() => {
            BenchError::Peer(String::from_utf8_lossy(private_data).into_owned())
        }
        _ => BenchError::Connect(peer, error),
    })?;
    let sink = Advertisement::decode(&connected.private_data);
    lane.send_to(sink.map_err(|error| lane.failed(&error.to_string()))?)?;
    Ok(lane)
}

/// The measurement to make.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it does.
    pub plan: Plan,
    /// Messages on each queue pair; `None` for as many as there is time for.
    pub messages: Option<u64>,
    /// The time for them; `None` to go on until it is stopped.
    pub duration: Option<Duration>,
    /// Others stream beside the pings, if not at this core.
    pub has_beside: bool,
    /// All times are kept in their order.
    pub keeps_times: bool,
    /// What the cores that measure share.
    pub progress: Arc<Progress>,
}

/// How far the cores that measure have come, for others to see.
#[derive(Debug)]
pub struct Progress {
    /// Messages that are complete, by core.
    messages: Vec<CachePadded<AtomicU64>>,
    /// How often a core has come to a point where it waits for all others.
    met: AtomicUsize,
    /// Cores that measure.
    cores: usize,
    /// One has failed: the others need not go on.
    failed: AtomicBool,
}

impl Progress {
    /// Returns the progress of `measuring` cores of those of a device, whose number is `cores`.
    pub fn new(cores: usize, measuring: usize) -> Self {
        let messages = (0..cores).map(|_| CachePadded::default()).collect();
        Self { messages, met: AtomicUsize::new(0), cores: measuring, failed: AtomicBool::new(false) }
    }

    /// Returns the messages that are complete at all cores.
    pub fn messages(&self) -> u64 {
        self.messages.iter().map(|messages| messages.load(Ordering::Relaxed)).sum()
    }

    /// Says how many are complete at a core.
    fn set_messages(&self, core: usize, messages: u64) {
        self.messages[core].store(messages, Ordering::Relaxed);
    }

    /// Says that a core has come to its next meeting point.
    pub fn arrive(&self) {
        self.met.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns true if all cores have come to the meeting point `number`, counted from 1.
    pub fn have_met(&self, number: usize) -> bool {
        self.met.load(Ordering::Acquire) >= number * self.cores
    }

    /// Returns true if a core has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

impl Run {
    /// Returns true if it is to end after `active`, or the command is to end.
    pub fn is_over(&self, active: Duration) -> bool {
        self.duration.is_some_and(|duration| active >= duration)
            || interrupt::is_requested()
            || self.progress.has_failed()
    }
}

/// The results of a measurement.
#[derive(Debug, Default)]
pub struct Measured {
    /// Time spent transferring.
    pub active: Duration,
    /// Messages on all queue pairs, in both directions.
    pub messages: u64,
    /// Messages per second of the best hundredth of a second, of this end.
    pub peak_messages_per_s: f64,
    /// Bytes compared at both ends.
    pub compared_bytes: u64,
    /// Bytes of them that were wrong.
    pub corrupt_bytes: u64,
    /// The times of pings.
    pub pings: Option<Pings>,
    /// The times of pings before others streamed beside them, and what those did.
    pub alone: Option<Alone>,
}

impl Measured {
    /// Returns the sum of what several cores have measured at the same time, which is the longest of theirs.
    pub fn sum(parts: Vec<Self>) -> Self {
        let mut sum = Self::default();
        for part in parts {
            sum.active = sum.active.max(part.active);
            sum.messages += part.messages;
            sum.peak_messages_per_s += part.peak_messages_per_s;
            sum.compared_bytes += part.compared_bytes;
            sum.corrupt_bytes += part.corrupt_bytes;
            if let Some(part) = part.pings {
                let pings = sum.pings.get_or_insert_default();
                pings.times.add(&part.times);
                pings.in_order.extend(part.in_order);
            }
            if let Some(part) = part.alone {
                let alone = sum.alone.get_or_insert_default();
                alone.times.add(&part.times);
                alone.messages_beside += part.messages_beside;
            }
        }
        sum
    }
}

/// Work for a core of the end that measures: the queue pairs, and the channel back.
pub struct Job {
    /// The queue pairs, connected.
    pub lanes: Vec<Lane>,
    /// Those beside them.
    pub beside: Vec<Lane>,
    /// What to measure.
    pub run: Run,
    /// Takes the result, and all queue pairs to be closed by a thread that need not poll.
    pub answer: mpsc::Sender<Answer>,
}

/// What comes back from a core.
pub struct Answer {
    /// The core.
    pub core: usize,
    /// All queue pairs.
    pub lanes: Vec<Lane>,
    /// The result.
    pub measured: Result<Measured, BenchError>,
}

/// Returns the work of `core` between polls: does the jobs that come over `jobs`. If the command is to end
/// while it is `connecting`, the core is given up, and so is the connection.
pub fn work(
    core: usize,
    jobs: mpsc::Receiver<Job>,
    connecting: Arc<AtomicBool>,
) -> impl FnMut(&mut Driver) -> ControlFlow<()> + Send {
    move |driver| {
        if interrupt::is_requested() && connecting.load(Ordering::Relaxed) {
            driver.give_up();
        }
        driver.set_up(true);
        if let Some(Job { mut lanes, mut beside, run, answer }) = received(&jobs)? {
            driver.set_up(false);
            let measured = measure(driver, core, &mut lanes, &mut beside, &run);
            if measured.is_err() {
                run.progress.failed.store(true, Ordering::Relaxed);
            }
            lanes.append(&mut beside);
            // Fails only when the program is ending.
            let _ = answer.send(Answer { core, lanes, measured });
        }
        ControlFlow::Continue(())
    }
}

fn measure(
    driver: &mut Driver,
    core: usize,
    lanes: &mut [Lane],
    beside: &mut [Lane],
    run: &Run,
) -> Result<Measured, BenchError> {
    for lane in &mut *lanes {
        lane.start(run.messages)?;
    }
    let mut measured = match (run.plan.figure, &mut *lanes) {
        (Figure::Latency, [lane]) => latency::measure(driver, lane, beside, run)?,
        _ => stream(driver, core, lanes, run)?,
    };
    finish(driver, lanes)?;
    for lane in lanes {
        let report = lane.peer_report();
        let sent = lane.completed();
        if let Some(arrived) = report.arrived
            && arrived != sent
        {
            return Err(lane.failed(&format!("{arrived} messages arrived there, {sent} were sent")));
        }
        let (compared, corrupt) = lane.compared();
        measured.messages += report.messages * u64::from(run.plan.bidirectional);
        measured.compared_bytes += compared + report.compared_bytes;
        measured.corrupt_bytes += corrupt + report.corrupt_bytes;
    }
    Ok(measured)
}

/// Keeps all lanes busy until the time or the messages are used up, and everything sent is complete.
fn stream(driver: &mut Driver, core: usize, lanes: &mut [Lane], run: &Run) -> Result<Measured, BenchError> {
    let mut clock = Clock::start();
    let (mut turns, mut stopped) = (0u32, false);
    let mut peak = Peak::default();
    let mut rotation = Rotation::new(lanes, driver);
    // Or what a lane did since the last look would count at once.
    let turns_uncounted = TURNS.max(rotation.turns());
    loop {
        if let Some(pass) = rotation.turn()? {
            if pass.done {
                break;
            }
            clock.set_paused(pass.paused);
        }
        turns += 1;
        if turns.is_multiple_of(turns_uncounted) || driver.sleeps() {
            let active = clock.active();
            let messages = rotation.completed();
            run.progress.set_messages(core, messages);
            if !stopped {
                peak.record(active, messages);
            }
            if !stopped && run.is_over(active) {
                rotation.stop();
                stopped = true;
            }
        }
        if !driver.poll_once() {
            driver.pause();
        }
    }
    let (active, messages) = (clock.active(), rotation.completed());
    let average = messages as f64 / active.as_secs_f64();
    let peak_messages_per_s = peak.messages_per_s.max(average);
    Ok(Measured { active, messages, peak_messages_per_s, ..Measured::default() })
}

/// Ends the test on all lanes, and waits for the other end's reports.
fn finish(driver: &mut Driver, lanes: &mut [Lane]) -> Result<(), BenchError> {
    lanes.iter().try_for_each(Lane::finish)?;
    let timeout = lanes.first().map_or(Duration::ZERO, Lane::timeout);
    let mut deadline = Instant::now() + timeout;
    let mut progress = 0;
    let mut rotation = Rotation::new(lanes, driver);
    loop {
        if rotation.turn()?.is_some() {
            let lanes = rotation.lanes();
            if lanes.iter().all(|lane| lane.peer_report().complete && lane.is_compared()) {
                return Ok(());
            }
            let of_lane =
                |lane: &Lane| lane.compared().0 + lane.arrived() + u64::from(lane.peer_report().complete);
            let progress_now = lanes.iter().map(of_lane).sum();
            if progress_now != progress {
                (progress, deadline) = (progress_now, Instant::now() + timeout);
            }
            if Instant::now() > deadline {
                return Err(BenchError::Peer("no report of what arrived came in time".into()));
            }
        }
        if !driver.poll_once() {
            driver.pause();
        }
    }
}

/// Time, less the pauses in which everything that was sent is compared.
struct Clock {
    start: Instant,
    pause: Option<Instant>,
    paused: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), pause: None, paused: Duration::ZERO }
    }

    #[inline]
    fn set_paused(&mut self, paused: bool) {
        if paused == self.pause.is_some() {
            return;
        }
        match self.pause.take() {
            Some(since) => self.paused += since.elapsed(),
            None => self.pause = Some(Instant::now()),
        }
    }

    fn active(&self) -> Duration {
        self.pause.unwrap_or_else(Instant::now).duration_since(self.start).saturating_sub(self.paused)
    }
}

/// The best rate over [`PEAK_WINDOW`]. With many lanes a window is a pass over all of them, and what is
/// counted in it was done in it or in the one before: the longer of both counts.
#[derive(Default)]
struct Peak {
    since: Duration,
    /// The window before.
    before: Duration,
    messages: u64,
    messages_per_s: f64,
}

impl Peak {
    fn record(&mut self, now: Duration, messages: u64) {
        let time = now.saturating_sub(self.since);
        if time >= PEAK_WINDOW {
            let rate = (messages - self.messages) as f64 / time.max(self.before).as_secs_f64();
            self.messages_per_s = self.messages_per_s.max(rate);
            (self.since, self.before, self.messages) = (now, time, messages);
        }
    }
}
