//! The ends of the connections: each is one thread's, which polls and answers events.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::time::Duration;

use warpline::cm::{EventChannel, EventKind, Id, IdNumber};
use warpline::{
    CompletionQueue, ConnectConfig, ControlDriver, CoreDriver, Device, DeviceConfig, ListenConfig,
    ProtectionDomain, QpConfig, QueuePair, ReadsWanted,
};

use crate::device::BenchDevice;
use crate::error::BenchError;
use crate::times::thread_time;

/// The first port of the target. A peer has some 16,000 ports for connections to each.
const PORT: u16 = 7500;
/// Ports of the target.
const PORTS: u16 = 16;

fn setup(error: impl std::fmt::Display) -> BenchError {
    BenchError::Setup(error.to_string())
}

/// What both ends have: a device, and the connections on it.
struct End {
    core: CoreDriver<BenchDevice>,
    control: ControlDriver,
    channel: EventChannel,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    config: QpConfig,
    connections: HashMap<IdNumber, (Id, QueuePair)>,
}

impl End {
    fn new(link: BenchDevice, config: &DeviceConfig, depth: u16) -> Result<Self, BenchError> {
        let (device, core, control) = Device::start_polled(link, config)?;
        let depth = usize::from(depth);
        Ok(Self {
            core,
            control,
            domain: device.protection_domain(),
            channel: EventChannel::new([device]).map_err(setup)?,
            completions: CompletionQueue::new(1),
            config: QpConfig { send_depth: depth, receive_depth: depth, ..QpConfig::default() },
            connections: HashMap::new(),
        })
    }

    /// Returns true if there was anything to do.
    fn poll(&mut self) -> bool {
        let worked = self.core.poll_once();
        self.control.poll_once() | worked
    }

    fn queue_pair(&self) -> Result<QueuePair, BenchError> {
        let made = self.domain.queue_pair(&self.config, &self.completions, &self.completions);
        made.map_err(setup)
    }
}

/// What the client is to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The target.
    pub peer: IpAddr,
    /// Work requests of each queue.
    pub depth: u16,
    /// Connections that are being opened or closed at a time.
    pub concurrency: u32,
    /// How many to open and leave open.
    pub open: Option<u32>,
}

/// The end that connects.
pub struct Client {
    end: End,
    plan: Plan,
    begun: u64,
    completed: u64,
    stopped: bool,
}

impl Client {
    /// Returns the end on `link`.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn new(link: BenchDevice, config: &DeviceConfig, plan: Plan) -> Result<Self, BenchError> {
        let end = End::new(link, config, plan.depth)?;
        Ok(Self { end, plan, begun: 0, completed: 0, stopped: false })
    }

    /// Returns the Protection Domain of its queue pairs.
    pub fn domain(&self) -> ProtectionDomain {
        self.end.domain.clone()
    }

    /// Connections that were opened, and closed unless they stay open.
    pub const fn completed(&self) -> u64 {
        self.completed
    }

    /// Has no more connections opened.
    pub const fn stop(&mut self) {
        self.stopped = self.plan.open.is_none();
    }

    /// Does everything that there is to do; breaks at the end.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn step(&mut self) -> Result<ControlFlow<()>, BenchError> {
        while self.may_begin() {
            self.begin()?;
        }
        self.end.poll();
        while let Some(event) = self.end.channel.poll() {
            let Some((id, _)) = self.end.connections.get(&event.id) else { continue };
            match event.kind {
                EventKind::AddressResolved | EventKind::RouteResolved | EventKind::Disconnected => {}
                EventKind::Established { .. } if self.plan.open.is_some() => self.completed += 1,
                EventKind::Established { .. } => id.disconnect().map_err(setup)?,
                EventKind::TimewaitExit if self.plan.open.is_none() => {
                    self.end.connections.remove(&event.id);
                    self.completed += 1;
                }
                other => return Err(setup(format_args!("a connection failed: {other:?}"))),
            }
        }
        let done = self.begun == self.completed && !self.may_begin();
        Ok(if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Polls, and leaves the events to the next [`step`](Self::step). Returns whether there was anything to
    /// do, and the CPU time of the core's poll.
    pub fn poll_timed(&mut self) -> (bool, Duration) {
        let start = thread_time();
        let worked = self.end.core.poll_once();
        let time = thread_time().saturating_sub(start);
        (self.end.control.poll_once() | worked, time)
    }

    fn may_begin(&self) -> bool {
        let wanted = self.plan.open.map_or(u64::MAX, u64::from);
        !self.stopped && self.begun < wanted && self.begun - self.completed < self.plan.concurrency.into()
    }

    fn begin(&mut self) -> Result<(), BenchError> {
        let port = PORT + (self.begun % u64::from(PORTS)) as u16;
        let (id, qp) = (self.end.channel.create_id(), self.end.queue_pair()?);
        id.resolve_addr(SocketAddr::new(self.plan.peer, port)).map_err(setup)?;
        id.resolve_route().map_err(setup)?;
        id.connect(&qp, &ConnectConfig::default()).map_err(setup)?;
        self.end.connections.insert(id.number(), (id, qp));
        self.begun += 1;
        Ok(())
    }
}

/// The end that listens.
pub struct Target {
    end: End,
    /// What listens.
    _listeners: Vec<Id>,
}

impl Target {
    /// Returns the end on `link`, for the connections of `plan`.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn new(link: BenchDevice, config: &DeviceConfig, plan: &Plan) -> Result<Self, BenchError> {
        let end = End::new(link, config, plan.depth)?;
        let usual = ListenConfig::default();
        // Those that stay open never send anything.
        let first_fpdu_timeout = usual.first_fpdu_timeout.filter(|_| plan.open.is_none());
        // One address has half of a backlog.
        let listening = ListenConfig { backlog: 4096, first_fpdu_timeout, ..usual };
        let listen = |port| {
            let id = end.channel.create_id();
            id.bind_addr(SocketAddr::new(config.addresses[0].address, port)).map_err(setup)?;
            id.listen(&listening).map_err(setup)?;
            Ok(id)
        };
        let listeners = (PORT..PORT + PORTS).map(listen).collect::<Result<_, BenchError>>()?;
        Ok(Self { end, _listeners: listeners })
    }

    /// Polls, and leaves the events to the next [`step`](Self::step). Returns true if there was anything to
    /// do.
    pub fn poll(&mut self) -> bool {
        self.end.poll()
    }

    /// Does everything that there is to do.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn step(&mut self) -> Result<(), BenchError> {
        self.end.poll();
        while let Some(event) = self.end.channel.poll() {
            match event.kind {
                EventKind::ConnectRequest(id) => {
                    let qp = self.end.queue_pair()?;
                    id.accept(&qp, ReadsWanted::default(), b"").map_err(setup)?;
                    self.end.connections.insert(id.number(), (id, qp));
                }
                EventKind::TimewaitExit => _ = self.end.connections.remove(&event.id),
                EventKind::Established { .. } | EventKind::Disconnected => {}
                other => return Err(setup(format_args!("a connection failed: {other:?}"))),
            }
        }
        Ok(())
    }
}
