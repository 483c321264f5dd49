//! Several cores of one device on a link whose other end is the test, in one thread and in virtual time.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use warpline_dataplane::core::{Config, CoreSetup, Place};
use warpline_dataplane::device::sim::{self, EndConfig, SimDevice, SimFrame};
use warpline_dataplane::device::{Capabilities, Device, Frame};
use warpline_dataplane::limits;
use warpline_dataplane::ring::{Command, Event, Rings};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::steering::Steering;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::flow::Flow;
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::ipv6;

use super::link::Octets;
use super::{TABLES, TestCore, core_on};

/// Entries of the steering's table, as adapters have them.
const ENTRIES: usize = 128;

/// The device that the cores share: an adapter that hashes, and hands frames over.
struct Adapter {
    link: SimDevice,
    steering: Arc<Steering>,
    /// Frames that wait for each core.
    queues: Vec<VecDeque<SimFrame>>,
    /// Frames that a queue holds.
    queue_frames: usize,
}

impl Adapter {
    /// Brings what has arrived to the cores: plain segments to their owners, everything else to core 0.
    fn sort(&mut self, now: Instant) {
        let mut frames = Vec::new();
        while self.link.receive(now, &mut frames, 64) > 0 {}
        for frame in frames {
            let owner = flow_of(frame.piece(0).unwrap()).map_or(0, |flow| self.steering.owner(&flow));
            self.queues[usize::from(owner)].push_back(frame);
        }
    }
}

/// Returns the flow of a plain segment: not in fragments, without options or extension headers.
pub fn flow_of(frame: &[u8]) -> Option<Flow> {
    let (header, network) = ethernet::Header::parse(frame).ok()?;
    let packet = &frame[network..];
    match header.ethertype {
        EtherType::IPV4 => {
            let (ip, octets) = ipv4::Header::parse(packet).ok()?;
            let is_plain = ip.protocol == Protocol::TCP && octets == ipv4::Header::LEN && !ip.is_fragment();
            Flow::at_ipv4(packet).filter(|_| is_plain)
        }
        EtherType::IPV6 => {
            let ip = ipv6::Header::parse(packet).ok()?;
            Flow::at_ipv6(packet).filter(|_| ip.next_header == Protocol::TCP)
        }
        _ => None,
    }
}

/// The end of the device that one core has.
struct Queue {
    core: u8,
    adapter: Arc<Mutex<Adapter>>,
}

impl Queue {
    fn adapter(&self) -> MutexGuard<'_, Adapter> {
        self.adapter.lock().expect("no panic")
    }
}

impl Device for Queue {
    type Frame = SimFrame;

    fn capabilities(&self) -> Capabilities {
        self.adapter().link.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.adapter().link.mac()
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<SimFrame>, limit: usize) -> usize {
        let mut adapter = self.adapter();
        adapter.sort(now);
        let queue = &mut adapter.queues[usize::from(self.core)];
        let count = queue.len().min(limit);
        frames.extend(queue.drain(..count));
        count
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        self.adapter().link.allocate()
    }

    fn transmit(&mut self, now: Instant, frames: &mut Vec<SimFrame>) -> usize {
        self.adapter().link.transmit(now, frames)
    }

    fn hand_over(&mut self, core: u8, frame: SimFrame) -> Result<(), SimFrame> {
        assert_ne!(core, self.core, "a frame of its own");
        let mut adapter = self.adapter();
        let most = adapter.queue_frames;
        let queue = &mut adapter.queues[usize::from(core)];
        if queue.len() >= most {
            return Err(frame);
        }
        queue.push_back(frame);
        Ok(())
    }
}

/// The cores of a device.
pub struct Cores {
    pub all: Vec<TestCore>,
    pub steering: Arc<Steering>,
    pub rings: Vec<Rings>,
    /// The events of each core.
    pub events: Vec<Vec<Event>>,
    /// What the device has sent.
    pub frames: VecDeque<Octets>,
    pub now: Instant,
    adapter: Arc<Mutex<Adapter>>,
    far: SimDevice,
}

impl Cores {
    /// `count` cores of a device with the hardware address `mac`. The key of the hash follows from `seed`.
    pub fn new(count: u8, config: &Config, mac: MacAddress, seed: u64) -> Self {
        Self::with_rings(count, config, mac, seed, |_| Rings::new())
    }

