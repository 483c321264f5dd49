//! Bandwidth and latency of RDMA Writes, RDMA Reads, Sends and Atomic Operations: perftest's tests.
//!
//! One end connects and measures; the other, the target, listens. For each size of messages:
//!
//! 1. The connecting end opens its queue pairs. Its Request has the [plan](plan::Plan) of the test and the
//!    advertisement of its memory in the Private Data, the target's Reply has the target's.
//! 2. It says [`Start`](words::Word::Start). From then on messages stream: as many as the depth says are
//!    outstanding on every queue pair, from the first to the last. In a latency test it is one, and the next
//!    is sent when it is answered.
//! 3. It says [`Finish`](words::Word::Finish). The target reports how much it has compared, and what was
//!    wrong.
//! 4. It closes.
//!
//! More queue pairs may be beside those that are measured, with a plan of their own: they are idle, or stream
//! while one pings.
//!
//! The content of every message depends on its number, so both ends know what has to arrive ([`content`]).
//! What is compared while the stream goes on must not be written again until then. An RDMA Write from time to
//! time goes to one of two slots beside the region, with Immediate Data that name the slot and the message;
//! when the target has compared the slot, it says so, and the slot is used again. An RDMA Read goes to such a
//! slot of its own end; the buffer of a Send is posted again only when it has been compared; the results of
//! Atomic Operations are compared as they come. `--verify all` compares everything: the stream then pauses
//! when the region is full.
//!
//! Each end has a core, or several, each on a thread that polls, posts and verifies: no other thread touches
//! the data. With both ends in one process and a single free CPU, one thread does so for both.
//!
//! Queue pairs are placed over the cores in turn, at both ends. Those of a core share a Protection Domain, a
//! completion queue and a shared receive queue, if there is one, and nothing with those of others.

mod arguments;
mod budget;
mod bulk;
mod client;
mod content;
mod lane;
mod latency;
mod plan;
mod progress;
mod receives;
mod report;
mod rotation;
mod settings;
mod snapshot;
mod stream;
mod supplies;
mod target;
mod verify;
mod words;

use std::net::SocketAddr;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::Scope;
use std::time::Duration;

use warpline::{CoreDriver, Device, DeviceConfig, DeviceName, Statistics, open};
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, note, say};

use crate::arguments::{End, Ends, Polling, RunFiles};
use crate::at_core::LocalPorts;
use crate::device::{self, config};
use crate::endpoint::{Driver, Endpoint};
use crate::error::BenchError;
use crate::link::{Link, Started};
use crate::notices::Notices;
use crate::placement::{Placement, cpus_of, is_crowded, keep_off, words};
use client::{Job, Measured, Progress, Run};
use lane::Lane;
use plan::Plan;
use report::{Report, compared_line, heading};
use snapshot::Snapshot;

pub use arguments::{AtomicBw, AtomicLat, ReadBw, ReadLat, SendBw, SendLat, WriteBw, WriteLat};
pub use settings::Settings;

/// The first port of the target on a ring.
const PORT: u16 = 7471;
/// Connections of a core to one port of the target on a ring: a little fewer than there are local ports,
/// which those in TIME-WAIT keep for a minute.
const CONNECTIONS_OF_PORT: u32 = 16_000;
/// The same of several cores together, each of which has a part of the ports. Of those another part leads to
/// the core of the target that is wanted: with 3 cores 4,000 connections are of one port, and with 64, 187.
const CONNECTIONS_OF_CORES: u32 = 12_000;

