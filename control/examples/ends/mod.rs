//! Where the two ends of an example run. Without arguments both run in this process, joined by a wire in
//! memory. With arguments one of them does:
//!
//! ```text
//! EXAMPLE server [DEVICE]
//! EXAMPLE client [DEVICE] SERVER-ADDRESS
//! ```
//!
//! DEVICE names the device and its address: `af_packet:eth1,address=198.18.0.1/24`. Without it, the
//! environment variable `WARPLINE_DEVICE` does; for both ends in this process it may name a ring with
//! options, as in `ring,mtu=9000`. With `--pcap FILE` the frames of the end that runs, of the client if both
//! do, go to a capture.

#[allow(dead_code, reason = "not every example has arguments")]
pub mod capture;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use warpline::open;
use warpline::{
    Cidr, Completion, CompletionKind, CompletionQueue, ConnectConfig, Connected, Device, DeviceConfig,
    DeviceKind, DeviceName, PollThread, QueuePair, Status,
};

pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The TCP port that servers listen at.
#[allow(dead_code, reason = "HTTP has its own")]
pub const PORT: u16 = 7471;
/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Runs both ends, or the one that the command line names.
#[allow(dead_code, reason = "one example has arguments of its own")]
pub fn run(
    server: impl FnOnce(&Device) -> Outcome + Send,
    client: impl FnOnce(&Device, SocketAddr) -> Outcome,
) -> Outcome {
    let arguments = capture::arguments()?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => both(server, client),
        ["server"] => server(&open_device(None)?),
        ["server", device] => server(&open_device(Some(device))?),
        ["client", peer] => client(&open_device(None)?, SocketAddr::new(peer.parse()?, PORT)),
        ["client", device, peer] => client(&open_device(Some(device))?, SocketAddr::new(peer.parse()?, PORT)),
        _ => Err("arguments: none, or: server [DEVICE], or: client [DEVICE] SERVER-ADDRESS".into()),
    }
}

/// Returns the device `name`, or without it the one that the environment names.
pub fn device_name(name: Option<&str>) -> Outcome<DeviceName> {
    if let Some(name) = name {
        return Ok(name.parse()?);
    }
    let name = DeviceName::from_environment()?;
    Ok(name.ok_or("no device is named: write its name, or set WARPLINE_DEVICE")?)
}

#[allow(dead_code, reason = "one example has arguments of its own")]
fn open_device(name: Option<&str>) -> Outcome<Device> {
    capture::open(&device_name(name)?)
}

/// Returns the wire for both ends in this process: the ring that the environment names, or the usual one.
fn ring() -> Outcome<DeviceName> {
    match DeviceName::from_environment()? {
        None => Ok("ring".parse()?),
        Some(ring) if ring.kind() == DeviceKind::Ring => Ok(ring),
        Some(other) => Err(format!(
            "WARPLINE_DEVICE is {other}, where one end runs: write server, or client SERVER-ADDRESS"
        )
        .into()),
    }
}

/// Runs both ends in this process.
#[allow(dead_code, reason = "most examples run what the command line names")]
pub fn both(
    server: impl FnOnce(&Device) -> Outcome + Send,
    client: impl FnOnce(&Device, SocketAddr) -> Outcome,
) -> Outcome {
    let ring = ring()?;
    let eal = open::eal(&[], "")?;
    let (near, far) = open::ring_pair(eal, &open::wire_config(&ring))?;
    let address = |host| IpAddr::from([198, 18, 0, host]);
    let config = |host| DeviceConfig {
        addresses: vec![Cidr::new(address(host), 24)],
        memory: open::hugepages(eal),
        ..ring.config()
    };
    let near = capture::start(near, &config(1))?;
    let far = Device::start(far, &config(2), PollThread::default())?;
    thread::scope(|scope| {
        let server = scope.spawn(|| server(&far));
        client(&near, SocketAddr::new(address(2), PORT))?;
        server.join().map_err(|_| "the server panicked")?
    })
}

/// Connects to the server, which may still be setting up.
#[allow(dead_code, reason = "not every example has queue pairs")]
pub fn connect(qp: &QueuePair, server: SocketAddr) -> Outcome<Connected> {
    let begin = Instant::now();
    loop {
        match qp.connect(server, &ConnectConfig::default()) {
            Ok(connected) => return Ok(connected),
            Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Waits for the next completion, which must be a success.
#[allow(dead_code, reason = "not every example has queue pairs")]
pub fn next(completions: &CompletionQueue) -> Outcome<Completion> {
    let completion = completions.wait(PATIENCE).ok_or("nothing was completed in time")?;
    match completion.status {
        Status::Success => Ok(completion),
        failed => Err(format!("{:?} failed: {failed:?}", completion.kind).into()),
    }
}

/// Waits for the next completion of `kind`; skips others.
#[allow(dead_code, reason = "not every example waits for one kind")]
pub fn next_of(completions: &CompletionQueue, kind: CompletionKind) -> Outcome<Completion> {
    loop {
        let completion = next(completions)?;
        if completion.kind == kind {
            return Ok(completion);
        }
    }
}
