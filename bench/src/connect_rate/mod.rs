//! `connect-rate`: how many connections a core, its control and an application open and close in a second,
//! all on one CPU; or how long it takes to open many, how much memory they take, and what the core takes
//! beside them.
//!
//! Both ends are in this process, on a ring. Each has a device without a control thread: one thread polls
//! core and control, and answers the events of its channel. A connection is MPA's, with a queue pair of its
//! own at either end: the connecting end makes a queue pair, connects, disconnects as soon as the connection
//! is in Full Operation, and gives the queue pair back when both ends have closed.
//!
//! A device of several cores has a control thread. Each core has a thread with a channel of its own, which
//! opens connections from its core, or accepts those to its ports: they may come to any core.

mod ends;
mod idle;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use warpline::open::{self, Eal};
use warpline::{Capacity, DeviceConfig, DeviceName, MemorySource, Quotas};
use warpline_tools::arguments::Switch;
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, say};

use crate::arguments::{PollArguments, Polling};
use crate::device::{self, config};
use crate::endpoint::PATIENCE;
use crate::error::BenchError;
use crate::gate::{Gate, Passage};
use crate::link::Link;
use crate::placement::{Placement, cpus_of, is_crowded, keep_off, pin_to, words};
use ends::{Client, Target};
use idle::{IdleReport, Registrar};

/// Polls between two looks at the clock.
const POLLS: u32 = 64;

/// `connect-rate`.
#[derive(Args, Debug)]
pub struct ConnectRate {
    /// Connections of each core that are being opened or closed at a time.
    #[arg(long, short = 'c', value_name = "N", default_value = "64",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    concurrency: u32,
    /// How long to open and close connections, in seconds.
    #[arg(long, short = 'D', value_name = "S", default_value = "3",
          value_parser = clap::value_parser!(u64).range(1..=600))]
    duration: u64,
    /// Open so many connections, and leave them open: the result is the time and the memory that they take,
    /// and beside them, while they are idle, the longest poll of a core, and the time to register a region
    /// of 1 MiB and to deregister it.
    #[arg(long, value_name = "N", conflicts_with = "duration",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    open: Option<u32>,
    /// Work requests of each queue of a queue pair.
    #[arg(long, value_name = "N", default_value = "16",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    #[command(flatten)]
    polling: PollArguments,
    /// More arguments for DPDK's EAL, as one string: "--no-huge -m 512".
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    eal: String,
    /// Write the result as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The result.
#[derive(Serialize, Debug)]
struct Report {
    test: &'static str,
    cpus: Vec<usize>,
    /// Cores of each device.
    cores: usize,
    concurrency: u32,
    seconds: f64,
    /// Connections opened, and closed unless they stay open.
    connections: u64,
    per_s: f64,
    /// Bytes of memory that the process took meanwhile, for each connection, of which both ends are here.
    resident_bytes_per_connection: Option<u64>,
    /// What was measured beside those that stay open.
    #[serde(flatten)]
    idle: Option<IdleReport>,
    /// The parts of the cores of the end that connects, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_core: Vec<CoreReport>,
}

/// The part of a core.
#[derive(Serialize, Clone, Copy, Debug)]
struct CoreReport {
    core: usize,
    connections: u64,
    per_s: f64,
}

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &ConnectRate) -> Result<(), BenchError> {
    let json = OutputFile::open_some(args.json.as_deref())?;
    let ring: DeviceName = "ring".parse()?;
    let Polling { cores, cpus } = args.polling.of(&ring)?;
    let placements = Placement::of_cores(&cpus, cores)?;
    let cpus = cpus_of(&placements);
    let eal = open::eal(&[], &args.eal)?;
    keep_off(&cpus);
    say!("{}", words(&placements));
    is_crowded(placements.len(), &cpus);
    let (ends, memory) = ends(eal, &ring, args, cores)?;
    let report = thread::scope(|scope| {
        // Before this thread is pinned to a CPU that polls.
        let registrar = args.open.map(|_| Registrar::start(scope, ends[0].client.domain(), memory));
        measure(args, &placements, ends, registrar)
    })?;
    match report.resident_bytes_per_connection {
        None => say!("{:.0} connections opened and closed a second", report.per_s),
        Some(bytes) => say!(
            "{} connections are open after {:.2} s, {:.0} a second; both ends of one take {bytes} bytes of \
             resident memory",
            report.connections,
            report.seconds,
            report.per_s
        ),
    }
    for CoreReport { core, connections, per_s } in &report.by_core {
        say!(" core {core}: {connections} connections, {per_s:.0} a second");
    }
    if let Some(idle) = &report.idle {
        say!("{}", idle.line());
    }
    Ok(json.map_or(Ok(()), |file| file.write_json(&[report], false))?)
}

/// The ends at the cores with the same number of both devices.
struct Pair {
    client: Client,
    target: Target,
}

/// Opens connections, and measures beside them what `registrar` does if there is one.
fn measure(
    args: &ConnectRate,
    placements: &[Placement],
    mut ends: Vec<Pair>,
    registrar: Option<Registrar<'_>>,
) -> Result<Report, BenchError> {
    let report = measure_open(args, placements, &mut ends, registrar);
    // Whatever the result is: a core whose driver is dropped first, while others have their own, would be
    // waited for with each of its queue pairs.
    drop(ends.into_iter().flat_map(|pair| [pair.client.end(), pair.target.end()]).collect::<Vec<_>>());
    report
}

