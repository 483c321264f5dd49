//! Bandwidth of RDMA Writes.
//!
//! One end, the writer, connects; the other, the target, listens. They describe buffers to each other in
//! rping's message, a Send of 16 bytes (`Advertisement`):
//!
//! 1. The writer's first Send has in `length` the size of the buffer it wants; its other fields are zero.
//! 2. The target answers with a Send that advertises a buffer of that length.
//! 3. A round: the writer writes to the buffer from its start on, then sends the number of the round (as
//!    `to`) and the bytes it wrote (as `length`).
//! 4. The target answers with the number of wrong bytes (as `to`), and how many it looked at (as `length`).
//! 5. The writer closes.
//!
//! Each end has one core on a thread that polls, posts and verifies: no other thread touches the data. With
//! both ends in one process and a single free CPU, one thread does so for both.

mod arguments;
mod report;
pub mod sizes;
mod target;
mod writer;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use warpline::open::{self, WireConfig};
use warpline::{Device, DeviceConfig, DeviceName, Statistics};

use crate::arguments::{End, Ends};
use crate::device::{BenchDevice, config};
use crate::endpoint::{Driver, Endpoint};
use crate::ends;
use crate::error::BenchError;
use crate::json::write_json;
use crate::placement::{Placement, keep_off};
use report::{HEADING, Report};
use sizes::{region_bytes, sweep};
use writer::{Job, Measured, Run};

pub use arguments::WriteBw;

/// The port of the target on a ring.
const PORT: u16 = 7471;

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &WriteBw) -> Result<(), BenchError> {
    let (name, end) = match args.device.ends()? {
        Ends::Both(ring) => return run_ring(args, &ring),
        Ends::One(name, end) => (name, end),
    };
    let cpu = ends::cpu(end, &args.cpus);
    let port = args.device.open_port(&name, cpu)?;
    keep_off(&[cpu]);
    let args = &WriteBw { cpus: vec![cpu], ..args.clone() };
    let device = BenchDevice::new(port, args.pcap.as_deref(), name.kind().word())?;
    let config = config(args.crc, name.config());
    match end {
        End::Listening(local) => run_target(args, device, &config, local, cpu),
        End::Connecting(peer) => {
            let near = Near { name: &name, device, config, cpu };
            run_writer(args, near, peer, None)
        }
    }
}

/// The end that is written to, when it is in this process too.
struct RingTarget<'r> {
    device: &'r Device,
    /// Its core and its work, if the writer's thread polls both.
    polled_here: Option<(Driver, target::Work)>,
    /// Set when no connection will come any more: the target would wait for ever.
    cancelled: &'r AtomicBool,
}

/// Runs both ends in this process, each on a CPU of its own where two are free.
fn run_ring(args: &WriteBw, ring: &DeviceName) -> Result<(), BenchError> {
    let placement = Placement::choose(&args.cpus)?;
    let args = &WriteBw { cpus: placement.cpus(), ..args.clone() };
    let eal = args.device.start_eal()?;
    keep_off(&placement.cpus());
    println!("memory: {}", eal.memory_mode());
    println!("{placement}");
    let wire = WireConfig { mtu_bytes: ring.mtu().into(), ..WireConfig::default() };
    let (near, far) = open::ring_pair(eal, &wire)?;
    let near = BenchDevice::new(near, args.pcap.as_deref(), "ring")?;
    let far = BenchDevice::new(far, None, "ring")?;
    let [near_config, far_config] = [1, 2].map(|host| config(args.crc, ends::on_ring(host)));
    let (target, driver) = Device::start_manual(far, &far_config)?;
    let peer = SocketAddr::new(far_config.addresses[0].address, PORT);
    let cancelled = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (lanes, step) = target::work();
        let driver = Driver::new(driver);
        let (cpu, core, mut polled_here) = match placement {
            Placement::Apart { near, far } => (near, Some(Endpoint::start(scope, driver, far, step)), None),
            Placement::Together(cpu) => (cpu, None, Some((driver, step))),
        };
        let (ready, is_ready) = mpsc::channel::<()>();
        let server = scope.spawn({
            let (target, cancelled) = (target.clone(), &cancelled);
            move || target::serve(&target, PORT, args, &lanes, cancelled, || drop(ready))
        });
        // A target that has failed reports that itself: in either case the channel ends.
        let _ = match &mut polled_here {
            Some((driver, _)) => driver.run(move || is_ready.recv()),
            None => is_ready.recv(),
        };
        let target = RingTarget { device: &target, polled_here, cancelled: &cancelled };
        let near = Near { name: ring, device: near, config: near_config, cpu };
        let written = run_writer(args, near, peer, Some(target));
        if written.is_err() {
            cancelled.store(true, Ordering::Relaxed);
        }
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let Some(core) = core {
            println!("{}", tcp_summary("target", &core.join()?.own));
        }
        written.and(served)
    })
}

