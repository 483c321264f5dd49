//! The end that writes.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use warpline::{
    Access, Advertisement, Completion, ConnectConfig, Device, MemoryRegion, Revision, STag, SendBatch,
};

use super::arguments::WriteBw;
use super::sizes::{ROUND_MESSAGES, SECONDS, TIMEOUT};
use crate::endpoint::{Driver, received};
use crate::error::BenchError;
use crate::lane::{Lane, MESSAGE};
use crate::pattern::Pattern;

/// A lane of the writer: the source and the destination of its Writes.
pub struct WriterLane {
    lane: Lane,
    source: MemoryRegion,
    sink: Advertisement,
    /// Completions that were polled together.
    polled: Vec<Completion>,
    /// Writes of the round that were posted and completed.
    posted: u64,
    completed: u64,
    /// Bytes of the round that arrived wrong, once the target has answered.
    verdict: Option<u64>,
}

/// Connects `args.qps` queue pairs and agrees with the target on their buffers.
///
/// # Errors
///
/// [`BenchError`].
pub fn connect(
    device: &Device,
    peer: SocketAddr,
    args: &WriteBw,
    region_bytes: usize,
) -> Result<Vec<WriterLane>, BenchError> {
    let pattern = Pattern::new(region_bytes);
    (0..args.qps).map(|_| connect_one(device, peer, args, &pattern, region_bytes)).collect()
}

fn connect_one(
    device: &Device,
    peer: SocketAddr,
    args: &WriteBw,
    pattern: &Pattern,
    region_bytes: usize,
) -> Result<WriterLane, BenchError> {
    let lane = Lane::new(device, args.depth, args.packing.is_on())?;
    let source = lane
        .domain
        .allocate(pattern.source().len(), Access::empty())
        .map_err(|error| BenchError::Memory(error.to_string()))?;
    let fits = source.write(0, pattern.source());
    debug_assert!(fits, "the source has the pattern's length");
    let config = ConnectConfig { markers: args.markers.is_on(), ..ConnectConfig::default() };
    let config = args.setup.connect(Revision::TwoThenOne, config);
    lane.qp.connect(peer, &config).map_err(|error| BenchError::Connect(peer, error))?;
    lane.send(&Advertisement { to: 0, stag: STag(0), len: region_bytes as u32 })?;
    let sink = lane.wait_for_message(TIMEOUT)?;
    if (sink.len as usize) < region_bytes {
        return Err(
            lane.failed(&format!("it gave {} bytes of buffer, {region_bytes} were asked for", sink.len))
        );
    }
    let polled = Vec::with_capacity(BATCH);
    Ok(WriterLane { lane, source, sink, polled, posted: 0, completed: 0, verdict: None })
}

/// Writes posted before the core is polled again, and completions polled, at a time.
const BATCH: usize = 16;
const _: () = assert!(BATCH <= SendBatch::CAPACITY);

/// The measurement to make.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    size: u32,
    depth: u64,
    /// Messages of a full round, on each lane.
    round_messages: u64,
    /// Messages in all, on each lane.
    messages: Option<u64>,
    /// How long to go on.
    duration: Duration,
    verify: bool,
}

impl Run {
    /// Returns the measurement of messages of `size` bytes.
    pub fn new(args: &WriteBw, size: u32, region_bytes: usize) -> Self {
        let duration = args.duration.unwrap_or(SECONDS);
        Self {
            size,
            depth: args.depth.into(),
            round_messages: (region_bytes / size as usize).min(ROUND_MESSAGES) as u64,
            messages: args.iters,
            duration: Duration::from_secs(duration.into()),
            verify: args.verify.is_on(),
        }
    }
}

/// The results of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Time spent transferring.
    pub active: Duration,
    /// Messages on all lanes.
    pub messages: u64,
    /// Bytes per second of the best round.
    pub peak_bytes_per_s: f64,
    /// Bytes that arrived wrong.
    pub corrupt_bytes: u64,
}

/// Work for the writer's core.
pub enum Job {
    /// Serve these lanes.
    Take(Vec<WriterLane>),
    /// Measure, add to the count of bytes, and answer.
    Measure(Run, Arc<AtomicU64>, mpsc::Sender<Result<Measured, BenchError>>),
    /// Return the lanes, to be closed by a thread that need not poll.
    GiveBack(mpsc::Sender<Vec<WriterLane>>),
}

impl WriterLane {
    /// Sends a FIN, and waits for the other end's.
    pub fn close(self) {
        self.lane.qp.disconnect();
        // The other end may be gone already.
        let _ = self.lane.qp.wait_closed(TIMEOUT);
    }

    fn begin_round(&mut self) {
        (self.posted, self.completed, self.verdict) = (0, 0, None);
    }

