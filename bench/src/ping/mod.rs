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

use dpdk::WireConfig;
use serde::Serialize;
use warpline::{Cidr, Device, open};

use crate::BenchError;
use crate::backend;
use crate::cli::{Backend, with_usual_prefix};
use crate::device::{BenchDevice, config};
use crate::endpoint::{Driver, Endpoint};
use crate::ends::{self, End};
use crate::interrupt;
use crate::placement::{Placement, keep_off, pin_to};
use crate::report::write_json;
use client::{Client, Pinged};
use report::{HEADING, Report};
use server::Sessions;

pub use arguments::Ping;

/// rping's port.
const PORT: u16 = 7174;
/// Pings unless told otherwise.
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
    if args.backend == Backend::Ring {
        if args.listen.is_some() || args.peer.is_some() || args.address.is_some() {
            return Err(BenchError::RingHasBothEnds);
        }
        return run_ring(args, &interrupted);
    }
    let (interface, end) = ends::which(args.backend, args.listen, args.peer, args.address)?;
    let plan = backend::plan(args.backend, &args.eal)?;
    let cpu = end.cpu(&args.cpus);
    let device = backend::open_port(&plan, args.mtu, cpu)?;
    keep_off(&[cpu]);
    let device = BenchDevice::new(device, args.pcap.as_deref(), args.backend.name())?;
    match end {
        End::Listening(port) => run_server(args, device, interface, port, cpu, &interrupted),
        End::Connecting(peer) => run_client(args, device, interface, peer, cpu, &interrupted, None),
    }
}

/// A server whose core the client's thread polls. The flag ends it.
type ServedHere = (Driver, server::Work, Arc<AtomicBool>);

/// Both ends in this process, each on a CPU of its own where two are free.
fn run_ring(args: &Ping, interrupted: &AtomicBool) -> Result<(), BenchError> {
    let placement = Placement::choose(&args.cpus)?;
    let eal = open::eal(&args.eal)?;
    keep_off(&placement.cpus());
    eprintln!("{placement}");
    let wire = WireConfig { mtu_octets: args.mtu.into(), ..WireConfig::default() };
    let (near, far) = open::ring_pair(eal, &wire)?;
    let near = BenchDevice::new(near, args.pcap.as_deref(), "ring")?;
    let far = BenchDevice::new(far, None, "ring")?;
    let interface = |host| with_usual_prefix([198, 18, 0, host].into());
    let (served, driver) = Device::start_manual(far, &config(args.crc, interface(2)))?;
    // The server is there for this client alone, whatever `--count` says.
    let serving = Ping { count: None, json: None, ..args.clone() };
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
        // A server that cannot listen says why itself.
        let _ = match &mut served_here {
            Some((driver, ..)) => driver.run(move || is_ready.recv()),
            None => is_ready.recv(),
        };
        let peer = SocketAddr::new(interface(2).address, PORT);
        let pinged = run_client(args, near, interface(1), peer, cpu, interrupted, served_here);
        stop.store(true, Ordering::Relaxed);
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        core.map(Endpoint::join).transpose()?;
        pinged.and(served.map(drop))
    })
}

fn run_server(
    args: &Ping,
    device: BenchDevice,
    interface: Cidr,
    port: u16,
    cpu: usize,
    interrupted: &Arc<AtomicBool>,
) -> Result<(), BenchError> {
    let (device, driver) = Device::start_manual(device, &config(args.crc, interface))?;
    let served = std::thread::scope(|scope| {
        let (sessions, step) = server::work(interrupted.clone());
        let core = Endpoint::start(scope, Driver::new(driver), cpu, step);
        eprintln!("waiting at {}", SocketAddr::new(interface.address, port));
        let served = server::listen(&device, port, args)
            .and_then(|listener| server::serve(&device, &listener, args, &sessions, interrupted));
        end(device, sessions);
        core.join()?;
        served
    })?;
    report_as_json(args, &served)
}

/// Ends a server. The core is polled until the device has said its last, a rejection perhaps.
fn end(device: Device, sessions: Sessions) {
    drop(device);
    drop(sessions);
}

fn run_client(
    args: &Ping,
    device: BenchDevice,
    interface: Cidr,
    peer: SocketAddr,
    cpu: usize,
    interrupted: &AtomicBool,
    served_here: Option<ServedHere>,
) -> Result<(), BenchError> {
    // The device's own threads start before this one is pinned: they inherit where it may run.
    let (device, driver) = Device::start_manual(device, &config(args.crc, interface))?;
    pin_to(cpu)?;
    let _lcore = dpdk::Eal::current().and_then(|eal| eal.register_thread().ok());
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
    driver.run(|| drop(device));
    linger(&mut driver);
    if let Some(stop) = stop {
        stop.store(true, Ordering::Relaxed);
    }
    driver.finish();
    let report = Report::new(args, &connected, &pinged, nudges);
    println!("{HEADING}\n{}", report.line());
    report_as_json(args, &[report])?;
    result?;
    if pinged.corrupt_octets > 0 { Err(BenchError::Corrupt(pinged.corrupt_octets)) } else { Ok(()) }
}

/// Polls a little longer: what has acknowledged the other end's FIN may still be on its way out, and if it is lost, only we can
/// answer when that comes again.
fn linger(driver: &mut Driver) {
    let end = Instant::now() + LINGER;
    while Instant::now() < end {
        driver.poll_once();
    }
}

fn report_as_json(args: &Ping, results: &[impl Serialize]) -> Result<(), BenchError> {
    let Some(path) = &args.json else { return Ok(()) };
    let listed = args.listen.is_some();
    write_json(path, results, listed).map_err(|error| BenchError::File(path.clone(), error))
}
