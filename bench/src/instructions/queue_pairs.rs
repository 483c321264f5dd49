//! The queue pairs of a case, and their memory.

use std::net::SocketAddr;
use std::thread;

use warpline::{
    Access, Addressing, Advertisement, CompletionQueue, ConnectConfig, Device, ListenConfig, Listener,
    MemoryRegion, ProtectionDomain, QpConfig, QueuePair, Region, STag, SharedReceiveQueue,
};

use super::case::{Case, DEPTH, Pattern, Receives};
use super::lane::Lane;
use super::setup::{PORT, TIMEOUT};
use crate::at_core::{self, LocalPorts};
use crate::error::BenchError;

/// Bytes of the regions at either end.
pub const REGION_BYTES: usize = 1 << 20;
/// Bytes of each region that is registered only to be invalidated.
const INVALIDATED_BYTES: usize = 64;
/// Threads that connect idle queue pairs at either end, each to a port of its own, which follow [`PORT`]:
/// under callgrind a connect takes milliseconds, for most of which its thread waits. A port takes some 16,000
/// connections of one peer.
const IDLE_LANES: u16 = 16;

/// Where the connections of a lane are: at the core with this number of either device, if these have several.
pub type AtCore = Option<u8>;

/// Connects the writer's queue pairs `at` a core to those at `peer`, once `wait` says that it listens. `wait`
/// returns the target's STags that may be invalidated.
///
/// # Errors
///
/// [`BenchError`].
pub fn connect(
    device: &Device,
    case: &Case,
    at: AtCore,
    peer: SocketAddr,
    wait: impl FnOnce() -> Result<Vec<STag>, BenchError>,
) -> Result<Lane, BenchError> {
    let mut lane = Unconnected::new(device, case)?;
    let stags = wait()?;
    let private_data = lane.advertisement.encode().to_vec();
    let config = ConnectConfig { private_data, markers: case.markers, core: at, ..ConnectConfig::default() };
    let (mut ports, mut of_peer) = (LocalPorts::default(), Box::<[u8]>::default());
    for qp in &lane.qps {
        let connected = match at {
            None => qp.connect(peer, &config),
            Some(_) => ports.connect(device, qp, peer, &config),
        };
        let connected = connected.map_err(|error| BenchError::Connect(peer, error))?;
        of_peer = connected.private_data;
    }
    each_idle(&mut lane.idle_qps, |number, qp| {
        let peer = SocketAddr::new(peer.ip(), idle_port(number));
        qp.connect(peer, &config).map(drop).map_err(|error| BenchError::Connect(peer, error))
    })?;
    Ok(Lane { stags, ..lane.connected(case, &of_peer)? })
}

/// Accepts the writer's queue pairs `at` a core, and rejects those at others. When connections are taken,
/// calls `announce` with STags that may be invalidated.
///
/// # Errors
///
/// [`BenchError`].
pub fn accept(
    device: &Device,
    case: &Case,
    at: AtCore,
    announce: impl FnOnce(Vec<STag>),
) -> Result<Lane, BenchError> {
    let mut lane = Unconnected::new(device, case)?;
    let invalidated =
        if case.pattern == Pattern::Invalidations { lane.invalidated(case)? } else { Vec::new() };
    // Under callgrind the setup of many takes longer than a first FPDU may.
    let listen = ListenConfig { markers: case.markers, first_fpdu_timeout: None, ..ListenConfig::default() };
    let listen_at = |port| device.listen(port, &listen).map_err(|error| setup(&error));
    let listener = listen_at(PORT)?;
    let idle_lanes = if lane.idle_qps.is_empty() { 0 } else { IDLE_LANES };
    let idle_listeners =
        (0..idle_lanes).map(|number| listen_at(idle_port(number))).collect::<Result<Vec<_>, _>>()?;
    announce(invalidated.iter().map(MemoryRegion::stag).collect());
    let mut of_peer = Box::<[u8]>::default();
    let advertisement = lane.advertisement.encode();
    let accept = |listener: &Listener, qp: &QueuePair| {
        let request = at_core::accept(listener, at, TIMEOUT)?;
        let private_data = request.private_data().into();
        request.accept(qp, &advertisement).map_err(|error| setup(&error))?;
        Ok::<Box<[u8]>, BenchError>(private_data)
    };
    for qp in &lane.qps {
        of_peer = accept(&listener, qp)?;
    }
    each_idle(&mut lane.idle_qps, |number, qp| accept(&idle_listeners[usize::from(number)], qp).map(drop))?;
    let lane = Lane { invalidated, ..lane.connected(case, &of_peer)? };
    if case.pattern.takes_receives() {
        let receives: Vec<_> = (0..DEPTH).map(|number| lane.receive(number)).collect();
        lane.post_receives(&receives)?;
    }
    Ok(lane)
}

