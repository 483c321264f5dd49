//! The end that connects, and measures.

use std::net::SocketAddr;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use warpline::{Advertisement, ConnectConfig, ConnectError, Device, Revision};
use warpline_tools::interrupt;

use super::lane::{Lane, Role};
use super::latency::{self, Alone, Pings};
use super::plan::{Figure, Plan};
use super::rotation::Rotation;
use super::settings::Settings;
use super::supplies::Supplies;
use crate::endpoint::{Driver, received};
use crate::error::BenchError;

/// Turns of the loop between two looks at the clock.
const TURNS: u32 = 64;
/// The time over which the peak rate is taken.
const PEAK_WINDOW: Duration = Duration::from_millis(10);

/// Connects the queue pairs of `plan` with these numbers, each to the address that `peer_of` returns for it,
/// and agrees with the target on their buffers.
///
/// # Errors
///
/// [`BenchError`].
pub fn connect(
    device: &Device,
    peer_of: impl Fn(u32) -> SocketAddr,
    settings: &Settings,
    plan: &Plan,
    numbers: Range<u32>,
) -> Result<Vec<Lane>, BenchError> {
    let supplies = Supplies::new(device, plan).reporting_together(numbers.len() as u32);
    numbers.map(|number| connect_one(peer_of(number), settings, &supplies)).collect()
}

fn connect_one(peer: SocketAddr, settings: &Settings, supplies: &Supplies) -> Result<Lane, BenchError> {
    let mut lane = Lane::new(supplies, settings, Role::Connecting)?;
    let config = ConnectConfig {
        markers: settings.common.markers.is_on(),
        private_data: supplies.plan.encode(lane.advertisement()?),
        timeout: lane.timeout(),
        ..ConnectConfig::default()
    };
    let config = settings.common.setup.connect(Revision::TwoThenOne, config);
    let connected = lane.qp.connect(peer, &config).map_err(|error| match &error {
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
    /// All times are kept in their order.
    pub keeps_times: bool,
    /// Messages that are complete, for others to see.
    pub progress: Arc<AtomicU64>,
}

impl Run {
    /// Returns true if it is to end after `active`, or the command is to end.
    pub fn is_over(&self, active: Duration) -> bool {
        self.duration.is_some_and(|duration| active >= duration) || interrupt::is_requested()
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

/// Work for the core of the end that measures: the queue pairs, and the channel back.
pub struct Job {
    /// The queue pairs, connected.
    pub lanes: Vec<Lane>,
    /// Those beside them.
    pub beside: Vec<Lane>,
    /// What to measure.
    pub run: Run,
    /// Takes the result, and all queue pairs to be closed by a thread that need not poll.
    pub answer: mpsc::Sender<(Vec<Lane>, Result<Measured, BenchError>)>,
}

/// Returns the work between polls: does the jobs that come over `jobs`. If the command is to end while it is
/// `connecting`, the core is given up, and so is the connection.
pub fn work(
    jobs: mpsc::Receiver<Job>,
    connecting: Arc<AtomicBool>,
) -> impl FnMut(&mut Driver) -> ControlFlow<()> + Send {
    move |driver| {
        if interrupt::is_requested() && connecting.load(Ordering::Relaxed) {
            driver.give_up();
        }
        if let Some(Job { mut lanes, mut beside, run, answer }) = received(&jobs)? {
            let measured = measure(driver, &mut lanes, &mut beside, &run);
            lanes.append(&mut beside);
            // Fails only when the program is ending.
            let _ = answer.send((lanes, measured));
        }
        ControlFlow::Continue(())
    }
}

fn measure(
    driver: &mut Driver,
    lanes: &mut [Lane],
    beside: &mut [Lane],
    run: &Run,
) -> Result<Measured, BenchError> {
    for lane in &mut *lanes {
        lane.start(run.messages)?;
    }
    let mut measured = match (run.plan.figure, &mut *lanes) {
        (Figure::Latency, [lane]) => latency::measure(driver, lane, beside, run)?,
        _ => stream(driver, lanes, run)?,
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
fn stream(driver: &mut Driver, lanes: &mut [Lane], run: &Run) -> Result<Measured, BenchError> {
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
            run.progress.store(messages, Ordering::Relaxed);
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
