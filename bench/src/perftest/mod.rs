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
//! Each end has one core on a thread that polls, posts and verifies: no other thread touches the data. With
//! both ends in one process and a single free CPU, one thread does so for both.

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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use warpline::{Device, DeviceConfig, DeviceName, Statistics, open};
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, note, say};

use crate::arguments::{End, Ends, RunFiles};
use crate::device::{self, BenchDevice, config};
use crate::endpoint::{Driver, Endpoint};
use crate::error::BenchError;
use crate::notices::Notices;
use crate::placement::{Placement, keep_off};
use client::{Job, Run};
use lane::Lane;
use plan::Plan;
use report::{Report, compared_line, heading};
use snapshot::Snapshot;

pub use arguments::{AtomicBw, AtomicLat, ReadBw, ReadLat, SendBw, SendLat, WriteBw, WriteLat};
pub use settings::Settings;

/// The first port of the target on a ring.
const PORT: u16 = 7471;
/// Connections to one port of the target on a ring: a little fewer than there are local ports, which those in
/// TIME-WAIT keep for a minute.
const CONNECTIONS_OF_PORT: u32 = 16_000;

/// Returns the port of the target on a ring that the queue pair `index` connects to.
const fn ring_port(index: u32) -> u16 {
    PORT + (index / CONNECTIONS_OF_PORT) as u16
}

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(settings: impl Into<Settings>) -> Result<(), BenchError> {
    let mut settings = settings.into();
    settings.check()?;
    let RunFiles { pcap, json } = settings.common.run.open_files()?;
    let (name, end) = match settings.common.device.ends(PORT)? {
        Ends::Both(ring) => {
            settings.check_room(&ring)?;
            return run_ring(settings, &ring, RunFiles { pcap, json });
        }
        Ends::One(name, end) => (name, end),
    };
    settings.check_room(&name)?;
    let cpu = end.cpu(&settings.common.run.cpus)?;
    let port = settings.common.device.open_port(&name, cpu)?;
    keep_off(&[cpu]);
    settings.common.run.cpus = vec![cpu];
    let device = BenchDevice::new(port, pcap, name.kind().word())?;
    let config = config(settings.common.crc, name.config());
    match end {
        End::Listening(local) => run_target(&settings, device, &config, local, cpu),
        End::Connecting(peer) => {
            let near = Near { name: &name, device, config, cpu };
            run_client(&settings, near, peer, json, None)
        }
    }
}

/// The end that is written to, when it is in this process too.
struct RingTarget<'r> {
    device: &'r Device,
    /// Its core and its work, if the other end's thread polls both.
    polled_here: Option<(Driver, target::Work)>,
    /// Set when no connection will come any more: the target would wait for ever.
    cancelled: &'r AtomicBool,
}

/// Runs both ends in this process, each on a CPU of its own where two are free.
fn run_ring(mut settings: Settings, ring: &DeviceName, files: RunFiles) -> Result<(), BenchError> {
    let placement = Placement::choose(&settings.common.run.cpus)?;
    settings.common.run.cpus = placement.cpus();
    let settings = &settings;
    let eal = settings.common.device.start_eal()?;
    keep_off(&placement.cpus());
    say!("memory: {}", eal.memory_mode());
    say!("{placement}");
    let wire = open::wire_config(ring);
    let (near, far) = open::ring_pair(eal, &wire)?;
    let near = BenchDevice::new(near, files.pcap, "ring")?;
    let far = BenchDevice::new(far, None, "ring")?;
    let [near_config, far_config] =
        [1, 2].map(|host| config(settings.common.crc, device::on_ring(ring, host)));
    let (target, driver) = Device::start_manual(far, &far_config)?;
    let peer = SocketAddr::new(far_config.addresses[0].address, PORT);
    let cancelled = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (lanes, step) = target::work(|| false);
        let driver = Driver::new(driver).sleeping(settings.common.events);
        let (cpu, core, mut polled_here) = match placement {
            Placement::Apart { near, far } => (near, Some(Endpoint::start(scope, driver, far, step)), None),
            Placement::Together(cpu) => (cpu, None, Some((driver, step))),
        };
        let (ready, is_ready) = mpsc::channel::<()>();
        let server = scope.spawn({
            let (target, cancelled) = (target.clone(), &cancelled);
            move || {
                let is_over = || cancelled.load(Ordering::Relaxed);
                target::serve(
                    &target,
                    PORT..=ring_port(settings.queue_pairs() - 1),
                    settings,
                    &lanes,
                    is_over,
                    || drop(ready),
                )
            }
        });
        // A target that has failed reports that itself: in either case the channel ends.
        let _ = match &mut polled_here {
            Some((driver, _)) => driver.run(move || is_ready.recv()),
            None => is_ready.recv(),
        };
        let target = RingTarget { device: &target, polled_here, cancelled: &cancelled };
        let near = Near { name: ring, device: near, config: near_config, cpu };
        let measured = run_client(settings, near, peer, files.json, Some(target));
        if measured.is_err() || interrupt::is_requested() {
            cancelled.store(true, Ordering::Relaxed);
        }
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let (Err(_), Err(error)) = (&measured, &served) {
            note!("warpline-bench: target: {error}");
        }
        if let Some(core) = core {
            say!("{}", tcp_summary("target", &core.join()?.own));
        }
        measured.and(served.map(drop))
    })
}