/// Returns the port of the target on a ring that the queue pair `index` connects to.
const fn ring_port(index: u32, cores: u32) -> u16 {
    let connections = if cores == 1 { CONNECTIONS_OF_PORT } else { CONNECTIONS_OF_CORES / cores };
    PORT + (index / connections) as u16
}

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(settings: impl Into<Settings>) -> Result<(), BenchError> {
    let mut settings = settings.into();
    settings.check()?;
    let (name, end) = match settings.common.device.ends(PORT)? {
        Ends::Both(ring) => {
            let polling = settings.take_polling(&ring)?;
            let files = settings.common.run.open_files()?;
            settings.check_room(&ring)?;
            return run_ring(settings, &polling, &ring, files);
        }
        Ends::One(name, end) => (name, end),
    };
    let polling = settings.take_polling(&name)?;
    let RunFiles { pcap, json } = settings.common.run.open_files()?;
    settings.check_room(&name)?;
    let cpus = end.cpus(&polling)?;
    let link = settings.common.device.open_port(&name, &cpus, pcap)?;
    keep_off(&cpus);
    let config = config(settings.common.crc, name.config());
    settings.common.run.polling.cpus = cpus;
    match end {
        End::Listening(local) => run_target(&settings, link, &config, local),
        End::Connecting(peer) => run_client(&settings, &name, link, &config, peer, json),
    }
}

/// Runs both ends in this process, each on a CPU of its own where there are enough that are free.
fn run_ring(
    mut settings: Settings,
    polling: &Polling,
    ring: &DeviceName,
    files: RunFiles,
) -> Result<(), BenchError> {
    let placements = Placement::of_cores(&polling.cpus, polling.cores)?;
    let cpus = cpus_of(&placements);
    let gives_way = is_crowded(placements.len(), &cpus);
    settings.common.run.polling.cpus = cpus;
    let settings = &settings;
    let eal = settings.common.device.start_eal()?;
    keep_off(&settings.common.run.polling.cpus);
    say!("memory: {}", eal.memory_mode());
    say!("{}", words(&placements));
    let [near, far] = Link::wire(eal, &open::wire_config(ring), polling.cores, files.pcap)?;
    let [near_config, far_config] =
        [1, 2].map(|host| config(settings.common.crc, device::on_ring(ring, host)));
    let (near, far) = (near.start(&near_config)?, far.start(&far_config)?);
    let reports = std::thread::scope(|scope| {
        let connecting = Arc::new(AtomicBool::new(false));
        let (lanes, target_works) = target::work(settings.cores, || false);
        let (jobs, client_works) = client_works(near.cores.len(), &connecting);
        let driver = |core| Driver::new(core).sleeping(settings.common.events).giving_way(gives_way);
        let near_cores = near.cores.into_iter().map(driver).zip(client_works);
        let far_cores = far.cores.into_iter().map(driver).zip(target_works);
        let (mut clients, mut targets) = (Vec::new(), Vec::new());
        for ((placement, (near, client)), (far, target)) in placements.iter().zip(near_cores).zip(far_cores) {
            clients.push(match *placement {
                Placement::Together(cpu) => {
                    Endpoint::start(scope, near.with_other_end(far, target), cpu, client)
                }
                Placement::Apart { near: near_cpu, far: far_cpu } => {
                    targets.push(Endpoint::start(scope, far, far_cpu, target));
                    Endpoint::start(scope, near, near_cpu, client)
                }
            });
        }
        let peer = SocketAddr::new(far_config.addresses[0].address, PORT);
        let (target, device) = (&far.device, &near.device);
        let client = Client::new(settings, ring, device, peer, Some(target), jobs, connecting);
        let (measured, served) = measure_and_serve(client, target, lanes);
        if let (Err(_), Err(error)) = (&measured, &served) {
            note!("warpline-bench: target: {error}");
        }
        say_counters("client", clients)?;
        say_counters("target", targets)?;
        let measured = measured?;
        served?;
        Ok::<_, BenchError>(measured)
    })?;
    report(settings, &reports, files.json)
}