    /// Takes completions and posts more Writes; returns true if all of the round are complete.
    fn write(&mut self, run: &Run, round: u64, messages: u64) -> Result<bool, BenchError> {
        while self.lane.completions.poll_into(&mut self.polled) > 0 {
            for completion in self.polled.drain(..) {
                self.lane.message(&completion)?;
                self.completed += u64::from(completion.id != MESSAGE);
            }
        }
        self.post(run, round, messages.min(self.completed + run.depth).min(self.posted + BATCH as u64))?;
        Ok(self.completed == messages)
    }

    /// Posts the Writes of a round up to the one with the number `until`.
    fn post(&mut self, run: &Run, round: u64, until: u64) -> Result<(), BenchError> {
        if until <= self.posted {
            return Ok(());
        }
        let mut batch = self.lane.qp.batch();
        for number in self.posted..until {
            let at = number * u64::from(run.size);
            let local = self.source.slice(Pattern::offset(round) + at as usize, run.size);
            batch
                .write(number, local, &self.sink, at)
                .map_err(|error| self.lane.failed(&error.to_string()))?;
        }
        batch.commit().map_err(|error| self.lane.failed(&error.to_string()))?;
        self.posted = until;
        Ok(())
    }

    fn ask_for_verdict(&self, round: u64, octets: u64) -> Result<(), BenchError> {
        self.lane.send(&Advertisement { to: round, stag: STag(0), len: octets as u32 })
    }

    /// Returns true if the target has compared the round's bytes.
    fn has_verdict(&mut self, octets: u64) -> Result<bool, BenchError> {
        while let Some(completion) = self.lane.completions.poll() {
            if let Some(message) = self.lane.message(&completion)? {
                let uncompared = octets - u64::from(message.len).min(octets);
                self.verdict = Some(message.to + uncompared);
            }
        }
        Ok(self.verdict.is_some())
    }
}

/// Returns the writer's work between polls: does the jobs that come over `jobs`.
pub fn work(jobs: mpsc::Receiver<Job>) -> impl FnMut(&mut Driver) -> ControlFlow<()> + Send {
    let mut lanes = Vec::new();
    move |driver| {
        match received(&jobs)? {
            Some(Job::Take(more)) => lanes = more,
            Some(Job::Measure(run, octets, answer)) => {
                // Fails only when the program is ending.
                let _ = answer.send(measure(driver, &mut lanes, &run, &octets));
            }
            Some(Job::GiveBack(answer)) => {
                let _ = answer.send(core::mem::take(&mut lanes));
            }
            None => {}
        }
        ControlFlow::Continue(())
    }
}

/// Measures round after round until the time or the messages are used up.
fn measure(
    driver: &mut Driver,
    lanes: &mut [WriterLane],
    run: &Run,
    octets: &AtomicU64,
) -> Result<Measured, BenchError> {
    let mut measured = Measured::default();
    let mut per_lane = 0;
    let mut round = 0;
    loop {
        let left = run.messages.map_or(run.round_messages, |messages| messages - per_lane);
        let enough = if run.messages.is_some() { left == 0 } else { measured.active >= run.duration };
        if enough {
            return Ok(measured);
        }
        let messages = left.min(run.round_messages);
        let active = transfer(driver, lanes, run, round, messages)?;
        per_lane += messages;
        let sent = messages * lanes.len() as u64;
        let sent_octets = sent * u64::from(run.size);
        measured.active += active;
        measured.messages += sent;
        measured.peak_bytes_per_s = measured.peak_bytes_per_s.max(sent_octets as f64 / active.as_secs_f64());
        octets.fetch_add(sent_octets, Ordering::Relaxed);
        if run.verify {
            measured.corrupt_bytes += verify(driver, lanes, round, messages * u64::from(run.size))?;
        }
        round += 1;
    }
}

/// Makes one round on all lanes. Returns the time from the first post to the last completion.
fn transfer(
    driver: &mut Driver,
    lanes: &mut [WriterLane],
    run: &Run,
    round: u64,
    messages: u64,
) -> Result<Duration, BenchError> {
    lanes.iter_mut().for_each(WriterLane::begin_round);
    let start = Instant::now();
    loop {
        let mut done = true;
        for lane in &mut *lanes {
            done &= lane.write(run, round, messages)?;
        }
        if done {
            return Ok(start.elapsed());
        }
        if !driver.poll_once() {
            std::hint::spin_loop();
        }
    }
}

/// Has the target compare the round. Returns the number of wrong bytes.
fn verify(driver: &mut Driver, lanes: &mut [WriterLane], round: u64, octets: u64) -> Result<u64, BenchError> {
    for lane in &*lanes {
        lane.ask_for_verdict(round, octets)?;
    }
    let deadline = Instant::now() + TIMEOUT;
    loop {
        driver.poll_once();
        let mut done = true;
        for lane in &mut *lanes {
            done &= lane.has_verdict(octets)?;
        }
        if done {
            return Ok(lanes.iter().filter_map(|lane| lane.verdict).sum());
        }
        if Instant::now() > deadline {
            return Err(BenchError::Peer("no verdict on a round came in time".into()));
        }
    }
}
