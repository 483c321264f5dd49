//! rping's exchange (librdmacm), as client and as server: with rping itself, or with another warpline.

mod arguments;
mod client;
mod content;
mod protocol;
mod report;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpline::open::{self, Eal};
use warpline::{Device, DeviceConfig, DeviceName};

use crate::arguments::{End, Ends, RunArguments};
use crate::device::{BenchDevice, config};
use crate::endpoint::{Driver, Endpoint};
use crate::ends;
use crate::error::BenchError;
use crate::interrupt;
use crate::json::write_json;
use crate::notices::Notices;
use crate::placement::{Placement, keep_off, pin_to};
use client::{Client, Pinged};
use report::{HEADING, Report};
use server::Sessions;

pub use arguments::Ping;

/// rping's port.
const PORT: u16 = 7174;
/// Pings without --count.
const PINGS: u64 = 1000;
/// How long a client's core outlives its connections.
const LINGER: Duration = Duration::from_millis(200);

/// Pings, or is pinged, and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &Ping) -> Result<(), BenchError> {
    let interrupted = interrupt::flag()?;
    let (name, end) = match args.device.ends()? {
        Ends::Both(ring) => return run_ring(args, &ring, &interrupted),
        Ends::One(name, end) => (name, end),
    };
    let cpu = ends::cpu(end, &args.run.cpus);
    let port = args.device.open_port(&name, cpu)?;
    keep_off(&[cpu]);
    let device = BenchDevice::new(port, args.run.pcap.as_deref(), name.kind().word())?;
    let ours = Ours { name: &name, device, config: config(args.crc, name.config()), cpu };
    match end {
        End::Listening(local) => run_server(args, ours, local, &interrupted),
        End::Connecting(peer) => run_client(args, ours, peer, &interrupted, None),
    }
}

/// The end of this process, before it is started.
struct Ours<'n> {
    name: &'n DeviceName,
    device: BenchDevice,
    config: DeviceConfig,
    /// The CPU that polls it.
    cpu: usize,
}

/// A server whose core the client's thread polls. The flag ends it.
type ServedHere = (Driver, server::Work, Arc<AtomicBool>);

/// Runs both ends in this process, each on a CPU of its own where two are free.
fn run_ring(args: &Ping, ring: &DeviceName, interrupted: &AtomicBool) -> Result<(), BenchError> {
    let placement = Placement::choose(&args.run.cpus)?;
    let eal = args.device.start_eal()?;
    keep_off(&placement.cpus());
    eprintln!("{placement}");
    let wire = open::wire_config(ring);
    let (near, far) = open::ring_pair(eal, &wire)?;
    let near = BenchDevice::new(near, args.run.pcap.as_deref(), "ring")?;
    let far = BenchDevice::new(far, None, "ring")?;
    let [near_config, far_config] = [1, 2].map(|host| config(args.crc, ends::on_ring(ring, host)));
    let (served, driver) = Device::start_manual(far, &far_config)?;
    // The server serves this client alone: --count is not its limit.
    let serving = Ping { count: None, run: RunArguments { json: None, ..args.run.clone() }, ..args.clone() };
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sessions, step) = server::work(stop.clone());
        let driver = Driver::new(driver);
        let (cpu, core, mut served_here) = match placement {
            Placement::Apart { near, far } => (near, Some(Endpoint::start(scope, driver, far, step)), None),
            Placement::Together(cpu) => (cpu, None, Some((driver, step, stop.clone()))),
        };
        let (ready, is_ready) = mpsc::channel();
        let server = scope.spawn({
            let stop = &stop;
            move || {
                let result = server::listen(&served, PORT, &serving).and_then(|listener| {
                    let _ = ready.send(());
                    server::serve(&served, &listener, &serving, &sessions, stop)
                });
                end(served, sessions);
                result
            }
        });
        // A server that cannot listen reports that itself.
        let _ = match &mut served_here {
            Some((driver, ..)) => driver.run(move || is_ready.recv()),
            None => is_ready.recv(),
        };
        let peer = SocketAddr::new(far_config.addresses[0].address, PORT);
        let near = Ours { name: ring, device: near, config: near_config, cpu };
        let pinged = run_client(args, near, peer, interrupted, served_here);
        stop.store(true, Ordering::Relaxed);
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        core.map(Endpoint::join).transpose()?;
        pinged.and(served.map(drop))
    })
}

