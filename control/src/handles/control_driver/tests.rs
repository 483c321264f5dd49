//! Tests of devices whose control has no thread: one thread does all that there is to do, at both ends.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use warpline_dataplane::device::sim::{self, EndConfig, SimDevice};

use crate::cm::{EventChannel, EventKind, Id, IdNumber};
use crate::{
    Access, CompletionQueue, ConnectConfig, ControlDriver, CoreDriver, CreateError, Device, DeviceConfig,
    ListenConfig, MemoryRegion, ProtectionDomain, QpConfig, QueuePair, ReadsWanted, Status,
};

const PATIENCE: Duration = Duration::from_mins(1);
const NEAR: [u8; 4] = [198, 18, 0, 1];
const FAR: [u8; 4] = [198, 18, 0, 2];
const PORT: u16 = 4711;

/// A device, and what drives it.
struct Host {
    device: Device,
    core: CoreDriver,
    control: ControlDriver,
    channel: EventChannel,
    domain: ProtectionDomain,
    memory: MemoryRegion,
}

impl Host {
    fn new(link: SimDevice, address: [u8; 4]) -> Self {
        let config = DeviceConfig { duplicate_address_detection: false, ..DeviceConfig::new(address, 24) };
        let (device, mut core, control) = Device::start_polled(link, &config).unwrap();
        let channel = EventChannel::new([device.clone()]).unwrap();
        let domain = device.protection_domain();
        // The core answers, and this thread polls it: another one waits.
        let memory = core.run(|| domain.allocate(4096, Access::LOCAL_WRITE)).unwrap();
        Self { device, core, control, channel, domain, memory }
    }

    fn poll(&mut self) {
        self.core.poll_once();
        self.control.poll_once();
    }
}

fn hosts() -> (Host, Host) {
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    (Host::new(near, NEAR), Host::new(far, FAR))
}

fn queue_pair(host: &Host) -> (QueuePair, CompletionQueue) {
    let completions = CompletionQueue::new(8);
    let config = QpConfig { send_depth: 2, receive_depth: 2, ..QpConfig::default() };
    (host.domain.queue_pair(&config, &completions, &completions).unwrap(), completions)
}

/// Both ends of a link, polled until something has happened.
struct Ends {
    near: Host,
    far: Host,
}

impl Ends {
    fn new() -> Self {
        let (near, far) = hosts();
        Self { near, far }
    }

    #[track_caller]
    fn until<T>(&mut self, mut happened: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = happened(self) {
                return value;
            }
            assert!(start.elapsed() < PATIENCE, "it does not happen");
            self.near.poll();
            self.far.poll();
        }
    }

    /// The next event at the near end, or the far one, which must be of `id`.
    #[track_caller]
    fn event(&mut self, far: bool, id: IdNumber) -> EventKind {
        let event = self.until(|ends| if far { &ends.far } else { &ends.near }.channel.poll());
        assert_eq!(event.id, id, "{event:?}");
        event.kind
    }
}

fn listening(host: &Host) -> Id {
    let id = host.channel.create_id();
    id.bind_addr(SocketAddr::from((FAR, PORT))).unwrap();
    id.listen(&ListenConfig::default()).unwrap();
    id
}

fn connecting(host: &Host, qp: &QueuePair) -> Id {
    let id = host.channel.create_id();
    id.resolve_addr(SocketAddr::from((FAR, PORT))).unwrap();
    assert!(matches!(host.channel.poll().unwrap().kind, EventKind::AddressResolved));
    id.resolve_route().unwrap();
    assert!(matches!(host.channel.poll().unwrap().kind, EventKind::RouteResolved));
    id.connect(qp, &ConnectConfig::default()).unwrap();
    id
}