fn run_target(
    settings: &Settings,
    device: BenchDevice,
    config: &DeviceConfig,
    local: SocketAddr,
    cpu: usize,
) -> Result<(), BenchError> {
    let (device, driver) = Device::start_manual(device, config)?;
    let _notices = Notices::print(&device);
    let corrupt = std::thread::scope(|scope| {
        let (lanes, step) = target::work(interrupt::is_requested);
        let driver = Driver::new(driver).sleeping(settings.common.events);
        let core = Endpoint::start(scope, driver, cpu, step);
        note!("waiting at {local}");
        let over = interrupt::is_requested;
        let ports = local.port()..=local.port();
        let served = target::serve(&device, ports, settings, &lanes, over, || ());
        drop(lanes);
        let counters = core.join()?;
        say!("{}", tcp_summary("target", &counters.own));
        served
    })?;
    if corrupt > 0 { Err(BenchError::Corrupt(corrupt)) } else { Ok(()) }
}

/// The end that connects, before it is started.
struct Near<'n> {
    name: &'n DeviceName,
    device: BenchDevice,
    config: DeviceConfig,
    /// The CPU that polls it.
    cpu: usize,
}

fn run_client(
    settings: &Settings,
    near: Near<'_>,
    peer: SocketAddr,
    json: Option<OutputFile>,
    ring: Option<RingTarget<'_>>,
) -> Result<(), BenchError> {
    let (device, driver) = Device::start_manual(near.device, &near.config)?;
    let (target, polled_here, cancelled) = match ring {
        Some(ring) => (Some(ring.device), ring.polled_here, Some(ring.cancelled)),
        None => (None, None, None),
    };
    let _notices = target.is_none().then(|| Notices::print(&device));
    let driver = Driver::new(driver).sleeping(settings.common.events);
    let driver = match polled_here {
        Some((other, step)) => driver.with_other_end(other, step),
        None => driver,
    };
    let reports = std::thread::scope(|scope| {
        let (jobs, taken) = mpsc::channel();
        let connecting = Arc::new(AtomicBool::new(false));
        let core = Endpoint::start(scope, driver, near.cpu, client::work(taken, connecting.clone()));
        let client = Client { settings, name: near.name, device: &device, peer, target, jobs, connecting };
        let measured = client.measure_all();
        if let Some(cancelled) = cancelled
            && (measured.is_err() || interrupt::is_requested())
        {
            // Before the thread is waited for: it may poll for the target until that has ended.
            cancelled.store(true, Ordering::Relaxed);
        }
        drop(client);
        let counters = core.join()?;
        say!("{}", tcp_summary("client", &counters.own));
        if let Some(target) = &counters.other {
            say!("{}", tcp_summary("target", target));
        }
        measured
    })?;
    if let Some(file) = json {
        file.write_json(&reports, settings.swept)?;
    }
    match reports.iter().map(|report| report.transfer.corrupt_bytes).sum() {
        0 => check_limits(settings, &reports),
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

/// The end that connects, and the channel to its core.
struct Client<'c> {
    settings: &'c Settings,
    name: &'c DeviceName,
    device: &'c Device,
    peer: SocketAddr,
    /// The other end, if it is in this process.
    target: Option<&'c Device>,
    jobs: mpsc::Sender<Job>,
    /// Set while it waits for a connection to another process.
    connecting: Arc<AtomicBool>,
}

impl Client<'_> {
    /// Measures every size, or those for which there is time until a signal.
    fn measure_all(&self) -> Result<Vec<Report>, BenchError> {
        say!("{}", heading(self.settings));
        let mut reports = Vec::new();
        for size in &self.settings.sizes {
            let report = match self.measure(&self.settings.plan(*size)) {
                Err(_) if interrupt::is_requested() && !reports.is_empty() => break,
                Err(_) if interrupt::is_requested() => return Err(BenchError::interrupted()),
                report => report?,
            };
            say!("{}", report.line());
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
    fn measure(&self, plan: &Plan) -> Result<Report, BenchError> {
        let &Self { settings, name, device, peer, target, ref jobs, ref connecting } = self;
        connecting.store(target.is_none(), Ordering::Relaxed);
        let peer_of = |number| match target {
            Some(_) => SocketAddr::new(peer.ip(), ring_port(number)),
            None => peer,
        };
        let qps = settings.bandwidth.qps;
        let lanes = client::connect(device, peer_of, settings, plan, 0..qps)?;
        let (count, plan_beside) = settings.beside();
        let beside = client::connect(device, peer_of, settings, &plan_beside, qps..qps + count)?;
        connecting.store(false, Ordering::Relaxed);
        let (messages, infinite) = (settings.messages(), settings.bandwidth.run_infinitely);
        let seconds = Duration::from_secs(settings.seconds().into());
        let run = Run {
            plan: *plan,
            messages,
            duration: (messages.is_none() && !infinite).then_some(seconds),
            keeps_times: settings.latency.report_unsorted,
            progress: Arc::new(AtomicU64::new(0)),
        };
        let before = Snapshot::take(device, target)?;
        let (answer, answered) = mpsc::channel();
        let stopped = |_| BenchError::Setup("the core of this end has stopped".into());
        jobs.send(Job { lanes, beside, run: run.clone(), answer }).map_err(stopped)?;
        let (lanes, measured) = if infinite {
            progress::wait_for_signal(&answered, &run, seconds)?
        } else {
            progress::wait(&answered, &run, settings.bandwidth.qps)?
        };
        let measured = measured?;
        let after = Snapshot::take(device, target)?;
        lanes.into_iter().for_each(Lane::close);
        Ok(after.report(&before, settings, name, plan, &measured))
    }
}

/// Returns a summary of what TCP and MPA did at this end.
fn tcp_summary(end: &str, statistics: &Statistics) -> String {
    let tcp = &statistics.tcp;
    format!(
        "{end}: TCP: {} segments with data sent, {} again ({} timeouts, {} fast retransmits), \
         {} received out of order; MPA: {} FPDUs sent, {} received, at most {} frames held, {} cut",
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
