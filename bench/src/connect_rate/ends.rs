//! The ends of the connections, one at each core of either device: each is one thread's, which polls and
//! answers events.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use warpline::cm::{EventChannel, EventKind, Id, IdNumber};
use warpline::{
    CompletionQueue, ConnectConfig, ControlDriver, CoreDriver, Device, DeviceConfig, ListenConfig,
    ProtectionDomain, QpConfig, QueuePair, ReadsWanted,
};

use crate::error::BenchError;
use crate::link::{Link, Started};
use crate::times::thread_time;

/// The first port of the target. A peer has some 16,000 ports for connections to each.
const PORT: u16 = 7500;
/// Ports of the target.
const PORTS: u16 = 16;

fn setup(error: impl std::fmt::Display) -> BenchError {
    BenchError::Setup(error.to_string())
}

/// What both ends have: a core, and the connections that this thread opens or accepts.
struct End {
    core: CoreDriver,
    /// Polled beside the only core of a device. That of several has a thread of its own.
    control: Option<ControlDriver>,
    channel: EventChannel,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    config: QpConfig,
    connections: HashMap<IdNumber, Connection>,
    closed: ClosedConnections,
}

type Connection = (Id, QueuePair);

/// An end without its core.
pub struct EndWithoutCore {
    _parts:
        (HashMap<IdNumber, Connection>, EventChannel, ProtectionDomain, CompletionQueue, ClosedConnections),
    _listeners: Vec<Id>,
}

/// Connections that are over, whose queue pairs are given back. That of a device with a control thread waits
/// for its core, which this thread polls: so another thread gives it back.
struct ClosedConnections {
    give: Option<mpsc::Sender<Connection>>,
    /// Those that were given back.
    count: Arc<AtomicU64>,
}

impl ClosedConnections {
    fn here() -> Self {
        Self { give: None, count: Arc::default() }
    }