fn run_target(
    args: &WriteBw,
    device: BenchDevice,
    config: &DeviceConfig,
    local: SocketAddr,
    cpu: usize,
) -> Result<(), BenchError> {
    let (device, driver) = Device::start_manual(device, config)?;
    std::thread::scope(|scope| {
        let (lanes, step) = target::work();
        let core = Endpoint::start(scope, Driver::new(driver), cpu, step);
        eprintln!("waiting at {local}");
        let served = target::serve(&device, local.port(), args, &lanes, &AtomicBool::new(false), || ());
        drop(lanes);
        let counters = core.join()?;
        println!("{}", tcp_summary("target", &counters.own));
        served
    })
}

/// The end that writes, before it is started.
struct Near<'n> {
    name: &'n DeviceName,
    device: BenchDevice,
    config: DeviceConfig,
    /// The CPU that polls it.
    cpu: usize,
}

fn run_writer(
    args: &WriteBw,
    near: Near<'_>,
    peer: SocketAddr,
    ring: Option<RingTarget<'_>>,
) -> Result<(), BenchError> {
    let (device, driver) = Device::start_manual(near.device, &near.config)?;
    let (target, polled_here, cancelled) = match ring {
        Some(ring) => (Some(ring.device), ring.polled_here, Some(ring.cancelled)),
        None => (None, None, None),
    };
    let driver = match polled_here {
        Some((other, step)) => Driver::new(driver).with_other_end(other, step),
        None => Driver::new(driver),
    };
    let reports = std::thread::scope(|scope| {
        let (jobs, taken) = mpsc::channel();
        let core = Endpoint::start(scope, driver, near.cpu, writer::work(taken));
        let measured = measure_all(args, near.name, &device, peer, target, &jobs);
        if let (Err(_), Some(cancelled)) = (&measured, cancelled) {
            // Before the thread is waited for: it may poll for the target until that has ended.
            cancelled.store(true, Ordering::Relaxed);
        }
        drop(jobs);
        let counters = core.join()?;
        println!("{}", tcp_summary("writer", &counters.own));
        if let Some(target) = &counters.other {
            println!("{}", tcp_summary("target", target));
        }
        measured
    })?;
    if let Some(path) = &args.json {
        write_json(path, &reports, args.size.is_none())?;
    }
    match reports.iter().map(|report| report.corrupt_bytes).sum() {
        0 => Ok(()),
        corrupt => Err(BenchError::Corrupt(corrupt)),
    }
}

