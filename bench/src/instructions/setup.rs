//! The setup of a case: two devices on a wire in memory, and a queue pair or a byte stream at each end; or
//! one device, with both.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use warpline::link;
use warpline::open::{self, Eal, Mbuf, OpenedPorts, WireConfig};
use warpline::{
    Algorithm, ByteStream, ByteStreamConfig, Capacity, CoreDriver, Device, DeviceConfig, DeviceName, STag,
    StreamConfig, TcpListenConfig, TcpStream,
};
use warpline_tools::arguments::Switch;

use super::bytes::{Receiver, Sender};
use super::case::{Case, Network, Pattern};
use super::lane::Lane;
use super::network::Disturbed;
use super::pings::{Pings, Side};
use super::queue_pairs::{self, AtCore, REGION_BYTES};
use super::turn::{End, EndCore, Receives, Requests, Work};
use crate::device::{self, config};
use crate::endpoint::NAP;
use crate::error::BenchError;

/// The port of the target.
pub const PORT: u16 = 7471;
/// The VLAN where frames have one.
const VLAN: u16 = 7;
/// Bytes in flight: three turns of 32 jumbo frames. What one poll takes, the next acknowledges, and the one
/// after that sends more.
const WINDOW_BYTES: u32 = 1 << 20;
/// How long a step may take, under callgrind too.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// A device, and its cores by number.
type Started = (Device, Vec<CoreDriver>);

/// Returns the connected ends for `case`: the writer, and the target if it has a core of its own.
///
/// # Errors
///
/// [`BenchError`].
pub fn connect(eal: Eal, case: &Case) -> Result<(End, Option<End>), BenchError> {
    let ring = DeviceName::from_str("ring")?;
    let [near_config, far_config] = [1, 2].map(|host| host_config(case, &ring, host));
    let checksum_offload = case.network != Network::NoChecksums;
    let wire = WireConfig { mtu_bytes: case.mtu.into(), checksum_offload, ..WireConfig::default() };
    let (near, far) = if case.cores == 1 {
        let (near, far) = open::ring_pair(eal, &wire)?;
        let near = match case.network {
            disturbing @ (Network::Marking | Network::MarkingUnheard | Network::Reordering) => {
                start_one(Disturbed::new(near, disturbing), &near_config)?
            }
            _ => start_one(near, &near_config)?,
        };
        if case.network == Network::Loopback {
            return Ok((one_end(near, case, address(&near_config))?, None));
        }
        (near, start_one(far, &far_config)?)
    } else {
        let [near, far] = open::ring_pair_of(eal, &wire, [case.cores.into(); 2])?;
        (start_several(near, &near_config)?, start_several(far, &far_config)?)
    };
    thread::scope(|scope| {
        let (listening, is_listening) = mpsc::channel();
        let target = scope.spawn(move || target(far, case, &listening));
        let writer = writer(near, case, address(&far_config), is_listening);
        let target = target.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (writer, target) {
            // The writer says only that the target did not start.
            (Err(BenchError::Setup(_)), Err(error)) => Err(error),
            (writer, target) => Ok((writer?, Some(target?))),
        }
    })
}

fn start_one(
    link: impl link::Device<Frame = Mbuf> + Send,
    config: &DeviceConfig,
) -> Result<Started, BenchError> {
    let (device, driver) = Device::start_manual(link, config)?;
    Ok((device, vec![driver]))
}

fn start_several(opened: OpenedPorts, config: &DeviceConfig) -> Result<Started, BenchError> {
    let (links, steering) = opened.into_parts();
    Ok(Device::start_cores_manual(links, &steering, config)?)
}

fn host_config(case: &Case, ring: &DeviceName, host: u8) -> DeviceConfig {
    let on_ring = if case.network == Network::Ipv6 { device::on_ring_over_ipv6 } else { device::on_ring };
    let mut config = DeviceConfig { window_bytes: WINDOW_BYTES, ..config(Switch::On, on_ring(ring, host)) };
    match case.network {
        Network::Vlan => config.vlan = Some(VLAN),
        Network::Marking | Network::MarkingUnheard => config.tcp.congestion = Algorithm::Dctcp,
        _ => {}
    }
    config.tcp.rdma_option = case.pattern == Pattern::Transfers;
    // One protection domain may have half of a device's queue pairs.
    let queue_pairs = 2 * (case.connections + case.idle_connections) as usize;
    if queue_pairs > config.capacity.queue_pairs {
        config.with_capacity(Capacity::of(queue_pairs))
    } else {
        config
    }
}

fn address(config: &DeviceConfig) -> SocketAddr {
    SocketAddr::new(config.addresses[0].address, PORT)
}

/// Connects what is at the writer's cores, one after the other.
fn writer(
    (device, drivers): Started,
    case: &Case,
    peer: SocketAddr,
    listening: mpsc::Receiver<Vec<STag>>,
) -> Result<End, BenchError> {
    end(drivers, move |at| {
        let failed = |_| BenchError::Setup("the target did not start".into());
        let wait = || listening.recv_timeout(TIMEOUT).map_err(failed);
        Ok(match case.pattern {
            Pattern::Bytes | Pattern::Transfers => {
                wait()?;
                Work::Sends(byte_sender(&device, case, peer)?)
            }
            Pattern::Ping => {
                Work::Pings(Pings::new(queue_pairs::connect(&device, case, at, peer, wait)?, Side::Begins))
            }
            _ => requests(queue_pairs::connect(&device, case, at, peer, wait)?, case),
        })
    })
}

