//! Two devices with a link in memory between them, and connections over it: shared helpers of the tests.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod poll_thread;
pub mod raw;

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};
use warpline::{
    Access, Completion, CompletionQueue, ConnectConfig, ConnectError, Connected, Device, DeviceConfig,
    ListenConfig, MemoryRegion, PollThread, ProtectionDomain, QpConfig, QueuePair, QueuePairControl,
    Statistics, Status, Usage,
};
use warpline_dataplane::device::sim::{self, EndConfig, Network, SimDevice};

/// Time limit of every wait in a test. No test reaches it unless something is wrong, on any machine.
pub const PATIENCE: Duration = Duration::from_mins(2);

pub const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
pub const PORT: u16 = 4711;

/// A link that neither loses nor delays, at MTU 9000.
pub fn link() -> (SimDevice, SimDevice) {
    let mtu_octets = 9000;
    sim::link(
        7,
        EndConfig { mtu_bytes: mtu_octets, ..EndConfig::a() },
        EndConfig { mtu_bytes: mtu_octets, ..EndConfig::b() },
    )
}

pub fn config(address: Ipv4Addr) -> DeviceConfig {
    DeviceConfig::new(address, 24)
}

/// Two devices, each polled by a thread of its own.
pub struct Pair {
    pub near: Device,
    pub far: Device,
    pub network: Network,
}

impl Pair {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// Two devices, their configuration changed by `change`.
    pub fn with(change: impl Fn(&mut DeviceConfig)) -> Self {
        let (near, far) = link();
        let network = near.network();
        let start = |device, address| {
            let mut config = config(address);
            change(&mut config);
            Device::start(device, &config, PollThread::default()).unwrap()
        };
        Self { near: start(near, NEAR), far: start(far, FAR), network }
    }

    /// Connects `qp`, of the near device, to an end at the far one.
    pub fn accept(&self, qp: &QueuePairControl) -> End {
        let listener = self.far.listen(PORT, &ListenConfig::default()).unwrap();
        let far = End::new(&self.far);
        thread::scope(|scope| {
            let connecting = scope.spawn(|| qp.connect((FAR, PORT).into(), &ConnectConfig::default()));
            listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        far
    }

    /// A connection from the near device to the far one.
    pub fn connect(&self) -> (End, End) {
        let listener = self.far.listen(PORT, &ListenConfig::default()).unwrap();
        let (near, far) = (End::new(&self.near), End::new(&self.far));
        thread::scope(|scope| {
            let connecting = scope.spawn(near.connecting(b""));
            listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        (near, far)
    }
}

type ConnectOutcome = Result<Connected, ConnectError>;

/// One end of a connection: a queue pair with a domain, a completion queue and a region of its own.
pub struct End {
    pub qp: QueuePair,
    pub completions: CompletionQueue,
    pub memory: MemoryRegion,
    pub domain: ProtectionDomain,
}

impl End {
    pub const OCTETS: usize = 1 << 20;

    pub fn new(device: &Device) -> Self {
        Self::with(device, &QpConfig::default())
    }

    pub fn with(device: &Device, config: &QpConfig) -> Self {
        Self::reporting(device, config, CompletionQueue::new(4096))
    }

    /// Returns an end that reports to `completions`.
    pub fn reporting(device: &Device, config: &QpConfig, completions: CompletionQueue) -> Self {
        let domain = device.protection_domain();
        let qp = domain.queue_pair(config, &completions, &completions).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = domain.allocate(Self::OCTETS, access).unwrap();
        Self { qp, completions, memory, domain }
    }

    pub fn connect(&self, private_data: &[u8]) -> ConnectOutcome {
        self.connecting(private_data)()
    }

    pub fn connect_with(&self, config: &ConnectConfig) -> ConnectOutcome {
        self.connecting_with(config)()
    }

    /// The part of the queue pair for any thread.
    pub fn control(&self) -> &QueuePairControl {
        &self.qp
    }

    /// What connects the queue pair, on any thread.
    pub fn connecting(&self, private_data: &[u8]) -> impl FnOnce() -> ConnectOutcome + Send + use<'_> {
        let private_data = private_data.into();
        self.connecting_with(&ConnectConfig { private_data, ..ConnectConfig::default() })
    }

    pub fn connecting_with(
        &self,
        config: &ConnectConfig,
    ) -> impl FnOnce() -> ConnectOutcome + Send + use<'_> {
        let (qp, config) = (self.control(), config.clone());
        move || qp.connect(SocketAddr::from((FAR, PORT)), &config)
    }

    /// Writes octets 0..`octets` to the same place at the peer.
    pub fn write(&self, id: u64, peer: &Self, octets: u32) {
        let target = peer.memory.advertisement(0, octets).unwrap();
        self.qp.post_write(id, self.memory.slice(0, octets), &target, 0).unwrap();
    }

    pub fn completion(&self) -> Completion {
        self.completions.wait(PATIENCE).expect("a completion")
    }
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the counters of each core, all of which are polled: on a busy machine one may not answer at once.
pub fn statistics_of_cores(device: &Device) -> Vec<Statistics> {
    let mut all = None;
    eventually("every core answers", || {
        all = device.statistics_by_core().unwrap().into_iter().collect();
        all.is_some()
    });
    all.unwrap_or_default()
}

/// Waits until all resources that applications had of `device` are freed.
pub fn eventually_unused(device: &Device) {
    eventually("everything is given back", || device.usage() == Ok(Usage::default()));
}

/// Connects some queue pairs of `near` with as many at [`FAR`], which is `far`. Their flows have owners of
/// all kinds. Writes by each.
pub fn exchange(near: &Device, far: &Device) {
    const OCTETS: u32 = 100_000;
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let ends: Vec<(End, End)> = (0..8)
        .map(|_| {
            let (near, far) = (End::new(near), End::new(far));
            thread::scope(|scope| {
                let connecting = scope.spawn(near.connecting(b""));
                listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
                connecting.join().unwrap().unwrap();
            });
            (near, far)
        })
        .collect();
    for (number, (near, far)) in (1..).zip(&ends) {
        near.memory.fill(number);
        near.write(u64::from(number), far, OCTETS);
    }
    for (number, (near, far)) in (1..).zip(&ends) {
        assert_eq!(near.completion().status, Status::Success);
        assert_eq!(far.memory.to_vec(0, OCTETS as usize).unwrap(), vec![number; OCTETS as usize]);
    }
}

/// Returns two CPUs, as a device's name lists them, if there are as many.
pub fn two_cpus() -> Option<String> {
    let cpus = core_affinity::get_core_ids()?;
    let [first, second, ..] = cpus[..] else { return None };
    Some(format!("{}+{}", first.id, second.id))
}