/// As [`measure`], and leaves the ends as they are.
fn measure_open(
    args: &ConnectRate,
    placements: &[Placement],
    ends: &mut [Pair],
    registrar: Option<Registrar<'_>>,
) -> Result<Report, BenchError> {
    let before = resident_bytes();
    let start = Instant::now();
    poll_all(ends, placements, Duration::from_secs(args.duration))?;
    let seconds = start.elapsed().as_secs_f64();
    let connections = ends.iter().map(|pair| pair.client.completed()).sum::<u64>();
    let by_core = ends.iter().enumerate().filter(|_| ends.len() > 1).map(|(core, pair)| {
        let connections = pair.client.completed();
        CoreReport { core, connections, per_s: connections as f64 / seconds }
    });
    let by_core = by_core.collect();
    let grown = args.open.and(resident_bytes()?.checked_sub(before?));
    let registrar = registrar.filter(|_| !interrupt::is_requested());
    let cpus = cpus_of(placements);
    let idle = registrar.map(|registrar| {
        pin_to(cpus[0])?;
        let _lcore = Eal::current().and_then(|eal| eal.register_thread().ok());
        idle::measure(ends, registrar)
    });
    let idle = idle.transpose()?;
    let cores = ends.len();
    Ok(Report {
        test: "connect-rate",
        cpus,
        cores,
        concurrency: args.concurrency,
        seconds,
        connections,
        per_s: connections as f64 / seconds,
        resident_bytes_per_connection: grown.map(|bytes| bytes / connections.max(1)),
        idle,
        by_core,
    })
}

/// Returns the ends at each core, and the source of the first device's memory.
fn ends(
    eal: Eal,
    ring: &DeviceName,
    args: &ConnectRate,
    cores: usize,
) -> Result<(Vec<Pair>, MemorySource), BenchError> {
    let [near, far] = Link::wire(eal, &open::wire_config(ring), cores, None)?;
    let connections = args.open.unwrap_or(0).max(32_768) as usize + 2048;
    let [near_config, far_config] = [1, 2].map(|host| DeviceConfig {
        duplicate_address_detection: false,
        // All connections are of one peer.
        quotas: Quotas {
            connections_per_peer: connections,
            connections_per_network: connections,
            queue_pairs_per_domain: connections,
            ..Quotas::of(&Capacity::of(connections))
        },
        capacity: Capacity::of(connections),
        ..config(Switch::On, device::on_ring(ring, host))
    });
    let plan = ends::Plan {
        cores: cores as u32,
        peer: far_config.addresses[0].address,
        depth: args.depth,
        concurrency: args.concurrency,
        open: args.open,
    };
    let targets = Target::all(far, &far_config, &plan)?;
    let clients = Client::all(near, &near_config, plan)?;
    let pairs = clients.into_iter().zip(targets).map(|(client, target)| Pair { client, target });
    Ok((pairs.collect(), near_config.memory))
}

/// Polls each of the `ends` where it is placed, until all clients are done, or one end has failed.
fn poll_all(ends: &mut [Pair], placements: &[Placement], time: Duration) -> Result<(), BenchError> {
    let course = Course { gate: Gate::new(ends.len()), failed: AtomicBool::new(false) };
    let course = &course;
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (pair, placement) in ends.iter_mut().zip(placements) {
            let Pair { client, target } = pair;
            let passage = course.gate.passage();
            match *placement {
                Placement::Together(cpu) => threads.push(scope.spawn(move || {
                    course.watch(cpu, || poll(client, time, passage, course, || target.step()))
                })),
                Placement::Apart { near, far } => {
                    threads.push(scope.spawn(move || {
                        course.watch(near, || poll(client, time, passage, course, || Ok(())))
                    }));
                    threads.push(scope.spawn(move || course.watch(far, || serve(target, course))));
                }
            }
        }
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        // All of them end before one's error counts.
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

/// What the threads that poll share.
struct Course {
    /// The clients that are done.
    gate: Gate,
    /// A thread has failed: the others need not go on.
    failed: AtomicBool,
}

impl Course {
    /// Does `work` on a CPU, and says if it has failed.
    fn watch(&self, cpu: usize, work: impl FnOnce() -> Result<(), BenchError>) -> Result<(), BenchError> {
        let done = pin_to(cpu).and_then(|()| {
            let _lcore = Eal::current().and_then(|eal| eal.register_thread().ok());
            work()
        });
        if done.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        done
    }

    fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || interrupt::is_requested()
    }
}

/// Polls a target until all clients are done.
fn serve(target: &mut Target, course: &Course) -> Result<(), BenchError> {
    while !course.gate.is_open() && !course.is_over() {
        target.step()?;
    }
    Ok(())
}

/// Polls a client until all are done, and calls `beside` after each poll. It opens no more after `time`.
fn poll(
    client: &mut Client,
    time: Duration,
    mut passage: Passage<'_>,
    course: &Course,
    mut beside: impl FnMut() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let start = Instant::now();
    let (mut polls, mut completed, mut deadline) = (0u32, 0, start + PATIENCE);
    loop {
        // The connections of others may come to this core.
        let is_done = client.step()?.is_break();
        if is_done && passage.is_open() {
            return Ok(());
        }
        beside()?;
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS) {
            let now = Instant::now();
            if client.completed() != completed || is_done {
                (completed, deadline) = (client.completed(), now + PATIENCE);
            }
            if now > deadline {
                let waited = PATIENCE.as_secs();
                return Err(BenchError::Setup(format!("no connection was opened or closed in {waited} s")));
            }
            if now > start + time {
                client.stop();
            }
            if course.is_over() {
                return Ok(());
            }
        }
    }
}

/// Returns the resident memory of this process, in bytes (proc(5)).
fn resident_bytes() -> Result<u64, BenchError> {
    let unknown = |what: &str| BenchError::Setup(format!("/proc/self/status: {what}"));
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| unknown(&error.to_string()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kibibytes.ok_or_else(|| unknown("no VmRSS"))? << 10)
}