fn run_server(
    args: &Ping,
    ours: Ours<'_>,
    local: SocketAddr,
    interrupted: &Arc<AtomicBool>,
) -> Result<(), BenchError> {
    let (device, driver) = Device::start_manual(ours.device, &ours.config)?;
    let notices = Notices::print(&device);
    let served = std::thread::scope(|scope| {
        let (sessions, step) = server::work(interrupted.clone());
        let core = Endpoint::start(scope, Driver::new(driver), ours.cpu, step);
        eprintln!("waiting at {local}");
        let served = server::listen(&device, local.port(), args)
            .and_then(|listener| server::serve(&device, &listener, args, &sessions, interrupted));
        drop(notices);
        end(device, sessions);
        core.join()?;
        served
    })?;
    report_as_json(args, &served)
}

/// Ends a server. The core is polled until the device has sent its last frame, for example a rejection.
fn end(device: Device, sessions: Sessions) {
    drop(device);
    drop(sessions);
}

fn run_client(
    args: &Ping,
    ours: Ours<'_>,
    peer: SocketAddr,
    interrupted: &AtomicBool,
    served_here: Option<ServedHere>,
) -> Result<(), BenchError> {
    // The device's own threads start before this one is pinned: they inherit where it may run.
    let (device, driver) = Device::start_manual(ours.device, &ours.config)?;
    let notices = served_here.is_none().then(|| Notices::print(&device));
    pin_to(ours.cpu)?;
    let _lcore = Eal::current().and_then(|eal| eal.register_thread().ok());
    let (mut driver, stop) = match served_here {
        Some((other, step, stop)) => (Driver::new(driver).with_other_end(other, step), Some(stop)),
        None => (Driver::new(driver), None),
    };
    let count = args.count.unwrap_or(PINGS);
    let mut pinged = Pinged::default();
    let mut connect_and_ping = |pinged: &mut Pinged| {
        let (mut client, connected) = driver.run(|| Client::connect(&device, peer, args))?;
        if args.connections == 1 {
            eprintln!("connected to {peer}");
        }
        let result = client.ping_all(&mut driver, count, interrupted, pinged);
        driver.run(|| client.close());
        Ok((connected, result))
    };
    let (connected, mut result) = connect_and_ping(&mut pinged)?;
    for _ in 1..args.connections {
        if result.is_err() || interrupted.load(Ordering::Relaxed) {
            break;
        }
        result = connect_and_ping(&mut pinged).and_then(|(_, result)| result);
    }
    let nudges = driver.run(|| device.statistics())?.nudges_sent;
    drop(notices);
    driver.run(|| drop(device));
    linger(&mut driver);
    if let Some(stop) = stop {
        stop.store(true, Ordering::Relaxed);
    }
    driver.finish();
    let report = Report::new(args, ours.name, &connected, &pinged, nudges);
    println!("{HEADING}\n{}", report.line());
    report_as_json(args, &[report])?;
    result?;
    if pinged.corrupt_bytes > 0 { Err(BenchError::Corrupt(pinged.corrupt_bytes)) } else { Ok(()) }
}

/// Polls a little longer: the acknowledgement of the other end's FIN may still wait to be sent, and if it is
/// lost, only this end can answer the repeated FIN.
fn linger(driver: &mut Driver) {
    let end = Instant::now() + LINGER;
    while Instant::now() < end {
        driver.poll_once();
    }
}

fn report_as_json(args: &Ping, results: &[impl Serialize]) -> Result<(), BenchError> {
    let Some(path) = &args.run.json else { return Ok(()) };
    write_json(path, results, args.device.listens())
}
