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
use warpline::{Connected, Device, DeviceName, Stopped};
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, note, say};

use crate::arguments::{End, Ends, Polling, RunArguments, RunFiles};
use crate::device::{self, config};
use crate::endpoint::{Driver, Endpoint};
use crate::error::BenchError;
use crate::link::{Link, Started};
use crate::notices::Notices;
use crate::placement::{Placement, cpus_of, is_crowded, keep_off, pin_to, words};
use client::{Client, Pinged};
use report::{CoreReport, HEADING, Report};
use server::Sessions;

pub use arguments::Ping;

/// rping's port.
const PORT: u16 = 7174;
/// Pings without --count.
const PINGS: u64 = 1000;
/// How long a client's cores outlive their connections.
const LINGER: Duration = Duration::from_millis(200);

/// Pings, or is pinged, and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &Ping) -> Result<(), BenchError> {
    let (name, end) = match args.device.ends(PORT)? {
        Ends::Both(ring) => {
            let polling = args.polling(&ring)?;
            return run_ring(args, &polling, &ring, args.run.open_files()?);
        }
        Ends::One(name, end) => (name, end),
    };
    let polling = args.polling(&name)?;
    let RunFiles { pcap, json } = args.run.open_files()?;
    let cpus = end.cpus(&polling)?;
    let link = args.device.open_port(&name, &cpus, pcap)?;
    keep_off(&cpus);
    let gives_way = is_crowded(cpus.len(), &cpus);
    let Started { device, cores } = link.start(&config(args.crc, name.config()))?;
    let driver = |core| Driver::new(core).giving_way(gives_way).sleeping(args.events);
    let drivers = cores.into_iter().map(driver).zip(cpus);
    match end {
        End::Listening(local) => run_server(args, device, drivers, local, json),
        End::Connecting(peer) => {
            let pingers = drivers.map(|(driver, cpu)| Pinger { driver, cpu }).collect();
            let client = ClientEnd { args, name: &name, device, peer };
            client.run(pingers, json, None, &AtomicBool::new(false))
        }
    }
}

/// Runs both ends in this process, each on a CPU of its own where there are enough that are free.
fn run_ring(args: &Ping, polling: &Polling, ring: &DeviceName, files: RunFiles) -> Result<(), BenchError> {
    let placements = Placement::of_cores(&polling.cpus, polling.cores)?;
    let cpus = cpus_of(&placements);
    let gives_way = is_crowded(placements.len(), &cpus);
    let eal = args.device.start_eal()?;
    keep_off(&cpus);
    note!("{}", words(&placements));
    let [near, far] = Link::wire(eal, &open::wire_config(ring), polling.cores, files.pcap)?;
    let [near_config, far_config] = [1, 2].map(|host| config(args.crc, device::on_ring(ring, host)));
    let (near, far) = (near.start(&near_config)?, far.start(&far_config)?);
    let served = far.device;
    // The server serves this client alone: --count is not its limit.
    let serving = Ping { count: None, run: RunArguments { json: None, ..args.run.clone() }, ..args.clone() };
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sessions, works) = server::work(polling.cores, {
            let stop = stop.clone();
            move || stop.load(Ordering::Relaxed)
        });
        let (mut pingers, mut servers) = (Vec::new(), Vec::new());
        let cores = near.cores.into_iter().zip(far.cores).zip(works);
        for (placement, ((near, far), work)) in placements.iter().zip(cores) {
            let driver = |core| Driver::new(core).giving_way(gives_way).sleeping(args.events);
            let [near, far] = [near, far].map(driver);
            pingers.push(match *placement {
                Placement::Together(cpu) => Pinger { driver: near.with_other_end(far, work), cpu },
                Placement::Apart { near: near_cpu, far: far_cpu } => {
                    servers.push(Endpoint::start(scope, far, far_cpu, work));
                    Pinger { driver: near, cpu: near_cpu }
                }
            });
        }
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
        let peer = SocketAddr::new(far_config.addresses[0].address, PORT);
        let client = ClientEnd { args, name: ring, device: near.device, peer };
        let pinged = client.run(pingers, files.json, Some(&is_ready), &stop);
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for core in servers {
            core.join()?;
        }
        pinged.and(served.map(drop))
    })
}

