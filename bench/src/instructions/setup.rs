//! The setup of a case: two devices on a wire in memory, and a queue pair at each end.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use warpline::open::{self, Eal, WireConfig};
use warpline::{
    Access, Advertisement, CompletionQueue, ConnectConfig, CoreDriver, Device, DeviceName, ListenConfig,
    MemoryRegion, QpConfig, QueuePair,
};

use super::case::Case;
use super::turn::{DEPTH, Target, Writer};
use crate::arguments::Switch;
use crate::device::{BenchDevice, config};
use crate::ends;
use crate::error::BenchError;

/// The port of the target.
const PORT: u16 = 7471;
/// Bytes of the regions at either end.
const REGION_BYTES: usize = 1 << 20;
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
    let on_ring = if case.over_ipv6 { ends::on_ring_over_ipv6 } else { ends::on_ring };
    let [near_config, far_config] = [1, 2].map(|host| config(Switch::On, on_ring(&ring, host)));
    let peer = SocketAddr::new(far_config.addresses[0].address, PORT);
    let near = Device::start_manual(BenchDevice::new(near, None, "ring")?, &near_config)?;
    let far = Device::start_manual(BenchDevice::new(far, None, "ring")?, &far_config)?;
    thread::scope(|scope| {
        let (listening, is_listening) = mpsc::channel();
        let (advertise, advertised) = mpsc::channel();
        let target = scope.spawn(move || target(far, case, &listening, &advertise));
        let writer = writer(near, case, peer, is_listening, advertised);
        let target = target.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((writer?, target?))
    })
}

/// Makes a queue pair and a region.
fn lane(
    device: &Device,
    case: &Case,
    access: Access,
) -> Result<(QueuePair, CompletionQueue, MemoryRegion), BenchError> {
    let domain = device.protection_domain();
    let completions = CompletionQueue::new(2 * DEPTH as usize);
    let config = QpConfig { send_depth: DEPTH as usize, packing: case.packing, ..QpConfig::default() };
    let qp = domain
        .queue_pair(&config, &completions, &completions)
        .map_err(|error| BenchError::Setup(error.to_string()))?;
    let region =
        domain.allocate(REGION_BYTES, access).map_err(|error| BenchError::Memory(error.to_string()))?;
    Ok((qp, completions, region))
}

type Started = (Device, CoreDriver<BenchDevice>);

fn writer(
    (device, mut driver): Started,
    case: &Case,
    peer: SocketAddr,
    listening: mpsc::Receiver<()>,
    sink: mpsc::Receiver<Advertisement>,
) -> Result<Writer, BenchError> {
    let failed = |_| BenchError::Setup("the target did not start".into());
    let connect = ConnectConfig { markers: case.markers, ..ConnectConfig::default() };
    let (lane, sink) = driver.run(move || -> Result<_, BenchError> {
        let lane = lane(&device, case, Access::empty())?;
        listening.recv_timeout(TIMEOUT).map_err(failed)?;
        lane.0.connect(peer, &connect).map_err(|error| BenchError::Connect(peer, error))?;
        Ok((lane, sink.recv_timeout(TIMEOUT).map_err(failed)?))
    })?;
    let (qp, completions, source) = lane;
    let polled = Vec::with_capacity(2 * DEPTH as usize);
    let (posted, completed, size) = (0, 0, case.size);
    Ok(Writer { driver, qp, completions, source, sink, polled, size, posted, completed, failed: None })
}

fn target(
    (device, mut driver): Started,
    case: &Case,
    listening: &mpsc::Sender<()>,
    advertise: &mpsc::Sender<Advertisement>,
) -> Result<Target, BenchError> {
    let setup = |error: &dyn std::error::Error| BenchError::Setup(error.to_string());
    let (qp, completions, sink) = driver.run(move || -> Result<_, BenchError> {
        let lane = lane(&device, case, Access::REMOTE_WRITE)?;
        let listen = ListenConfig { markers: case.markers, ..ListenConfig::default() };
        let listener = device.listen(PORT, &listen).map_err(|error| setup(&error))?;
        // The receivers are gone if the writer has failed, and reported that.
        let _ = listening.send(());
        let request = listener.accept(TIMEOUT).map_err(|error| setup(&error))?;
        request.accept(&lane.0, &[]).map_err(|error| setup(&error))?;
        let sink = lane.2.advertisement(0, REGION_BYTES as u32);
        let _ = advertise.send(sink.ok_or_else(|| BenchError::Memory("no range".into()))?);
        Ok(lane)
    })?;
    Ok(Target { driver, completions, _connection: (qp, sink) })
}