/// Has `target` take the connections of `client`, both in this process, until it has measured all. Returns
/// its reports, and what the target has found to be wrong. Threads that poll both ends go on until `lanes` is
/// dropped.
fn measure_and_serve(
    mut client: Client<'_>,
    target: &Device,
    lanes: target::Lanes,
) -> (Result<Vec<Report>, BenchError>, Result<u64, BenchError>) {
    let settings = client.settings;
    // The target is to end though no connection comes: it would wait for ever.
    let cancelled = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel::<()>();
        let server = scope.spawn(move || {
            let is_over = || cancelled.load(Ordering::Relaxed);
            let ports = PORT..=ring_port(settings.queue_pairs() - 1, settings.cores);
            target::serve(target, ports, settings, &lanes, is_over, || drop(ready))
        });
        // A target that has failed reports that itself: in either case the channel ends.
        let _ = is_ready.recv();
        let measured = client.measure_all();
        if measured.is_err() || interrupt::is_requested() {
            cancelled.store(true, Ordering::Relaxed);
        }
        drop(client);
        (measured, server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Returns the channels to the work of each of `cores` cores of the end that connects, and that work.
fn client_works(cores: usize, connecting: &Arc<AtomicBool>) -> (Vec<mpsc::Sender<Job>>, Vec<target::Work>) {
    let works = (0..cores).map(|core| {
        let (jobs, taken) = mpsc::channel();
        let work: target::Work = Box::new(client::work(core, taken, connecting.clone()));
        (jobs, work)
    });
    works.unzip()
}

/// Waits for the cores of an end, and says what each has counted.
fn say_counters(end: &str, cores: Vec<Endpoint<'_>>) -> Result<(), BenchError> {
    let several = cores.len() > 1;
    let counters: Vec<_> = cores.into_iter().map(Endpoint::join).collect();
    for (core, counters) in counters.into_iter().enumerate() {
        let counters = counters?;
        let of_core = if several { format!(" core {core}") } else { String::new() };
        say!("{end}{of_core}: {}", tcp_summary(&counters.own));
        if let Some(target) = &counters.other {
            say!("target{of_core}: {}", tcp_summary(target));
        }
    }
    Ok(())
}

fn run_target(
    settings: &Settings,
    link: Link,
    config: &DeviceConfig,
    local: SocketAddr,
) -> Result<(), BenchError> {
    let Started { device, cores } = link.start(config)?;
    let _notices = Notices::print(&device);
    let corrupt = std::thread::scope(|scope| {
        let (lanes, works) = target::work(settings.cores, interrupt::is_requested);
        let endpoints = start_cores(scope, settings, cores, works);
        note!("waiting at {local}");
        let over = interrupt::is_requested;
        let ports = local.port()..=local.port();
        let served = target::serve(&device, ports, settings, &lanes, over, || ());
        drop(lanes);
        say_counters("target", endpoints)?;
        served
    })?;
    if corrupt > 0 { Err(BenchError::Corrupt(corrupt)) } else { Ok(()) }
}

fn run_client(
    settings: &Settings,
    name: &DeviceName,
    link: Link,
    config: &DeviceConfig,
    peer: SocketAddr,
    json: Option<OutputFile>,
) -> Result<(), BenchError> {
    let Started { device, cores } = link.start(config)?;
    let _notices = Notices::print(&device);
    let reports = std::thread::scope(|scope| {
        let connecting = Arc::new(AtomicBool::new(false));
        let (jobs, works) = client_works(cores.len(), &connecting);
        let endpoints = start_cores(scope, settings, cores, works);
        let mut client = Client::new(settings, name, &device, peer, None, jobs, connecting);
        let measured = client.measure_all();
        drop(client);
        say_counters("client", endpoints)?;
        measured
    })?;
    report(settings, &reports, json)
}

/// Starts a thread for each core of the only end in this process, which does its part of `works`.
fn start_cores<'s, F>(
    scope: &'s Scope<'s, '_>,
    settings: &Settings,
    cores: Vec<CoreDriver>,
    works: Vec<F>,
) -> Vec<Endpoint<'s>>
where
    F: FnMut(&mut Driver) -> ControlFlow<()> + Send + 's,
{
    let cpus = &settings.common.run.polling.cpus;
    let gives_way = is_crowded(cores.len(), cpus);
    let driver = |core| Driver::new(core).sleeping(settings.common.events).giving_way(gives_way);
    let parts = cores.into_iter().zip(works).zip(cpus);
    parts.map(|((core, work), cpu)| Endpoint::start(scope, driver(core), *cpu, work)).collect()
}

/// Writes the reports, and fails if they say that data was damaged, or a limit was not reached.
fn report(settings: &Settings, reports: &[Report], json: Option<OutputFile>) -> Result<(), BenchError> {
    if let Some(file) = json {
        file.write_json(reports, settings.swept)?;
    }
    match reports.iter().map(|report| report.transfer.corrupt_bytes).sum() {
        0 => check_limits(settings, reports),
        corrupt => Err(BenchError::Corrupt(corrupt)),
    }
}

/// Checks the limits that the command line sets: each size has to reach them.
fn check_limits(settings: &Settings, reports: &[Report]) -> Result<(), BenchError> {
    for rate in reports.iter().filter_map(|report| report.rate.as_ref()) {
        let bandwidth = ("the average in Gb/s", rate.gbit_per_s, settings.bandwidth.limit_bw);
        let messages =
            ("the rate in million messages a second", rate.mmsg_per_s, settings.bandwidth.limit_msgrate);
        for (figure, got, limit) in [bandwidth, messages] {
            if let Some(limit) = limit
                && got < limit
            {
                return Err(BenchError::BelowLimit { figure, got, limit });
            }
        }
    }
    Ok(())
}

/// The end that connects, and the channels to its cores.
struct Client<'c> {
    settings: &'c Settings,
    name: &'c DeviceName,
    device: &'c Device,
    peer: SocketAddr,
    /// The other end, if it is in this process.
    target: Option<&'c Device>,
    /// By core.
    jobs: Vec<mpsc::Sender<Job>>,
    /// Set while it waits for a connection to another process.
    connecting: Arc<AtomicBool>,
    ports: LocalPorts,
}