/// Accepts what is at the target's cores, one after the other.
fn target(
    (device, drivers): Started,
    case: &Case,
    listening: &mpsc::Sender<Vec<STag>>,
) -> Result<End, BenchError> {
    end(drivers, |at| {
        // The receiver is gone if the writer has failed, and reported that.
        let announce = |stags| drop(listening.send(stags));
        Ok(match case.pattern {
            Pattern::Bytes | Pattern::Transfers => Work::Reads(byte_receiver(&device, case, announce)?),
            Pattern::Ping => {
                Work::Pings(Pings::new(queue_pairs::accept(&device, case, at, announce)?, Side::Answers))
            }
            Pattern::Reads => {
                let lane = queue_pairs::accept(&device, case, at, announce)?;
                Work::Requests(Requests::new(lane, case.batch, u64::MAX))
            }
            _ => Work::Receives(Receives::new(queue_pairs::accept(&device, case, at, announce)?)),
        })
    })
}

/// Returns an end with the work that `work` returns for each of its cores, all of which are polled meanwhile.
fn end(
    mut drivers: Vec<CoreDriver>,
    mut work: impl FnMut(AtCore) -> Result<Work, BenchError> + Send,
) -> Result<End, BenchError> {
    let cores = drivers.len() as u8;
    let works = run(&mut drivers, || {
        let at = |core| (cores > 1).then_some(core);
        (0..cores).map(|core| work(at(core))).collect::<Result<Vec<_>, _>>()
    })?;
    let cores = drivers.into_iter().zip(works);
    Ok(End { cores: cores.map(|(driver, work)| EndCore { driver, work, other: None }).collect() })
}

/// Makes `call`, which waits for the cores, on another thread, and polls them until it returns.
fn run<T: Send>(drivers: &mut [CoreDriver], call: impl FnOnce() -> T + Send) -> T {
    if let [driver] = drivers {
        return driver.run(call);
    }
    thread::scope(|scope| {
        let call = scope.spawn(call);
        while !call.is_finished() {
            if !drivers.iter_mut().fold(false, |worked, driver| driver.poll_once() | worked) {
                thread::sleep(NAP);
            }
        }
        call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Connects a device with itself.
fn one_end((device, mut drivers): Started, case: &Case, peer: SocketAddr) -> Result<End, BenchError> {
    let (lane, other) = run(&mut drivers, || {
        thread::scope(|scope| {
            let (listening, is_listening) = mpsc::channel();
            let device = &device;
            let announce = move |stags| drop(listening.send(stags));
            let accepted = scope.spawn(move || queue_pairs::accept(device, case, None, announce));
            let failed = |_| BenchError::Setup("the target did not start".into());
            let wait = || is_listening.recv_timeout(TIMEOUT).map_err(failed);
            let lane = queue_pairs::connect(device, case, None, peer, wait);
            let other = accepted.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, BenchError>((lane?, other?))
        })
    })?;
    let core = drivers.pop().ok_or_else(|| BenchError::Setup("there is no core".into()))?;
    Ok(End { cores: vec![EndCore { driver: core, work: requests(lane, case), other: Some(other) }] })
}

fn requests(lane: Lane, case: &Case) -> Work {
    // The target may send once this end, the Initiator, has (RFC 5044 §7.1.2): one Read back.
    let limit = match case.pattern {
        Pattern::Reads => 1,
        Pattern::Invalidations => lane.first_invalidation + lane.stags.len() as u64,
        _ => u64::MAX,
    };
    Work::Requests(Requests::new(lane, case.batch, limit))
}

fn setup(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Setup(error.to_string())
}

fn byte_sender(device: &Device, case: &Case, peer: SocketAddr) -> Result<Sender, BenchError> {
    let opening = StreamConfig { timeout: TIMEOUT, ..StreamConfig::default() };
    let stream = device.connect_stream(peer, &opening).map_err(|error| setup(&error))?;
    let stream = byte_stream(stream)?;
    let memory = memory(device)?;
    Ok(Sender::new(stream, &memory, case.size as usize, case.pattern == Pattern::Transfers))
}

fn byte_receiver(
    device: &Device,
    case: &Case,
    announce: impl FnOnce(Vec<STag>),
) -> Result<Receiver, BenchError> {
    let listener = device.listen_streams(PORT, &TcpListenConfig::default()).map_err(|error| setup(&error))?;
    announce(Vec::new());
    let stream = listener.accept(TIMEOUT).map_err(|error| setup(&error))?;
    let stream = byte_stream(stream)?;
    match case.pattern {
        Pattern::Transfers => Receiver::with_transfers(stream, memory(device)?, case.size as usize),
        _ => Ok(Receiver::new(stream, case.size as usize)),
    }
}

fn byte_stream(stream: TcpStream) -> Result<ByteStream, BenchError> {
    let rings = ByteStreamConfig { events: false, ..ByteStreamConfig::default() };
    stream.into_byte_stream(&rings).map_err(|error| setup(&error))
}

fn memory(device: &Device) -> Result<warpline::Region, BenchError> {
    let allocated = device.config().memory.allocate(REGION_BYTES);
    allocated.ok_or_else(|| BenchError::Memory(format!("{REGION_BYTES} bytes")))
}
