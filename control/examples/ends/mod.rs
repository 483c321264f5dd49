//! Where the two ends of an example run. Without arguments both run in this process, joined by a wire in memory. With
//! arguments one of them does:
//!
//! ```text
//! EXAMPLE server ADDRESS/BITS PORT EAL-ARGUMENT...
//! EXAMPLE client ADDRESS/BITS PORT EAL-ARGUMENT... SERVER-ADDRESS
//! ```
//!
//! PORT is the DPDK port, `net_tap0` for instance, and the EAL's arguments make it: `--vdev=net_tap0,iface=tap0`.

use std::env;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use dpdk::{Eal, WireConfig};
use warpline::{
    Cidr, Completion, CompletionKind, CompletionQueue, ConnectConfig, Connected, Device, DeviceConfig,
    PollThread, QueuePair, Status, open,
};

pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The TCP port that servers listen at.
pub const PORT: u16 = 7471;
/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(20);
const MTU_OCTETS: u16 = 1500;

/// Runs both ends, or the one that the command line names.
pub fn run(
    server: impl FnOnce(&Device) -> Outcome + Send,
    client: impl FnOnce(&Device, SocketAddr) -> Outcome,
) -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => both(server, client),
        ["server", address, port, ref eal @ ..] => server(&one(address, port, eal)?),
        ["client", address, port, ref eal @ .., peer] => {
            client(&one(address, port, eal)?, SocketAddr::new(peer.parse()?, PORT))
        }
        _ => {
            Err("arguments: none, or: server|client ADDRESS/BITS PORT EAL-ARGUMENT... [SERVER-ADDRESS]"
                .into())
        }
    }
}

fn one(address: &str, port: &str, eal: &[&str]) -> Outcome<Device> {
    let eal = open::eal(&eal.join(" "))?;
    start(open::port(eal, port, MTU_OCTETS)?, eal, address.parse()?)
}

fn both(
    server: impl FnOnce(&Device) -> Outcome + Send,
    client: impl FnOnce(&Device, SocketAddr) -> Outcome,
) -> Outcome {
    let eal = open::eal("")?;
    let (near, far) = open::ring_pair(eal, &WireConfig::default())?;
    let address = |host| IpAddr::V4(Ipv4Addr::new(198, 18, 0, host));
    let near = start(near, eal, Cidr::new(address(1), 24))?;
    let far = start(far, eal, Cidr::new(address(2), 24))?;
    thread::scope(|scope| {
        let server = scope.spawn(|| server(&far));
        client(&near, SocketAddr::new(address(2), PORT))?;
        server.join().map_err(|_| "the server panicked")?
    })
}

fn start(port: warpline_dataplane::device::dpdk::DpdkDevice, eal: Eal, address: Cidr) -> Outcome<Device> {
    let config = DeviceConfig {
        memory: open::hugepages(eal),
        ..DeviceConfig::new(address.address, address.prefix_bits)
    };
    Ok(Device::start(port, &config, PollThread::default())?)
}

/// Connects to the server, which may still be setting up.
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

/// The next completion, which must be a success.
pub fn next(completions: &CompletionQueue) -> Outcome<Completion> {
    let completion = completions.wait(PATIENCE).ok_or("nothing was completed in time")?;
    match completion.status {
        Status::Success => Ok(completion),
        failed => Err(format!("{:?} failed: {failed:?}", completion.kind).into()),
    }
}

/// The next completion of `kind`; others are passed over.
#[allow(dead_code, reason = "not every example waits for one kind")]
pub fn next_of(completions: &CompletionQueue, kind: CompletionKind) -> Outcome<Completion> {
    loop {
        let completion = next(completions)?;
        if completion.kind == kind {
            return Ok(completion);
        }
    }
}