    fn on_another_thread() -> Self {
        let (give, taken) = mpsc::channel();
        let count = Arc::<AtomicU64>::default();
        thread::spawn({
            let count = count.clone();
            move || {
                for connection in taken {
                    drop(connection);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { give: Some(give), count }
    }

    fn add(&self, connection: Connection) {
        if let Some(give) = &self.give {
            // The thread ends after this.
            let _ = give.send(connection);
        } else {
            drop(connection);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl End {
    /// Starts a device, and returns the end at each of its cores.
    fn all(link: Link, config: &DeviceConfig, depth: u16) -> Result<Vec<Self>, BenchError> {
        // This command captures nothing.
        if let Link::One(link, None) = link {
            let (device, core, control) = Device::start_polled(link, config)?;
            return Ok(vec![Self::new(device, core, Some(control), depth)?]);
        }
        let Started { device, cores } = link.start(config)?;
        cores.into_iter().map(|core| Self::new(device.clone(), core, None, depth)).collect()
    }

    fn new(
        device: Device,
        core: CoreDriver,
        control: Option<ControlDriver>,
        depth: u16,
    ) -> Result<Self, BenchError> {
        let depth = usize::from(depth);
        let closed = if control.is_some() {
            ClosedConnections::here()
        } else {
            ClosedConnections::on_another_thread()
        };
        Ok(Self {
            core,
            control,
            closed,
            domain: device.protection_domain(),
            channel: EventChannel::new([device]).map_err(setup)?,
            completions: CompletionQueue::new(1),
            config: QpConfig { send_depth: depth, receive_depth: depth, ..QpConfig::default() },
            connections: HashMap::new(),
        })
    }

    /// Polls the core no more. Returns what else there is, to be dropped when no core of the device is polled
    /// any more: until then the queue pairs would wait for theirs.
    fn stop(self) -> EndWithoutCore {
        let Self { channel, domain, completions, connections, closed, .. } = self;
        EndWithoutCore { _parts: (connections, channel, domain, completions, closed), _listeners: Vec::new() }
    }

    /// Returns true if there was anything to do.
    fn poll(&mut self) -> bool {
        let worked = self.core.poll_once();
        self.poll_control() | worked
    }

    /// Polls the control, or lets its thread have the CPU.
    fn poll_control(&mut self) -> bool {
        if let Some(control) = &mut self.control {
            return control.poll_once();
        }
        thread::yield_now();
        false
    }

    /// Gives back the queue pair of a connection that is over.
    fn close(&mut self, id: IdNumber) {
        if let Some(connection) = self.connections.remove(&id) {
            self.closed.add(connection);
        }
    }

    fn queue_pair(&self) -> Result<QueuePair, BenchError> {
        let made = self.domain.queue_pair(&self.config, &self.completions, &self.completions);
        made.map_err(setup)
    }
}

/// What the clients of all cores are to do together.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Cores of each device.
    pub cores: u32,
    /// The target.
    pub peer: IpAddr,
    /// Work requests of each queue.
    pub depth: u16,
    /// Connections of each client that are being opened or closed at a time.
    pub concurrency: u32,
    /// How many to open and leave open.
    pub open: Option<u32>,
}

impl Plan {
    /// Returns how many connections the client of `core` is to leave open.
    const fn open_at(&self, core: u32) -> Option<u32> {
        match self.open {
            Some(open) => Some(open / self.cores + (core < open % self.cores) as u32),
            None => None,
        }
    }
}

/// The first port of the target at `core`, to which the client at the core with this number connects.
const fn first_port(core: u32) -> u16 {
    PORT + core as u16 * PORTS
}

/// The end that connects from a core.
pub struct Client {
    end: End,
    core: u32,
    plan: Plan,
    /// How many to leave open.
    open: Option<u32>,
    begun: u64,
    /// Connections that were opened to stay.
    opened: u64,
    stopped: bool,
}

impl Client {
    /// Starts the device on `link`, and returns the client at each of its cores.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn all(link: Link, config: &DeviceConfig, plan: Plan) -> Result<Vec<Self>, BenchError> {
        let ends = End::all(link, config, plan.depth)?.into_iter().zip(0..);
        let client = |(end, core)| {
            let open = plan.open_at(core);
            Self { end, core, plan, open, begun: 0, opened: 0, stopped: false }
        };
        Ok(ends.map(client).collect())
    }

    /// Returns the Protection Domain of its queue pairs.
    pub fn domain(&self) -> ProtectionDomain {
        self.end.domain.clone()
    }

    /// Connections that were opened, and closed unless they stay open.
    pub fn completed(&self) -> u64 {
        self.opened + self.end.closed.count()
    }

    /// Polls its core no more.
    pub fn end(self) -> EndWithoutCore {
        self.end.stop()
    }

    /// Has no more connections opened.
    pub const fn stop(&mut self) {
        self.stopped = self.open.is_none();
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
                EventKind::Established { .. } if self.open.is_some() => self.opened += 1,
                EventKind::Established { .. } => id.disconnect().map_err(setup)?,
                EventKind::TimewaitExit if self.open.is_none() => {
                    self.end.close(event.id);
                }
                other => return Err(setup(format_args!("a connection failed: {other:?}"))),
            }
        }
        let done = self.begun == self.completed() && !self.may_begin();
        Ok(if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Polls, and leaves the events to the next [`step`](Self::step). Returns whether there was anything to
    /// do, and the CPU time of the core's poll.
    pub fn poll_timed(&mut self) -> (bool, Duration) {
        let start = thread_time();
        let worked = self.end.core.poll_once();
        let time = thread_time().saturating_sub(start);
        (self.end.poll_control() | worked, time)
    }

    fn may_begin(&self) -> bool {
        let wanted = self.open.map_or(u64::MAX, u64::from);
        !self.stopped && self.begun < wanted && self.begun - self.completed() < self.plan.concurrency.into()
    }

    fn begin(&mut self) -> Result<(), BenchError> {
        let port = first_port(self.core) + (self.begun % u64::from(PORTS)) as u16;
        let (id, qp) = (self.end.channel.create_id(), self.end.queue_pair()?);
        id.resolve_addr(SocketAddr::new(self.plan.peer, port)).map_err(setup)?;
        id.resolve_route().map_err(setup)?;
        let core = (self.plan.cores > 1).then_some(self.core as u8);
        id.connect(&qp, &ConnectConfig { core, ..ConnectConfig::default() }).map_err(setup)?;
        self.end.connections.insert(id.number(), (id, qp));
        self.begun += 1;
        Ok(())
    }
}

/// The end that listens, at a core: its connections may come to any.
pub struct Target {
    end: End,
    /// What listens.
    listeners: Vec<Id>,
}

impl Target {
    /// Starts the device on `link`, and returns the target at each of its cores, for connections of `plan`.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn all(link: Link, config: &DeviceConfig, plan: &Plan) -> Result<Vec<Self>, BenchError> {
        let ends = End::all(link, config, plan.depth)?.into_iter().zip(0..);
        ends.map(|(end, core)| Self::new(end, first_port(core), plan)).collect()
    }

    fn new(end: End, first_port: u16, plan: &Plan) -> Result<Self, BenchError> {
        let usual = ListenConfig::default();
        // Those that stay open never send anything.
        let first_fpdu_timeout = usual.first_fpdu_timeout.filter(|_| plan.open.is_none());
        // One address has half of a backlog.
        let listening = ListenConfig { backlog: 4096, first_fpdu_timeout, ..usual };
        let listen = |port| {
            let id = end.channel.create_id();
            id.bind_addr(SocketAddr::new(plan.peer, port)).map_err(setup)?;
            id.listen(&listening).map_err(setup)?;
            Ok(id)
        };
        let listeners = (first_port..first_port + PORTS).map(listen).collect::<Result<_, BenchError>>()?;
        Ok(Self { end, listeners })
    }

    /// Polls its core no more.
    pub fn end(self) -> EndWithoutCore {
        EndWithoutCore { _listeners: self.listeners, ..self.end.stop() }
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
                EventKind::TimewaitExit => self.end.close(event.id),
                EventKind::Established { .. } | EventKind::Disconnected => {}
                other => return Err(setup(format_args!("a connection failed: {other:?}"))),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_what_stays_open() {
        let peer = [198, 18, 0, 2].into();
        let plan = Plan { cores: 3, peer, depth: 1, concurrency: 1, open: Some(8) };
        assert_eq!([0, 1, 2].map(|core| plan.open_at(core)), [Some(3), Some(3), Some(2)]);
        assert_eq!(Plan { open: None, ..plan }.open_at(0), None);
        assert_eq!(first_port(2) - first_port(1), PORTS);
    }
}