/// Connects, runs every size, and closes.
fn measure_all(
    args: &WriteBw,
    name: &DeviceName,
    device: &Device,
    peer: SocketAddr,
    target: Option<&Device>,
    jobs: &mpsc::Sender<Job>,
) -> Result<Vec<Report>, BenchError> {
    let sizes = args.size.map_or_else(sweep, |size| vec![size]);
    let region_bytes = region_bytes(sizes.iter().copied().max().unwrap_or(1));
    let lanes = writer::connect(device, peer, args, region_bytes)?;
    let stopped = |_| BenchError::Setup("the writer's core has stopped".into());
    jobs.send(Job::Take(lanes)).map_err(stopped)?;
    println!("{HEADING}");
    let mut reports = Vec::new();
    for size in sizes {
        let before = Snapshot::take(device, target)?;
        let octets = Arc::new(AtomicU64::new(0));
        let (answer, measured) = mpsc::channel();
        jobs.send(Job::Measure(Run::new(args, size, region_bytes), octets.clone(), answer))
            .map_err(stopped)?;
        let measured = wait_with_progress(&measured, &octets, args, size)?;
        let report = before.report(args, name, size, &measured, &Snapshot::take(device, target)?);
        println!("{}", report.line());
        reports.push(report);
    }
    let (answer, lanes) = mpsc::channel();
    jobs.send(Job::GiveBack(answer)).map_err(stopped)?;
    for lane in lanes.recv().unwrap_or_default() {
        lane.close();
    }
    Ok(reports)
}

/// Waits for the measurement; on a terminal, with a bar.
fn wait_with_progress(
    measured: &mpsc::Receiver<Result<Measured, BenchError>>,
    octets: &AtomicU64,
    args: &WriteBw,
    size: u32,
) -> Result<Measured, BenchError> {
    let stopped = || BenchError::Setup("the writer's core has stopped".into());
    if !std::io::stderr().is_terminal() {
        return measured.recv().map_err(|_| stopped())?;
    }
    let bar = match args.iters {
        Some(iters) => ProgressBar::new(iters * u64::from(args.qps) * u64::from(size)),
        None => ProgressBar::new_spinner(),
    };
    let style = ProgressStyle::with_template("{spinner} {msg} {bar:40} {bytes} {binary_bytes_per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(format!("{size} bytes"));
    loop {
        match measured.recv_timeout(Duration::from_millis(200)) {
            Ok(measured) => {
                bar.finish_and_clear();
                return measured;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => bar.set_position(octets.load(Ordering::Relaxed)),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(stopped()),
        }
    }
}

/// The counters of the ends in this process at a moment.
struct Snapshot {
    near: Statistics,
    far: Option<Statistics>,
}

impl Snapshot {
    fn take(device: &Device, target: Option<&Device>) -> Result<Self, BenchError> {
        Ok(Self { near: device.statistics()?, far: target.map(Device::statistics).transpose()? })
    }

    /// Returns the sum of a counter over the ends.
    fn sum(&self, counter: impl Fn(&Statistics) -> u64) -> u64 {
        counter(&self.near) + self.far.as_ref().map_or(0, counter)
    }

    fn report(
        &self,
        args: &WriteBw,
        name: &DeviceName,
        size: u32,
        measured: &Measured,
        after: &Self,
    ) -> Report {
        let since = |counter: fn(&Statistics) -> u64| after.sum(counter) - self.sum(counter);
        let bytes = measured.messages * u64::from(size);
        let seconds = measured.active.as_secs_f64();
        Report {
            test: "write-bw",
            device: name.to_string(),
            mtu: name.mtu(),
            size,
            qps: args.qps,
            depth: args.depth,
            markers: args.markers.is_on(),
            crc: args.crc.is_on(),
            cpus: args.cpus.clone(),
            duration_s: seconds,
            messages: measured.messages,
            bytes,
            gbit_per_s: bytes as f64 * 8.0 / seconds / 1e9,
            peak_gbit_per_s: measured.peak_bytes_per_s * 8.0 / 1e9,
            mmsg_per_s: measured.messages as f64 / seconds / 1e6,
            verified: args.verify.is_on(),
            corrupt_bytes: measured.corrupt_bytes,
            retransmitted_segments: since(|statistics| statistics.tcp.retransmitted_segments),
            out_of_order_segments: since(|statistics| statistics.tcp.out_of_order_segments),
            held_frames_peak: after
                .far
                .as_ref()
                .map_or(after.near.tcp.held_frames_peak, |far| far.tcp.held_frames_peak),
            bytes_copied_rx: since(|statistics| statistics.bytes_copied_rx),
            bytes_copied_tx: since(|statistics| statistics.bytes_copied_tx),
        }
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
