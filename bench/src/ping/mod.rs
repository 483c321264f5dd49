//! rping's exchange (librdmacm), as client and as server: with rping itself, or with another warpline.

mod arguments;
mod client;
mod content;
mod protocol;
mod report;
mod server;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use warpline::open::{self, Eal};
use warpline::{Device, DeviceConfig, DeviceName};
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, note, say};

use crate::arguments::{End, Ends, RunArguments, RunFiles};
use crate::device::{self, BenchDevice, config};
use crate::endpoint::{Driver, Endpoint};
use crate::error::BenchError;
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
    let RunFiles { pcap, json } = args.run.open_files()?;
    let (name, end) = match args.device.ends(PORT)? {
        Ends::Both(ring) => return run_ring(args, &ring, RunFiles { pcap, json }),
        Ends::One(name, end) => (name, end),
    };
    let cpu = end.cpu(&args.run.cpus)?;
    let port = args.device.open_port(&name, cpu)?;
    keep_off(&[cpu]);
    let device = BenchDevice::new(port, pcap, name.kind().word())?;
    let ours = Ours { name: &name, device, config: config(args.crc, name.config()), cpu };
    match end {
        End::Listening(local) => run_server(args, ours, local, json),
        End::Connecting(peer) => run_client(args, ours, peer, json, None),
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
fn run_ring(args: &Ping, ring: &DeviceName, files: RunFiles) -> Result<(), BenchError> {
    let placement = Placement::choose(&args.run.cpus)?;
    let eal = args.device.start_eal()?;
    keep_off(&placement.cpus());
    note!("{placement}");
    let wire = open::wire_config(ring);
    let (near, far) = open::ring_pair(eal, &wire)?;
    let near = BenchDevice::new(near, files.pcap, "ring")?;
    let far = BenchDevice::new(far, None, "ring")?;
    let [near_config, far_config] = [1, 2].map(|host| config(args.crc, device::on_ring(ring, host)));
    let (served, driver) = Device::start_manual(far, &far_config)?;
    // The server serves this client alone: --count is not its limit.
    let serving = Ping { count: None, run: RunArguments { json: None, ..args.run.clone() }, ..args.clone() };
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sessions, step) = server::work({
            let stop = stop.clone();
            move || stop.load(Ordering::Relaxed)
        });
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
        let pinged = run_client(args, near, peer, files.json, served_here);
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
    json: Option<OutputFile>,
) -> Result<(), BenchError> {
    let (device, driver) = Device::start_manual(ours.device, &ours.config)?;
    let notices = Notices::print(&device);
    let served = std::thread::scope(|scope| {
        let (sessions, step) = server::work(interrupt::is_requested);
        let core = Endpoint::start(scope, Driver::new(driver), ours.cpu, step);
        note!("waiting at {local}");
        let served = server::listen(&device, local.port(), args)
            .and_then(|listener| server::serve(&device, &listener, args, &sessions, interrupt::flag()));
        drop(notices);
        end(device, sessions);
        core.join()?;
        served
    })?;
    Ok(json.map_or(Ok(()), |file| file.write_json(&served, true))?)
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
    json: Option<OutputFile>,
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
        let connected = driver.run_unless_interrupted(|| Client::connect(&device, peer, args));
        let interrupted = |error| if interrupt::is_requested() { BenchError::interrupted() } else { error };
        let (mut client, connected) = connected.map_err(interrupted)?;
        if args.connections == 1 {
            note!("connected to {peer}");
        }
        let result = client.ping_all(&mut driver, count, pinged);
        driver.run(|| client.close());
        Ok((connected, result))
    };
    let (connected, mut result) = connect_and_ping(&mut pinged)?;
    for _ in 1..args.connections {
        if result.is_err() || interrupt::is_requested() {
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
    say!("{HEADING}\n{}", report.line());
    if let Some(file) = json {
        file.write_json(&[report], false)?;
    }
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