/// The port of idle queue pairs that a thread connects.
const fn idle_port(number: u16) -> u16 {
    PORT + 1 + number
}

/// Connects idle queue pairs on several threads; `connect` has the number of its thread.
fn each_idle(
    qps: &mut [QueuePair],
    connect: impl Fn(u16, &QueuePair) -> Result<(), BenchError> + Sync,
) -> Result<(), BenchError> {
    let share = qps.len().div_ceil(IDLE_LANES.into()).max(1);
    let connect = &connect;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(qps.chunks_mut(share))
            .map(|(number, qps)| scope.spawn(move || qps.iter().try_for_each(|qp| connect(number, qp))))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        // All of them, before one that failed decides.
        threads.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
    })
}

fn setup(error: &dyn std::error::Error) -> BenchError {
    BenchError::Setup(error.to_string())
}

fn no_memory(error: &dyn std::error::Error) -> BenchError {
    BenchError::Memory(error.to_string())
}

/// Queue pairs whose peer's memory is not known yet.
struct Unconnected {
    domain: ProtectionDomain,
    qps: Vec<QueuePair>,
    idle_qps: Vec<QueuePair>,
    completions: CompletionQueue,
    shared_receives: Option<SharedReceiveQueue>,
    source: MemoryRegion,
    exposed: MemoryRegion,
    /// Of `exposed`.
    advertisement: Advertisement,
}

impl Unconnected {
    /// Makes the queue pairs of an end, and their memory.
    fn new(device: &Device, case: &Case) -> Result<Self, BenchError> {
        let domain = device.protection_domain();
        let completions = CompletionQueue::new(2 * DEPTH as usize);
        let config = QpConfig { send_depth: DEPTH as usize, packing: case.packing, ..QpConfig::default() };
        let is_shared = case.receives == Receives::Shared;
        let shared_receives = is_shared.then(|| domain.shared_receive_queue(DEPTH as usize));
        let qps = (0..case.connections)
            .map(|_| match &shared_receives {
                Some(receives) => domain.queue_pair_sharing(receives, &config, &completions, &completions),
                None => domain.queue_pair(&config, &completions, &completions),
            })
            .collect::<Result<_, _>>()
            .map_err(|error| setup(&error))?;
        let idle_config = QpConfig { send_depth: 1, receive_depth: 1, ..config };
        let idle_qps = (0..case.idle_connections)
            .map(|_| domain.queue_pair(&idle_config, &completions, &completions))
            .collect::<Result<_, _>>()
            .map_err(|error| setup(&error))?;
        let region = |access| domain.allocate(REGION_BYTES, access).map_err(|error| no_memory(&error));
        let anything = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::LOCAL_WRITE;
        let (source, exposed) = (region(Access::empty())?, region(anything)?);
        let advertisement = exposed.advertisement(0, REGION_BYTES as u32);
        let advertisement = advertisement.ok_or_else(|| BenchError::Memory("no range".into()))?;
        Ok(Self { domain, qps, idle_qps, completions, shared_receives, source, exposed, advertisement })
    }

    /// Registers as much memory as the messages of `case` invalidate, for the first queue pair alone.
    fn invalidated(&self, case: &Case) -> Result<Vec<MemoryRegion>, BenchError> {
        let region = Region::heap(INVALIDATED_BYTES);
        let region = region.ok_or_else(|| BenchError::Memory(format!("{INVALIDATED_BYTES} bytes")))?;
        let register = |_| {
            let (qp, access) = (&self.qps[0], Access::REMOTE_WRITE | Access::LOCAL_WRITE);
            self.domain.register_for(qp, region.clone(), access, Addressing::ZeroBased)
        };
        (0..case.messages_max()).map(register).collect::<Result<_, _>>().map_err(|error| no_memory(&error))
    }

    fn connected(self, case: &Case, private_data: &[u8]) -> Result<Lane, BenchError> {
        let sink = Advertisement::decode(private_data).map_err(|error| setup(&error))?;
        let Self { qps, idle_qps, completions, shared_receives, source, exposed, .. } = self;
        let (receives, size, pattern) = (case.receives, case.size, case.pattern);
        let (stags, invalidated) = (Vec::new(), Vec::new());
        Ok(Lane {
            qps,
            idle_qps,
            completions,
            shared_receives,
            receives,
            source,
            exposed,
            sink,
            stags,
            first_invalidation: case.warm_up_messages,
            invalidated,
            size,
            pattern,
        })
    }
}