impl<'c> Client<'c> {
    fn new(
        settings: &'c Settings,
        name: &'c DeviceName,
        device: &'c Device,
        peer: SocketAddr,
        target: Option<&'c Device>,
        jobs: Vec<mpsc::Sender<Job>>,
        connecting: Arc<AtomicBool>,
    ) -> Self {
        Self { settings, name, device, peer, target, jobs, connecting, ports: LocalPorts::default() }
    }

    /// Measures every size, or those for which there is time until a signal.
    fn measure_all(&mut self) -> Result<Vec<Report>, BenchError> {
        say!("{}", heading(self.settings));
        let mut reports = Vec::new();
        for size in &self.settings.sizes {
            let report = match self.measure(&self.settings.plan(*size)) {
                Err(_) if interrupt::is_requested() && !reports.is_empty() => break,
                Err(_) if interrupt::is_requested() => return Err(BenchError::interrupted()),
                report => report?,
            };
            say!("{}", report.line());
            report.core_lines().iter().for_each(|line| say!("{line}"));
            report.time_lines().iter().for_each(|line| say!("{line}"));
            reports.push(report);
            if interrupt::is_requested() {
                break;
            }
        }
        say!("{}", compared_line(&reports));
        Ok(reports)
    }

    /// Connects, measures one size, and closes.
    fn measure(&mut self, plan: &Plan) -> Result<Report, BenchError> {
        let settings = self.settings;
        self.connecting.store(self.target.is_none(), Ordering::Relaxed);
        let qps = settings.bandwidth.qps;
        let (count, plan_beside) = settings.beside();
        let cores = self.jobs.len();
        let mut lanes =
            (0..cores).map(|core| self.connect(core, plan, 0..qps)).collect::<Result<Vec<_>, _>>()?;
        let beside = (0..cores).map(|core| self.connect(core, &plan_beside, qps..qps + count));
        let mut beside = beside.collect::<Result<Vec<_>, _>>()?;
        self.connecting.store(false, Ordering::Relaxed);
        let (messages, infinite) = (settings.messages(), settings.bandwidth.run_infinitely);
        let seconds = Duration::from_secs(settings.seconds().into());
        let measuring = lanes.iter().filter(|lanes| !lanes.is_empty()).count();
        let run = Run {
            plan: *plan,
            messages,
            duration: (messages.is_none() && !infinite).then_some(seconds),
            has_beside: settings.latency.beside.is_some(),
            keeps_times: settings.latency.report_unsorted,
            progress: Arc::new(Progress::new(cores, measuring)),
        };
        let before = Snapshot::take(self.device, self.target)?;
        let (answer, answered) = mpsc::channel();
        // The companions at a core that measures nothing stay open all the same.
        let mut unmeasured = Vec::new();
        for (jobs, (lanes, mut beside)) in self.jobs.iter().zip(lanes.drain(..).zip(beside.drain(..))) {
            if lanes.is_empty() {
                unmeasured.append(&mut beside);
                continue;
            }
            let job = Job { lanes, beside, run: run.clone(), answer: answer.clone() };
            let stopped = |_| BenchError::Setup("a core of this end has stopped".into());
            jobs.send(job).map_err(stopped)?;
        }
        drop(answer);
        let answers = if infinite {
            progress::wait_for_signal(&answered, measuring, &run, seconds)?
        } else {
            progress::wait(&answered, measuring, &run, qps)?
        };
        let (mut of_cores, mut lanes) = (Vec::new(), unmeasured);
        for mut answer in answers {
            lanes.append(&mut answer.lanes);
            of_cores.push((answer.core, answer.measured));
        }
        let of_cores = of_cores.into_iter().map(|(core, measured)| Ok((core, measured?)));
        let of_cores = of_cores.collect::<Result<Vec<_>, BenchError>>()?;
        let after = Snapshot::take(self.device, self.target)?;
        lanes.into_iter().for_each(Lane::close);
        let by_core = of_cores.iter().map(|(core, measured)| snapshot::of_core(*core, plan, measured));
        let by_core = by_core.filter(|_| cores > 1).collect();
        let measured = Measured::sum(of_cores.into_iter().map(|(_, measured)| measured).collect());
        Ok(after.report(&before, settings, self.name, plan, &measured, by_core))
    }

