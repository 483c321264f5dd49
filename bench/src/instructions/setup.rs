//! The setup of a case: two devices on a wire in memory, and a queue pair at each end.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use warpline::open::{self, Eal, WireConfig};
use warpline::{
    Access, Advertisement, CompletionQueue, ConnectConfig, CoreDriver, Device, DeviceConfig, DeviceName,
    ListenConfig, MemoryRegion, QpConfig, QueuePair,
};
use warpline_tools::arguments::Switch;

use super::case::{Case, Pattern};
use super::pings::Pings;
use super::turn::{DEPTH, Lane, Target, Writer};
use crate::device::{self, BenchDevice, config};
use crate::error::BenchError;

/// The port of the target.
const PORT: u16 = 7471;
/// Bytes of the regions at either end.
const REGION_BYTES: usize = 1 << 20;
/// Bytes in flight: three turns of 32 jumbo frames. What one poll takes, the next acknowledges, and the one
/// after that sends more.
const WINDOW_BYTES: u32 = 1 << 20;
/// How long a step may take, under callgrind too.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Returns connected ends for `case`.
///
/// # Errors
///
/// [`BenchError`].
pub fn connect(eal: Eal, case: &Case) -> Result<(Writer, Target), BenchError> {
    let ring = DeviceName::from_str("ring")?;
    let wire = WireConfig { mtu_bytes: case.mtu.into(), ..WireConfig::default() };
    let (near, far) = open::ring_pair(eal, &wire)?;
    let on_ring = if case.over_ipv6 { device::on_ring_over_ipv6 } else { device::on_ring };
    let [near_config, far_config] = [1, 2]
        .map(|host| DeviceConfig { window_bytes: WINDOW_BYTES, ..config(Switch::On, on_ring(&ring, host)) });
    let peer = SocketAddr::new(far_config.addresses[0].address, PORT);
    let near = Device::start_manual(BenchDevice::new(near, None, "ring")?, &near_config)?;
    let far = Device::start_manual(BenchDevice::new(far, None, "ring")?, &far_config)?;
    thread::scope(|scope| {
        let (listening, is_listening) = mpsc::channel();
        let target = scope.spawn(move || target(far, case, &listening));
        let writer = writer(near, case, peer, is_listening);
        let target = target.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((writer?, target?))
    })
}

type Started = (Device, CoreDriver<BenchDevice>);

/// Makes the queue pairs of an end, and their memory.
fn queue_pairs(device: &Device, case: &Case) -> Result<Unconnected, BenchError> {
    let domain = device.protection_domain();
    let completions = CompletionQueue::new(2 * DEPTH as usize);
    let config = QpConfig { send_depth: DEPTH as usize, packing: case.packing, ..QpConfig::default() };
    let qps = (0..case.connections)
        .map(|_| domain.queue_pair(&config, &completions, &completions))
        .collect::<Result<_, _>>()
        .map_err(|error| BenchError::Setup(error.to_string()))?;
    let region =
        |access| domain.allocate(REGION_BYTES, access).map_err(|error| BenchError::Memory(error.to_string()));
    let anything = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::LOCAL_WRITE;
    let (source, exposed) = (region(Access::empty())?, region(anything)?);
    let advertisement = exposed.advertisement(0, REGION_BYTES as u32);
    let advertisement = advertisement.ok_or_else(|| BenchError::Memory("no range".into()))?;
    Ok(Unconnected { qps, completions, source, exposed, advertisement })
}

/// Queue pairs whose peer's memory is not known yet.
struct Unconnected {
    qps: Vec<QueuePair>,
    completions: CompletionQueue,
    source: MemoryRegion,
    exposed: MemoryRegion,
    /// Of `exposed`.
    advertisement: Advertisement,
}

impl Unconnected {
    fn connected(self, case: &Case, private_data: &[u8]) -> Result<Lane, BenchError> {
        let sink =
            Advertisement::decode(private_data).map_err(|error| BenchError::Setup(error.to_string()))?;
        let Self { qps, completions, source, exposed, .. } = self;
        Ok(Lane { qps, completions, source, exposed, sink, size: case.size, pattern: case.pattern })
    }
}

fn writer(
    (device, mut driver): Started,
    case: &Case,
    peer: SocketAddr,
    listening: mpsc::Receiver<()>,
) -> Result<Writer, BenchError> {
    let lane = driver.run(move || -> Result<_, BenchError> {
        let lane = queue_pairs(&device, case)?;
        let failed = |_| BenchError::Setup("the target did not start".into());
        listening.recv_timeout(TIMEOUT).map_err(failed)?;
        let private_data = lane.advertisement.encode().to_vec();
        let config = ConnectConfig { private_data, markers: case.markers, ..ConnectConfig::default() };
        let mut of_peer = Box::<[u8]>::default();
        for qp in &lane.qps {
            let connected = qp.connect(peer, &config).map_err(|error| BenchError::Connect(peer, error))?;
            of_peer = connected.private_data;
        }
        lane.connected(case, &of_peer)
    })?;
    let polled = Vec::with_capacity(2 * DEPTH as usize);
    let pings = (case.pattern == Pattern::Ping).then(Pings::default);
    Ok(Writer { driver, lane, pings, polled, posted: 0, completed: 0, failed: None })
}

fn target(
    (device, mut driver): Started,
    case: &Case,
    listening: &mpsc::Sender<()>,
) -> Result<Target, BenchError> {
    let setup = |error: &dyn std::error::Error| BenchError::Setup(error.to_string());
    let lane = driver.run(move || -> Result<_, BenchError> {
        let lane = queue_pairs(&device, case)?;
        let listen = ListenConfig { markers: case.markers, ..ListenConfig::default() };
        let listener = device.listen(PORT, &listen).map_err(|error| setup(&error))?;
        // The receiver is gone if the writer has failed, and reported that.
        let _ = listening.send(());
        let mut of_peer = Box::<[u8]>::default();
        for qp in &lane.qps {
            let request = listener.accept(TIMEOUT).map_err(|error| setup(&error))?;
            of_peer = request.private_data().into();
            request.accept(qp, &lane.advertisement.encode()).map_err(|error| setup(&error))?;
        }
        lane.connected(case, &of_peer)
    })?;
    if case.pattern == Pattern::Sends {
        (0..DEPTH).try_for_each(|number| lane.post_receive(number))?;
    }
    let pings = (case.pattern == Pattern::Ping).then(Pings::default);
    Ok(Target { driver, lane, pings, posted: 0, completed: 0, failed: None })
}
