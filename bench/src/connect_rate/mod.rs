//! `connect-rate`: how many connections a core, its control and an application open and close in a second,
//! all on one CPU; or how long it takes to open many, how much memory they take, and what the core takes
//! beside them.
//!
//! Both ends are in this process, on a ring. Each has a device without a control thread: one thread polls
//! core and control, and answers the events of its channel. A connection is MPA's, with a queue pair of its
//! own at either end: the connecting end makes a queue pair, connects, disconnects as soon as the connection
//! is in Full Operation, and gives the queue pair back when both ends have closed.

mod ends;
mod idle;

use std::ops::ControlFlow;
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

use crate::device::{self, BenchDevice, config};
use crate::endpoint::PATIENCE;
use crate::error::BenchError;
use crate::placement::{Placement, keep_off, parse_cpu, pin_to};
use ends::{Client, Target};
use idle::{IdleReport, Registrar};

/// Polls between two looks at the clock.
const POLLS: u32 = 64;

/// `connect-rate`.
#[derive(Args, Debug)]
pub struct ConnectRate {
    /// Connections that are being opened or closed at a time.
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
    /// The CPUs that poll: one for each end, or a single one for both. Without it, the idlest two that are
    /// free, or the idlest one.
    #[arg(long, value_name = "CPU", value_delimiter = ',', num_args = 1..=2, value_parser = parse_cpu)]
    cpus: Vec<usize>,
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
}

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &ConnectRate) -> Result<(), BenchError> {
    let json = OutputFile::open_some(args.json.as_deref())?;
    let placement = Placement::choose(&args.cpus)?;
    let eal = open::eal(&[], &args.eal)?;
    keep_off(&placement.cpus());
    say!("{placement}");
    let (client, target, memory) = ends(eal, args)?;
    let report = thread::scope(|scope| {
        // Before this thread is pinned to a CPU that polls.
        let registrar = args.open.map(|_| Registrar::start(scope, client.domain(), memory));
        measure(args, placement, client, target, registrar)
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
    if let Some(idle) = &report.idle {
        say!("{}", idle.line());
    }
    Ok(json.map_or(Ok(()), |file| file.write_json(&[report], false))?)
}

/// Opens connections, and measures beside them what `registrar` does if there is one.
fn measure(
    args: &ConnectRate,
    placement: Placement,
    mut client: Client,
    mut target: Target,
    registrar: Option<Registrar<'_>>,
) -> Result<Report, BenchError> {
    let before = resident_bytes();
    let start = Instant::now();
    let end = Duration::from_secs(args.duration);
    let polled = match placement {
        Placement::Apart { near, far } => poll_apart(&mut client, &mut target, [near, far], end),
        Placement::Together(cpu) => poll_together(&mut client, &mut target, cpu, end),
    };
    let seconds = start.elapsed().as_secs_f64();
    polled?;
    let connections = client.completed();
    let grown = args.open.and(resident_bytes()?.checked_sub(before?));
    let registrar = registrar.filter(|_| !interrupt::is_requested());
    let idle = registrar.map(|registrar| idle::measure(&mut client, &mut target, registrar)).transpose()?;
    Ok(Report {
        test: "connect-rate",
        cpus: placement.cpus(),
        concurrency: args.concurrency,
        seconds,
        connections,
        per_s: connections as f64 / seconds,
        resident_bytes_per_connection: grown.map(|bytes| bytes / connections.max(1)),
        idle,
    })
}

/// Returns both ends, and the source of the client's memory.
fn ends(eal: Eal, args: &ConnectRate) -> Result<(Client, Target, MemorySource), BenchError> {
    let ring: DeviceName = "ring".parse()?;
    let (near, far) = open::ring_pair(eal, &open::wire_config(&ring))?;
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
        ..config(Switch::On, device::on_ring(&ring, host))
    });
    let peer = far_config.addresses[0].address;
    let plan = ends::Plan { peer, depth: args.depth, concurrency: args.concurrency, open: args.open };
    let target = Target::new(BenchDevice::new(far, None, "ring")?, &far_config, &plan)?;
    let client = Client::new(BenchDevice::new(near, None, "ring")?, &near_config, plan)?;
    Ok((client, target, near_config.memory))
}

/// Polls the ends on a CPU each, until the client is done.
fn poll_apart(
    client: &mut Client,
    target: &mut Target,
    [near, far]: [usize; 2],
    end: Duration,
) -> Result<(), BenchError> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let served = scope.spawn(|| {
            pin_to(far)?;
            let _lcore = Eal::current().and_then(|eal| eal.register_thread().ok());
            while !done.load(Ordering::Relaxed) {
                target.step()?;
            }
            Ok(())
        });
        let measured = pin_to(near).and_then(|()| {
            let _lcore = Eal::current().and_then(|eal| eal.register_thread().ok());
            poll(client, end, |()| Ok(()))
        });
        done.store(true, Ordering::Relaxed);
        let served = served.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        measured.and(served)
    })
}

/// Polls both ends on one CPU, until the client is done.
fn poll_together(
    client: &mut Client,
    target: &mut Target,
    cpu: usize,
    end: Duration,
) -> Result<(), BenchError> {
    pin_to(cpu)?;
    poll(client, end, |()| target.step())
}

/// Polls the client until it is done, and calls `beside` after each poll.
fn poll(
    client: &mut Client,
    end: Duration,
    mut beside: impl FnMut(()) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let start = Instant::now();
    let (mut polls, mut completed, mut deadline) = (0u32, 0, start + PATIENCE);
    loop {
        if let ControlFlow::Break(()) = client.step()? {
            return Ok(());
        }
        beside(())?;
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS) {
            let now = Instant::now();
            if client.completed() != completed {
                (completed, deadline) = (client.completed(), now + PATIENCE);
            }
            if now > deadline {
                let waited = PATIENCE.as_secs();
                return Err(BenchError::Setup(format!("no connection was opened or closed in {waited} s")));
            }
            if now > start + end {
                client.stop();
            }
            if interrupt::is_requested() {
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