    /// Connects those of the queue pairs with these numbers that are of `core`: they are placed over the
    /// cores in turn, at both ends.
    fn connect(&mut self, core: usize, plan: &Plan, numbers: Range<u32>) -> Result<Vec<Lane>, BenchError> {
        let cores = self.jobs.len();
        let peers: Vec<_> = numbers
            .filter(|number| *number as usize % cores == core)
            .map(|number| match self.target {
                Some(_) => SocketAddr::new(self.peer.ip(), ring_port(number, cores as u32)),
                None => self.peer,
            })
            .collect();
        let plan = Plan { core: (cores > 1).then_some(core as u8), ..*plan };
        client::connect(self.device, &peers, self.settings, &plan, &mut self.ports)
    }
}

/// Returns a summary of what TCP and MPA did at a core.
fn tcp_summary(statistics: &Statistics) -> String {
    let tcp = &statistics.tcp;
    format!(
        "TCP: {} segments with data sent, {} again ({} timeouts, {} fast retransmits), {} received out of \
         order; MPA: {} FPDUs sent, {} received, at most {} frames held, {} cut",
        tcp.data_segments_sent,
        tcp.retransmitted_segments,
        tcp.timeouts,
        tcp.fast_retransmits,
        tcp.out_of_order_segments,
        statistics.fpdus_sent,
        statistics.fpdus_received,
        tcp.held_frames_peak,
        tcp.cut_segments,
    )
}