/// Connections are opened, used and closed, one after the other, by a thread that never waits.
#[test]
fn one_thread_does_everything() {
    const ROUNDS: u64 = 100;
    let mut ends = Ends::new();
    let listener = listening(&ends.far);
    for round in 0..ROUNDS {
        let (near_qp, near_done) = queue_pair(&ends.near);
        let (far_qp, far_done) = queue_pair(&ends.far);
        let id = connecting(&ends.near, &near_qp);
        let asked = ends.event(true, listener.number());
        let EventKind::ConnectRequest(asked) = asked else { panic!("{asked:?}") };
        asked.accept(&far_qp, ReadsWanted::default(), b"").unwrap();
        assert!(matches!(ends.event(true, asked.number()), EventKind::Established { .. }));
        assert!(matches!(ends.event(false, id.number()), EventKind::Established { .. }));
        ends.near.memory.fill(round as u8);
        far_qp.post_receive(7, ends.far.memory.slice(0, 64)).unwrap();
        near_qp.post_send(round, ends.near.memory.slice(0, 64)).unwrap();
        let done = ends.until(|_| near_done.poll());
        assert_eq!((done.id, done.status), (round, Status::Success));
        let received = ends.until(|_| far_done.poll());
        assert_eq!((received.id, received.status, received.byte_len), (7, Status::Success, 64));
        assert_eq!(ends.far.memory.to_vec(0, 64).unwrap(), [round as u8; 64]);
        id.disconnect().unwrap();
        for (far, number) in [(true, asked.number()), (false, id.number())] {
            assert!(matches!(ends.event(far, number), EventKind::Disconnected));
            assert!(matches!(ends.event(far, number), EventKind::TimewaitExit));
        }
    }
    // Those that were dropped are forgotten, though nobody has waited for it.
    ends.until(|ends| (ends.near.device.usage().unwrap().queue_pairs == 0).then_some(()));
    ends.until(|ends| (ends.far.device.usage().unwrap().queue_pairs == 0).then_some(()));
}

/// A startup without an answer ends in time, though nothing happens but that time passes.
#[test]
fn a_deadline_needs_a_poll_of_control() {
    let mut ends = Ends::new();
    let listener = listening(&ends.far);
    let (qp, _completions) = queue_pair(&ends.near);
    let id = ends.near.channel.create_id();
    id.resolve_addr(SocketAddr::from((FAR, PORT))).unwrap();
    id.resolve_route().unwrap();
    while ends.near.channel.poll().is_some() {}
    let timeout = Duration::from_millis(30);
    id.connect(&qp, &ConnectConfig { timeout, ..ConnectConfig::default() }).unwrap();
    // The application at the other end does not answer.
    let asked = ends.event(true, listener.number());
    assert!(ends.near.control.time_to_next_deadline() <= timeout);
    let failed = ends.event(false, id.number());
    assert!(matches!(failed, EventKind::Unreachable(_)), "{failed:?}");
    drop(asked);
}

/// A request of another thread wakes the one that sleeps until there is work for the core.
#[test]
fn a_request_wakes_the_thread_that_sleeps() {
    let Ends { mut near, far: _far } = Ends::new();
    let (qp, _completions) = queue_pair(&near);
    while near.core.poll_once() | near.control.poll_once() {}
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(20));
            qp.disconnect();
        });
        while !near.core.wait(PATIENCE) {}
    });
    assert!(near.control.poll_once(), "there is a request");
    assert!(start.elapsed() < PATIENCE, "nothing has woken it");
}

/// Without its driver a device serves no more, and nobody waits for it; so it is when the core is dropped.
#[test]
fn a_dropped_driver_ends_the_device() {
    for drops_core in [false, true] {
        let Ends { near, far: _far } = Ends::new();
        let Host { device, core, mut control, channel, domain, memory } = near;
        let completions = CompletionQueue::new(8);
        let queue_pair = || domain.queue_pair(&QpConfig::default(), &completions, &completions);
        let qp = queue_pair().unwrap();
        if drops_core {
            drop(core);
            control.poll_once();
            assert!(control.is_over());
        } else {
            drop(control);
            drop(core);
        }
        assert!(matches!(queue_pair(), Err(CreateError::Stopped(_))), "{drops_core}");
        assert!(device.usage().is_err());
        drop((qp, memory, channel, device));
    }
}

/// The last handle goes: control is over once its connections are closed.
#[test]
fn the_last_handle_ends_control() {
    let Ends { near, far: _far } = Ends::new();
    let Host { device, mut core, mut control, channel, domain, memory } = near;
    assert!(!control.is_over());
    drop((memory, domain, channel, device));
    let start = Instant::now();
    while !control.is_over() {
        assert!(start.elapsed() < PATIENCE, "it does not end");
        core.poll_once();
        control.poll_once();
    }
    assert_eq!(control.time_to_next_deadline(), Duration::MAX);
    assert!(!control.poll_once());
}