fn run_server(
    args: &Ping,
    device: Device,
    drivers: impl ExactSizeIterator<Item = (Driver, usize)>,
    local: SocketAddr,
    json: Option<OutputFile>,
) -> Result<(), BenchError> {
    let notices = Notices::print(&device);
    let served = std::thread::scope(|scope| {
        let (sessions, works) = server::work(drivers.len(), interrupt::is_requested);
        let cores = drivers.zip(works);
        let cores = cores.map(|((driver, cpu), work)| Endpoint::start(scope, driver, cpu, work));
        let cores: Vec<_> = cores.collect();
        note!("waiting at {local}");
        let served = server::listen(&device, local.port(), args)
            .and_then(|listener| server::serve(&device, &listener, args, &sessions, interrupt::flag()));
        drop(notices);
        end(device, sessions);
        for core in cores {
            core.join()?;
        }
        served
    })?;
    Ok(json.map_or(Ok(()), |file| file.write_json(&served, true))?)
}

/// Ends a server. The cores are polled until the device has sent its last frame, for example a rejection.
fn end(device: Device, sessions: Sessions) {
    drop(device);
    drop(sessions);
}

/// A core of the end that pings, and the CPU of its thread.
struct Pinger {
    driver: Driver,
    cpu: usize,
}

/// The end that pings, whose cores ping at the same time.
struct ClientEnd<'c> {
    args: &'c Ping,
    name: &'c DeviceName,
    device: Device,
    peer: SocketAddr,
}

/// What a core has come to: what its first connection agreed on, its pings, and what ended them early.
struct PingedAt {
    connected: Connected,
    connections: u32,
    pinged: Pinged,
    ended: Result<(), BenchError>,
}

/// What the threads of the cores wait for.
#[derive(Default)]
struct Signals {
    /// They are to begin: the other end listens.
    begin: AtomicBool,
    /// No core need be polled any more.
    end: AtomicBool,
}

impl ClientEnd<'_> {
    /// Pings from each core, once `listening` says so if the server is in this process, and reports. Sets
    /// `stop` at the end.
    fn run(
        self,
        pingers: Vec<Pinger>,
        json: Option<OutputFile>,
        listening: Option<&mpsc::Receiver<()>>,
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        let cores = pingers.len();
        let pinging = if self.args.core.is_some() { 1 } else { cores };
        let notices = listening.is_none().then(|| Notices::print(&self.device));
        let signals = Signals::default();
        let Self { args, name, device, peer } = self;
        let (of_cores, nudges) = std::thread::scope(|scope| {
            let (report, reported) = mpsc::channel();
            for (core, pinger) in pingers.into_iter().enumerate() {
                let core = core as u8;
                if args.core.is_some_and(|only| only != core) {
                    scope.spawn(|| pinger.poll(&signals));
                    continue;
                }
                let core = (cores > 1).then_some(core);
                let (device, signals, report) = (device.clone(), &signals, report.clone());
                scope.spawn(move || pinger.run(args, device, peer, core, signals, report));
            }
            // Without one of its own here, the channel ends with the threads, should one panic.
            drop(report);
            if let Some(listening) = listening {
                // A server that cannot listen reports that itself.
                let _ = listening.recv();
            }
            signals.begin.store(true, Ordering::Release);
            let of_cores: Vec<(Option<u8>, Result<PingedAt, BenchError>)> =
                (0..pinging).map_while(|_| reported.recv().ok()).collect();
            let nudges = device.statistics().map(|statistics| statistics.nudges_sent);
            drop(notices);
            drop(device);
            signals.end.store(true, Ordering::Release);
            // Their last frames leave meanwhile.
            std::thread::sleep(LINGER);
            stop.store(true, Ordering::Relaxed);
            (of_cores, nudges)
        });
        report(args, name, of_cores, nudges, json)
    }
}