    /// As [`new`](Self::new), each core with the rings that `rings` makes.
    pub fn with_rings(
        count: u8,
        config: &Config,
        mac: MacAddress,
        seed: u64,
        rings: impl FnMut(u8) -> Rings,
    ) -> Self {
        let (link, far) = sim::link(seed, EndConfig { mac, ..EndConfig::a() }, EndConfig::b());
        let mut random = fastrand::Rng::with_seed(seed);
        let steering = Arc::new(Steering::new(count, ENTRIES, |key| random.fill(key)));
        let adapter = Adapter {
            link,
            steering: steering.clone(),
            queues: (0..count).map(|_| VecDeque::new()).collect(),
            queue_frames: usize::MAX,
        };
        let adapter = Arc::new(Mutex::new(adapter));
        let rings: Vec<Rings> = (0..count).map(rings).collect();
        let cores = Place::all(&steering).into_iter().zip(&rings).map(|(place, rings)| {
            let queue = Queue { core: place.core(), adapter: adapter.clone() };
            let setup = CoreSetup::new(config.clone(), rings.clone()).with_tables(TABLES).placed(place);
            core_on(queue, setup)
        });
        Self {
            all: cores.collect(),
            steering,
            events: rings.iter().map(|_| Vec::new()).collect(),
            rings,
            frames: VecDeque::new(),
            now: Instant::from_nanos(1),
            adapter,
            far,
        }
    }

    /// Has the adapter hold no more than `frames` frames for a core when others hand it some.
    pub fn limit_queues(&self, frames: usize) {
        self.adapter.lock().expect("no panic").queue_frames = frames;
    }

    pub fn command(&self, core: u8, command: Command) {
        assert!(self.rings[usize::from(core)].commands.push(command).is_ok());
    }

    /// Has a core open a connection; the event has the token.
    pub fn connect(&mut self, core: u8, token: u64, local: Option<SocketAddr>, remote: SocketAddr) {
        let timeout_ns = 600 * SECOND;
        self.command(
            core,
            Command::Connect { token, local, remote, timeout_ns, tcp: None, octets: Box::default() },
        );
    }

    /// Has all cores accept connections at `port`.
    pub fn listen(&mut self, port: u16, backlog: u32) {
        for core in 0..self.steering.cores() {
            self.command(core, Command::Listen { address: None, port, backlog, tcp: None });
        }
    }

    /// Polls one core.
    pub fn poll(&mut self, core: u8) -> bool {
        let busy = self.all[usize::from(core)].poll_once(self.now);
        let events = &self.rings[usize::from(core)].events;
        self.events[usize::from(core)].extend(std::iter::from_fn(|| events.pop()));
        let mut frames = Vec::new();
        self.far.receive(self.now, &mut frames, 64);
        self.frames.extend(frames.iter().map(|frame| frame.piece(0).unwrap().to_vec()));
        busy
    }

    /// Puts a frame on the wire.
    pub fn send(&mut self, octets: &[u8]) {
        let mut frame = self.far.allocate().unwrap();
        frame.append(octets.len()).unwrap().copy_from_slice(octets);
        self.far.transmit(self.now, &mut vec![frame]);
    }

    /// Puts a frame on the wire and lets the cores reply.
    pub fn inject(&mut self, octets: &[u8]) {
        self.send(octets);
        self.settle();
    }

    /// Lets everything happen that happens within 20 microseconds.
    pub fn settle(&mut self) {
        for _ in 0..20 {
            for core in 0..self.steering.cores() {
                self.poll(core);
            }
            self.now += 1000;
        }
    }

    /// Lets time pass in steps of ten milliseconds.
    pub fn pass_ms(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds * MILLISECOND;
        while self.now < end {
            self.settle();
            self.now = (self.now + 10 * MILLISECOND).min(end);
        }
        self.settle();
    }

    /// The events of a core since the last look.
    pub fn take_events(&mut self, core: u8) -> Vec<Event> {
        core::mem::take(&mut self.events[usize::from(core)])
    }

    /// How many frames all cores have dropped for `cause`.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.all.iter().map(|core| core.statistics().dropped(cause)).sum()
    }

    /// The core that owns the connection from `remote` to `local`.
    pub fn owner(&self, remote: SocketAddr, local: SocketAddr) -> u8 {
        self.steering.owner(&Flow::new(remote, local).expect("one family"))
    }

    /// An ephemeral port of `local` whose connections from `remote` are those of `core`.
    pub fn port_of(&self, core: u8, remote: SocketAddr, local: IpAddr) -> u16 {
        let (first, last) = limits::EPHEMERAL_PORTS;
        let mut ports = first..=last;
        ports.find(|port| self.owner(remote, SocketAddr::new(local, *port)) == core).expect("each has some")
    }
}