impl Pinger {
    /// Polls the core until the run is over.
    fn poll(self, signals: &Signals) {
        let Self { mut driver, cpu } = self;
        // Slower without.
        let _ = pin_to(cpu);
        let _lcore = Eal::current().and_then(|eal| eal.register_thread().ok());
        driver.poll_until(&signals.end);
        linger(&mut driver);
        driver.finish();
    }

    /// Pings from one core on this thread, and polls it until the run is over.
    fn run(
        self,
        args: &Ping,
        device: Device,
        peer: SocketAddr,
        core: Option<u8>,
        signals: &Signals,
        report: mpsc::Sender<(Option<u8>, Result<PingedAt, BenchError>)>,
    ) {
        let Self { mut driver, cpu } = self;
        let pinned = pin_to(cpu);
        let _lcore = Eal::current().and_then(|eal| eal.register_thread().ok());
        driver.poll_until(&signals.begin);
        let pinged = pinned.and_then(|()| ping_from_core(&mut driver, &device, args, peer, core));
        // Fails only when the program is ending.
        let _ = report.send((core, pinged));
        drop(report);
        // Not the last handle.
        drop(device);
        driver.poll_until(&signals.end);
        linger(&mut driver);
        driver.finish();
    }
}

/// Connects and pings, as often as the command line says.
fn ping_from_core(
    driver: &mut Driver,
    device: &Device,
    args: &Ping,
    peer: SocketAddr,
    core: Option<u8>,
) -> Result<PingedAt, BenchError> {
    let count = args.count.unwrap_or(PINGS);
    let mut pinged = Pinged::default();
    let mut connect_and_ping = |pinged: &mut Pinged| {
        let connected = driver.run_unless_interrupted(|| Client::connect(device, peer, core, args));
        let interrupted = |error| if interrupt::is_requested() { BenchError::interrupted() } else { error };
        let (mut client, connected) = connected.map_err(interrupted)?;
        if args.connections == 1 {
            note!("connected to {peer}");
        }
        let result = client.ping_all(driver, count, pinged);
        driver.run(|| client.close());
        Ok((connected, result))
    };
    let (connected, mut ended) = connect_and_ping(&mut pinged)?;
    let mut connections = 1;
    while connections < args.connections && ended.is_ok() && !interrupt::is_requested() {
        connections += 1;
        ended = connect_and_ping(&mut pinged).and_then(|(_, result)| result);
    }
    Ok(PingedAt { connected, connections, pinged, ended })
}

/// Reports the pings of all cores, and fails if one could not connect, was ended early, or found data
/// damaged.
fn report(
    args: &Ping,
    name: &DeviceName,
    of_cores: Vec<(Option<u8>, Result<PingedAt, BenchError>)>,
    nudges: Result<u64, Stopped>,
    json: Option<OutputFile>,
) -> Result<(), BenchError> {
    let (mut all, mut by_core) = (Pinged::default(), Vec::new());
    let (mut first, mut result) = (None, Ok(()));
    for (core, pinged) in of_cores {
        let PingedAt { connected, connections, pinged, ended } = pinged?;
        by_core.extend(core.map(|core| CoreReport::new(core, connections, &pinged)));
        all.add(&pinged);
        first = first.or(Some(connected));
        result = result.and(ended);
    }
    by_core.sort_by_key(CoreReport::core);
    let connected = first.ok_or_else(|| BenchError::Setup("no core has pinged".into()))?;
    let report = Report::new(args, name, &connected, &all, nudges?, by_core);
    say!("{HEADING}\n{}", report.line());
    report.core_lines().iter().for_each(|line| say!("{line}"));
    if let Some(file) = json {
        file.write_json(&[report], false)?;
    }
    result?;
    if all.corrupt_bytes > 0 { Err(BenchError::Corrupt(all.corrupt_bytes)) } else { Ok(()) }
}

/// Polls a little longer: the acknowledgement of the other end's FIN may still wait to be sent, and if it is
/// lost, only this end can answer the repeated FIN.
fn linger(driver: &mut Driver) {
    let end = Instant::now() + LINGER;
    while Instant::now() < end {
        driver.poll_once();
    }
}
